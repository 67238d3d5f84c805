"""Chapter 4's module: three forms, one answer; the oracle is the definition, summed in float64."""
import math

import pytest
import torch

from course_lib.attention import scaled_dot_product_attention
from course_lib.linear_attention import (LinformerAttention, delta_rule, feature_map, gated_linear_attention,
                                         linear_attention, performer_attention, performer_features,
                                         positive_features)
from references import names_the_argument, rand64 as rand

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
    q, k, v = (rand(2, 2, n, d, seed=s).requires_grad_() for s, d in enumerate((5, 5, 3)))
    want = oracle(q, k, v, name, causal=True)
    got = linear_attention(q, k, v, name, causal=True, form=form, chunk_size=chunk_size)
    torch.testing.assert_close(got, want, atol=1e-10, rtol=1e-8)
    upstream = rand(*got.shape, seed=9)
    for mine, other in zip(torch.autograd.grad(got, (q, k, v), upstream),
                           torch.autograd.grad(want, (q, k, v), upstream)):
        torch.testing.assert_close(mine, other, atol=1e-8, rtol=1e-6)


def test_without_causality_lengths_may_differ():
    q, k, v = rand(2, 2, 5, 4), rand(2, 2, 9, 4, seed=1), rand(2, 2, 9, 3, seed=2)
    for form in FORMS:
        torch.testing.assert_close(linear_attention(q, k, v, form=form), oracle(q, k, v, "elu", False))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype, tolerance",
                         [(torch.float64, 1e-10), (torch.float32, 1e-5), (torch.bfloat16, 2e-2),
                          (torch.float16, 2e-3)])
def test_a_carried_state_is_the_same_as_one_run(form, dtype, tolerance):
    q, k, v = (rand(2, 3, 50, 8, seed=s) for s in range(3))
    want = oracle(q, k, v, "elu", True)
    state, pieces = None, []
    for a, b in [(0, 17), (17, 18), (18, 50)]:
        piece, state = linear_attention(*(x[:, :, a:b].to(dtype) for x in (q, k, v)), causal=True, form=form,
                                        chunk_size=8, state=state, return_state=True)
        assert piece.dtype == dtype
        pieces.append(piece)
    torch.testing.assert_close(torch.cat(pieces, 2).double(), want, atol=tolerance, rtol=tolerance)


def test_a_query_whose_weights_are_zero_gets_zero():
    q, k, v = -torch.ones(1, 1, 3, 4), torch.ones(1, 1, 3, 4), rand(1, 1, 3, 2, dtype=torch.float32)
    for form in FORMS:
        assert torch.equal(linear_attention(q, k, v, "relu", causal=True, form=form), torch.zeros(1, 1, 3, 2))
    assert linear_attention(q, k[:, :, :0], v[:, :, :0]).abs().sum() == 0


def test_taylor_features_multiply_to_the_series():
    q, k = rand(1, 1, 4, 6), rand(1, 1, 5, 6, seed=1)
    s = q @ k.transpose(-2, -1) / math.sqrt(6)
    phi = feature_map("taylor")
    torch.testing.assert_close(phi(q) @ phi(k).transpose(-2, -1), 1 + s + s**2 / 2)


def delta_oracle(q, k, v, beta, decay):
    """One key at a time, one matrix at a time."""
    out = torch.zeros_like(v)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            s = torch.zeros(k.shape[-1], v.shape[-1], dtype=q.dtype)
            for t in range(q.shape[2]):
                s = decay[b, h, t] * s
                s = s + beta[b, h, t] * torch.outer(k[b, h, t], v[b, h, t] - s.T @ k[b, h, t])
                out[b, h, t] = s.T @ q[b, h, t]
    return out


@pytest.mark.parametrize("form", ["recurrent", "chunked"])
@pytest.mark.parametrize("with_decay", [False, True])
@pytest.mark.parametrize("n, chunk_size", [(1, 4), (33, 8), (63, 64)])
def test_delta_rule_against_one_matrix_at_a_time(form, with_decay, n, chunk_size):
    q, v = rand(2, 2, n, 6), rand(2, 2, n, 5, seed=2)
    k = torch.nn.functional.normalize(rand(2, 2, n, 6, seed=1), dim=-1)
    beta = rand(2, 2, n, seed=3).sigmoid() * 2
    decay = 0.5 + 0.5 * rand(2, 2, n, seed=4).sigmoid() if with_decay else None
    want = delta_oracle(q, k, v, beta, torch.ones(2, 2, n) if decay is None else decay)
    torch.testing.assert_close(delta_rule(q, k, v, beta, decay, form, chunk_size), want, atol=1e-10,
                               rtol=1e-8)
    single = delta_rule(*(x.float() for x in (q, k, v, beta)), None if decay is None else decay.float(), form,
                        chunk_size)
    torch.testing.assert_close(single.double(), want, atol=1e-5, rtol=1e-5)


