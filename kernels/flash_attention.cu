// Attention forward, from three launches through an n x n matrix to one launch that keeps it in registers.
//
//   out = softmax(scale * q k^T + key_bias) v,   lse = log of the sum of exp of each row's scores
//
// q (heads, n_q, d), k (heads / group_size, n_k, d), v (heads / group_size, n_k, v_dim); `heads` counts batch
// and heads together, so query head h reads key head h / group_size. key_bias (heads / group_size, n_k) or
// null. float, __half or __nv_bfloat16 in and out; float inside. Any n; d and v_dim up to the template's D
// and DV.
//
// What each rung costs at n = 128, d = 64, one float head, not causal, as the laptop engine counts it: bytes
// asked of global memory, wavefronts of shared memory, and how many of those are bank conflicts. Rung 1 writes the
// matrix and reads it: 393,728 bytes even with an ideal cache; all others 131,584.
//
//   kernel                 idea                               still wastes              asked wavefronts    excess
//   1 scores,              the formula, one launch per step   the matrix out and in 17,138,176         0         0
//     softmax_rows,                                           and every operand
//     weighted_sum                                            from memory
//   2 flash_thread_per_row online softmax: no matrix          each row reads all k   8,454,656         0         0
//   3 flash_shared         32 rows share a tile of k and v    32-way conflicts on k    328,192 1,149,696 1,015,808
//   4 flash_vectors        float4, and a pitch of D + 4       one use per float4       328,192   101,120         0
//   5 flash_registers      4 x 4 scores per thread            k, v again per 32 rows   328,192    25,344         0
//   6 flash_two_groups     64 rows share; skips the future    tensor cores are idle    197,120    24,320         0
//   7 flash_attention/tensor_core.cu, for a card
//
// On a card flash_thread_per_row at D = 128 spills registers to local memory: slow, not wrong.
#include "common/register_tiles.cuh"

// 1: one thread per score. s (heads, n_q, n_k) in float, -inf where a key is hidden.
// Grid (n_k / 32, n_q / 4, heads), block (32, 4).
template <typename T>
__global__ void scores(const T* __restrict__ q, const T* __restrict__ k, const float* __restrict__ key_bias,
                       float* __restrict__ s, int group_size, int n_q, int n_k, int d, float scale,
                       int causal) {
    const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    const long long head = blockIdx.z, kv_head = head / group_size;
    if (i >= n_q || j >= n_k) return;
    float sum = 0.0f;
    for (int c = 0; c < d; ++c)
        sum += widen(q[(head * n_q + i) * d + c]) * widen(k[(kv_head * n_k + j) * d + c]);
    const float bias = key_bias ? key_bias[kv_head * n_k + j] : 0.0f;
    s[(head * n_q + i) * n_k + j] = j < keys_seen(i, n_q, n_k, causal) ? scale * sum + bias : -INFINITY;
}

// One warp per row, in place: s becomes the weights. Grid (n_q, heads), block 32.
__global__ void softmax_rows(float* __restrict__ s, float* __restrict__ lse, int n_q, int n_k) {
    const long long row = (long long)blockIdx.y * n_q + blockIdx.x;
    s += row * n_k;
    float m = -INFINITY, l = 0.0f;
    for (int j = threadIdx.x; j < n_k; j += 32) m = fmaxf(m, s[j]);
    m = lanes_max(m);
    for (int j = threadIdx.x; j < n_k; j += 32) l += expf(s[j] - finite(m));
    l = lanes_sum(l);
    for (int j = threadIdx.x; j < n_k; j += 32) s[j] = l > 0.0f ? expf(s[j] - m) / l : 0.0f;
    if (threadIdx.x == 0) lse[row] = log_sum_exp(m, l);
}

// One thread per output entry. Grid (v_dim / 32, n_q / 4, heads), block (32, 4).
template <typename T>
__global__ void weighted_sum(const float* __restrict__ p, const T* __restrict__ v, T* __restrict__ out,
                             int group_size, int n_q, int n_k, int v_dim) {
    const int c = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    const long long head = blockIdx.z, kv_head = head / group_size;
    if (i >= n_q || c >= v_dim) return;
    float sum = 0.0f;
    for (int j = 0; j < n_k; ++j)
        sum += p[(head * n_q + i) * n_k + j] * widen(v[(kv_head * n_k + j) * v_dim + c]);
    out[(head * n_q + i) * v_dim + c] = narrow<T>(sum);
}

