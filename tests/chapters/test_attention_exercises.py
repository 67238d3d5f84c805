"""The references of chapter 1's exercises against the chapter's module, torch and autograd."""
import math

import torch

from course_lib import attention, cuda
from course_lib.exercises import judge as core
from course_lib.exercises.declare import find
from course_lib.exercises.verdict import PASSED
from references import rand


def reference(id, **given):
    """What the solution of an exercise defines, run with the given names alone."""
    exercise = find(id)
    namespace = dict(exercise.given, **given)
    exec(exercise.solution, namespace)
    return namespace[exercise.name]


def test_project():
    layer, x = attention.MultiHeadAttention(12, 1, bias=False), rand(2, 5, 12)
    linear = (layer.q_proj, layer.k_proj, layer.v_proj)
    projected = reference("1.1")(x, *(projection.weight.T for projection in linear))
    for got, projection in zip(projected, linear):
        torch.testing.assert_close(got, projection(x))


def test_softmax():
    x = 5 * rand(3, 7, 11)
    for dim in (0, 1, -1):
        torch.testing.assert_close(reference("1.2")(x, dim), attention.softmax(x, dim))


def test_numbers():
    q, k = rand(20000, 64), rand(20000, 64, seed=1)
    assert abs((q * k).sum(-1).std() - reference("1.3")) < 0.2
    n, d = reference("1.9"), 4096
    assert 4 * 2 * n * d * d == 2 * 2 * n * n * d


def test_attention():
    q, k, v = rand(2, 3, 5, 8), rand(2, 3, 7, 8, seed=1), rand(2, 3, 7, 4, seed=2)
    mask = rand(5, 7, seed=3) > 0
    mask[2] = False
    torch.testing.assert_close(reference("1.5")(q, k, v), attention.scaled_dot_product_attention(q, k, v))
    torch.testing.assert_close(reference("1.5")(q, k, v, mask),
                               attention.scaled_dot_product_attention(q, k, v, mask))


def test_causal():
    for n, m in [(4, 4), (2, 5), (5, 2)]:
        assert torch.equal(reference("1.6")(n, m), attention.causal_mask(n, m))


def test_multi_head():
    layer, x = attention.MultiHeadAttention(12, 3, bias=False), rand(2, 5, 12)
    weights = (projection.weight.T
               for projection in (layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj))
    torch.testing.assert_close(reference("1.8")(x, *weights, 3), layer(x, causal=True))


def test_split_heads_is_what_the_layer_does():
    layer, x = attention.MultiHeadAttention(12, 3), rand(2, 5, 12)
    split = reference("1.7")
    heads = attention.scaled_dot_product_attention(*(split(p(x), 3)
                                                     for p in (layer.q_proj, layer.k_proj, layer.v_proj)))
    torch.testing.assert_close(layer.out_proj(heads.transpose(1, 2).flatten(2)), layer(x))


def test_kernels():
    x = 3 * rand(33, 70)
    for id in ("1.10", "1.11"):
        out, exercise = torch.empty_like(x), find(id)
        kernel = getattr(cuda.compile(exercise.solution), exercise.name)
        if id == "1.10":
            kernel[2, 32](x, out, 33, 70)
        else:
            kernel[33, 64](x, out, 70)
        torch.testing.assert_close(out, attention.softmax(x), atol=1e-6, rtol=1e-5)


def test_head_map():
    q, k = rand(1, 4, 6, 8), rand(1, 4, 6, 8, seed=1)
    _, weights = attention.scaled_dot_product_attention(q, k, k, causal=True, return_weights=True)
    drawn = reference("1.12")(q, k, 2, "to be!")
    torch.testing.assert_close(drawn["weights"], weights[0, 2])
    assert drawn["rows"] == drawn["columns"] == list("to be!")


def test_softmax_backward():
    x, g = rand(4, 9).requires_grad_(), rand(4, 9, seed=1)
    p = attention.softmax(x)
    torch.testing.assert_close(reference("1.13")(p.detach(), g), torch.autograd.grad(p, x, g)[0])


def test_softmax_backward_without_the_matrix():
    loops = "def softmax_backward(p, g):\n    return torch.einsum('...n,...n->...n', p, g) - p * (p * g).sum(-1)[..., None]\n"
    assert core.evaluate(find("1.13"), loops).status == PASSED
    builds = "def softmax_backward(p, g):\n    j = torch.diag_embed(p) - p[..., None] * p[..., None, :]\n    return torch.einsum('...ij,...j->...i', j, g)\n"
    assert "a tensor with 9 entries was made" in str(core.evaluate(find("1.13"), builds))


def test_sink_softmax():
    scores = rand(3, 5)
    wanted = scores.exp() / (math.exp(0.7) + scores.exp().sum(-1, keepdim=True))
    torch.testing.assert_close(reference("1.14")(scores, 0.7), wanted)


def test_two_different_errors_are_not_the_same_mistake():
    source = "def attention(q, k, v, mask=None):\n    return torch.softmax(q * k / math.sqrt(q.shape[-1]), -1) @ v\n"
    verdict = core.evaluate(find("1.5"), source)
    assert verdict.misconception is None and "RuntimeError" in verdict.headline


def test_a_choice_is_one_letter():
    assert "one letter" in core.evaluate(find("1.4"), 'without_the_root = "b)"\n').headline


def test_a_kernel_exercise_may_forbid_a_word():
    ex = find("0.6")
    forbidden = ex.solution.replace("float value", "__shared__ float s[32]; float value")
    assert "`__shared__` may not be used" in core.evaluate(ex, forbidden).headline
    assert (core.evaluate(ex, ex.solution.replace("float value", "/* no __shared__ */ float value")).status
            == PASSED)
