"""Blocks and threads that wait for one another by memory: they have their turns; what nobody ends is a deadlock."""
import numpy as np
import pytest

from course_lib import cuda

SOURCE = """
__device__ volatile unsigned n;
__global__ void barrier(float* x, float* y) {                 // of the grid, made by hand
    x[blockIdx.x * blockDim.x + threadIdx.x] = blockIdx.x + 1;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) { atomicAdd((unsigned*)&n, 1); while (n < gridDim.x); __threadfence(); }
    __syncthreads();
    y[blockIdx.x * blockDim.x + threadIdx.x] = x[(gridDim.x - 1 - blockIdx.x) * blockDim.x + threadIdx.x];
}
__global__ void next(int* flag, int* x) {                     // each block after the one behind it
    if (blockIdx.x + 1 < gridDim.x) while (atomicAdd(&flag[blockIdx.x + 1], 0) == 0) {}
    __threadfence();
    *x = *x * 10 + blockIdx.x;
    __threadfence();
    atomicExch(&flag[blockIdx.x], 1);
}
__global__ void lost(volatile int* flag) { if (threadIdx.x == 0) while (*flag == 0); __syncthreads(); }
__global__ void kept(int* lock, int* x) {
    while (atomicCAS(lock, 0, 1)) {}
    __threadfence();
    *x += 1;
}
__global__ void alone(volatile int* x, float* out) {           // without a fence it is no barrier
    out[blockIdx.x] = 1;
    atomicAdd((int*)x, 1);
    while (*x < gridDim.x);
    out[2 + blockIdx.x] = out[1 - blockIdx.x];
}
"""
ORDERS = ["plain", "forward", "reverse", "seeded"]


@pytest.fixture(scope="module")
def mod():
    return cuda.compile(SOURCE)


def launch(order, kernel, *args):
    if order == "plain":
        return kernel(*args)
    with cuda.sanitize(order=order) as notes:
        kernel(*args)
    assert not notes


@pytest.mark.parametrize("order", ORDERS)
def test_blocks_wait_for_later_ones(mod, order):
    x, y, flag, out = np.zeros(512, "f4"), np.zeros(512, "f4"), np.zeros(5, "i4"), np.zeros(1, "i4")
    mod.globals["n"] = 0
    launch(order, mod.barrier[8, 64], x, y)
    assert (y.reshape(8, 64) == np.arange(8, 0, -1)[:, None]).all()
    launch(order, mod.next[5, 1], flag, out)
    assert out[0] == 43210


@pytest.mark.parametrize("order", ORDERS[:2])
@pytest.mark.parametrize("kernel, block, line", [("lost", 32, 18), ("kept", 1, 20)])
def test_a_wait_that_nothing_ends_is_a_deadlock(mod, order, kernel, block, line):
    args = [np.zeros(1, "i4")] * (kernel == "lost") or [np.zeros(1, "i4"), np.zeros(1, "i4")]
    with pytest.raises(cuda.KernelError, match="waits in a loop for memory that nobody changes") as caught:
        launch(order, mod[kernel][2, block], *args)
    assert caught.value.kind == "deadlock" and caught.value.line in ((line,) if order != "plain" else (0,))


def test_a_flag_without_a_fence_is_a_race(mod):
    with pytest.raises(cuda.KernelError) as caught:
        launch("forward", mod.alone[2, 1], np.zeros(1, "i4"), np.zeros(4, "f4"))
    assert caught.value.kind == "race"
