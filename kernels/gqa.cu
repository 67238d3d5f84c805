// Grouped-query attention: g query heads share one head of keys and values.
//
// The arithmetic is the same in every rung. What changes is how often a key is loaded.
//
//   rung  kernel           idea                             keys and values asked for    still wasted
//   1     repeat_kv, then  copy K and V until every query   2 x rung 2 for one query,    a cache g times as big,
//         attend_by_head   head has a copy, then plain      plus the copies written      made again for each token
//                          attention
//   2     attend_by_head   no copy: head h reads K, V of    queries x h x n x 2d floats  every head of a group
//                          h / g                                                         loads the same rows
//   3     attend_by_group  one block per group: a tile of   rung 2 / g, exactly          one query row per block:
//                          K and V is loaded to shared                                   rows do not share tiles
//                          memory once and serves all g                                  (chapter 6 does that)
//                          heads
//
// Layout: q, out (b, n_heads, n_q, d); k, v (b, n_kv_heads, n_k, d), all float and contiguous.
// The last query sees the last key: query i sees keys 0 .. n_k - n_q + i when causal.
// Limits: any n_q, n_k, d; shared memory bounds g * d (the wrapper checks).

#include <cuda_runtime.h>

#include "common/rows.cuh"

constexpr int TILE = 32;  // keys per tile: one per lane while scores are computed

// Rung 1, first half. One thread per element of the repeated tensor.
// [K1 K2] becomes [K1 K1 K2 K2]: query head h then finds its keys at h itself.
__global__ void repeat_kv(const float* __restrict__ x, float* __restrict__ out, int n_kv_heads,
                          int group_size, int rows_times_d) {
    int inside = blockIdx.x * blockDim.x + threadIdx.x;  // position inside one head
    int head = blockIdx.y;  // repeated head
    int batch = blockIdx.z;
    if (inside >= rows_times_d) return;
    int kv_head = head / group_size;
    float value = x[(size_t)(batch * n_kv_heads + kv_head) * rows_times_d + inside];
    out[(size_t)(batch * n_kv_heads * group_size + head) * rows_times_d + inside] = value;
}

// One block: `heads` query heads that share one head of K and V, at one query position.
// Walks the visible keys tile by tile with the online softmax of chapter 1.
__device__ void attend(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v,
                       float* __restrict__ out, int heads, int head_stride, int visible, int d, float scale) {
    extern __shared__ float shared[];
    int pitch = d + 1;  // odd for even d: 32 rows fall into 32 banks
    float* q_row = shared;  // [heads][d]
    float* k_tile = q_row + heads * d;  // [TILE][pitch]
    float* v_tile = k_tile + TILE * pitch;  // [TILE][d]
    float* acc = v_tile + TILE * d;  // [heads][d]   weighted sum of values so far
    float* weight = acc + heads * d;  // [heads][TILE]
    float* row_max = weight + heads * TILE;  // [heads]
    float* row_sum = row_max + heads;  // [heads]
    float* rescale = row_sum + heads;  // [heads]
    int tid = threadIdx.x;

    for (int e = tid; e < heads * d; e += blockDim.x) {
        q_row[e] = q[(size_t)(e / d) * head_stride + e % d];
        acc[e] = 0.0f;
    }
    for (int h = tid; h < heads; h += blockDim.x) {
        row_max[h] = -INFINITY;
        row_sum[h] = 0.0f;
    }

    for (int start = 0; start < visible; start += TILE) {
        int rows = min(TILE, visible - start);
        for (int e = tid; e < rows * d; e += blockDim.x) {
            k_tile[(e / d) * pitch + e % d] = k[(size_t)start * d + e];
            v_tile[e] = v[(size_t)start * d + e];
        }
        __syncthreads();

        for (int pair = tid; pair < heads * TILE; pair += blockDim.x) {
            int h = pair / TILE, row = pair % TILE;
            float score = -INFINITY;
            if (row < rows) {
                score = 0.0f;
                for (int c = 0; c < d; ++c) score += q_row[h * d + c] * k_tile[row * pitch + c];
                score *= scale;
            }
            weight[pair] = score;
        }
        __syncthreads();

        // One thread per head merges the tile into its running maximum and sum.
        for (int h = tid; h < heads; h += blockDim.x) {
            float before = row_max[h], now = before;
            for (int row = 0; row < rows; ++row) now = fmaxf(now, weight[h * TILE + row]);
            float shrink = expf(before - now), sum = row_sum[h] * shrink;  // first tile: exp(-inf) = 0
            for (int row = 0; row < rows; ++row) {
                float w = expf(weight[h * TILE + row] - now);
                weight[h * TILE + row] = w;
                sum += w;
            }
            row_max[h] = now;
            row_sum[h] = sum;
            rescale[h] = shrink;
        }
        __syncthreads();

        for (int e = tid; e < heads * d; e += blockDim.x) {
            int h = e / d, c = e % d;
            float total = acc[e] * rescale[h];
            for (int row = 0; row < rows; ++row) total += weight[h * TILE + row] * v_tile[row * d + c];
            acc[e] = total;
        }
        __syncthreads();  // the next tile overwrites k_tile and v_tile
    }

    for (int e = tid; e < heads * d; e += blockDim.x) {
        float sum = visible > 0 ? row_sum[e / d] : 1.0f;  // nothing to attend to: 0, the rule of the course
        out[(size_t)(e / d) * head_stride + e % d] = acc[e] / sum;
    }
}

// Rung 2 (and the second half of rung 1, with group_size = 1). Grid (n_q, n_heads, b).
__global__ void attend_by_head(const float* __restrict__ q, const float* __restrict__ k,
                               const float* __restrict__ v, float* __restrict__ out, int n_q, int n_k, int d,
                               int group_size, int causal, float scale) {
    int query = blockIdx.x, head = blockIdx.y, batch = blockIdx.z, n_heads = gridDim.y;
    int kv_head = head / group_size;
    size_t row = ((size_t)(batch * n_heads + head) * n_q + query) * d;
    size_t kv = (size_t)(batch * (n_heads / group_size) + kv_head) * n_k * d;
    attend(q + row, k + kv, v + kv, out + row, 1, 0, keys_seen(query, n_q, n_k, causal), d, scale);
}

// Rung 3. Grid (n_q, n_kv_heads, b).
__global__ void attend_by_group(const float* __restrict__ q, const float* __restrict__ k,
                                const float* __restrict__ v, float* __restrict__ out, int n_q, int n_k, int d,
                                int group_size, int causal, float scale) {
    int query = blockIdx.x, kv_head = blockIdx.y, batch = blockIdx.z, n_kv_heads = gridDim.y;
    int first_head = kv_head * group_size;
    size_t row = ((size_t)(batch * n_kv_heads * group_size + first_head) * n_q + query) * d;
    size_t kv = (size_t)(batch * n_kv_heads + kv_head) * n_k * d;
    attend(q + row, k + kv, v + kv, out + row, group_size, n_q * d, keys_seen(query, n_q, n_k, causal), d,
           scale);
}
