// Attention backward on the tensor cores, from q, k, v and one number per row, the log-sum-exp.
//
//   P = exp(scale q k^T + bias - lse)     dV = P^T dO     dP = dO v^T     dS = P * (dP - D),  D = rowsum(dO * out)
//   dQ = scale dS k     dK = scale dS^T q     d bias = column sums of dS
//
// Shapes, types and widths as in tensor_core.cu; lse and D (`delta`) in float.
// On an H200: 83 to 93 % of the speed of FlashAttention-2 in torch (data/gpu/README.md).
//
// One kernel, two instances. A block keeps a tile of rows, and tiles of the other side pass, as tiles of keys
// do in the forward. With KEYS_STAY the rows are keys, queries pass, and the scores are computed transposed,
// k q^T: then P^T and dS^T are already in the registers in which the next products need them, as A of dV and
// dK. Without it the rows are queries and the result is dQ. Shared memory holds inputs only, and each sum has
// one owner: no atomics, the same bits in every run. The price is seven products instead of five: S and dP
// are computed in both.
//
// A score's exponent, in units of log2: s * scale + (term of its query) + (term of its key). A query's term
// is -lse, a key's is its bias, and that of a row beyond the end is -inf: its P is 0 without a mask. Only the
// diagonal needs one.
//
// Counted at n = 256, d = 64, one bfloat16 head, not causal: bytes asked of global memory, wavefronts of
// shared memory (those of the copies included), bank conflicts among them; for comparison the kernels of
// backward.cu.
//
//   kernel                              asked   wavefronts  excess
//   backward_keys                     786,432      406,528       0
//   backward_queries                  753,664      259,072       0
//   row_deltas                         66,560            0       0
//   backward_tensor_core, keys        266,240       15,904       0
//   backward_tensor_core, queries     237,568       13,344       0
//
// Registers: 226 to 255 on sm_90, without spills; 12 bytes per thread are spilled on sm_80 where keys stay
// (data/gpu/registers.txt). Two blocks per multiprocessor on sm_90 and sm_100; one at D = DV = 128 on sm_80, 86,
// 89 and 120.
#include "../common/tiles.cuh"
#include "../common/tensor_tiles.cuh"

using namespace tensor_core;

// D of every row: DV / 8 lanes per row, 16 bytes each. Grid (rows DV / 8 / 128), block 128.
template <typename T, int DV>
__global__ void row_deltas(const T* __restrict__ grad_out, const T* __restrict__ out,
                           float* __restrict__ delta, int rows, int v_dim) {
    constexpr int LANES = DV / 8;
    const long long row = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    const int column = threadIdx.x % LANES * 8;
    float sum = 0.0f;
    if (row < rows && column < v_dim) {
        const uint4 a = *(const uint4*)(grad_out + row * v_dim + column);
        const uint4 b = *(const uint4*)(out + row * v_dim + column);
        for (int i = 0; i < 8; ++i) sum += widen(((const T*)&a)[i]) * widen(((const T*)&b)[i]);
    }
    sum = lanes_sum(sum, LANES);
    if (row < rows && column == 0) delta[row] = sum;
}

