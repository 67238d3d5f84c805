"""The exercises of chapter 10."""
import math
from collections import Counter

import torch

from course_lib.exercises import Case, Launch, Misconception, close, exact, exercise, inout, kernel_exercise, out, randn


def pair_cases(rng):
    yield Case(["ab", "abc"], [1, 3], label="two words")
    yield Case(["aaa", "bc"], [2, 3], label="a letter three times in a word")
    yield Case(["abab", "cD", "Cd"], [1, 3, 2], label="a pair twice in a word, and capitals")
    yield Case(["cd", "ab", "xcd"], [1, 2, 1], label="two pairs equally often")
    yield Case(["axb", "ayb", "cd"], [1, 1, 1], label="two letters that are no neighbours")
    yield Case(["the", "then", "hen", "en"], [5, 2, 4, 6], label="pieces of words")
    yield Case(["hand", "and", "an", "na"], [1, 1, 1, 9], label="an order that matters")
    for n, letters in ((5, "abc"), (12, "abcde"), (30, "aeinrst")):
        drawn = ["".join(letters[i] for i in torch.randint(len(letters), (length,), generator=rng).tolist())
                 for length in torch.randint(1, 8, (n,), generator=rng).tolist()]
        words = list(dict.fromkeys(drawn)) + ["ab"]
        yield Case(words, torch.randint(1, 6, (len(words),), generator=rng).tolist(), label=f"{len(words)} drawn words")

exercise(id="10.1", given={"Counter": Counter}, cases=pair_cases, compare=exact())


exercise(id="10.2", answer=lambda: math.log(65), tolerance=0.02, misconceptions=[
    Misconception("measures in bits", value=lambda: math.log2(65), ask="Which logarithm gives nats?"),
    Misconception("forgets the minus", value=lambda: -math.log(65), ask="A probability is at most 1. Can -ln p be below 0?"),
    Misconception("gives the probability, not its logarithm", value=lambda: 1 / 65,
                  ask="The loss is minus the logarithm of this number. What is that?"),
    Misconception("takes the logarithm to the base 10", value=lambda: math.log10(65), ask="Which logarithm gives nats?")])


def schedule_cases(rng):
    for step, steps, peak, warmup, label in ((0, 100, 1.0, 10, "the first step"), (9, 100, 1.0, 10, "the last of the warm-up"),
                                             (10, 100, 1.0, 10, "the peak"), (55, 100, 1.0, 10, "half way down"), (100, 100, 2.0, 10, "the end"),
                                             (3, 50, 2e-3, 0, "no warm-up"), (700, 1000, 3e-4, 100, "a long run")):
        yield Case(step, steps, peak, warmup, 0.1, label=label)
    for _ in range(4):
        steps = int(torch.randint(20, 2000, (), generator=rng))
        warmup, step = (int(steps * share * x) for share, x in zip((0.3, 1.0), torch.rand(2, generator=rng).tolist()))
        peak, floor = (1e-3 + torch.rand(2, generator=rng).double() / 2).tolist()
        yield Case(step, steps, peak, warmup, floor, label=f"step {step} of {steps}, {warmup} of warm-up, floor {floor:.2f}")

exercise(id="10.3", cases=schedule_cases, compare=close(atol=1e-9, rtol=1e-6))


def training_cases(rng):
    for steps, parts, rows, d, label in ((1, 1, 2, 1, "one step, one part"), (2, 1, 2, 1, "two steps"), (1, 2, 4, 2, "a batch in two parts"),
                                         (5, 2, 6, 3, "five steps, two parts each"), (4, 3, 9, 5, "four steps, three parts each")):
        x, true = randn(rng, steps, rows, d), randn(rng, d)
        yield Case(randn(rng, d), x, x @ true + 0.1 * randn(rng, steps, rows), 0.05, parts, label=label)

exercise(id="10.4", cases=training_cases, compare=close(atol=1e-5))


exercise(id="10.6", cases=lambda rng: [
    Case(torch.eye(4)[None].roll(1, -2).tril(), 2, label="one head, two tokens twice"),
    Case(torch.softmax(2 * randn(rng, 1, 6, 6), -1), 3, label="one head, three tokens twice"),
    Case(torch.softmax(2 * randn(rng, 3, 10, 10), -1).tril(), 5, label="three heads, five tokens twice"),
    Case(torch.softmax(3 * randn(rng, 4, 32, 32), -1), 16, label="four heads, sixteen tokens twice")],
    compare=close(atol=1e-6))


def _nucleus_like(got, want, case):
    """Of tokens equally likely at the edge, any may be kept, but only as many as are needed."""
    told = close(atol=1e-6)(got, want, case)
    if told and isinstance(got, torch.Tensor) and got.shape == want.shape and got.is_floating_point():
        probabilities = case.args[0]
        of_input = torch.where(got > 0, probabilities, 0)
        if not close(atol=1e-6)(got, of_input / of_input.sum()) and not close(atol=1e-6)(got.sort().values, want.sort().values):
            return None
    return told

