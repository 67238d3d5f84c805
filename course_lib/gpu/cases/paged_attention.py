"""Chapter 8: queries over pages of a pool, whose unused places hold NaN."""
import math
from functools import partial
from types import SimpleNamespace

import torch

from course_lib.gpu.case import BF16, CACHES, CACHES_LARGE, F16, F32, HALF_CACHES, Case, attention
from course_lib.kv_cache import tensor_core
from course_lib.paged_attention.kernels import (copy_blocks_kernel, paged_attention_kernel,
                                                paged_prefill_kernel, shared_prefix_kernel)


def paged(draw, lengths, heads, kv_heads, d, block_size=16):
    """One query per sequence, pools of blocks in random order, NaN in unused places, tables, lengths."""
    b, pages = len(lengths), max(-(-length // block_size) for length in lengths)
    tables = draw(b * pages, dtype=F32).argsort().view(b, pages).int()
    pools = [draw(b * pages, kv_heads, block_size, d) for _ in "kv"]
    for i, length in enumerate(lengths):
        for page in range(length // block_size, pages):
            for pool in pools:
                pool[tables[i, page], :, max(0, length - page * block_size):] = math.nan
    cache = SimpleNamespace(keys=pools[0][None], values=pools[1][None], block_size=block_size,
                            allocator=SimpleNamespace(references=[1] * (b * pages)))
    return draw(b, heads, 1, d), cache, tables, torch.tensor(lengths, dtype=torch.int32)


def gathered(cache, tables, i, length):
    """Keys and values of sequence i, (1, kv_heads, length, d), in float64."""
    return (pool[0][tables[i].long().to(pool.device)]
            .transpose(0, 1).flatten(1, 2)[None, :, :length].double().cpu()
            for pool in (cache.keys, cache.values))


def from_pages(q, cache, tables, lengths):
    return torch.cat([attention(q[i:i + 1], *gathered(cache, tables, i, length))[0]
                      for i, length in enumerate(lengths.tolist())])


# (heads, kv_heads, d, block_size)
PAGES = (4, 2, 32, 4), (2, 2, 36, 4), (8, 1, 64, 16), (3, 1, 96, 5), (2, 2, 128, 4)


def in_pages(heads, kv_heads, d, block_size, **more):
    return {"heads": heads, "kv_heads": kv_heads, "d": d, "block_size": block_size} | more


def decoding(kernel, splits, *launched):
    return Case(chapter="paged_attention", kernels=launched, note=f"{kernel}, {splits} splits", inputs=paged,
                counted=kernel == "warp",
                run=partial(paged_attention_kernel, kernel=kernel, n_splits=splits), oracle=from_pages,
                small=(*CACHES[:1], *(in_pages(*sizes, lengths=(1, 40, 9)) for sizes in PAGES)),
                large=CACHES_LARGE)


def on_tensor_cores(q, cache, tables, lengths):
    return tensor_core.paged(q, cache.keys[0], cache.values[0], tables, lengths, 2)


def chunked(draw, lengths, counts, heads, kv_heads, d, block_size=16):
    _, cache, tables, lengths = paged(draw, lengths, heads, kv_heads, d, block_size)
    return draw(sum(counts), heads, d), cache, tables, lengths, counts


def chunks_from_pages(q, cache, tables, lengths, counts):
    parts = []
    for i, (rows, length) in enumerate(zip(q.split(counts), lengths.tolist())):
        out, _ = attention(rows.transpose(0, 1)[None], *gathered(cache, tables, i, length), causal=True)
        parts.append(out[0].transpose(0, 1))
    return torch.cat(parts)


def prefixed(draw, pages, n_splits=2, **sizes):
    """The same, where all sequences begin with the first pages of sequence 0."""
    q, cache, tables, lengths = paged(draw, **sizes)
    tables[:, :pages] = tables[:1, :pages].clone()
    return q, cache, tables, lengths, n_splits


# Pages, lengths, sizes. Alone, with nothing of its own; nothing shared; one tile of requests; three tiles.
PREFIXES = ((1, (4,), (4, 2, 16, 4)), (0, (1, 31, 7), (4, 2, 16, 4)), (5, (20, 33, 21, 63), (4, 2, 16, 4)),
            (8, (100, 33, 40), (6, 1, 4, 4)), (2, tuple(range(9, 30)), (4, 4, 36, 4)),
            (3, tuple(range(49, 60)), (8, 2, 100, 16)))


def copied(cache, pairs, by=copy_blocks_kernel):
    cache = SimpleNamespace(keys=cache.keys.clone(), values=cache.values.clone())
    by(cache, pairs)
    return cache.keys, cache.values


def copied_by_torch(cache, pairs):
    for pool in (cache.keys, cache.values):
        for source, target in pairs:
            pool[:, target] = pool[:, source]


CASES = [
    decoding("naive", 1, "paged_decode_naive"),
    decoding("warp", 1, "paged_decode_warps"),
    decoding("warp", 7, "paged_decode_warps", "paged_merge"),
    decoding("grouped", 1, "paged_decode_warps"),
    decoding("grouped", 3, "paged_decode_warps", "paged_merge"),
    Case(chapter="paged_attention", kernels=("paged_prefill",), inputs=chunked, run=paged_prefill_kernel,
         oracle=chunks_from_pages,
         small=({"lengths": (33, 20), "counts": (12, 20), "heads": 4, "kv_heads": 2, "d": 64},
                *(in_pages(*sizes, lengths=(40, 9, 33, 1), counts=counts) for sizes, counts in zip(
                    (*PAGES, (5, 1, 4, 3)), ((33, 1, 20, 1), (40, 9, 33, 1), (5, 9, 1, 1), (12, 2, 33, 1),
                                             (17, 1, 1, 1), (7, 8, 9, 1))))),
         large=({"lengths": (1001, 500), "counts": (301, 500), "heads": 8, "kv_heads": 2, "d": 128},)),
    Case(chapter="paged_attention", kernels=("shared_prefix_decode",), inputs=prefixed,
         run=lambda *x: shared_prefix_kernel(*x[:4], n_splits=x[4]), oracle=lambda *x: from_pages(*x[:4]),
         small=({"pages": 3, "lengths": (70, 49, 48), "heads": 4, "kv_heads": 2, "d": 64},
                *(in_pages(*sizes, pages=pages, lengths=lengths, n_splits=n_splits)
                  for pages, lengths, sizes in PREFIXES for n_splits in (1, 3))),
         large=({"pages": 100, "lengths": (1900, *range(1601, 1940, 16)), "heads": 16, "kv_heads": 4,
                 "d": 128},)),
    Case(chapter="paged_attention", kernels=("copy_blocks",),
         inputs=lambda draw, d: (paged(draw, (112,), 2, 2, d)[1], ((0, 3), (5, 1))), run=copied,
         oracle=partial(copied, by=copied_by_torch),
         small=({"d": 32}, {"d": 12}), large=({"d": 128},)),
    *(Case(chapter="paged_attention", kernels=("paged_tensor_core", "merge_splits"), dtype=dtype,
           tensor_cores=True, counted=dtype == F16,
           inputs=paged, run=on_tensor_cores, oracle=from_pages, small=HALF_CACHES, large=CACHES_LARGE)
      for dtype in (F16, BF16))]
