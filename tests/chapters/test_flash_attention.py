"""FlashAttention against a plain oracle in float64: tile mirror, counts, kernels and operator."""
import math
import re
from functools import partial

import pytest
import torch
from hypothesis import given, settings, strategies as st

from course_lib import cuda
from course_lib import flash_attention as fa
from course_lib.gpu.case import BF16, F16, F32, attention, in_float64, poisoned
from course_lib.gpu.cases.flash_attention import biased, in_order
from references import asked, excess, launches_of, wavefronts


def oracle(q, k, v, causal=False, scale=None, key_bias=None):
    """Attention in float64 with the whole matrix; a query without keys gives 0."""
    bias = key_bias if key_bias is None else key_bias.double().expand(k.shape[:3])
    return attention(*(x.double() for x in (q, k, v)), causal, scale, bias)[0]


def oracle_gradients(inputs, grad_out, **options):
    """Gradients of the oracle for q, k, v and, if there is one, key_bias."""
    leaves = [x.detach().double().requires_grad_() for x in inputs]
    bias = leaves[3] if len(leaves) == 4 else None
    out = oracle(*leaves[:3], key_bias=bias, **options)
    return torch.autograd.grad(out, leaves, grad_out.double())


def random_inputs(seed, batch=1, n_heads=2, n_kv_heads=1, n_q=5, n_k=7, d=8, v_dim=None, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    make = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64).to(dtype)
    return (make(batch, n_heads, n_q, d), make(batch, n_kv_heads, n_k, d),
            make(batch, n_kv_heads, n_k, v_dim or d))


shapes = st.fixed_dictionaries(dict(
    seed=st.integers(0, 10_000), batch=st.integers(1, 2), n_kv_heads=st.integers(1, 2),
    n_q=st.integers(1, 200), n_k=st.integers(1, 200), d=st.integers(1, 40), v_dim=st.integers(1, 40)))


@settings(max_examples=25, deadline=None)
@given(shape=shapes, group_size=st.integers(1, 3), causal=st.booleans(), with_bias=st.booleans(),
       tile_q=st.sampled_from([16, 32, 50]), tile_k=st.sampled_from([16, 32, 50]))
def test_tile_walk_equals_the_oracle(shape, group_size, causal, with_bias, tile_q, tile_k):
    q, k, v = random_inputs(n_heads=shape["n_kv_heads"] * group_size, **shape)
    bias = torch.randn(k.shape[:3], dtype=torch.float64) if with_bias else None
    options = dict(causal=causal, scale=0.3)
    out, lse = fa.flash_forward_tiles(q, k, v, key_bias=bias, tile_q=tile_q, tile_k=tile_k, **options)
    torch.testing.assert_close(out, oracle(q, k, v, key_bias=bias, **options), atol=1e-10, rtol=1e-10)
    grad_out = torch.randn_like(out)
    got = fa.flash_backward_tiles(q, k, v, out, lse, grad_out, key_bias=bias, tile_q=tile_q, tile_k=tile_k,
                                  **options)
    want = oracle_gradients((q, k, v) if bias is None else (q, k, v, bias), grad_out, **options)
    assert (got[3] is None) == (bias is None)
    for g, w in zip(got, want):
        torch.testing.assert_close(g, w, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("causal", [False, True])
def test_the_walk_can_be_differentiated_itself(causal):
    inputs = *random_inputs(0, n_q=5, n_k=4, d=3, v_dim=2), torch.randn(1, 1, 4, dtype=torch.float64)
    forward = lambda q, k, v, b: fa.flash_forward_tiles(q, k, v, causal, key_bias=b, tile_q=3, tile_k=2)[0]
    assert torch.autograd.gradcheck(forward, [x.requires_grad_() for x in inputs])


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000), spread=st.sampled_from([0.1, 10.0, 1e4]), hidden=st.integers(0, 3))
def test_merge_is_associative_and_commutative_with_an_identity(seed, spread, hidden):
    g = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(4, 12, generator=g, dtype=torch.float64)
    scores[hidden, :5] = -math.inf                      # some parts of some rows see nothing
    scores[3] = -math.inf
    v = torch.randn(12, 3, generator=g, dtype=torch.float64)
    a, b, c = (fa.state_of(scores[:, s], v[s]) for s in (slice(0, 5), slice(5, 6), slice(6, 12)))
    whole = fa.finish(fa.state_of(scores, v))
    identity = (torch.full((4,), -math.inf, dtype=torch.float64), torch.zeros(4, dtype=torch.float64),
                torch.zeros(4, 3, dtype=torch.float64))
    for joined in (fa.merge(fa.merge(a, b), c), fa.merge(a, fa.merge(b, c)), fa.merge(fa.merge(c, a), b),
                   fa.merge(fa.merge(fa.merge(identity, a), fa.merge(b, identity)), c)):
        for got, want in zip(fa.finish(joined), whole):
            torch.testing.assert_close(got, want, atol=1e-12, rtol=1e-12)
    assert (fa.finish(whole_state := fa.state_of(scores, v))[0][3] == 0).all() and whole_state.l[3] == 0


