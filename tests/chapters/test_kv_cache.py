"""Chapter 7: every cache against attention without one; sampling and verification exactly; its kernels."""
import re

import pytest
import torch
from torch.nn import functional as F

from course_lib import cuda
from course_lib.files import ROOT
from course_lib.gpu.cases import case_of
from course_lib.gpu.cases.paged_attention import gathered
from course_lib.gqa import GroupedQueryAttention, LatentAttention
from course_lib.kv_cache import (CrossCache, GrowingCache, QuantizedCache, RollingCache, StaticCache,
                                 append_kernel, choose_splits, decode_attention, decode_kernel,
                                 decode_quantized_kernel, generate, tensor_core as decode_tensor_core)
from course_lib.kv_cache.decoding import BLOCKS_PER_MULTIPROCESSOR
from course_lib.kv_cache.quantization import dequantize, quantize
from course_lib.kv_cache.sampling import next_token_probabilities, verify_draft
from course_lib.paged_attention.kernels import paged_attention_kernel
from course_lib.rope import rope_table
from references import launches_of, names_the_argument, rand64, small_model

CUTS = [[1] * 23, [23], [7, 1, 1, 9, 5], [16, 7], [1, 22]]


def layer_and_x(n=23, **options):
    torch.manual_seed(1)
    layer = GroupedQueryAttention(24, 6, 2, head_dim=8, **options).double()
    return layer, rand64(2, n, 24), rope_table(64, 8, dtype=torch.float64)


def through(layer, x, rope, cache, cuts):
    return torch.cat([layer(piece, rope, cache=cache) for piece in x.split(cuts, 1)], 1)


def filled(cache, n=11, b=2, heads=3, d=8, dtype=torch.float64, seed=0):
    k, v = rand64(b, heads, n, d, seed=seed, dtype=dtype), rand64(b, heads, n, d, seed=seed + 1, dtype=dtype)
    cache.append(k, v)
    return k, v


ALL = [GrowingCache, lambda: StaticCache(40), lambda: RollingCache(40), lambda: QuantizedCache(8, group=4)]


@pytest.mark.parametrize("make", [GrowingCache, lambda: StaticCache(23), lambda: RollingCache(23),
                                  lambda: RollingCache(19, 4), lambda: QuantizedCache(8, group=24)])
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("options", [{}, {"window": 5, "qk_norm": True, "rope_layout": "half"}])
def test_cached_equals_uncached(make, cuts, options):
    layer, x, rope = layer_and_x(**options)
    cache = make()
    torch.testing.assert_close(through(layer, x, rope, cache, cuts), layer(x, rope))
    assert cache.length == 23 and cache.view()[1].shape[2] == 23


@pytest.mark.parametrize("window, n_sink", [(1, 0), (4, 0), (4, 2), (7, 3), (1, 1), (23, 0)])
@pytest.mark.parametrize("cuts", CUTS)
def test_rolling_equals_a_masked_layer(window, n_sink, cuts):
    """Absolute positions: the same as all keys, with those hidden that a query has forgotten."""
    layer, x, rope = layer_and_x()
    i, j = torch.arange(23)[:, None], torch.arange(23)
    want = layer(x, rope, mask=(j < n_sink) | (j > i - window))
    cache = RollingCache(window, n_sink)
    torch.testing.assert_close(through(layer, x, rope, cache, cuts), want)
    most = n_sink + window - 1 + cuts[-1]
    assert cache.view()[0].shape[2] == min(23, most)
    assert cache.bytes == 2 * 2 * 2 * min(23, most) * 8 * 8  # k and v, batch, heads, tokens, width, float64


def test_positions_right_after_the_wrap():
    absolute, again = RollingCache(3, 1), RollingCache(3, 1, positions="reindexed")
    seen = []
    for token in range(6):
        for cache in (absolute, again):
            seen.append(cache.next_positions(1).tolist())
            cache.append(torch.full((1, 1, 1, 2), float(token)), torch.zeros(1, 1, 1, 2))
    assert seen[::2] == [[0], [1], [2], [3], [4], [5]] and seen[1::2] == [[0], [1], [2], [3], [3], [3]]
    for cache, positions in ((absolute, [0, 3, 4, 5]), (again, [0, 1, 2, 3])):
        assert cache.view()[0][0, 0, :, 0].tolist() == [0, 3, 4, 5]
        assert cache.key_positions().tolist() == positions


