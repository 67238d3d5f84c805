// Decoding: one new query per sequence, over all the keys and values in its cache.
//
// Every number of the cache is used once per query head of its group, so reading the cache takes most of a step.
// One warp walks over the keys of one key head and keeps the queries of the whole group in registers: it loads the
// cache once. Lane l holds entries l, l + 32, l + 64, l + 96 of every row; a score is summed by shuffles.
//
//   rung  kernel                   idea                            cache bytes  still wasted
//   1     decode_part, one part    one warp per key head           1 x, float   b * n_kv_heads warps: a GPU is idle
//   2     decode_part, then        split-KV: one warp per part;    1 x, float   partial results are written and read
//         merge_parts              parts are merged by their max                back: (d + 2) floats per part and
//                                  and sum                                      head
//   3     decode_part_int8, then   load bytes; a step and a        about 1/4 x  the newest keys, fewer than 32, are
//         merge_parts              lowest value make them floats                still float (decode_part)
//   4     kv_cache/tensor_core.cu  half precision, 16 bytes per    1/2 x        (for a card)
//                                  load, products by tensor cores
//
// Appending with rotation is rope_append in rope.cu.
// Layout: q (b, n_heads, d); k, v (b, n_kv_heads, m, d); parts (b, n_heads, n_parts) and (b, n_heads, n_parts, d).
// int8: codes (b, n_kv_heads, m, d); keys: step and low per channel of 32 tokens, (b, n_kv_heads, m / 32, d);
// values: step and low per token, (b, n_kv_heads, m). lengths (b): how many of the m keys are valid.
// Limits: d <= 128, group <= 8, blocks of one warp, parts of whole tiles of 32 keys; any m, ragged ends are guarded.

#include <cuda_runtime.h>

#include "common/rows.cuh"

constexpr int TILE = 32;
constexpr int PER_LANE = 4;  // entries of a row per lane: rows of up to 32 * 4 = 128
constexpr int MAX_GROUP = 8;
constexpr unsigned ALL = 0xffffffff;

// Sources of the rows of one key head. tile() is called once per 32 keys, then key() and value() per key.
struct FloatRows {
    const float* __restrict__ k;
    const float* __restrict__ v;
    int d;

    __device__ void tile(int, int, int) {}
    __device__ void key(int j, int lane, float* row) { read(k, j, lane, row); }
    __device__ void value(int j, int lane, float* row) { read(v, j, lane, row); }
    __device__ void read(const float* __restrict__ from, int j, int lane, float* row) {
        for (int i = 0; i < PER_LANE; ++i)
            row[i] = lane + 32 * i < d ? from[(size_t)j * d + lane + 32 * i] : 0.0f;
    }
};

struct Int8Rows {
    const unsigned char* __restrict__ k;
    const float* __restrict__ k_step;
    const float* __restrict__ k_low;
    const unsigned char* __restrict__ v;
    const float* __restrict__ v_step;
    const float* __restrict__ v_low;
    int d;
    float step[PER_LANE], low[PER_LANE];  // of this lane's channels, for the 32 keys of the tile
    float token_step, token_low;  // of the tile's token number `lane`

    __device__ void tile(int first, int end, int lane) {
        for (int i = 0; i < PER_LANE; ++i) {
            int c = lane + 32 * i;
            size_t place = (size_t)(first / TILE) * d + c;
            step[i] = c < d ? k_step[place] : 0.0f;
            low[i] = c < d ? k_low[place] : 0.0f;
        }
        token_step = first + lane < end ? v_step[first + lane] : 0.0f;
        token_low = first + lane < end ? v_low[first + lane] : 0.0f;
    }
    __device__ void key(int j, int lane, float* row) {
        for (int i = 0; i < PER_LANE; ++i)
            row[i] = lane + 32 * i < d ? low[i] + step[i] * k[(size_t)j * d + lane + 32 * i] : 0.0f;
    }
    __device__ void value(int j, int lane, float* row) {
        // Lane j % 32 has loaded the token's step and low: one request for 32 tokens instead of one per
        // token.
        float s = __shfl_sync(ALL, token_step, j % TILE), l = __shfl_sync(ALL, token_low, j % TILE);
        for (int i = 0; i < PER_LANE; ++i)
            row[i] = lane + 32 * i < d ? l + s * v[(size_t)j * d + lane + 32 * i] : 0.0f;
    }
};

