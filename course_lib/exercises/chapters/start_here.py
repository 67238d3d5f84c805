"""The exercises of notebook 0: one to try the checks on, and five that teach CUDA."""
import torch

from course_lib.exercises import Case, Launch, close, exercise, kernel_exercise, out, randn


def ceil_div(a, b):
    return -(-a // b)

def mix_cases(rng):
    yield Case(torch.tensor([0.5, 0.25, 0.25]), torch.tensor([[4.0, 0.0], [0.0, 8.0], [4.0, 4.0]]), label="3 rows of 2")
    for n, d in [(1, 4), (4, 4), (7, 3), (33, 5)]:
        yield Case(torch.softmax(randn(rng, n), 0), randn(rng, n, d), label=f"{n} rows of {d}")
    yield Case(torch.tensor([1.0, -0.25]), torch.tensor([[4.0, 8.0], [4.0, 16.0]]), label="weights of 1 and -0.25, which add up to 0.75")

exercise(id="0.1", cases=mix_cases, compare=close(atol=1e-5),
    properties=[("the result has one entry for each column of values", lambda got, case: got.shape == case.args[1].shape[1:]),
                ("no entry is larger than the largest of its column",
                 lambda got, case: bool((got <= case.args[1].amax(0) + 1e-4).all()))])

def add_cases(rng):
    for n, block in [(5, 4), (13, 8), (64, 32), (100, 32), (1, 32), (1000, 256)]:
        yield Case(randn(rng, n), randn(rng, n), block, label=f"{n} numbers, {ceil_div(n, block)} blocks of {block} threads")

kernel_exercise(id="0.2", cases=add_cases,
    launch=lambda x, y, block: Launch(ceil_div(len(x), block), block, [x, y, out(x.shape), len(x)]),
    expect=lambda x, y, block: x + y, compare=close(atol=1e-6), traffic=lambda x, y, block: 12 * len(x))

def matmul_cases(rng):
    for m, k, n in [(2, 3, 2), (2, 9, 1), (8, 8, 8), (16, 32, 16), (11, 20, 9), (1, 33, 17)]:
        yield Case(randn(rng, m, k), randn(rng, k, n), label=f"({m}, {k}) times ({k}, {n})")

def sectors(first, last):
    """How many sectors of 8 floats the floats first to last touch; none if there are none."""
    return last // 8 - first // 8 + 1 if last >= first else 0

def matmul_traffic(a, b):
    """Each element that a tile needs once per block, and the store: 32 x the sectors of every row of every tile."""
    (m, k), n = a.shape, b.shape[1]
    touched = sum(sectors(row * k + start, row * k + min(start + 8, k) - 1) * ceil_div(n, 8)
                  for row in range(m) for start in range(0, k, 8))
    touched += sum(sectors(row * n + start, row * n + min(start + 8, n) - 1) * factor
                   for rows, factor in ((k, ceil_div(m, 8)), (m, 1)) for row in range(rows) for start in range(0, n, 8))
    return 32 * touched

kernel_exercise(id="0.4", cases=matmul_cases,
    launch=lambda a, b: Launch((ceil_div(b.shape[1], 8), ceil_div(a.shape[0], 8)), (8, 8),
                               [a, b, out((a.shape[0], b.shape[1])), a.shape[0], a.shape[1], b.shape[1]]),
    expect=lambda a, b: a @ b, compare=close(atol=1e-4), traffic=matmul_traffic)

def warp_cases(rng):
    yield Case(torch.arange(32.0), label="0, 1, 2, ..., 31")
    yield Case(torch.ones(96), label="3 blocks of ones")
    for blocks in (8, 32):
        yield Case(randn(rng, 32 * blocks), label=f"{blocks} blocks")
    # Added up lane after lane, the ones vanish beside 2^30; in five steps, whether from 16 or from 1, it cancels in time.
    large = torch.ones(32)
    large[[2, 3, 18, 19]] = torch.tensor([1.0, -1.0, -1.0, 1.0]) * 2.0**30
    yield Case(large, label="28 ones, and 2^30 and -2^30 twice, which five steps cancel before they meet a 1")

kernel_exercise(id="0.6", cases=warp_cases, launch=lambda x: Launch(len(x) // 32, 32, [x, out(len(x) // 32)]),
    expect=lambda x: x.double().reshape(-1, 32).sum(1).float(), compare=close(atol=1e-4),
    traffic=lambda x: 4 * len(x) + len(x))
