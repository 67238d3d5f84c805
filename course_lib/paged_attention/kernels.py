"""Chapter 8's kernels as functions of a PagedKVCache. Shapes as in paged.py. float32; none has a gradient."""
import math
from itertools import accumulate

import torch

from course_lib import cuda
from course_lib.checks import check_choice, check_count
from course_lib.checks.paged_attention import (check_chunks, check_copies, check_decode_paged, check_paged,
                                               check_prefill_paged, check_shared_prefix)
from course_lib.kv_cache import tensor_core
from course_lib.launching import aligned


def paged_attention_kernel(q, cache, tables, lengths, layer=0, scale=None, kernel="grouped", n_splits=1):
    """paged_attention of one query per sequence, (b, heads, 1, head_dim): kernels/paged_attention.cu.

    "naive": one thread per key. "warp": one warp per group of tokens, four numbers per lane, every query head
    on its own. "grouped": the same, but the query heads of one key head share each load. The last two can
    split the pages. float32, head_dim a multiple of 4 from 4 to 128. Half precision, 64 or 128 wide in pages
    of a multiple of 16, goes to kernels/kv_cache/tensor_core.cu, which chooses its splits if n_splits is 1.
    """
    check_paged(q, cache, tables, lengths, layer)
    check_choice("kernel", kernel, ("naive", "warp", "grouped"))
    keys, values = cache.keys[layer], cache.values[layer]
    fits = tensor_core.fits(q, keys.shape[1], values.shape[3]) and q.shape[2] == 1
    if fits and cache.block_size % tensor_core.STEP == 0:
        check_count("n_splits", n_splits)
        return tensor_core.paged(q, keys, values, tables, lengths, None if n_splits == 1 else n_splits, scale)
    check_decode_paged(q, cache, lengths, kernel, n_splits)
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    if q.numel() == 0:
        return out
    longest = int(lengths.max())
    (q,), (tables, lengths) = aligned(q), (_as_int32(x, q.device) for x in (tables, lengths))
    given = q, keys, values, tables, lengths, out
    sizes = q.shape[1], keys.shape[1], q.shape[3], cache.block_size, tables.shape[1]
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    if kernel == "naive":
        launch = cuda.load("paged_attention").paged_decode_naive
        launch[q.shape[1::-1], 128, 4 * longest](*given, *sizes, scale)
    else:
        _decode_by_warps(given, sizes, scale, kernel == "grouped", n_splits)
    return out


def _decode_by_warps(given, sizes, scale, grouped, n_splits):
    (q, *_, out), (heads, n_kv_heads, d, *_) = given, sizes
    module, b, group_size = cuda.load("paged_attention"), len(q), heads // n_kv_heads
    lanes = next(lanes for lanes in (8, 16, 32) if 4 * lanes >= d)
    together = next(g for g in (8, 4, 2, 1) if group_size % g == 0) if grouped else 1
    parts = sums = None
    if n_splits > 1:
        parts, sums = (q.new_empty(b, heads, n_splits, width) for width in (d, 2))
    module[f"paged_decode_warps<{lanes}, {together}>"][(n_splits, heads // together, b), 128](
        *given, parts, sums, *sizes, scale)
    if n_splits > 1:
        module.paged_merge[(heads, b), 32 * math.ceil(d / 32)](parts, sums, out, n_splits, d)


def paged_prefill_kernel(q, cache, tables, lengths, counts, layer=0, scale=None):
    """paged_prefill by a kernel: q (tokens, heads, head_dim), counts[i] rows the last of sequence i.

    One head of one token is a row. 32 rows of one key head (16 if head_dim is above 64) share each tile of
    keys. float32, head_dim a multiple of 4 from 4 to 128."""
    check_chunks(counts, q, tables)
    tokens, heads, d = q.shape
    check_paged(q[None, :1].transpose(1, 2).expand(len(counts), -1, -1, -1), cache, tables, lengths, layer)
    check_prefill_paged(q, cache, lengths, counts)
    n_kv_heads, pages = cache.keys.shape[2], tables.shape[1]
    width, rows = next((w, r) for w, r in ((32, 8), (64, 8), (128, 4)) if d <= w)
    starts, tables, lengths = (_as_int32(torch.as_tensor(x), q.device)
                               for x in (list(accumulate(counts, initial=0)), tables, lengths))
    (q,) = aligned(q)
    out = torch.empty_like(q)
    grid = math.ceil(max(counts) * (heads // n_kv_heads) / (4 * rows)), n_kv_heads, len(counts)
    cuda.load("paged_attention")[f"paged_prefill<{width}, {rows}>"][grid, 128](
        q, cache.keys[layer], cache.values[layer], tables, starts, lengths, out, heads, n_kv_heads, d,
        cache.block_size, pages, 1 / math.sqrt(d) if scale is None else scale)
    return out


def shared_prefix_kernel(q, cache, tables, lengths, layer=0, scale=None, n_splits=1):
    """`paged_attention_kernel` that reads the pages all tables begin with once for many requests.

    One launch of kernels/paged_attention/shared_prefix.cu: the shared pages, in n_splits parts, meet the
    queries of up to 32 / group_size requests at once (16 / group_size if head_dim is above 64); each
    request's own pages are one more part. float32, head_dim a multiple of 4 from 4 to 128."""
    check_paged(q, cache, tables, lengths, layer)
    b, heads, _, d = q.shape
    n_kv_heads, size = cache.keys.shape[2], cache.block_size
    width, rows = next((w, r) for w, r in ((32, 8), (64, 8), (128, 4)) if d <= w)
    check_shared_prefix(q, cache, lengths, n_splits, 4 * rows)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if q.numel() == 0:
        return out
    shared = size * shared_pages(tables, int(lengths.min()) // size)
    parts, sums = (q.new_empty(b, heads, n_splits + 1, x) for x in (d, 2))
    arrived = torch.zeros(b, n_kv_heads, dtype=torch.int32, device=q.device)
    tiles = math.ceil(b / (4 * rows // (heads // n_kv_heads)))
    (q,), (tables, lengths) = aligned(q), (_as_int32(x, q.device) for x in (tables, lengths))
    kernel = cuda.load("paged_attention/shared_prefix")[f"shared_prefix_decode<{width}, {rows}>"]
    kernel[(tiles * n_splits + b, n_kv_heads), 128](
        q, cache.keys[layer], cache.values[layer], tables, lengths, out, parts, sums, arrived, b, heads,
        n_kv_heads, d, size, tables.shape[1], shared, n_splits, 1 / math.sqrt(d) if scale is None else scale)
    return out


def shared_pages(tables, most: int) -> int:
    """How many pages, `most` at most, all rows of tables (b, pages) begin with."""
    alike = (tables[:, :most] == tables[:1, :most]).all(0)
    return int(alike.cumprod(0).sum())


def copy_blocks_kernel(cache, pairs):
    """Copy source to target for each (source, target) of pairs, all layers, keys and values in one launch.

    No target may be a source or a target of another pair, because the copies run in any order."""
    sources, targets = [int(source) for source, _ in pairs], [int(target) for _, target in pairs]
    check_copies(cache, sources, targets)
    n_layers, n_blocks, *block = cache.keys.shape
    if targets:
        numbers = torch.tensor(list(zip(sources, targets)), dtype=torch.int32, device=cache.keys.device)
        cuda.load("paged_attention").copy_blocks[(len(targets), n_layers), 128](
            cache.keys, cache.values, numbers, n_blocks, math.prod(block) // 4)


def _as_int32(x, device):
    return x.to(device, torch.int32).contiguous()
