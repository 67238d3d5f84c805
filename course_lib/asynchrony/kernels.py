"""Chapter 12's kernels as functions of tensors: every rung of the ladder, in bfloat16, for GPUs of sm_90 (Hopper).

Shapes as in chapter 6: q (batch, n_heads, n_q, head_dim), k and v (batch, n_kv_heads, n_k, head_dim). Nothing
here has a gradient."""
import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from course_lib import cuda
from course_lib.checks.asynchrony import check_asynchronous
from course_lib.launching import SHARED_BYTES_SM90, aligned

# rung: (file, kernel, query rows per block, keys per tile, threads per block)
RUNGS = {1: ("asynchrony", "one_tile", 64, 32, 64), 2: ("asynchrony", "two_buffers", 64, 32, 64),
         3: ("asynchrony", "ring", 64, 32, 64), 4: ("asynchrony", "producer_warp", 64, 32, 96),
         5: ("asynchrony/warpgroup", "warpgroup_attention", 64, 64, 160),
         6: ("asynchrony/warpgroup", "overlapped", 64, 64, 160),
         7: ("asynchrony/flash3", "flash3_forward", 128, 128, 384),
         8: ("asynchrony/flash3", "shared_by_cluster", 128, 128, 384)}
THREE_GROUPS = ("asynchrony/flash3", "flash3_three_groups", 192, 128, 512)      # rung 7 in three warpgroups
CLUSTERS = 8                            # the rung whose blocks come in twos, and order half a tile each
SLOTS = 4                               # tiles in the ring of the rungs from 5 on: keys, values, keys, values


def asynchronous_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None,
                           rung: int = 7, stages: int = 3, groups: int = 2,
                           key_bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """One rung of the ladder: -> out (batch, n_heads, n_q, v_dim), lse (batch, n_heads, n_q) in float32.

    bfloat16; head_dim 64, from rung 5 on also 128; v_dim the same. stages: buffers of the ring in rungs 3 and 4,
    2 to 4. groups: rung 7 in 3 warpgroups takes v_dim 64, and key_bias (batch, n_kv_heads, n_k) for the scores."""
    scale = check_asynchronous(q, k, v, scale, causal, rung, RUNGS, stages, groups, key_bias)
    out, lse = q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3], dtype=torch.float32)
    (n_q, d), n_k, heads = q.shape[2:], k.shape[2], q.shape[0] * q.shape[1]
    if out.numel() == 0 or n_k == 0:                    # nothing to launch
        return out.zero_(), lse.fill_(-math.inf)
    file, name, rows, keys, threads = RUNGS[rung] if groups == 2 else THREE_GROUPS
    q, k, v = aligned(q, k, v)
    instance = f"<{d}>" if rung >= 5 else f"<{stages}>" if rung >= 3 else ""
    instance = instance if groups == 2 else f"<{d}, {'false' if key_bias is None else 'true'}>"
    blocks, twos = math.ceil(n_q / rows), rung == CLUSTERS
    kernel, grid = cuda.load(file)[name + instance], (blocks + blocks % 2 * twos, heads)
    last = lse, q.shape[1] // k.shape[1], n_q, n_k, float(scale), int(causal)
    if rung < 5:
        kernel[grid, threads](tile_map(k, keys), tile_map(v, keys), tile_map(out, 64, 128), q, *last)
        return out, lse
    kernel.shared_limit = SHARED_BYTES_SM90
    ordered = keys // 2 if twos else keys
    sizes = (q, 64), (k, ordered), (v, ordered), (out, 64)
    maps = [tile_map(x, n, 128) for x, n in sizes]
    if groups == 3:         # the bias of all heads is one row; a head's begins at 16 bytes, as a tile must
        bias = lse if key_bias is None else key_bias.expand(k.shape[:3]).float() / scale
        maps.append(cuda.tensor_map(pad(bias, (0, -n_k % 4)).flatten(), (keys,)))
    kernel[grid, threads, 2 * d * (rows + SLOTS * keys) + (groups - 2) * 4 * SLOTS * keys](*maps, *last)
    return out, lse


def tile_map(x: Tensor, rows: int, swizzle: int | None = None):
    """A tensor map of x (batch, heads, n, width) as (batch * heads, n, width): tiles of `rows` rows and 64
    columns of one head. What a tile has beyond a head's n rows arrives as 0, and is not stored."""
    return cuda.tensor_map(x.flatten(0, 1), (1, rows, 64), swizzle=swizzle)
