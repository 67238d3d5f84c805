// Attention backward from q, k, v, out and one number per row, the log-sum-exp. The weights are recomputed.
//
//   P = exp(scale q k^T + bias - lse)     dV = P^T dO     dP = dO v^T     dS = P * (dP - D),  D = rowsum(dO * out)
//   dQ = scale dS k     dK = scale dS^T q     d bias = column sums of dS
//
// Counted at n = 128, d = 64 as in flash_attention.cu; no bank conflicts anywhere.
//
//   kernel               idea                                         products   same bits    asked  wavefronts
//   rowsum_do_o          D, one warp per row                          -          yes         66,048           0
//   backward_keys        a key tile stays, queries pass: dK, dV       4          yes        425,984     101,888
//   backward_queries     a query tile stays, keys pass: dQ            3          yes        393,216      65,024
//   backward_atomic      backward_keys, and dQ by atomicAdd           5          no         425,984     142,848
//                                                                                           + 1,024 atomic requests
//
// Shapes and types as in flash_attention.cu. B x B tiles, 64 threads as an 8 x 8 grid (ty, tx).
#include "../common/tiles.cuh"

// Grid (n_q, heads), block 32.
template <typename T>
__global__ void rowsum_do_o(const T* __restrict__ grad_out, const T* __restrict__ out,
                            float* __restrict__ delta, int n_q, int v_dim) {
    const long long row = (long long)blockIdx.y * n_q + blockIdx.x;
    float sum = 0.0f;
    for (int c = threadIdx.x; c < v_dim; c += 32)
        sum += widen(grad_out[row * v_dim + c]) * widen(out[row * v_dim + c]);
    sum = lanes_sum(sum);
    if (threadIdx.x == 0) delta[row] = sum;
}

// One tile of P and of dS, from tiles of q, k, dO and v in shared memory into shared memory.
template <int B, int D, int DV>
__device__ void recompute(float4 (&q_tile)[B][D / 4 + 1], float4 (&k_tile)[B][D / 4 + 1],
                          float4 (&do_tile)[B][DV / 4 + 1], float4 (&v_tile)[B][DV / 4 + 1],
                          float (&p_tile)[B][B + 8], float (&ds_tile)[B][B + 8],
                          const float* __restrict__ bias, const float* __restrict__ lse,
                          const float* __restrict__ delta, int q0, int k0, int n_q, int n_k, float scale,
                          int causal) {
    constexpr int SIDE = B / 8;
    const int tx = threadIdx.x % 8, ty = threadIdx.x / 8;
    float s[SIDE][SIDE] = {}, dp[SIDE][SIDE] = {}, key_bias[SIDE];
    pair_rows<dot, D / 4>(s, q_tile, k_tile, ty, tx);
    pair_rows<dot, DV / 4>(dp, do_tile, v_tile, ty, tx);
#pragma unroll
    for (int j = 0; j < SIDE; ++j) {
        const int key = k0 + tx + 8 * j;
        key_bias[j] = bias && key < n_k ? bias[key] : 0.0f;
    }
#pragma unroll
    for (int r = 0; r < SIDE; ++r) {
        const int i = q0 + ty + 8 * r;
        const int seen = i < n_q ? keys_seen(i, n_q, n_k, causal) : 0;
        const float row_lse = i < n_q ? finite(lse[i]) : 0.0f, row_delta = i < n_q ? delta[i] : 0.0f;
#pragma unroll
        for (int j = 0; j < SIDE; ++j) {
            const float score = scale * s[r][j] + key_bias[j];
            const float p = k0 + tx + 8 * j < seen ? expf(score - row_lse) : 0.0f;
            p_tile[ty + 8 * r][tx + 8 * j] = p;
            ds_tile[ty + 8 * r][tx + 8 * j] = p * (dp[r][j] - row_delta);
        }
    }
}

