"""The exercises of chapter 8."""
import math

import torch

from course_lib.exercises import Case, Launch, close, exact, exercise, kernel_exercise, out, randn


def randint(rng, low, high):
    return int(torch.randint(low, high, (), generator=rng))


def _page_cases(rng):
    for n_blocks, size, d, table, length in [
            (3, 2, 1, [2, 0], 3), (6, 4, 3, [5, 1, 4], 12), (6, 4, 3, [3, 0, 2, -1], 9), (8, 1, 2, [7, 3, 5, 0], 4),
            (9, 16, 8, [8, 2, 0, 6, 4], 65), (4, 3, 2, [1, -1], 1), (6, 4, 3, [3, 5, 999], 7),
            (6, 4, 3, [2, 0, 999], 8)]:
        pool = torch.full((n_blocks, size, d), math.nan)
        for i in range(length):
            pool[table[i // size], i % size] = randn(rng, d)
        yield Case(pool, table, length, label=f"{length} positions in pages of {size}, table {table}")

exercise(id="8.2", cases=_page_cases, compare=close(atol=0))


def chain(parent, tokens):
    """A number for these tokens after the prefix that `parent` stands for. After nothing, parent is 0."""
    return hash((parent, tuple(tokens)))

def _prefix_cases(rng):
    def cache(size, *prompts):
        """{chained hash: block} of the whole blocks of prompts; blocks numbered as they come."""
        cached = {}
        for tokens in prompts:
            parent = 0
            for i in range(len(tokens) // size):
                parent = chain(parent, tokens[i * size:(i + 1) * size])
                cached.setdefault(parent, len(cached))
        return cached

    yield Case([1, 2, 3, 4, 5], cache(2, [1, 2, 3, 4]), 2, label="two pages known, one token more")
    yield Case([1, 2, 3, 4], cache(2, [1, 2, 3, 4]), 2, label="the whole prompt is known")
    yield Case([1, 2, 3, 4, 5], cache(2, [9, 9, 3, 4], [1, 2]), 2, label="a page known after another beginning")
    evicted = cache(2, [1, 2, 3, 4, 5, 6])
    del evicted[chain(chain(0, [1, 2]), [3, 4])]
    yield Case([1, 2, 3, 4, 5, 6, 7], evicted, 2, label="the second of three pages was evicted")
    yield Case([1, 2, 1, 2, 1, 2, 7], cache(2, [5, 6], [1, 2, 1, 2, 1, 2]), 2, label="the same page three times")
    yield Case([4, 5], {}, 4, label="nothing is known")
    base = torch.randint(0, 50, (40,), generator=rng).tolist()
    yield Case(base[:21] + [60, 61, 62], cache(4, [7] * 9, base), 4, label="24 tokens, of which 21 are an old prompt's")
    yield Case(base[:33], cache(16, base[:16], base), 16, label="33 tokens in pages of 16")

exercise(id="8.3", given={"chain": chain}, cases=_prefix_cases, compare=exact())


def _plan_cases(rng):
    yield Case([1, 1], [6], 5, 4, label="two that generate, a prompt that does not fit whole")
    yield Case([1, 1, 1], [4, 9], 6, 4, label="three that generate, one place")
    yield Case([1, 20], [3], 8, 8, label="a prompt half read")
    yield Case([], [3, 2, 50, 7], 10, 8, label="none runs yet")
    yield Case([1, 1, 1, 1], [2], 3, 8, label="a budget below the number that run")
    yield Case([1, 1], [5], 16, 2, label="no place")
    yield Case([1, 1, 1], [5], 16, 2, label="more run than now may")
    yield Case([1], [], 4, 2, label="none waits")
    yield Case([1, 4], [2, 2, 2], 5, 9, label="a budget that is just enough for those that run")
    running = [1] * randint(rng, 2, 6) + [randint(rng, 2, 9)]
    yield Case(running, [randint(rng, 1, 30) for _ in range(6)], 40, 10, label=f"{len(running)} run, six wait")

def _plan_call(f, running, waiting, token_budget, max_running):
    """f on copies: a plan may use up its lists."""
    return f(list(running), list(waiting), token_budget, max_running)

exercise(id="8.4", cases=_plan_cases, call=_plan_call, compare=exact())

def _pool(rng, length, d, size):
    """Blocks of one sequence among others: (keys, table), the table with an entry more than it needs."""
    n = -(-length // size)
    table = torch.randperm(n + 3, generator=rng)[:n].int()
    return randn(rng, n + 3, size, d), torch.cat([table, torch.tensor([-1], dtype=torch.int32)])

def _score_cases(rng):
    for length, d, size in [(3, 4, 2), (40, 32, 16), (65, 64, 16), (128, 64, 32), (30, 100, 8), (50, 128, 16)]:
        yield Case(randn(rng, d), *_pool(rng, length, d, size), length, 1 / math.sqrt(d),
                   label=f"{length} positions in pages of {size}, d = {d}")

def _in_order(pool, table, length):
    return pool[table[:-(-length // pool.shape[1])].long()].flatten(0, 1)[:length]

kernel_exercise(id="8.5", cases=_score_cases, launch=lambda q, keys, table, length, scale: Launch(
    grid=2, block=64, args=[q, keys, table, out((length,)), length, len(q), keys.shape[1], scale]),
    expect=lambda q, keys, table, length, scale: scale * _in_order(keys, table, length) @ q,
    compare=close(atol=1e-5),
    traffic=lambda q, keys, table, length, scale: 4 * length * len(q) + 64 * length + 4 * (4 * len(q) + 32),
    stored=lambda q, keys, table, length, scale: 4 * length)

def _attend_cases(rng):
    for length, d, size in [(5, 64, 4), (5, 32, 4), (40, 64, 16), (20, 64, 16), (100, 128, 16), (200, 96, 8)]:
        keys, table = _pool(rng, length, d, size)
        yield Case(randn(rng, d), keys, randn(rng, *keys.shape), table, length, 1 / math.sqrt(d),
                   label=f"{length} positions, d = {d}: {d // 32} warp{'s' * (d > 32)}")
    keys, table = _pool(rng, 60, 64, 4)
    for i in range(60):                                     # later keys fit the query better and better
        keys[table[i // 4], i % 4] = i / 8
    yield Case(torch.full((64,), 4.0), keys, randn(rng, *keys.shape), table, 60, 0.5,
               label="60 positions, d = 64, growing scores")
    yield Case(torch.full((64,), -4.0), keys + 1, randn(rng, *keys.shape), table, 20, 0.5,
               label="20 positions, d = 64, all scores far below zero")

def _attend_expect(q, keys, values, table, length, scale):
    weights = torch.softmax((scale * _in_order(keys, table, length) @ q).double(), 0)
    return (weights @ _in_order(values, table, length).double()).float()

kernel_exercise(id="8.6", cases=_attend_cases, compare=close(atol=1e-4),
    launch=lambda q, keys, values, table, length, scale: Launch(
        grid=1, block=len(q), shared=4 * length,
        args=[q, keys, values, table, out(q.shape), length, len(q), keys.shape[1], scale]),
    expect=_attend_expect)


def _append_call(f, table, length, references, free, block_size):
    table, references, free = list(table), list(references), list(free)
    returned = f(table, length, references, free, block_size)
    return {"returned": returned, "table": table, "references": references, "free": free}

def _append_cases(rng):
    yield Case([0, 1], 3, [1, 1, 0, 0], [3, 2], 2, label="room in the last page, no other table holds it")
    yield Case([0, 1], 4, [1, 1, 0, 0], [3, 2], 2, label="the last page is full")
    yield Case([0, 1], 3, [2, 2, 0, 0], [3, 2], 2, label="room in the last page, and another table holds it")
    yield Case([0, 1], 4, [2, 2, 0, 0], [3, 2], 2, label="the last page is full, and another table holds it")
    yield Case([0, 1], 3, [3, 1, 0, 0], [3, 2], 2, label="another table holds the first page only")
    yield Case([1, 0], 3, [2, 1, 0, 0], [3, 2], 2, label="another table holds the last page, which is page 0")
    yield Case([4, 0, 2], 9, [1, 0, 4, 0, 2], [1, 3], 4, label="four hold the last page")
    size = randint(rng, 3, 9)
    for length in (3 * size - 1, 2 * size + 1, 3 * size):
        yield Case([5, 3, 1], length, [0, 2, 0, 1, 0, 2], [4, 2, 0], size, label=f"{length} slots in pages of {size}")

exercise(id="8.8", cases=_append_cases, call=_append_call, compare=exact())


def _release_call(f, table, references):
    table, references = list(table), list(references)
    return {"returned": f(table, references), "references": references}

def _release_cases(rng):
    yield Case([0, 1, 2], [1, 1, 1], label="none is shared")
    yield Case([2, 0, 1], [1, 1, 2], label="another table holds the first page")
    yield Case([4, 1, 3, 0], [1, 2, 0, 1, 2], label="two pages are shared")
    yield Case([5], [0, 0, 0, 0, 0, 1], label="one page")
    table = torch.randperm(9, generator=rng)[:6].tolist()
    yield Case(table, [randint(rng, 1, 3) for _ in range(9)], label=f"table {table}")

exercise(id="8.9", cases=_release_cases, call=_release_call, compare=exact())


def room_cases(rng):
    yield Case([3], [1], 1, label="one sequence, a page is free")
    yield Case([3, 2], [1, 0], 0, label="no page is free; the oldest needs one")
    yield Case([3, 2], [1, 1], 1, label="one page is free, two need one")
    yield Case([4, 1, 1], [3, 0, 0], 0, label="the oldest needs more than the youngest holds")
    yield Case([4, 1, 1, 1], [9, 0, 0, 0], 0, label="the oldest needs more than all of them hold")
    yield Case([2, 3, 1], [1, 1, 1], 1, label="the youngest is preempted before its turn")
    yield Case([5, 2], [0, 0], 0, label="nobody needs a page")
    for _ in range(6):
        n = randint(rng, 2, 7)
        yield Case([randint(rng, 1, 6) for _ in range(n)], [randint(rng, 0, 2) for _ in range(n)], randint(rng, 0, 4),
                   label=f"{n} sequences")

exercise(id="8.11", cases=room_cases, compare=exact())


def reader_cases(rng):
    def case(readers, shared, own, d, label, scale=1.0):
        return Case(scale * randn(rng, readers, d), randn(rng, shared, d), randn(rng, shared, 3), randn(rng, readers, own, d),
                    randn(rng, readers, own, 3), label=label)
    yield case(1, 2, 1, 2, "one reader, 2 shared keys and one of its own")
    yield case(3, 5, 2, 4, "3 readers, 5 shared keys and 2 of their own")
    yield case(4, 1, 9, 8, "4 readers, one shared key and 9 of their own")
    yield case(2, 6, 6, 16, "2 readers with scores in the hundreds", scale=200.0)
    own = torch.tensor([[[0.0], [1.0]], [[-150.0], [-149.0]], [[200.5], [199.5]]])     # own scores: 0, 1; 150, 149; about -200
    yield Case(torch.tensor([[1.0], [-1.0], [-1.0]]), torch.tensor([[200.0], [199.0]]), randn(rng, 2, 3), own, randn(rng, 3, 2, 3),
               label="3 readers: the largest score is shared, its own, or far below the others'")

def _read_once(f, q, k_shared, v_shared, k_own, v_own):
    """f, watched: the shared keys go into one product, and no tensor has room for a copy of them per request."""
    from course_lib.exercises.running.watch import OperationMode
    products, room = [], max(q.numel(), len(q) * len(k_shared), k_own.numel(), v_own.numel())

    class Watch(OperationMode):
        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            result, name = operation(*args, **(kwargs or {})), operation.overloadpacket.__name__
            tensors = [x for x in args if isinstance(x, torch.Tensor)]
            if name in ("mm", "mv", "bmm", "addmm", "addmv", "baddbmm", "dot", "mul"):
                products.extend(x for x in tensors if x.data_ptr() == k_shared.data_ptr())
            own = isinstance(result, torch.Tensor) and result.untyped_storage().data_ptr() not in {
                x.untyped_storage().data_ptr() for x in tensors}
            if own and result.numel() > room:
                raise ValueError(f"this makes a tensor of {result.numel()} numbers, where no step needs more than {room}: a copy of the "
                                 "shared keys for each request would be as large")
            if len(products) > 1:
                raise ValueError("this multiplies with the shared keys more than once: they are read again for each request")
            return result

    with Watch():
        return f(q, k_shared, v_shared, k_own, v_own)

exercise(id="8.13", cases=reader_cases, call=_read_once, compare=close(atol=1e-5))
