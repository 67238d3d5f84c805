"""Decoding in half precision on tensor cores, dense and paged: kernels/kv_cache/tensor_core.cu.

The kernels of chapters 7 and 8 hand over to these where `fits` says so; shapes as there.
"""
import math

import torch
from torch import Tensor

from course_lib import cuda
from course_lib.checks import check_multiple
from course_lib.checks.kv_cache import LARGEST_GROUP, check_tensor_core
from course_lib.launching import C_TYPES, HALF, multiprocessors, parts_to_fill

STEP = 16               # keys that a warp reads at a time; it divides the block_size of a paged cache
LEAST_KEYS = 512        # per part


def fits(q: Tensor, n_kv_heads: int, v_dim: int) -> bool:
    """Half precision, head_dim 64 or 128, values as wide as keys, at most 8 query heads per key head."""
    return (q.dtype in HALF and q.shape[-1] in (64, 128) and v_dim == q.shape[-1]
            and q.shape[1] // n_kv_heads <= LARGEST_GROUP)


def dense(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, splits: int | None = None,
          scale: float | None = None) -> Tensor:
    """q (b, n_heads, 1, d) over the first lengths[i] of k, v (b, n_kv_heads, m, d) -> like q."""
    k, v = k.contiguous(), v.contiguous()
    n_kv_heads, m = k.shape[1:3]
    return _launch("decode_tensor_core", q, n_kv_heads, m, lengths, splits, scale, (k, v), (m,))


def paged(q: Tensor, keys: Tensor, values: Tensor, tables: Tensor, lengths: Tensor, splits: int | None = None,
          scale: float | None = None) -> Tensor:
    """The same over pages: keys, values (n_blocks, n_kv_heads, block_size, d), tables (b, pages)."""
    block_size, pages = keys.shape[2], tables.shape[1]
    check_multiple("block_size", block_size, "the kernel's step", STEP)
    tables = tables.to(q.device, torch.int32).contiguous()
    return _launch("paged_tensor_core", q, keys.shape[1], pages * block_size, lengths, splits, scale,
                   (keys, values, tables), (block_size, pages))


def choose_splits(blocks: int, n_keys: int, device: torch.device) -> int:
    """Into how many parts to cut the keys: eight blocks per multiprocessor, to shorten the tail, but never
    fewer than LEAST_KEYS keys per part: writing and rereading partial results would cost more than it
    saves."""
    return parts_to_fill(8 * multiprocessors(device), blocks, n_keys, LEAST_KEYS)


def _launch(kernel, q, n_kv_heads, n_keys, lengths, splits, scale, arrays, sizes):
    b, n_heads, _, d = q.shape
    check_tensor_core(fits(q, n_kv_heads, arrays[1].shape[-1]), q, n_kv_heads)
    splits = choose_splits(b * n_kv_heads, n_keys, q.device) if splits is None else splits
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if q.numel() == 0 or n_keys == 0:
        return out.zero_()
    module, c_type = cuda.load("kv_cache/tensor_core"), C_TYPES[q.dtype]
    parts, sums = (torch.empty(b, n_heads, splits, width, device=q.device) for width in (d, 2))
    keys_per_part = math.ceil(n_keys / splits / STEP) * STEP
    module[f"{kernel}<{c_type}, {d}>"][(splits, n_kv_heads, b), 128](
        q.contiguous(), *arrays, lengths.to(q.device, torch.int32).contiguous(), out, parts, sums, *sizes,
        n_heads // n_kv_heads, keys_per_part, d**-0.5 if scale is None else scale)
    if splits > 1:
        module[f"merge_splits<{c_type}>"][(n_heads, b), d](parts, sums, out, splits)
    return out
