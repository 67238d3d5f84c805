"""The kernel that `bench` times, and the same computation as a plain C++ loop."""

# 128 threads: 4 for each of 32 query rows. A thread computes 8 of a row's 32 scores and 16 of its 64 outputs.
FLASH = r"""
#define BR 32
#define BC 32
#define D 64
#define PARTS 4

__global__ void flash(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v,
                      float* __restrict__ o, int n, float scale, int causal) {
    __shared__ float qs[BR][D + 1], ks[BC][D + 1], vs[BC][D + 1], ps[BR][BC + 1];
    int row = threadIdx.x / PARTS, part = threadIdx.x % PARTS, query = blockIdx.x * BR + row;
    for (int i = threadIdx.x; i < BR * D; i += blockDim.x) {
        int r = blockIdx.x * BR + i / D;
        qs[i / D][i % D] = r < n ? q[r * D + i % D] : 0.0f;
    }
    float acc[D / PARTS], m = -INFINITY, l = 0.0f;
    for (int c = 0; c < D / PARTS; ++c) acc[c] = 0.0f;
    for (int start = 0; start < n; start += BC) {
        __syncthreads();
        for (int i = threadIdx.x; i < BC * D; i += blockDim.x) {
            int r = start + i / D;
            ks[i / D][i % D] = r < n ? k[r * D + i % D] : 0.0f;
            vs[i / D][i % D] = r < n ? v[r * D + i % D] : 0.0f;
        }
        __syncthreads();
        float s[BC / PARTS], tile_max = -INFINITY;
        for (int j = 0; j < BC / PARTS; ++j) {
            int key = part + j * PARTS;
            s[j] = -INFINITY;
            if (start + key < n && (!causal || start + key <= query)) {
                float dot = 0.0f;
                for (int c = 0; c < D; ++c) dot += qs[row][c] * ks[key][c];
                s[j] = dot * scale;
            }
            tile_max = fmaxf(tile_max, s[j]);
        }
        tile_max = fmaxf(tile_max, __shfl_xor_sync(0xffffffffu, tile_max, 1));
        tile_max = fmaxf(tile_max, __shfl_xor_sync(0xffffffffu, tile_max, 2));
        float m_new = fmaxf(m, tile_max), alpha = __expf(m - m_new), sum = 0.0f;
        for (int j = 0; j < BC / PARTS; ++j) {
            float p = __expf(s[j] - m_new);
            ps[row][part + j * PARTS] = p;
            sum += p;
        }
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        l = l * alpha + sum;
        m = m_new;
        __syncwarp();
        for (int c = 0; c < D / PARTS; ++c) {
            float pv = 0.0f;
            for (int j = 0; j < BC; ++j) pv += ps[row][j] * vs[j][part + c * PARTS];
            acc[c] = acc[c] * alpha + pv;
        }
        __syncwarp();
    }
    if (query < n)
        for (int c = 0; c < D / PARTS; ++c) o[query * D + part + c * PARTS] = acc[c] / l;
}
"""

# The same arithmetic in the same tiles, as one would write it for a CPU.
LOOP = r"""
#include <math.h>
extern "C" void flash_loop(const float* q, const float* k, const float* v, float* o, int n, float scale) {
    enum { BR = 32, BC = 32, D = 64 };
    for (int first = 0; first < n; first += BR) {
        float acc[BR][D] = {}, m[BR], l[BR] = {}, p[BC];
        for (int r = 0; r < BR; ++r) m[r] = -INFINITY;
        for (int start = 0; start < n; start += BC)
            for (int r = 0; r < BR && first + r < n; ++r) {
                float tile_max = -INFINITY, sum = 0;
                int count = n - start < BC ? n - start : BC;
                for (int j = 0; j < count; ++j) {
                    float dot = 0;
                    for (int c = 0; c < D; ++c) dot += q[(first + r) * D + c] * k[(start + j) * D + c];
                    p[j] = dot * scale;
                    tile_max = fmaxf(tile_max, p[j]);
                }
                float m_new = fmaxf(m[r], tile_max), alpha = expf(m[r] - m_new);
                for (int j = 0; j < count; ++j) sum += p[j] = expf(p[j] - m_new);
                l[r] = l[r] * alpha + sum;
                m[r] = m_new;
                for (int c = 0; c < D; ++c) {
                    float pv = 0;
                    for (int j = 0; j < count; ++j) pv += p[j] * v[(start + j) * D + c];
                    acc[r][c] = acc[r][c] * alpha + pv;
                }
            }
        for (int r = 0; r < BR && first + r < n; ++r)
            for (int c = 0; c < D; ++c) o[(first + r) * D + c] = acc[r][c] / l[r];
    }
}
"""
