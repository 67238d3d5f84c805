"""Correct kernels, as public teaching code has them: right, and not one false alarm, in three orders."""
import contextlib
import math
from dataclasses import dataclass
from typing import Callable

import pytest
import torch
import torch.nn.functional as F
from engine_kit import COUNTS, ORDERS, compiled

import laptop_cuda as cuda

SOURCE = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <float.h>
namespace cg = cooperative_groups;
#define FULL 0xffffffffu

// ================================================================ elementwise
__global__ void saxpy(int n, float a, const float* __restrict__ x, float* __restrict__ y) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) y[i] = a * x[i] + y[i];
}

// ================================================================ reductions
__global__ void reduce_shared(const float* in, float* out, int n) {
    extern __shared__ float sdata[];
    unsigned tid = threadIdx.x, i = blockIdx.x * blockDim.x * 2 + threadIdx.x;
    float mine = i < n ? in[i] : 0;
    if (i + blockDim.x < n) mine += in[i + blockDim.x];
    sdata[tid] = mine;
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = sdata[0];
}
__inline__ __device__ float warp_sum(float v) {
    for (int offset = warpSize / 2; offset > 0; offset /= 2) v += __shfl_down_sync(FULL, v, offset);
    return v;
}
__inline__ __device__ float block_sum(float v) {
    static __shared__ float shared[32];
    int lane = threadIdx.x % warpSize, wid = threadIdx.x / warpSize;
    v = warp_sum(v);
    if (lane == 0) shared[wid] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / warpSize ? shared[lane] : 0;
    if (wid == 0) v = warp_sum(v);
    return v;
}
__global__ void reduce_shuffle(const float* in, float* out, int n) {
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) sum += in[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) atomicAdd(out, sum);
}
__global__ void reduce_groups(const float* in, float* out, int n) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    __shared__ float partial[32];
    float v = 0;
    for (int i = block.thread_rank(); i < n; i += block.size()) v += in[i];
    v = cg::reduce(warp, v, cg::plus<float>{});
    if (warp.thread_rank() == 0) partial[warp.meta_group_rank()] = v;
    block.sync();
    if (warp.meta_group_rank() == 0) {
        v = warp.thread_rank() < warp.meta_group_size() ? partial[warp.thread_rank()] : 0.f;
        v = cg::reduce(warp, v, cg::plus<float>{});
        if (warp.thread_rank() == 0) out[0] = v;
    }
}
__global__ void arg_max(const float* in, int* where, int n) {
    float best = -FLT_MAX;
    int at = -1;
    for (int i = threadIdx.x; i < n; i += 32)
        if (in[i] > best) best = in[i], at = i;
    for (int d = 16; d > 0; d >>= 1) {
        float other = __shfl_xor_sync(FULL, best, d);
        int other_at = __shfl_xor_sync(FULL, at, d);
        if (other > best || (other == best && other_at < at)) best = other, at = other_at;
    }
    if (threadIdx.x == 0) *where = at;
}