exercise(id="10.7", cases=lambda rng: [
    Case(torch.tensor([0.2, 0.5, 0.3]), 0.6, label="three tokens, p = 0.6"),
    Case(torch.tensor([0.25, 0.125, 0.5, 0.125]), 0.75, label="a sum that is exactly p"),
    Case(torch.tensor([0.1, 0.2, 0.6, 0.1]), 0.5, label="one token is enough"),
    Case(torch.tensor([0.25, 0.05, 0.4, 0.3]), 0.9, label="four tokens, p = 0.9"),
    Case(torch.tensor([0.125, 0.25, 0.5, 0.125]), 0.8, label="the last token needed is as likely as another"),
    Case(torch.softmax(randn(rng, 30), -1), 0.5, label="thirty tokens, p = 0.5"),
    Case(torch.softmax(2 * randn(rng, 12), -1), 1.0, label="p = 1 keeps all")], compare=_nucleus_like,
    properties=[("it sums to 1", lambda got, case: abs(float(got.sum()) - 1) < 1e-5)])


def norm_cases(rng):
    for rows, d in ((1, 1), (1, 33), (3, 31), (2, 128), (17, 100), (40, 256)):
        yield Case(randn(rng, rows, d), 2 * randn(rng, rows, d), 1 + 0.5 * randn(rng, d), 1e-3, label=f"{rows} x {d}")
    yield Case(torch.zeros(2, 8), 1e-3 * torch.ones(2, 8), torch.ones(8), 1e-3, label="rows so small that eps matters")

def _norm_expect(x, delta, weight, eps):
    stream = x + delta
    return [stream, stream * torch.rsqrt(stream.square().mean(-1, keepdim=True) + eps) * weight]

def _norm_traffic(x, delta, weight, eps):
    """x and delta read, x and out written, once each, in sectors of 32 bytes per request of a warp; the weight once."""
    rows, d = x.shape
    starts = [4 * (row * d + c) for row in range(rows) for c in range(0, d, 32)]
    ends = [4 * (row * d + min(c + 32, d)) for row in range(rows) for c in range(0, d, 32)]
    sectors = sum((end - 1) // 32 - start // 32 + 1 for start, end in zip(starts, ends))
    return 32 * (4 * sectors + -(-d // 8))

kernel_exercise(id="10.8", cases=norm_cases, compare=close(atol=1e-4, rtol=1e-4),
    launch=lambda x, delta, weight, eps: Launch(
        grid=len(x), block=128, shared=4 * x.shape[1],
        args=[inout(x), delta, weight, out(x.shape), x.shape[1], eps]), expect=_norm_expect,
    traffic=_norm_traffic)


def chain_cases(rng):
    yield Case(torch.tensor([[0.5, 0.5], [0.5, 0.5]], dtype=torch.float64), label="a fair coin")
    yield Case(torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64), label="a and b in turn")
    yield Case(torch.tensor([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]], dtype=torch.float64), label="a, then b or c, in turn")
    yield Case(torch.tensor([[0.9, 0.1], [0.5, 0.5]], dtype=torch.float64), label="two words, unequally often")
    yield Case(torch.tensor([[0.5, 0.5], [0.1, 0.9]], dtype=torch.float64), label="the same two words, numbered the other way")
    for n in (3, 6):
        p = torch.softmax(2 * torch.randn(n, n, generator=rng, dtype=torch.float64), -1)
        yield Case(p, label=f"{n} words")

exercise(id="10.10", cases=chain_cases, compare=close(atol=1e-6),
    measure=lambda got, case: got.item() if isinstance(got, torch.Tensor) else got)


exercise(id="10.11", cases=lambda rng: [
    Case(torch.tensor([2.0, -1.0, 0.5]), torch.tensor([1]), 2.0, label="a seen token with a negative logit"),
    Case(torch.tensor([2.0, -1.0, 0.5]), torch.tensor([0, 0, 1]), 1.5, label="a token that was seen twice"),
    Case(torch.tensor([2.0, -1.0, 0.5]), torch.tensor([0, 2]), 2.0, label="all that were seen have positive logits"),
    Case(randn(rng, 8), torch.tensor([1, 2, 5]), 1.3, label="eight tokens, three seen"),
    Case(randn(rng, 20), torch.randint(20, (30,), generator=rng), 1.2, label="twenty tokens, many seen")],
    compare=close(atol=1e-6),
    properties=[("no token that was seen has become likelier", lambda got, case: bool((got <= case.args[0] + 1e-6).all()))])
