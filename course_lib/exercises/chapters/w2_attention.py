"""The exercises of chapter 9."""
import math

import torch
from torch.nn import functional as F

from course_lib.exercises import Case, Launch, Misconception, close, exercise, kernel_exercise, out, randn, whole


exercise(id="9.1",
    cases=lambda rng: [*(Case(randn(rng, n), 3 + 2 * randn(rng, n), label=f"{n} grains") for n in (3, 1, 2, 33, 100)),
                       Case(torch.tensor([2.0, 1.0, 1.0]), torch.tensor([3.0, 0.0, 3.0]), label="grains at the same place")],
    compare=close(atol=1e-5, dtype="kind"))


def turn(x, positions):
    """RoPE: (n, d), positions (n,) -> each pair (2i, 2i + 1) of row t rotated by positions[t] * 10000^(-2i / d)."""
    d = x.shape[1]
    angle = positions[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
    a, b = x[:, 0::2], x[:, 1::2]
    return torch.stack((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1).flatten(1)

def turn_cases(rng):
    for n, m, d, start in [(1, 2, 2, 0), (3, 4, 4, 0), (5, 7, 8, 100)]:
        yield Case(randn(rng, n, d), randn(rng, n, d), randn(rng, m, d), randn(rng, m, d), start + torch.arange(n),
                   start + 3 + torch.arange(m), 2.0, label=f"{n} queries, {m} keys, positions from {start}")
    same = randn(rng, 1, 4).expand(3, 4)
    yield Case(same * 0, same, same * 0, same, torch.arange(3), torch.arange(3), 1.0,
               label="the same token at three positions, means 0")

exercise(id="9.3", given={"torch": torch, "F": F, "turn": turn}, cases=turn_cases, compare=close(atol=1e-4))


def form_cases(rng):
    for n, m, d, tau in [(1, 2, 1, 1.0), (3, 4, 2, 2.0), (5, 9, 6, 0.5), (1, 5, 3, 3.0)]:
        yield Case(randn(rng, n, d), randn(rng, m, d), tau, label=f"{n} queries, {m} keys of {d} numbers, tau = {tau}")
    yield Case(randn(rng, 2, 3), torch.tensor([1.0, 4.0])[:, None] * randn(rng, 1, 3), 1.0, label="a short key and a long one")

class _Weighed(dict):
    """What was made of two matrices, and nobody returns."""

def _weights_of(pair, case):
    """The attention weights of the two matrices, and their widths; anything else as it is."""
    if not (isinstance(pair, (tuple, list)) and len(pair) == 2 and all(
            isinstance(x, torch.Tensor) and x.dim() == 2 and len(x) == len(c) for x, c in zip(pair, case.args))):
        return pair
    wide_q, wide_k = pair
    scores = wide_q.double() @ wide_k.double().T
    return _Weighed(weights=torch.softmax(scores, -1), width_of_wide_q=wide_q.shape[1], width_of_wide_k=wide_k.shape[1])

def _same_weights(got, want, case):
    if not isinstance(got, _Weighed):
        n, m = map(len, case.args[:2])
        return (f"is no pair of matrices of one width, the first with {n} rows (queries), the second with {m} (keys)"
                + ". Is there a `return`?" * (got is None))
    return close(atol=1e-5)(got, want, case)

exercise(id="9.4", cases=form_cases, measure=_weights_of, compare=_same_weights)


def score_cases(rng):
    for n, m in [(2, 3), (16, 16), (33, 20), (1, 50), (40, 31)]:
        yield Case(randn(rng, n, 16), randn(rng, n, 16), randn(rng, m, 16), randn(rng, m, 16), 4.0,
                   label=f"{n} queries, {m} keys")
    yield Case(randn(rng, 5, 16), 40 * randn(rng, 5, 16), randn(rng, 6, 16), 40 * randn(rng, 6, 16), 100.0,
               label="raw widths of 100 and more")

def _score_expect(mu_q, raw_q, mu_k, raw_k, tau):
    means, widths = mu_q[:, None] - mu_k, F.softplus(raw_q)[:, None] - F.softplus(raw_k)
    return -(means.square() + widths.square()).sum(-1) / tau

def _score_traffic(mu_q, raw_q, mu_k, raw_k, tau):
    """Every tile of queries meets every tile of keys; a row is two times 64 bytes.
    64 bytes of a row of scores may touch 3 sectors."""
    n, m = len(mu_q), len(mu_k)
    return 128 * (n * -(-m // 16) + m * -(-n // 16)) + 96 * n * -(-m // 16)

kernel_exercise(id="9.6", cases=score_cases, compare=close(atol=1e-3, rtol=1e-4),
    launch=lambda mu_q, raw_q, mu_k, raw_k, tau: Launch(
        grid=(-(-len(mu_k) // 16), -(-len(mu_q) // 16)), block=(16, 16),
        args=[mu_q, raw_q, mu_k, raw_k, out((len(mu_q), len(mu_k))), len(mu_q), len(mu_k), tau]),
    expect=_score_expect, traffic=_score_traffic)


exercise(id="9.7", answer=63 / 127 * math.log(1024), tolerance=0.005, misconceptions=[
    Misconception("takes half of the answers for unknown", value=round(math.log(1024) / 2, 4),
                  ask="How many of the 127 answers are random?"),
    Misconception("counts the first token among the answers", value=round(64 / 127 * math.log(1024), 4),
                  ask="The first token is read, not asked for. How many of the random tokens are asked for?"),
    Misconception("gives the loss of a blind guess", value=round(math.log(1024), 4), ask="Which answers can be copied?"),
    Misconception("counts in bits", value=round(63 / 127 * 10, 4), ask="Which logarithm does a cross-entropy in nats use?"),
    Misconception("thinks that a perfect model has no loss", value=0,
                  ask="What can any model know about a random token before it has seen it?")])


def seed_cases(rng):
    for n, t, b in ((5, 2.776, 2.1), (2, 12.706, 1.7), (3, 4.303, 2.1), (5, 4.315, 1.9), (10, 2.262, 2.1)):
        shared, own = randn(rng, n), 0.1 * randn(rng, 2, n)
        yield Case((2 + shared + own[0]).tolist(), (b + shared + own[1]).tolist(), t, label=f"{n} seeds, t = {t}")

exercise(id="9.9", cases=seed_cases, compare=close(atol=1e-6, rtol=1e-5))


def far_cases(rng):
    """Tokens far away are two whole numbers each, of which every machine rounds the squares and their sums alike."""
    for n, m, d in [(2, 2, 2), (3, 5, 4), (20, 33, 16)]:
        yield Case(randn(rng, n, d), randn(rng, m, d), label=f"{n} x {m}, tokens around 0")
    for n, half, x, y in [(3, 3, 3000, 3000), (20, 17, -3500, -3500), (7, 4, 4000, -4000)]:
        q, k = (torch.randint(-4, 5, (size, 2), generator=rng) for size in (n, half))
        k = torch.cat([k, -k])                   # so the mean of all numbers is whole, too
        yield Case(*((part + torch.tensor([x, y])).float() for part in (q, k)), label=f"{n} x {2 * half}, tokens around ({x}, {y})")
    x = 3 * randn(rng, 64, 33)
    yield Case(x, x, label="64 tokens against themselves")

def _watched(f, q, k):
    """The result, the most axes that any array on the way to it has, and whether a matrix product was made."""
    axes, products = [0], []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                axes.append(result.dim())
            if function.__name__ in ("matmul", "__matmul__", "__rmatmul__", "mm", "addmm", "einsum", "linear", "tensordot", "inner"):
                products.append(function)
            return result

    with Watch():
        result = f(q, k)
    return result, max(axes), bool(products)

def _near_and_not_below_0(got, want, case):
    (found, axes, product), (wanted, their_axes, their_product) = got, want
    told = close(atol=1e-3, rtol=1e-4)(found, wanted, case)
    if told is None and bool((found < 0).any()) != bool((wanted < 0).any()):
        told = "has distances below 0"
    if told is None and (axes > 2) != (their_axes > 2):
        told = "is right, but an array with a number for every query, key and feature was made on the way"
    if told is None and product != their_product:
        told = "is right, but no matrix product was made on the way"
    return told

exercise(id="9.11", cases=far_cases, call=_watched, compare=_near_and_not_below_0)


def _at_two_scales(f, scale):
    return f(scale), f(2.0 * scale)

def _steepness(pair, case):
    """From the tokens at a scale s and at 2s: the largest entry by s, the growth of the Jacobian, and the Jacobian's norm."""
    if not (isinstance(pair, tuple) and all(isinstance(x, torch.Tensor) and x.shape == (3, 2) for x in pair)):
        return pair
    swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)

    def slope(x):
        x = x.double()

        def last(token):
            tokens = torch.cat([x[:2], token[None]])
            return torch.softmax(-(swap @ token - tokens).square().sum(-1), -1) @ tokens

        return torch.autograd.functional.jacobian(last, x[2]).norm()

    single, double = map(slope, pair)
    return float(pair[0].abs().max() / case.args[0]), float(double / single), float(single)

def _steep(got, want, case):
    """Against the solution any growth of 4 will do; against a usual mistake all three numbers must agree."""
    if len(got) != 3:
        return "is not three tokens of two numbers"
    (largest, growth, norm), (their_largest, their_growth, their_norm) = got, want
    if not abs(growth - their_growth) < 0.3:
        return f"does not grow as it should: doubling the scale multiplies the Jacobian by {growth:.3g}; 4 is wanted"
    if not largest < 1.001:
        return f"has an entry of {largest:.3g} times the scale; at most 1 is allowed"
    if their_growth < 3.7 and not (abs(largest - their_largest) < 0.01 and abs(norm - their_norm) < 0.01 * their_norm):
        return "differs from the expected tokens"

exercise(id="9.12",
    cases=lambda rng: (Case(s, label=f"scale {s:g} and {2 * s:g}") for s in (4.0, 8.0, 16.0, whole(rng, 20, 90) / 4)),
    call=_at_two_scales, measure=_steepness, compare=_steep)
