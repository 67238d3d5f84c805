"""Lines of a library without addr2line, as on a machine whose compiler is ziglang's: the same places."""
import sys

import numpy as np
import pytest

import laptop_cuda as cuda
from laptop_cuda.toolchain import lines

SOURCE = """
#include <cuda_fp16.h>
template <class T> __device__ T twice(T v) {
    return v + v;
}
__device__ float side(const float* x) {
    float v = x[threadIdx.x];
    return twice(v);
}
__global__ void first(const float* x, float* y) { y[threadIdx.x] = side(x); }
__global__ void halves(const half* x,
                       half* y) {
    __shared__ half s[32];
    s[threadIdx.x] = __hadd(x[threadIdx.x], x[0]);
    __syncthreads();
    atomicAdd((float*)y, 1.f);
    y[2 + threadIdx.x] = s[31 - threadIdx.x];
}
"""


def counted(mod) -> list[tuple]:
    with cuda.profile() as report:
        mod.first[1, 32](np.zeros(32, np.float32), np.zeros(32, np.float32))
        mod.halves[1, 32](np.zeros(32, np.float16), np.zeros(64, np.float16))
    return [(line.file, line.line, line.global_load.bytes, line.global_store.bytes, line.shared_load.requests,
             int(line.atomics)) for launch in report.launches for line in launch.lines]


@pytest.mark.skipif(sys.platform != "linux", reason="not run: reads ELF")
@pytest.mark.slow
def test_the_same_lines_without_addr2line(monkeypatch, needs):
    needs("clang++")  # g++ has addr2line beside it, and writes no row for a call that it inlines
    monkeypatch.setenv("CXX", "clang++")
    mod = cuda.compile(SOURCE)
    with_tool = counted(mod)
    assert {line for _, line, *_ in with_tool} == {7, 10, 14, 15, 16, 17}
    lines._known.cache_clear()
    monkeypatch.setattr(lines.shutil, "which", lambda name: None)
    assert counted(mod) == with_tool
    lines._known.cache_clear()
