"""What older or differently formatted programs and NVIDIA's samples do, in programs of our own."""
import pytest

from laptop_cuda.programs import Options, run

OLD = r"""
#include <cstdio>
#include <cuComplex.h>
#include <nvToolsExt.h>
#include <sm_61_intrinsics.h>
static_assert(CUDA_R_16BF == 14 && CUDA_R_32U == 12 && sizeof(cudaDataType_t) == 4, "");
#ifndef __DRIVER_TYPES_H__
#error a helper header would be of no use
#endif
__global__ void old(int* y) {
    int v = threadIdx.x;
    for (int d = 16; d; d >>= 1) v += __shfl_down(v, d);
    if (threadIdx.x == 0) y[0] = v;
    int w = threadIdx.x % 4;
    if (threadIdx.x < 16) {                                   // half of the warp is here
        w = __shfl_xor(w, 1);
        if (threadIdx.x == 0) y[1] = w, y[2] = __popc(__activemask());
        unsigned odd = __ballot(threadIdx.x & 1);
        int any = __any(threadIdx.x == 15), all = __all(threadIdx.x < 15), up = __shfl_up(w, 1);
        if (threadIdx.x == 3) y[3] = odd, y[4] = any, y[5] = all, y[6] = up;
    }
}
__global__ void square(cuComplex* z) {
    cuFloatComplex a = cuCmulf(*z, *z);
    *z = cuCdivf(cuCaddf(a, make_cuFloatComplex(1, 1)), make_cuComplex(cuCabsf(make_cuComplex(3, 4)), 0));
}
int main() {
    int* y;
    cuComplex* z;
    nvtxRangePush("all of it");
    cudaMallocManaged(&y, 7 * sizeof(int)); cudaMallocManaged(&z, sizeof(cuComplex));
    *z = make_cuComplex(1, 2);
    old << <1, 32 >> > (y);
    square << < dim3(1), dim3(1), 0, 0 >> >(z);
    cudaDeviceSynchronize();
    printf("%d %d %d %x %d %d | %g %g | %d\n", y[0], y[1], y[2], y[3], y[4], y[5], z->x, z->y, 16 << (1 >> 1));
    nvtxRangePop();
}
"""


@pytest.mark.parametrize("mode", ["sanitize", "plain"])
def test_old_names_and_spaced_launches(program, mode):
    ran = program(OLD, mode=mode)
    assert ran.stdout == "496 1 1 aaaa 1 0 | -0.4 1 | 16\n", ran.stderr
    assert not ran.errors


