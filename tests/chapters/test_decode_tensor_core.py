"""Decoding in half precision: against float64, ragged, sanitized, counted; dense and paged give the same
bits."""
from types import SimpleNamespace

import pytest
import torch

from course_lib import cuda
from course_lib.kv_cache import tensor_core as decode_tensor_core
from course_lib.kv_cache import decode_attention, decode_kernel
from course_lib.paged_attention.kernels import paged_attention_kernel


def rand(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def case(lengths, heads, kv_heads, d, dtype, block_size=16):
    """q, dense keys and values with NaN behind each end, and the same in scattered pages."""
    b, pages = len(lengths), max(1, -(-max(lengths) // block_size))
    q = rand(b, heads, 1, d).to(dtype)
    k, v = (rand(b, kv_heads, pages * block_size, d, seed=i).to(dtype) for i in (1, 2))
    behind = torch.arange(pages * block_size) >= torch.tensor(lengths)[:, None]
    k, v = (x.masked_fill(behind[:, None, :, None], torch.nan) for x in (k, v))
    tables = torch.randperm(b * pages, generator=torch.Generator().manual_seed(b)).view(b, pages).int()
    pools = [torch.full((b * pages, kv_heads, block_size, d), torch.nan, dtype=dtype) for _ in "kv"]
    for pool, x in zip(pools, (k, v)):
        pool[tables.long()] = x.view(b, kv_heads, pages, block_size, d).transpose(1, 2)
    return q, k, v, *pools, tables, torch.tensor(lengths)


@pytest.mark.parametrize("dtype, error", [(torch.bfloat16, 1e-2), (torch.float16, 2e-3)])
@pytest.mark.parametrize("lengths, heads, kv_heads, d, splits",
                         [([1], 1, 1, 64, 1), ([31, 64], 4, 2, 64, 1), ([100, 0, 33], 8, 1, 64, 2),
                          pytest.param([63, 130], 6, 2, 128, 3, marks=pytest.mark.slow),
                          pytest.param([40], 16, 2, 128, 5, marks=pytest.mark.slow)])
def test_dense_and_paged_are_attention(lengths, heads, kv_heads, d, splits, dtype, error):
    q, k, v, keys, values, tables, lengths = case(lengths, heads, kv_heads, d, dtype)
    with cuda.sanitize():
        dense = decode_tensor_core.dense(q, k, v, lengths, splits)
        paged = decode_tensor_core.paged(q, keys, values, tables, lengths, splits)
    want = decode_attention(*(x.double() for x in (q, k, v)), lengths)
    assert dense.dtype == dtype and (dense.double() - want).norm() <= error * want.norm()
    assert torch.equal(dense, paged)
    assert (dense[lengths == 0] == 0).all()


def test_the_cache_is_asked_for_once():
    """Two key heads for eight query heads: keys and values once; a table entry for 16 keys and lane."""
    q, k, v, keys, values, tables, lengths = case([128, 64], 8, 2, 64, torch.bfloat16)
    cache = 2 * 2 * (128 + 64) * 64 * 2
    counted = {}
    for name, call in (("dense", lambda: decode_tensor_core.dense(q, k, v, lengths, 1)),
                       ("paged", lambda: decode_tensor_core.paged(q, keys, values, tables, lengths, 1))):
        with cuda.profile() as report:
            call()
        (counted[name],) = [launch.global_load for launch in report.launches]
    queries, read_lengths = 4 * q.numel() * 2, 4 * 128 * 4             # by each of four warps
    assert counted["dense"].bytes == cache + queries + read_lengths
    assert counted["dense"].moved == cache + queries + 4 * 4 * 32      # a warp moves a sector for its length
    table = 2 * 2 * (8 + 4) // 2  # steps of 16 keys, by each of two key heads
    assert counted["paged"].bytes == counted["dense"].bytes + table * 32 * 4
    assert counted["paged"].sectors == counted["dense"].sectors + table


@pytest.mark.slow
def test_the_wrappers_of_both_chapters_choose_it():
    q, k, v, keys, values, tables, lengths = case([33, 16], 4, 2, 64, torch.bfloat16)
    want = decode_tensor_core.dense(q, k, v, lengths, 1)
    assert torch.equal(decode_kernel(q, k, v, lengths), want)
    cache = SimpleNamespace(keys=keys[None], values=values[None], block_size=16,
                            allocator=SimpleNamespace(references=[1] * len(keys)))
    assert torch.equal(paged_attention_kernel(q, cache, tables, lengths), want)


@pytest.mark.parametrize("argument, change",
                         [("q", lambda q: q.float()), ("q", lambda q: q[..., :32]),
                          ("q", lambda q: q.repeat(1, 9, 1, 1))])
def test_bad_input_is_named(argument, change):
    q, k, v, *_, lengths = case([5], 1, 1, 64, torch.float16)
    with pytest.raises(ValueError, match=f"^{argument} must"):
        decode_tensor_core.dense(change(q), k, v, lengths)
