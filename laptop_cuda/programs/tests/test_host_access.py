"""Host code that reads or writes device memory: a crash on a card, a finding with its line here."""
import pytest
from engine_kit import compiler, line_of  # noqa: F401

from laptop_cuda.programs import report
from laptop_cuda.programs.host_errors import is_for_device

STRINGS = r"""
#include <cstdio>
#include <cstring>
#include <string>
#include <cuda_runtime.h>
int main() {
    char *d_s, h[8] = "right";
    int* d_x;
    cudaMalloc(&d_x, 64);
    d_x[3] = 1;                                      // FOUND
    cudaMalloc(&d_s, 8);
    cudaMemcpy(d_s, h, 8, cudaMemcpyHostToDevice);
    printf("%d%% %-*s|%s\n", 5, 7, h, d_s);          // FOUND
    printf("%s at %p, %s\n", h, d_s, "constant");
    printf("%p\n", (void*)d_s);
    std::string s(d_s);                              // FOUND
    return strlen(d_s) != strlen(h);                 // FOUND
}
"""


def test_numbers_and_strings_in_device_memory_are_found_though_nothing_is_launched(program):
    ran = program(STRINGS)
    assert [error["line"] for error in ran.errors] == sorted(line_of(STRINGS, "// FOUND")) and not ran.status
    assert "host code writes d_x[3]: d_x has 16 elements in device memory" in ran.errors[0]["message"]
    assert "host code reads d_s[0]" in ran.errors[1]["message"]
    assert "no kernel" not in report.text(ran, "sanitize", {})
    assert ran.stdout.startswith("5% right  |right\n")


WRONG = r"""
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>
#include <cuda_runtime.h>
struct Point { float x, y, z; };
__global__ void twice(float* x, int n) { int i = threadIdx.x; if (i < n) x[i] *= 2; }
static float total(const float* x, int n) {
    float sum = 0;
    for (int i = 0; i < n; ++i) sum += x[i];         // FOUND
    return sum;
}
static void CUDART_CB later(void* x) { ((float*)x)[5] = 1; }         // FOUND
int main() {
    float *d_x, *d_row, *h = (float*)malloc(256), *both;
    float** d_rows;
    Point* d_points;
    size_t pitch;
    cudaMalloc(&d_x, 64 * sizeof(float));
    cudaMalloc(&d_points, 64 * sizeof(Point));
    cudaMalloc(&d_rows, 2 * sizeof(float*));
    cudaMallocPitch(&d_row, &pitch, 64 * sizeof(float), 2);
    cudaMallocManaged(&both, 64 * sizeof(float));
    for (int i = 0; i < 64; ++i) d_x[i] = 1;         // FOUND
    for (int i = 0; i < 64; ++i) both[i] = h[i] = 1;
    twice<<<1, 64>>>(d_x, 64);
    twice<<<1, 64>>>(both, 64);
    cudaDeviceSynchronize();
    printf("%g %g\n", d_x[3], both[3]);              // FOUND
    printf("%g\n", total(d_x, 64) + total(both, 64));
    memcpy(h, d_x, 256);                             // FOUND
    std::vector<float> all(d_x, d_x + 64);           // FOUND
    Point p = d_points[2];                           // FOUND
    d_rows[1] = d_x;                                 // FOUND
    std::sort(d_x, d_x + 64);                        // FOUND
    ++d_row[pitch / sizeof(float)];                  // FOUND
    cudaLaunchHostFunc(0, later, d_x);
    free(d_x);                                       // FOUND
    FILE* nowhere = tmpfile();
    fwrite(d_x, 4, 64, nowhere);                     // FOUND
    fclose(nowhere);
    printf("%g %d\n", all[0] + p.x * 0, (int)cudaFree(d_x));
}
"""


@pytest.mark.slow
def test_each_line_of_host_code_that_touches_device_memory_is_found_once(compiler, program):
    ran = program(WRONG)
    assert (ran.status, ran.crash, len(ran.launches)) == (0, "", 2)
    assert sorted(error["line"] for error in ran.errors) == sorted(line_of(WRONG, "// FOUND"))
    assert {error["kind"] for error in ran.errors} == {"host access"}
    said = {error["line"]: error["message"] for error in ran.errors}
    (first, *_), last = sorted(said.items()), said[max(line_of(WRONG, "free(d_x);"))]
    assert ("host code reads d_x[0]: d_x has 64 elements in device memory" in first[1]
            and "cudaMemcpy" in first[1])
    assert "free() of d_x" in last and "cudaFree" in last