// 2: one thread per query row, keys one by one through the online softmax. Grid (n_q / 64, heads), block 64.
template <typename T, int D, int DV>
__global__ void flash_thread_per_row(const T* __restrict__ q, const T* __restrict__ k,
                                     const T* __restrict__ v, const float* __restrict__ key_bias,
                                     T* __restrict__ out, float* __restrict__ lse, int group_size, int n_q,
                                     int n_k, int d, int v_dim, float scale, int causal) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const long long head = blockIdx.y, kv_head = head / group_size;
    if (i >= n_q) return;
    q += (head * n_q + i) * d;
    k += kv_head * n_k * d;
    v += kv_head * n_k * v_dim;

    float q_row[D], o[DV], m = -INFINITY, l = 0.0f;
#pragma unroll
    for (int c = 0; c < D; ++c) q_row[c] = c < d ? widen(q[c]) : 0.0f;
#pragma unroll
    for (int c = 0; c < DV; ++c) o[c] = 0.0f;

    for (int j = 0; j < keys_seen(i, n_q, n_k, causal); ++j) {
        float s = 0.0f;
#pragma unroll
        for (int c = 0; c < D; ++c)
            if (c < d) s += q_row[c] * widen(k[j * d + c]);
        s = scale * s + (key_bias ? key_bias[kv_head * n_k + j] : 0.0f);
        const float m_new = fmaxf(m, s);
        const float p = expf(s - finite(m_new));
        const float shrink = expf(m - finite(m_new));  // rescales the sums made under the old maximum
#pragma unroll
        for (int c = 0; c < DV; ++c)
            if (c < v_dim) o[c] = shrink * o[c] + p * widen(v[j * v_dim + c]);
        l = shrink * l + p;
        m = m_new;
    }
    out += (head * n_q + i) * v_dim;
#pragma unroll
    for (int c = 0; c < DV; ++c)
        if (c < v_dim) out[c] = narrow<T>(l > 0.0f ? o[c] / l : 0.0f);
    lse[head * n_q + i] = log_sum_exp(m, l);
}

// 3: the block's 4 warps share a tile of 32 keys. A warp has ROWS query rows; its lanes are the tile's keys for the
// scores, and the output's columns for the sums over keys. Grid (n_q / (4 ROWS), heads), block 128.
template <typename T, int D, int DV, int ROWS>
__global__ void flash_shared(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                             const float* __restrict__ key_bias, T* __restrict__ out, float* __restrict__ lse,
                             int group_size, int n_q, int n_k, int d, int v_dim, float scale, int causal) {
    constexpr int TILE_Q = 4 * ROWS, TILE_K = 32;
    __shared__ float q_tile[TILE_Q][D], k_tile[TILE_K][D], v_tile[TILE_K][DV], p_tile[TILE_Q][TILE_K];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, q0 = blockIdx.x * TILE_Q;
    const long long head = blockIdx.y, kv_head = head / group_size;
    q += head * n_q * d;
    k += kv_head * n_k * d;
    v += kv_head * n_k * v_dim;

    for (int e = threadIdx.x; e < TILE_Q * D; e += blockDim.x) {
        const int row = e / D, c = e % D;
        q_tile[row][c] = q0 + row < n_q && c < d ? widen(q[(q0 + row) * d + c]) : 0.0f;
    }
    float m[ROWS], l[ROWS], o[ROWS][DV / 32];
    start_rows(m, l, o);
    for (int k0 = 0; k0 < n_k; k0 += TILE_K) {
        __syncthreads();  // the last tile is no longer in use
        for (int e = threadIdx.x; e < TILE_K * D; e += blockDim.x) {
            const int row = e / D, c = e % D;
            k_tile[row][c] = k0 + row < n_k && c < d ? widen(k[(k0 + row) * d + c]) : 0.0f;
        }
        for (int e = threadIdx.x; e < TILE_K * DV; e += blockDim.x) {
            const int row = e / DV, c = e % DV;
            v_tile[row][c] = k0 + row < n_k && c < v_dim ? widen(v[(k0 + row) * v_dim + c]) : 0.0f;
        }
        __syncthreads();  // the new tile is whole
        const int key = k0 + lane;
        const float bias = key_bias && key < n_k ? key_bias[kv_head * n_k + key] : 0.0f;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int row = warp * ROWS + r;
            float s = 0.0f;
            for (int c = 0; c < D; ++c) s += q_tile[row][c] * k_tile[lane][c];
            s = key < keys_seen(q0 + row, n_q, n_k, causal) ? scale * s + bias : -INFINITY;
            const float m_new = fmaxf(m[r], lanes_max(s));
            const float p = expf(s - finite(m_new)), shrink = expf(m[r] - finite(m_new));
            l[r] = shrink * l[r] + lanes_sum(p);
            m[r] = m_new;
            p_tile[row][lane] = p;
            __syncwarp();
            for (int b = 0; b < DV / 32; ++b) {
                float sum = 0.0f;
                for (int j = 0; j < TILE_K; ++j) sum += p_tile[row][j] * v_tile[j][32 * b + lane];
                o[r][b] = shrink * o[r][b] + sum;
            }
        }
    }
    const long long rows = head * n_q;
    store_warp_rows(out + rows * v_dim, lse + rows, m, l, o, q0 + warp * ROWS, n_q, v_dim);
}