// ================================================================ scans, sorting, counting
__global__ void scan_two_buffers(const float* in, float* out, int n) {
    extern __shared__ float temp[];
    int t = threadIdx.x, front = 0, back = 1;
    temp[t] = in[t];
    __syncthreads();
    for (int offset = 1; offset < n; offset *= 2) {
        front = 1 - front;
        back = 1 - front;
        if (t >= offset) temp[front * n + t] = temp[back * n + t] + temp[back * n + t - offset];
        else temp[front * n + t] = temp[back * n + t];
        __syncthreads();
    }
    out[t] = temp[front * n + t];
}
__global__ void scan_one_buffer(const float* in, float* out) {
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = in[t];
    for (int stride = 1; stride < blockDim.x; stride *= 2) {
        __syncthreads();
        float v = 0;
        if (t >= stride) v = s[t - stride];
        __syncthreads();
        if (t >= stride) s[t] += v;
    }
    out[t] = s[t];
}
__global__ void scan_blelloch(const float* in, float* out, int n) {
    extern __shared__ float tree[];
    int t = threadIdx.x, offset = 1;
    tree[2 * t] = in[2 * t];
    tree[2 * t + 1] = in[2 * t + 1];
    for (int d = n >> 1; d > 0; d >>= 1) {
        __syncthreads();
        if (t < d) tree[offset * (2 * t + 2) - 1] += tree[offset * (2 * t + 1) - 1];
        offset *= 2;
    }
    if (t == 0) tree[n - 1] = 0;
    for (int d = 1; d < n; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (t < d) {
            int a = offset * (2 * t + 1) - 1, b = offset * (2 * t + 2) - 1;
            float kept = tree[a];
            tree[a] = tree[b];
            tree[b] += kept;
        }
    }
    __syncthreads();
    out[2 * t] = tree[2 * t];
    out[2 * t + 1] = tree[2 * t + 1];
}
__global__ void scan_warp(const int* in, int* out) {
    int lane = threadIdx.x & 31, v = in[threadIdx.x];
    for (int d = 1; d < 32; d <<= 1) { int below = __shfl_up_sync(FULL, v, d); if (lane >= d) v += below; }
    out[threadIdx.x] = v;
}
__global__ void scan_groups(const int* in, int* out) {
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    out[threadIdx.x] = cg::exclusive_scan(tile, in[threadIdx.x], cg::plus<int>());
}
__global__ void histogram_shared(const int* value, int* bins, int n) {
    __shared__ int local[16];
    if (threadIdx.x < 16) local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&local[value[i]], 1);
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}
__global__ void bitonic_sort(float* data) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = data[t];
    __syncthreads();
    for (int k = 2; k <= 64; k <<= 1)
        for (int j = k >> 1; j > 0; j >>= 1) {
            int other = t ^ j;
            if (other > t) {
                bool up = (t & k) == 0;
                if ((s[t] > s[other]) == up) { float kept = s[t]; s[t] = s[other]; s[other] = kept; }
            }
            __syncthreads();
        }
    data[t] = s[t];
}
__global__ void compact(const int* in, int* out, int* count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    bool keep = i < n && in[i] % 3 == 0;
    unsigned votes = __ballot_sync(FULL, keep);
    int first = 0;
    if (lane == 0) first = atomicAdd(count, __popc(votes));
    first = __shfl_sync(FULL, first, 0);
    if (keep) out[first + __popc(votes & ((1u << lane) - 1))] = in[i];
}
__global__ void aggregated(const int* in, int* count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && in[i] > 0) {
        cg::coalesced_group active = cg::coalesced_threads();
        if (active.thread_rank() == 0) atomicAdd(count, (int)active.size());
    }
}
__global__ void atomic_float_max(const float* in, int* bits, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicMax(bits, __float_as_int(in[i]));     // positive floats order like their bits
}
__global__ void spin_lock(int* lock, int* counter) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();
        *counter += 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}

