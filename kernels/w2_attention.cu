// Wasserstein-2 attention of diagonal Gaussians: scores by distance, forward and backward without the n x n
// matrix.
//
//   s_ij = -(|mu_i - mu_j|^2 + |sigma_i - sigma_j|^2) / tau,   out = softmax(s) v
//
// mu_q, sigma_q (heads, n_q, d), mu_k, sigma_k (heads, n_k, d), v (heads, n_k, v_dim); `heads` counts batch
// and heads together. inverse_tau (n_heads), float. float, __half or __nv_bfloat16 in and out; float inside.
// Any n; d up to 64.
//
// Counted at n = 128, d = v_dim = 64, one float head, not causal: bytes asked of global memory, and as a
// multiple of what plain attention of the same d asks in chapter 6's last rung, 197,120.
//
//   kernel                 idea                                  still wastes                        asked    plain
//   1 w2_score_matrix,     the formula: one thread per score     the matrix out and in,         25,592,320   129.83
//     then chapter 6's softmax_rows and weighted_sum             every operand from memory
//   2 w2_flash             tiles of [mu | sigma] on the chip,    matrix units: differences         296,960     1.51
//                          differences squared, online softmax   are not a product
//     chapter 6's kernel   (2 / tau) q.k + a bias per key:       q and k joined, the bias made     311,808     1.58
//     with key_bias        an unmodified kernel                  before it: not counted here
//     the same, v padded   for a call that takes only one        half of v is zeros                410,112     2.08
//     to 2 d               width for q, k and v
//   3 w2_attention/tensor_core.cu, for a card: rung 7 of chapter 6, for scores of width 2 d
//   w2_backward_keys       a key tile stays, queries pass: dK, dV and the gradient of tau        1,083,424
//   w2_backward_queries    a query tile stays, keys pass: dQ                                     1,050,624
// The distance is a sum of squared differences, so nothing cancels and no score is above 0, however far from
// 0 the tokens are. A row's maximum and its sum are stored separately for the backward pass: with a small tau
// scores reach -1e7, where max + log(sum) in float loses the logarithm.
// On a card w2_backward_keys<T, 32, 64> spills 0.7 KB per thread by nvcc 13.0 for sm_90, and on sm_80 all of the
// backward kernels spill 0.6 to 1.2 KB (data/gpu/registers.txt): slow, not wrong.
#include "common/tiles.cuh"
#include <float.h>

__device__ inline float squared_distance(float4 a, float4 b) {
    const float x = a.x - b.x, y = a.y - b.y, z = a.z - b.z, w = a.w - b.w;
    return x * x + y * y + z * z + w * w;
}

// A distance that overflows is very far, not infinitely far: a row of -inf has no softmax.
__device__ inline float score_of(float squared, float inverse_tau) {
    return fmaxf(-squared * inverse_tau, -FLT_MAX);
}

__device__ inline float4 minus(float4 a, float4 b) {
    return make_float4(a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w);
}

// Rows first .. of mu and sigma side by side: D / 4 float4 of means, then as many of widths.
template <int ROWS, int D, typename T, int PITCH>
__device__ void load_gaussians(float4 (&tile)[ROWS][PITCH], const T* __restrict__ mu,
                               const T* __restrict__ sigma, int first, int n, int d) {
    for (int e = threadIdx.x; e < ROWS * (D / 2); e += blockDim.x) {
        const int row = e / (D / 2), c = e % (D / 2);
        tile[row][c] = load4(c < D / 4 ? mu : sigma, first + row, 4 * (c % (D / 4)), n, d);
    }
}

