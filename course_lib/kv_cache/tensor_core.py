"""Decoding in half precision, dense and paged, by kernels/kv_cache/tensor_core.cu: the rungs for a card.

The wrappers of chapters 7 and 8 choose them where `fits` says so; shapes are theirs.
"""
import math

import torch
from torch import Tensor

from course_lib.attention import C_TYPES

STEP = 16                       # keys a warp takes at a time: pages hold a multiple of it
MULTIPROCESSORS, LEAST_KEYS = 132, 512


def fits(q: Tensor, n_kv_heads: int, v_dim: int) -> bool:
    """Half precision, head_dim 64 or 128, values as wide as keys, at most 8 query heads a key head."""
    return (q.dtype in (torch.float16, torch.bfloat16) and q.shape[-1] in (64, 128) and v_dim == q.shape[-1]
            and q.shape[1] // n_kv_heads <= 8)


def dense(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, splits: int | None = None, scale: float | None = None) -> Tensor:
    """q (b, n_heads, 1, d) over the first lengths[i] of k, v (b, n_kv_heads, m, d) -> like q."""
    k, v = k.contiguous(), v.contiguous()
    return _launch("decode_tensor_core", q, k.shape[1], k.shape[2], lengths, splits, scale, (k, v), (k.shape[2],))


def paged(q: Tensor, keys: Tensor, values: Tensor, tables: Tensor, lengths: Tensor, splits: int | None = None,
          scale: float | None = None) -> Tensor:
    """The same over pages: keys, values (n_blocks, n_kv_heads, block_size, d), tables (b, pages)."""
    block_size, pages = keys.shape[2], tables.shape[1]
    if block_size % STEP:
        raise ValueError(f"block_size must be a multiple of {STEP} for this kernel; got {block_size}")
    tables = tables.to(q.device, torch.int32).contiguous()
    return _launch("paged_tensor_core", q, keys.shape[1], pages * block_size, lengths, splits, scale,
                   (keys, values, tables), (block_size, pages))


def choose_splits(blocks: int, n_keys: int, device: torch.device) -> int:
    """Into how many parts to cut the keys: eight blocks for each multiprocessor, so that the last ones to end leave few
    idle, if no part gets too short to be worth its way to memory and back."""
    on_a_card = device.type == "cuda"
    processors = torch.cuda.get_device_properties(device).multi_processor_count if on_a_card else MULTIPROCESSORS
    return max(1, min(math.ceil(8 * processors / max(blocks, 1)), n_keys // LEAST_KEYS))


def _launch(kernel, q, n_kv_heads, n_keys, lengths, splits, scale, arrays, sizes):
    b, n_heads, _, d = q.shape
    if not fits(q, n_kv_heads, arrays[1].shape[-1]):
        raise ValueError("q must be float16 or bfloat16, 64 or 128 wide like the values, with at most 8 heads a key head; "
                         f"got {q.dtype} of shape {tuple(q.shape)} on {n_kv_heads} key heads")
    splits = choose_splits(b * n_kv_heads, n_keys, q.device) if splits is None else splits
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if q.numel() == 0 or n_keys == 0:
        return out.zero_()
    from course_lib import cuda

    module, c_type = cuda.load("kv_cache/tensor_core"), C_TYPES[q.dtype]
    parts, sums = (torch.empty(b, n_heads, splits, width, device=q.device) for width in (d, 2))
    keys_a_part = math.ceil(n_keys / splits / STEP) * STEP
    module[f"{kernel}<{c_type}, {d}>"][(splits, n_kv_heads, b), 128](
        q.contiguous(), *arrays, lengths.to(q.device, torch.int32).contiguous(), out, parts, sums, *sizes,
        n_heads // n_kv_heads, keys_a_part, d**-0.5 if scale is None else scale)
    if splits > 1:
        module[f"merge_splits<{c_type}>"][(n_heads, b), d](parts, sums, out, splits)
    return out
