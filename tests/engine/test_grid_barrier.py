"""grid.sync() with as many threads as the model card holds: each keeps its own local variables."""
import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import ORDERS, compiled, compiler  # noqa: F401

SOURCE = r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__device__ float turned(const float* from, int at, int n, int waits) {
    if (waits) cg::this_grid().sync();
    return from[n - 1 - at];
}
__global__ void turn(float* x, float* y, int times, int waits) {
    int n = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    float own[4] = {x[i], (float)i, 2.f * i, 0};
    const float* mine = own + (i & 1);                   // a pointer into its own stack
    x[i] = own[0];
    if (n == 0) return;
    for (int k = 0; k < times; ++k) {
        own[3] += turned(k % 2 ? y : x, i, n, waits);
        (k % 2 ? x : y)[i] = own[3];
    }
    cg::this_grid().sync();
    x[i] = own[3] + mine[0] - own[i & 1] + own[2] - 2.f * i;
}
__global__ void some_leave(int* count, int* seen) {
    if (blockIdx.x % 3 == 0 || threadIdx.x % 2) return;
    atomicAdd(count, 1);
    cg::this_grid().sync();
    seen[blockIdx.x * blockDim.x + threadIdx.x] = *count;
}
__global__ void valid(int* y) { y[0] = cg::this_grid().is_valid(); }
"""


def turn(blocks: int, threads: int, times: int, waits: int = 1):
    """What the kernel leaves, and what NumPy does."""
    x = np.arange(blocks * threads, dtype=np.float32) % 7
    y, found, total = np.zeros_like(x), x.copy(), np.zeros_like(x)
    compiled(SOURCE).turn[blocks, threads](found, y.copy(), times, waits)
    for k in range(times):
        total = total + (y if k % 2 else x)[::-1]
        x, y = (total, y) if k % 2 else (x, total)
    return found, total


@pytest.mark.slow
def test_the_grid_waits_for_all_its_blocks(compiler):
    for blocks, threads in ((216, 1024), (3456, 64), (5, 96)):
        found, right = turn(blocks, threads, 7)
        assert (found == right).all()
    count, seen = np.zeros(1, np.int32), np.zeros(100 * 256, np.int32)
    compiled(SOURCE).some_leave[100, 256](count, seen)
    waited = (np.arange(seen.size) // 256 % 3 > 0) & (np.arange(seen.size) % 2 == 0)
    assert count[0] == waited.sum() and (seen == np.where(waited, count[0], 0)).all()


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
def test_a_large_grid_is_checked(order):
    with cuda.sanitize(**order):
        found, right = turn(20, 1024, 3)
    assert (found == right).all()
    with pytest.raises(cuda.KernelError) as caught, cuda.sanitize(**order):
        turn(20, 1024, 3, waits=0)
    assert caught.value.kind == "race"


@pytest.mark.parametrize("blocks, threads", [(217, 1024), (3457, 32)])
def test_a_grid_that_the_card_does_not_hold_is_refused(blocks, threads):
    answer = np.full(1, -1, np.int32)
    compiled(SOURCE).valid[blocks, threads](answer)
    assert answer[0] == 0
    with pytest.raises(cuda.KernelError, match="221,184") as caught:
        turn(blocks, threads, 1)
    assert caught.value.kind == "bad launch"