// 1: one thread per score. s (heads, n_q, n_k) in float. Grid (n_k / 32, n_q / 4, heads), block (32, 4).
template <typename T>
__global__ void w2_score_matrix(const T* __restrict__ mu_q, const T* __restrict__ sigma_q,
                                const T* __restrict__ mu_k, const T* __restrict__ sigma_k,
                                const float* __restrict__ inverse_tau, float* __restrict__ s, int n_heads,
                                int n_q, int n_k, int d, int causal) {
    const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    const long long head = blockIdx.z;
    if (i >= n_q || j >= n_k) return;
    const long long query = (head * n_q + i) * d, key = (head * n_k + j) * d;
    float sum = 0.0f;
    for (int c = 0; c < d; ++c) {
        const float mean = widen(mu_q[query + c]) - widen(mu_k[key + c]);
        const float width = widen(sigma_q[query + c]) - widen(sigma_k[key + c]);
        sum += mean * mean + width * width;
    }
    s[(head * n_q + i) * n_k + j] =
        j < keys_seen(i, n_q, n_k, causal) ? score_of(sum, inverse_tau[head % n_heads]) : -INFINITY;
}

// 2: chapter 6's last rung with a tile that is twice as wide for keys as for values. Two groups of 64 threads
// have 32 query rows each; thread (ty, tx) of a group makes the scores of rows ty, ty + 8, ... with keys tx,
// tx + 8, ..., and the output columns 4 tx .. 4 tx + 3 (+ 32, ...). row_max and row_sum (heads, n_q). Grid
// (n_q / 64, heads), block 128.
template <typename T, int D, int DV>
__global__ void w2_flash(const T* __restrict__ mu_q, const T* __restrict__ sigma_q,
                         const T* __restrict__ mu_k, const T* __restrict__ sigma_k, const T* __restrict__ v,
                         const float* __restrict__ inverse_tau, T* __restrict__ out,
                         float* __restrict__ row_max, float* __restrict__ row_sum, int n_heads, int n_q,
                         int n_k, int d, int v_dim, int causal) {
    constexpr int TILE_Q = 64, TILE_K = D > 32 || DV > 64 ? 16 : 32;  // limited by 48 KiB
    constexpr int ROWS = 4, KEYS = TILE_K / 8, COLUMNS = DV / 32;
    __shared__ float4 q_tile[TILE_Q][D / 2 + 1], kv_tile[TILE_K][(2 * D > DV ? 2 * D : DV) / 4 + 1];
    __shared__ float4 p_tile[TILE_Q][TILE_K / 4 + 2];
    const int tx = threadIdx.x % 8, first_row = threadIdx.x / 64 * 32, ty = first_row + threadIdx.x / 8 % 8;
    const int q0 = blockIdx.x * TILE_Q;
    const long long head = blockIdx.y, keys_at = head * n_k * d;
    const float sharpness = inverse_tau[head % n_heads];
    load_gaussians<TILE_Q, D>(q_tile, mu_q + head * n_q * d, sigma_q + head * n_q * d, q0, n_q, d);

    float m[ROWS], l[ROWS];
    float4 o[ROWS][COLUMNS];
    start_rows(m, l, o);
    const int block_end = keys_seen(min(q0 + TILE_Q, n_q) - 1, n_q, n_k, causal);
    const int group_end = keys_seen(q0 + first_row + 31, n_q, n_k, causal);

    for (int k0 = 0; k0 < block_end; k0 += TILE_K) {
        __syncthreads();  // all have finished with v
        load_gaussians<TILE_K, D>(kv_tile, mu_k + keys_at, sigma_k + keys_at, k0, n_k, d);
        __syncthreads();
        if (k0 < group_end) {  // the other group may still have keys to see
            float s[ROWS][KEYS] = {};
            pair_rows<squared_distance, D / 2>(s, q_tile, kv_tile, ty, tx);
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const int seen = keys_seen(q0 + ty + 8 * r, n_q, n_k, causal);
#pragma unroll
                for (int j = 0; j < KEYS; ++j)
                    s[r][j] = k0 + tx + 8 * j < seen ? score_of(s[r][j], sharpness) : -INFINITY;
            }
            absorb_scores(s, m, l, o, p_tile, ty, tx);
        }
        __syncthreads();  // all have finished with k
        load_tile<TILE_K, DV>(kv_tile, v + head * n_k * v_dim, k0, n_k, v_dim);
        __syncthreads();
        if (k0 < group_end) add_values(o, p_tile, kv_tile, ty, tx);
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int i = q0 + ty + 8 * r;
        for (int b = 0; b < COLUMNS; ++b) {
            multiply(o[r][b], 1.0f / (l[r] > 0.0f ? l[r] : 1.0f));
            store4(out + head * n_q * v_dim, o[r][b], i, 4 * (tx + 8 * b), n_q, v_dim);
        }
        if (tx == 0 && i < n_q) {
            row_max[head * n_q + i] = m[r];
            row_sum[head * n_q + i] = l[r];
        }
    }
}

