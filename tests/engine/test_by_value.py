"""Structs that a call copies from or to memory are counted, or refused where a judge counts."""
import pytest
import torch

from adversaries import cheats
import laptop_cuda as cuda
from engine_kit import COMPILERS, use_compiler

GOOD = """#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_fp16.h>
#include <mma.h>
namespace cg = cooperative_groups;
using namespace nvcuda;
struct State { float m, sum; };
struct Added { float v; __device__ void add(float x) { v += x; } };
__device__ State merged(State a, State b) {
    State r;
    r.m = fmaxf(a.m, b.m);
    r.sum = a.sum * expf(a.m - r.m) + b.sum * expf(b.m - r.m);
    return r;
}
template <typename T> __device__ T twice(T v) { return v + v; }
__device__ float square(float v) { return v * v; }
__device__ float of(float (*f)(float), float v) { return f(v); }
__device__ float part(double (*f)(double, double*), double v) { double whole; return f(v, &whole); }
__device__ float first(float4 v) { return v.x; }
__device__ int wide(dim3 d) { return d.x; }
__device__ float reduced(cg::thread_block_tile<32> tile, float v) { return cg::reduce(tile, v, cg::plus<float>()); }
__global__ void states(const float* __restrict__ x, float* __restrict__ out) {
    __shared__ State kept[64];
    int t = threadIdx.x;
    State mine = {x[t], 1.0f};
    kept[t] = mine;
    __syncthreads();
    for (int d = 32; d > 0; d /= 2) {
        if (t < d) { State a = kept[t], b = kept[t + d]; a = merged(a, b); kept[t] = a; }
        __syncthreads();
    }
    if (t == 0) out[0] = kept[0].m + logf(kept[0].sum);
}
__global__ void others(const float* __restrict__ x, float* __restrict__ out) {
    __shared__ Added sums[32];
    int t = threadIdx.x;
    sums[t].v = 0;
    sums[t].add(x[t]);
    auto at = [&](int i) { return x[i]; };
    auto same = at;
    const __half2* h = (const __half2*)x;
    ((float4*)out)[t] = make_float4(first(((const float4*)x)[t % 2]), same(t), of(square, x[t]), of(expf, x[t]));
    ((__half2*)out)[200 + t] = __hmul2(h[t], h[t]);
    out[300 + t] = twice(wide(blockDim)) + reduced(cg::tiled_partition<32>(cg::this_thread_block()), x[t]) + sums[t].v;
    out[400 + t] = of(__sinf, x[t]) + of(&rsqrtf, x[t]) + part(&modf, x[t]);
    printf("of (*x) [a:1:2] gimple_call <of, _1, *x> %f\\n", x[t]);
}
__global__ void product(const __half* a, const __half* b, float* c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}
"""


def judged(source: str):
    with cuda.only_kernels(counted=True), cuda.sanitize():
        return cuda.compile(source)


def test_structs_that_are_the_kernels_own_may_be_passed_and_returned():
    x, out = torch.randn(64), torch.zeros(1)
    judged(GOOD).states[1, 64](x, out)
    torch.testing.assert_close(out[0], x.logsumexp(0))


@pytest.mark.parametrize("name", cheats.UNCOUNTED)
def test_a_copy_that_is_not_counted_is_refused(name, monkeypatch):
    monkeypatch.setenv("CXX", "g++")
    with pytest.raises(cuda.NotAllowed, match="straight from memory"):
        judged(cheats.COPIES[name])


COUNTED = [n for n in cheats.COPIES if n not in cheats.UNCOUNTED]


@pytest.mark.parametrize("compiler", [*COMPILERS, pytest.param("clang++-19", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == "a struct by value" else pytest.mark.slow)
                          for n in COUNTED])
def test_any_other_copy_is_counted(name, compiler, monkeypatch):
    """Each block reads 64 numbers, or as many bytes of structs as fit into them."""
    use_compiler(monkeypatch, compiler)
    with cuda.only_kernels(counted=True), cuda.profile() as report:
        cuda.compile(cheats.COPIES[name]).row_sums[2, 32](torch.randn(64 * 64), torch.zeros(64), 64)
    launch = report.launches[0]
    assert (launch.global_load.bytes >= 2 * 4 * (54 if name == "a file by value" else 56)
            and launch.global_store.bytes >= 2 * 4)