@pytest.mark.parametrize("n_q, n_k", [(0, 3), (3, 0)])
def test_empty_inputs(n_q, n_k):
    out, lse = fa.flash_forward_tiles(*random_inputs(0, n_q=n_q, n_k=n_k))
    assert out.shape == (1, 2, n_q, 8) and lse.shape == (1, 2, n_q) and (out == 0).all()


def given_but(function):
    """The function with small inputs, but for what is changed."""
    return lambda **change: function(**dict(zip("qkv", random_inputs(0, dtype=F32))) | change)


tiles, kernels = given_but(fa.flash_forward_tiles), given_but(fa.flash_attention)
traffic = partial(fa.traffic, n=8, d=8, tile_k=4)


@pytest.mark.parametrize("function, change, words", [
    (tiles, dict(q=torch.zeros(2, 3, 4)), r"q must be a floating-point tensor of shape \(batch"),
    (tiles, dict(k=[1]), "k must be a floating-point tensor of shape .*; got list"),
    (tiles, dict(v=torch.zeros(1, 1, 7, 8, dtype=torch.int64)), "v must be a floating-point"),
    (tiles, dict(k=torch.zeros(1, 1, 7, 8).half()), "k must have the dtype"),
    (tiles, dict(k=torch.zeros(2, 1, 7, 8)), "k must have the batch size of q"),
    (tiles, dict(v=torch.zeros(1, 1, 6, 8)), "v must have one row per key, 7; got 6"),
    (tiles, dict(k=torch.zeros(1, 1, 7, 6)), "k must have the head_dim of q"),
    (tiles, dict(q=torch.zeros(1, 3, 5, 8), k=torch.zeros(1, 2, 7, 8), v=torch.zeros(1, 2, 7, 8)),
     "q must have a multiple of the heads of k, 2; got 3"),
    (tiles, dict(key_bias=torch.zeros(6)), "key_bias must broadcast"),
    (tiles, dict(scale=math.nan), "scale must be None or a finite"),
    (tiles, dict(tile_q=0), "tile_q must be an integer of at least 1"),
    (tiles, dict(tile_k=-1), "tile_k must be an integer of at least 1"),
    (traffic, dict(tile_q=4, order="diagonal"), "order must be"),
    (traffic, dict(tile_q=0), "tile_q must be an integer of at least 1"),
    (kernels, dict(zip("qkv", random_inputs(0))), "q must be float32, float16 or bfloat16"),
    (kernels, dict(q=torch.zeros(1, 2, 5, 129), k=torch.zeros(1, 1, 7, 129)), "q must have a width of at most 128"),
    (kernels, dict(v=torch.zeros(1, 1, 7, 200)), "v must have a width of at most 128"),
    (kernels, dict(key_bias=torch.zeros(6)), "key_bias must broadcast"),
    (kernels, dict(causal=torch.ones(5, 7, dtype=torch.bool)), "causal must be True or False")])
def test_bad_input_is_named(function, change, words):
    with pytest.raises(ValueError, match=words):
        function(**change)


def test_bad_results_to_a_backward_are_named():
    q, k, v = random_inputs(0, dtype=F32)
    out, lse = fa.flash_forward_tiles(q, k, v)
    for backward in (
            fa.flash_backward_tiles, lambda q, k, v, out, lse, g: fa.backward_kernels(g, q, k, v, out, lse)):
        for name, results in (("out", (out[1:], lse, out)), ("lse", (out, lse[..., 1:], out)),
                              ("grad_out", (out, lse, out[..., 1:]))):
            with pytest.raises(ValueError, match=f"^{name} must have shape .*; got"):
                backward(q, k, v, *results)


TOLERANCE = {F32: 2e-5, F16: 2e-3, BF16: 1.6e-2}
# n_q, n_k, d, v_dim; and for tensor cores
RAGGED = [(1, 1, 8, 8), (33, 63, 31, 20), (100, 31, 32, 7), (64, 64, 32, 32), (5, 130, 9, 32)]
WIDE = [(50, 70, 64, 64), (50, 70, 128, 128), (50, 70, 100, 20), (50, 70, 24, 80)]
HALF = [(31, 31, 32, 32), (70, 70, 30, 30), (40, 40, 9, 9)]
EIGHTS = [(1, 1, 64, 64), (31, 100, 64, 64), (33, 63, 64, 64), (130, 140, 64, 64), (63, 33, 40, 24)]
WIDE_EIGHTS = [(31, 33, 128, 128), (100, 63, 128, 128), (33, 100, 128, 64), (63, 31, 72, 128)]


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def close(got, want, tolerance=2e-5):
    """As a part of the largest number; a row without keys has a log-sum-exp of -inf."""
    scale = want.nan_to_num(neginf=0.0).abs().max().clamp(min=1.0).item()
    return torch.allclose(got.double(), want, rtol=0, atol=tolerance * scale)


