"""Decoding requests that begin alike: the shared pages read once, against each request by itself."""
import pytest
import torch

from course_lib.gpu.cases.paged_attention import prefixed
from course_lib.paged_attention import paged_attention_kernel, shared_pages, shared_prefix_kernel
from references import launches_of, rand


def requests(pages, lengths, heads=4, kv_heads=2, d=16):
    sizes = {"lengths": lengths, "heads": heads, "kv_heads": kv_heads, "d": d, "block_size": 4}
    return prefixed(lambda *size, dtype=None: rand(*size), pages, **sizes)[:4]


def test_the_pages_that_all_begin_with():
    tables = torch.tensor([[3, 1, 4, 1, 5], [3, 1, 4, 2, 5]])
    assert [shared_pages(tables, most) for most in (0, 2, 5)] == [0, 2, 3]
    assert shared_pages(tables[:1], 5) == 5 and shared_pages(torch.tensor([[1, 2], [2, 2]]), 2) == 0


def moved(kernel, given, **named):
    launches = launches_of(lambda: kernel(*given, **named))
    assert len(launches) == 1
    return launches[0].global_load


def test_the_prefix_is_read_once_for_all():
    """Eight requests of 64 shared tokens and 8 of their own, 4 heads on 1: one tile of rows."""
    given = requests(16, (72,) * 8, heads=4, kv_heads=1, d=32)
    row, once, own = 2 * 32 * 4, 64, 8 * 8
    queries, table = 2 * 8 * 4 * 32 * 4, 4 * (64 + 8 * 8)             # in the prefix's block and in their own
    lengths, merging = 8 * 128 * 4, 8 * 4 * 2 * (32 + 2 * 32) * 4  # each thread of a column reads both sums
    counted = moved(shared_prefix_kernel, given)
    assert counted.bytes == row * (once + own) + queries + table + lengths + merging
    alone = moved(paged_attention_kernel, given)
    assert alone.sectors > 8 * 72 * row // 32 and counted.sectors < alone.sectors / 2


def test_groups_wider_than_a_tile_are_refused():
    given = requests(1, (9,), heads=34, kv_heads=1, d=8)
    with pytest.raises(ValueError, match="q must have at most 32 heads per key head for this kernel; got 34"):
        shared_prefix_kernel(*given)
    with pytest.raises(ValueError, match="n_splits must be"):
        shared_prefix_kernel(*requests(1, (9,)), n_splits=0)
