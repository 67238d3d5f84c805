"""Attention over a paged cache in plain PyTorch: the reference of the kernels."""
import math
from itertools import accumulate

import torch

from course_lib.checks.paged_attention import check_chunks, check_paged
from .cache import PagedKVCache


def paged_attention(q, cache: PagedKVCache, tables, lengths, layer: int = 0, scale: float | None = None,
                    window: int | None = None, values=None):
    """Causal attention of the last n positions of each sequence over its blocks -> (b, heads, n, v_dim).

    q (b, heads, n, head_dim); tables (b, pages) and lengths (b) from cache.tables. With a window a query sees
    that many keys, its own included. values(k, v), if given, returns the values to average; by default the
    cached v. This is the reference: it gathers blocks into one tensor, which the kernels avoid."""
    check_paged(q, cache, tables, lengths, layer, window)
    b, heads, n, d = q.shape
    n_kv_heads = cache.keys.shape[2]
    if q.numel() == 0:
        return q.new_zeros(b, heads, n, cache.values.shape[4])
    scale = 1 / math.sqrt(d) if scale is None else scale
    blocks, lengths = tables.to(q.device, torch.long).clamp(min=0), lengths.to(q.device, torch.long)
    # (b, pages, kv heads, size, width) -> (b, kv heads, 1, pages * size, width)
    k, v = (pool[layer][blocks].transpose(1, 2).flatten(2, 3)[:, :, None]
            for pool in (cache.keys, cache.values))
    v = v if values is None else values(k, v)
    positions = torch.arange(k.shape[3], device=q.device)
    own = (lengths[:, None] - n + torch.arange(n, device=q.device))[..., None]      # (b, n, 1), of each query
    visible = positions <= own                                                      # (b, n, keys)
    if window is not None:
        visible &= positions > own - window
    scores = scale * q.view(b, n_kv_heads, heads // n_kv_heads, n, d) @ k.transpose(-1, -2)
    weights = torch.softmax(scores.masked_fill(~visible[:, None, None], -math.inf), -1)
    # Slots after the end of a sequence may hold NaN, and 0 * NaN is NaN: keep them out of the sum.
    v = v.masked_fill((positions >= lengths[:, None])[:, None, None, :, None], 0)
    return (weights @ v).view(b, heads, n, v.shape[-1])


def paged_prefill(q, cache: PagedKVCache, tables, lengths, counts, layer: int = 0, scale: float | None = None,
                  window: int | None = None, values=None):
    """paged_attention of chunks of different length, concatenated in q (tokens, heads, head_dim).

    counts[i] rows of q end sequence i -> (tokens, heads, v_dim). Equal lengths go together."""
    check_chunks(counts, q, tables)
    starts, rows, parts = list(accumulate(counts, initial=0)), [], []
    for n in set(counts):
        members = [i for i, count in enumerate(counts) if count == n]
        here = torch.tensor([range(starts[i], starts[i] + n) for i in members], device=q.device)
        pages = math.ceil(int(lengths[members].max()) / cache.block_size)
        heads = paged_attention(q[here].transpose(1, 2), cache, tables[members, :pages], lengths[members],
                                layer, scale, window, values)
        rows.append(here.flatten())
        parts.append(heads.transpose(1, 2).flatten(0, 1))
    return torch.cat(parts)[torch.cat(rows).argsort()]
