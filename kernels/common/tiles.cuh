// Tiles of float4 in shared memory: loaded, multiplied, and carried through the online softmax.
#pragma once
#include "numbers.cuh"
#include "rows.cuh"

__device__ inline float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }

__device__ inline void add_scaled(float4& sum, float p, float4 v) {
    sum.x += p * v.x;
    sum.y += p * v.y;
    sum.z += p * v.z;
    sum.w += p * v.w;
}

__device__ inline void multiply(float4& x, float by) {
    x.x *= by;
    x.y *= by;
    x.z *= by;
    x.w *= by;
}

// Four neighbours at once, one load or store of 16 or 8 bytes.
__device__ inline float4 widen4(const float* at) { return *(const float4*)at; }

__device__ inline float4 widen4(const __half* at) {
    const uint2 bits = *(const uint2*)at;
    const __half* x = (const __half*)&bits;
    return make_float4(widen(x[0]), widen(x[1]), widen(x[2]), widen(x[3]));
}

__device__ inline float4 widen4(const __nv_bfloat16* at) {
    const uint2 bits = *(const uint2*)at;
    const __nv_bfloat16* x = (const __nv_bfloat16*)&bits;
    return make_float4(widen(x[0]), widen(x[1]), widen(x[2]), widen(x[3]));
}

__device__ inline void narrow4(float4 value, float* at) { *(float4*)at = value; }

template <typename T>
__device__ void narrow4(float4 value, T* at) {
    uint2 bits;
    T* x = (T*)&bits;
    x[0] = narrow<T>(value.x);
    x[1] = narrow<T>(value.y);
    x[2] = narrow<T>(value.z);
    x[3] = narrow<T>(value.w);
    *(uint2*)at = bits;
}

// Columns c .. c+3 of one row of x, which has n rows of d values; 0 beyond its edges. One wide load if d is a
// multiple of 4.
template <typename T>
__device__ float4 load4(const T* __restrict__ x, int row, int c, int n, int d) {
    if (row >= n || c >= d) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    const T* at = x + (long long)row * d + c;
    if (d % 4 == 0) return widen4(at);
    return make_float4(widen(at[0]), c + 1 < d ? widen(at[1]) : 0.0f, c + 2 < d ? widen(at[2]) : 0.0f,
                       c + 3 < d ? widen(at[3]) : 0.0f);
}

// The reverse: nothing is written beyond the edges.
template <typename T>
__device__ void store4(T* __restrict__ x, float4 value, int row, int c, int n, int d) {
    if (row >= n || c >= d) return;
    T* at = x + (long long)row * d + c;
    if (d % 4 == 0) {
        narrow4(value, at);
        return;
    }
    at[0] = narrow<T>(value.x);
    if (c + 1 < d) at[1] = narrow<T>(value.y);
    if (c + 2 < d) at[2] = narrow<T>(value.z);
    if (c + 3 < d) at[3] = narrow<T>(value.w);
}

// Rows first .. first + ROWS - 1 of x into a tile of D / 4 float4 per row, by all threads of the block.
template <int ROWS, int D, typename T, int PITCH>
__device__ void load_tile(float4 (&tile)[ROWS][PITCH], const T* __restrict__ x, int first, int n, int d) {
    for (int e = threadIdx.x; e < ROWS * (D / 4); e += blockDim.x) {
        const int row = e / (D / 4), c = e % (D / 4);
        tile[row][c] = load4(x, first + row, 4 * c, n, d);
    }
}

// Stores rows first, first + 1, ... of one warp, whose lanes own columns lane, lane + 32, ..., and their log-sum-exp.
template <int ROWS, int COLUMNS, typename T>
__device__ void store_warp_rows(T* __restrict__ out, float* __restrict__ lse, const float (&m)[ROWS],
                                const float (&l)[ROWS], const float (&o)[ROWS][COLUMNS], int first, int n_q,
                                int v_dim) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < ROWS && first + r < n_q; ++r) {
        for (int b = 0; b < COLUMNS; ++b) {
            const int c = 32 * b + lane;
            if (c < v_dim) out[(first + r) * v_dim + c] = narrow<T>(l[r] > 0.0f ? o[r][b] / l[r] : 0.0f);
        }
        if (lane == 0) lse[first + r] = log_sum_exp(m[r], l[r]);
    }
}

