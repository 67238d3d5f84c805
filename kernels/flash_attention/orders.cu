// Two orders of the same loops, for tiles of any size: one operand stays on the chip, the other is streamed.
//
//   kernel        stays                  streamed                           numbers moved, r = n / tile
//   query_outer   a tile of q and out    k, v                               2 n d + r 2 n d
//   key_outer     a tile of k and v      q, and out, max, sum in and out    2 n d + r (3 n d + 4 n)
//
// Made for counting: one head, float, one thread per row, block `tile`, 16 tile (d + 1) bytes of shared
// memory. Every global access covers whole neighbouring rows. Rows in shared memory are d + 1 apart: no bank
// conflicts.
#include <math.h>

__device__ void copy_in(float* rows, const float* __restrict__ x, int first, int n, int d, int tile) {
    for (int e = threadIdx.x; e < min(tile, n - first) * d; e += tile)
        rows[e / d * (d + 1) + e % d] = x[first * d + e];
}

__device__ void copy_out(float* __restrict__ x, const float* rows, int first, int n, int d, int tile) {
    for (int e = threadIdx.x; e < min(tile, n - first) * d; e += tile)
        x[first * d + e] = rows[e / d * (d + 1) + e % d];
}

// One query row against `keys` keys: the online softmax, a key at a time.
__device__ void attend(const float* q, const float* k, const float* v, float* o, float& m, float& l, int keys,
                       int d, float scale) {
    for (int j = 0; j < keys; ++j, k += d + 1, v += d + 1) {
        float s = 0.0f;
        for (int c = 0; c < d; ++c) s += q[c] * k[c];
        const float m_new = fmaxf(m, scale * s), p = expf(scale * s - m_new), shrink = expf(m - m_new);
        for (int c = 0; c < d; ++c) o[c] = shrink * o[c] + p * v[c];
        l = shrink * l + p;
        m = m_new;
    }
}

// Grid n / tile.
__global__ void query_outer(const float* __restrict__ q, const float* __restrict__ k,
                            const float* __restrict__ v, float* __restrict__ out, int n, int d, int tile,
                            float scale) {
    extern __shared__ float memory[];
    float *q_tile = memory, *k_tile = q_tile + tile * (d + 1), *v_tile = k_tile + tile * (d + 1);
    float* o = v_tile + (tile + threadIdx.x) * (d + 1);  // this thread's row of the output
    const int q0 = blockIdx.x * tile, row = threadIdx.x;
    copy_in(q_tile, q, q0, n, d, tile);
    for (int c = 0; c < d; ++c) o[c] = 0.0f;
    float m = -INFINITY, l = 0.0f;
    for (int k0 = 0; k0 < n; k0 += tile) {
        __syncthreads();
        copy_in(k_tile, k, k0, n, d, tile);
        copy_in(v_tile, v, k0, n, d, tile);
        __syncthreads();
        if (q0 + row < n)
            attend(q_tile + row * (d + 1), k_tile, v_tile, o, m, l, min(tile, n - k0), d, scale);
    }
    for (int c = 0; c < d; ++c) o[c] /= l;
    __syncthreads();
    copy_out(out, v_tile + tile * (d + 1), q0, n, d, tile);
}

// Grid 1. out and row_sum start as zeros, row_max as -inf; out is divided by the sum in the last round.
__global__ void key_outer(const float* __restrict__ q, const float* __restrict__ k,
                          const float* __restrict__ v, float* __restrict__ out, float* __restrict__ row_max,
                          float* __restrict__ row_sum, int n, int d, int tile, float scale) {
    extern __shared__ float memory[];
    float *q_tile = memory, *k_tile = q_tile + tile * (d + 1), *v_tile = k_tile + tile * (d + 1);
    float *o_tile = v_tile + tile * (d + 1), *o = o_tile + threadIdx.x * (d + 1);
    const int row = threadIdx.x;
    for (int k0 = 0; k0 < n; k0 += tile) {
        __syncthreads();
        copy_in(k_tile, k, k0, n, d, tile);
        copy_in(v_tile, v, k0, n, d, tile);
        for (int q0 = 0; q0 < n; q0 += tile) {
            __syncthreads();
            copy_in(q_tile, q, q0, n, d, tile);
            copy_in(o_tile, out, q0, n, d, tile);
            __syncthreads();
            if (q0 + row < n) {
                float m = row_max[q0 + row], l = row_sum[q0 + row];
                attend(q_tile + row * (d + 1), k_tile, v_tile, o, m, l, min(tile, n - k0), d, scale);
                row_max[q0 + row] = m;
                row_sum[q0 + row] = l;
                if (k0 + tile >= n)
                    for (int c = 0; c < d; ++c) o[c] /= l;
            }
            __syncthreads();
            copy_out(out, o_tile, q0, n, d, tile);
        }
    }
}
