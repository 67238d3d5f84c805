"""Chapter 5: sparse attention in half precision on tensor cores, by sparse_attention/tensor_core.cu."""
import math

import torch
from torch import Tensor

from course_lib import cuda
from course_lib.checks.sparse_attention import check_sparse_tensor_core
from course_lib.launching import (C_TYPES, HALF, SHARED_BYTES_SM80, aligned, require_tensor_cores,
                                  runs_tensor_cores)

BLOCK = 128                     # of the BlockMask: 128 queries per block of threads, two tiles of 64 keys


def fits(q: Tensor, v: Tensor) -> bool:
    """Half precision of a width that is a multiple of 8 up to 128; on a GPU sm_80 or later."""
    d = q.shape[-1]
    return runs_tensor_cores(q.device) and q.dtype in HALF and d == v.shape[-1] and d % 8 == 0 and d <= 128


def window(q: Tensor, k: Tensor, v: Tensor, window: int, n_sink: int = 0,
           scale: float | None = None) -> Tensor:
    """q (b, n_heads, n, d), k, v (b, n_kv_heads, n, d): causal, the last `window` keys, the first n_sink."""
    n = q.shape[2]
    return _launch("window_tensor_core", q, k, v, (), (n,), (min(window, n), n_sink), scale)


def blocks(q: Tensor, k: Tensor, v: Tensor, lists: tuple[Tensor, ...], scale: float | None = None) -> Tensor:
    """lists are the `stored_masks` of a BlockMask with blocks of 128."""
    return _launch("block_sparse_tensor_core", q, k, v, lists, (q.shape[2], k.shape[2]), (), scale)


def _launch(kernel, q, k, v, lists, lengths, options, scale):
    require_tensor_cores(q)
    group_size = check_sparse_tensor_core(q, k, v, scale, fits(q, v))
    b, heads, n_q, d = q.shape
    scale = d**-0.5 if scale is None else scale
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if out.numel() == 0:
        return out
    q, k, v = aligned(q, k, v)
    width = 64 if d <= 64 else 128
    launch = cuda.load("sparse_attention/tensor_core")[f"{kernel}<{C_TYPES[q.dtype]}, {width}>"]
    launch.shared_limit = SHARED_BYTES_SM80
    launch[(math.ceil(n_q / BLOCK), b * heads), 128, 2 * (BLOCK + 4 * 64) * width](
        q, k, v, *lists, out, group_size, *lengths, d, *options, scale)
    return out
