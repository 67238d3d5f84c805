"""Exercises of chapter 12. Kernels begin with the same functions, `TMA`: a wait, an expectation, an order."""
from course_lib.exercises import (Case, Launch, TensorMap, close, exact, exercise, kernel_exercise, out,
                                  randn, whole)

# copies land as late as is legal, and at once; then the last thread first
ORDERS = ("late", "early", "reverse")

TMA = """\
#include <cuda.h>
#include <cuda/ptx>
namespace ptx = cuda::ptx;

// Returns when the phase of this parity is over.
__device__ void wait(uint64_t* bar, int parity) { while (!ptx::mbarrier_try_wait_parity(bar, parity)) {} }

// One arrival, which also says how many bytes are to come in this phase.
__device__ void expect(uint64_t* bar, int bytes)
{
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, bar, bytes);
}

// Orders the tile of x that begins at (row, column) and returns at once; the bytes are counted at the barrier.
__device__ void order(void* tile, const CUtensorMap* x, int row, int column, uint64_t* bar)
{
    const int at[] = {column, row};                                 // a map counts the innermost dimension first
    ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, x, at, bar);
}
"""

def _matrices(*sizes):
    """cases= of random matrices of these sizes."""
    return lambda rng: (Case(randn(rng, *size), label=f"{size[0]} x {size[1]}") for size in sizes)

kernel_exercise(id="12.2", start=TMA, cases=_matrices((16, 16), (32, 48), (7, 20), (33, 12), (50, 36)),
    expect=lambda x: x.T.contiguous(), compare=exact(), orders=ORDERS,
    launch=lambda x: Launch(grid=(-(-x.shape[1] // 16), -(-x.shape[0] // 16)), block=32,
                            args=[TensorMap(x, (16, 16)), out((x.shape[1], x.shape[0])), *x.shape]))


def _finished_cases(rng):
    def case(tiles, stages, latency, copy, use):
        return Case(tiles, stages, latency, copy, use,
                    label=f"{tiles} tiles, {stages} stages, latency {latency}, copy {copy}, use {use}")

    for numbers in [(3, 1, 2, 1, 1), (4, 2, 2, 1, 3), (4, 2, 5, 1, 1), (6, 3, 4, 2, 1), (8, 4, 6, 1, 2), (5, 8, 3, 3, 1)]:
        yield case(*numbers)
    for _ in range(4):
        yield case(*(whole(rng, low, high) for low, high in ((6, 12), (1, 5), (2, 9), (1, 4), (1, 5))))

exercise(id="12.3", cases=_finished_cases, compare=exact())


def _turn_of_cases(rng):
    for i, stages in [(0, 2), (1, 2), (2, 2), (4, 2), (0, 1), (1, 1), (2, 1), (3, 3), (9, 4)]:
        yield Case(i, stages, label=f"tile {i}, {stages} stages")
    for _ in range(8):
        i, stages = whole(rng, 5, 60), whole(rng, 1, 7)
        yield Case(i, stages, label=f"tile {i}, {stages} stages")

exercise(id="12.4", cases=_turn_of_cases, compare=exact())

kernel_exercise(id="12.5", start=TMA, cases=_matrices(*((n, 64) for n in (4, 8, 9, 17, 30))),
    expect=lambda x: x.double().sum(0).float(), compare=close(atol=1e-4), orders=ORDERS,
    launch=lambda x: Launch(grid=1, block=64, args=[TensorMap(x, (4, 64)), out(64), len(x)]))

kernel_exercise(id="12.6", start=TMA, cases=_matrices(*((n, 64) for n in (4, 12, 13, 30, 41))),
    expect=lambda x: x.double().square().sum(0).float(), compare=close(atol=1e-3), orders=ORDERS,
    launch=lambda x: Launch(grid=1, block=96, args=[TensorMap(x, (4, 64)), out(64), len(x)]))

kernel_exercise(id="12.9", cases=lambda rng: (
    Case(randn(rng, 64, n).bfloat16(), randn(rng, 32, n).bfloat16(), label=f"{n} columns") for n in (64, 128, 200, 320)),
    expect=lambda a, b: (a.double() @ b.double().T).float(), compare=close(atol=1e-3), orders=ORDERS,
    launch=lambda a, b: Launch(grid=1, block=160, args=[TensorMap(a, (64, 64), 128), TensorMap(b, (32, 64), 128), out((64, 32)),
                                                        a.shape[1]]))

kernel_exercise(id="12.10", start=TMA, cases=_matrices((16, 32), (5, 8), (40, 36), (32, 100)),
    expect=lambda x: 2 * x, compare=exact(), orders=ORDERS,
    launch=lambda x: Launch(grid=(-(-x.shape[1] // 32), -(-x.shape[0] // 16)), block=64,
                            args=[TensorMap(x, (16, 32)), TensorMap(out(tuple(x.shape)), (16, 32))]))
