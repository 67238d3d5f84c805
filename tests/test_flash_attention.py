"""FlashAttention against a plain oracle in float64: tile mirror, counts, kernels and operator."""
import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from course_lib import flash_attention as fa


def oracle(q, k, v, causal=False, scale=None, key_bias=None):
    """Attention in float64 with the whole matrix; a query without keys gives 0."""
    q, k, v = (x.double() for x in (q, k, v))
    group_size = q.shape[1] // k.shape[1]
    n_q, n_k = q.shape[2], k.shape[2]
    s = q @ k.repeat_interleave(group_size, 1).mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if key_bias is not None:
        s = s + key_bias.double().expand(k.shape[:3]).repeat_interleave(group_size, 1)[:, :, None]
    allowed = torch.ones(n_q, n_k, dtype=torch.bool)
    if causal:
        allowed = allowed.tril(n_k - n_q)
    weights = s.masked_fill(~allowed, -math.inf).softmax(-1).where(allowed.any(-1)[:, None], 0.0)
    return weights @ v.repeat_interleave(group_size, 1)


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


class TileFlash(torch.autograd.Function):
    """The mirror's forward with the mirror's backward, for gradcheck."""
    @staticmethod
    def forward(ctx, q, k, v, bias, causal):
        out, lse = fa.flash_forward_tiles(q, k, v, causal, key_bias=bias, tile_q=3, tile_k=2)
        ctx.save_for_backward(q, k, v, bias, out, lse)
        ctx.causal = causal
        return out

    @staticmethod
    def backward(ctx, grad_out):
        q, k, v, bias, out, lse = ctx.saved_tensors
        grads = fa.flash_backward_tiles(q, k, v, out, lse, grad_out, ctx.causal, key_bias=bias,
                                        tile_q=2, tile_k=3)
        return *grads, None


@pytest.mark.parametrize("causal", [False, True])
def test_gradcheck_of_the_mirror(causal):
    q, k, v = (x.requires_grad_() for x in random_inputs(0, n_heads=2, n_q=5, n_k=4, d=3, v_dim=2))
    bias = torch.randn(1, 1, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *x: TileFlash.apply(*x, causal), (q, k, v, bias))
    # and the forward itself, differentiated by autograd
    forward = lambda q, k, v, b: fa.flash_forward_tiles(q, k, v, causal, key_bias=b, tile_q=3, tile_k=2)[0]
    assert torch.autograd.gradcheck(forward, (q, k, v, bias))


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


def test_a_causal_query_without_keys_gives_zero_and_no_nan_gradient():
    q, k, v = (x.requires_grad_() for x in random_inputs(1, n_q=7, n_k=3))
    out, lse = fa.flash_forward_tiles(q, k, v, causal=True, tile_q=2, tile_k=2)
    assert (out[:, :, :4] == 0).all() and (lse[:, :, :4] == -math.inf).all()
    grads = fa.flash_backward_tiles(q, k, v, out, lse, torch.ones_like(out), causal=True)
    assert all(g.isfinite().all() for g in grads[:3]) and (grads[0][:, :, :4] == 0).all()


@pytest.mark.parametrize("n_q, n_k", [(0, 3), (3, 0)])
def test_empty_inputs(n_q, n_k):
    out, lse = fa.flash_forward_tiles(*random_inputs(0, n_q=n_q, n_k=n_k))
    assert out.shape == (1, 2, n_q, 8) and lse.shape == (1, 2, n_q) and (out == 0).all()


def test_traffic_reproduces_the_published_shape():
    millions = lambda tile, order: round(fa.traffic(1024, 64, tile, tile, order, itemsize=1) / 1e6, 2)
    tiles = [32, 64, 128, 256, 512]
    assert [millions(t, "key-outer") for t in tiles] == [6.55, 3.34, 1.74, 0.93, 0.53]
    assert [millions(t, "query-outer") for t in tiles] == [4.33, 2.23, 1.18, 0.66, 0.39]
    assert millions(32, "standard") == 4.46
    assert fa.traffic(1024, 64, 32, 32) == 4 * fa.traffic(1024, 64, 32, 32, itemsize=1)


def test_where_tiles_lose_to_the_standard_passes():
    n, d = 2 ** 16, 64                                  # so long that the terms linear in n do not matter
    standard = fa.traffic(n, d, 1, 1, "standard")
    assert fa.traffic(n, d, 32, 32, "query-outer") > standard * 0.99 > fa.traffic(n, d, 33, 33, "query-outer")
    assert fa.traffic(n, d, 48, 48, "key-outer") > standard > fa.traffic(n, d, 52, 52, "key-outer")


@settings(max_examples=40, deadline=None)
@given(n_q=st.integers(1, 40), n_k=st.integers(1, 40), tile_q=st.integers(1, 9), tile_k=st.integers(1, 9))
def test_tile_kinds_against_the_mask(n_q, n_k, tile_q, tile_k):
    mask = torch.ones(n_q, n_k, dtype=torch.bool).tril(n_k - n_q)
    kinds = fa.tile_kinds(n_q, n_k, tile_q, tile_k)
    for a in range(kinds.shape[0]):
        for b in range(kinds.shape[1]):
            tile = mask[a * tile_q:(a + 1) * tile_q, b * tile_k:(b + 1) * tile_k]
            assert kinds[a, b] == int(tile.any()) + int(tile.all())


def test_causal_traffic_counts_visited_tiles_only():
    full, causal = (fa.traffic(256, 64, 32, 32, causal=c) for c in (False, True))
    assert full == 4 * (2 * 256 * 64 + 64 * 32 * 2 * 64) and causal == 4 * (2 * 256 * 64 + 36 * 32 * 2 * 64)


@pytest.mark.parametrize("change, words", [
    (dict(q=torch.zeros(2, 3, 4)), "q must have shape"), (dict(k=[1]), "k must be a tensor"),
    (dict(v=torch.zeros(1, 1, 7, 8, dtype=torch.int64)), "v must be a floating-point"),
    (dict(k=torch.zeros(1, 1, 7, 8).half()), "agree in dtype"),
    (dict(k=torch.zeros(2, 1, 7, 8)), "one batch size"),
    (dict(v=torch.zeros(1, 1, 6, 8)), "agree in heads and length"),
    (dict(k=torch.zeros(1, 1, 7, 6)), "one width"),
    (dict(q=torch.zeros(1, 3, 5, 8), k=torch.zeros(1, 2, 7, 8), v=torch.zeros(1, 2, 7, 8)),
     "must be a multiple"),
    (dict(key_bias=torch.zeros(6)), "key_bias must broadcast"),
    (dict(scale=math.nan), "scale must be a finite"),
])
def test_bad_input_is_named(change, words):
    q, k, v = random_inputs(0, dtype=torch.float32)
    arguments = dict(dict(q=q, k=k, v=v), **change)
    with pytest.raises(ValueError, match=words):
        fa.flash_forward_tiles(**arguments)


def test_bad_traffic_arguments():
    with pytest.raises(ValueError, match="order must be"):
        fa.traffic(8, 8, 4, 4, "diagonal")
    with pytest.raises(ValueError, match="tile_q must be at least 1"):
        fa.traffic(8, 8, 0, 4)