def agrees(rung, dtype, n, m, d, v_dim, causal, b=2, kv_heads=2):
    """Output, log-sum-exp and each gradient of a rung with a bias are those of float64, and written whole."""
    case = biased(rung, dtype=dtype)
    arguments = case.arguments({"b": b, "heads": 2 * kv_heads, "kv_heads": kv_heads, "n": n, "m": m, "d": d,
                                "v_dim": v_dim, "causal": causal})
    with poisoned():
        got = case.run(*arguments)
    return all(map(close, got, case.oracle(*map(in_float64, arguments)), [TOLERANCE[dtype]] * len(got)))


@pytest.mark.parametrize("rung, dtype, sizes", [
    *((rung, F32, RAGGED) for rung in range(1, 7)), *(slow(rung, F32, WIDE) for rung in range(2, 7)),
    *((rung, dtype, HALF) for rung in (1, 6) for dtype in (F16, BF16)),
    *(slow(rung, dtype, HALF) for rung in range(2, 6) for dtype in (F16, BF16)),
    (7, BF16, EIGHTS[:4]), (7, F16, EIGHTS[1:2]), slow(7, F16, EIGHTS), slow(7, BF16, EIGHTS[4:]),
    *(slow(7, dtype, WIDE_EIGHTS) for dtype in (F16, BF16))])
def test_every_rung_and_its_gradients(rung, dtype, sizes):
    for size in sizes:
        for causal in (False, True):
            assert agrees(rung, dtype, *size, causal, 2 if rung < 7 else 1), size


@pytest.mark.parametrize("rung, dtype", [(6, F32), (6, F16), (7, F16)])
def test_no_nan_for_large_inputs_or_masked_queries_and_keys(rung, dtype):
    g, bias = torch.Generator().manual_seed(0), torch.zeros(1, 1, 40)
    q, k, v = ((2e4 * torch.rand(1, 1, n, 32, generator=g) - 1e4).to(dtype) for n in (70, 40, 40))
    bias[..., 1] = -math.inf
    out, lse = fa.forward_kernel(q, k, v, True, None, bias, rung)
    assert out.isfinite().all() and (out[:, :, :30] == 0).all() and (lse[:, :, :30] == -math.inf).all()
    dq, *of_keys = fa.backward_kernels(torch.full_like(out, 1e-4), q, k, v, out, lse, True, None, bias,
                                       rung=rung)
    assert not any(g.isnan().any() for g in (dq, *of_keys)) and (dq[:, :, :30] == 0).all()
    assert all((g[:, :, 1] == 0).all() for g in of_keys)


@pytest.mark.parametrize("rung, dtype", [(6, F32), (7, F16)])
def test_a_key_bias_of_minus_infinity_hides_a_key(rung, dtype):
    q, k, v = random_inputs(6, n_q=9, n_k=70, dtype=dtype)
    bias = torch.zeros(1, 1, 70)
    bias[..., 5:] = -math.inf
    assert torch.equal(fa.forward_kernel(q, k, v, False, 2.5, bias[0, 0], rung)[0],
                       fa.forward_kernel(q, k, v, False, 2.5, bias.expand(k.shape[:3]), rung)[0])
    seen = fa.forward_kernel(q, k[:, :, :5], v[:, :, :5], scale=2.5, rung=rung)
    torch.testing.assert_close(fa.forward_kernel(q, k, v, False, 2.5, bias, rung), seen)
    out, lse = fa.forward_kernel(q, k, v, key_bias=torch.full_like(bias, -math.inf), rung=rung)
    assert (out == 0).all() and (lse == -math.inf).all()


def test_views_and_empty_inputs():
    q, k, v = random_inputs(7, 1, 2, 2, 20, 20, 16, dtype=F32)
    moved = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    assert torch.equal(fa.flash_attention(*moved), fa.flash_attention(q, k, v))
    offset = torch.cat([torch.zeros(1), q.flatten()])[1:].view(q.shape)  # its address is no multiple of 16
    assert torch.equal(fa.flash_attention(offset, k, v), fa.flash_attention(q, k, v))
    assert fa.flash_attention(q[:, :, :0], k, v).shape == (1, 2, 0, 16)
    assert (fa.flash_attention(q, k[:, :, :0], v[:, :, :0]) == 0).all()


