// Sparse attention: blocks of 32 x 32 pairs, and three ways to decide which of them to visit.
//
//   rung  kernel        idea                                    keys and values moved        still wasted
//   1     dense_masked  visit every block, apply the mask       all of them, for every       work on blocks that are
//                       inside                                  block of queries             all hidden
//   2     block_sparse  visit the blocks of a list, apply a     8 d bytes per key of a       the list: 12 bytes per
//                       stored mask inside partial ones         visited block, 0 for others  block and thread
//   3     window_sink   no list, no stored mask: the rule is    as rung 2, and no list       rows of one block do not
//                       arithmetic on i and j                                                share tiles with the next
//   4     sparse_attention/tensor_core.cu, for a card: rungs 2 and 3 in half precision, blocks of 128 x 128
//
// One block of threads computes 32 queries of one head. It keeps, for each query, the largest score so far, the sum
// of exponentials and the output, and corrects them with every block it visits (the online softmax of chapter 1).
//
// Layout: q, out (b, heads, n_q, d); k, v (b, heads, n_k, d); float, contiguous; d up to 128, any lengths.
// A query that sees no key gets 0. On a card Walk.out (indexed in a loop of unknown length) is
// local memory, not registers: slow, not wrong.

#include <cuda_runtime.h>

#include "common/rows.cuh"

constexpr int BLOCK = 32;  // queries, and keys, per block
constexpr int THREADS = 128;  // four threads per query
constexpr int MAX_D = 128;
constexpr int OWN = MAX_D / (THREADS / BLOCK);  // output columns per thread, at most

// State of a block of threads during its walk. Thread t owns columns t % 4, t % 4 + 4, ... of the output of
// query t / 4.
struct Walk {
    float *q, *tile, *weight, *row_max, *row_sum, *shrink;
    float out[OWN];
};

__device__ void begin(Walk& w, const float* __restrict__ q, int first_query, int n_q, int d) {
    extern __shared__ float shared[];
    w.q = shared;  // [BLOCK][d + 1]
    w.tile = w.q + BLOCK * (d + 1);  // [BLOCK][d + 1]: keys, then values
    w.weight = w.tile + BLOCK * (d + 1);  // [BLOCK][BLOCK + 1]
    w.row_max = w.weight + BLOCK * (BLOCK + 1);
    w.row_sum = w.row_max + BLOCK;
    w.shrink = w.row_sum + BLOCK;
    int rows = min(BLOCK, n_q - first_query);
    for (int e = threadIdx.x; e < rows * d; e += THREADS)
        w.q[e / d * (d + 1) + e % d] = q[(size_t)first_query * d + e];
    if (threadIdx.x < BLOCK) {
        w.row_max[threadIdx.x] = -INFINITY;
        w.row_sum[threadIdx.x] = 0.0f;
    }
    for (int i = 0; i < OWN; ++i) w.out[i] = 0.0f;
}

__device__ void load_tile(Walk& w, const float* __restrict__ from, int first, int keys, int d) {
    __syncthreads();  // every thread has read the old tile
    for (int e = threadIdx.x; e < keys * d; e += THREADS)
        w.tile[e / d * (d + 1) + e % d] = from[(size_t)first * d + e];
    __syncthreads();
}

// Visit the block of keys that begins at first_key. allowed(r, c): may query r of the block see key c of the
// block?
template <class Allowed>
__device__ void visit(Walk& w, const float* __restrict__ k, const float* __restrict__ v, int first_key,
                      int n_k, int queries, int d, float scale, Allowed allowed) {
    int keys = min(BLOCK, n_k - first_key);
    load_tile(w, k, first_key, keys, d);
    for (int pair = threadIdx.x; pair < queries * BLOCK; pair += THREADS) {
        int r = pair / BLOCK, c = pair % BLOCK;
        float score = -INFINITY;
        if (c < keys && allowed(r, c)) {
            score = 0.0f;
            for (int i = 0; i < d; ++i) score += w.q[r * (d + 1) + i] * w.tile[c * (d + 1) + i];
            score *= scale;
        }
        w.weight[r * (BLOCK + 1) + c] = score;
    }
    __syncthreads();
    if (threadIdx.x < queries) {  // one thread per query updates its maximum and sum
        float* row = w.weight + threadIdx.x * (BLOCK + 1);
        float before = w.row_max[threadIdx.x], now = before;
        for (int c = 0; c < keys; ++c) now = fmaxf(now, row[c]);
        float from = finite(now), shrink = expf(before - from), sum = w.row_sum[threadIdx.x] * shrink;
        for (int c = 0; c < keys; ++c) {
            float weight = expf(row[c] - from);
            row[c] = weight;
            sum += weight;
        }
        w.row_max[threadIdx.x] = now;
        w.row_sum[threadIdx.x] = sum;
        w.shrink[threadIdx.x] = shrink;
    }
    load_tile(w, v, first_key, keys, d);  // its first barrier also ends the softmax above
    int r = threadIdx.x / 4;
    if (r < queries) {
        for (int i = 0, col = threadIdx.x % 4; col < d; ++i, col += 4) {
            float sum = w.out[i] * w.shrink[r];
            for (int c = 0; c < keys; ++c) sum += w.weight[r * (BLOCK + 1) + c] * w.tile[c * (d + 1) + col];
            w.out[i] = sum;
        }
    }
}

