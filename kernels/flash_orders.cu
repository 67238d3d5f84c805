// Two orders of the same loops, for tiles of any size: what stays on the chip, and what comes past again and again.
//
//   kernel        stays                  comes past                         elements moved, with r = n / TILE
//   query_outer   a tile of q and out    k, v                               2 n D + r 2 n D
//   key_outer     a tile of k and v      q, and out, max, sum in and out    2 n D + r (3 n D + 4 n)
//
// Made for counting: one head, float, one thread a row, block TILE. All global accesses are whole rows, side by side.
#include "flash_tiles.cuh"

template <int D, int TILE>
__device__ void copy_in(float (&tile)[TILE][D + 1], const float* __restrict__ x, int first, int n)
{
    for (int e = threadIdx.x; e < min(TILE, n - first) * D; e += TILE) tile[e / D][e % D] = x[first * D + e];
}

template <int D, int TILE>
__device__ void copy_out(float* __restrict__ x, float (&tile)[TILE][D + 1], int first, int n)
{
    for (int e = threadIdx.x; e < min(TILE, n - first) * D; e += TILE) x[first * D + e] = tile[e / D][e % D];
}

// This thread's row of q against the tile's keys.
template <int D, int TILE>
__device__ void attend(float (&q)[TILE][D + 1], float (&k)[TILE][D + 1], float (&v)[TILE][D + 1],
                       float (&o)[TILE][D + 1], float& m, float& l, int keys, float scale)
{
    const int row = threadIdx.x;
    for (int j = 0; j < keys; j++) {
        float s = 0.0f;
        for (int c = 0; c < D; c++) s += q[row][c] * k[j][c];
        const float m_new = fmaxf(m, scale * s), p = expf(scale * s - m_new), shrink = expf(m - m_new);
        for (int c = 0; c < D; c++) o[row][c] = shrink * o[row][c] + p * v[j][c];
        l = shrink * l + p;
        m = m_new;
    }
}

// Grid n / TILE.
template <int D, int TILE>
__global__ void query_outer(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v,
                            float* __restrict__ out, int n, float scale)
{
    __shared__ float q_tile[TILE][D + 1], k_tile[TILE][D + 1], v_tile[TILE][D + 1], o_tile[TILE][D + 1];
    const int q0 = blockIdx.x * TILE, row = threadIdx.x;
    copy_in<D, TILE>(q_tile, q, q0, n);
    for (int c = 0; c < D; c++) o_tile[row][c] = 0.0f;
    float m = -INFINITY, l = 0.0f;
    for (int k0 = 0; k0 < n; k0 += TILE) {
        __syncthreads();
        copy_in<D, TILE>(k_tile, k, k0, n);
        copy_in<D, TILE>(v_tile, v, k0, n);
        __syncthreads();
        if (q0 + row < n) attend<D, TILE>(q_tile, k_tile, v_tile, o_tile, m, l, min(TILE, n - k0), scale);
    }
    for (int c = 0; c < D; c++) o_tile[row][c] /= l;
    __syncthreads();
    copy_out<D, TILE>(out, o_tile, q0, n);
}

// Grid 1. out and row_sum start as zeros, row_max as -inf; out is divided by the sum in the last round.
template <int D, int TILE>
__global__ void key_outer(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v,
                          float* __restrict__ out, float* __restrict__ row_max, float* __restrict__ row_sum, int n,
                          float scale)
{
    __shared__ float q_tile[TILE][D + 1], k_tile[TILE][D + 1], v_tile[TILE][D + 1], o_tile[TILE][D + 1];
    const int row = threadIdx.x;
    for (int k0 = 0; k0 < n; k0 += TILE) {
        __syncthreads();
        copy_in<D, TILE>(k_tile, k, k0, n);
        copy_in<D, TILE>(v_tile, v, k0, n);
        for (int q0 = 0; q0 < n; q0 += TILE) {
            __syncthreads();
            copy_in<D, TILE>(q_tile, q, q0, n);
            copy_in<D, TILE>(o_tile, out, q0, n);
            __syncthreads();
            if (q0 + row < n) {
                float m = row_max[q0 + row], l = row_sum[q0 + row];
                attend<D, TILE>(q_tile, k_tile, v_tile, o_tile, m, l, min(TILE, n - k0), scale);
                row_max[q0 + row] = m;
                row_sum[q0 + row] = l;
                if (k0 + TILE >= n)
                    for (int c = 0; c < D; c++) o_tile[row][c] /= l;
            }
            __syncthreads();
            copy_out<D, TILE>(out, o_tile, q0, n);
        }
    }
}
