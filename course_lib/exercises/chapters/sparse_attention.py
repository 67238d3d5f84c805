"""The exercises of chapter 5."""
import inspect
import math

import torch

from course_lib.exercises import (Case, Launch, Misconception, close, exact, exercise, inout, kernel_exercise,
                                  out, randn, whole)


exercise(id="5.1", compare=exact(),
    cases=lambda rng: (Case(n, w, label=f"n = {n}, window = {w}") for n, w in ((4, 2), (1, 1), (6, 1), (5, 9), (9, 4), (whole(rng, 10, 40), whole(rng, 2, 9)))))

def classify_cases(rng):
    yield Case(torch.ones(3, 3, dtype=torch.bool).tril(), 2, label="causal, n = 3, blocks of 2")
    yield Case(torch.ones(8, 8, dtype=torch.bool).tril(), 4, label="causal, n = 8, blocks of 4")
    i, j = torch.arange(10)[:, None], torch.arange(10)[None]
    yield Case((j <= i) & (i - j < 3), 4, label="a window of 3, n = 10, blocks of 4")
    yield Case(torch.rand(7, 12, generator=rng) > 0.5, 3, label="random, 7 x 12, blocks of 3")

exercise(id="5.3", cases=classify_cases, compare=exact(dtype="kind"))


exercise(id="5.4", answer=0.5, tolerance=0.005, misconceptions=[
    Misconception("takes the diagonal block for all that is visited", value=1.0,
                  ask="Query 64 sees keys 1 to 64. In which blocks are they?"),
    Misconception("halves both blocks and then forgets that their halves add up", value=0.25,
                  ask="How many keys does each query see, and how many keys are in the blocks that its block of queries visits?"),
    Misconception("gives a percentage", value=50, ask="All pairs of a block are the share 1. What is half of them?"),
    Misconception("lets each query see the keys at its own place in both blocks", value=65 / 128,
                  ask="Query 0 of a block sees its own key and the last 63 of the block before. How many keys is that?"),
    Misconception("counts three visited blocks", value=1 / 3, ask="Can a window of 64 that ends in block 5 reach into block 3?")])


def tensors(*values):
    for x in values:
        yield from [x] if isinstance(x, torch.Tensor) else tensors(*x) if isinstance(x, (list, tuple)) else ()

class NeverRead(torch.overrides.TorchFunctionMode):
    """Refuses to take the NaN out of tokens that hold it by any way but to choose others: who cleans them has read them."""
    CHOOSE = ("__getitem__", "index_select", "gather", "take", "take_along_dim", "embedding", "masked_select", "split", "chunk", "unbind")

    def __init__(self, *tokens):
        super().__init__()
        self.held = [x for x in tokens if self.nan(x)]        # kept alive, so that no other tensor takes their place

    def nan(self, x):
        return x.is_floating_point() and bool(x.isnan().any())

    def __torch_function__(self, func, types, args=(), kwargs=None):
        places = {x.untyped_storage().data_ptr() for x in self.held}
        given = [x for x in tensors(args, list((kwargs or {}).values())) if x.untyped_storage().data_ptr() in places and self.nan(x)]
        made, name = func(*args, **(kwargs or {})), func.__name__
        if given and not (name in self.CHOOSE or name.startswith("new_") or name.endswith("_like")):
            fresh = [x for x in tensors(made) if x.numel() and x.untyped_storage().data_ptr() not in places]
            if not all(map(self.nan, [*given, *fresh])):
                raise ValueError("this reads tokens that are not to be read, and takes out the NaN that they hold")
        self.held += [x for x in tensors(made) if given and self.nan(x)]
        return made

def never_read(f, q, k, v, chosen):
    with NeverRead(k, v):
        return f(q, k, v, chosen)

def one_block_at_a_time(f, q, k, v, visits, block):
    """f(q, k, v, visits, block), refused exponentials of more scores than one block has, and blocks that are on no list."""
    take_exponentials = ("exp", "exp_", "exp2", "pow", "__pow__", "__rpow__", "softmax", "log_softmax", "softmin")

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            if func.__name__ in take_exponentials and isinstance(made, torch.Tensor) and made.numel() > block**2:
                raise ValueError("this takes the exponentials of several blocks at once, and the exercise asks for one block at a time")
            return made

    with Watch(), NeverRead(k, v):
        return f(q, k, v, visits, block)