// 4: the same walk. Rows of k are D + 4 floats apart, so that eight lanes reading a float4 each, from eight
// rows, touch all 32 banks once; four products per load. Grid and block as before.
template <typename T, int D, int DV, int ROWS>
__global__ void flash_vectors(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                              const float* __restrict__ key_bias, T* __restrict__ out,
                              float* __restrict__ lse, int group_size, int n_q, int n_k, int d, int v_dim,
                              float scale, int causal) {
    constexpr int TILE_Q = 4 * ROWS, TILE_K = 32;
    __shared__ float4 q_tile[TILE_Q][D / 4], k_tile[TILE_K][D / 4 + 1], v_tile[TILE_K][DV / 4];
    __shared__ float4 p_tile[TILE_Q][TILE_K / 4];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, q0 = blockIdx.x * TILE_Q;
    const long long head = blockIdx.y, kv_head = head / group_size;
    load_tile<TILE_Q, D>(q_tile, q + head * n_q * d, q0, n_q, d);

    float m[ROWS], l[ROWS], o[ROWS][DV / 32];
    start_rows(m, l, o);
    for (int k0 = 0; k0 < n_k; k0 += TILE_K) {
        __syncthreads();
        load_tile<TILE_K, D>(k_tile, k + kv_head * n_k * d, k0, n_k, d);
        load_tile<TILE_K, DV>(v_tile, v + kv_head * n_k * v_dim, k0, n_k, v_dim);
        __syncthreads();
        const int key = k0 + lane;
        const float bias = key_bias && key < n_k ? key_bias[kv_head * n_k + key] : 0.0f;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int row = warp * ROWS + r;
            float s = 0.0f;
            for (int c = 0; c < D / 4; ++c) s += dot(q_tile[row][c], k_tile[lane][c]);
            s = key < keys_seen(q0 + row, n_q, n_k, causal) ? scale * s + bias : -INFINITY;
            const float m_new = fmaxf(m[r], lanes_max(s));
            const float p = expf(s - finite(m_new)), shrink = expf(m[r] - finite(m_new));
            l[r] = shrink * l[r] + lanes_sum(p);
            m[r] = m_new;
            ((float*)p_tile[row])[lane] = p;
            __syncwarp();
            for (int b = 0; b < DV / 32; ++b) {
                float sum = 0.0f;
                for (int j = 0; j < TILE_K; j += 4) {
                    const float4 p4 = p_tile[row][j / 4];
                    const int c = 32 * b + lane;
                    sum += p4.x * ((const float*)v_tile[j])[c] + p4.y * ((const float*)v_tile[j + 1])[c] +
                           p4.z * ((const float*)v_tile[j + 2])[c] + p4.w * ((const float*)v_tile[j + 3])[c];
                }
                o[r][b] = shrink * o[r][b] + sum;
            }
        }
    }
    const long long rows = head * n_q;
    store_warp_rows(out + rows * v_dim, lse + rows, m, l, o, q0 + warp * ROWS, n_q, v_dim);
}

// 5: common/register_tiles.cuh, one group per block. Grid (n_q / 32, heads), block 64.
template <typename T, int D, int DV>
__global__ void flash_registers(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                                const float* __restrict__ key_bias, T* __restrict__ out,
                                float* __restrict__ lse, int group_size, int n_q, int n_k, int d, int v_dim,
                                float scale, int causal) {
    const long long head = blockIdx.y, rows = head * n_q, keys = head / group_size * n_k;
    register_tiles<T, D, DV, 1, false>(q + rows * d, k + keys * d, v + keys * v_dim,
                                       key_bias ? key_bias + keys : nullptr, out + rows * v_dim, lse + rows,
                                       n_q, n_k, d, v_dim, scale, causal);
}

// 6: two groups per block share k and v, and tiles wholly in the future are not visited.
// Grid (n_q / 64, heads), block 128.
template <typename T, int D, int DV>
__global__ void flash_two_groups(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                                 const float* __restrict__ key_bias, T* __restrict__ out,
                                 float* __restrict__ lse, int group_size, int n_q, int n_k, int d, int v_dim,
                                 float scale, int causal) {
    const long long head = blockIdx.y, rows = head * n_q, keys = head / group_size * n_k;
    register_tiles<T, D, DV, 2, true>(q + rows * d, k + keys * d, v + keys * v_dim,
                                      key_bias ? key_bias + keys : nullptr, out + rows * v_dim, lse + rows,
                                      n_q, n_k, d, v_dim, scale, causal);
}