// d_rows is dk with KEYS_STAY and dq without; dv and dbias only with it. With M tiles of 16 rows per warp,
// grid (rows / (64 M), heads of the rows), block 128, dynamic shared memory 2 (64 M + 2 C) (D + DV) + 16 C
// bytes.
template <typename T, int D, int DV, bool BIAS, bool KEYS_STAY>
__global__ void __launch_bounds__(128, 2)
    backward_tensor_core(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                         const float* __restrict__ key_bias, const T* __restrict__ grad_out,
                         const float* __restrict__ lse, const float* __restrict__ delta,
                         T* __restrict__ d_rows, T* __restrict__ dv, float* __restrict__ dbias,
                         int group_size, int n_q, int n_k, int d, int v_dim, float scale, int causal) {
    constexpr int THREADS = 128, M = D + DV == 128 || !KEYS_STAY ? 2 : 1, C = 64 / M, ROWS = 64 * M;
    extern __shared__ __align__(128) unsigned char shared[];
    T* row_tile = (T*)shared;  // of k or q, ROWS x D
    T* row_values = row_tile + ROWS * D;  // of v or dO, ROWS x DV
    T* stages = row_values + ROWS * DV;  // two of them: C rows of q or k, then C of dO or v
    constexpr int STAGE = C * (D + DV);
    float2* terms = (float2*)(stages + 2 * STAGE);  // of the passing rows: in the exponent, and D

    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, warp_row = threadIdx.x / 32 * 16 * M;
    const int n_rows = KEYS_STAY ? n_k : n_q, row0 = blockIdx.x * ROWS, first_row = row0 + warp_row;
    const long long head = KEYS_STAY ? blockIdx.y * (long long)group_size : blockIdx.y,
                    kv_head = head / group_size;
    const int shift = causal ? n_k - n_q : 1 << 30;  // query i sees key j if j <= i + shift

    // Range of the passing side: with KEYS_STAY the queries that see the first key, once per head of the
    // group.
    const int begin = KEYS_STAY ? max(0, row0 - shift) : 0;
    const int end = KEYS_STAY ? n_q : keys_seen(min(row0 + ROWS, n_q) - 1, n_q, n_k, causal);
    const int tiles = max(0, end - begin + C - 1) / C, steps = KEYS_STAY ? tiles * group_size : tiles;

    auto query_term = [&](long long of_head, int i) {
        if (i >= n_q) return make_float2(-INFINITY, 0.0f);
        const float x = lse[of_head * n_q + i];  // -inf if the query saw no key
        return make_float2(x == -INFINITY ? x : -x * LOG2E, delta[of_head * n_q + i]);
    };
    auto key_term = [&](int j) {
        return make_float2(j >= n_k ? -INFINITY : BIAS ? key_bias[kv_head * n_k + j] * LOG2E : 0.0f, 0.0f);
    };
    auto fetch = [&](int step, int c0, long long of_head) {  // starts the copy of one tile; returns its terms
        const long long from = KEYS_STAY ? of_head * n_q + c0 : kv_head * n_k + c0;
        T* stage = stages + step % 2 * STAGE;
        copy_rows<C, D, THREADS>(stage, (KEYS_STAY ? q : k) + from * d, end - c0, d);
        copy_rows<C, DV, THREADS>(stage + C * D, (KEYS_STAY ? grad_out : v) + from * v_dim, end - c0, v_dim);
        commit();
        const int i = c0 + threadIdx.x;
        if (threadIdx.x >= C) return make_float2(0.0f, 0.0f);
        return KEYS_STAY ? query_term(of_head, i) : key_term(i);
    };
    const long long rows_from = (KEYS_STAY ? kv_head * n_k : head * n_q) + row0;
    copy_rows<ROWS, D, THREADS>(row_tile, (KEYS_STAY ? k : q) + rows_from * d, n_rows - row0, d);
    copy_rows<ROWS, DV, THREADS>(row_values, (KEYS_STAY ? v : grad_out) + rows_from * v_dim, n_rows - row0,
                                 v_dim);
    float2 next = steps ? fetch(0, begin, head) : make_float2(0.0f, 0.0f);
    if (threadIdx.x < C) terms[threadIdx.x] = next;
    wait<0>();
    __syncthreads();

    const float to_log2 = scale * LOG2E;
    float2 row_term[M][2];  // of rows 16 m + g and 16 m + g + 8
#pragma unroll
    for (int m = 0; m < M; ++m)
        for (int h = 0; h < 2; ++h) {
            const int row = first_row + 16 * m + 8 * h + g;
            row_term[m][h] = KEYS_STAY ? key_term(row) : query_term(head, row);
        }
    float rows_sum[M][D / 8][4] = {}, values_sum[M][DV / 8][4] = {}, bias_sum[M][2] = {};

    int c0 = begin, next_c0 = begin;
    long long next_head = head;
    for (int step = 0; step < steps; ++step, c0 = next_c0) {
        next_c0 += C;
        if (KEYS_STAY && next_c0 >= end) next_c0 = begin, ++next_head;  // the next head of the group
        if (step + 1 < steps) next = fetch(step + 1, next_c0, next_head);
        const bool hidden =
            KEYS_STAY ? first_row > min(c0 + C, n_q) - 1 + shift : c0 > first_row + 16 * M - 1 + shift;
        if (first_row < n_rows && !hidden) {
            const T* columns = stages + step % 2 * STAGE;
            const T* column_values = columns + C * D;
            float s[M][C / 8][4] = {}, dp[M][C / 8][4] = {};
            uint32_t fragment[M][1][4];
            multiply_rows<M, C, D, false>(s, fragment, row_tile + warp_row * D, columns);
            multiply_rows<M, C, DV, false>(dp, fragment, row_values + warp_row * DV, column_values);
            if (KEYS_STAY ? first_row + 16 * M - 1 > c0 + shift
                          : c0 + C - 1 > first_row + shift) {  // the diagonal
#pragma unroll
                for (int m = 0; m < M; ++m)
                    for (int h = 0; h < 2; ++h) {
                        const int row = first_row + 16 * m + 8 * h + g - c0 - 2 * t;
                        for (int n = 0; n < C / 8; ++n)
                            for (int e = 0; e < 2; ++e)
                                if (KEYS_STAY ? row > 8 * n + e + shift : 8 * n + e > row + shift)
                                    s[m][n][2 * h + e] = -INFINITY;
                    }
            }
            const float4* column_terms = (const float4*)(terms + step % 2 * C) + t;
#pragma unroll
            for (int n = 0; n < C / 8; ++n) {
                const float4 both = column_terms[4 * n];  // of two neighbouring columns
                for (int m = 0; m < M; ++m)
                    for (int i = 0; i < 4; ++i) {
                        const float2 row = row_term[m][i / 2];
                        const float column = i % 2 ? both.z : both.x;
                        const float of_query = KEYS_STAY ? (i % 2 ? both.w : both.y) : row.y;
                        // Keys beyond the end need no term: their rows are not stored.
                        const float term = KEYS_STAY && !BIAS ? column : row.x + column;
                        const float p = power_of_two(fmaf(s[m][n][i], to_log2, term));
                        s[m][n][i] = p;
                        dp[m][n][i] = p * (dp[m][n][i] - of_query);
                        if (BIAS && KEYS_STAY) bias_sum[m][i / 2] += dp[m][n][i];
                    }
            }
            if (KEYS_STAY) multiply_columns<M, C, DV>(values_sum, s, column_values);
            multiply_columns<M, C, D>(rows_sum, dp, columns);
        }
        if (step + 1 < steps && threadIdx.x < C) terms[(step + 1) % 2 * C + threadIdx.x] = next;
        wait<0>();
        __syncthreads();  // the next tile is complete, this one may be overwritten
    }
    float by_scale[M][2], by_one[M][2];
#pragma unroll
    for (int m = 0; m < M; ++m)
        for (int h = 0; h < 2; ++h) {
            by_scale[m][h] = scale, by_one[m][h] = 1.0f;
            if (BIAS && KEYS_STAY) {
                const float sum = lanes_sum(bias_sum[m][h], 4);
                const int key = first_row + 16 * m + 8 * h + g;
                if (t == 0 && key < n_k) dbias[kv_head * n_k + key] = sum;
            }
        }
    const long long to = rows_from + warp_row;
    const int left = n_rows - first_row;
    store_rows<M, D>(d_rows + to * d, row_tile + warp_row * D, rows_sum, by_scale, left, d);
    if (KEYS_STAY)
        store_rows<M, DV>(dv + to * v_dim, row_values + warp_row * DV, values_sum, by_one, left, v_dim);
}