def block_cases(rng):
    def draw(n, d, visits, block, size=1.0, label=""):
        q, k, v = (torch.randn(n, d, generator=rng) for _ in "qkv")
        seen = {c for columns in visits for c in columns}
        for c in set(range(math.ceil(n / block))) - seen:
            k[c * block:(c + 1) * block] = v[c * block:(c + 1) * block] = math.nan
        return Case(size * q, k, v, visits, block, label=label)

    yield draw(4, 2, [[0], [0, 1]], 2, label="4 tokens in blocks of 2")
    yield draw(12, 5, [[0], [], [2, 0]], 4, label="12 tokens in blocks of 4, a list that is empty, a block that nobody visits")
    yield draw(10, 3, [[2], [1, 0], [0, 2]], 4, label="10 tokens in blocks of 4: the last block holds 2")
    yield draw(33, 8, [[0], [1, 0], [2, 1, 0], [3, 0], [4, 3, 1]], 8, 60.0, label="scores of some hundred")
    yield draw(24, 6, [list(range(r, -1, -1)) for r in range(6)], 4, label="24 tokens in blocks of 4, up to six blocks on a list")
    q, k, v = (randn(rng, 8, 4) for _ in "qkv")
    yield Case(-250 * q.abs(), k.abs(), v, [[0], [1, 0]], 4, label="scores of some hundred, all below 0")

exercise(id="5.5", cases=block_cases, compare=close(atol=1e-4),
    call="\n".join(map(inspect.getsource, (tensors, NeverRead, one_block_at_a_time))))


def average_cases(rng):
    def case(n, d, visits, label):
        start, column = [0], []
        for row in visits:
            column += row
            start.append(len(column))
        return Case(randn(rng, n, d), torch.tensor(start, dtype=torch.int32), torch.tensor(column, dtype=torch.int32), label=label)

    yield case(4, 1, [[0]], "4 values, one block")
    yield case(64, 8, [[0], [0, 1]], "64 values, two blocks, causal")
    yield case(100, 16, [[0], [1], [0, 2], [3, 0]], "100 values, four blocks, the last one smaller")
    yield case(96, 4, [[], [2, 0], [1]], "a block that visits nothing")

def averages(v, start, column):
    rows = []
    for r in range(len(start) - 1):
        seen = [v[32 * c:32 * c + 32] for c in column[start[r]:start[r + 1]].tolist()]
        rows.append(torch.cat(seen).mean(0) if seen else torch.zeros(v.shape[1]))
    return torch.stack(rows)

kernel_exercise(id="5.6", cases=average_cases, compare=close(atol=1e-5), expect=averages,
    launch=lambda v, start, column: Launch(grid=len(start) - 1, block=32,
                                           args=[v, start, column, out((len(start) - 1, v.shape[1])), len(v), v.shape[1]]),
    # at least one sector per row of values; start and column cost a sector each time they are read
    traffic=lambda v, start, column: (len(column) * 32 * max(32, 4 * v.shape[1]) + 32 * (4 * len(column) + 4 * len(start))
                                      + max(32, 4 * v.shape[1]) * (len(start) - 1)))

kernel_exercise(id="5.7", compare=exact(),
    # The last counts begin at 7: to write a 1 is not to add one.
    cases=lambda rng: (Case(torch.full((n, n), count, dtype=torch.int32), w, s,
                            label=f"{n} blocks, a window of {w}, {s} sink blocks" + f", counts that begin at {count}" * (count > 0))
                       for n, w, s, count in ((3, 1, 1, 0), (6, 2, 1, 0), (40, 3, 2, 0), (5, 9, 2, 7),
                                          (whole(rng, 8, 20), whole(rng, 2, 5), whole(rng, 1, 3), whole(rng, 1, 99)))),
    launch=lambda visits, w, s: Launch(grid=math.ceil(len(visits) / 32), block=32, args=[inout(visits), len(visits), w, s]),
    expect=lambda visits, w, s: visits + _visits(len(visits), w, s))


