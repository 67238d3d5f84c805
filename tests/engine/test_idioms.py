"""The idioms of published CUDA code, each in a small kernel: right, and not one false alarm, in three orders."""
from typing import Callable

import pytest
import torch
from engine_kit import compiled, counted
from test_clean import Run, blank, both_tests, integers, listing, randn

SOURCE = r"""
#include <cstdio>
#include <cstdlib>
#include <cmath>
#include <cfloat>
#include <algorithm>
#include <vector>
#include <cuda.h>
#include <cuda_runtime.h>
#include <device_launch_parameters.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#define FLOAT4(value) (reinterpret_cast<float4*>(&(value))[0])
#define HALF2(value) (reinterpret_cast<half2*>(&(value))[0])
#define LDST128BITS(value) (reinterpret_cast<float4*>(&(value))[0])
#define CUDA_CHECK(call) do { cudaError_t err = call; if (err != cudaSuccess) { fprintf(stderr, "%s\n", cudaGetErrorString(err)); exit(1); } } while (0)
#define cdiv(a, b) (((a) + (b) - 1) / (b))

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
template <class ElementType> struct alignas(16) Packed128 {
    Packed128() = default;
    __device__ explicit Packed128(int4 bits) {
        static_assert(sizeof(bits) == sizeof(payload), "Size mismatch.");
        memcpy(&payload, &bits, sizeof(bits));
    }
    __device__ ElementType& operator[](int index) { return payload[index]; }
    __device__ const ElementType& operator[](int index) const { return payload[index]; }
    __device__ int4 get_bits() const {
        int4 bits;
        static_assert(sizeof(bits) == sizeof(payload), "Size mismatch.");
        memcpy(&bits, &payload, sizeof(bits));
        return bits;
    }
    static constexpr const size_t size = sizeof(int4) / sizeof(ElementType);
    ElementType payload[size];
};
template <class ElementType> __device__ Packed128<ElementType> load128(const ElementType* address) {
    return Packed128<ElementType>{*reinterpret_cast<const int4*>(address)};
}
template <class ElementType> __device__ void store128(ElementType* target, Packed128<ElementType> value) {
    *reinterpret_cast<int4*>(target) = value.get_bits();
}
typedef Packed128<float> f128;
typedef Packed128<__nv_bfloat16> x128;
__global__ void packed_residual(__nv_bfloat16* out, const __nv_bfloat16* inp1, const __nv_bfloat16* inp2) {
    int idx = (blockIdx.x * blockDim.x + threadIdx.x) * x128::size;
    x128 packed_out;
    const x128 packed_inp1 = load128(inp1 + idx);
    const x128 packed_inp2 = load128(inp2 + idx);
    for (int k = 0; k < packed_inp1.size; k++) packed_out[k] = (__nv_bfloat16)((float)packed_inp1[k] + (float)packed_inp2[k]);
    store128(out + idx, packed_out);
}
template <class T> struct SharedMemory {
    __device__ inline operator T*() { extern __shared__ int __smem[]; return (T*)__smem; }
    __device__ inline operator const T*() const { extern __shared__ int __smem[]; return (T*)__smem; }
};
template <class T, unsigned int blockSize, bool nIsPow2>
__global__ void reduce6(T* g_idata, T* g_odata, unsigned int n) {
    T* sdata = SharedMemory<T>();
    unsigned int tid = threadIdx.x, i = blockIdx.x * blockSize * 2 + threadIdx.x, gridSize = blockSize * 2 * gridDim.x;
    T mySum = 0;
    while (i < n) {
        mySum += g_idata[i];
        if (nIsPow2 || i + blockSize < n) mySum += g_idata[i + blockSize];
        i += gridSize;
    }
    sdata[tid] = mySum;
    __syncthreads();
    if ((blockSize >= 512) && (tid < 256)) sdata[tid] = mySum = mySum + sdata[tid + 256];
    __syncthreads();
    if ((blockSize >= 256) && (tid < 128)) sdata[tid] = mySum = mySum + sdata[tid + 128];
    __syncthreads();
    if ((blockSize >= 128) && (tid < 64)) sdata[tid] = mySum = mySum + sdata[tid + 64];
    __syncthreads();
    cooperative_groups::thread_block cta = cooperative_groups::this_thread_block();
    cooperative_groups::thread_block_tile<32> tile32 = cooperative_groups::tiled_partition<32>(cta);
    if (cta.thread_rank() < 32) {
        if (blockSize >= 64) mySum += sdata[tid + 32];
        for (int offset = tile32.size() / 2; offset > 0; offset /= 2) mySum += tile32.shfl_down(mySum, offset);
    }
    if (cta.thread_rank() == 0) g_odata[blockIdx.x] = mySum;
}
template <unsigned int blockSize> __device__ void warpReduce(volatile float* sdata, unsigned int tid) {
    float v = sdata[tid];
    if (blockSize >= 64) { v += sdata[tid + 32]; __syncwarp(); sdata[tid] = v; __syncwarp(); }
    v += sdata[tid + 16]; __syncwarp(); sdata[tid] = v; __syncwarp();
    v += sdata[tid + 8]; __syncwarp(); sdata[tid] = v; __syncwarp();
    v += sdata[tid + 4]; __syncwarp(); sdata[tid] = v; __syncwarp();
    v += sdata[tid + 2]; __syncwarp(); sdata[tid] = v; __syncwarp();
    v += sdata[tid + 1]; __syncwarp(); sdata[tid] = v;
}
template <unsigned int blockSize> __global__ void reduce_unrolled(const float* in, float* out) {
    __shared__ volatile float sdata[blockSize + 32];
    unsigned int tid = threadIdx.x;
    sdata[tid] = in[tid];
    if (tid < 32) sdata[blockSize + tid] = 0;
    __syncthreads();
    if (blockSize >= 128) { if (tid < 64) { sdata[tid] += sdata[tid + 64]; } __syncthreads(); }
    if (tid < 32) warpReduce<blockSize>(sdata, tid);
    if (tid == 0) out[0] = sdata[0];
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
void launch_all(float* x, float* y, int n) {
    dim3 block(128);
    dim3 grid(cdiv(n, 4 * 128));
    float* d_x;
    CUDA_CHECK(cudaMalloc(&d_x, n * sizeof(float)));
    CUDA_CHECK(cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice));
    macro_float4<<<grid, block>>>(d_x, d_x, y, n);
    reduce_unrolled<128><<<1, 128>>>(d_x, y);
    CUDA_CHECK(cudaGetLastError());
    cudaFree(d_x);
}
int main(int argc, char** argv) {
    std::vector<float> host(1024);
    printf("not the kernels\n");
    launch_all(host.data(), host.data(), 1024);
    return 0;
}
"""

