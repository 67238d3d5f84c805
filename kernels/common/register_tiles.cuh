// Rungs 5 and 6 of chapter 6, whose walk kernels/flash_attention/packed.cu shares.
#pragma once
#include "tiles.cuh"

// A group of 64 threads has 32 query rows. Its threads form an 8 x 8 grid (ty, tx); thread (ty, tx)
// makes the scores of rows ty, ty + 8, ty + 16, ty + 24 with keys tx, tx + 8, ..., and the output columns 4
// tx .. 4 tx + 3 (+ 32, ...) of the same rows. So a value read from shared memory is used four times. k and v
// take turns in one array. A row's eight threads belong to one warp: its scores need no block-wide barrier.
// The pointers are those of one head.
template <typename T, int D, int DV, int GROUPS, bool SKIP>
__device__ void register_tiles(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                               const float* __restrict__ key_bias, T* __restrict__ out,
                               float* __restrict__ lse, int n_q, int n_k, int d, int v_dim, float scale,
                               int causal) {
    // Rows of q and p are padded too: two of a warp's four rows are read in one pass, if they are in other banks.
    constexpr int TILE_Q = 32 * GROUPS, TILE_K = D > 64 || DV > 64 ? 16 : 32;  // limited by 48 KiB
    constexpr int ROWS = 4, KEYS = TILE_K / 8, COLUMNS = DV / 32;  // a thread's share
    __shared__ float4 q_tile[TILE_Q][D / 4 + 1], kv_tile[TILE_K][(D > DV ? D : DV) / 4 + 1];
    __shared__ float4 p_tile[TILE_Q][TILE_K / 4 + 2];
    const int tx = threadIdx.x % 8, first_row = threadIdx.x / 64 * 32, ty = first_row + threadIdx.x / 8 % 8;
    const int q0 = blockIdx.x * TILE_Q;
    load_tile<TILE_Q, D>(q_tile, q, q0, n_q, d);

    float m[ROWS], l[ROWS];
    float4 o[ROWS][COLUMNS];
    start_rows(m, l, o);
    const int block_end = SKIP ? keys_seen(min(q0 + TILE_Q, n_q) - 1, n_q, n_k, causal) : n_k;
    const int group_end = SKIP ? keys_seen(q0 + first_row + 31, n_q, n_k, causal) : n_k;

    for (int k0 = 0; k0 < block_end; k0 += TILE_K) {
        __syncthreads();
        load_tile<TILE_K, D>(kv_tile, k, k0, n_k, d);
        __syncthreads();
        if (k0 < group_end) {  // the other group may still have keys to see
            float s[ROWS][KEYS] = {}, bias[KEYS];
            pair_rows<dot, D / 4>(s, q_tile, kv_tile, ty, tx);
#pragma unroll
            for (int j = 0; j < KEYS; ++j) {
                const int key = k0 + tx + 8 * j;
                bias[j] = key_bias && key < n_k ? key_bias[key] : 0.0f;
            }
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const int seen = keys_seen(q0 + ty + 8 * r, n_q, n_k, causal);
#pragma unroll
                for (int j = 0; j < KEYS; ++j)
                    s[r][j] = k0 + tx + 8 * j < seen ? scale * s[r][j] + bias[j] : -INFINITY;
            }
            absorb_scores(s, m, l, o, p_tile, ty, tx);
        }
        __syncthreads();  // all have finished with k
        load_tile<TILE_K, DV>(kv_tile, v, k0, n_k, v_dim);
        __syncthreads();
        if (k0 < group_end) add_values(o, p_tile, kv_tile, ty, tx);
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int i = q0 + ty + 8 * r;
        const float divisor = l[r] > 0.0f ? l[r] : 1.0f;
        for (int b = 0; b < COLUMNS; ++b) {
            multiply(o[r][b], 1.0f / divisor);
            store4(out, o[r][b], i, 4 * (tx + 8 * b), n_q, v_dim);
        }
        if (tx == 0 && i < n_q) lse[i] = log_sum_exp(m[r], l[r]);
    }
}