def _visits(n, w, s):
    i, j = torch.arange(n)[:, None], torch.arange(n)[None]
    return ((j <= i) & ((i - j < w) | (j < s))).int()


def topk_cases(rng):
    for n, m, top, shift in ((1, 3, 2, 0), (4, 7, 3, 0), (3, 5, 5, 2), (6, 33, 1, 5)):
        yield Case(torch.randn(n, m, generator=rng) - shift, top, label=f"{n} x {m}, top {top}")
    scores = torch.randperm(12, generator=rng).reshape(2, 6) - 12_000.0
    yield Case(scores, 3, label="2 x 6, top 3, all scores below -10,000")

exercise(id="5.9", compare=close(atol=1e-6), cases=topk_cases,
    properties=[("each row sums to 1", lambda got, case: bool((got.sum(-1) - 1).abs().max() < 1e-4))])


exercise(id="5.10", compare=exact(),
    cases=lambda rng: (Case(torch.tensor(s), n, label=f"{n} tokens, documents from {s}")
                       for s, n in (([0, 2], 4), ([0], 3), ([0, 1, 5], 9), ([0, 3, 4, 7], 12),
                                    (sorted({0, whole(rng, 1, 9), whole(rng, 10, 24)}), whole(rng, 25, 40)))))


def chosen_cases(rng):
    def tokens(n, m, top, first=0):
        return torch.stack([first + torch.randperm(m - first, generator=rng)[:top] for _ in range(n)])

    def case(n, m, d, top, label, first=0):
        k, v, chosen = randn(rng, m, d), randn(rng, m, 3), tokens(n, m, top, first)
        never = torch.tensor([j not in chosen for j in range(m)])
        k[never], v[never] = math.nan, math.nan
        return Case(3 * randn(rng, n, d), k, v, chosen, label=label)

    yield Case(randn(rng, 1, 4), randn(rng, 3, 4), randn(rng, 3, 3), torch.tensor([[2, 0]]), label="2 of 3 tokens")
    few = tokens(3, 6, 4)
    few[0], few[1, 3:] = torch.tensor([0, -1, -1, -1]), -1
    yield Case(randn(rng, 3, 4), randn(rng, 6, 4), randn(rng, 6, 3), few, label="1, 3 and 4 of 6 tokens")
    none = tokens(2, 5, 2)
    none[0], none[1] = torch.tensor([3, 0]), -1
    k, v = randn(rng, 5, 4), randn(rng, 5, 3)
    k[1], v[1] = math.nan, math.nan
    yield Case(randn(rng, 2, 4), k.clone(), v.clone(), none, label="a query without a token")
    k[4], v[4] = math.nan, math.nan
    yield Case(randn(rng, 2, 4), k, v, torch.tensor([[0, 3, 2], [2, -1, 0]]), label="tokens 1 and 4 are chosen by nobody and hold NaN")
    yield case(4, 20, 8, 3, "4 queries, 3 of 20 tokens, the others hold NaN")
    yield case(7, 33, 16, 2, "7 queries, 2 of 33 tokens, the others hold NaN", first=1)

exercise(id="5.11", compare=close(atol=1e-5), cases=chosen_cases,
    call="\n".join(map(inspect.getsource, (tensors, NeverRead, never_read))))


exercise(id="5.12", cases=lambda rng: [
    Case(torch.tensor([[2.0], [4.0], [6.0], [8.0]]), torch.zeros(4, 1), 2, label="equal gates: means of two tokens"),
    Case(randn(rng, 12, 3), randn(rng, 12, 3), 4, label="12 tokens, entries of 4"),
    Case(randn(rng, 11, 2), 200 * randn(rng, 11, 2), 3, label="11 tokens, entries of 3: two are left over; large gates"),
    Case(randn(rng, 3, 2), randn(rng, 3, 2), 4, label="too few tokens for an entry")],
    compare=close(atol=1e-5))
