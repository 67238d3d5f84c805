// Softmax of the rows of a matrix, and attention as three launches around it.
//
// x and out are (rows, columns), contiguous. "Accesses" are reads and writes of global memory per element.
//
//   rung  kernel             idea                              accesses  still wasted
//   1     softmax_naive      the formula: sum, then divide     3         overflows from exp(89); with one thread per
//                                                                        row, 32 lanes read from 32 distant rows
//   2     softmax_stable     subtract the largest entry        4         one more pass over the row
//   3     softmax_online     largest and sum in one pass       3         the distant rows, still
//   4     softmax_warp       one warp per row, merged by       3         a long row has only 32 threads
//                            shuffles
//   5     softmax_block      one block per row                 3         reads every entry twice
//   6     softmax_on_chip    the row stays in shared memory    2         nothing, but a row must fit (12,000 floats)
//   7     softmax_half       rung 4 on half, float inside      3         as rung 4, at half the bytes
//   8     softmax_registers  16 bytes per load, the row in     2         nothing; needs rows of whole 16 bytes. For a
//                            registers, any of three types               card: four loads in flight per thread
//
//   attention_scores, softmax_on_chip, attention_output: correct, but the n x m matrix of scores is written and read
//   back twice (4 n m accesses, if caches are perfect inside each launch). Chapter 6 is about never writing it.
//
//   rms_norm: rows by the root of their mean square, as layers and heads of models are normalised (chapter 11).
//
// A row of -inf gives NaN, as in torch. Any number of rows and columns.

#include <cuda_runtime.h>

#include "common/numbers.cuh"
#include "common/rows.cuh"

__global__ void softmax_naive(const float* __restrict__ x, float* __restrict__ out, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* in_row = x + (size_t)row * columns;
    float* out_row = out + (size_t)row * columns;
    float total = 0.0f;
    for (int c = 0; c < columns; ++c) total += expf(in_row[c]);
    for (int c = 0; c < columns; ++c) out_row[c] = expf(in_row[c]) / total;
}

__global__ void softmax_stable(const float* __restrict__ x, float* __restrict__ out, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* in_row = x + (size_t)row * columns;
    float* out_row = out + (size_t)row * columns;
    float largest = -INFINITY;
    for (int c = 0; c < columns; ++c) largest = fmaxf(largest, in_row[c]);
    float total = 0.0f;
    for (int c = 0; c < columns; ++c) total += expf(in_row[c] - largest);
    for (int c = 0; c < columns; ++c) out_row[c] = expf(in_row[c] - largest) / total;
}

// The state of one pass over a row: the largest entry so far, and the sum of exp(entry - largest).
struct Running {
    float largest, total;
};

// Two stretches of a row seen as one. A single entry x is the stretch {x, 1}; nothing at all is {-inf, 0}.
__device__ Running merge(Running a, Running b) {
    float largest = fmaxf(a.largest, b.largest);
    float shift = largest == -INFINITY ? 0.0f : largest;  // -inf - -inf would be NaN
    return {largest, a.total * expf(a.largest - shift) + b.total * expf(b.largest - shift)};
}

__global__ void softmax_online(const float* __restrict__ x, float* __restrict__ out, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* in_row = x + (size_t)row * columns;
    float* out_row = out + (size_t)row * columns;
    Running state = {-INFINITY, 0.0f};
    for (int c = 0; c < columns; ++c) state = merge(state, {in_row[c], 1.0f});
    for (int c = 0; c < columns; ++c) out_row[c] = expf(in_row[c] - state.largest) / state.total;
}

// Every lane ends with the merged state of all 32: at each step a lane meets the one `distance` away.
__device__ Running warp_merge(Running state) {
    for (int distance = 16; distance > 0; distance /= 2) {
        Running other = {__shfl_xor_sync(0xffffffff, state.largest, distance),
                         __shfl_xor_sync(0xffffffff, state.total, distance)};
        state = merge(state, other);
    }
    return state;
}

// blockDim.x is a multiple of 32. Neighbouring lanes read neighbouring entries: whole sectors are used.
__global__ void softmax_warp(const float* __restrict__ x, float* __restrict__ out, int rows, int columns) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;  // the whole warp leaves together
    const float* in_row = x + (size_t)row * columns;
    float* out_row = out + (size_t)row * columns;
    Running state = {-INFINITY, 0.0f};
    for (int c = lane; c < columns; c += 32) state = merge(state, {in_row[c], 1.0f});
    state = warp_merge(state);
    for (int c = lane; c < columns; c += 32) out_row[c] = expf(in_row[c] - state.largest) / state.total;
}