// ================================================================ transposes and products
#define TILE_DIM 32
#define BLOCK_ROWS 8
__global__ void transpose_tile(float* odata, const float* idata, int width, int height) {
    __shared__ float tile[TILE_DIM][TILE_DIM + 1];
    int x = blockIdx.x * TILE_DIM + threadIdx.x, y = blockIdx.y * TILE_DIM + threadIdx.y;
    for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
        if (x < width && y + j < height) tile[threadIdx.y + j][threadIdx.x] = idata[(y + j) * width + x];
    __syncthreads();
    x = blockIdx.y * TILE_DIM + threadIdx.x;
    y = blockIdx.x * TILE_DIM + threadIdx.y;
    for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
        if (x < height && y + j < width) odata[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
}
template <const int BLOCKSIZE>
__global__ void sgemm_shared(int M, int N, int K, const float* A, const float* B, float* C) {
    const uint cRow = blockIdx.x, cCol = blockIdx.y;
    __shared__ float As[BLOCKSIZE * BLOCKSIZE];
    __shared__ float Bs[BLOCKSIZE * BLOCKSIZE];
    const uint threadCol = threadIdx.x % BLOCKSIZE, threadRow = threadIdx.x / BLOCKSIZE;
    A += cRow * BLOCKSIZE * K;
    B += cCol * BLOCKSIZE;
    C += cRow * BLOCKSIZE * N + cCol * BLOCKSIZE;
    float tmp = 0.0;
    for (int bkIdx = 0; bkIdx < K; bkIdx += BLOCKSIZE) {
        As[threadRow * BLOCKSIZE + threadCol] = A[threadRow * K + threadCol];
        Bs[threadRow * BLOCKSIZE + threadCol] = B[threadRow * N + threadCol];
        __syncthreads();
        A += BLOCKSIZE;
        B += BLOCKSIZE * N;
        for (int dotIdx = 0; dotIdx < BLOCKSIZE; ++dotIdx)
            tmp += As[threadRow * BLOCKSIZE + dotIdx] * Bs[dotIdx * BLOCKSIZE + threadCol];
        __syncthreads();
    }
    C[threadRow * N + threadCol] = tmp;
}
__global__ void matvec_warp_per_row(const float* __restrict__ a, const float* __restrict__ x, float* y, int rows, int cols) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float sum = 0;
    for (int c = lane; c < cols; c += 32) sum += a[row * cols + c] * x[c];
    for (int mask = 16; mask > 0; mask >>= 1) sum += __shfl_xor_sync(FULL, sum, mask);
    if (lane == 0) y[row] = sum;
}
__global__ void outer_in_shared_struct(const float* a, const float* b, float* out) {
    struct Pair { float left, right; };
    __shared__ Pair pair[32];
    pair[threadIdx.x].left = a[threadIdx.x];
    pair[threadIdx.x].right = b[threadIdx.x];
    __syncthreads();
    for (int j = 0; j < 32; ++j) out[threadIdx.x * 32 + j] = pair[threadIdx.x].left * pair[j].right;
}
__global__ void stencil(const float* in, float* out, int n) {
    __shared__ float s[64 + 2];
    int i = blockIdx.x * 64 + threadIdx.x, t = threadIdx.x + 1;
    s[t] = i < n ? in[i] : 0;
    if (threadIdx.x == 0) s[0] = i > 0 ? in[i - 1] : 0;
    if (threadIdx.x == 63) s[65] = i + 1 < n ? in[i + 1] : 0;
    __syncthreads();
    if (i < n) out[i] = s[t - 1] + s[t] + s[t + 1];
}
__constant__ float mask_of_conv[5] = {1, 2, 3, 2, 1};
__global__ void convolution(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int k = -2; k <= 2; ++k)
        if (i + k >= 0 && i + k < n) sum += in[i + k] * mask_of_conv[k + 2];
    out[i] = sum;
}

// ================================================================ softmax and norms
struct __align__(8) SumMax { float maxval, sum; };
__device__ __forceinline__ SumMax merge(SumMax a, SumMax b) {
    bool a_bigger = a.maxval > b.maxval;
    SumMax bigger = a_bigger ? a : b, smaller = a_bigger ? b : a, result;
    result.maxval = bigger.maxval;
    result.sum = bigger.sum + smaller.sum * expf(smaller.maxval - bigger.maxval);
    return result;
}
__global__ void softmax_online(float* out, const float* inp, int N, int C) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    int idx = blockIdx.x * warp.meta_group_size() + warp.meta_group_rank();
    if (idx >= N) return;
    const float* x = inp + idx * C;
    SumMax own = {-INFINITY, 0.0f};
    for (int i = warp.thread_rank(); i < C; i += warp.size()) own = merge(own, {x[i], 1.0f});
    SumMax all = cg::reduce(warp, own, merge);
    for (int i = warp.thread_rank(); i < C; i += warp.size())
        __stcs(out + idx * C + i, expf(__ldcs(&x[i]) - all.maxval) / all.sum);
}
__global__ void cross_entropy_backward(float* dlogits, const float* probs, const int* targets, int B, int V) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < B * V) {
        int b = i / V, v = i % V;
        dlogits[i] = (probs[i] - (v == targets[b] ? 1.0f : 0.0f)) / B;
    }
}
__global__ void embedding_backward(float* dwte, const float* dout, const int* tokens, int T, int C) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < T * C) atomicAdd(&dwte[tokens[i / C] * C + i % C], dout[i]);
}