@pytest.mark.slow
def test_the_operator_passes_opcheck():
    q, k, v = (x.requires_grad_() for x in random_inputs(8, 1, 2, 1, 9, 12, 8, dtype=F32))
    for bias in (torch.randn(1, 1, 12, requires_grad=True), torch.empty(0)):
        torch.library.opcheck(fa.op._flash, (q, k, v, bias, True, 0.3))


@pytest.mark.parametrize("rung, rows", [(3, 32), (4, 32), (5, 32), (6, 64)])
def test_tiled_rungs_move_what_the_formula_says(rung, rows):
    """n = 70, 50: ragged tiles too. Bank conflicts: rung 3 has them, the others have none."""
    q, k, v = random_inputs(9, 1, 1, 1, 70, 50, 32, dtype=F32)
    for causal in (False, True):
        launches = launches_of(lambda: fa.forward_kernel(q, k, v, causal, rung=rung))
        skips = causal and rung == 6
        assert asked(launches) == fa.traffic(70, 32, rows, 32, n_k=50, causal=skips, lse=True)
        assert (excess(launches) > 0) == (rung == 3)


def test_three_launches_move_the_standard_passes():
    q, k, v = random_inputs(10, 1, 1, 1, 64, 96, 32, dtype=F32)
    launches = launches_of(lambda: fa.forward_kernel(q, k, v, rung=1))
    unique = 32 * sum(x.global_load.unique_sectors + x.global_store.unique_sectors for x in launches)
    assert unique == fa.traffic(64, 32, 1, 1, "standard", n_k=96) + 4 * 64         # and the log-sum-exp


@pytest.mark.parametrize("order", ["key_outer", "query_outer"])
@pytest.mark.parametrize("n, d, tile", [(64, 16, 8), (64, 16, 32), (50, 6, 16)])
def test_both_orders_move_what_the_formula_says(order, n, d, tile):
    launches = launches_of(lambda: in_order(order, tile).error({"n": n, "d": d}))
    assert asked(launches) == fa.traffic(n, d, tile, tile, order)


@pytest.mark.slow
@pytest.mark.parametrize("v_dim", [128, 64])
def test_the_widest_tensor_cores_have_no_fault(v_dim):
    """Narrower ones and the other rungs are sanitized in test_gpu_cases.py."""
    with cuda.sanitize():
        assert agrees(7, BF16, 35, 140, 128, v_dim, True, 1, 1)


@pytest.mark.parametrize("file, rungs, n, dtype", [
    slow("flash_attention", "123456", 128, F32), ("flash_attention/tensor_core", "67", 256, BF16)])
def test_the_header_quotes_what_is_counted(file, rungs, n, dtype):
    """Bytes asked for, wavefronts and excess at d = 64."""
    header = (cuda.KERNELS / f"{file}.cu").read_text()
    rows = re.findall(r"^//   (\d) .* ([\d,]+) +([\d,]+) +([\d,]+)$", header, re.M)
    q, k, v = random_inputs(12, 1, 1, 1, n, n, 64, dtype=dtype)
    assert [row[0] for row in rows] == list(rungs)
    for rung, *quoted in rows:
        launches = launches_of(lambda: fa.forward_kernel(q, k, v, rung=int(rung)))
        counts = [count(launches) for count in (asked, wavefronts, excess)]
        assert [int(x.replace(",", "")) for x in quoted] == counts


@pytest.mark.slow
@pytest.mark.parametrize("file, ways, n, dtype", [
    ("backward", [{"atomic": False}, {"atomic": True}], 128, F32),
    ("tensor_core_backward", [{"rung": 6}, {"rung": 7}], 256, BF16)])
def test_the_header_of_a_backward_quotes_what_is_counted(file, ways, n, dtype):
    """Bytes, wavefronts and, where it has a column, excess, which is 0 in all of them."""
    header = (cuda.KERNELS / f"flash_attention/{file}.cu").read_text()
    rows = {name: [int(x.replace(",", "")) for x in numbers.split()] for name, numbers in
            re.findall(r"^//   (\w+(?:, (?:keys|queries))?) .*?((?: +[\d,]+){2,3})$", header, re.M)}
    q, k, v = random_inputs(12, 1, 1, 1, n, n, 64, dtype=dtype)
    out, lse = fa.forward_kernel(q, k, v)
    counted = {}
    for way in ways:
        for launch in launches_of(lambda: fa.backward_kernels(out, q, k, v, out, lse, **way)):
            name = (launch.kernel.split("<")[0]
                    + {"true>": ", keys", "false>": ", queries"}.get(launch.kernel.split()[-1], ""))
            counted[name] = [count([launch]) for count in (asked, wavefronts, excess)]
            assert excess([launch]) == 0 and launch.atomics == (1024 if "atomic" in launch.kernel else 0)
    assert {name: counted[name][:len(numbers)] for name, numbers in rows.items()} == rows
    assert set(counted) - set(rows) <= {"rowsum_do_o"} and len(rows) in (4, 5)
