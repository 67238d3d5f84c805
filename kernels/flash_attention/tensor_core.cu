// Attention forward on the tensor cores: rung 7 of the ladder that begins in flash_attention.cu.
//
//   out = softmax(scale * q k^T + key_bias) v,   lse = log of the sum of exp of each row's scores
//
// q (heads, n_q, d), k (heads / group_size, n_k, d), v (heads / group_size, n_k, v_dim), all __half or all
// __nv_bfloat16; `heads` counts batch and heads together. key_bias (heads / group_size, n_k) in float, or
// null if BIAS is false. Any n; d and v_dim multiples of 8 up to D and DV, which are 64 or 128; scale above
// 0. Sums, softmax and lse in float.
// On an H200: half of what a large product reaches at D = 128, 108 % of FlashAttention-2 in torch (data/gpu/README.md).
//
// Rung 6 leaves the tensor cores idle. To feed them:
//   the product        a warp has 32 query rows, two tiles of 16: each piece of k or v that it loads serves both
//   the swizzle        load_matrix takes 8 rows of 16 bytes at once, from 8 different groups of banks
//   the copies         cp.async loads tile j + 1 while tile j is multiplied; one barrier per tile
//   the registers      scores stay in place: two tiles of sums are one tile of A (tensor_tiles.cuh)
//   the arithmetic     2^x instead of e^x with log2(e) inside the scale: one fused multiply-add and one 2^x per score
//   the mask           only in tiles that the diagonal or an edge cuts; a warp skips tiles that none of its rows sees
//   the order          blocks that see most keys start first
//
// Counted at n = 256, d = 64, one bfloat16 head, against rung 6: bytes asked of global memory, wavefronts of
// shared memory (those of the copies included), and how many of those are bank conflicts.
//
//   kernel                    asked   wavefronts  excess
//   6 flash_two_groups      328,704       96,768        0
//   7 flash_tensor_core     197,632        6,144        0
//
// Registers: 225 to 255 on sm_90; at D = DV = 128 16 bytes per thread are spilled there, none on sm_80
// (data/gpu/registers.txt). Two blocks per multiprocessor on sm_90 and sm_100; at D = DV = 128 one on sm_80, 86,
// 89 and 120, which have less shared memory.
#include "../common/tiles.cuh"
#include "../common/tensor_tiles.cuh"

using namespace tensor_core;

