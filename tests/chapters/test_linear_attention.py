"""Chapter 4: every form against the definition in float64; the kernels sanitized and counted."""
import itertools
import math

import pytest
import torch

from course_lib import cuda
from course_lib.attention import scaled_dot_product_attention
from course_lib.field_guide import recurrence
from course_lib.gpu.case import relative
from course_lib.linear_attention import (LinformerAttention, delta_rule, delta_rule_kernel, feature_map,
                                         gated_linear_attention, linear_attention, linear_attention_kernel,
                                         performer_attention, performer_features, positive_features,
                                         tensor_core as linear_tensor_core)
from references import asked, launches_of, names_the_argument, rand, rand64, same_numbers

FORMS = ["parallel", "recurrent", "chunked"]


def oracle(q, k, v, name, causal):
    """The definition, weight by weight."""
    phi = feature_map(name)
    weights = phi(q) @ phi(k).transpose(-2, -1)
    weights = weights.tril() if causal else weights
    total = weights.sum(-1, keepdim=True)
    return torch.where(total == 0, 0, weights @ v / torch.where(total == 0, 1, total))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["elu", "relu", "taylor"])
@pytest.mark.parametrize("n, chunk_size", [(1, 4), (31, 8), (33, 32), (63, 64), (100, 7)])
def test_forms_agree_with_the_definition_and_its_gradients(form, name, n, chunk_size):
    q, k, v = (rand64(2, 2, n, d, seed=s).requires_grad_() for s, d in enumerate((5, 5, 3)))
    want = oracle(q, k, v, name, causal=True)
    got = linear_attention(q, k, v, name, causal=True, form=form, chunk_size=chunk_size)
    same_numbers(got, want, (q, k, v), 1e-10, 1e-8, slack=100)


def test_without_causality_lengths_may_differ_and_a_named_map_may_be_a_function():
    q, k, v = rand64(2, 2, 5, 4), rand64(2, 2, 9, 4, seed=1), rand64(2, 2, 9, 3, seed=2)
    for form, name in itertools.product(FORMS, ("elu", "relu", "taylor")):
        got = linear_attention(q, k, v, feature_map(name), form=form)
        torch.testing.assert_close(got, oracle(q, k, v, name, False))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype, tolerance", [
    (torch.float64, 1e-10), (torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)])
def test_a_carried_state_is_the_same_as_one_run(form, dtype, tolerance):
    q, k, v = (rand64(2, 3, 50, 8, seed=s) for s in range(3))
    want = oracle(q, k, v, "elu", True)
    state, pieces = None, []
    for a, b in [(0, 17), (17, 18), (18, 50)]:
        piece, state = linear_attention(*(x[:, :, a:b].to(dtype) for x in (q, k, v)), causal=True, form=form,
                                        chunk_size=8, state=state, return_state=True)
        assert piece.dtype == dtype
        pieces.append(piece)
    torch.testing.assert_close(torch.cat(pieces, 2).double(), want, atol=tolerance, rtol=tolerance)


def test_a_query_whose_weights_are_zero_gets_zero():
    q, k, v = -torch.ones(1, 1, 3, 4), torch.ones(1, 1, 3, 4), rand64(1, 1, 3, 2, dtype=torch.float32)
    for form in FORMS:
        assert torch.equal(linear_attention(q, k, v, "relu", causal=True, form=form), torch.zeros(1, 1, 3, 2))
    assert linear_attention(q, k[:, :, :0], v[:, :, :0]).abs().sum() == 0


def test_taylor_features_multiply_to_the_series():
    q, k = rand64(1, 1, 4, 6), rand64(1, 1, 5, 6, seed=1)
    s = q @ k.transpose(-2, -1) / math.sqrt(6)
    phi = feature_map("taylor")
    torch.testing.assert_close(phi(q) @ phi(k).transpose(-2, -1), 1 + s + s**2 / 2)


