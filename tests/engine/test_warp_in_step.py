"""Volatile accesses of global memory: flags between warps and blocks are right, lanes that trust their warp
are not."""
import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import ORDERS, mod  # noqa: F401

SOURCE = """
__global__ void last(int* x) {
    int t = threadIdx.x;
    volatile int* v = x;
    if (t < 32) { v[t] += v[t + 32]; v[t] += v[t + 16]; v[t] += v[t + 8]; }
}
__global__ void ordered(int* x) {
    int t = threadIdx.x;
    volatile int* v = x;
    if (t < 32)
        for (int s = 32; s > 0; s /= 2) {
            int sum = v[t] + v[t + s];
            __syncwarp();
            v[t] = sum;
            __syncwarp();
        }
}
__global__ void flags(int* x, int* found) {
    volatile int* seen = found;
    if (*seen == 0 && x[blockIdx.x * blockDim.x + threadIdx.x] == 33) *seen = 1;
}
__global__ void passed_on(int* x, int* flag) {
    if (threadIdx.x == 0) {
        *(volatile int*)x = 5;
        __threadfence();
        *(volatile int*)flag = 1;
    } else if (threadIdx.x == 1) {
        while (*(volatile int*)flag == 0) {}
        __threadfence();
        *(volatile int*)(x + 1) = *(volatile int*)x;
    }
}
"""


@pytest.mark.parametrize("order", ORDERS)
def test_a_reduction_that_trusts_its_warp_is_a_race(mod, order):
    with pytest.raises(cuda.KernelError,
                       match="race: in last.*one thread.*another") as caught, cuda.sanitize(**order):
        mod.last[1, 64](np.arange(96, dtype=np.int32))
    assert "several threads update one element" not in str(caught.value)


@pytest.mark.parametrize("order", ORDERS)
def test_the_same_with_syncwarp_is_right(mod, order):
    x = np.arange(96, dtype=np.int32)
    with cuda.sanitize(**order):
        mod.ordered[1, 64](x)
    assert x[0] == sum(range(64))


@pytest.mark.parametrize("order", ORDERS)
def test_flags_are_no_race(mod, order):
    x, found = np.arange(64, dtype=np.int32), np.zeros(1, np.int32)
    with cuda.sanitize(**order):
        mod.flags[64, 1](x, found)                   # between blocks
        mod.passed_on[1, 2](x, np.zeros(1, np.int32))         # in a warp, behind a fence
    assert found[0] == 1 and x[1] == 5
