"""Four exercises of an instructor's own, for the grader's tests: no chapter is needed to mark them."""
import math

import torch

from course_lib.exercises import Case, Launch, Misconception, close, exercise, kernel_exercise, out


def rows(rng):
    for n, d in [(2, 3), (1, 1), (5, 8), (7, 33)]:
        yield Case(torch.randn(n, d, generator=rng) * 4, label=f"{n} rows of {d}")


def heads(rng):
    for n, m, d in [(2, 3, 4), (1, 1, 1), (5, 7, 8)]:
        yield Case(*(torch.randn(1, 2, length, d, generator=rng) for length in (n, m, m)),
                   label=f"{n} queries, {m} keys")


exercise(id="1.91", title="Rows that sum to one", kind="write", points=2, minutes=5, difficulty=2,
         card="Write `normalise(x)`: the softmax of each row.", given={"torch": torch, "math": math},
         stub="def normalise(x):\n    raise NotImplementedError\n", solution="def normalise(x):\n    e = (x "
         "- x.amax(-1, keepdim=True)).exp()\n    return e / e.sum(-1, keepdim=True)\n", cases=rows,
         compare=close(atol=1e-5), forbid=("softmax", "log_softmax"), limit=1,
         properties=[("each row sums to 1", lambda got, case: (got.sum(-1) - 1).abs().max() < 1e-4)],
         misconceptions=[Misconception("sums over the wrong axis",
                                       change=("sum(-1, keepdim=True)", "sum(0, keepdim=True)"),
                                       ask="Which entries should add up to 1?"),
                         Misconception("forgets the exponential", code="def normalise(x):\n    return x / "
                                       "x.sum(-1, keepdim=True)\n", ask="Can a weight be negative?")],
         hints=["exp", "Divide by a sum."])

exercise(id="1.92", title="Attention by hand", kind="write", points=3, minutes=10, difficulty=3,
         card="Write `attend(q, k, v)`.", given={"torch": torch, "math": math},
         stub="def attend(q, k, v):\n    raise NotImplementedError\n",
         solution="def attend(q, k, v):\n"
                  "    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])\n"
                  "    return torch.softmax(scores, -1) @ v\n", cases=heads,
         compare=close(atol=1e-5), forbid=("scaled_dot_product_attention",), limit=1,
         misconceptions=[Misconception("divides by d, not by its root",
                                       change=("math.sqrt(q.shape[-1])", "q.shape[-1]"),
                                       ask="What is the variance of a sum of d products?"),
                         Misconception("does not divide at all", change=(" / math.sqrt(q.shape[-1])", ""),
                                       ask="How large are the scores?")],
         hints=["Scores first.", "Then weights."])

exercise(id="1.93", title="How many scores", kind="predict", points=1, minutes=2, difficulty=1,
         card="How many scores do 16 queries and 16 keys make?", name="scores", answer=256,
         misconceptions=[Misconception("adds the lengths", value=32, ask="Does each query meet each key?"),
                         Misconception("counts one length", value=16,
                                       ask="Against how many keys is each query scored?")],
         hints=["Draw the table.", "Rows times columns."])


def vectors(rng):
    for n in (1, 31, 100):
        yield Case(torch.randn(n, generator=rng), label=f"{n} numbers")


TWICE = """__global__ void twice(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i];
}
"""

kernel_exercise(id="1.94", title="Twice", points=2, minutes=5, difficulty=1, card="Write `twice`.",
                name="twice", stub="__global__ void twice(const float* x, float* out, int n) {\n"
                                   "    // your code\n"
                                   "}\n", solution=TWICE,
                misconceptions=[Misconception("writes past the end", change=("if (i < n) ", ""),
                                              ask="How many threads are there?"),
                                Misconception("adds two", change=("2 * x[i]", "2 + x[i]"),
                                              ask="What is twice 0?")],
                hints=["One thread per element.", "Guard the end."], cases=vectors,
                launch=lambda x: Launch(grid=(len(x) + 31) // 32, block=32, args=[x, out(x.shape), len(x)]),
                expect=lambda x: 2 * x, traffic=lambda x: 8 * len(x), limit=4)