THREADS = r"""
#include <cstdio>
#include <thread>
#include <vector>
__global__ void fill(int* x, int v, int n) { for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = v; }
int main() {
    int total = 0;
    std::vector<std::thread> team;
    std::vector<int> sums(4);
    for (int t = 0; t < 4; ++t) team.emplace_back([t, &sums] {
        for (int round = 0; round < 20; ++round) {
            int *x, host[300];
            cudaMalloc(&x, sizeof host);
            fill<<<1, 64>>>(x, t + round, 300);
            cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
            for (int v : host) sums[t] += v;
            cudaFree(x);
        }
    });
    for (int t = 0; t < 4; ++t) team[t].join(), total += sums[t];
    printf("%d\n", total);
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sanitize", "profile", "plain"])
def test_host_threads_may_launch_at_the_same_time(program, mode):
    ran = program(THREADS, mode=mode)
    assert ran.status == 0 and not ran.errors, (ran.crash, ran.errors, ran.stderr)
    assert int(ran.stdout) == 300 * sum(t + r for t in range(4) for r in range(20))
    assert len(ran.launches) == 80


KERNELS_BESIDE = "template <class T> __global__ void add(T* y, const T* more, int k) { y[0] += more ? more[0] : k; }\n"
ZEROS = r"""
#include <cstdio>
#include "kernels.cuh"
extern __shared__ float tile[];
__device__ float half_of(volatile float* tile, int i) { return tile[i] / 2; }
__global__ void hidden(float* y) { tile[threadIdx.x] = 4; y[1] = half_of(tile, 0); }
template <class T> struct copy { template <int N> static __device__ T of(const T* x) { return x[N]; } };
template <class T> __device__ T second(const T* x) { return copy<T>::of<1>(x); }
__global__ void through(float* y) { y[2] = second(y); }
int main() {
    float* y;
    cudaMallocManaged(&y, 12), y[0] = 1;
    add<float><<<1, 1>>>(y, 0, 0);                  // a null pointer, and a number
    add<<<1, 1>>>(y, y, 0);
    hidden<<<1, 1, 4>>>(y);
    through<<<1, 1>>>(y);
    cudaDeviceSynchronize();
    printf("%g %g %g\n", y[0], y[1], y[2]);
}
"""


@pytest.mark.parametrize("mode", ["sanitize", "plain"])
def test_zeros_for_pointers_hidden_arrays_and_templates_of_templates(program, tmp_path, mode):
    (tmp_path / "kernels.cuh").write_text(KERNELS_BESIDE)
    ran = program(ZEROS, mode=mode)
    assert (ran.stdout, ran.errors) == ("2 2 2\n", []), ran.stderr


def test_helpers_of_the_programs_own_come_before_the_engines(tmp_path):
    (tmp_path / "Common").mkdir()
    (tmp_path / "Common" / "helper_functions.h").write_text("inline int its_own() { return 7; }\n")
    (tmp_path / "helped.cu").write_text("#include <cstdio>\n#include <helper_functions.h>\n__global__ void k() {}\n"
                                        'int main() { printf("%d\\n", its_own()); }\n')
    ran = run(tmp_path / "helped.cu", options=Options((tmp_path / "Common",)), mode="plain")
    assert ran.stdout == "7\n", ran.stderr


MACROS_FIRST = r"""
#define WIDTH 32
#define DEVICE __device__
#define T float
#define N 64
#define n N
#define x 3
#define words 4
#define args 2
#include <cub/cub.cuh>
#include <thrust/sort.h>
#include "groups.h"
#undef x
__global__ void sum(T* y) {
    __shared__ cub::WarpReduce<T>::TempStorage room;
    T total = cub::WarpReduce<T>(room).Sum(1);
    if (rank() == 0) y[0] = total + n + words * args;
}
int main() {
    T* y;
    cudaMallocManaged(&y, N);
    sum<<<1, WIDTH>>>(y);
    cudaDeviceSynchronize();
    return (int)y[0];
}
"""
GROUPS = r"""
#pragma once
#include <cooperative_groups.h>
DEVICE unsigned rank() { return cooperative_groups::this_thread_block().thread_rank(); }
"""


def test_macros_before_the_headers_do_not_reach_them(program, tmp_path):
    (tmp_path / "groups.h").write_text(GROUPS)
    ran = program(MACROS_FIRST)
    assert (ran.status, ran.errors) == (104, []), ran.stderr


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
    cudaMallocManaged(&took, 64 * sizeof *took), cudaMallocManaged(&read, 64 * sizeof *read);
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
    printf("%d ", cudaHostUnregister(x)), printf("%d ", cudaHostRegister(x, 400, cudaHostRegisterMapped));
    printf("%d ", cudaHostRegister(x + 99, 8, 0));
    printf("%d ", cudaHostGetDevicePointer(&same, x, 0));
    cudaGetLastError();
    twice<<<1, 128>>>(same, n == 1 ? 100 : 101);
    printf("%d ", cudaDeviceSynchronize());
    printf("%d %d\n", x[99], cudaHostUnregister(x));
}
"""


def test_registered_memory_of_the_host_is_open_to_kernels(program):
    ran = program(REGISTERED)
    assert (ran.stdout, ran.errors) == ("713 0 712 0 0 198 0\n", []), ran.stderr
    ran = program(REGISTERED, arguments=["x"])
    assert [error["kind"] for error in ran.errors] == ["out of bounds"]