// dQ += scale dS k for one tile. Other blocks add to the same rows, in any order.
template <int B, int D>
__device__ void add_dq(float* __restrict__ dq, float (&ds_tile)[B][B + 8], float4 (&k_tile)[B][D / 4 + 1],
                       int q0, int n_q, int d, float scale) {
    const int tx = threadIdx.x % 8, ty = threadIdx.x / 8;
#pragma unroll 1
    for (int row = ty; row < B && q0 + row < n_q; row += 8) {
        for (int b = 0; b < D / 32; ++b) {
            float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
            for (int j = 0; j < B; ++j) add_scaled(sum, scale * ds_tile[row][j], k_tile[j][tx + 8 * b]);
            const int c = 4 * (tx + 8 * b);
            float* at = dq + (q0 + row) * d + c;
            if (c < d) atomicAdd(at, sum.x);
            if (c + 1 < d) atomicAdd(at + 1, sum.y);
            if (c + 2 < d) atomicAdd(at + 2, sum.z);
            if (c + 3 < d) atomicAdd(at + 3, sum.w);
        }
    }
}

// A head's queries are q_rows rows after those of the head before, its keys k_rows.
template <typename T, int D, int DV, bool ATOMIC_DQ>
__device__ void key_tile_gradients(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                                   const float* __restrict__ key_bias, const T* __restrict__ grad_out,
                                   const float* __restrict__ lse, const float* __restrict__ delta,
                                   float* __restrict__ dq, T* __restrict__ dk, T* __restrict__ dv,
                                   float* __restrict__ dbias, int group_size, int q_rows, int k_rows, int n_q,
                                   int n_k, int d, int v_dim, float scale, int causal) {
    constexpr int B = D > 64 || DV > 64 ? 16 : 32, SIDE = B / 8;
    __shared__ float4 q_tile[B][D / 4 + 1], k_tile[B][D / 4 + 1], do_tile[B][DV / 4 + 1],
        v_tile[B][DV / 4 + 1];
    __shared__ float p_tile[B][B + 8], ds_tile[B][B + 8];
    const int tx = threadIdx.x % 8, ty = threadIdx.x / 8, k0 = blockIdx.x * B;
    const long long kv_head = blockIdx.y;
    load_tile<B, D>(k_tile, k + kv_head * k_rows * d, k0, n_k, d);
    load_tile<B, DV>(v_tile, v + kv_head * k_rows * v_dim, k0, n_k, v_dim);

    float4 dk_sum[SIDE][D / 32], dv_sum[SIDE][DV / 32];
    float bias_sum = 0.0f;
#pragma unroll
    for (int j = 0; j < SIDE; ++j) {
        for (int b = 0; b < D / 32; ++b) dk_sum[j][b] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (int b = 0; b < DV / 32; ++b) dv_sum[j][b] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    const int first_query = causal ? max(0, k0 + n_q - n_k) : 0;  // queries before it see none of these keys
    for (long long head = kv_head * group_size; head < (kv_head + 1) * group_size; ++head) {
        for (int q0 = first_query / B * B; q0 < n_q; q0 += B) {
            __syncthreads();
            load_tile<B, D>(q_tile, q + head * q_rows * d, q0, n_q, d);
            load_tile<B, DV>(do_tile, grad_out + head * q_rows * v_dim, q0, n_q, v_dim);
            __syncthreads();
            recompute<B, D, DV>(q_tile, k_tile, do_tile, v_tile, p_tile, ds_tile,
                                key_bias ? key_bias + kv_head * k_rows : nullptr, lse + head * q_rows,
                                delta + head * q_rows, q0, k0, n_q, n_k, scale, causal);
            __syncthreads();
            for (int i = 0; i < B; ++i) {
#pragma unroll
                for (int j = 0; j < SIDE; ++j) {
                    const float p = p_tile[i][ty + 8 * j], ds = ds_tile[i][ty + 8 * j];
                    for (int b = 0; b < D / 32; ++b)
                        add_scaled(dk_sum[j][b], scale * ds, q_tile[i][tx + 8 * b]);
                    for (int b = 0; b < DV / 32; ++b) add_scaled(dv_sum[j][b], p, do_tile[i][tx + 8 * b]);
                }
            }
            if (dbias && threadIdx.x < B)
                for (int i = 0; i < B; ++i) bias_sum += ds_tile[i][threadIdx.x];
            if (ATOMIC_DQ) add_dq<B, D>(dq + head * q_rows * d, ds_tile, k_tile, q0, n_q, d, scale);
        }
    }
#pragma unroll
    for (int j = 0; j < SIDE; ++j) {
        const int key = k0 + ty + 8 * j;
        for (int b = 0; b < D / 32; ++b)
            store4(dk + kv_head * k_rows * d, dk_sum[j][b], key, 4 * (tx + 8 * b), n_k, d);
        for (int b = 0; b < DV / 32; ++b)
            store4(dv + kv_head * k_rows * v_dim, dv_sum[j][b], key, 4 * (tx + 8 * b), n_k, v_dim);
    }
    if (dbias && threadIdx.x < B && k0 + threadIdx.x < n_k)
        dbias[kv_head * k_rows + k0 + threadIdx.x] = bias_sum;
}

// Grid (n_k / B, heads / group_size), block 64. B is 32, or 16 if D or DV is above 64.
template <typename T, int D, int DV>
__global__ void backward_keys(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                              const float* __restrict__ key_bias, const T* __restrict__ grad_out,
                              const float* __restrict__ lse, const float* __restrict__ delta,
                              T* __restrict__ dk, T* __restrict__ dv, float* __restrict__ dbias,
                              int group_size, int n_q, int n_k, int d, int v_dim, float scale, int causal) {
    key_tile_gradients<T, D, DV, false>(q, k, v, key_bias, grad_out, lse, delta, nullptr, dk, dv, dbias,
                                        group_size, n_q, n_k, n_q, n_k, d, v_dim, scale, causal);
}

// dq in float, all zeros at the start. Grid and block as backward_keys.
template <typename T, int D, int DV>
__global__ void backward_atomic(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                                const float* __restrict__ key_bias, const T* __restrict__ grad_out,
                                const float* __restrict__ lse, const float* __restrict__ delta,
                                float* __restrict__ dq, T* __restrict__ dk, T* __restrict__ dv,
                                float* __restrict__ dbias, int group_size, int n_q, int n_k, int d, int v_dim,
                                float scale, int causal) {
    key_tile_gradients<T, D, DV, true>(q, k, v, key_bias, grad_out, lse, delta, dq, dk, dv, dbias, group_size,
                                       n_q, n_k, n_q, n_k, d, v_dim, scale, causal);
}

template <typename T, int D, int DV>
__device__ void query_tile_gradients(const T* __restrict__ q, const T* __restrict__ k,
                                     const T* __restrict__ v, const float* __restrict__ key_bias,
                                     const T* __restrict__ grad_out, const float* __restrict__ lse,
                                     const float* __restrict__ delta, T* __restrict__ dq, int group_size,
                                     int q_rows, int k_rows, int n_q, int n_k, int d, int v_dim, float scale,
                                     int causal) {
    constexpr int B = D > 64 || DV > 64 ? 16 : 32, SIDE = B / 8;
    __shared__ float4 q_tile[B][D / 4 + 1], k_tile[B][D / 4 + 1], do_tile[B][DV / 4 + 1],
        v_tile[B][DV / 4 + 1];
    __shared__ float p_tile[B][B + 8], ds_tile[B][B + 8];
    const int tx = threadIdx.x % 8, ty = threadIdx.x / 8, q0 = blockIdx.x * B;
    const long long head = blockIdx.y, kv_head = head / group_size;
    load_tile<B, D>(q_tile, q + head * q_rows * d, q0, n_q, d);
    load_tile<B, DV>(do_tile, grad_out + head * q_rows * v_dim, q0, n_q, v_dim);

    float4 dq_sum[SIDE][D / 32];
#pragma unroll
    for (int r = 0; r < SIDE; ++r)
        for (int b = 0; b < D / 32; ++b) dq_sum[r][b] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

    const int end = keys_seen(min(q0 + B, n_q) - 1, n_q, n_k, causal);
    for (int k0 = 0; k0 < end; k0 += B) {
        __syncthreads();
        load_tile<B, D>(k_tile, k + kv_head * k_rows * d, k0, n_k, d);
        load_tile<B, DV>(v_tile, v + kv_head * k_rows * v_dim, k0, n_k, v_dim);
        __syncthreads();
        recompute<B, D, DV>(q_tile, k_tile, do_tile, v_tile, p_tile, ds_tile,
                            key_bias ? key_bias + kv_head * k_rows : nullptr, lse + head * q_rows,
                            delta + head * q_rows, q0, k0, n_q, n_k, scale, causal);
        __syncthreads();
        for (int j = 0; j < B; ++j) {
#pragma unroll
            for (int r = 0; r < SIDE; ++r) {
                const float ds = scale * ds_tile[ty + 8 * r][j];
                for (int b = 0; b < D / 32; ++b) add_scaled(dq_sum[r][b], ds, k_tile[j][tx + 8 * b]);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < SIDE; ++r)
        for (int b = 0; b < D / 32; ++b)
            store4(dq + head * q_rows * d, dq_sum[r][b], q0 + ty + 8 * r, 4 * (tx + 8 * b), n_q, d);
}

// Grid (n_q / B, heads), block 64.
template <typename T, int D, int DV>
__global__ void backward_queries(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                                 const float* __restrict__ key_bias, const T* __restrict__ grad_out,
                                 const float* __restrict__ lse, const float* __restrict__ delta,
                                 T* __restrict__ dq, int group_size, int n_q, int n_k, int d, int v_dim,
                                 float scale, int causal) {
    query_tile_gradients<T, D, DV>(q, k, v, key_bias, grad_out, lse, delta, dq, group_size, n_q, n_k, n_q,
                                   n_k, d, v_dim, scale, causal);
}

// Texts packed into one row of `total` tokens, as in packed.cu: blockIdx.z is the text, which is cu_seqlens[z] ..
// cu_seqlens[z + 1] - 1. Grid (longest / B, heads / group_size, texts), block 64.
template <typename T, int D, int DV>
__global__ void packed_keys(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                            const int* __restrict__ cu_seqlens, const T* __restrict__ grad_out,
                            const float* __restrict__ lse, const float* __restrict__ delta,
                            T* __restrict__ dk, T* __restrict__ dv, int group_size, int total, int d,
                            int v_dim, float scale, int causal) {
    constexpr int B = D > 64 || DV > 64 ? 16 : 32;
    const long long at = cu_seqlens[blockIdx.z];
    const int n = cu_seqlens[blockIdx.z + 1] - (int)at;
    if (blockIdx.x * B >= n) return;  // another text is longer
    key_tile_gradients<T, D, DV, false>(
        q + at * d, k + at * d, v + at * v_dim, nullptr, grad_out + at * v_dim, lse + at, delta + at, nullptr,
        dk + at * d, dv + at * v_dim, nullptr, group_size, total, total, n, n, d, v_dim, scale, causal);
}

// Grid (longest / B, heads, texts), block 64.
template <typename T, int D, int DV>
__global__ void packed_queries(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                               const int* __restrict__ cu_seqlens, const T* __restrict__ grad_out,
                               const float* __restrict__ lse, const float* __restrict__ delta,
                               T* __restrict__ dq, int group_size, int total, int d, int v_dim, float scale,
                               int causal) {
    constexpr int B = D > 64 || DV > 64 ? 16 : 32;
    const long long at = cu_seqlens[blockIdx.z];
    const int n = cu_seqlens[blockIdx.z + 1] - (int)at;
    if (blockIdx.x * B >= n) return;
    query_tile_gradients<T, D, DV>(q + at * d, k + at * d, v + at * v_dim, nullptr, grad_out + at * v_dim,
                                   lse + at, delta + at, dq + at * d, group_size, total, total, n, n, d,
                                   v_dim, scale, causal);
}
