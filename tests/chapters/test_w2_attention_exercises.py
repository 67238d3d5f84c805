"""The references of chapter 9's exercises against the chapter's module and kernels."""
import math

import pytest
import torch
from torch.nn import functional as F

from course_lib import cuda
from course_lib.exercises import judge as core
from course_lib.exercises.declare import find
from course_lib.exercises.verdict import PASSED, WRONG
from course_lib.exercises.chapters.w2_attention import turn
from course_lib.studies.w2_audit_results import interval, student
from course_lib.rope import apply_rope, rope_table
from course_lib.w2_attention import augment, w2_distance, w2_scores
from references import rand, reference


def test_letters_may_be_typed_in_any_order_and_with_commas():
    given = {text: core.evaluate(find("9.10"), f"unfair = {text}").status
             for text in ('"acdf"', '"F, D, C, A"', '"acd"', '"aacdf"')}
    assert list(given.values()) == [PASSED, PASSED, WRONG, WRONG], given


def test_sorted_grains_are_the_distance_of_gaussians():
    u = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    grains = torch.erfinv(2 * u - 1) * math.sqrt(2)
    shuffled = grains[torch.randperm(20_000, generator=torch.Generator().manual_seed(0))]
    got = reference("9.1")(2 * shuffled, 8 + 8 * grains)
    want = w2_distance(*(torch.tensor([x], dtype=torch.float64) for x in (0.0, 2.0, 8.0, 8.0)))
    assert want == reference("9.2") and abs(got - want) < 0.01


def test_positioned_scores_are_the_modules():
    mu_q, raw_q, mu_k, raw_k = rand(5, 8), rand(5, 8, seed=1), rand(7, 8, seed=2), rand(7, 8, seed=3)
    cos, sin = rope_table(40, 8)
    at_q, at_k = torch.arange(20, 25), torch.arange(3, 10)
    torch.testing.assert_close(turn(mu_q, at_q), apply_rope(mu_q[None, None], cos, sin, at_q)[0, 0])
    turned = [apply_rope(x[None, None], cos, sin, at) for x, at in ((mu_q, at_q), (mu_k, at_k))]
    want = w2_scores(turned[0], F.softplus(raw_q)[None, None], turned[1], F.softplus(raw_k)[None, None],
                     2.0)[0, 0]
    torch.testing.assert_close(reference("9.3")(mu_q, raw_q, mu_k, raw_k, at_q, at_k, 2.0), want)


def test_the_disguise_is_augment():
    parts = [x[None, None]
             for x in (rand(5, 4), rand(5, 4, seed=1).exp(), rand(7, 4, seed=2), rand(7, 4, seed=3).exp())]
    q, k = (torch.cat(pair, -1)[0, 0] for pair in (parts[:2], parts[2:]))
    wide_q, wide_k = reference("9.4")(q, k, 0.7)
    theirs = augment(*parts, 0.7)
    torch.testing.assert_close(torch.softmax(wide_q @ wide_k.T, -1),
                               torch.softmax(theirs[0] @ theirs[1].mT, -1)[0, 0], atol=1e-4, rtol=1e-4)


def test_squared_distances_are_scores():
    q, k = rand(5, 8).abs() + 50, rand(7, 8, seed=1).abs() + 50
    parts = [x[None, None] for x in (q[:, :4], q[:, 4:], k[:, :4], k[:, 4:])]
    torch.testing.assert_close(reference("9.11")(q, k), -w2_scores(*parts, 1.0)[0, 0] * (1 + 1e-6), atol=1e-3,
                               rtol=1e-4)


def test_the_kernel_makes_the_modules_scores():
    mu_q, raw_q, mu_k, raw_k = rand(20, 16), rand(20, 16, seed=1), rand(33, 16, seed=2), rand(33, 16, seed=3)
    scores, exercise = torch.empty(20, 33), find("9.6")
    cuda.compile(exercise.solution).w2_tile[(3, 2), (16, 16)](mu_q, raw_q, mu_k, raw_k, scores, 20, 33, 4.0)
    parts = [x[None, None] for x in (mu_q, F.softplus(raw_q), mu_k, F.softplus(raw_k))]
    torch.testing.assert_close(scores, w2_scores(*parts, 4.0)[0, 0], atol=1e-4, rtol=1e-4)


