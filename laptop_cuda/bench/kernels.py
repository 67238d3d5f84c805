"""The kernels that `bench` times, and the same computations as plain C++ loops."""
from dataclasses import dataclass
from typing import Callable

import numpy as np

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
FLASH_LOOP = r"""
#include <math.h>
extern "C" void loop(const float* q, const float* k, const float* v, float* o, int n, float scale, int) {
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

# C = A B, a tile of 16 x 16 by each block.
TILED = r"""
#define TILE 16

__global__ void tiled(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
                      int n) {
    __shared__ float as[TILE][TILE], bs[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int t = 0; t < n; t += TILE) {
        as[threadIdx.y][threadIdx.x] = a[row * n + t + threadIdx.x];
        bs[threadIdx.y][threadIdx.x] = b[(t + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += as[threadIdx.y][k] * bs[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}
"""

# The middle loop over k, so that the inner one runs along rows: what one would write for a CPU.
TILED_LOOP = r"""
extern "C" void loop(const float* a, const float* b, float* c, int n) {
    for (int i = 0; i < n; ++i) {
        for (int j = 0; j < n; ++j) c[i * n + j] = 0;
        for (int k = 0; k < n; ++k)
            for (int j = 0; j < n; ++j) c[i * n + j] += a[i * n + k] * b[k * n + j];
    }
}
"""


def _error_of_flash(arrays: list[np.ndarray]) -> float:
    q, k, v = (a.astype(np.float64) for a in arrays[:3])
    scores = np.exp(q @ k.T / 8)
    return float(np.abs(arrays[3] - scores / scores.sum(1, keepdims=True) @ v).max())


def _error_of_product(arrays: list[np.ndarray]) -> float:
    a, b = (x.astype(np.float64) for x in arrays[:2])
    return float(np.abs(arrays[2] - a @ b).max())


@dataclass(frozen=True)
class Case:
    """A kernel with what it is launched on; the last of its arrays is its result, then come its scalars."""
    name: str
    source: str
    loop: str
    block: tuple[int, ...]
    grid: Callable[[int], tuple[int, ...]]
    shapes: Callable[[int], list[tuple[int, int]]]
    scalars: Callable[[int], tuple]
    error: Callable[[list[np.ndarray]], float]

    def arrays(self, n: int) -> list[np.ndarray]:
        draw = np.random.default_rng(0)
        made = [draw.standard_normal(shape).astype(np.float32) for shape in self.shapes(n)]
        return [*made[:-1], np.zeros_like(made[-1])]


CASES = (Case("tiled", TILED, TILED_LOOP, (16, 16), lambda n: (n // 16, n // 16), lambda n: [(n, n)] * 3,
              lambda n: (n,), _error_of_product),
         Case("flash", FLASH, FLASH_LOOP, (128,), lambda n: (n // 32,), lambda n: [(n, 64)] * 4,
              lambda n: (n, 0.125, 0), _error_of_flash))
