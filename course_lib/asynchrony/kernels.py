"""Chapter 12's kernels as functions of tensors: every rung of the ladder, in bfloat16, for GPUs of sm_90 (Hopper).

Shapes as in chapter 6: q (batch, n_heads, n_q, head_dim), k and v (batch, n_kv_heads, n_k, head_dim). Nothing
here has a gradient.
"""
import math

import torch
from torch import Tensor

from course_lib import cuda
from course_lib.checks.asynchrony import check_asynchronous
from course_lib.launching import aligned

# rung: (file, kernel, query rows per block, keys per tile, threads per block)
RUNGS = {1: ("asynchrony", "one_tile", 64, 32, 64), 2: ("asynchrony", "two_buffers", 64, 32, 64),
         3: ("asynchrony", "ring", 64, 32, 64), 4: ("asynchrony", "producer_warp", 64, 32, 96)}


def asynchronous_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None,
                           rung: int = max(RUNGS), stages: int = 3) -> tuple[Tensor, Tensor]:
    """One rung of the ladder: -> out (batch, n_heads, n_q, head_dim), lse (batch, n_heads, n_q) in float32.

    bfloat16; head_dim 64, from rung 5 on also 128. stages: buffers of the ring in rungs 3 and 4, 2 to 4.
    """
    scale = check_asynchronous(q, k, v, scale, causal, rung, RUNGS, stages)
    out, lse = q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=torch.float32)
    (n_q, d), n_k = q.shape[2:], k.shape[2]
    if out.numel() == 0 or n_k == 0:                    # nothing to launch
        return out.zero_(), lse.fill_(-math.inf)
    file, name, rows, keys, threads = RUNGS[rung]
    q, k, v = aligned(q, k, v)
    instance = f"{name}<{stages}>" if rung in (3, 4) else name
    maps = tile_map(k, keys), tile_map(v, keys), tile_map(out, 64, swizzle=128)
    last = q.shape[1] // k.shape[1], n_q, n_k, float(scale), int(causal)
    cuda.load(file)[instance][(math.ceil(n_q / rows), q.shape[0] * q.shape[1]), threads](*maps, q, lse, *last)
    return out, lse


def tile_map(x: Tensor, rows: int, swizzle: int | None = None):
    """A tensor map of x (batch, heads, n, width) as (batch * heads, n, width): tiles of `rows` rows and 64
    columns of one head. What a tile has beyond a head's n rows arrives as 0, and is not stored."""
    return cuda.tensor_map(x.flatten(0, 1), (1, rows, 64), swizzle=swizzle)