def test_reindexed_is_attention_by_place_in_the_cache():
    layer, x, rope = layer_and_x()
    short = tuple(t[:8] for t in rope)  # positions never reach beyond sinks and window
    cache = RollingCache(6, 2, positions="reindexed")
    got = through(layer, x, short, cache, [1] * 23)
    for t in (0, 5, 7, 8, 15, 22):
        held = x[:, [j for j in range(t + 1) if j < 2 or j > t - 6]]
        torch.testing.assert_close(got[:, t], layer(held, short)[:, -1])
    without_sinks = RollingCache(6, positions="reindexed")  # only distances count, and they are unchanged
    torch.testing.assert_close(through(layer, x, short, without_sinks, [1] * 23),
                               through(layer, x, rope, RollingCache(6), [1] * 23))


@pytest.mark.parametrize("absorbed", [False, True])
def test_latents_are_cached_too(absorbed):
    torch.manual_seed(0)
    layer, x = LatentAttention(24, 3, 8, 12, 4, absorbed).double(), rand64(2, 9, 24)
    rope = rope_table(16, 4, dtype=torch.float64)
    cache = StaticCache(9)
    torch.testing.assert_close(through(layer, x, rope, cache, [4, 1, 3, 1]), layer(x, rope))
    assert cache.bytes == 2 * 9 * (12 + 4) * 8
    with pytest.raises(ValueError, match="^cache must "):
        layer(x, rope, cache=RollingCache(4))


@pytest.mark.parametrize("make", ALL)
def test_truncate_then_go_on(make):
    layer, x, rope = layer_and_x()
    cache, straight = make(), make()
    through(layer, x[:, :19], rope, straight, [17, 2])
    layer(x[:, :17], rope, cache=cache)
    layer(rand64(2, 5, 24, seed=9), rope, cache=cache)                # drafted and refused
    cache.truncate(17)
    assert cache.length == 17 and cache.next_positions(2).tolist() == [17, 18]
    layer(x[:, 17:19], rope, cache=cache)
    tolerance = 0.05 if isinstance(cache, QuantizedCache) else 1e-12
    for got, want in zip(cache.view(), straight.view()):
        torch.testing.assert_close(got, want, atol=tolerance, rtol=0)
    cache.truncate(0)
    torch.testing.assert_close(layer(x[:, :3], rope, cache=cache), layer(x[:, :3], rope))
    with pytest.raises(ValueError, match="^n must "):
        cache.truncate(4)


def test_a_rolling_cache_cannot_remember_what_it_forgot():
    layer, x, rope = layer_and_x()
    cache, want = RollingCache(4, 2), through(layer, x, rope, RollingCache(4, 2), [23])
    layer(x[:, :12], rope, cache=cache)
    layer(x[:, 12:15], rope, cache=cache)  # holds tokens 9 to 14: enough for a query at 12
    cache.truncate(12)
    torch.testing.assert_close(layer(x[:, 12:], rope, cache=cache), want[:, 12:])
    cache.truncate(14)
    with pytest.raises(ValueError, match="^n must leave a whole window"):
        cache.truncate(11)
    cache.truncate(1)                                               # only sinks: nothing else is needed
    torch.testing.assert_close(layer(x[:, 1:], rope, cache=cache), want[:, 1:])


@pytest.mark.parametrize("make", ALL + [lambda: RollingCache(3, 1)])
def test_reorder_takes_whole_sequences(make):
    cache, index = make(), torch.tensor([1, 1, 0])
    filled(cache)
    before = cache.view()
    cache.reorder(index)
    for got, want in zip(cache.view(), before):
        assert torch.equal(got, want[index])
    filled(cache, n=1, b=3)                                         # and continues
    with pytest.raises(ValueError, match="^index must "):
        cache.reorder(torch.tensor([3]))


def test_bytes():
    growing, static = GrowingCache(), StaticCache(64)
    assert growing.bytes == 0
    for cache in (growing, static):
        filled(cache, dtype=torch.float16)
    assert growing.bytes == 2 * 2 * 3 * 11 * 8 * 2 and static.bytes == 2 * 2 * 3 * 64 * 8 * 2
    address = static.k.data_ptr()
    filled(static, n=53, dtype=torch.float16)
    assert static.k.data_ptr() == address
    for bits, code in ((8, 8), (4, 4), ("fp8", 8)):
        cache = QuantizedCache(bits, group=4)
        filled(cache, dtype=torch.float32)                          # 8 tokens packed, 3 wait
        numbers = 1 if bits == "fp8" else 2                         # a step, and for integers a lowest value
        assert cache.bytes == 2 * 3 * (2 * 8 * code + 4 * numbers * (2 * 8 + 8) + 2 * 3 * 8 * 4)


