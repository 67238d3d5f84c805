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

#define WARP_SIZE 32
#define INT4(value) (reinterpret_cast<int4*>(&(value))[0])
#define FLOAT4(value) (reinterpret_cast<float4*>(&(value))[0])
#define HALF2(value) (reinterpret_cast<half2*>(&(value))[0])
#define LDST128BITS(value) (reinterpret_cast<float4*>(&(value))[0])
#define FETCH_FLOAT4(pointer) (reinterpret_cast<float4*>(&(pointer))[0])
#define OFFSET(row, col, ld) ((row) * (ld) + (col))
#define CUDA_CHECK(call) do { cudaError_t err = call; if (err != cudaSuccess) { fprintf(stderr, "%s\n", cudaGetErrorString(err)); exit(1); } } while (0)
#define cdiv(a, b) (((a) + (b) - 1) / (b))
using uint = unsigned int;
// ---- vectors by cast
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
union Converter { float4 v; float f[4]; int i[4]; };
__global__ void through_a_union(const float4* in, float4* out) {
    Converter c;
    c.v = in[threadIdx.x];
    for (int k = 0; k < 4; ++k) c.f[k] = c.f[k] * 2 + k;
    c.i[0] ^= 0x80000000;
    out[threadIdx.x] = c.v;
}
__device__ inline float4 operator+(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }
__device__ inline float4 operator*(float s, float4 a) { return make_float4(s * a.x, s * a.y, s * a.z, s * a.w); }
__device__ inline void operator+=(float4& a, float4 b) { a.x += b.x; a.y += b.y; a.z += b.z; a.w += b.w; }
__global__ void vector_operators(const float4* a, const float4* b, float4* c) {
    float4 sum = {0};
    sum += a[threadIdx.x];
    sum = sum + 2.0f * b[threadIdx.x];
    c[threadIdx.x] = sum;
}
// ---- shared memory, the templated way
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
template <const int kWarpSize = WARP_SIZE> __device__ __forceinline__ float warp_reduce_sum_f32(float val) {
#pragma unroll
    for (int mask = kWarpSize >> 1; mask >= 1; mask >>= 1) val += __shfl_xor_sync(0xffffffff, val, mask);
    return val;
}
template <const int NUM_THREADS = 256> __device__ float block_reduce_sum_f32(float val) {
    constexpr int NUM_WARPS = (NUM_THREADS + WARP_SIZE - 1) / WARP_SIZE;
    int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
    static __shared__ float shared[NUM_WARPS];
    float value = warp_reduce_sum_f32<WARP_SIZE>(val);
    if (lane == 0) shared[warp] = value;
    __syncthreads();
    value = (lane < NUM_WARPS) ? shared[lane] : 0.0f;
    value = warp_reduce_sum_f32<NUM_WARPS>(value);
    value = __shfl_sync(0xffffffff, value, 0, 32);
    return value;
}
template <const int NUM_THREADS = 128>
__global__ void rms_norm_f32x4(float* x, float* y, float g, int N, int K) {
    int tid = threadIdx.x, bid = blockIdx.x, idx = (bid * blockDim.x + threadIdx.x) * 4;
    const float epsilon = 1e-5f;
    __shared__ float s_variance;
    float4 reg_x = FLOAT4(x[idx]);
    float variance = (idx < N * K) ? (reg_x.x * reg_x.x + reg_x.y * reg_x.y + reg_x.z * reg_x.z + reg_x.w * reg_x.w) : 0.0f;
    variance = block_reduce_sum_f32<NUM_THREADS>(variance);
    if (tid == 0) s_variance = rsqrtf(variance / (float)K + epsilon);
    __syncthreads();
    float4 reg_y;
    reg_y.x = reg_x.x * s_variance * g;
    reg_y.y = reg_x.y * s_variance * g;
    reg_y.z = reg_x.z * s_variance * g;
    reg_y.w = reg_x.w * s_variance * g;
    if (idx < N * K) FLOAT4(y[idx]) = reg_y;
}
template <const int BLOCK_SIZE_M, const int BLOCK_SIZE_K, const int BLOCK_SIZE_N, const int TM, const int TN>
__global__ void sgemm_prefetch(float* __restrict__ A, float* __restrict__ B, float* __restrict__ C, const int M, const int N, const int K) {
    const int bx = blockIdx.x, by = blockIdx.y, tx = threadIdx.x, ty = threadIdx.y;
    const int tid = ty * (BLOCK_SIZE_N / TN) + tx, threads = (BLOCK_SIZE_M / TM) * (BLOCK_SIZE_N / TN);
    __shared__ float As[2][BLOCK_SIZE_K][BLOCK_SIZE_M];
    __shared__ float Bs[2][BLOCK_SIZE_K][BLOCK_SIZE_N];
    float accum[TM][TN] = {0}, frag_a[TM], frag_b[TN];
    float4 ldg_a, ldg_b;
    const int a_row = tid / (BLOCK_SIZE_K / 4), a_col = tid % (BLOCK_SIZE_K / 4) * 4;
    const int b_row = tid / (BLOCK_SIZE_N / 4), b_col = tid % (BLOCK_SIZE_N / 4) * 4;
    static_assert((BLOCK_SIZE_M / TM) * (BLOCK_SIZE_N / TN) * 4 == BLOCK_SIZE_M * BLOCK_SIZE_K, "one float4 of A a thread");
    ldg_a = FETCH_FLOAT4(A[OFFSET(BLOCK_SIZE_M * by + a_row, a_col, K)]);
    As[0][a_col][a_row] = ldg_a.x;
    As[0][a_col + 1][a_row] = ldg_a.y;
    As[0][a_col + 2][a_row] = ldg_a.z;
    As[0][a_col + 3][a_row] = ldg_a.w;
    FETCH_FLOAT4(Bs[0][b_row][b_col]) = FETCH_FLOAT4(B[OFFSET(b_row, b_col + BLOCK_SIZE_N * bx, N)]);
    __syncthreads();
    int write_stage = 1, tile = 0;
    do {
        tile += BLOCK_SIZE_K;
        if (tile < K) {
            ldg_a = FETCH_FLOAT4(A[OFFSET(BLOCK_SIZE_M * by + a_row, a_col + tile, K)]);
            ldg_b = FETCH_FLOAT4(B[OFFSET(tile + b_row, b_col + BLOCK_SIZE_N * bx, N)]);
        }
        const int load_stage = write_stage ^ 1;
#pragma unroll
        for (int j = 0; j < BLOCK_SIZE_K; ++j) {
            for (int m = 0; m < TM; m += 4) FETCH_FLOAT4(frag_a[m]) = FETCH_FLOAT4(As[load_stage][j][ty * TM + m]);
            for (int n = 0; n < TN; n += 4) FETCH_FLOAT4(frag_b[n]) = FETCH_FLOAT4(Bs[load_stage][j][tx * TN + n]);
            for (int m = 0; m < TM; ++m)
                for (int n = 0; n < TN; ++n) accum[m][n] += frag_a[m] * frag_b[n];
        }
        if (tile < K) {
            As[write_stage][a_col][a_row] = ldg_a.x;
            As[write_stage][a_col + 1][a_row] = ldg_a.y;
            As[write_stage][a_col + 2][a_row] = ldg_a.z;
            As[write_stage][a_col + 3][a_row] = ldg_a.w;
            FETCH_FLOAT4(Bs[write_stage][b_row][b_col]) = ldg_b;
            __syncthreads();
            write_stage ^= 1;
        }
    } while (tile < K);
    for (int m = 0; m < TM; ++m)
        for (int n = 0; n < TN; n += 4)
            FETCH_FLOAT4(C[OFFSET(BLOCK_SIZE_M * by + ty * TM + m, BLOCK_SIZE_N * bx + tx * TN + n, N)]) = FETCH_FLOAT4(accum[m][n]);
    (void)threads;
}
// ---- attention as vLLM's kernels are written
template <typename scalar_t, int VEC_SIZE> struct Vec {};
template <> struct Vec<float, 4> { using Type = float4; };
template <> struct Vec<__half, 2> { using Type = __half2; };
template <typename scalar_t, int HEAD_SIZE, int BLOCK_SIZE, int NUM_THREADS>
__global__ void paged_v1(scalar_t* __restrict__ out, const scalar_t* __restrict__ q, const scalar_t* __restrict__ k_cache,
                         const scalar_t* __restrict__ v_cache, const float scale, const int* __restrict__ block_tables,
                         const int* __restrict__ seq_lens, const int max_num_blocks_per_seq) {
    constexpr int THREAD_GROUP_SIZE = WARP_SIZE / BLOCK_SIZE > 1 ? WARP_SIZE / BLOCK_SIZE : 1;
    constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE, ELEMS = HEAD_SIZE / THREAD_GROUP_SIZE;
    const int seq_idx = blockIdx.y, head_idx = blockIdx.x, num_heads = gridDim.x, thread_idx = threadIdx.x;
    const int warp_idx = thread_idx / WARP_SIZE, lane = thread_idx % WARP_SIZE;
    const int seq_len = seq_lens[seq_idx], num_blocks = cdiv(seq_len, BLOCK_SIZE);
    const int group_idx = lane / THREAD_GROUP_SIZE, group_offset = lane % THREAD_GROUP_SIZE;
    extern __shared__ char shared_mem[];
    float* logits = reinterpret_cast<float*>(shared_mem);
    __shared__ float red_smem[2 * NUM_WARPS];
    __shared__ float q_vecs[THREAD_GROUP_SIZE][ELEMS];
    for (int i = thread_idx; i < HEAD_SIZE; i += NUM_THREADS)
        q_vecs[i % THREAD_GROUP_SIZE][i / THREAD_GROUP_SIZE] = float(q[(seq_idx * num_heads + head_idx) * HEAD_SIZE + i]);
    __syncthreads();
    const int* block_table = block_tables + seq_idx * max_num_blocks_per_seq;
    float qk_max = -FLT_MAX;
    for (int block_idx = warp_idx; block_idx < num_blocks; block_idx += NUM_WARPS) {
        const int64_t physical = static_cast<int64_t>(block_table[block_idx]);
        const int token_idx = block_idx * BLOCK_SIZE + group_idx;
        const scalar_t* k_ptr = k_cache + (physical * num_heads + head_idx) * HEAD_SIZE * BLOCK_SIZE + group_idx * HEAD_SIZE;
        float qk = 0;
        for (int j = 0; j < ELEMS; j++) qk += q_vecs[group_offset][j] * float(k_ptr[j * THREAD_GROUP_SIZE + group_offset]);
#pragma unroll
        for (int mask = THREAD_GROUP_SIZE / 2; mask >= 1; mask /= 2) qk += __shfl_xor_sync(uint32_t(-1), qk, mask);
        qk *= scale;
        if (group_offset == 0) {
            const bool masked = token_idx >= seq_len;
            logits[token_idx] = masked ? 0.f : qk;
            qk_max = masked ? qk_max : fmaxf(qk_max, qk);
        }
    }
    for (int mask = WARP_SIZE / 2; mask >= THREAD_GROUP_SIZE; mask /= 2) qk_max = fmaxf(qk_max, __shfl_xor_sync(uint32_t(-1), qk_max, mask));
    if (lane == 0) red_smem[warp_idx] = qk_max;
    __syncthreads();
    qk_max = lane < NUM_WARPS ? red_smem[lane] : -FLT_MAX;
    for (int mask = NUM_WARPS / 2; mask >= 1; mask /= 2) qk_max = fmaxf(qk_max, __shfl_xor_sync(uint32_t(-1), qk_max, mask));
    qk_max = __shfl_sync(uint32_t(-1), qk_max, 0);
    float exp_sum = 0.f;
    for (int i = thread_idx; i < seq_len; i += NUM_THREADS) {
        float val = __expf(logits[i] - qk_max);
        logits[i] = val;
        exp_sum += val;
    }
    for (int mask = WARP_SIZE / 2; mask >= 1; mask /= 2) exp_sum += __shfl_xor_sync(uint32_t(-1), exp_sum, mask);
    if (lane == 0) red_smem[NUM_WARPS + warp_idx] = exp_sum;
    __syncthreads();
    exp_sum = lane < NUM_WARPS ? red_smem[NUM_WARPS + lane] : 0.f;
    for (int mask = NUM_WARPS / 2; mask >= 1; mask /= 2) exp_sum += __shfl_xor_sync(uint32_t(-1), exp_sum, mask);
    exp_sum = __shfl_sync(uint32_t(-1), exp_sum, 0);
    const float inv_sum = __fdividef(1.f, exp_sum + 1e-6f);
    for (int i = thread_idx; i < seq_len; i += NUM_THREADS) logits[i] *= inv_sum;
    __syncthreads();
    for (int c = thread_idx; c < HEAD_SIZE; c += NUM_THREADS) {
        float acc = 0.f;
        for (int t = 0; t < seq_len; ++t) {
            const int64_t physical = block_table[t / BLOCK_SIZE];
            acc += logits[t] * float(v_cache[((physical * num_heads + head_idx) * BLOCK_SIZE + t % BLOCK_SIZE) * HEAD_SIZE + c]);
        }
        out[(seq_idx * num_heads + head_idx) * HEAD_SIZE + c] = scalar_t(acc);
    }
}
namespace kernels { namespace detail {
struct MultiplyAdd {
    float a;
    __device__ __forceinline__ float operator()(float x, float y) const { return fmaf(a, x, y); }
};
template <typename Op, typename T, typename... Rest>
__global__ void elementwise(T* out, int n, Op op, const T* first, const Rest*... rest) {
    const int stride = blockDim.x * gridDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) out[i] = op(first[i], rest[i]...);
}
} }
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