CRASHES = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include <cuda_runtime.h>
__global__ void twice(float* x, int n) { int i = threadIdx.x; if (i < n) x[i] *= 2; }
int main(int argc, char** argv) {
    int which = atoi(argv[1]);
    float *d_x, h[64] = {};
    cudaMalloc(&d_x, sizeof h);
    if (which == 0) d_x[which + 3] = 1;              // FOUND
    cudaMemcpy(d_x, h, sizeof h, cudaMemcpyHostToDevice);
    if (which == 1) memcpy(h, d_x, 64 * argc);       // FOUND
    for (int i = 0; i < 1000; ++i) twice<<<1, 64>>>(d_x, 64);
    cudaDeviceSynchronize();
    if (which == 2) printf("%g\n", d_x[which]);      // FOUND
    for (int i = 0; i < 1000; ++i) cudaMemcpy(h, d_x, 4, cudaMemcpyDeviceToHost);
    cudaMemset(d_x, 0, sizeof h);
    std::vector<float> all(h, h + 64);
    cudaEvent_t done;
    cudaEventCreate(&done);
    cudaEventSynchronize(done);
    if (which == 3) all.assign(d_x, d_x + 64);       // FOUND
    printf("%g\n", all[5]);
    fflush(stdout);
    cudaFree(d_x);
    if (which == 4) h[0] = d_x[which];               // FOUND
    return h[0] > 1;
}
"""


@pytest.mark.slow
def test_a_plain_run_crashes_where_a_card_does_and_names_line_and_array(compiler, program):
    lines = sorted(line_of(CRASHES, "// FOUND"))
    for which, line in enumerate(lines):
        ran = program(CRASHES, arguments=[str(which)], mode="plain")
        (error,) = ran.errors
        assert (ran.status, error["kind"], error["line"]) == (128 + 11, "host access", line)
        assert "d_x" in error["message"] and f"line {line}" in error["message"] and "crashed" in ran.crash
    ran = program(CRASHES, arguments=["5"], mode="plain")
    assert (ran.status, ran.stdout, ran.errors, ran.crash) == (0, "0\n", [], "")


RIGHT = r"""
#include <cstdio>
#include <thread>
#include <vector>
#include <cuda_runtime.h>
#include <curand.h>
#include <cub/cub.cuh>
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/reduce.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
__device__ int table[64];
struct Set { int* p; __host__ __device__ void operator()(int i) const { p[i] = 64 - i; } };
__global__ void one(int* p) { p[threadIdx.x] += 1; }
int main() {
    int *d, *d_sum, *mapped, *d_mapped, *own = new int[64]();
    float* d_random;
    cudaMalloc(&d, 64 * sizeof(int));
    cudaMalloc(&d_sum, sizeof(int));
    cudaMalloc(&d_random, 64 * sizeof(float));
    cudaHostAlloc(&mapped, 64 * sizeof(int), cudaHostAllocMapped);
    cudaHostGetDevicePointer(&d_mapped, mapped, 0);
    for (int i = 0; i < 64; ++i) d_mapped[i] = i;                        // zero-copy: one address for both
    cudaHostRegister(own, 64 * sizeof(int), cudaHostRegisterMapped);
    one<<<1, 64>>>(own);
    curandGenerator_t g;
    curandCreateGenerator(&g, CURAND_RNG_PSEUDO_DEFAULT);
    curandGenerateUniform(g, d_random, 64);
    thrust::for_each(thrust::counting_iterator<int>(0), thrust::counting_iterator<int>(64), Set{d});
    cudaStream_t s;
    cudaStreamCreate(&s);
    thrust::sort(thrust::cuda::par.on(s), d, d + 64);
    one<<<1, 64>>>(d);
    cudaMemcpyToSymbol(table, d, sizeof table, 0, cudaMemcpyDeviceToDevice);
    cudaMemcpyFromSymbol(d, table, sizeof table, 0, cudaMemcpyDeviceToDevice);
    thrust::device_vector<int> v(d, d + 64);
    thrust::copy(d, d + 64, v.begin());
    v[2] += 5;
    thrust::device_ptr<int> p(d);
    p[0] = 1;
    size_t bytes = 0;
    cub::DeviceReduce::Sum(nullptr, bytes, d, d_sum, 64);
    cub::DeviceReduce::Sum(d_random, bytes, d, d_sum, 64);
    int sum = 0, h[64];
    std::thread([&] { cudaMemcpy(&sum, d_sum, sizeof sum, cudaMemcpyDeviceToHost); }).join();
    cudaMemcpy(h, d, sizeof h, cudaMemcpyDefault);
    thrust::sort(h, h + 64);
    printf("%d %d %d %d %d\n", sum, h[1], (int)v[2], own[3], thrust::reduce(thrust::device, d, d + 64));
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sanitize", "plain"])
def test_what_the_host_may_touch_is_no_finding(compiler, mode, program):
    ran = program(RIGHT, mode=mode)
    assert (ran.stdout, ran.errors, ran.crash) == ("2143 3 9 1 2143\n", [], ""), ran.stderr


BOTH_SIDES = r"""
#include <cstdio>
#include <cuda_runtime.h>
struct Array {
    int *on_host, *on_device;
    __host__ __device__ int& operator[](int i) const {
#ifdef __CUDA_ARCH__
        return on_device[i];
#else
        return on_host[i];
#endif
    }
    __host__ __device__ int first() const {
#ifndef __CUDA_ARCH__
        return on_host[0];
#else
        int i = 0;
        return on_device[i];
#endif
    }
};
__global__ void one(Array a) { a[threadIdx.x] += 1; }
int main() {
    Array a = {new int[64](), nullptr};
    cudaMalloc(&a.on_device, 256);
    cudaMemset(a.on_device, 0, 256);
    one<<<1, 64>>>(a);
    printf("%d\n", a.first());
    return 0;
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sanitize", "plain"])
def test_what_nvcc_compiles_for_the_device_alone_is_no_finding(mode, program):
    ran = program(BOTH_SIDES, mode=mode)
    assert (ran.status, ran.stdout, ran.errors, ran.crash) == (0, "1\n", [], "")


def test_conditions_on_the_architecture():
    text = BOTH_SIDES.replace("return on_device[i];", "return on_device[i]; // HERE")
    assert all(is_for_device(text, line) for line in line_of(text, "// HERE"))
    assert not any(is_for_device(text, line) for line in (4, 12, *line_of(text, "return 0;")))


UNKNOWN = r"""
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>
__global__ void twice(float* x) { x[threadIdx.x] *= 2; }
int main(int argc, char**) {
    float local[64] = {}, *d_x;
    std::vector<float> v(64);
    float* given[] = {local, v.data(), (float*)malloc(256)};
    cudaMalloc(&d_x, 256);
    printf("%s ", cudaGetErrorName(cudaMemcpy(local, v.data(), 256, cudaMemcpyDeviceToHost)));
    printf("%s ", cudaGetErrorName(cudaMemcpy(local, v.data(), 256, cudaMemcpyHostToDevice)));
    printf("%s ", cudaGetErrorName(cudaMemcpy(local, d_x, 256, (cudaMemcpyKind)9)));
    printf("%s ", cudaGetErrorName(cudaMemset(local, 0, 256)));
    printf("%s\n", cudaGetErrorName(cudaFree(local)));
    twice<<<1, 64>>>(given[argc - 1]);
}
"""


@pytest.mark.slow
def test_a_kernel_that_follows_a_pointer_of_the_host_is_found(compiler, program):
    for arguments in ([], ["1"], ["1", "2"]):
        ran = program(UNKNOWN, arguments=arguments)
        *misuse, error = ran.errors
        assert {e["kind"] for e in misuse} == {"misuse"} and len(misuse) == 4     # the unknown direction is none
        assert ((error["kind"], error["line"]) == ("out of bounds", 6)
                and "not in device memory" in error["message"])
        assert ran.stdout == ("cudaErrorInvalidValue cudaErrorInvalidValue cudaErrorInvalidMemcpyDirection "
                              "cudaErrorInvalidValue cudaErrorInvalidValue\n")