CASES: dict[str, Callable[[], Run]] = {}
case, launch = listing(CASES)
launch("macro_float4", 2, 128, lambda a=randn(1024), b=randn(1024, seed=1): ((a, b, blank(1024), 1024),
       {2: a + b}))
launch("packed_halves", 1, 64, lambda a=randn(500).half(), b=randn(500, seed=1).half():
       ((a, b, blank(500, like=torch.float16), 500), {2: a + b}))
launch("packed_residual", 1, 64, lambda a=randn(512).bfloat16(), b=randn(512, seed=1).bfloat16():
       ((blank(512, like=torch.bfloat16), a, b), {0: a + b}))
launch("reduce6<float, 128, false>", 1, 128, lambda x=randn(1000): ((x, blank(1), 1000),
       {1: x.sum()[None]}), shared=512)
launch("reduce6<int, 256, false>", 1, 256, lambda x=integers(1000, 100):
       ((x, blank(1, like=torch.int32), 1000), {1: x.sum()[None].int()}), shared=1024)
launch("reduce_unrolled<128>", 1, 128, lambda x=randn(128): ((x, blank(1)), {1: x.sum()[None]}))
launch("early_continue", 2, 64, lambda x=randn(6, 50),
       mask=torch.tensor([1, 0, 1, 1, 0, 1], dtype=torch.int32): ((mask, x, torch.zeros(6), 6, 50),
       {2: x.sum(1) * mask}))


test_right_and_without_a_false_alarm, test_counts_do_not_depend_on_the_order = both_tests(SOURCE, CASES)


@pytest.mark.parametrize("name, loads, stores", [
    # 2 blocks of 4 warps, two loads and a store of 16 bytes per lane: 512 bytes, 16 sectors each.
    ("macro_float4", (16, 256), (8, 128)),
    # 2 warps of 32 lanes, 16 bytes each, two inputs: 4 requests of 16 sectors.
    ("packed_residual", (4, 64), (2, 32))])
def test_casts_to_vectors_are_one_request_of_their_width(name, loads, stores):
    run = CASES[name]()
    launch = counted(compiled(SOURCE)[name], run.grid, run.block, *run.args)
    assert (launch.global_load.requests, launch.global_load.sectors) == loads
    assert (launch.global_store.requests, launch.global_store.sectors) == stores