def test_delta_rule_gradients_and_states_agree_between_forms():
    leaves = [rand(1, 2, 19, 4, seed=s) for s in range(3)]
    leaves[1] = torch.nn.functional.normalize(leaves[1], dim=-1)
    leaves += [rand(1, 2, 19, seed=3).sigmoid(), 0.6 + 0.4 * rand(1, 2, 19, seed=4).sigmoid()]
    leaves = [x.requires_grad_() for x in leaves]
    results = [delta_rule(*leaves, form=form, chunk_size=5, return_state=True)
               for form in ("recurrent", "chunked")]
    torch.testing.assert_close(results[0], results[1])
    upstream = rand(1, 2, 19, 4, seed=9)
    grads = [torch.autograd.grad(out, leaves, upstream) for out, _ in results]
    torch.testing.assert_close(grads[0], grads[1])
    assert torch.autograd.gradcheck(lambda *x: delta_rule(*x, form="chunked", chunk_size=3),
                                    [x[:, :1, :7].detach().requires_grad_() for x in leaves])
    first, state = delta_rule(*(x[:, :, :8] for x in leaves), form="chunked", chunk_size=5, return_state=True)
    second = delta_rule(*(x[:, :, 8:] for x in leaves), form="recurrent", state=state)
    torch.testing.assert_close(torch.cat([first, second], 2), results[0][0])


@pytest.mark.parametrize("strongest", [1e-2, 1e-6, 1e-20])
def test_chunks_keep_their_digits_under_a_strong_decay(strongest):
    q, k, v = (rand(1, 2, 100, 8, seed=s, dtype=torch.float32) for s in range(3))
    k = torch.nn.functional.normalize(k, dim=-1)
    beta = rand(1, 2, 100, seed=3, dtype=torch.float32).sigmoid()
    decay = torch.where(rand(1, 2, 100, seed=4) < 0.5, strongest, 0.99).float()
    for run in (lambda form: delta_rule(q, k, v, beta, decay,
                                        form), lambda form: gated_linear_attention(q, k, v, decay, form)):
        torch.testing.assert_close(run("chunked"), run("recurrent"), atol=1e-5, rtol=1e-5)


def test_a_named_map_may_be_handed_in_as_a_function():
    q, k, v = (rand(1, 2, 9, 4, seed=s) for s in range(3))
    for name in ("elu", "relu", "taylor"):
        torch.testing.assert_close(linear_attention(q, k, v, feature_map(name)),
                                   linear_attention(q, k, v, name))


def test_gated_without_decay_is_plain_linear_attention():
    q, k, v = (rand(1, 2, 23, 4, seed=s) for s in range(3))
    want = linear_attention(q, k, v, "identity", causal=True, normalise=False)
    for form in ("recurrent", "chunked"):
        torch.testing.assert_close(gated_linear_attention(q, k, v, torch.ones(1, 2, 23, dtype=torch.float64),
                                                          form, 6), want)
    fading = gated_linear_attention(q, k, v, torch.full((1, 2, 23), 0.5, dtype=torch.float64), "chunked", 6)
    weights = 0.5 ** (torch.arange(23)[:, None] - torch.arange(23)).clamp_min(0).double()
    torch.testing.assert_close(fading, (q @ k.transpose(-2, -1) * weights).tril() @ v)


def test_writing_a_key_again_replaces_its_value():
    k = torch.eye(4, dtype=torch.float64)[[0, 1, 0]][None, None]
    v = torch.tensor([[1.0], [2.0], [5.0]], dtype=torch.float64)[None, None]
    beta = torch.ones(1, 1, 3, dtype=torch.float64)
    assert delta_rule(k, k, v, beta)[0, 0, :, 0].tolist() == [1, 2, 5]
    assert (linear_attention(k, k, v, "identity", causal=True, normalise=False)[0, 0, :, 0].tolist()
            == [1, 2, 6])


@pytest.mark.parametrize("orthogonal", [False, True])
def test_performer_is_unbiased_for_the_exponential(orthogonal):
    d, draws = 8, 1000
    q, k = rand(d, seed=1) * 0.3, rand(d, seed=2) * 0.3
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
    q, k, v = (rand(1, 2, 40, 8, seed=s, dtype=torch.float32) for s in range(3))
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
    given = {"q": rand(1, 2, 20, 4), "k": rand(1, 2, 20, 4, seed=1) / 4, "v": rand(1, 2, 20, 4, seed=2)}
    given[broken][:, :, 13] = math.nan
    once = torch.ones(1, 2, 20, dtype=torch.float64)
    answers = [linear_attention(**given, causal=True, form=form, chunk_size=8)]
    if form != "parallel":
        answers += [gated_linear_attention(**given, decay=0.9 * once, form=form, chunk_size=8),
                    delta_rule(**given, beta=once, form=form, chunk_size=8)]
    for answer in answers:
        assert answer[:, :, :13].isfinite().all() and answer[:, :, 13:].isnan().all()


Q, K, V = rand(1, 2, 5, 4), rand(1, 2, 5, 4, seed=1), rand(1, 2, 5, 3, seed=2)
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
    "decay": [lambda: delta_rule(Q, K, V, BETA, BETA * 0), lambda: delta_rule(Q, K, V, BETA, BETA * 11)],
    "n_features": [lambda: performer_features(4, 0)],
    "projection": [lambda: performer_attention(Q, K, V, torch.zeros(8, 3))],
    "rank": [lambda: LinformerAttention(8, 2, 4, 5)], "d_model": [lambda: LinformerAttention(9, 2, 4, 2)],
    "n_heads": [lambda: LinformerAttention(8, 0, 4, 2)],
    "x": [lambda: LinformerAttention(8, 2, 4, 2)(torch.zeros(1, 4, 9))],
    "scale": [lambda: performer_attention(Q, K, V, torch.zeros(8, 4), scale=-1.0)]})