// Below, 64 threads are an 8 x 8 grid (ty, tx): thread (ty, tx) has rows ty, ty + 8, ... of one tile against
// rows tx, tx + 8, ... of another. Each value read from shared memory is used several times.

// sums[r][j] += PAIR over the first COLUMNS float4 of row ty + 8 r of a and row tx + 8 j of b.
template <float (*PAIR)(float4, float4), int COLUMNS, int ROWS, int KEYS, int ROWS_A, int PITCH_A, int ROWS_B,
          int PITCH_B>
__device__ void pair_rows(float (&sums)[ROWS][KEYS], float4 (&a)[ROWS_A][PITCH_A],
                          float4 (&b)[ROWS_B][PITCH_B], int ty, int tx) {
    for (int c = 0; c < COLUMNS; ++c) {
        float4 keys[KEYS];
#pragma unroll
        for (int j = 0; j < KEYS; ++j) keys[j] = b[tx + 8 * j][c];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const float4 query = a[ty + 8 * r][c];
            for (int j = 0; j < KEYS; ++j) sums[r][j] += PAIR(query, keys[j]);
        }
    }
}

// One step of the online softmax. Scores s, -inf where hidden, become weights in p_tile; the running maximum
// m, the sum l and the output o move to the new maximum. A row's eight threads belong to one warp, so no
// barrier is needed.
template <int ROWS, int KEYS, int COLUMNS, int TILE_Q, int PITCH>
__device__ void absorb_scores(float (&s)[ROWS][KEYS], float (&m)[ROWS], float (&l)[ROWS],
                              float4 (&o)[ROWS][COLUMNS], float4 (&p_tile)[TILE_Q][PITCH], int ty, int tx) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        float top = m[r], sum = 0.0f;
#pragma unroll
        for (int j = 0; j < KEYS; ++j) top = fmaxf(top, s[r][j]);
        top = lanes_max(top, 8);
        const float shrink = expf(m[r] - finite(top));
#pragma unroll
        for (int j = 0; j < KEYS; ++j) {
            const float p = expf(s[r][j] - finite(top));
            ((float*)p_tile[ty + 8 * r])[tx + 8 * j] = p;
            sum += p;
        }
        l[r] = shrink * l[r] + lanes_sum(sum, 8);
        m[r] = top;
        for (int b = 0; b < COLUMNS; ++b) multiply(o[r][b], shrink);
    }
}

// o += p v: float4 columns tx, tx + 8, ... of the rows.
template <int ROWS, int COLUMNS, int TILE_Q, int PITCH_P, int TILE_K, int PITCH_V>
__device__ void add_values(float4 (&o)[ROWS][COLUMNS], float4 (&p_tile)[TILE_Q][PITCH_P],
                           float4 (&v_tile)[TILE_K][PITCH_V], int ty, int tx) {
    for (int j = 0; j < TILE_K; j += 4) {
        float4 p[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) p[r] = p_tile[ty + 8 * r][j / 4];
#pragma unroll
        for (int b = 0; b < COLUMNS; ++b) {
            const float4 v0 = v_tile[j][tx + 8 * b], v1 = v_tile[j + 1][tx + 8 * b];
            const float4 v2 = v_tile[j + 2][tx + 8 * b], v3 = v_tile[j + 3][tx + 8 * b];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                add_scaled(o[r][b], p[r].x, v0);
                add_scaled(o[r][b], p[r].y, v1);
                add_scaled(o[r][b], p[r].z, v2);
                add_scaled(o[r][b], p[r].w, v3);
            }
        }
    }
}