// The online softmax of chapter 1 over keys first .. end - 1, for the query heads of one group.
template <class Rows>
__device__ void attend_part(Rows rows, const float* __restrict__ q, int first, int end, int d, int group_size,
                            float scale, float* __restrict__ part_max, float* __restrict__ part_sum,
                            float* __restrict__ part_out, int part, int n_parts) {
    int lane = threadIdx.x;
    float query[MAX_GROUP][PER_LANE], out[MAX_GROUP][PER_LANE], largest[MAX_GROUP], sum[MAX_GROUP];
#pragma unroll
    for (int g = 0; g < MAX_GROUP; ++g) {
        largest[g] = -INFINITY;
        sum[g] = 0.0f;
        for (int i = 0; i < PER_LANE; ++i) {
            int c = lane + 32 * i;
            query[g][i] = g < group_size && c < d ? q[g * d + c] * scale : 0.0f;
            out[g][i] = 0.0f;
        }
    }
    for (int tile = first; tile < end; tile += TILE) {
        rows.tile(tile, end, lane);
        for (int j = tile; j < min(tile + TILE, end); ++j) {
            float key[PER_LANE], value[PER_LANE];
            rows.key(j, lane, key);
            rows.value(j, lane, value);
#pragma unroll
            for (int g = 0; g < MAX_GROUP; ++g) {
                if (g >= group_size) continue;  // the same for all lanes
                float score = 0.0f;
                for (int i = 0; i < PER_LANE; ++i) score += query[g][i] * key[i];
                score = lanes_sum(score);
                float now = fmaxf(largest[g], score);
                float shrink = expf(largest[g] - now),
                      weight = expf(score - now);  // first key: exp(-inf) = 0
                sum[g] = sum[g] * shrink + weight;
                for (int i = 0; i < PER_LANE; ++i) out[g][i] = out[g][i] * shrink + weight * value[i];
                largest[g] = now;
            }
        }
    }
#pragma unroll
    for (int g = 0; g < MAX_GROUP; ++g) {
        if (g >= group_size) continue;
        size_t place = (size_t)g * n_parts + part;
        if (lane == 0) {
            part_max[place] = largest[g];
            part_sum[place] = sum[g];
        }
        for (int i = 0; i < PER_LANE; ++i)
            if (lane + 32 * i < d) part_out[place * d + lane + 32 * i] = out[g][i];
    }
}

// Both kernels: grid (splits, n_kv_heads, b), one warp per block. Part blockIdx.x is written as part
// first_part + blockIdx.x.
__global__ void decode_part(const float* __restrict__ q, const float* __restrict__ k,
                            const float* __restrict__ v, const int* __restrict__ lengths,
                            float* __restrict__ part_max, float* __restrict__ part_sum,
                            float* __restrict__ part_out, int m, int d, int group_size, int keys_per_part,
                            int first_part, int n_parts, float scale) {
    int kv_head = blockIdx.z * gridDim.y + blockIdx.y, head = kv_head * group_size;
    int first = blockIdx.x * keys_per_part, end = min(first + keys_per_part, lengths[blockIdx.z]);
    size_t rows = (size_t)kv_head * m * d, parts = (size_t)head * n_parts;
    attend_part(FloatRows{k + rows, v + rows, d}, q + (size_t)head * d, first, end, d, group_size, scale,
                part_max + parts, part_sum + parts, part_out + parts * d, first_part + blockIdx.x, n_parts);
}

__global__ void decode_part_int8(const float* __restrict__ q, const unsigned char* __restrict__ k,
                                 const float* __restrict__ k_step, const float* __restrict__ k_low,
                                 const unsigned char* __restrict__ v, const float* __restrict__ v_step,
                                 const float* __restrict__ v_low, const int* __restrict__ lengths,
                                 float* __restrict__ part_max, float* __restrict__ part_sum,
                                 float* __restrict__ part_out, int m, int d, int group_size,
                                 int keys_per_part, int first_part, int n_parts, float scale) {
    int kv_head = blockIdx.z * gridDim.y + blockIdx.y, head = kv_head * group_size;
    int first = blockIdx.x * keys_per_part, end = min(first + keys_per_part, lengths[blockIdx.z]);
    size_t tokens = (size_t)kv_head * m, rows = tokens * d, groups = tokens / TILE * d,
           parts = (size_t)head * n_parts;
    Int8Rows source{k + rows, k_step + groups, k_low + groups, v + rows, v_step + tokens, v_low + tokens, d};
    attend_part(source, q + (size_t)head * d, first, end, d, group_size, scale, part_max + parts,
                part_sum + parts, part_out + parts * d, first_part + blockIdx.x, n_parts);
}

// Grid (n_heads, b), one warp per block: parts are rescaled to one max, then sums and outputs add up. No keys
// give 0.
__global__ void merge_parts(const float* __restrict__ part_max, const float* __restrict__ part_sum,
                            const float* __restrict__ part_out, float* __restrict__ out, int n_parts, int d) {
    int lane = threadIdx.x;
    size_t head = blockIdx.y * gridDim.x + blockIdx.x, parts = head * n_parts;
    float largest = -INFINITY, sum = 0.0f, total[PER_LANE] = {};
    for (int part = 0; part < n_parts; ++part) {
        float part_largest = part_max[parts + part];
        if (part_largest == -INFINITY) continue;  // no keys: exp(-inf - -inf) would be NaN
        float now = fmaxf(largest, part_largest);
        float shrink = expf(largest - now), weight = expf(part_largest - now);
        sum = sum * shrink + weight * part_sum[parts + part];
        for (int i = 0; i < PER_LANE; ++i) {
            int c = lane + 32 * i;
            if (c < d) total[i] = total[i] * shrink + weight * part_out[(parts + part) * d + c];
        }
        largest = now;
    }
    for (int i = 0; i < PER_LANE; ++i) {
        int c = lane + 32 * i;
        if (c < d) out[head * d + c] = sum > 0.0f ? total[i] / sum : 0.0f;
    }
}