DELTA_FORMS = ["recurrent", "chunked"]


def given(n, d, d_v, weakest=0.5, heads=2):
    """q, k of length 1, v, beta, decay per channel from `weakest` to 1."""
    q, k = rand64(2, heads, n, d), torch.nn.functional.normalize(rand64(2, heads, n, d, seed=1), dim=-1)
    decay = weakest ** rand64(2, heads, n, d, seed=4).sigmoid()
    return q, k, rand64(2, heads, n, d_v, seed=2), rand64(2, heads, n, seed=3).sigmoid(), decay


def every_decay(decay):
    """None, one per token, one per channel."""
    return None, decay[..., 0], decay


def floats(*tensors):
    return [x if x is None else x.float() for x in tensors]


def delta_oracle(q, k, v, beta, decay):
    """One key at a time, one matrix at a time."""
    out = torch.empty_like(v)
    for b, h in torch.cartesian_prod(torch.arange(2), torch.arange(q.shape[1])):
        s = q.new_zeros(q.shape[-1], v.shape[-1])
        for t in range(q.shape[2]):
            s = s if decay is None else decay[b, h, t].view(-1, 1) * s
            s = s + beta[b, h, t] * torch.outer(k[b, h, t], v[b, h, t] - s.T @ k[b, h, t])
            out[b, h, t] = s.T @ q[b, h, t]
    return out


@pytest.mark.parametrize("form", DELTA_FORMS)
@pytest.mark.parametrize("n, d, d_v, chunk_size",
                         [(1, 1, 1, 4), (33, 6, 5, 8), (63, 3, 4, 64), (50, 6, 5, 40)])