// Grid (n_q / 128, heads), block 128, dynamic shared memory: 2 (128 D + 2 * 64 (D + DV)) bytes, and 512 if
// BIAS.
template <typename T, int D, int DV, bool BIAS>
__global__ void __launch_bounds__(128, 2)
    flash_tensor_core(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                      const float* __restrict__ key_bias, T* __restrict__ out, float* __restrict__ lse,
                      int group_size, int n_q, int n_k, int d, int v_dim, float scale, int causal) {
    constexpr int THREADS = 128, TILE_Q = 128, TILE_K = 64, M = 2, ROWS = 16 * M;
    constexpr bool HOLD_Q = D + DV == 128;  // wider: the registers are needed for the sums
    extern __shared__ __align__(128) unsigned char shared[];
    T* q_tile = (T*)shared;
    T* stages = q_tile + TILE_Q * D;  // two of them: 64 rows of k, then 64 of v
    constexpr int STAGE = TILE_K * (D + DV);
    float* bias_tiles = (float*)(stages + 2 * STAGE);

    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, warp_row = threadIdx.x / 32 * ROWS;
    const int q0 = (gridDim.x - 1 - blockIdx.x) * TILE_Q, first_row = q0 + warp_row;
    const long long head = blockIdx.y, kv_head = head / group_size;
    q += (head * n_q + q0) * d;
    k += kv_head * n_k * d;
    v += kv_head * n_k * v_dim;
    if (BIAS) key_bias += kv_head * n_k;

    // Number of keys seen by the block, by the warp, and by every row of the warp (its first row sees least).
    const int block_end = keys_seen(min(q0 + TILE_Q, n_q) - 1, n_q, n_k, causal);
    const int warp_end = first_row < n_q ? keys_seen(min(first_row + ROWS, n_q) - 1, n_q, n_k, causal) : 0;
    const int seen_by_all = keys_seen(first_row, n_q, n_k, causal);

    auto fetch = [&](int k0) {  // starts the copy of one tile into its stage
        T* stage = stages + k0 / TILE_K % 2 * STAGE;
        copy_rows<TILE_K, D, THREADS>(stage, k + (long long)k0 * d, n_k - k0, d);
        copy_rows<TILE_K, DV, THREADS>(stage + TILE_K * D, v + (long long)k0 * v_dim, n_k - k0, v_dim);
        commit();
    };
    auto bias_of = [&](int k0) {  // thread i < 64 fetches the bias of the tile's key i
        const int key = k0 + threadIdx.x;
        return BIAS && threadIdx.x < TILE_K && key < block_end ? key_bias[key] * LOG2E : 0.0f;
    };
    auto keep_bias = [&](int k0, float bias) {
        if (BIAS && threadIdx.x < TILE_K) bias_tiles[k0 / TILE_K % 2 * TILE_K + threadIdx.x] = bias;
    };
    copy_rows<TILE_Q, D, THREADS>(q_tile, q, n_q - q0, d);
    fetch(0);
    keep_bias(0, bias_of(0));
    wait<0>();
    __syncthreads();

    uint32_t q_held[M][HOLD_Q ? D / 16 : 1][4];
    if constexpr (HOLD_Q) hold_rows<M, D>(q_held, q_tile + warp_row * D);
    const float to_log2 = scale * LOG2E, unit = BIAS ? 1.0f : to_log2;
    float o[M][DV / 8][4] = {}, top[M][2], l[M][2];  // of rows 16 m + g and 16 m + g + 8
#pragma unroll
    for (int m = 0; m < M; ++m)
        for (int h = 0; h < 2; ++h) top[m][h] = -INFINITY, l[m][h] = 0.0f;

    for (int k0 = 0; k0 < block_end; k0 += TILE_K) {
        const bool more = k0 + TILE_K < block_end;
        const float next_bias = more ? bias_of(k0 + TILE_K) : 0.0f;
        if (more) fetch(k0 + TILE_K);  // its stage was last read before the last barrier
        if (k0 < warp_end) {
            const T* k_tile = stages + k0 / TILE_K % 2 * STAGE;
            float s[M][TILE_K / 8][4] = {};
            multiply_rows<M, TILE_K, D, HOLD_Q>(s, q_held, q_tile + warp_row * D, k_tile);
            if (BIAS) {
                const float* bias = bias_tiles + k0 / TILE_K % 2 * TILE_K + 2 * t;
#pragma unroll
                for (int n = 0; n < TILE_K / 8; ++n) {
                    const float2 pair = *(const float2*)(bias + 8 * n);
                    for (int m = 0; m < M; ++m)
                        for (int i = 0; i < 4; ++i)
                            s[m][n][i] = fmaf(s[m][n][i], to_log2, i % 2 ? pair.y : pair.x);
                }
            }
            if (k0 + TILE_K > seen_by_all) {  // the diagonal or the end of the keys cuts this tile
#pragma unroll
                for (int m = 0; m < M; ++m)
                    for (int h = 0; h < 2; ++h) {
                        const int seen =
                            keys_seen(first_row + 16 * m + 8 * h + g, n_q, n_k, causal) - k0 - 2 * t;
                        for (int n = 0; n < TILE_K / 8; ++n)
                            for (int e = 0; e < 2; ++e)
                                if (8 * n + e >= seen) s[m][n][2 * h + e] = -INFINITY;
                    }
            }
            absorb_tile<M, TILE_K, DV>(s, top, l, o, unit);
            multiply_columns<M, TILE_K, DV>(o, s, k_tile + TILE_K * D);
        }
        if (more) keep_bias(k0 + TILE_K, next_bias);
        wait<0>();
        __syncthreads();  // tile j + 1 is complete, tile j may be overwritten
    }
    float by[M][2];
#pragma unroll
    for (int m = 0; m < M; ++m)
        for (int h = 0; h < 2; ++h) {
            const float sum = lanes_sum(l[m][h], 4);
            const int row = first_row + 16 * m + 8 * h + g;
            by[m][h] = sum > 0.0f ? 1.0f / sum : 0.0f;
            if (t == 0 && row < n_q)
                lse[head * n_q + row] = sum > 0.0f ? (top[m][h] + log2f(sum)) * LN2 : -INFINITY;
        }
    out += (head * n_q + first_row) * v_dim;
    store_rows<M, DV>(out, (T*)shared + warp_row * DV, o, by, n_q - first_row, v_dim);
}