@pytest.mark.parametrize("bits", [8, 4, "fp8"])
@pytest.mark.parametrize("dim", [-1, -2])
def test_quantisation_error_is_bounded(bits, dim):
    x = rand64(2, 3, 32, 8, dtype=torch.float32) * 10 ** rand64(1, 1, 1, 8, seed=3, dtype=torch.float32) + 3
    x[0, 0] = 2.5                                                   # a group without any spread
    error = (dequantize(quantize(x, bits, dim), bits) - x).abs()
    if bits == "fp8":  # 3 bits of mantissa; below the normal range, a fixed step
        bound = torch.maximum(x.abs() / 16, x.abs().amax(dim, keepdim=True) / 448 * 2**-10)
    else:
        bound = (x.amax(dim, keepdim=True) - x.amin(dim, keepdim=True)) / (2**bits - 1) / 2
    assert (error <= bound * 1.0001 + 4e-7 * x.abs().amax(dim, keepdim=True)).all()
    assert error.max() > 0 and torch.isfinite(error).all()


def test_keys_a_channel_values_a_token():
    """A loud channel of keys and a loud token of values leave the others alone."""
    k, v = rand64(1, 1, 32, 8, dtype=torch.float32), rand64(1, 1, 32, 8, seed=1, dtype=torch.float32)
    k[..., 3] *= 1000
    v[:, :, 5] *= 1000
    cache = QuantizedCache(4)
    cache.append(k, v)
    got_k, got_v = cache.view()
    others = [c for c in range(8) if c != 3]
    assert ((got_k - k)[..., others].abs().max() < 0.25 < 1
            < (dequantize(quantize(k, 4, -1), 4) - k)[..., others].abs().max())
    rest = [t for t in range(32) if t != 5]
    assert ((got_v - v)[:, :, rest].abs().max() < 0.25 < 1
            < (dequantize(quantize(v, 4, -2), 4) - v)[:, :, rest].abs().max())


