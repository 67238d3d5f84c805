"""Decoding in half precision on tensor cores, dense and paged: kernels/kv_cache/tensor_core.cu.

The kernels of chapters 7 and 8 hand over to these where `fits` says so; shapes as there."""
import math

import torch
from torch import Tensor

from course_lib import cuda
from course_lib.checks import check_count, check_multiple
from course_lib.checks.kv_cache import LARGEST_GROUP, check_tensor_core
from course_lib.launching import (C_TYPES, HALF, aligned, multiprocessors, parts_to_fill,
                                  require_tensor_cores, runs_tensor_cores)

STEP = 16               # keys that a warp reads at a time; it divides the block_size of a paged cache
LEAST_KEYS = 512        # per part


def fits(q: Tensor, n_kv_heads: int, v_dim: int) -> bool:
    """Half precision, head_dim 64 or 128, values as wide, at most 8 queries per key head; sm_80 or later."""
    return (runs_tensor_cores(q.device) and q.dtype in HALF and q.shape[-1] in (64, 128)
            and v_dim == q.shape[-1] and q.shape[1] // n_kv_heads <= LARGEST_GROUP)


def dense(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, splits: int | None = None,
          scale: float | None = None) -> Tensor:
    """q (b, n_heads, 1, d) over the first lengths[i] of k, v (b, n_kv_heads, m, d) -> like q."""
    n_kv_heads, m = k.shape[1:3]
    whole = _cache_of(k), _cache_of(v)
    if None in whole or whole[0].shape != whole[1].shape:
        whole = aligned(k, v)
    return _launch("decode_tensor_core", q, n_kv_heads, m, lengths, splits, scale, whole,
                   (whole[0].shape[2],))


def _cache_of(x: Tensor) -> Tensor | None:
    """The contiguous (b, n_kv_heads, capacity, d) of which x is the first rows, as a StaticCache's view is; a
    copy of them would cost as much as the attention."""
    b, heads, _, d = x.shape
    capacity = (x.stride(1) if heads > 1 else x.stride(0) if b > 1 else x.numel()) // d
    strides = (heads * capacity * d, capacity * d, d, 1)
    if capacity < x.shape[2] or any(
            have != want for have, want, size in zip(x.stride(), strides, x.shape) if size > 1):
        return None
    end = x.storage_offset() + b * heads * capacity * d
    fits = end * x.element_size() <= x.untyped_storage().nbytes() and x.data_ptr() % 16 == 0
    return x.as_strided((b, heads, capacity, d), strides) if fits else None


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
    fewer than LEAST_KEYS keys per part: writing and rereading partial results would cost more."""
    return parts_to_fill(8 * multiprocessors(device), blocks, n_keys, LEAST_KEYS)


def _launch(kernel, q, n_kv_heads, n_keys, lengths, splits, scale, arrays, sizes):
    require_tensor_cores(q)
    b, n_heads, _, d = q.shape
    check_tensor_core(fits(q, n_kv_heads, arrays[1].shape[-1]), q, n_kv_heads)
    check_count("splits", splits, optional=True)
    splits = choose_splits(b * n_kv_heads, n_keys, q.device) if splits is None else splits
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if q.numel() == 0 or n_keys == 0:
        return out.zero_()
    module, c_type = cuda.load("kv_cache/tensor_core"), C_TYPES[q.dtype]
    parts, sums = (torch.empty(b, n_heads, splits, width, device=q.device) for width in (d, 2))
    keys_per_part = math.ceil(n_keys / splits / STEP) * STEP
    module[f"{kernel}<{c_type}, {d}>"][(splits, n_kv_heads, b), 128](
        *aligned(q), *arrays, lengths.to(q.device, torch.int32).contiguous(), out, parts, sums, *sizes,
        n_heads // n_kv_heads, keys_per_part, d**-0.5 if scale is None else scale)
    if splits > 1:
        module[f"merge_splits<{c_type}>"][(n_heads, b), d](parts, sums, out, splits)
    return out
