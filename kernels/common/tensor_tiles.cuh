// Tiles for the tensor cores: rows of 16-bit numbers in swizzled shared memory, copied in, multiplied,
// written out. Compiled for sm_80 and sm_90.
#pragma once
#include <math.h>

#include "numbers.cuh"
#include "rows.cuh"
#include "tensor_core.cuh"

namespace tensor_core {

// Offset of a lane's address for load_matrix_x4 in a tile, for the two orders of its four 8 x 8 pieces:
//
//   left_piece     (rows 0-7, left) (rows 8-15, left) (rows 0-7, right) (rows 8-15, right)      A, and B transposed
//   right_piece    (rows 0-7, left) (rows 0-7, right) (rows 8-15, left) (rows 8-15, right)      B as stored
//
// 16 columns further to the right is the same offset with `^ 16`: the swizzle is an exclusive or, and so is
// the step.
template <int WIDTH>
__device__ __forceinline__ int left_piece(int lane) {
    return swizzled<WIDTH>(lane % 16, lane / 16 * 8);
}
template <int WIDTH>
__device__ __forceinline__ int right_piece(int lane) {
    return swizzled<WIDTH>(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
}

// Starts the copy of ROWS rows of `width` numbers into a tile, by all THREADS of the block; rows beyond the
// end become 0. `from` is the tile's first row and rows_left the number of rows from there; width is a
// multiple of 8.
template <int ROWS, int WIDTH, int THREADS, typename T>
__device__ __forceinline__ void copy_rows(T* tile, const T* __restrict__ from, int rows_left, int width) {
    constexpr int STEP = THREADS / (WIDTH / 8);  // rows copied at once: a multiple of 8, the swizzle's period
    const int row = threadIdx.x / (WIDTH / 8), column = threadIdx.x % (WIDTH / 8) * 8;
    T* to = tile + swizzled<WIDTH>(row, column);
    from += row * width + column;
    const int left = column < width ? rows_left - row : 0;
#pragma unroll
    for (int r = 0; r < ROWS; r += STEP) {
        copy_async16(to + r * WIDTH, from, r < left);
        from += STEP * width;
    }
}

// sum += A B^T, A of 16 M rows, B of N rows, both WIDTH wide in shared memory. A's fragments are loaded when
// they are needed, or, if HOLD, are in registers already.
template <int M, int N, int WIDTH, bool HOLD, typename T>
__device__ __forceinline__ void multiply_rows(float (&sum)[M][N / 8][4],
                                              uint32_t (&held)[M][HOLD ? WIDTH / 16 : 1][4], const T* a,
                                              const T* b) {
    const int lane = threadIdx.x % 32, a_piece = left_piece<WIDTH>(lane), b_piece = right_piece<WIDTH>(lane);
#pragma unroll
    for (int k = 0; k < WIDTH / 16; ++k) {
        if (!HOLD)
            for (int m = 0; m < M; ++m) load_matrix_x4(held[m][0], a + m * 16 * WIDTH + (a_piece ^ 16 * k));
#pragma unroll
        for (int n = 0; n < N / 16; ++n) {
            uint32_t right[2][2];  // two B tiles of 8 rows
            load_matrix_x4((uint32_t(&)[4])right, b + n * 16 * WIDTH + (b_piece ^ 16 * k));
#pragma unroll
            for (int m = 0; m < M; ++m) {
                multiply_add(sum[m][2 * n], held[m][HOLD ? k : 0], right[0], T());
                multiply_add(sum[m][2 * n + 1], held[m][HOLD ? k : 0], right[1], T());
            }
        }
    }
}

template <int M, int WIDTH, typename T>
__device__ __forceinline__ void hold_rows(uint32_t (&held)[M][WIDTH / 16][4], const T* a) {
    const int piece = left_piece<WIDTH>(threadIdx.x % 32);
#pragma unroll
    for (int m = 0; m < M; ++m)
        for (int k = 0; k < WIDTH / 16; ++k)
            load_matrix_x4(held[m][k], a + m * 16 * WIDTH + (piece ^ 16 * k));
}

// sum += P B, P of 16 M rows and K columns, rounded to T, B of K rows, WIDTH wide in shared memory. P comes
// from sums of the tensor cores: d[0], d[1] of two neighbouring 16 x 8 tiles are, packed, that lane's a[0],
// a[2].
template <int M, int K, int WIDTH, typename T>
__device__ __forceinline__ void multiply_columns(float (&sum)[M][WIDTH / 8][4], const float (&p)[M][K / 8][4],
                                                 const T* b) {
    const int piece = left_piece<WIDTH>(threadIdx.x % 32);
#pragma unroll
    for (int k = 0; k < K / 16; ++k) {
        uint32_t a[M][4];
#pragma unroll
        for (int m = 0; m < M; ++m)
            for (int i = 0; i < 4; ++i)
                a[m][i] = pack(p[m][2 * k + i / 2][i % 2 * 2], p[m][2 * k + i / 2][i % 2 * 2 + 1], T());
#pragma unroll
        for (int n = 0; n < WIDTH / 16; ++n) {
            uint32_t right[2][2];
            load_matrix_x4_transposed((uint32_t(&)[4])right, b + k * 16 * WIDTH + (piece ^ 16 * n));
#pragma unroll
            for (int m = 0; m < M; ++m) {
                multiply_add(sum[m][2 * n], a[m], right[0], T());
                multiply_add(sum[m][2 * n + 1], a[m], right[1], T());
            }
        }
    }
}

// One step of the online softmax for a warp's 16 M rows and N keys. Scores s, -inf where hidden, become the weights
// 2^(s unit - top); l is the lane's share of each row's sum, o the output. Most tiles move no row's maximum: they skip
// the rescaling. (A bound above the maximum would skip it more often, but then the largest weight is not exactly 1, and
// rounding it costs a peaked row a digit.)
template <int M, int N, int WIDTH>
__device__ __forceinline__ void absorb_tile(float (&s)[M][N / 8][4], float (&top)[M][2], float (&l)[M][2],
                                            float (&o)[M][WIDTH / 8][4], float unit) {
    float next[M][2];
    bool moves = false;
#pragma unroll
    for (int m = 0; m < M; ++m)
        for (int h = 0; h < 2; ++h) {
            float highest = s[m][0][2 * h];
            for (int n = 0; n < N / 8; ++n)
                for (int e = 0; e < 2; ++e) highest = fmaxf(highest, s[m][n][2 * h + e]);
            next[m][h] = fmaxf(top[m][h], lanes_max(highest, 4) * unit);  // 4 lanes share a row
            moves |= next[m][h] != top[m][h];
        }
    if (__any_sync(0xffffffff, moves)) {
#pragma unroll
        for (int m = 0; m < M; ++m)
            for (int h = 0; h < 2; ++h) {
                const float shrink = power_of_two(top[m][h] - finite(next[m][h]));
                top[m][h] = next[m][h];
                l[m][h] *= shrink;
                for (int n = 0; n < WIDTH / 8; ++n)
                    for (int e = 0; e < 2; ++e) o[m][n][2 * h + e] *= shrink;
            }
    }
#pragma unroll
    for (int m = 0; m < M; ++m)
        for (int h = 0; h < 2; ++h) {
            const float from = finite(top[m][h]);
            for (int n = 0; n < N / 8; ++n)
                for (int e = 0; e < 2; ++e) {
                    const float p = power_of_two(fmaf(s[m][n][2 * h + e], unit, -from));
                    s[m][n][2 * h + e] = p;
                    l[m][h] += p;
                }
        }
}

// Stores a warp's 16 M rows, row 16 m + g times by[m][0], row 16 m + g + 8 times by[m][1], through its own
// piece of shared memory: a lane holds two neighbours of eight rows, but a good store is 16 bytes of one row.
template <int M, int WIDTH, typename T>
__device__ __forceinline__ void store_rows(T* __restrict__ out, T* tile, const float (&sum)[M][WIDTH / 8][4],
                                           const float (&by)[M][2], int rows_left, int width) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int m = 0; m < M; ++m)
        for (int n = 0; n < WIDTH / 8; ++n)
            for (int h = 0; h < 2; ++h) {
                const int place = swizzled<WIDTH>(16 * m + 8 * h + g, 8 * n + 2 * t);
                *(uint32_t*)(tile + place) =
                    pack(sum[m][n][2 * h] * by[m][h], sum[m][n][2 * h + 1] * by[m][h], T());
            }
    __syncwarp();
    const int row = lane / (WIDTH / 8), column = lane % (WIDTH / 8) * 8;
    constexpr int STEP = 32 / (WIDTH / 8);
#pragma unroll
    for (int r = 0; r < 16 * M; r += STEP)
        if (row + r < rows_left && column < width) {
            const uint4 eight = *(const uint4*)(tile + swizzled<WIDTH>(row + r, column));
            *(uint4*)(out + (long long)(row + r) * width + column) = eight;
        }
}

}  // namespace tensor_core
