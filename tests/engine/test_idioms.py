"""The idioms of published CUDA code, each in a small kernel: right, and not one false alarm, in three orders."""
from typing import Callable

import torch
from engine_kit import compiled, counted
from test_clean import Run, blank, both_tests, listing, randn

SOURCE = r"""
#include <cuda_fp16.h>

#define FLOAT4(value) (reinterpret_cast<float4*>(&(value))[0])
#define HALF2(value) (reinterpret_cast<half2*>(&(value))[0])
#define LDST128BITS(value) (reinterpret_cast<float4*>(&(value))[0])

__global__ void macro_float4(float* a, float* b, float* c, int N) {
    int idx = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (idx < N) {
        float4 reg_a = FLOAT4(a[idx]);
        float4 reg_b = FLOAT4(b[idx]);
        float4 reg_c;
        reg_c.x = reg_a.x + reg_b.x;
        reg_c.y = reg_a.y + reg_b.y;
        reg_c.z = reg_a.z + reg_b.z;
        reg_c.w = reg_a.w + reg_b.w;
        FLOAT4(c[idx]) = reg_c;
    }
}
__global__ void packed_halves(half* a, half* b, half* c, int N) {
    int idx = 8 * (blockIdx.x * blockDim.x + threadIdx.x);
    half pack_a[8], pack_b[8], pack_c[8];
    if (idx + 7 < N) {
        LDST128BITS(pack_a[0]) = LDST128BITS(a[idx]);
        LDST128BITS(pack_b[0]) = LDST128BITS(b[idx]);
#pragma unroll
        for (int i = 0; i < 8; i += 2) HALF2(pack_c[i]) = __hadd2(HALF2(pack_a[i]), HALF2(pack_b[i]));
        LDST128BITS(c[idx]) = LDST128BITS(pack_c[0]);
    } else { for (int i = 0; idx + i < N; i++) c[idx + i] = __hadd(a[idx + i], b[idx + i]); }
}
template <class T> struct Dynamic { __device__ operator T*() { extern __shared__ int bytes[]; return (T*)bytes; } };
template <class T> __global__ void turned(const T* x, T* y) {
    T* s = Dynamic<T>();
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
__global__ void early_continue(const int* mask, const float* x, float* y, int rows, int cols) {
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        if (!mask[row]) continue;
        __shared__ float total;
        if (threadIdx.x == 0) total = 0;
        __syncthreads();
        float sum = 0;
        for (int c = threadIdx.x; c < cols; c += blockDim.x) sum += x[row * cols + c];
        atomicAdd(&total, sum);
        __syncthreads();
        if (threadIdx.x == 0) y[row] = total;
        __syncthreads();
    }
}
"""

CASES: dict[str, Callable[[], Run]] = {}
case, launch = listing(CASES)
launch("macro_float4", 2, 128, lambda a=randn(1024), b=randn(1024, seed=1): ((a, b, blank(1024), 1024),
       {2: a + b}))
launch("packed_halves", 1, 64, lambda a=randn(500).half(), b=randn(500, seed=1).half():
       ((a, b, blank(500, like=torch.float16), 500), {2: a + b}))
launch("turned<float>", 1, 64, lambda x=randn(64): ((x, blank(64)), {1: x.flip(0)}), shared=256)
launch("early_continue", 2, 64, lambda x=randn(6, 50),
       mask=torch.tensor([1, 0, 1, 1, 0, 1], dtype=torch.int32): ((mask, x, torch.zeros(6), 6, 50),
       {2: x.sum(1) * mask}))


test_right_and_without_a_false_alarm, test_counts_do_not_depend_on_the_order = both_tests(SOURCE, CASES)


def test_casts_to_vectors_are_one_request_of_their_width():
    """2 blocks of 4 warps, two loads and a store of 16 bytes per lane: 512 bytes, 16 sectors each."""
    run = CASES["macro_float4"]()
    launch = counted(compiled(SOURCE).macro_float4, run.grid, run.block, *run.args)
    assert (launch.global_load.requests, launch.global_load.sectors) == (16, 256)
    assert (launch.global_store.requests, launch.global_store.sectors) == (8, 128)