def test_delta_rule_against_one_matrix_at_a_time(form, n, d, d_v, chunk_size):
    q, k, v, beta, decay = given(n, d, d_v)
    for a in every_decay(decay):
        args = q, k, v, 2 * beta, a
        want = delta_oracle(*args)
        torch.testing.assert_close(delta_rule(*args, form, chunk_size), want, atol=1e-10, rtol=1e-8)
        single = delta_rule(*floats(*args), form, chunk_size)
        torch.testing.assert_close(single.double(), want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("channels", [False, True])
def test_delta_rule_gradients_and_states_agree_between_forms(channels):
    leaves = [x[:1] for x in given(19, 4, 3)]
    leaves = [x.requires_grad_() for x in (*leaves[:4], every_decay(leaves[4])[1 + channels])]
    results = [delta_rule(*leaves, form, 5, return_state=True) for form in DELTA_FORMS]
    torch.testing.assert_close(results[0], results[1])
    same_numbers(results[0][0], results[1][0], leaves)
    assert torch.autograd.gradcheck(lambda *x: delta_rule(*x, form="chunked", chunk_size=3),
                                    [x[:, :1, :7].detach().requires_grad_() for x in leaves])
    first, state = delta_rule(*(x[:, :, :8] for x in leaves), "chunked", 5, return_state=True)
    second = delta_rule(*(x[:, :, 8:] for x in leaves), "recurrent", state=state)
    torch.testing.assert_close(torch.cat([first, second], 2), results[0][0])


@pytest.mark.parametrize("channels", [1, 8])
@pytest.mark.parametrize("weakest", [1e-2, 1e-12, 1e-30])
def test_chunks_keep_their_digits_where_the_quotient_would_overflow(weakest, channels):
    """The product of 64 such decays is far below the smallest float: 1 / A_s would be infinite."""
    *args, _ = given(100, 8, 5)
    decay = torch.where(rand64(2, 2, 100, channels, seed=4) < 0.5, weakest, 0.99)
    *single, a = floats(*args, decay if channels > 1 else decay[..., 0])
    for strength, got in ((args[3][..., None], delta_rule(*single, a, "chunked")),
                          (None, gated_linear_attention(*single[:3], a, "chunked"))):
        want = recurrence(*args[:3], decay.log(), strength)[0]
        torch.testing.assert_close(got.double(), want, atol=1e-5, rtol=1e-4)


def test_gated_without_decay_is_plain_linear_attention():
    q, k, v = (rand64(1, 2, 23, 4, seed=s) for s in range(3))
    want = linear_attention(q, k, v, "identity", causal=True, normalise=False)
    for form in ("recurrent", "chunked"):
        torch.testing.assert_close(gated_linear_attention(q, k, v, torch.ones(1, 2, 23, dtype=torch.float64),
                                                          form, 6), want)
    fading = gated_linear_attention(q, k, v, torch.full((1, 2, 23), 0.5, dtype=torch.float64), "chunked", 6)
    weights = 0.5 ** (torch.arange(23)[:, None] - torch.arange(23)).clamp_min(0).double()
    torch.testing.assert_close(fading, (q @ k.transpose(-2, -1) * weights).tril() @ v)


@pytest.mark.parametrize("orthogonal", [False, True])
def test_performer_is_unbiased_for_the_exponential(orthogonal):
    d, draws = 8, 1000
    q, k = rand64(d, seed=1) * 0.3, rand64(d, seed=2) * 0.3
    assert (q + k).square().sum() <= 3
    generator = torch.Generator().manual_seed(0)
    estimates = torch.stack([(positive_features(q[None], w) @ positive_features(k[None], w).T)[0, 0]
                             for w in (performer_features(d, 16, orthogonal, generator).double()
                                       for _ in range(draws))])
    error = estimates.std() / math.sqrt(draws)
    assert abs(estimates.mean() - torch.exp(q @ k)) < 4 * error and error < 0.05


def test_orthogonal_rows_and_their_lengths():
    w = performer_features(8, 20, True, torch.Generator().manual_seed(0))
    gram = (w / w.norm(dim=-1, keepdim=True))[:8] @ (w / w.norm(dim=-1, keepdim=True))[:8].T
    torch.testing.assert_close(gram, torch.eye(8), atol=1e-5, rtol=0)
    assert w.shape == (20, 8) and w.norm(dim=-1).std() > 0.1


@pytest.mark.parametrize("causal", [False, True])
def test_performer_attention_approaches_softmax(causal):
    q, k, v = (rand64(1, 2, 40, 8, seed=s, dtype=torch.float32) for s in range(3))
    q, k = q / 2, k / 2                        # the variance grows as exp(|q + k|^2)
    w = performer_features(8, 4096, True, torch.Generator().manual_seed(0))
    want = scaled_dot_product_attention(q, k, v, causal=causal)
    got = performer_attention(q, k, v, w, causal, "chunked", 16)
    assert (got - want).norm() / want.norm() < 0.1
    assert performer_attention(q * 100, k * 100, v, w, causal).isfinite().all()


def test_linformer_shapes_and_refusal():
    layer = LinformerAttention(16, 4, seq_len=32, rank=8)
    assert layer(torch.randn(2, 20, 16)).shape == (2, 20, 16)
    with pytest.raises(ValueError, match="^causal must"):
        layer(torch.randn(2, 20, 16), causal=True)
    with pytest.raises(ValueError, match="^x must"):
        layer(torch.randn(2, 33, 16))


@pytest.mark.parametrize("broken", ["k", "v"])
@pytest.mark.parametrize("form", ["parallel", "recurrent", "chunked"])
def test_a_broken_token_does_not_reach_the_past(form, broken):
    given = {"q": rand64(1, 2, 20, 4), "k": rand64(1, 2, 20, 4, seed=1) / 4, "v": rand64(1, 2, 20, 4, seed=2)}
    given[broken][:, :, 13] = math.nan
    once = torch.ones(1, 2, 20, dtype=torch.float64)
    answers = [linear_attention(**given, causal=True, form=form, chunk_size=8)]
    if form != "parallel":
        answers += [gated_linear_attention(**given, decay=0.9 * once, form=form, chunk_size=8),
                    delta_rule(**given, beta=once, form=form, chunk_size=8)]
    for answer in answers:
        assert answer[:, :, :13].isfinite().all() and answer[:, :, 13:].isnan().all()


Q, K, V = rand64(1, 2, 5, 4), rand64(1, 2, 5, 4, seed=1), rand64(1, 2, 5, 3, seed=2)
BETA = torch.full((1, 2, 5), 0.1, dtype=torch.float64)


test_bad_input_names_the_argument = names_the_argument({
    "feature_map": [lambda: linear_attention(Q, K, V, "exp"), lambda: linear_attention(Q, K, V, "identity"),
        lambda: linear_attention(Q, K, V, torch.tanh)],
    "form": [lambda: linear_attention(Q, K, V, form="fast"),
        lambda: delta_rule(Q, K, V, BETA, form="parallel")],
    "chunk_size": [lambda: linear_attention(Q, K, V, chunk_size=0)],
    "q": [lambda: linear_attention(Q[:, :, :4], K, V, causal=True), lambda: linear_attention(Q[0], K, V)],
    "k": [lambda: linear_attention(Q, K[..., :3], V), lambda: delta_rule(Q, K[:, :, :4], V, BETA),
        lambda: performer_attention(Q, K[..., :3], V, torch.zeros(8, 4))],
    "v": [lambda: linear_attention(Q, K, V.float()), lambda: delta_rule(Q, K, V[:, :, :4], BETA)],
    "state": [lambda: linear_attention(Q, K, V, state=(V, V)), lambda: delta_rule(Q, K, V, BETA / 2, state=V),
        lambda: linear_attention(Q, K, V, state=V), lambda: delta_rule(Q, K, V, BETA, state=(V, V)),
        lambda: linear_attention(Q, K, V, state=1), lambda: linear_attention(Q, K, V, state=(V, None))],
    "beta": [lambda: delta_rule(Q, K, V, BETA[..., :3]), lambda: delta_rule(Q, K, V, BETA * 100),
        lambda: delta_rule(Q, K, V, -BETA), lambda: delta_rule(Q, K, V, 0.5)],
    "decay": [lambda: delta_rule(Q, K, V, BETA, BETA * 0), lambda: delta_rule(Q, K, V, BETA, BETA * 11),
        *(lambda run=run, a=a: run(*3 * [torch.full((1, 1, 3, 4), 0.5)], torch.ones(1, 1, 3), a)
          for run in (delta_rule, delta_rule_kernel)
          for a in (rand(1, 1, 3, 5).sigmoid(), torch.zeros(1, 1, 3, 4), torch.full((1, 1, 3, 4), 1.5)))],
    "n_features": [lambda: performer_features(4, 0)],
    "projection": [lambda: performer_attention(Q, K, V, torch.zeros(8, 3))],
    "rank": [lambda: LinformerAttention(8, 2, 4, 5)], "d_model": [lambda: LinformerAttention(9, 2, 4, 2)],
    "n_heads": [lambda: LinformerAttention(8, 0, 4, 2)],
    "x": [lambda: LinformerAttention(8, 2, 4, 2)(torch.zeros(1, 4, 9))],
    "scale": [lambda: performer_attention(Q, K, V, torch.zeros(8, 4), scale=-1.0)]})


def qkv(n, d, d_v):
    return rand(2, 2, n, d), rand(2, 2, n, d, seed=1), rand(2, 2, n, d_v, seed=2)


@pytest.mark.parametrize("rung", [1, 2, 3])
@pytest.mark.parametrize("n, d, d_v", [(1, 1, 1), (31, 4, 3), (33, 8, 8), (63, 5, 20), (100, 16, 8)])
def test_linear_attention_is_the_modules_in_pieces_too(rung, n, d, d_v):
    q, k, v = qkv(n, d, d_v)
    for name, normalise in (("elu", True), ("relu", True), ("elu", False), ("identity", False)):
        pieces, state = [], None
        for part in (slice(0, n // 3), slice(n // 3, n // 3 + 1), slice(n // 3 + 1, n)):
            with cuda.sanitize():
                piece, state = linear_attention_kernel(q[:, :, part], k[:, :, part], v[:, :, part], name,
                                                       normalise, state, True, rung, 8)
            pieces.append(piece)
        want = linear_attention(q, k, v, name, causal=True, normalise=normalise, return_state=True)
        torch.testing.assert_close((torch.cat(pieces, 2), state), want, atol=1e-4, rtol=1e-4)
    assert torch.equal(linear_attention_kernel(-torch.ones_like(q), k, v, "relu", rung=rung),
                       torch.zeros_like(v))


@pytest.mark.parametrize("form", DELTA_FORMS)
@pytest.mark.parametrize("n, d, d_v, weakest", [
    (1, 1, 1, 0.5), (31, 4, 3, 1e-12), (33, 8, 33, 0.5), (16, 5, 64, 0.1), (100, 16, 8, 0.5)])
def test_the_delta_kernels_are_the_function_in_pieces_too(form, n, d, d_v, weakest):
    *args, decay = given(n, d, d_v, weakest)
    for a in every_decay(decay):
        pieces, state = [], None
        for part in (slice(0, n // 3), slice(n // 3, n)):       # of one token, the first is empty
            with cuda.sanitize():
                piece, state = delta_rule_kernel(
                    *(x if x is None else x[:, :, part] for x in floats(*args, a)), state=state,
                    return_state=True, form=form)
            pieces.append(piece.double())
        torch.testing.assert_close((torch.cat(pieces, 2), state.double()),
                                   delta_rule(*args, a, return_state=True), atol=1e-5, rtol=1e-4)


def test_a_state_that_a_kernel_changes_claims_no_gradient():
    (q, k, v), states = qkv(5, 4, 3), [rand(2, 2, 4, 3).requires_grad_(), rand(2, 2, 4).requires_grad_()]
    for rung in (1, 3):
        state = linear_attention_kernel(q, k, v, state=states, return_state=True, rung=rung)[1]
        assert not any(x.requires_grad for x in state)
    last = delta_rule_kernel(*floats(*given(5, 4, 3)), state=states[0], return_state=True)[1]
    assert not last.requires_grad


@pytest.mark.parametrize("n", [32, 64, 70, 96])
def test_traffic_is_linear_in_n_exactly(n):
    d, d_v, chunk = 8, 16, 32
    q, k, v = (x[:1, :1].float() for x in given(n, d, d_v)[:3])
    rows, state, chunks = n * 2 * (d + d_v), d * (d_v + 1), -(-n // chunk)
    want = {1: rows + 2 * n * state, 2: rows + 2 * state, 3: rows + n * (d + d_v) + 2 * state + 2 * chunks
            * state}
    for rung, numbers in want.items():
        launches = launches_of(lambda: linear_attention_kernel(q, k, v, rung=rung, chunk_size=chunk))
        assert asked(launches) == 4 * numbers


test_bad_input_to_a_kernel_is_named = names_the_argument({
    "rung": [lambda q: linear_attention_kernel(q, q, q, rung=5)],
    "q": [lambda q: linear_attention_kernel(q, q, q, rung=4),
        lambda q: linear_attention_kernel(q.double(), q.double(), q.double()),
        lambda q: linear_attention_kernel(*(torch.ones(1, 1, 2, 128) for _ in "qkv")),
        lambda q: delta_rule_kernel(q.double(), q.double(), q.double(), torch.ones(1, 1, 2)),
        lambda q: delta_rule_kernel(*3 * [torch.full((1, 1, 2, 140), 0.01)], torch.ones(1, 1, 2),
                                    form="chunked")],
    "form": [lambda q: delta_rule_kernel(q, q, q, torch.ones(1, 1, 2), form="parallel")],
    "feature_map": [lambda q: linear_attention_kernel(q, q, q, "taylor"),
        lambda q: linear_attention_kernel(q, q, q, "identity")],
    "chunk_size": [lambda q: linear_attention_kernel(q, q, q, chunk_size=0)],
    "k": [lambda q: linear_attention_kernel(q, q[:, :, :1], q),
        lambda q: linear_attention_kernel(*(torch.ones(1, 1, n, 64).bfloat16() for n in (9, 3, 9))),
        lambda q: linear_attention_kernel(*(torch.ones(1, h, 9, 64).bfloat16() for h in (2, 1, 1)))],
    "beta": [lambda q: delta_rule_kernel(q, q, q, torch.ones(1, 1, 3))]},
    given=lambda: [torch.ones(1, 1, 2, 2)])


def case(n, d, seed=0):
    generator = torch.Generator().manual_seed(seed + n + d)
    q, k, v = (torch.randn(1, 2, n, d, generator=generator).bfloat16() for _ in "qkv")
    return q, k, v, torch.rand(1, 2, d * d + d, generator=generator)


def split(state, d):
    return state[..., :d * d].unflatten(-1, (d, d)), state[..., d * d:]


def close(got, want):
    return relative(got, want) <= 5e-3


@pytest.mark.parametrize("n, d, segments", [(1, 64, 1), (100, 64, 1), *(
    pytest.param(*case, marks=pytest.mark.slow) for case in ((70, 128, 1), (200, 64, 3)))])
@pytest.mark.parametrize("feature_map, normalise", [("elu", True), ("relu", True), ("identity", False)])
def test_it_and_the_wrapper_of_bfloat16_are_linear_attention(n, d, segments, feature_map, normalise):
    q, k, v, start = case(n, d)
    with cuda.sanitize():
        out, after = linear_tensor_core.run(q, k, v, start, ["elu", "relu", "identity"].index(feature_map),
                                            normalise, segments)
    wrapped = linear_attention_kernel(q, k, v, feature_map, normalise, split(start, d), True)
    want, state = linear_attention(*(x.double() for x in (q, k, v)), feature_map, causal=True,
                                   normalise=normalise, state=split(start.double(), d), return_state=True)
    for got, got_state in ((out, split(after, d)), wrapped):
        assert got.dtype == torch.bfloat16 and close(got, want)
        assert all(map(close, got_state, state))


@pytest.mark.parametrize("segments, times_read", [(1, 1), (2, 2)])
def test_what_it_asks_for(segments, times_read):
    """q, k, v and out once; with several segments keys and values again; the states in float."""
    n, d, heads, size = 128, 64, 2, 64 * 64 + 64
    q, k, v, start = case(n, d)
    launches = launches_of(lambda: linear_tensor_core.run(q, k, v, start, 0, True, segments))
    rows, walk = heads * n * d * 2, launches[-1]
    z_again = 3 * heads * segments * d * 4              # an entry of z is read by the four lanes of its row
    assert walk.global_load.bytes == 3 * rows + heads * segments * size * 4 + z_again
    assert walk.global_store.bytes == rows + heads * size * 4
    assert walk.global_load.moved == 3 * rows + heads * segments * size * 4
    assert walk.shared_load.excess <= walk.shared_load.wavefronts // 50
    if segments == 2:
        assert launches[0].global_load.bytes == 2 * rows and len(launches) == 3
    else:
        assert len(launches) == 1


def gradients(rule, args, grads, **how):
    """Of q, k, v, beta, decay and the first state, through the outputs and the last state."""
    leaves = [x.clone().requires_grad_() for x in args]
    out = rule(*leaves[:5], state=leaves[5], return_state=True, **how)
    return torch.autograd.grad(out, leaves, grads)


def given_gradients(n, d, d_v, weakest=0.5, heads=2):
    args = *given(n, d, d_v, weakest, heads), rand64(2, heads, d, d_v, seed=5)
    return args, (rand64(2, heads, n, d_v, seed=6), rand64(2, heads, d, d_v, seed=7))


@pytest.mark.parametrize("n, d, d_v, weakest",
                         [(1, 1, 1, 0.5), (31, 4, 3, 1e-30), (33, 8, 33, 0.5), (16, 5, 40, 0.1)])
def test_every_gradient_of_the_chunked_kernel(n, d, d_v, weakest):
    args, grads = given_gradients(n, d, d_v, weakest)
    want = gradients(delta_rule, args, grads)
    with cuda.sanitize():
        got = gradients(delta_rule_kernel, [x.float() for x in args], [x.float() for x in grads],
                        form="chunked")
    for name, ours, right in zip(("q", "k", "v", "beta", "decay", "state"), got, want):
        torch.testing.assert_close(ours.double(), right, atol=2e-5, rtol=1e-4,
                                   msg=lambda text: f"{name}: {text}")


def test_gradients_of_other_decays_of_no_tokens_and_in_every_run():
    args, (grad, _) = given_gradients(21, 6, 20)
    q, k, v, beta, decay, _ = (x.float() for x in args)
    for a in (decay[..., 0], None):
        leaves = [x.clone().requires_grad_() for x in ((q, k, v, beta) if a is None else (q, k, v, beta, a))]
        pairs = [torch.autograd.grad(rule(*leaves, form="chunked"), leaves, grad.float())
                 for rule in (delta_rule, delta_rule_kernel, delta_rule_kernel)]
        torch.testing.assert_close(pairs[1], pairs[0], atol=1e-5, rtol=1e-4)
        assert all(torch.equal(x, y) for x, y in zip(*pairs[1:]))
    empty = v[:, :, :0].clone().requires_grad_()
    out, last = delta_rule_kernel(*(x[:, :, :0] for x in (q, k)), empty, beta[:, :, :0], form="chunked",
                                  return_state=True)
    (out.sum() + last.sum()).backward()
    assert empty.grad.shape == empty.shape and (last == 0).all()


def test_traffic_and_barriers_of_the_backward():
    n, d, d_v, blocks, chunks = 33, 8, 40, 3, 3
    args, grads = given_gradients(n, d, d_v, heads=1)
    with cuda.profile() as report:
        gradients(delta_rule_kernel, [x[:1].float() for x in args], [x[:1].float() for x in grads],
                  form="chunked")
    plain, again, backward = report.launches
    numbers = [asked([x]) // 4 for x in report.launches]
    assert [x.kernel for x in (again, backward)] == ["delta_chunks", "delta_backward"]
    assert numbers[1] - numbers[0] == chunks * d * d_v + n * d_v and again.barriers == plain.barriers
    assert numbers[2] == 2 * blocks * n * (3 * d + 1) + 3 * n * d_v + (chunks + 2) * d * d_v
    assert backward.barriers == blocks * 6 * chunks


@pytest.mark.parametrize("n, d_v", [(16, 32), (33, 40), (64, 70), (96, 16)])
def test_traffic_and_barriers_of_the_header(n, d_v):
    d, blocks, chunks = 8, -(-d_v // 32), -(-n // 16)
    args = [x[:1].float() for x in given(n, d, d_v, heads=1)]
    counted = {}
    for form in DELTA_FORMS:
        launch, = launches_of(lambda: delta_rule_kernel(*args, form=form))
        counted[form] = asked([launch]) // 4, launch.barriers
    rows = 2 * n * d_v + 2 * d * d_v
    assert counted == {"recurrent": (n * (3 * d + 1) + rows, 2 * n),
                       "chunked": (blocks * n * (3 * d + 1) + rows, blocks * 6 * chunks)}
