"""The references of chapter 4's exercises against the chapter's module and kernels."""
import torch
from torch.nn import functional as F

from course_lib import cuda
from course_lib.exercises.declare import find
from course_lib.linear_attention import (delta_rule, linear_attention, linear_attention_kernel,
                                         positive_features)
from references import rand, reference


def features(n=13, d=6, d_v=5):
    return rand(1, 1, n, d).abs(), rand(1, 1, n, d, seed=1).abs(), rand(1, 1, n, d_v, seed=2)


def test_keys_first_and_chunks():
    q, k, v = features()
    torch.testing.assert_close(reference("4.1")(q, k, v), linear_attention(q, k, v, "relu"))
    want = linear_attention(q, k, v, "relu", causal=True)[0, 0]
    torch.testing.assert_close(reference("4.3")(q[0, 0], k[0, 0], v[0, 0], 4), want)


def test_step_is_the_recurrence():
    q, k, v = features()
    state, normaliser, rows = torch.zeros(6, 5), torch.zeros(6), []
    for t in range(13):
        row, state, normaliser = reference("4.2")(state, normaliser, q[0, 0, t], k[0, 0, t], v[0, 0, t])
        rows.append(row)
    torch.testing.assert_close(torch.stack(rows),
                               linear_attention(q, k, v, "relu", causal=True, form="recurrent")[0, 0])


def test_features_are_performers():
    x, w = rand(7, 4), rand(9, 4, seed=1)
    torch.testing.assert_close(reference("4.9")(x, w), positive_features(x, w))


def test_overwrite_is_the_delta_rule():
    k, v = F.normalize(rand(8, 4), dim=-1), rand(8, 3, seed=1)
    beta, decay = rand(8, seed=2).sigmoid(), rand(8, seed=3).sigmoid()
    state = torch.zeros(4, 3)
    for t in range(8):
        state = reference("4.6")(state, k[t], v[t], beta[t], decay[t])
    k, v, beta, decay = k[None, None], v[None, None], beta[None, None], decay[None, None]
    torch.testing.assert_close(state, delta_rule(k, k, v, beta, decay, return_state=True)[1][0, 0])


def test_numbers():
    d, chunk, n = 64, 32, reference("4.4")
    assert 2 * n * d == 2 * chunk * d + 4 * d * d
    a, b = torch.tensor([1.0, 0.0]), torch.tensor([0.6, 0.8])
    s = reference("4.6")(reference("4.6")(torch.zeros(2, 1), a, torch.ones(1), 1, 1), b, torch.zeros(1), 1, 1)
    assert abs((a @ s).item() - reference("4.5")) < 1e-6
    assert 0.98 ** reference("4.11") > 0.5 > 0.98 ** (reference("4.11") + 1)


def test_kernels():
    q, k, v = features(20, 8, 12)
    out, exercise = torch.empty(20, 12), find("4.7")
    kernel = getattr(cuda.compile(exercise.solution), exercise.name)
    kernel[1, 32, 4 * 8 * 14](q[0, 0], k[0, 0], v[0, 0], out, 20, 8, 12)
    torch.testing.assert_close(out, linear_attention_kernel(q, k, v, "relu", normalise=False)[0, 0],
                               atol=1e-4, rtol=1e-4)
    state, exercise = torch.empty(8, 12), find("4.8")
    getattr(cuda.compile(exercise.solution), exercise.name)[1, 64,
                                                            4 * 8 * 12](k[0, 0], v[0, 0], state, 20, 8, 12)
    torch.testing.assert_close(state, linear_attention(q, k, v, "relu", return_state=True)[1][0][0, 0],
                               atol=1e-4, rtol=1e-4)
