"""The exercises of chapter 1."""
import math

import torch

from einops import rearrange
from torch.nn import functional as F

from course_lib.exercises import Case, Launch, close, exercise, kernel_exercise, out, randn


def project_cases(rng):
    words = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 0]])
    yield Case(words, *(randn(rng, 4, 2) for _ in "qkv"), label="3 tokens of width 4, projected to width 2")
    yield Case(randn(rng, 5, 4), *(randn(rng, 4, 4) for _ in "qkv"), label="5 tokens, as wide after as before")
    yield Case(randn(rng, 2, 7, 6), *(randn(rng, 6, 3) for _ in "qkv"), label="a batch of 2 sequences of 7 tokens")

exercise(id="1.1", cases=project_cases, compare=close(atol=1e-5))


exercise(id="1.2", cases=lambda rng: [
    Case(torch.tensor([[0.0, 1.0, 2.0], [3.0, 3.0, 3.0]]), label="2 rows of 3"),
    Case(randn(rng, 3, 5), 0, label="3 x 5, along dim 0"),
    Case(3 * randn(rng, 4, 7, 33), label="4 x 7 rows of 33"),
    Case(torch.tensor([[1000.0, 1001.0], [-2.0, 0.5]]), label="scores near 1000"),
    Case(torch.tensor([[0.0, 1.0], [-400.0, -401.0]]), label="one row far below the other"),
    Case(torch.tensor([[-math.inf, 0.0, 1.0]]), label="a score of -inf"),
    Case(randn(rng, 2, 3).double(), label="2 rows of 3, in float64")], compare=close(atol=1e-6),
    properties=[("entries add up to 1 along dim",
                 lambda got, case: bool(((got.sum(case.args[1] if len(case.args) > 1 else -1) - 1).abs() < 1e-4).all()))])


def attention_cases(rng):
    yield Case(randn(rng, 1, 1, 2, 4), randn(rng, 1, 1, 3, 4), randn(rng, 1, 1, 3, 2), label="2 queries, 3 keys")
    yield Case(*(randn(rng, 2, 3, n, 16) for n in (5, 7, 7)), label="a batch of 2, 3 heads")
    causal = torch.ones(3, 3, dtype=torch.bool).tril()
    yield Case(*(randn(rng, 1, 1, 3, 4) for _ in "qkv"), mask=causal, label="a causal mask")
    padding = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)[:, None, None, :]
    yield Case(*(randn(rng, 2, 1, 4, 8) for _ in "qkv"), mask=padding, label="padding of shape (2, 1, 1, 4)")
    some = torch.tensor([[1, 1, 0], [0, 0, 0], [1, 0, 1]], dtype=torch.bool)
    yield Case(*(randn(rng, 1, 1, 3, 4) for _ in "qkv"), mask=some, label="a query with nothing to attend to")
    q, k = torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 3, 4)      # scores of 100, 101, 300 and of -100, -101, -300
    q[0, 0, :, 0], k[0, 0, :, 0] = torch.tensor([2.0, -2.0]), torch.tensor([100.0, 101.0, 300.0])
    last_hidden = torch.tensor([True, True, False])
    yield Case(q, k, torch.eye(3)[None, None], mask=last_hidden, label="scores of 100 and of -100")
    yield Case(-400 * q[:, :, :1], k, torch.eye(3)[None, None], mask=last_hidden, label="scores below -10,000")

exercise(id="1.5", cases=attention_cases, compare=close(atol=1e-5))


def causal_cases(rng):
    yield Case(3, 3, label="3 queries, 3 keys")
    drawn = torch.randint(2, 40, (2, 2), generator=rng).tolist()
    for n, m in [(2, 4), (1, 5), (4, 2), (7, 7), (3, 33), *drawn]:
        yield Case(n, m, label=f"{n} queries, {m} keys")

exercise(id="1.6", cases=causal_cases, compare=close())


exercise(id="1.7", cases=lambda rng: [
    Case(torch.arange(12.0).view(1, 2, 6), 2, label="1 sequence of 2 tokens, 2 heads of 3 features"),
    Case(randn(rng, 2, 3, 8), 2, label="2 sequences of 3 tokens, 2 heads of 4 features"),
    Case(randn(rng, 3, 7, 12), 4, label="3 sequences of 7 tokens, 4 heads of 3 features"),
    Case(randn(rng, 1, 5, 6), 1, label="one head")], compare=close(atol=0, rtol=0),
    properties=[("head 0 of token 0 has the first features of token 0",
                 lambda got, case: torch.equal(got[0, 0, 0], case.args[0][0, 0, :got.shape[-1]]))])


def layer_cases(rng):
    def weights(width):
        return [width ** -0.5 * randn(rng, width, width) for _ in range(4)]

    yield Case(randn(rng, 1, 2, 4), *weights(4), 2, label="2 tokens of width 4, 2 heads")
    yield Case(randn(rng, 2, 5, 12), *weights(12), 3, label="2 sequences of 5 tokens, 3 heads of width 4")
    yield Case(randn(rng, 3, 7, 8), *weights(8), 1, label="one head")
    yield Case(randn(rng, 1, 33, 16), *weights(16), 4, label="33 tokens, 4 heads of width 4")

