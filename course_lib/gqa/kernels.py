"""Chapter 3's kernels as functions: kernels/gqa.cu, and kernels/gqa/latent_decode.cu."""
import math

import torch
from torch import Tensor

from course_lib import cuda
from course_lib.checks.gqa import check_gqa_kernel, check_latent_decode
from course_lib.launching import C_TYPES, SHARED_BYTES_SM80, aligned, shared_limit
from .latent import fold_queries, unfold_values


def shared_bytes(heads: int, d: int) -> int:
    """Dynamic shared memory of a block of kernels/gqa.cu that serves `heads` query heads."""
    tile = 32
    return 4 * (2 * heads * d + tile * (d + 1) + tile * d + heads * tile + 3 * heads)


def gqa_kernel(q: Tensor, k: Tensor, v: Tensor, causal: bool = True, scale: float | None = None,
               rung: int = 3) -> Tensor:
    """`grouped_query_attention` by kernels/gqa.cu, float32.

    rung: 1 repeats keys and values, 2 computes the index of the shared head, 3 gives each group one block."""
    group_size = check_gqa_kernel(q, k, v, scale, rung, shared_bytes)
    b, n_heads, n_q, d = q.shape
    heads_per_block = group_size if rung == 3 else 1
    scale = 1 / math.sqrt(d) if scale is None else scale
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    out = torch.empty_like(q)
    if out.numel() == 0:
        return out
    module, block = cuda.load("gqa"), 128
    if rung == 1 and k.numel():
        k, v = (_repeat_by_kernel(module, x, group_size, block) for x in (k, v))
        group_size = 1
    grid = (n_q, n_heads // heads_per_block, b)
    kernel = module.attend_by_group if rung == 3 else module.attend_by_head
    launch = kernel[grid, block, shared_bytes(heads_per_block, d)]
    launch(q, k, v, out, n_q, k.shape[-2], d, group_size, int(causal), scale)
    return out


def _repeat_by_kernel(module, x, group_size, block):
    b, n_kv_heads, n, d = x.shape
    out = x.new_empty(b, n_kv_heads * group_size, n, d)
    grid = (math.ceil(n * d / block), n_kv_heads * group_size, b)
    module.repeat_kv[grid, block](x, out, n_kv_heads, group_size, n * d)
    return out


def latent_decode_kernel(q: Tensor, q_rope: Tensor, latent: Tensor, k_rope: Tensor, k_up: Tensor,
                         v_up: Tensor, lengths: Tensor | None = None,
                         heads_per_block: int | None = None) -> Tensor:
    """Absorbed latent attention of one query per sequence, by kernels/gqa/latent_decode.cu.

    q (b, h, 1, head_dim), q_rope (b, h, 1, rope_dim), latent (b, 1, n, latent_dim), k_rope (b, 1, n,
    rope_dim), k_up and v_up (h, head_dim, latent_dim) -> (b, h, 1, head_dim), as `LatentAttention` computes
    it. float32, float16 or bfloat16; lengths (b): tokens of each sequence. heads_per_block: 1, 4 or 16 heads
    share a tile of latents; None takes the most that the card has shared memory for. No gradient."""
    lengths = check_latent_decode(q, q_rope, latent, k_rope, k_up, v_up, lengths, heads_per_block)
    scale = (q.shape[3] + q_rope.shape[3]) ** -0.5
    q, v_up = fold_queries(q, k_up).detach(), v_up.detach()
    (b, n_heads, _, latent_dim), rope_dim, n = q.shape, q_rope.shape[3], latent.shape[2]
    mixed = torch.empty_like(q, memory_format=torch.contiguous_format)
    if mixed.numel():
        limit = min(shared_limit(q.device), SHARED_BYTES_SM80)
        heads = heads_per_block or most_heads(latent_dim, rope_dim, limit)
        kernel = cuda.load("gqa/latent_decode")[f"latent_decode<{C_TYPES[q.dtype]}, {heads}>"]
        kernel.shared_limit = limit
        kernel[(math.ceil(n_heads / heads), b), 128, latent_shared_bytes(heads, latent_dim, rope_dim)](
            *aligned(q, q_rope, latent, k_rope), lengths.to(torch.int32).contiguous(), mixed, n_heads, n,
            latent_dim, rope_dim, scale)
    return unfold_values(mixed, v_up)


def latent_shared_bytes(heads: int, latent_dim: int, rope_dim: int) -> int:
    """Dynamic shared memory of a block of latent_decode.cu: rows of queries and of a tile of 16 tokens."""
    return 16 * (heads + 16) * (math.ceil(latent_dim / 4) + math.ceil(rope_dim / 4) | 1)


def most_heads(latent_dim: int, rope_dim: int, limit: int) -> int:
    """Heads per block whose rows fit beside the block's own 2 KiB of weights and sums."""
    fits = (heads for heads in (16, 4) if latent_shared_bytes(heads, latent_dim, rope_dim) + 2048 <= limit)
    return next(fits, 1)
