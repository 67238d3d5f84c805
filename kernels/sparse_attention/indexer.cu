// Attention to a few chosen tokens: an indexer scores all of them, and the layer reads only the best.
//
//   index score of query i and key j:   sum over the indexer's heads of w_ih relu(q_ih . k_j)
//   output of query i:                  attention over the tokens chosen[i], in any order; -1 is no token
//
// Counted at n = 256, d = 64, 8 chosen tokens, 4 query heads on 1, an indexer of 4 heads of 16, causal: bytes
// asked of global memory. Dense attention by flash_two_groups asks for 1,839,104: its 64 queries share a tile
// of keys, where a gather is each query's own. So a gather pays when the text is much longer than 64 times
// the tokens that are chosen, or when one query decodes.
//
//   kernel          idea                                              asked       still wastes
//   index_scores    one thread per pair of tokens; one key serves     17,631,232  every key is read again for
//                   all heads of the indexer                                      each query and head
//   gather_tokens   a chosen key and value are fetched once for a      1,566,720  neighbouring queries choose
//                   whole group of query heads                                    alike, and do not share
#include "../common/rows.cuh"

// q (b, heads, n_q, d), k (b, n_k, d), w (b, n_q, heads), scores (b, n_q, n_k); -inf where a key is hidden.
// Grid (n_k / 32, n_q / 4, b), block (32, 4).
__global__ void index_scores(const float* __restrict__ q, const float* __restrict__ k,
                             const float* __restrict__ w, float* __restrict__ scores, int heads, int n_q,
                             int n_k, int d, int causal) {
    const int j = blockIdx.x * 32 + threadIdx.x, i = blockIdx.y * 4 + threadIdx.y;
    const long long b = blockIdx.z;
    if (i >= n_q || j >= n_k) return;
    float sum = 0.0f;
    if (j < keys_seen(i, n_q, n_k, causal))
        for (int h = 0; h < heads; ++h) {
            float dot = 0.0f;
            for (int c = 0; c < d; ++c)
                dot += q[((b * heads + h) * n_q + i) * d + c] * k[(b * n_k + j) * d + c];
            sum += w[(b * n_q + i) * heads + h] * fmaxf(dot, 0.0f);
        }
    scores[(b * n_q + i) * n_k + j] = j < keys_seen(i, n_q, n_k, causal) ? sum : -INFINITY;
}

// q, out (b, heads, n_q, d), k and v (b, kv_heads, n_k, d), chosen (b, n_q, top_k); d at most D. One warp per
// query head of a group; its lanes are 32 chosen tokens for the scores, and columns for the sum of values.
// Grid (n_q, kv_heads, b), block (32, heads / kv_heads), at most 32 heads in a group.
template <int D>
__global__ void gather_tokens(const float* __restrict__ q, const float* __restrict__ k,
                              const float* __restrict__ v, const int* __restrict__ chosen,
                              float* __restrict__ out, int n_q, int n_k, int top_k, int d, float scale) {
    __shared__ float k_tile[32][D + 1], v_tile[32][D];
    __shared__ int token[32];
    const int lane = threadIdx.x, group = blockDim.y, i = blockIdx.x;
    const long long b = blockIdx.z, kv = b * gridDim.y + blockIdx.y;
    const long long row = ((kv * group + threadIdx.y) * n_q + i) * d;
    const int thread = threadIdx.y * 32 + lane;
    chosen += (b * n_q + i) * top_k;

    float query[D / 32], sum[D / 32], m = -INFINITY, l = 0.0f;
#pragma unroll
    for (int p = 0; p < D / 32; ++p) {
        query[p] = 32 * p + lane < d ? q[row + 32 * p + lane] : 0.0f;
        sum[p] = 0.0f;
    }
    for (int t = 0; t < top_k; t += 32) {
        __syncthreads();  // the last tokens are no longer in use
        if (thread < 32) token[thread] = t + thread < top_k ? chosen[t + thread] : -1;
        __syncthreads();
        for (int e = thread; e < 32 * D; e += 32 * group) {
            const int r = e / D, c = e % D;
            const bool read = token[r] >= 0 && c < d;
            k_tile[r][c] = read ? k[(kv * n_k + token[r]) * d + c] : 0.0f;
            v_tile[r][c] = read ? v[(kv * n_k + token[r]) * d + c] : 0.0f;
        }
        __syncthreads();  // keys and values of 32 tokens are here
        float s = 0.0f;
#pragma unroll
        for (int p = 0; p < D / 32; ++p)
            for (int c = 0; c < 32; ++c) s += __shfl_sync(0xffffffff, query[p], c) * k_tile[lane][32 * p + c];
        s = token[lane] >= 0 ? scale * s : -INFINITY;
        const float m_new = fmaxf(m, lanes_max(s));
        const float weight = expf(s - finite(m_new)), shrink = expf(m - finite(m_new));
        l = shrink * l + lanes_sum(weight);
        m = m_new;
#pragma unroll
        for (int p = 0; p < D / 32; ++p) {
            sum[p] *= shrink;
            for (int r = 0; r < 32; ++r)
                sum[p] += __shfl_sync(0xffffffff, weight, r) * v_tile[r][32 * p + lane];
        }
    }
#pragma unroll
    for (int p = 0; p < D / 32; ++p)
        if (32 * p + lane < d) out[row + 32 * p + lane] = l > 0.0f ? sum[p] / l : 0.0f;
}
