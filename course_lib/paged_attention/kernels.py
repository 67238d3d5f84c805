"""Chapter 8's kernels as functions of a PagedKVCache, and what they accept.

Shapes as in course_lib/paged_attention.py. float32; none of them has a gradient.
"""
import math
from itertools import accumulate

import torch

from course_lib.kv_cache import tensor_core as decode_tensor_core
from course_lib.attention import aligned
from course_lib.checks import check_count


def paged_attention_kernel(q, cache, tables, lengths, layer=0, scale=None, kernel="grouped", n_splits=1):
    """paged_attention of one query a sequence, (b, heads, 1, head_dim), by a kernel of kernels/paged_attention.cu.

    "naive": a thread a key. "warp": a warp a group of tokens, four numbers a lane, each query head for itself.
    "grouped": the same, and query heads of one key head share what is loaded. The latter two can split the pages.
    float32, head_dim a multiple of 4 from 4 to 128. Half precision, 64 or 128 wide in pages of a multiple of 16, goes to
    kernels/kv_cache/tensor_core.cu, which chooses its own splits unless it is given more than one.
    """
    from course_lib import cuda

    check_paged(q, cache, tables, lengths, layer)
    b, heads, n, d = q.shape
    n_kv_heads, pages = cache.keys.shape[2], tables.shape[1]
    if kernel not in ("naive", "warp", "grouped"):
        raise ValueError(f"kernel must be naive, warp or grouped; got {kernel!r}")
    if n == 1 and cache.block_size % 16 == 0 and decode_tensor_core.fits(q, n_kv_heads, cache.values.shape[4]):
        return decode_tensor_core.paged(q, cache.keys[layer], cache.values[layer], tables, lengths,
                                        None if n_splits == 1 else n_splits, scale)
    if q.dtype != torch.float32 or n != 1 or d % 4 or d > 128:
        raise ValueError("q must be float32 (b, heads, 1, head_dim), head_dim a multiple of 4 and at most 128; "
                         f"got {q.dtype}, {tuple(q.shape)}")
    check_count("n_splits", n_splits, 1)
    if kernel == "naive" and n_splits != 1:
        raise ValueError(f"n_splits must be 1 for the naive kernel; got {n_splits}")
    _check_widths(cache)
    longest = int(lengths.max()) if b else 0
    if kernel == "naive" and longest > 12000:
        raise ValueError(f"lengths must be at most 12000 for the naive kernel (48 KiB of scores); got {longest}")
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    if q.numel() == 0:
        return out
    (q,), (tables, lengths) = aligned(q), (x.to(q.device, torch.int32).contiguous() for x in (tables, lengths))
    keys, values = cache.keys[layer], cache.values[layer]
    scale = 1 / math.sqrt(d) if scale is None else scale
    module, sizes = cuda.load("paged_attention"), (heads, n_kv_heads, d, cache.block_size, pages)
    if kernel == "naive":
        module.paged_decode_naive[(heads, b), 128, 4 * longest](q, keys, values, tables, lengths, out, *sizes, scale)
        return out
    lanes = next(lanes for lanes in (8, 16, 32) if 4 * lanes >= d)
    group = next(g for g in (8, 4, 2, 1) if heads // n_kv_heads % g == 0) if kernel == "grouped" else 1
    parts = q.new_empty(b, heads, n_splits, d) if n_splits > 1 else None
    sums = q.new_empty(b, heads, n_splits, 2) if n_splits > 1 else None
    module[f"paged_decode_warps<{lanes}, {group}>"][(n_splits, heads // group, b), 128](
        q, keys, values, tables, lengths, out, parts, sums, *sizes, scale)
    if n_splits > 1:
        module.paged_merge[(heads, b), 32 * math.ceil(d / 32)](parts, sums, out, n_splits, d)
    return out


def paged_prefill_kernel(q, cache, tables, lengths, counts, layer=0, scale=None):
    """paged_prefill by a kernel: q (tokens, heads, head_dim), of which counts[i] rows are the last of sequence i.

    One head of one token is a row. 32 rows of one key head (16 where head_dim is above 64) share each tile of keys.
    float32, head_dim a multiple of 4 from 4 to 128.
    """
    from course_lib import cuda

    check_chunks(counts, q, tables)
    tokens, heads, d = q.shape
    check_paged(q[None, :1].transpose(1, 2).expand(len(counts), -1, -1, -1), cache, tables, lengths, layer)
    if q.dtype != torch.float32 or d % 4 or d > 128:
        raise ValueError("q must be float32 (tokens, heads, head_dim), head_dim a multiple of 4 and at most 128; "
                         f"got {q.dtype}, {tuple(q.shape)}")
    if any(count > length for count, length in zip(counts, lengths.tolist())):
        raise ValueError(f"counts must be at most the lengths, {lengths.tolist()}; got {list(counts)}")
    _check_widths(cache)
    n_kv_heads, pages = cache.keys.shape[2], tables.shape[1]
    width, rows = next((w, r) for w, r in ((32, 8), (64, 8), (128, 4)) if d <= w)
    starts, tables, lengths = (torch.as_tensor(x).to(q.device, torch.int32).contiguous()
                               for x in (list(accumulate(counts, initial=0)), tables, lengths))
    (q,) = aligned(q)
    out = torch.empty_like(q)
    grid = math.ceil(max(counts) * (heads // n_kv_heads) / (4 * rows)), n_kv_heads, len(counts)
    cuda.load("paged_attention")[f"paged_prefill<{width}, {rows}>"][grid, 128](
        q, cache.keys[layer], cache.values[layer], tables, starts, lengths, out, heads, n_kv_heads, d,
        cache.block_size, pages, 1 / math.sqrt(d) if scale is None else scale)
    return out


def copy_blocks_kernel(cache, pairs):
    """Copy source to target for each (source, target) of pairs in all layers, in one launch for keys and values.

    No target may be a source or a target of another pair: the copies run in any order.
    """
    from course_lib import cuda

    _check_widths(cache)
    sources, targets = [int(s) for s, _ in pairs], [int(t) for _, t in pairs]
    n_layers, n_blocks, *block = cache.keys.shape
    if len(set(targets)) < len(targets) or set(targets) & set(sources):
        raise ValueError(f"pairs must have targets that are nothing else in the list; got {list(pairs)}")
    if any(not 0 <= x < n_blocks for x in sources + targets):
        raise ValueError(f"pairs must name blocks from 0 to {n_blocks - 1}; got {list(pairs)}")
    if cache.keys.dtype != torch.float32 or math.prod(block) % 4:
        raise ValueError("cache must be float32 with blocks of a multiple of 4 numbers; "
                         f"got {cache.keys.dtype}, {tuple(block)}")
    if targets:
        cuda.load("paged_attention").copy_blocks[(len(targets), n_layers), 128](
            cache.keys, cache.values,
            torch.tensor(list(zip(sources, targets)), dtype=torch.int32, device=cache.keys.device),
            n_blocks, math.prod(block) // 4)


def check_chunks(counts, q, tables):
    if not isinstance(q, torch.Tensor) or q.dim() != 3:
        raise ValueError(f"q must be (tokens, heads, head_dim); got {tuple(getattr(q, 'shape', ()))}")
    whole = all(isinstance(count, int) and count > 0 for count in counts)
    if not whole or len(counts) != len(tables) or sum(counts) != len(q) or len(q) == 0:
        raise ValueError(f"counts must be positive integers, one for each of the {len(tables)} sequences, and sum to the "
                         f"{len(q)} rows of q; got {list(counts)}")


def _check_widths(cache):
    if cache.values.shape != cache.keys.shape:
        raise ValueError(f"cache must hold values as wide as keys, {cache.keys.shape[4]}, for this kernel; "
                         f"got {cache.values.shape[4]}")


def check_paged(q, cache, tables, lengths, layer):
    pool = cache.keys
    if not isinstance(q, torch.Tensor) or q.dim() != 4:
        raise ValueError(f"q must be (b, heads, n, head_dim); got {tuple(getattr(q, 'shape', ()))}")
    if q.dtype != pool.dtype:
        raise ValueError(f"q must have the dtype of the cache, {pool.dtype}; got {q.dtype}")
    if q.shape[3] != pool.shape[4] or q.shape[1] == 0 or q.shape[1] % pool.shape[2]:
        raise ValueError(f"q must have head_dim {pool.shape[4]} and a multiple of {pool.shape[2]} heads; "
                         f"got {tuple(q.shape)}")
    if not isinstance(layer, int) or not 0 <= layer < pool.shape[0]:
        raise ValueError(f"layer must be from 0 to {pool.shape[0] - 1}; got {layer!r}")
    for name, x, dims in (("tables", tables, 2), ("lengths", lengths, 1)):
        if not isinstance(x, torch.Tensor) or x.dtype not in (torch.int32, torch.int64) or x.dim() != dims \
                or x.shape[0] != q.shape[0]:
            got = f"{x.dtype} of shape {tuple(x.shape)}" if isinstance(x, torch.Tensor) else type(x).__name__
            raise ValueError(f"{name} must be int32 or int64 in {dims} dimensions, {q.shape[0]} rows; got {got}")
    size, references = cache.block_size, cache.allocator.references
    for row, length in zip(tables.tolist(), lengths.tolist()):
        if not q.shape[2] <= length <= size * len(row) or length < 1:
            raise ValueError(f"lengths must be from max(1, n={q.shape[2]}) to {size * len(row)}, what the table "
                             f"holds in pages of {size}; got {length}")
        for block in row[:math.ceil(length / size)]:
            if not 0 <= block < len(references) or references[block] == 0:
                raise ValueError(f"tables must name blocks that a sequence holds; got {block}: a stale entry")
