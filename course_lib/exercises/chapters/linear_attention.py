"""The exercises of chapter 4."""
import math

import torch

from course_lib.exercises import Case, Launch, Misconception, close, exercise, kernel_exercise, out, randn


def positive(rng, *shape):
    return randn(rng, *shape).abs() + 0.1

def watched(f, q, k, v, *size):
    """f(q, k, v, *size), refused a tensor of all queries by all keys, where nothing else has that shape; without chunks,
    refused to meet the keys once for every query; with chunks of a size, refused a step for every token, and a product
    over more tokens than a chunk has."""
    products = ("matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv", "dot", "inner", "einsum", "tensordot", "addmm", "baddbmm",
                "mul", "__mul__", "__rmul__", "sum")
    square, steps, met = (q.shape[-2], k.shape[-2]), 0, 0
    limit = max(len(q), 80 * math.ceil(len(q) / size[0])) if size else math.inf
    queries = range(size[0] + 1, len(q)) if size and len(q) >= 3 * size[0] else ()

    def lengths(*values):                                   # of all axes of the tensors in values
        for x in values:
            yield from x.shape if isinstance(x, torch.Tensor) else lengths(*x) if isinstance(x, (list, tuple)) else ()

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            nonlocal steps, met
            steps, met = steps + 1, met + (k.shape[-2] in lengths(args))
            if steps > limit:
                raise ValueError("this takes a step for every token, and the exercise asks for one loop, over chunks")
            made = func(*args, **(kwargs or {}))
            if isinstance(made, torch.Tensor) and made.shape[-2:] == square and min(square) > max(q.shape[-1], *size, 0):
                raise ValueError("this makes a matrix of all queries by all keys, which the exercise is to avoid")
            if not size and met > 50 + 10 * k.shape[-2]:
                raise ValueError("this goes through the keys for every query, and the exercise asks for one sum over them, before any query")
            if func.__name__ in products and any(n in queries for n in lengths(args)):
                raise ValueError("this goes through the earlier keys " + ("for every query of a chunk" if any(
                    n in queries for n in lengths(made)) else "again, in place of adding to the state that they made"))
            return made

    with Watch():
        return f(q, k, v, *size)

exercise(id="4.1", cases=lambda rng: [
    Case(positive(rng, 2, 2), positive(rng, 3, 2), randn(rng, 3, 1), label="2 queries, 3 keys, 2 features"),
    Case(positive(rng, 2, 5, 4), positive(rng, 2, 7, 4), randn(rng, 2, 7, 3), label="2 heads, 5 queries, 7 keys"),
    Case(positive(rng, 3, 9, 8), positive(rng, 3, 4, 8), randn(rng, 3, 4, 8), label="3 heads, more queries than keys"),
    Case(positive(rng, 400, 4), positive(rng, 7, 4), randn(rng, 7, 3), label="400 queries, 7 keys")],
    call=watched, compare=close(atol=1e-5),
    properties=[("each output is between the smallest and the largest value",
                 lambda got, case: bool((got.amax() <= case.args[2].amax() + 1e-4) & (got.amin() >= case.args[2].amin() - 1e-4)))])


exercise(id="4.9", cases=lambda rng: [
    Case(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 2.0]]), label="one vector, two directions"),
    Case(randn(rng, 5, 4) / 2, randn(rng, 8, 4), label="5 vectors of 4, 8 directions"),
    Case(randn(rng, 2, 3, 6) / 2, randn(rng, 3, 6), label="2 heads of 3 vectors, 3 directions")],
    compare=close(atol=1e-5),
    properties=[("every feature is positive", lambda got, case: bool((got > 0).all()))])


exercise(id="4.2", cases=lambda rng: [
    Case(torch.zeros(2, 1), torch.zeros(2), torch.tensor([1.0, 2.0]), torch.tensor([3.0, 1.0]), torch.tensor([4.0]),
         label="the first token, 2 features"),
    Case(randn(rng, 4, 3), positive(rng, 4), positive(rng, 4), positive(rng, 4), randn(rng, 3), label="4 features, values of 3"),
    Case(randn(rng, 3, 8), positive(rng, 3), positive(rng, 3), positive(rng, 3), randn(rng, 8), label="3 features, values of 8")],
    compare=close(atol=1e-5))

kernel_exercise(id="4.7", cases=lambda rng: [
        Case(positive(rng, 3, 2), positive(rng, 3, 2), randn(rng, 3, 1), label="3 tokens, 2 features, values of 1"),
        Case(positive(rng, 17, 8), positive(rng, 17, 8), randn(rng, 17, 8), label="17 tokens, 8 features, values of 8"),
        Case(positive(rng, 20, 16), positive(rng, 20, 16), randn(rng, 20, 33), label="20 tokens, 16 features, values of 33"),
        Case(positive(rng, 9, 40), positive(rng, 9, 40), randn(rng, 9, 24), label="9 tokens, 40 features, values of 24")],
    compare=close(atol=1e-3, rtol=1e-4),
    launch=lambda q, k, v: Launch(grid=1, block=32 * math.ceil(v.shape[1] / 32), shared=4 * (q.shape[1] * (v.shape[1] + 2)),
                                  args=[q, k, v, out(v.shape), q.shape[0], q.shape[1], v.shape[1]]),
    expect=lambda q, k, v: (q @ k.T).tril() @ v,
    traffic=lambda q, k, v: sum(32 * math.ceil(4 * width / 32 + (4 * width % 32 > 0)) * q.shape[0]
                                for width in (q.shape[1], q.shape[1], v.shape[1], v.shape[1])))