@case
def through_a_union():
    x = randn(32, 4)
    want = x * 2 + torch.arange(4)
    want[:, 0] *= -1
    return Run("through_a_union", 1, 32, (x, blank(32, 4)), {1: want})


launch("vector_operators", 1, 32, lambda a=randn(32, 4), b=randn(32, 4, seed=1): ((a, b, blank(32, 4)),
       {2: a + 2 * b}))
launch("reduce6<float, 128, false>", 1, 128, lambda x=randn(1000): ((x, blank(1), 1000),
       {1: x.sum()[None]}), shared=512)
launch("reduce6<int, 256, false>", 1, 256, lambda x=integers(1000, 100):
       ((x, blank(1, like=torch.int32), 1000), {1: x.sum()[None].int()}), shared=1024)
launch("reduce_unrolled<128>", 1, 128, lambda x=randn(128): ((x, blank(1)), {1: x.sum()[None]}))
launch("rms_norm_f32x4<128>", 4, 128, lambda x=randn(4, 512): ((x, blank(4, 512), 1.5, 4, 512),
       {1: 1.5 * torch.nn.functional.rms_norm(x, (512,), eps=1e-5)}))
launch("sgemm_prefetch<32, 8, 32, 4, 4>", (2, 2), (8, 8), lambda a=randn(64, 32), b=randn(32, 64, seed=1):
       ((a, b, blank(64, 64), 64, 64, 32), {2: a @ b}))


@case
def paged_v1():
    heads, d, page, lengths = 2, 64, 16, [35, 16, 3]
    q, k = randn(3, heads, d), randn(6, heads, page, d, seed=1)
    v = randn(6, heads, page, d, seed=2)
    table = torch.tensor([[4, 1, 5], [0, -1, -1], [2, -1, -1]], dtype=torch.int32)
    want = torch.zeros(3, heads, d)
    for s, n in enumerate(lengths):
        used = table[s, :(n + page - 1) // page].long()
        keys, values = (c[used].permute(1, 0, 2, 3).reshape(heads, -1, d)[:, :n] for c in (k, v))
        want[s] = torch.nn.functional.scaled_dot_product_attention(q[s][:, None], keys, values)[:, 0]
    return Run("paged_v1<float, 64, 16, 128>", (heads, 3), 128,
               (blank(3, heads, d), q, k, v, 0.125, table, torch.tensor(lengths, dtype=torch.int32), 3),
               {0: want}, shared=4 * 48)


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