// ================================================================ attention
__global__ void flash_minimal(const float* Q, const float* K, const float* V, const int N, const int d, const int Tc,
                              const int Tr, const int Bc, const int Br, const float softmax_scale, float* l, float* m, float* O) {
    int tx = threadIdx.x, bx = blockIdx.x, by = blockIdx.y;
    int qkv_offset = (bx * gridDim.y * N * d) + (by * N * d), lm_offset = (bx * gridDim.y * N) + (by * N);
    extern __shared__ float sram[];
    int tile_size = Bc * d;
    float* Qi = sram;
    float* Kj = &sram[tile_size];
    float* Vj = &sram[tile_size * 2];
    float* S = &sram[tile_size * 3];
    for (int j = 0; j < Tc; j++) {
        for (int x = 0; x < d; x++) {
            Kj[(tx * d) + x] = K[qkv_offset + (tile_size * j) + (tx * d) + x];
            Vj[(tx * d) + x] = V[qkv_offset + (tile_size * j) + (tx * d) + x];
        }
        __syncthreads();
        for (int i = 0; i < Tr; i++) {
            for (int x = 0; x < d; x++) Qi[(tx * d) + x] = Q[qkv_offset + (tile_size * i) + (tx * d) + x];
            float row_m_prev = m[lm_offset + (Br * i) + tx], row_l_prev = l[lm_offset + (Br * i) + tx];
            float row_m = -INFINITY;
            for (int y = 0; y < Bc; y++) {
                float sum = 0;
                for (int x = 0; x < d; x++) sum += Qi[(tx * d) + x] * Kj[(y * d) + x];
                sum *= softmax_scale;
                S[(Bc * tx) + y] = sum;
                if (sum > row_m) row_m = sum;
            }
            float row_l = 0;
            for (int y = 0; y < Bc; y++) {
                S[(Bc * tx) + y] = __expf(S[(Bc * tx) + y] - row_m);
                row_l += S[(Bc * tx) + y];
            }
            float row_m_new = max(row_m_prev, row_m);
            float row_l_new = (__expf(row_m_prev - row_m_new) * row_l_prev) + (__expf(row_m - row_m_new) * row_l);
            for (int x = 0; x < d; x++) {
                float pv = 0;
                for (int y = 0; y < Bc; y++) pv += S[(Bc * tx) + y] * Vj[(y * d) + x];
                O[qkv_offset + (tile_size * i) + (tx * d) + x] = (1 / row_l_new) *
                    ((row_l_prev * __expf(row_m_prev - row_m_new) * O[qkv_offset + (tile_size * i) + (tx * d) + x]) +
                     (__expf(row_m - row_m_new) * pv));
            }
            m[lm_offset + (Br * i) + tx] = row_m_new;
            l[lm_offset + (Br * i) + tx] = row_l_new;
        }
        __syncthreads();
    }
}
template <int BR, int D>
__global__ void flash_two(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v,
                          float* __restrict__ o, int n, float scale) {
    __shared__ float ks[BR][D + 1], vs[BR][D + 1];
    int row = blockIdx.x * BR + threadIdx.x;
    float mine[D], acc[D], m = -INFINITY, l = 0;
    for (int c = 0; c < D; ++c) mine[c] = row < n ? q[row * D + c] * scale : 0.0f, acc[c] = 0;
    for (int start = 0; start < n; start += BR) {
        for (int i = threadIdx.x; i < BR * D; i += BR) {
            int r = start + i / D;
            ks[i / D][i % D] = r < n ? k[r * D + i % D] : 0.0f;
            vs[i / D][i % D] = r < n ? v[r * D + i % D] : 0.0f;
        }
        __syncthreads();
        int count = min(BR, n - start);
        for (int j = 0; j < count; ++j) {
            float s = 0;
            for (int c = 0; c < D; ++c) s += mine[c] * ks[j][c];
            float m_new = fmaxf(m, s), alpha = expf(m - m_new), p = expf(s - m_new);
            l = l * alpha + p;
            for (int c = 0; c < D; ++c) acc[c] = acc[c] * alpha + p * vs[j][c];
            m = m_new;
        }
        __syncthreads();
    }
    if (row < n)
        for (int c = 0; c < D; ++c) o[row * D + c] = acc[c] / l;
}

