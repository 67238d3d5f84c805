// Rows of scores: the causal rule, and reductions by neighbouring lanes.
#pragma once
#include <math.h>

// Number of keys that query i of n_q sees. Causal: the last query sees the last key.
__device__ inline int keys_seen(int i, int n_q, int n_k, int causal) {
    return causal ? min(n_k, max(0, i + 1 + n_k - n_q)) : n_k;
}

// -inf - -inf is NaN. Before the first visible key, subtract 0 instead: exp(-inf - 0) = 0.
__device__ inline float finite(float m) { return m == -INFINITY ? 0.0f : m; }

// log(sum of exp(scores)) of a row with maximum m and sum l of exp(score - m); -inf without a visible key.
__device__ inline float log_sum_exp(float m, float l) { return l > 0.0f ? m + logf(l) : -INFINITY; }

// Starts the online softmax of a thread's rows: maximum m, sum l, and COLUMNS numbers (or float4) of the output o.
template <int ROWS, int COLUMNS, typename N>
__device__ inline void start_rows(float (&m)[ROWS], float (&l)[ROWS], N (&o)[ROWS][COLUMNS]) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        m[r] = -INFINITY;
        l[r] = 0.0f;
        for (int b = 0; b < COLUMNS; ++b) o[r][b] = N{};
    }
}

// Reductions over `width` neighbouring lanes; every lane gets the result.
__device__ inline float lanes_max(float x, int width = 32) {
    for (int step = width / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, step));
    return x;
}

__device__ inline float lanes_sum(float x, int width = 32) {
    for (int step = width / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffff, x, step);
    return x;
}