exercise(id="1.8", given={"torch": torch, "F": F, "rearrange": rearrange, "math": math}, cases=layer_cases,
    compare=close(atol=1e-5))

def row_cases(rng):
    yield Case(torch.tensor([[0.0, 2.0, 1.0]]), label="1 row of 3")
    for rows, columns in [(2, 1), (2, 3), (33, 31), (63, 64), (100, 33)]:
        yield Case(3 * randn(rng, rows, columns), label=f"{rows} rows of {columns}")
    yield Case(torch.tensor([[1000.0, 1001.0, 999.0], [-900.0, -901.0, -1000.0]]), label="scores near 1000 and -900")
    yield Case(torch.tensor([[-3e38, -3e38], [0.0, -3e38]]), label="a row of nothing but -3e38")

def launch_rows(x):
    rows, columns = x.shape
    return Launch(grid=-(-rows // 32), block=32, args=[x, out(x.shape), rows, columns])

kernel_exercise(id="1.10", cases=row_cases, launch=launch_rows, expect=lambda x: torch.softmax(x, -1),
    compare=close(atol=1e-5),
    # A third reading of rows of 8 entries or more costs a third more, which is over the slack of a quarter.
    traffic=lambda x: sum(32 * 3 * x.shape[1] for _ in range(x.shape[0])))

def block_cases(rng):
    for rows, columns in [(1, 64), (1, 1), (3, 100), (2, 200)]:
        yield Case(3 * randn(rng, rows, columns), label=f"{rows} rows of {columns}")

kernel_exercise(id="1.11", cases=block_cases,
    launch=lambda x: Launch(grid=x.shape[0], block=64, args=[x, out(x.shape), x.shape[1]]),
    expect=lambda x: torch.softmax(x, -1), compare=close(atol=1e-5))


exercise(id="1.12", cases=lambda rng: [
    Case(randn(rng, 1, 2, 3, 4), randn(rng, 1, 2, 3, 4), 1, "abc", label="3 characters, 2 heads, head 1"),
    Case(randn(rng, 1, 4, 8, 16), randn(rng, 1, 4, 8, 16), 0, "to sleep", label="8 characters, 4 heads, head 0"),
    Case(randn(rng, 1, 4, 11, 16), randn(rng, 1, 4, 11, 16), 3, "O, my lord!", label="11 characters, head 3")],
    compare=close(atol=1e-5),
    properties=[("nothing above the diagonal", lambda got, case: not isinstance(got, dict)
                 or bool((got["weights"].triu(1) == 0).all()))])


def largest_made(f, p, g):
    """The result, and how many entries the largest tensor has that was made on the way."""
    from course_lib.exercises.running.watch import OperationMode

    class Watch(OperationMode):
        largest = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                self.largest = max(self.largest, result.numel())
            return result

    with Watch() as watch:
        result = f(p, g)
    return {"gradient": result, "entries of the largest tensor": watch.largest}

def same_without_the_matrix(got, want, case):
    made, enough = (result["entries of the largest tensor"] for result in (got, want))
    return close(atol=1e-5)(got["gradient"], want["gradient"]) or (
        f"is right, but a tensor with {made} entries was made; {enough} are enough" if made > enough else None)

def backward_cases(rng):
    for shape in [(1, 3), (4, 5), (2, 3, 33)]:
        p = torch.softmax(2 * randn(rng, *shape), -1)
        yield Case(p, randn(rng, *shape), label=f"shape {shape}")

exercise(id="1.13", call=largest_made, cases=backward_cases, compare=same_without_the_matrix,
    properties=[("the entries of a row add up to 0: a shift of the scores changes nothing",
                 lambda got, case: bool((got["gradient"].sum(-1).abs() < 1e-4).all()))])


exercise(id="1.14", cases=lambda rng: [
    Case(torch.tensor([[0.0, 0.0]]), 0.0, label="two equal scores and a sink of the same height"),
    Case(2 * randn(rng, 3, 5), 1.0, label="3 rows of 5"),
    Case(randn(rng, 2, 4, 33), -2.0, label="2 x 4 rows of 33, a low sink"),
    Case(torch.tensor([[900.0, 899.0]]), 1.0, label="scores near 900"),
    Case(torch.tensor([[-300.0, -301.0]]), 0.0, label="a sink far above all scores"),
    Case(torch.tensor([[0.0, 1.0], [-400.0, -401.0]]), -500.0, label="one row far below the other, the sink lower still"),
    Case(torch.tensor([[0.0, -math.inf], [-math.inf, -math.inf]]), 0.5, label="a row with nothing to see")],
    compare=close(atol=1e-6))