// ================================================================ warps, groups, exits
__global__ void partial_masks(const int* in, int* out) {
    int lane = threadIdx.x & 31;
    if (lane < 16) {
        int v = in[threadIdx.x];
        for (int d = 8; d > 0; d >>= 1) v += __shfl_down_sync(0x0000ffffu, v, d, 16);
        if (lane == 0) out[0] = v;
    } else {
        int v = in[threadIdx.x];
        for (int d = 8; d > 0; d >>= 1) v = max(v, __shfl_down_sync(0xffff0000u, v, d, 16));
        if (lane == 16) out[1] = v;
    }
}
__global__ void exited_lanes(const int* in, int* out, int n) {
    int t = threadIdx.x;
    if (t >= n) return;
    unsigned mask = __ballot_sync(FULL >> (32 - n), in[t] > 2);
    int any = __any_sync(FULL >> (32 - n), in[t] == 5), all = __all_sync(FULL >> (32 - n), in[t] >= 0);
    if (t == 0) out[0] = mask, out[1] = any, out[2] = all;
}
__global__ void return_within_the_loop(const float* in, float* out, int n) {
    __shared__ float tile[128];
    float v = in[threadIdx.x];
    int turn = 0;
    while (true) {                               // a warp that is done ends; the others go on without it
        tile[threadIdx.x] = v;
        __syncthreads();
        v += tile[threadIdx.x / 32 * 32];
        if (threadIdx.x / 32 == turn++) { out[threadIdx.x] = v; return; }
        __syncthreads();
    }
}
__global__ void skips_the_loop_and_ends(const float* in, float* out, int n) {
    __shared__ float tile[128];
    tile[threadIdx.x] = in[threadIdx.x];
    for (int i = threadIdx.x; i < n; i += blockDim.x) {      // warp 3 never enters it, and ends
        __syncthreads();
        out[i] = tile[i + 32];
    }
}
__global__ void early_return_before_barrier(const float* in, float* out, int n) {
    __shared__ float s[128];
    int t = threadIdx.x;
    if (t >= n) return;
    s[t] = in[t];
    __syncthreads();
    out[t] = s[n - 1 - t];
}
__global__ void warp_synchronous(const float* in, float* out) {
    __shared__ float rows[4][32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    rows[warp][lane] = in[threadIdx.x];
    __syncwarp();
    float v = rows[warp][31 - lane];
    __syncwarp();
    rows[warp][lane] = v * 2;
    __syncwarp();
    out[threadIdx.x] = rows[warp][lane ^ 1];
}
__global__ void tiles_of_eight(const float* in, float* out) {
    __shared__ float s[64];
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    s[threadIdx.x] = in[threadIdx.x];
    tile.sync();
    float v = s[tile.meta_group_rank() * 8 + (tile.thread_rank() + 1) % 8];
    v += tile.shfl_xor(v, 1);
    out[threadIdx.x] = tile.any(v > 100) ? v : tile.shfl(v, 0);
}
__global__ void grid_sync(const float* in, float* scratch, float* out) {
    cg::grid_group grid = cg::this_grid();
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    scratch[i] = in[i] * 2;
    grid.sync();
    out[i] = scratch[n - 1 - i];
}
__device__ float sum_of_16(float v) {
    __shared__ float s[64];
    s[threadIdx.x] = v;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < 16; ++i) sum += s[i];
    return sum;
}
__global__ void leaves_before_a_helper(const float* in, float* out) {
    float v = in[threadIdx.x];
    if (threadIdx.x >= 16) return;
    out[threadIdx.x] = sum_of_16(v);
}
__device__ float sum_of_lanes(float v) {
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffff, v, d);
    return v;
}
__global__ void lanes_leave_before_a_helper(const float* in, float* out, int n) {
    float v = in[threadIdx.x];
    if (threadIdx.x >= n) return;
    v = sum_of_lanes(threadIdx.x < 16 ? v : 0.0f);
    if (threadIdx.x == 0) out[0] = v < 0 ? -1.0f : 1.0f;
}
__global__ void barrier_then_leave(const float* in, float* out, int rounds) {
    __shared__ float s[64];
    int t = threadIdx.x;
    for (int k = 0; k < rounds; ++k) {
        s[t] = in[t] + k;
        __syncthreads();
        if (t > 60 - 20 * k) { out[t] = k; return; }
        out[t] = s[t ^ 1];
        __syncthreads();
    }
}
__global__ void producer_consumer(const float* in, float* out, int rounds) {
    __shared__ float ring[2][32];
    int lane = threadIdx.x % 32;
    bool producer = threadIdx.x < 32;
    if (producer) ring[0][lane] = in[lane];
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < rounds; ++k) {
        if (producer) {
            if (k + 1 < rounds) ring[(k + 1) % 2][lane] = in[(k + 1) * 32 + lane];
        } else { sum += ring[k % 2][31 - lane]; }
        __syncthreads();
    }
    if (!producer) out[lane] = sum;
}
__global__ void same_value(float* out) {
    __shared__ int found;
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    if (threadIdx.x % 7 == 3) found = 1;
    __syncthreads();
    out[threadIdx.x] = found;
}
__global__ void shared_views(const float* in, float* out) {
    __shared__ char raw[512];
    float* a = reinterpret_cast<float*>(raw);
    int* b = reinterpret_cast<int*>(raw + 256);
    int t = threadIdx.x;
    a[t] = in[t];
    b[63 - t] = t;
    __syncthreads();
    out[t] = a[b[t]];
}
"""


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def integers(n: int, high: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, high, (n,), generator=torch.Generator().manual_seed(seed), dtype=torch.int32)


@dataclass
class Run:
    """One launch: arguments, and what an argument must hold afterwards."""

    kernel: str
    grid: object
    block: object
    args: tuple
    want: dict[int, torch.Tensor]
    shared: int = 0


def listing(cases: dict[str, Callable[[], Run]]) -> tuple[Callable, Callable]:
    """Two ways to add to some cases: a decorator, and a row of a table, whose `make` gives `args` and `want`."""
    def case(make: Callable[[], Run]) -> Callable[[], Run]:
        return cases.setdefault(make.__name__, make)

    def launch(kernel: str, grid, block, make: Callable[[], tuple], shared: int = 0) -> None:
        cases[kernel] = lambda: Run(kernel, grid, block, *make(), shared)
    return case, launch


ORDERS_AND_PLAIN = [*ORDERS, pytest.param(None, id="plain")]
CASES: dict[str, Callable[[], Run]] = {}
case, launch = listing(CASES)


def blank(*shape: int, like: torch.dtype = torch.float32) -> torch.Tensor:
    """An output that must be written: uninitialised to the sanitizer."""
    return cuda.empty(*shape, dtype=like)


launch("saxpy", 3, 128, lambda x=randn(1000), y=randn(1000, seed=1): ((1000, 2.0, x, y.clone()),
       {3: 2 * x + y}))




@case
def reduce_shared():
    x = randn(1000)
    want = torch.stack([part.sum() for part in x.split(256)])
    return Run("reduce_shared", 4, 128, (x, blank(4), 1000), {1: want}, shared=512)


launch("reduce_shuffle", 4, 256, lambda x=randn(5000): ((x, torch.zeros(1), 5000), {1: x.sum()[None]}))
launch("reduce_groups", 1, 256, lambda x=randn(777): ((x, blank(1), 777), {1: x.sum()[None]}))
launch("arg_max", 1, 32, lambda x=randn(500): ((x, blank(1, like=torch.int32), 500),
       {1: x.argmax()[None].int()}))
launch("scan_two_buffers", 1, 128, lambda x=randn(128): ((x, blank(128), 128), {1: x.cumsum(0)}), shared=1024)
launch("scan_one_buffer", 1, 128, lambda x=randn(128): ((x, blank(128)), {1: x.cumsum(0)}))
launch("scan_blelloch", 1, 64, lambda x=randn(128): ((x, blank(128), 128), {1: x.cumsum(0) - x}), shared=512)
launch("scan_warp", 1, 64, lambda x=integers(64, 10): ((x, blank(64, like=torch.int32)),
       {1: x.view(2, 32).cumsum(1).view(64).int()}))


@case
def scan_groups():
    x = integers(64, 10)
    rows = x.view(4, 16)
    return Run("scan_groups", 1, 64, (x, blank(64, like=torch.int32)),
               {1: (rows.cumsum(1) - rows).view(64).int()})


launch("histogram_shared", 3, 64, lambda x=integers(1000, 16): ((x, torch.zeros(16, dtype=torch.int32), 1000),
       {1: x.bincount(minlength=16).int()}))
launch("bitonic_sort", 1, 64, lambda x=randn(64): ((x.clone(),), {0: x.sort().values}))
launch("aggregated", 2, 160, lambda x=integers(300, 5) - 2: ((x, torch.zeros(1, dtype=torch.int32), 300),
       {1: (x > 0).sum()[None].int()}))
launch("atomic_float_max", 2, 160, lambda x=randn(300).abs(): ((x, torch.zeros(1, dtype=torch.int32), 300),
       {1: x.max()[None].view(torch.int32)}))
launch("spin_lock", 5, 32, lambda: ((torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)),
       {0: torch.zeros(1).int(), 1: torch.tensor([5]).int()}))
launch("transpose_tile", (2, 3), (32, 8), lambda x=randn(70, 45): ((blank(45, 70), x, 45, 70), {0: x.t()}))
launch("sgemm_shared<16>", (4, 4), 256, lambda a=randn(64, 64), b=randn(64, 64, seed=1):
       ((64, 64, 64, a, b, blank(64, 64)), {5: a @ b}))
launch("matvec_warp_per_row", 3, 128, lambda a=randn(10, 100), x=randn(100, seed=1):
       ((a, x, blank(10), 10, 100), {2: a @ x}))
launch("outer_in_shared_struct", 1, 32, lambda a=randn(32), b=randn(32, seed=1): ((a, b, blank(32, 32)),
       {2: torch.outer(a, b)}))


@case
def stencil():
    x = randn(150)
    p = F.pad(x, (1, 1))
    return Run("stencil", 3, 64, (x, blank(150), 150), {1: p[:-2] + p[1:-1] + p[2:]})


@case
def convolution():
    x = randn(150)
    want = F.conv1d(x[None, None], torch.tensor([[[1.0, 2, 3, 2, 1]]]), padding=2)[0, 0]
    return Run("convolution", 2, 96, (x, blank(150), 150), {1: want})


launch("softmax_online", 2, 128, lambda x=randn(7, 70): ((blank(7, 70), x, 7, 70), {0: x.softmax(-1)}))


launch("cross_entropy_backward", 3, 32, lambda p=randn(6, 11).softmax(-1), t=integers(6, 11):
       ((blank(6, 11), p, t, 6, 11), {0: (p - F.one_hot(t.long(), 11)) / 6}))
launch("embedding_backward", 2, 96, lambda grad=randn(20, 8), tokens=integers(20, 5):
       ((torch.zeros(5, 8), grad, tokens, 20, 8), {0: torch.zeros(5, 8).index_add(0, tokens.long(), grad)}))


@case
def flash_minimal():
    q, k, v = (randn(2, 2, 64, 16, seed=seed) for seed in (1, 2, 3))
    want = F.scaled_dot_product_attention(q, k, v)
    return Run("flash_minimal", (2, 2), 32,
               (q, k, v, 64, 16, 2, 2, 32, 32, 0.25, torch.zeros(2, 2, 64), torch.full((2, 2, 64), -math.inf),
                torch.zeros(2, 2, 64, 16)), {12: want}, shared=4 * (3 * 32 * 16 + 32 * 32))


@case
def flash_two():
    q, k, v = (randn(75, 16, seed=seed) for seed in (1, 2, 3))
    return Run("flash_two<32, 16>", 3, 32, (q, k, v, blank(75, 16), 75, 0.25),
               {3: F.scaled_dot_product_attention(q[None], k[None], v[None])[0]})


launch("partial_masks", 1, 32, lambda x=integers(32, 50): ((x, blank(2, like=torch.int32)),
       {1: torch.stack([x[:16].sum(), x[16:].max()]).int()}))


@case
def exited_lanes():
    x = (torch.arange(20) % 6).int()
    votes = sum(1 << i for i in range(20) if x[i] > 2)
    return Run("exited_lanes", 1, 32, (x, blank(3, like=torch.int32), 20),
               {1: torch.tensor([votes, 1, 1]).int()})


@case
def return_within_the_loop():
    x = randn(128)
    of_warp = x.view(4, 32)
    turns = (2 ** torch.arange(1, 5) - 1).view(4, 1)
    return Run("return_within_the_loop", 1, 128, (x, blank(128), 128),
               {1: (of_warp + of_warp[:, :1] * turns).reshape(128)})


launch("skips_the_loop_and_ends", 1, 128, lambda x=randn(128): ((x, blank(96), 96), {1: x[32:]}))
launch("early_return_before_barrier", 1, 128, lambda x=randn(70): ((x, blank(70), 70), {1: x.flip(0)}))
launch("warp_synchronous", 1, 128, lambda x=randn(128), lane=torch.arange(32): ((x, blank(128)),
       {1: 2 * x.view(4, 32)[:, 31 - (lane ^ 1)].reshape(128)}))


@case
def tiles_of_eight():
    x = randn(64)
    v = x.view(8, 8).roll(-1, 1)
    v = v + v[:, torch.arange(8) ^ 1]
    return Run("tiles_of_eight", 1, 64, (x, blank(64)), {1: v[:, :1].expand(8, 8).reshape(64)})


launch("grid_sync", 4, 64, lambda x=randn(256): ((x, blank(256), blank(256)), {2: 2 * x.flip(0)}))


@case
def leaves_before_a_helper():
    x = randn(64)
    want = torch.zeros(64)
    want[:16] = x[:16].sum()
    return Run("leaves_before_a_helper", 1, 64, (x, torch.zeros(64)), {1: want})


launch("lanes_leave_before_a_helper", 1, 32, lambda: ((torch.rand(32) + 1, blank(1), 32), {1: torch.ones(1)}))


@case
def barrier_then_leave():
    x, t = randn(64), torch.arange(64)
    left = torch.full((64,), 3)
    for k in (2, 1, 0):
        left[t > 60 - 20 * k] = k
    return Run("barrier_then_leave", 1, 64, (x, blank(64), 3),
               {1: torch.where(left < 3, left.float(), x[t ^ 1] + 2)})


launch("producer_consumer", 1, 64, lambda x=randn(5, 32): ((x, blank(32), 5), {1: x.sum(0).flip(0)}))
launch("same_value", 1, 64, lambda: ((blank(64),), {0: torch.ones(64)}))
launch("shared_views", 1, 64, lambda x=randn(64): ((x, blank(64)), {1: x.flip(0)}))


def test_there_are_enough_of_them():
    assert len(CASES) >= 40


def right(source: str, run: Run, order: dict | None) -> None:
    """A launch in this order, sanitized, or plain: its results."""
    with cuda.sanitize(**order) if order else contextlib.nullcontext():
        compiled(source)[run.kernel][run.grid, run.block, run.shared](*run.args)
    check(run)


def counts_in_each_order(source: str, case: Callable[[], Run]) -> list[list]:
    counts = []
    for order in ({"order": "forward"}, {"order": "reverse"}, {"order": "seeded", "seed": 7}):
        run = case()
        with cuda.profile(**order) as report:
            compiled(source)[run.kernel][run.grid, run.block, run.shared](*run.args)
        check(run)
        counts.append([getattr(report.launches[0], what) for what in COUNTS])
    return counts


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("order", ORDERS_AND_PLAIN)
def test_right_and_without_a_false_alarm(name, order):
    right(SOURCE, CASES[name](), order)


@pytest.mark.parametrize("name", CASES)
def test_counts_do_not_depend_on_the_order_of_threads(name):
    counts = counts_in_each_order(SOURCE, CASES[name])
    assert counts[0] == counts[1] == counts[2]


def check(run: Run, atol: float = 2e-5, rtol: float = 1e-3) -> None:
    for position, want in run.want.items():
        got = run.args[position]
        assert got.shape == want.shape
        if want.is_floating_point():
            atol = 2e-3 if got.dtype == torch.float16 else atol
            torch.testing.assert_close(got, want.to(got.dtype), atol=atol, rtol=rtol)
        else:
            assert got.tolist() == want.tolist()


@pytest.mark.parametrize("order", ORDERS)
def test_compaction_keeps_every_element(order):
    """The order of warps is not defined, so the result is compared as a set."""
    x = integers(200, 30)
    out, count = torch.full((200,), -1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    with cuda.sanitize(**order):
        compiled(SOURCE).compact[2, 128](x, out, count, 200)
    want = x[x % 3 == 0]
    assert count.item() == len(want)
    assert torch.equal(out[:len(want)].sort().values, want.sort().values)


def test_three_orders_are_three_orders():
    """The same compaction shows that the orders differ: warps reach the counter in another sequence."""
    results = []
    for order in ({"order": "forward"}, {"order": "reverse"}):
        out = torch.full((256,), -1, dtype=torch.int32)
        with cuda.sanitize(**order):
            compiled(SOURCE).compact[2, 128](torch.arange(256).int() * 3, out,
                                             torch.zeros(1, dtype=torch.int32), 256)
        results.append(out)
    assert not torch.equal(*results)