// The same at 2 bytes per entry. The state stays in float: a sum in half stops growing at 2048 + 1.
__global__ void softmax_half(const __half* __restrict__ x, __half* __restrict__ out, int rows, int columns) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const __half* in_row = x + (size_t)row * columns;
    __half* out_row = out + (size_t)row * columns;
    Running state = {-INFINITY, 0.0f};
    for (int c = lane; c < columns; c += 32) state = merge(state, {__half2float(in_row[c]), 1.0f});
    state = warp_merge(state);
    for (int c = lane; c < columns; c += 32)
        out_row[c] = __float2half(expf(__half2float(in_row[c]) - state.largest) / state.total);
}

// Every thread ends with the merged state of the block. blockDim.x is a multiple of 32, at most 1024.
__device__ Running block_merge(Running state) {
    __shared__ Running of_warp[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
    state = warp_merge(state);
    if (lane == 0) of_warp[warp] = state;
    __syncthreads();
    state = lane < n_warps ? of_warp[lane] : Running{-INFINITY, 0.0f};
    return warp_merge(state);
}

__global__ void softmax_block(const float* __restrict__ x, float* __restrict__ out, int rows, int columns) {
    const float* in_row = x + (size_t)blockIdx.x * columns;
    float* out_row = out + (size_t)blockIdx.x * columns;
    Running state = {-INFINITY, 0.0f};
    for (int c = threadIdx.x; c < columns; c += blockDim.x) state = merge(state, {in_row[c], 1.0f});
    state = block_merge(state);
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
        out_row[c] = expf(in_row[c] - state.largest) / state.total;
}

// Shared memory: columns floats. A thread reads back only its own entries, which needs no barrier.
__global__ void softmax_on_chip(const float* __restrict__ x, float* __restrict__ out, int rows, int columns) {
    extern __shared__ float kept[];
    const float* in_row = x + (size_t)blockIdx.x * columns;
    float* out_row = out + (size_t)blockIdx.x * columns;
    Running state = {-INFINITY, 0.0f};
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        float entry = in_row[c];
        kept[c] = entry;
        state = merge(state, {entry, 1.0f});
    }
    state = block_merge(state);
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
        out_row[c] = expf(kept[c] - state.largest) / state.total;
}

// Rung 8. WARPS warps share a row, each thread holds CHUNKS x 16 bytes of it: all loads are issued before the
// first is used. One warp per row: no barrier, any number of warps per block. More: one block per row, 32 *
// WARPS threads. columns is a multiple of Sixteen<T>::COUNT, at most 32 * WARPS * CHUNKS of them.
template <typename T, int WARPS, int CHUNKS>
__global__ void __launch_bounds__(WARPS > 4 ? 32 * WARPS : 128)
    softmax_registers(const T* __restrict__ x, T* __restrict__ out, int rows, int columns) {
    constexpr int COUNT = Sixteen<T>::COUNT, STEP = 32 * WARPS * COUNT;
    __shared__ float of_warp[2][WARPS];
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / (32 * WARPS), warp = threadIdx.x / 32,
        lane = threadIdx.x % 32;
    if (row >= rows) return;  // with more than one warp per row, no block has more than one row
    int first = threadIdx.x % (32 * WARPS) * COUNT;
    size_t begin = (size_t)row * columns + first;

    Sixteen<T> loaded[CHUNKS];
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i)
        if (first + i * STEP < columns) loaded[i].bits = *reinterpret_cast<const int4*>(x + begin + i * STEP);
    float entry[CHUNKS][COUNT], largest = -INFINITY, total = 0.0f;
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i)
#pragma unroll
        for (int e = 0; e < COUNT; ++e) {
            entry[i][e] = first + i * STEP < columns ? loaded[i].get(e) : -INFINITY;
            largest = fmaxf(largest, entry[i][e]);
        }
    largest = lanes_max(largest);
    if (WARPS > 1) {
        if (lane == 0) of_warp[0][warp] = largest;
        __syncthreads();
        for (int w = 0; w < WARPS; ++w) largest = fmaxf(largest, of_warp[0][w]);
    }
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i)
#pragma unroll
        for (int e = 0; e < COUNT; ++e) {
            entry[i][e] = power_of_two((entry[i][e] - largest) * LOG2E);  // -largest * LOG2E alone may be infinite
            total += entry[i][e];
        }
    total = lanes_sum(total);
    if (WARPS > 1) {
        if (lane == 0) of_warp[1][warp] = total;
        __syncthreads();
        total = 0.0f;
        for (int w = 0; w < WARPS; ++w) total += of_warp[1][w];
    }
    float factor = 1.0f / total;
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
#pragma unroll
        for (int e = 0; e < COUNT; ++e) loaded[i].set(e, entry[i][e] * factor);
        if (first + i * STEP < columns) *reinterpret_cast<int4*>(out + begin + i * STEP) = loaded[i].bits;
    }
}