kernel_exercise(id="4.8", cases=lambda rng: [
    Case(positive(rng, 3, 2), randn(rng, 3, 3), label="3 tokens, 2 features, values of 3"),
    Case(positive(rng, 20, 7), randn(rng, 20, 5), label="20 tokens, 7 features, values of 5"),
    Case(positive(rng, 16, 16), randn(rng, 16, 16), label="16 tokens, 16 features, values of 16")],
    compare=close(atol=1e-4),
    launch=lambda k, v: Launch(grid=1, block=64, shared=4 * k.shape[1] * v.shape[1],
                               args=[k, v, out((k.shape[1], v.shape[1])), k.shape[0], k.shape[1], v.shape[1]]),
    expect=lambda k, v: k.T @ v)

exercise(id="4.3", cases=lambda rng: [
    Case(positive(rng, 4, 2), positive(rng, 4, 2), randn(rng, 4, 1), 2, label="4 tokens in chunks of 2"),
    Case(positive(rng, 7, 3), positive(rng, 7, 3), randn(rng, 7, 2), 3, label="7 tokens in chunks of 3, the last of 1"),
    Case(positive(rng, 33, 5), positive(rng, 33, 5), randn(rng, 33, 4), 8, label="33 tokens in chunks of 8"),
    Case(positive(rng, 5, 4), positive(rng, 5, 4), randn(rng, 5, 3), 64, label="fewer tokens than a chunk"),
    Case(positive(rng, 300, 4), positive(rng, 300, 4), randn(rng, 300, 3), 100, label="300 tokens in 3 chunks")],
    call=watched, compare=close(atol=1e-4))


def delta_cases(rng):
    unit = torch.nn.functional.normalize
    yield Case(torch.zeros(2, 1), torch.tensor([1.0, 0.0]), torch.tensor([3.0]), 1.0, 1.0, label="an empty state")
    yield Case(randn(rng, 4, 3), unit(randn(rng, 4), dim=0), randn(rng, 3), 1.0, 1.0, label="beta 1: overwrite")
    yield Case(randn(rng, 4, 3), unit(randn(rng, 4), dim=0), randn(rng, 3), 0.4, 1.0, label="beta 0.4: part of the way")
    yield Case(randn(rng, 3, 5), unit(randn(rng, 3), dim=0), randn(rng, 5), 0.7, 0.8, label="beta 0.7, decay 0.8")
    yield Case(randn(rng, 3, 2), 0.5 * unit(randn(rng, 3), dim=0), randn(rng, 2), 1.0, 1.0, label="a key of length 0.5")

exercise(id="4.6", cases=delta_cases, compare=close(atol=1e-5))


exercise(id="4.11", answer=34, tolerance=0.5, misconceptions=[
    Misconception("lets it fade in a straight line", value=25,
                  ask="After one token 0.98 is left, after two 0.98 times 0.98. Is 0.02 lost at every token?"),
    Misconception("gives the mean memory 1 / (1 - a)", value=50,
                  ask="At 1 / (1 - a) tokens the fraction 1/e is left. Is that a half?"),
    Misconception("rounds up, to the first token after which less than half is left", value=35,
                  ask="After 34 tokens 0.503 is left, after 35 tokens 0.493. Which of them is nearer to a half?"),
    Misconception("takes a logarithm to base 2 for the natural one", value=math.log(2) / -math.log2(0.98),
                  ask="Solve 0.98^t = 1/2: is the logarithm on both sides one and the same?")])


def gate_cases(rng):
    half = torch.full((3, 1), 0.5)
    yield Case(torch.ones(3, 1), torch.ones(3, 1), half, label="one channel that halves at every token")
    yield Case(randn(rng, 5, 3), randn(rng, 5, 3), 0.9 + 0.1 * torch.rand(5, 3, generator=rng), label="gates near 1")
    yield Case(randn(rng, 4, 1), randn(rng, 4, 1), torch.full((4, 1), 1e-20), label="4 tokens, a gate of 1e-20")
    yield Case(randn(rng, 64, 4), randn(rng, 64, 4), torch.tensor([0.02, 0.5, 0.99, 1.0]).expand(64, 4),
               label="a chunk of 64, one gate of 0.02")
    yield Case(randn(rng, 33, 2), randn(rng, 33, 2), 1e-4 ** torch.rand(33, 2, generator=rng), label="gates down to 0.0001")
    yield Case(randn(rng, 64, 2), randn(rng, 64, 2), torch.tensor([1e-9, 0.9]).expand(64, 2),
               label="a chunk of 64, one gate of 1e-9: the product is 0 in float64 too")

exercise(id="4.12", cases=gate_cases, compare=close(atol=1e-4))