def test_numbers():
    d = 64
    assert reference("9.5") == (2 * d + d) / (d + d)
    losses = [math.log(1024) if place < 64 else 0.0 for place in range(1, 128)]
    assert abs(reference("9.7") - sum(losses) / 127) < 1e-9
    assert round(reference("9.7"), 4) == 3.4384


def test_steep_tokens_have_the_jacobian_that_the_hint_says():
    x, swap = reference("9.12")(6.0), torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    keys = x[:2]
    weights = torch.softmax(-(swap @ x[2] - x).square().sum(-1), -1)
    torch.testing.assert_close(weights, torch.tensor([0.5, 0.5, 0.0]))
    slope = 0.5 * torch.outer(keys[0] - keys[1], keys[0] - keys[1]) @ swap
    jacobian = torch.autograd.functional.jacobian(lambda t: torch.softmax(
            -(swap @ t - torch.cat([keys, t[None]])).square().sum(-1), -1) @ torch.cat([keys, t[None]]), x[2])
    torch.testing.assert_close(jacobian, slope, atol=1e-3, rtol=1e-3)


def test_the_interval_is_the_audits():
    a, b = [0.3, 0.5, 0.45, 0.2, 0.6], [0.25, 0.3, 0.5, 0.1, 0.45]
    got = reference("9.9")(a, b, student(4))
    assert got == pytest.approx(interval([x - y for x, y in zip(a, b)]), rel=1e-6)


RIGHT_IN_ANOTHER_STYLE = {
    "9.1": """
def w2_of_samples(a, b):
    rows = [sorted(x.tolist()) for x in (a, b)]
    return torch.tensor(sum((x - y) ** 2 for x, y in zip(*rows)) / len(a), dtype=torch.float64).sqrt()
""",
    "9.4": """
def as_dot_product(q, k, tau):
    norms = (k * k).sum(1)
    return torch.cat([-torch.ones(len(q), 1), q], 1), torch.cat([norms[:, None], 2 * k], 1) / tau
""",
    "9.9": """
def paired_interval(a, b, t):
    d = torch.tensor(a) - torch.tensor(b)
    return d.mean(), t * d.std() / len(d) ** 0.5
""",
    "9.11": """
def squared_distances(q, k):
    origin = q[0]
    q, k = q - origin, k - origin
    norm = lambda x: (x * x).sum(1)
    return torch.relu(norm(q)[:, None] + norm(k) - 2 * q @ k.T)
""",
    "9.12": """
def steep_tokens(scale):
    s = float(scale)
    return torch.tensor([[s, -s], [s, s], [0.0, s]], dtype=torch.float64)
"""}


@pytest.mark.parametrize("id", RIGHT_IN_ANOTHER_STYLE)
def test_right_work_in_another_style_passes(id):
    mark = core.evaluate(find(id), RIGHT_IN_ANOTHER_STYLE[id])
    assert mark.status == PASSED, mark


@pytest.mark.parametrize("id, source", [
    ("9.4", "def as_dot_product(q, k, tau):\n    torch.softmax = lambda x, d: torch.softmax\n"
            "    return torch.zeros(len(q), q.shape[1] + 1), torch.zeros(len(k), q.shape[1] + 1)"),
    ("9.12", "def steep_tokens(scale):\n    torch.autograd.functional.jacobian = lambda *a: torch.tensor(scale ** 2)\n"
             "    return torch.zeros(3, 2)"),
    ("9.12", "def steep_tokens(scale):\n    return torch.zeros(3, 2)")])
def test_zeros_do_not_pass(id, source, monkeypatch):
    monkeypatch.setattr(torch, "softmax", torch.softmax)        # put back what the source replaces
    monkeypatch.setattr(torch.autograd.functional, "jacobian", torch.autograd.functional.jacobian)
    assert core.evaluate(find(id), source).status == WRONG


def test_small_widths():
    measures = {"a": lambda s: 1 / (2 * s**2), "b": lambda s: math.sqrt(1 - math.exp(-1 / (8 * s**2))),
                "c": lambda s: -0.5 * (1 / (2 * s) + math.log(2 * s)), "d": lambda s: 1.0}
    assert (measures[reference("9.13")](1e-6) == 1.0 and measures["a"](1e-6) > 1e9 and measures["c"](1e-6)
            < -1e5)