// Each row divided by the root of its mean square, times a factor per column if there are any. One warp per row.
template <typename T>
__global__ void rms_norm(const T* __restrict__ x, const T* __restrict__ factors, T* __restrict__ out, int rows,
                         int columns, float eps) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const T* in_row = x + (size_t)row * columns;
    T* out_row = out + (size_t)row * columns;
    float squares = 0.0f;
    for (int c = lane; c < columns; c += 32) squares += widen(in_row[c]) * widen(in_row[c]);
    float shrink = rsqrtf(lanes_sum(squares) / columns + eps);
    for (int c = lane; c < columns; c += 32)
        out_row[c] = narrow<T>(widen(in_row[c]) * shrink * (factors ? widen(factors[c]) : 1.0f));
}

constexpr int TILE = 16;  // a block makes TILE x TILE entries of the product, with as many threads

// scores[i][j] = scale * q[i] . k[j], or -inf where j is hidden.
// q (heads, n, d), k (heads, m, d), scores (heads, n, m).
__global__ void attention_scores(const float* __restrict__ q, const float* __restrict__ k,
                                 float* __restrict__ scores, int n, int m, int d, float scale, int causal) {
    // + 1: the entries of a column fall into different banks
    __shared__ float q_tile[TILE][TILE + 1], k_tile[TILE][TILE + 1];
    int j = blockIdx.x * TILE + threadIdx.x, i = blockIdx.y * TILE + threadIdx.y;
    int j_load = blockIdx.x * TILE + threadIdx.y;  // neighbouring threads load neighbouring features
    size_t head = blockIdx.z;
    float dot = 0.0f;
    for (int start = 0; start < d; start += TILE) {
        int feature = start + threadIdx.x;
        bool inside = feature < d;
        q_tile[threadIdx.y][threadIdx.x] = inside && i < n ? q[(head * n + i) * d + feature] : 0.0f;
        k_tile[threadIdx.y][threadIdx.x] = inside && j_load < m ? k[(head * m + j_load) * d + feature] : 0.0f;
        __syncthreads();
        for (int f = 0; f < TILE; ++f) dot += q_tile[threadIdx.y][f] * k_tile[threadIdx.x][f];
        __syncthreads();  // keep the tiles until every thread has read them
    }
    bool visible = j < keys_seen(i, n, m, causal);
    if (i < n && j < m) scores[(head * n + i) * m + j] = visible ? dot * scale : -INFINITY;
}

// out[i][c] = sum over the visible j of weights[i][j] * v[j][c]. v (heads, m, v_dim), out (heads, n, v_dim).
// A hidden weight is never read: a query that sees no key gets 0.
__global__ void attention_output(const float* __restrict__ weights, const float* __restrict__ v,
                                 float* __restrict__ out, int n, int m, int v_dim, int causal) {
    __shared__ float w_tile[TILE][TILE + 1], v_tile[TILE][TILE + 1];
    int column = blockIdx.x * TILE + threadIdx.x, i = blockIdx.y * TILE + threadIdx.y;
    int visible = i < n ? keys_seen(i, n, m, causal) : 0;
    size_t head = blockIdx.z;
    float sum = 0.0f;
    for (int start = 0; start < m; start += TILE) {
        int j = start + threadIdx.x, j_load = start + threadIdx.y;
        w_tile[threadIdx.y][threadIdx.x] = j < visible ? weights[(head * n + i) * m + j] : 0.0f;
        bool inside = j_load < m && column < v_dim;
        v_tile[threadIdx.y][threadIdx.x] = inside ? v[(head * m + j_load) * v_dim + column] : 0.0f;
        __syncthreads();
        for (int f = 0; f < TILE; ++f) sum += w_tile[threadIdx.y][f] * v_tile[f][threadIdx.x];
        __syncthreads();
    }
    if (i < n && column < v_dim) out[(head * n + i) * v_dim + column] = sum;
}