@pytest.mark.parametrize("splits", [None, 1, 2, 3, 7, 50])
@pytest.mark.parametrize("m", [1, 31, 33, 300])
def test_decode_attention_is_torchs(splits, m):
    q, k, v = rand64(3, 6, 1, 8), rand64(3, 2, m, 8, seed=1), rand64(3, 2, m, 5, seed=2)
    lengths = torch.tensor([m, 0, (m + 1) // 2])
    there = (torch.arange(m) < lengths[:, None])[:, None, None]
    want = F.scaled_dot_product_attention(q, k, v, attn_mask=there, enable_gqa=True).nan_to_num(0)
    k[2, :, lengths[2]:], v[2, :, lengths[2]:] = torch.nan, torch.inf      # beyond a length: never looked at
    torch.testing.assert_close(decode_attention(q, k, v, lengths, splits), want)


def test_choose_splits():
    assert ([choose_splits(h, m) for h, m in ((8, 4096), (8, 1000), (200, 9999), (1, 10), (1, 10**6))]
            == [32, 7, 10, 1, 2112])
    table = (ROOT / "data" / "gpu" / "registers.txt").read_text()
    used = [int(n) for n in re.search(r"  decode_part_int8 +(.+)", table)[1].split()]
    # a warp's registers come in groups of 8 per thread; each quarter of a multiprocessor has 16,384
    assert {4 * (16384 // (32 * (-(-n // 8) * 8))) for n in used} == {BLOCKS_PER_MULTIPROCESSOR}


@pytest.fixture(scope="module")
def model():
    return small_model(scale=6, d_hidden=16)


@pytest.mark.parametrize("make", ALL[:3])
@pytest.mark.parametrize("chunk", [None, 1, 3])
def test_generate_is_the_model_without_a_cache(model, make, chunk):
    tokens = torch.tensor([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]])
    assert torch.equal(generate(model, tokens, 9, make_cache=make, chunk=chunk), model.generate(tokens, 9))


def test_generate_draws_stops_and_forgets(model):
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    drawn = [generate(model, tokens, 12, temperature=1.0, generator=torch.Generator().manual_seed(5))
             for _ in range(2)]
    assert (torch.equal(*drawn)
            and torch.equal(drawn[0], model.generate(tokens, 12, 1.0, torch.Generator().manual_seed(5))))
    free = generate(model, tokens, 12)
    stop = int(free[0, 5])
    stopped = generate(model, tokens, 12, stop=stop)
    for row, whole in zip(stopped.tolist(), free.tolist()):
        end = whole.index(stop, 3) + 1 if stop in whole[3:] else len(whole)
        assert row[:end] == whole[:len(row)][:end] and set(row[end:]) <= {stop}
    assert torch.equal(generate(model, tokens, 0), tokens)
    long = generate(model, tokens, 35, make_cache=lambda: RollingCache(8, 2, positions="reindexed"))
    assert long.shape == (2, 38)                                    # past the context of 32
    with pytest.raises(ValueError, match="^positions must "):
        generate(model, tokens, 35)


def test_what_is_certain_is_kept_or_replaced():
    logits = torch.tensor([[1.0, 3.0, 2.0, 0.0]], dtype=torch.float64)
    assert next_token_probabilities(logits, 1e-300).tolist() == [[0, 1, 0, 0]]
    one_hot = torch.eye(3, dtype=torch.float64)
    assert verify_draft(one_hot[[0, 1, 2]], one_hot[[0, 1]], torch.tensor([0, 1])).tolist() == [0, 1, 2]
    assert verify_draft(one_hot[[0, 1, 2]], one_hot[[0, 0]], torch.tensor([0, 0])).tolist() == [0, 1]
    assert verify_draft(one_hot[[2]], one_hot[:0], torch.tensor([], dtype=torch.long)).tolist() == [2]


def decode_inputs(m, d, group, b=2, n_kv_heads=2):
    return (rand64(b, n_kv_heads * group, 1, d, dtype=torch.float32),
            rand64(b, n_kv_heads, m, d, seed=1, dtype=torch.float32),
            rand64(b, n_kv_heads, m, d, seed=2, dtype=torch.float32))


@pytest.mark.parametrize("n, d, group, splits",
                         [(31, 8, 1, 1), (32, 8, 2, 1), (75, 40, 1, 2), (100, 8, 3, 5)])
def test_int8_kernel(n, d, group, splits):
    q, k, v = decode_inputs(n, d, group)
    cache = QuantizedCache(8)
    for piece in zip(k.split(40, 2), v.split(40, 2)):
        cache.append(*piece)
    for change in (lambda: None, lambda: cache.reorder([1, 1]), lambda: cache.truncate(n - 5)):
        change()
        assert all(x.is_contiguous() for x in (*cache.keys, *cache.values))  # the kernel copies nothing
        with cuda.sanitize():
            got = decode_quantized_kernel(q, cache, splits)
        torch.testing.assert_close(got, decode_attention(q, *cache.view()), atol=1e-5, rtol=1e-5)


def read_and_written(run):
    return [(launch.global_load.bytes, launch.global_store.bytes) for launch in launches_of(run)]


@pytest.mark.parametrize("splits", [1, 2])
def test_a_step_reads_the_cache_once(splits):
    """Beside the cache: the queries, a length (asked by all 32 lanes), the parts, written and read again."""
    b, h, g, m, d = 2, 2, 3, 64, 32
    q, k, v = decode_inputs(m, d, g, b, h)
    cache = GrowingCache()
    cache.append(k, v)
    parts, per_warp = 4 * b * h * g * splits * d, 32 * 4
    (read, written), merging = read_and_written(lambda: decode_kernel(q, *cache.view(), splits=splits))
    assert read == cache.bytes + splits * 4 * q.numel() + b * h * splits * per_warp
    assert written == parts + 2 * 4 * b * h * g * splits
    assert merging == (parts + 2 * b * h * g * splits * per_warp, 4 * q.numel())

    packed = QuantizedCache(8)
    packed.append(k, v)
    (read, _), _ = read_and_written(lambda: decode_quantized_kernel(q, packed, splits))
    assert read == packed.bytes + splits * 4 * q.numel() + b * h * splits * per_warp
    assert packed.bytes < 0.4 * cache.bytes


def step(b=1, h=2, n=1, d=4, dtype=torch.float32):
    return torch.zeros(b, h, n, d, dtype=dtype)


test_bad_input = names_the_argument({
    "capacity": [lambda: StaticCache(0)], "window": [lambda: RollingCache(0)],
    "n_sink": [lambda: RollingCache(2, -1)], "positions": [lambda: RollingCache(2, 1, "relative")],
    "bits": [lambda: QuantizedCache(2)], "group": [lambda: QuantizedCache(8, 0)],
    "k": [lambda: StaticCache(2).append(step(n=3), step(n=3)),
        lambda: GrowingCache().append(step()[0], step()), lambda: decode_attention(step(h=3), step(), step()),
        lambda: GrowingCache().append([1.0], [1.0]),
        lambda: append_kernel(StaticCache(4), step()[0], step()[0], rope_table(2, 4))],
    "v": [lambda: GrowingCache().append(step(), step(n=2)),
        lambda: decode_attention(step(), step(), step(n=2)),
        lambda: decode_kernel(step(d=129), step(d=129), step(d=129))],
    "cache": [lambda: GrowingCache().view(), lambda: QuantizedCache(8).reorder(torch.tensor([0])),
        lambda: decode_quantized_kernel(step(), QuantizedCache(4)),
        lambda: decode_quantized_kernel(step(), GrowingCache()),
        lambda: append_kernel(GrowingCache(), step(), step(), rope_table(2, 4))],
    "q": [lambda: decode_attention(step(n=2), step(), step()),
        lambda: decode_kernel(step(dtype=torch.float64), *[step(dtype=torch.float64)] * 2),
        lambda: decode_kernel(step(h=18), step(), step()),
        *(lambda q=q: decode_tensor_core.dense(q, *2 * [step(d=64).half()], torch.tensor([1]))
          for q in (step(d=64), step(d=32).half(), step(h=18, d=64).half()))],
    "caches": [lambda: small_model()(torch.tensor([[1]]), [GrowingCache()])],
    "tokens": [lambda: generate(small_model(), torch.zeros(1, 0, dtype=torch.long), 3)],
    "stop": [lambda: generate(small_model(), torch.tensor([[1]]), 3, stop=[1, 2])],
    "splits": [lambda: decode_attention(step(), step(), step(), None, 0)],
    "lengths": [lambda: decode_attention(step(), step(), step(), torch.tensor([2]))],
    "n": [lambda: GrowingCache().next_positions(-1), lambda: RollingCache(2).next_positions(1.5)],
    "rope": [lambda: append_kernel(StaticCache(4), step(), step(), None),
        lambda: append_kernel(StaticCache(4), step(n=3), step(n=3), rope_table(2, 4))],
    "x": [lambda: quantize(step(d=3), 4, -1)], "temperature": [lambda: next_token_probabilities(step(), -1)],
    "top_k": [lambda: next_token_probabilities(step(), top_k=0)],
    "top_p": [lambda: next_token_probabilities(step(), top_p=0.0)],
    "target": [lambda: verify_draft(torch.ones(1, 3), torch.ones(1, 3), torch.tensor([0]))]})


def test_what_the_caller_does_to_its_own_tensors_does_not_reach_the_cache():
    for make in (*ALL, CrossCache):
        cache, k, v = make(), torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4)
        cache.append(k, v)
        k.zero_(), v.zero_()
        assert all((x == 1).all() for x in cache.view())


def test_bad_appends_leave_the_cache_alone():
    for make in ALL:
        cache = make()
        filled(cache)
        before = cache.view()[0].clone()
        for wrong in (step(b=2, h=3, d=8), step(b=1, h=3, d=8, dtype=torch.float64),
                      step(b=2, h=2, d=8, dtype=torch.float64)):
            with pytest.raises(ValueError, match="^k must "):
                cache.append(wrong, wrong)
        assert cache.length == 11 and torch.equal(cache.view()[0], before)


def test_the_cache_is_asked_for_once():
    """Two key heads for eight query heads: keys and values once; a table entry for 16 keys and lane."""
    shape, counted = {"lengths": (128, 64), "heads": 8, "kv_heads": 2, "d": 64}, {}
    dense, paged = (case_of(f"{name}_tensor_core").arguments(shape) for name in ("decode", "paged"))
    for name, call in (("dense", lambda: decode_tensor_core.dense(*dense, 1)),
                       ("paged", lambda: paged_attention_kernel(*paged))):
        (counted[name],) = [launch.global_load for launch in launches_of(call)]
    cache, queries = 2 * 2 * (128 + 64) * 64 * 2, 4 * dense[0].numel() * 2     # by each of four warps
    read_lengths = 4 * 128 * 4
    assert counted["dense"].bytes == cache + queries + read_lengths
    assert counted["dense"].moved == cache + queries + 4 * 4 * 32      # a warp moves a sector for its length
    table = 2 * 2 * (8 + 4) // 2  # steps of 16 keys, by each of two key heads
    assert counted["paged"].bytes == counted["dense"].bytes + table * 32 * 4
    assert counted["paged"].sectors == counted["dense"].sectors + table


@pytest.mark.slow
def test_the_wrappers_of_both_chapters_choose_it():
    q, cache, tables, lengths = case_of("paged_tensor_core").arguments(
        {"lengths": (33,), "heads": 4, "kv_heads": 2, "d": 64})
    k, v = (x.bfloat16() for x in gathered(cache, tables, 0, 33))
    want = decode_tensor_core.dense(q, k, v, lengths, 1)
    assert torch.equal(decode_kernel(q, k, v, lengths), want)
    assert torch.equal(paged_attention_kernel(q, cache, tables, lengths), want)
