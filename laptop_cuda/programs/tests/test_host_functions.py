"""Host functions called from Python: launches counted and checked as others, crashes as messages."""
import numpy as np
import pytest

import laptop_cuda
from engine_kit import WAYS, line_of

SOURCE = """
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
__device__ int calls = 0;
__global__ void fill(float* y, int n, float v) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += v; }
__global__ void count() { calls++; }
__global__ void shift(float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = y[threadIdx.x];
    y[threadIdx.x] = s[63 - threadIdx.x];
}
void twice(float* y, int n, float v) {
    fill<<<(n + 31) / 32, 32>>>(y, n, v);
    printf("between\\n");
    fill<<<(n + 31) / 32, 32>>>(y, n, v);
}
void copies(const float* x, float* y, int n) {
    float* d;
    cudaMalloc(&d, n * sizeof(float));
    cudaMemcpy(d, x, n * sizeof(float), cudaMemcpyHostToDevice);
    fill<<<(n + 63) / 64, 64>>>(d, n, 1.f);
    cudaMemcpy(y, d, n * sizeof(float), cudaMemcpyDeviceToHost);
    cudaFree(d);
}
void counts() { count<<<1, 1>>>(); }
void races(float* y) { y[0] = 5; shift<<<1, 64>>>(y); }
void looks(float* y) {
    float* d;
    cudaMalloc(&d, 256);
    y[0] = d[1];
}
int* nowhere = nullptr;
void ends(float* y, int how) {
    y[0] = 7;
    assert(how != 1);
    if (how == 2) exit(3);
    if (how == 3) y[0] = (float)*nowhere;
    fill<<<1, 4096>>>(y, 4, 1.f);
}
void rows(float** y) { y[0][0] = 1; }
"""


@pytest.fixture(scope="module")
def module():
    return laptop_cuda.compile(SOURCE, "host.cu")


def line(text):
    (found,) = line_of(SOURCE, text)
    return found


def zeros(n=40):
    return np.zeros(n, np.float32)


def test_its_launches_are_counted(module, capsys):
    y = zeros()
    with laptop_cuda.profile() as report:
        module.host("twice")(y, 40, 1.5)
    assert (y == 3).all() and capsys.readouterr().out == "between\n"
    alone = zeros()
    with laptop_cuda.profile() as one:
        module.fill[2, 32](alone, 40, 1.5)
    assert [launch.kernel for launch in report.launches] == ["fill", "fill"]
    assert [str(launch) for launch in report.launches] == [str(one.launches[0])] * 2
    with pytest.raises(ValueError, match="launch the kernel from Python"):
        report.launches[0].replay()


def test_its_launches_are_checked(module):
    y = zeros(64)
    with pytest.raises(laptop_cuda.KernelError) as found, laptop_cuda.sanitize():
        module.host("races")(y)
    assert found.value.kind == "race" and found.value.line == line("s[threadIdx.x] = y[threadIdx.x];")
    assert not y.any()                   # as after any launch that failed
    with pytest.raises(laptop_cuda.KernelError,
                       match=r"y\[40\], past its end: y has 40 elements"), laptop_cuda.sanitize():
        module.host("twice")(zeros(), 41, 1.0)
    with pytest.raises(laptop_cuda.KernelError,
                       match=r"host code reads d\[1\]") as found, laptop_cuda.sanitize():
        module.host("looks")(zeros())
    assert found.value.kind == "host access"


@pytest.mark.parametrize("mode", WAYS)
def test_arrays_are_memory_of_the_host_and_of_the_device(module, mode):
    x, y = np.arange(40, dtype=np.float32), zeros()
    with WAYS[mode]():
        module.host("copies")(x, y, 40)
    assert (y == x + 1).all()


def test_arrays_that_overlap_stay_one(module):
    y = zeros(80)
    module.host("copies")(y[:40], y[20:60], 40)
    assert y.tolist() == [0] * 20 + [1] * 40 + [0] * 20


def test_variables_are_the_modules_own(module):
    module.globals["calls"] = 5
    module.host("counts")()
    module.count[1, 1]()
    with laptop_cuda.sanitize():
        module.host("counts")()
    assert int(module.globals["calls"][0]) == 8


@pytest.mark.parametrize("how, said", [(1, "Aborted.*\n.*assertion failed: how != 1"), (2, r"exit\(3\)"),
                          (3, f"Segmentation fault, in host code, line {line('*nowhere;')} of host.cu")])
def test_a_crash_is_a_message(module, how, said):
    y = zeros()
    with pytest.raises(laptop_cuda.KernelError, match=rf"crash: ends: (?s:.*){said}") as found:
        module.host("ends")(y, how)
    assert found.value.kind == "crash" and not y.any()


def test_a_launch_that_cannot_be_is_an_error(module):
    with pytest.raises(laptop_cuda.KernelError, match="4096 threads per block"):
        module.host("ends")(zeros(), 0)


def test_what_has_no_meaning_in_another_process_is_refused(module):
    with pytest.raises(laptop_cuda.ArgumentError, match="pass each array as an argument"):
        module.host("rows")(laptop_cuda.pointers(zeros()))
    with pytest.raises(laptop_cuda.ArgumentError, match="counted on the usual machine"):
        with laptop_cuda.profile(machine=laptop_cuda.Machine(banks=16)):
            module.host("counts")()