// The backward pass. With P the weights, D = rowsum(dO * out) and dS = P * (dO v^T - D):
//
//   dq_i = (2 / tau) sum_j dS_ij (k_j - q_i)     dk_j = (2 / tau) sum_i dS_ij (q_i - k_j)
//   d tau = -(1 / tau) sum_ij dS_ij (s_ij - max_i)
//
// A row of dS sums to 0, so the q_i in dq_i and the row's maximum in d tau add nothing: dq is the gradient of
// the dot product. Both stay in the sums to keep the terms small for tokens far from 0: k_j - q_i, and scores
// near their maximum, instead of large numbers that cancel.

// One tile of P and of dS into shared memory; returns this thread's share of the sum of dS * (s - max).
template <int B, int D, int DV>
__device__ float recompute(float4 (&q_tile)[B][D / 2 + 1], float4 (&k_tile)[B][D / 2 + 1],
                           float4 (&do_tile)[B][DV / 4 + 1], float4 (&v_tile)[B][DV / 4 + 1],
                           float (&p_tile)[B][B + 8], float (&ds_tile)[B][B + 8], float sharpness,
                           const float* __restrict__ row_max, const float* __restrict__ row_sum,
                           const float* __restrict__ delta, int q0, int k0, int n_q, int n_k, int causal) {
    constexpr int SIDE = B / 8;
    const int tx = threadIdx.x % 8, ty = threadIdx.x / 8;
    float s[SIDE][SIDE] = {}, dp[SIDE][SIDE] = {}, total = 0.0f;
    pair_rows<squared_distance, D / 2>(s, q_tile, k_tile, ty, tx);
    pair_rows<dot, DV / 4>(dp, do_tile, v_tile, ty, tx);
#pragma unroll
    for (int r = 0; r < SIDE; ++r) {
        const int i = q0 + ty + 8 * r;
        const int seen = i < n_q ? keys_seen(i, n_q, n_k, causal) : 0;
        const float m = i < n_q ? row_max[i] : 0.0f, l = i < n_q ? row_sum[i] : 1.0f,
                    d = i < n_q ? delta[i] : 0.0f;
#pragma unroll
        for (int j = 0; j < SIDE; ++j) {
            const float score = score_of(s[r][j], sharpness);
            const float p = k0 + tx + 8 * j < seen ? expf(score - m) / l : 0.0f;
            const float ds = score > -FLT_MAX ? p * (dp[r][j] - d) : 0.0f;  // an overflow has no gradient
            p_tile[ty + 8 * r][tx + 8 * j] = p;
            ds_tile[ty + 8 * r][tx + 8 * j] = ds;
            total += ds * (score - finite(m));
        }
    }
    return total;
}

// One float4 of [mu | sigma], column c of D / 2, to its array.
template <int D, typename T>
__device__ void store_gaussian(T* __restrict__ mu, T* __restrict__ sigma, float4 value, int row, int c, int n,
                               int d) {
    store4(c < D / 4 ? mu : sigma, value, row, 4 * (c % (D / 4)), n, d);
}

