"""Chapter 3: `grouped_query_attention` by the kernels of kernels/gqa.cu."""
import math

import torch
from torch import Tensor

from course_lib import cuda
from course_lib.checks.gqa import check_gqa_kernel


def shared_bytes(heads: int, d: int) -> int:
    """Dynamic shared memory of a block of kernels/gqa.cu that serves `heads` query heads."""
    tile = 32
    return 4 * (2 * heads * d + tile * (d + 1) + tile * d + heads * tile + 3 * heads)


def gqa_kernel(q: Tensor, k: Tensor, v: Tensor, causal: bool = True, scale: float | None = None,
               rung: int = 3) -> Tensor:
    """`grouped_query_attention` by kernels/gqa.cu, float32.

    rung: 1 repeats keys and values, 2 computes the index of the shared head, 3 gives each group one block.
    """
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