__device__ void finish(Walk& w, float* __restrict__ out, int first_query, int queries, int d) {
    __syncthreads();  // a row that was never visited has its sum from `begin`
    int r = threadIdx.x / 4;
    if (r >= queries) return;
    float sum = w.row_sum[r];
    for (int i = 0, col = threadIdx.x % 4; col < d; ++i, col += 4)
        out[(size_t)(first_query + r) * d + col] = sum > 0.0f ? w.out[i] / sum : 0.0f;
}

// Rung 1. mask (n_q, n_k), one byte per pair. Grid (query blocks, heads, b) in all three.
__global__ void dense_masked(const float* __restrict__ q, const float* __restrict__ k,
                             const float* __restrict__ v, const unsigned char* __restrict__ mask,
                             float* __restrict__ out, int n_q, int n_k, int d, float scale) {
    int first_query = blockIdx.x * BLOCK, queries = min(BLOCK, n_q - first_query);
    size_t head = blockIdx.z * gridDim.y + blockIdx.y;
    Walk w;
    begin(w, q + head * n_q * d, first_query, n_q, d);
    for (int first_key = 0; first_key < n_k; first_key += BLOCK) {
        const unsigned char* part = mask + (size_t)first_query * n_k + first_key;
        visit(w, k + head * n_k * d, v + head * n_k * d, first_key, n_k, queries, d, scale,
              [=](int r, int c) { return part[(size_t)r * n_k + c] != 0; });
    }
    finish(w, out + head * n_q * d, first_query, queries, d);
}

// Rung 2. Query block r visits column[start[r]] .. column[start[r + 1] - 1]. stored[e] is the index of entry
// e's mask in `masks` (BLOCK x BLOCK bytes each), or -1 if the block is full.
__global__ void block_sparse(const float* __restrict__ q, const float* __restrict__ k,
                             const float* __restrict__ v, const int* __restrict__ start,
                             const int* __restrict__ column, const int* __restrict__ stored,
                             const unsigned char* __restrict__ masks, float* __restrict__ out, int n_q,
                             int n_k, int d, float scale) {
    int first_query = blockIdx.x * BLOCK, queries = min(BLOCK, n_q - first_query);
    size_t head = blockIdx.z * gridDim.y + blockIdx.y;
    Walk w;
    begin(w, q + head * n_q * d, first_query, n_q, d);
    for (int entry = start[blockIdx.x]; entry < start[blockIdx.x + 1]; ++entry) {
        int place = stored[entry];
        const unsigned char* part = masks + (size_t)max(place, 0) * BLOCK * BLOCK;
        visit(w, k + head * n_k * d, v + head * n_k * d, column[entry] * BLOCK, n_k, queries, d, scale,
              [=](int r, int c) { return place < 0 || part[r * BLOCK + c] != 0; });
    }
    finish(w, out + head * n_q * d, first_query, queries, d);
}

// Rung 3. Causal: the last `window` keys, and always the first n_sink. q and k have the same length n.
__global__ void window_sink(const float* __restrict__ q, const float* __restrict__ k,
                            const float* __restrict__ v, float* __restrict__ out, int n, int d, int window,
                            int n_sink, float scale) {
    int first_query = blockIdx.x * BLOCK, queries = min(BLOCK, n - first_query);
    size_t head = blockIdx.z * gridDim.y + blockIdx.y;
    Walk w;
    begin(w, q + head * n * d, first_query, n, d);
    int oldest =
        max(0, first_query - window + 1) / BLOCK;  // first block that the window of some query touches
    int sinks =
        min(oldest, (n_sink + BLOCK - 1) / BLOCK);  // blocks of sinks before it; none is visited twice
    int visits = sinks + blockIdx.x - oldest + 1;
    for (int t = 0; t < visits; ++t) {
        int first_key = (t < sinks ? t : oldest + t - sinks) * BLOCK;
        visit(w, k + head * n * d, v + head * n * d, first_key, n, queries, d, scale, [=](int r, int c) {
            int i = first_query + r, j = first_key + c;
            return j <= i && (i - j < window || j < n_sink);
        });
    }
    finish(w, out + head * n * d, first_query, queries, d);
}
