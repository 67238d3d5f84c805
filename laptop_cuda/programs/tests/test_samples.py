"""What NVIDIA's samples do and smaller programs do not, in programs of our own."""
import numpy as np
import pytest

import laptop_cuda
from engine_kit import compiled

CLOCKS = r"""
#include <cstdio>
#include <ctime>
__device__ void wait(clock_t n) {
    clock_t from = clock();
    while (clock() - from < n) ;
}
__global__ void waits(clock_t n, long long* took) {
    long long from = clock64();
    wait(n);
    took[threadIdx.x] = clock64() - from;
}
__global__ void reads(unsigned* took) {
    unsigned from = (unsigned)clock();
    __syncthreads();
    took[threadIdx.x] = (unsigned)clock() - from;
}
int main() {
    clock_t from = clock();                  // that of C
    long long* took;
    unsigned* read;
    cudaMallocManaged(&took, 64 * sizeof *took);
    cudaMallocManaged(&read, 64 * sizeof *read);
    waits<<<1, 2>>>(100000, took);
    reads<<<1, 64>>>(read);
    cudaDeviceSynchronize();
    printf("%d %d %d\n", took[0] > 100000, took[1] > 100000, read[0] > 0 && read[63] > 0);
    return clock() - from > 60 * CLOCKS_PER_SEC;
}
"""


@pytest.mark.parametrize("mode", [pytest.param("sanitize", marks=pytest.mark.slow), "plain"])
def test_a_kernel_may_wait_until_clocks_have_passed(program, mode):
    ran = program(CLOCKS, mode=mode, timeout=20)
    assert (ran.stdout, ran.status, ran.errors) == ("1 1 1\n", 0, []), ran.stderr


REGISTERED = r"""
#include <cstdio>
#include <cstdlib>
__global__ void twice(int* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2;
}
int main(int n, char**) {
    int* x = (int*)malloc(400);
    int* same;
    for (int i = 0; i < 100; i++) x[i] = i;
    printf("%d ", cudaHostUnregister(x));
    printf("%d ", cudaHostRegister(x, 400, cudaHostRegisterMapped));
    printf("%d ", cudaHostRegister(x + 99, 8, 0));
    printf("%d ", cudaHostGetDevicePointer(&same, x, 0));
    cudaGetLastError();
    twice<<<1, 128>>>(same, n == 1 ? 100 : 101);
    printf("%d ", cudaDeviceSynchronize());
    printf("%d ", x[99]);
    printf("%d\n", cudaHostUnregister(x));
}
"""


def test_registered_memory_of_the_host_is_open_to_kernels(program):
    ran = program(REGISTERED)
    assert (ran.stdout, ran.errors) == ("713 0 712 0 0 198 0\n", []), ran.stderr
    ran = program(REGISTERED, arguments=["x"])
    assert [error["kind"] for error in ran.errors] == ["out of bounds"]


RELEASED_BY_THE_WAIT = r"""
#include <cuda/pipeline>
__global__ void through(const float* x, float* y, int tiles, int waits) {
    __shared__ float s[2][32];
    auto pipe = cuda::make_pipeline();
    for (int t = 0; t < tiles; ++t) {
        for (int k = t; k < t + (t ? 0 : 2); ++k) {
            pipe.producer_acquire();
            cuda::memcpy_async(&s[k][threadIdx.x], &x[k * 32 + threadIdx.x], sizeof(float), pipe);
            pipe.producer_commit();
        }
        if (t < waits) pipe.consumer_wait();             // and no consumer_release()
        y[t * 32 + threadIdx.x] = s[t][threadIdx.x];
    }
}
"""


def test_a_threads_pipeline_releases_a_stage_by_its_wait():
    kernel = compiled(RELEASED_BY_THE_WAIT).through
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    with laptop_cuda.sanitize():
        kernel[1, 32](x, y, 2, 2)
        assert (x == y).all()
        with pytest.raises(laptop_cuda.KernelError, match="asynchronous copy"):
            kernel[1, 32](x, y, 2, 1)


COUNTING = r"""
#include <cstdio>
#include <thrust/device_vector.h>
#include <thrust/generate.h>
struct Counting {
    int count = 0;
    __device__ int operator()() {
        int mine = blockIdx.x * blockDim.x + threadIdx.x + count;
        count += blockDim.x * gridDim.x;
        return mine;
    }
};
int main() {
    thrust::device_vector<int> x(4);
    thrust::generate(x.begin(), x.end(), Counting());
    for (int v : x) printf("%d ", v);
}
"""


@pytest.mark.slow
def test_a_functor_of_thrust_reads_the_index_of_one_thread(program):
    assert program(COUNTING, mode="plain").stdout == "0 1 2 3 "
