// Walks over keys and values in pages, and the merge of parts: shared by the kernels of chapter 8.
#pragma once
#include "tiles.cuh"

// The attention output in column c, from n_parts parts of the keys: parts (n_parts, d), sums (n_parts, 2: largest
// score, sum of weights). Each part counts by exp(largest score).
__device__ inline float merged(const float* parts, const float* sums, int n_parts, int d, int c) {
    float m = -INFINITY, sum = 0.0f, total = 0.0f;
    for (int i = 0; i < n_parts; ++i) {
        const float m_part = sums[2 * i], larger = fmaxf(m, m_part);
        const float old = expf(m - finite(larger)), weight = expf(m_part - finite(larger));
        sum = sum * old + weight * parts[i * d + c];
        total = total * old + weight * sums[2 * i + 1];
        m = larger;
    }
    return total > 0.0f ? sum / total : 0.0f;
}

// Keys begin .. end - 1 of a sequence by a block of 128 threads, tile by tile through shared memory, into the online
// softmax of `rows` rows of q_tile. Row r sees the keys before seen(r). Warp w owns rows ROWS w, ROWS w + 1, ...; its
// lanes are the tile's keys for the scores, and the output's columns for the sums over keys.
template <int D, int ROWS, typename Seen>
__device__ void walk_pages(float4 (&q_tile)[4 * ROWS][D / 4], const float* __restrict__ keys,
                           const float* __restrict__ values, const int* __restrict__ table, int begin,
                           int end, int rows, int kv_heads, int kv_head, int block_size, int d, float scale,
                           Seen seen, float (&m)[ROWS], float (&l)[ROWS], float (&o)[ROWS][D / 32]) {
    constexpr int TILE_Q = 4 * ROWS, TILE_K = 32;
    __shared__ float4 k_tile[TILE_K][D / 4 + 1], v_tile[TILE_K][D / 4], p_tile[TILE_Q][TILE_K / 4];
    __shared__ long long place[TILE_K];  // of each key of the tile, in rows of d
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int k0 = begin; k0 < end; k0 += TILE_K) {
        const int key = k0 + lane;
        if (warp == 0 && key < end) {
            const long long page = table[key / block_size];
            place[lane] = (page * kv_heads + kv_head) * block_size + key % block_size;
        }
        __syncthreads();  // places are known, the last tile has been used
        for (int e = threadIdx.x; e < TILE_K * (D / 4); e += blockDim.x) {
            const int row = e / (D / 4), c = e % (D / 4);
            const bool there = k0 + row < end && 4 * c < d;
            k_tile[row][c] = there ? *(const float4*)(keys + place[row] * d + 4 * c) : zero;
            v_tile[row][c] = there ? *(const float4*)(values + place[row] * d + 4 * c) : zero;
        }
        __syncthreads();  // the new tile is whole
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int row = warp * ROWS + r;
            if (row >= rows) break;
            float s = 0.0f;
            for (int c = 0; c < D / 4; ++c) s += dot(q_tile[row][c], k_tile[lane][c]);
            s = key < seen(row) ? scale * s : -INFINITY;
            const float larger = fmaxf(m[r], lanes_max(s));
            const float p = expf(s - finite(larger)), shrink = expf(m[r] - finite(larger));
            l[r] = shrink * l[r] + lanes_sum(p);
            m[r] = larger;
            ((float*)p_tile[row])[lane] = p;
            __syncwarp();
            for (int b = 0; b < D / 32; ++b) {
                const int c = 32 * b + lane;
                float sum = 0.0f;
                for (int j = 0; j < TILE_K; j += 4) {
                    const float4 p4 = p_tile[row][j / 4];
                    sum += p4.x * ((const float*)v_tile[j])[c] + p4.y * ((const float*)v_tile[j + 1])[c] +
                           p4.z * ((const float*)v_tile[j + 2])[c] + p4.w * ((const float*)v_tile[j + 3])[c];
                }
                o[r][b] = shrink * o[r][b] + sum;
            }
        }
    }
}