// B x B tiles, 64 threads as an 8 x 8 grid (ty, tx). tau_part (heads, n_k / B): sums of dS * (s - max), which
// the wrapper adds. Grid (n_k / B, heads), block 64. B is 32, or 16 if D is above 32 or DV above 64.
template <typename T, int D, int DV>
__global__ void w2_backward_keys(const T* __restrict__ mu_q, const T* __restrict__ sigma_q,
                                 const T* __restrict__ mu_k, const T* __restrict__ sigma_k,
                                 const T* __restrict__ v, const T* __restrict__ grad_out,
                                 const float* __restrict__ inverse_tau, const float* __restrict__ row_max,
                                 const float* __restrict__ row_sum, const float* __restrict__ delta,
                                 T* __restrict__ dmu_k, T* __restrict__ dsigma_k, T* __restrict__ dv,
                                 float* __restrict__ tau_part, int n_heads, int n_q, int n_k, int d,
                                 int v_dim, int causal) {
    constexpr int B = D > 32 || DV > 64 ? 16 : 32, SIDE = B / 8;
    __shared__ float4 q_tile[B][D / 2 + 1], k_tile[B][D / 2 + 1], do_tile[B][DV / 4 + 1],
        v_tile[B][DV / 4 + 1];
    __shared__ float p_tile[B][B + 8], ds_tile[B][B + 8];
    const int tx = threadIdx.x % 8, ty = threadIdx.x / 8, k0 = blockIdx.x * B;
    const long long head = blockIdx.y, queries_at = head * n_q * d, keys_at = head * n_k * d;
    const float sharpness = inverse_tau[head % n_heads];
    load_gaussians<B, D>(k_tile, mu_k + keys_at, sigma_k + keys_at, k0, n_k, d);
    load_tile<B, DV>(v_tile, v + head * n_k * v_dim, k0, n_k, v_dim);

    float4 dk_sum[SIDE][D / 16], dv_sum[SIDE][DV / 32];
    float tau_sum = 0.0f;
#pragma unroll
    for (int j = 0; j < SIDE; ++j) {
        for (int b = 0; b < D / 16; ++b) dk_sum[j][b] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (int b = 0; b < DV / 32; ++b) dv_sum[j][b] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    const int first_query = causal ? max(0, k0 + n_q - n_k) : 0;  // queries before it see none of these keys
    for (int q0 = first_query / B * B; q0 < n_q; q0 += B) {
        __syncthreads();
        load_gaussians<B, D>(q_tile, mu_q + queries_at, sigma_q + queries_at, q0, n_q, d);
        load_tile<B, DV>(do_tile, grad_out + head * n_q * v_dim, q0, n_q, v_dim);
        __syncthreads();
        tau_sum += recompute<B, D, DV>(q_tile, k_tile, do_tile, v_tile, p_tile, ds_tile, sharpness,
                                       row_max + head * n_q, row_sum + head * n_q, delta + head * n_q, q0, k0,
                                       n_q, n_k, causal);
        __syncthreads();
#pragma unroll
        for (int j = 0; j < SIDE; ++j) {
            for (int b = 0; b < D / 16; ++b) {
                const float4 key = k_tile[ty + 8 * j][tx + 8 * b];
                for (int i = 0; i < B; ++i)
                    add_scaled(dk_sum[j][b], 2.0f * sharpness * ds_tile[i][ty + 8 * j],
                               minus(q_tile[i][tx + 8 * b], key));
            }
            for (int b = 0; b < DV / 32; ++b)
                for (int i = 0; i < B; ++i)
                    add_scaled(dv_sum[j][b], p_tile[i][ty + 8 * j], do_tile[i][tx + 8 * b]);
        }
    }
#pragma unroll
    for (int j = 0; j < SIDE; ++j) {
        const int key = k0 + ty + 8 * j;
        for (int b = 0; b < D / 16; ++b)
            store_gaussian<D>(dmu_k + keys_at, dsigma_k + keys_at, dk_sum[j][b], key, tx + 8 * b, n_k, d);
        for (int b = 0; b < DV / 32; ++b)
            store4(dv + head * n_k * v_dim, dv_sum[j][b], key, 4 * (tx + 8 * b), n_k, v_dim);
    }
    tau_sum = lanes_sum(tau_sum);
    __syncthreads();  // all have finished with p_tile
    if (threadIdx.x % 32 == 0) p_tile[0][threadIdx.x / 32] = tau_sum;
    __syncthreads();
    if (threadIdx.x == 0) tau_part[head * gridDim.x + blockIdx.x] = p_tile[0][0] + p_tile[0][1];
}

// Grid (n_q / B, heads), block 64.
template <typename T, int D, int DV>
__global__ void w2_backward_queries(const T* __restrict__ mu_q, const T* __restrict__ sigma_q,
                                    const T* __restrict__ mu_k, const T* __restrict__ sigma_k,
                                    const T* __restrict__ v, const T* __restrict__ grad_out,
                                    const float* __restrict__ inverse_tau, const float* __restrict__ row_max,
                                    const float* __restrict__ row_sum, const float* __restrict__ delta,
                                    T* __restrict__ dmu_q, T* __restrict__ dsigma_q, int n_heads, int n_q,
                                    int n_k, int d, int v_dim, int causal) {
    constexpr int B = D > 32 || DV > 64 ? 16 : 32, SIDE = B / 8;
    __shared__ float4 q_tile[B][D / 2 + 1], k_tile[B][D / 2 + 1], do_tile[B][DV / 4 + 1],
        v_tile[B][DV / 4 + 1];
    __shared__ float p_tile[B][B + 8], ds_tile[B][B + 8];
    const int tx = threadIdx.x % 8, ty = threadIdx.x / 8, q0 = blockIdx.x * B;
    const long long head = blockIdx.y, queries_at = head * n_q * d, keys_at = head * n_k * d;
    const float sharpness = inverse_tau[head % n_heads];
    load_gaussians<B, D>(q_tile, mu_q + queries_at, sigma_q + queries_at, q0, n_q, d);
    load_tile<B, DV>(do_tile, grad_out + head * n_q * v_dim, q0, n_q, v_dim);

    float4 dq_sum[SIDE][D / 16];
#pragma unroll
    for (int r = 0; r < SIDE; ++r)
        for (int b = 0; b < D / 16; ++b) dq_sum[r][b] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

    const int end = keys_seen(min(q0 + B, n_q) - 1, n_q, n_k, causal);
    for (int k0 = 0; k0 < end; k0 += B) {
        __syncthreads();
        load_gaussians<B, D>(k_tile, mu_k + keys_at, sigma_k + keys_at, k0, n_k, d);
        load_tile<B, DV>(v_tile, v + head * n_k * v_dim, k0, n_k, v_dim);
        __syncthreads();
        recompute<B, D, DV>(q_tile, k_tile, do_tile, v_tile, p_tile, ds_tile, sharpness, row_max + head * n_q,
                            row_sum + head * n_q, delta + head * n_q, q0, k0, n_q, n_k, causal);
        __syncthreads();
#pragma unroll
        for (int r = 0; r < SIDE; ++r) {
            for (int b = 0; b < D / 16; ++b) {
                const float4 query = q_tile[ty + 8 * r][tx + 8 * b];
                for (int j = 0; j < B; ++j)
                    add_scaled(dq_sum[r][b], 2.0f * sharpness * ds_tile[ty + 8 * r][j],
                               minus(k_tile[j][tx + 8 * b], query));
            }
        }
    }
#pragma unroll
    for (int r = 0; r < SIDE; ++r)
        for (int b = 0; b < D / 16; ++b)
            store_gaussian<D>(dmu_q + queries_at, dsigma_q + queries_at, dq_sum[r][b], q0 + ty + 8 * r,
                              tx + 8 * b, n_q, d);
}
