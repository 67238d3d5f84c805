// Rotary positions: turn each pair of entries by an angle that grows with the position.
//
// There is hardly any arithmetic, so a kernel is as good as its memory traffic. The least: read x once, write it
// once, 8 bytes per entry. Moved bytes of x alone, for head_dim a multiple of 64:
//
//   rung  kernel                  idea                                moved / least  still wasted
//   1     rope_interleaved        one pair (2i, 2i + 1) per thread    2              two requests of stride 2: each
//                                                                                    moves all, uses half
//   2     rope_half               pairs (i, i + d/2)                  1              every head loads cos and sin
//   3     rope_interleaved_vec4   two pairs per thread, one float4    1              the same, with a quarter of rung
//                                                                                    1's requests
//         rope_half_vec4          four pairs per thread, two float4   1              the same; head_dim % 8 == 0
//   4     rope_heads              16 bytes per load, any of three     1              little: cos and sin are loaded a
//                                 types; a thread turns the same                     quarter as often as in rung 3,
//                                 pairs of 4 heads and loads cos and                 where they are as many bytes as x,
//                                 sin once                                           and twice as many in bfloat16
//   5     rope_append             rotate the new key and store it     1              used in chapter 7: saves writing
//                                 with its value in the cache                        and rereading the rotated key
//
// Layout: x (b, heads, n, d) contiguous, changed in place; cos and sin (table rows, d/2); positions (b, n) int.
// Rungs 1 and 2 take any even d; a ragged last block is guarded. The wrapper checks that positions are in the table.

#include <cuda_runtime.h>

#include "common/numbers.cuh"

// Location of a pair: its row of x, its index in that row, and its entry of cos and sin.
struct Pair {
    int row, index, angle;
};

__device__ __forceinline__ Pair locate(int unit, int units_per_row, int pairs_per_unit, int half_dim,
                                       int heads, int n, const int* __restrict__ positions) {
    int row = unit / units_per_row;  // rows run over (b, heads, n)
    int index = unit % units_per_row * pairs_per_unit;
    int batch = row / (heads * n), token = row % n;
    return {row, index, positions[batch * n + token] * half_dim + index};
}

__global__ void rope_interleaved(float* __restrict__ x, const float* __restrict__ cos,
                                 const float* __restrict__ sin, const int* __restrict__ positions,
                                 int n_pairs, int half_dim, int heads, int n) {
    int unit = blockIdx.x * blockDim.x + threadIdx.x;
    if (unit >= n_pairs) return;
    Pair p = locate(unit, half_dim, 1, half_dim, heads, n, positions);
    float* pair = x + (size_t)p.row * 2 * half_dim + 2 * p.index;
    float a = pair[0], b = pair[1], c = cos[p.angle], s = sin[p.angle];
    pair[0] = a * c - b * s;
    pair[1] = a * s + b * c;
}

__global__ void rope_half(float* __restrict__ x, const float* __restrict__ cos, const float* __restrict__ sin,
                          const int* __restrict__ positions, int n_pairs, int half_dim, int heads, int n) {
    int unit = blockIdx.x * blockDim.x + threadIdx.x;
    if (unit >= n_pairs) return;
    Pair p = locate(unit, half_dim, 1, half_dim, heads, n, positions);
    float* first = x + (size_t)p.row * 2 * half_dim + p.index;
    float* second = first + half_dim;
    float a = *first, b = *second, c = cos[p.angle], s = sin[p.angle];
    *first = a * c - b * s;
    *second = a * s + b * c;
}

__global__ void rope_interleaved_vec4(float* __restrict__ x, const float* __restrict__ cos,
                                      const float* __restrict__ sin, const int* __restrict__ positions,
                                      int n_units, int half_dim, int heads, int n) {
    int unit = blockIdx.x * blockDim.x + threadIdx.x;
    if (unit >= n_units) return;
    Pair p = locate(unit, half_dim / 2, 2, half_dim, heads, n, positions);
    float4* place = reinterpret_cast<float4*>(x + (size_t)p.row * 2 * half_dim + 2 * p.index);
    float2 c = *reinterpret_cast<const float2*>(cos + p.angle);
    float2 s = *reinterpret_cast<const float2*>(sin + p.angle);
    float4 v = *place;  // two pairs: (x, y) and (z, w)
    *place = make_float4(v.x * c.x - v.y * s.x, v.x * s.x + v.y * c.x, v.z * c.y - v.w * s.y,
                         v.z * s.y + v.w * c.y);
}

__global__ void rope_half_vec4(float* __restrict__ x, const float* __restrict__ cos,
                               const float* __restrict__ sin, const int* __restrict__ positions, int n_units,
                               int half_dim, int heads, int n) {
    int unit = blockIdx.x * blockDim.x + threadIdx.x;
    if (unit >= n_units) return;
    Pair p = locate(unit, half_dim / 4, 4, half_dim, heads, n, positions);
    float4* first = reinterpret_cast<float4*>(x + (size_t)p.row * 2 * half_dim + p.index);
    float4* second = first + half_dim / 4;
    float4 c = *reinterpret_cast<const float4*>(cos + p.angle);
    float4 s = *reinterpret_cast<const float4*>(sin + p.angle);
    float4 a = *first, b = *second;
    *first = make_float4(a.x * c.x - b.x * s.x, a.y * c.y - b.y * s.y, a.z * c.z - b.z * s.z,
                         a.w * c.w - b.w * s.w);
    *second = make_float4(a.x * s.x + b.x * c.x, a.y * s.y + b.y * c.y, a.z * s.z + b.z * c.z,
                          a.w * s.w + b.w * c.w);
}

// A thread turns PAIRS pairs of one token in HEADS heads: 16 bytes per head for neighbouring pairs, twice 16
// bytes for halves. All loads are issued before the first is used. out may be x. Grid (units / 128, heads /
// 4, b).
template <typename T, bool HALF>
__global__ void __launch_bounds__(128)
    rope_heads(const T* x, T* out, const float* __restrict__ cos, const float* __restrict__ sin,
               const int* __restrict__ positions, int half_dim, int heads, int n) {
    constexpr int HEADS = 4, COUNT = Sixteen<T>::COUNT, PAIRS = HALF ? COUNT : COUNT / 2;
    int unit = blockIdx.x * blockDim.x + threadIdx.x, units_per_row = half_dim / PAIRS;
    int token = unit / units_per_row, pair = unit % units_per_row * PAIRS, first_head = blockIdx.y * HEADS;
    if (token >= n) return;
    size_t batch = blockIdx.z, row = (batch * heads + first_head) * n + token;
    size_t begin = row * 2 * half_dim + (HALF ? pair : 2 * pair), head_stride = (size_t)n * 2 * half_dim;

    Sixteen<T> first[HEADS], second[HEADS];
#pragma unroll
    for (int h = 0; h < HEADS; ++h)
        if (first_head + h < heads) {
            const T* place = x + begin + h * head_stride;
            first[h].bits = *reinterpret_cast<const int4*>(place);
            if (HALF) second[h].bits = *reinterpret_cast<const int4*>(place + half_dim);
        }
    float c[PAIRS], s[PAIRS];
    size_t angle = (size_t)positions[batch * n + token] * half_dim + pair;
#pragma unroll
    for (int i = 0; i < PAIRS; i += 4) {  // 16 bytes per load if a thread has four pairs
        if constexpr (PAIRS == 2) {
            float2 two_c = *reinterpret_cast<const float2*>(cos + angle),
                   two_s = *reinterpret_cast<const float2*>(sin + angle);
            c[0] = two_c.x, c[1] = two_c.y, s[0] = two_s.x, s[1] = two_s.y;
        } else {
            float4 four_c = *reinterpret_cast<const float4*>(cos + angle + i);
            float4 four_s = *reinterpret_cast<const float4*>(sin + angle + i);
            c[i] = four_c.x, c[i + 1] = four_c.y, c[i + 2] = four_c.z, c[i + 3] = four_c.w;
            s[i] = four_s.x, s[i + 1] = four_s.y, s[i + 2] = four_s.z, s[i + 3] = four_s.w;
        }
    }
#pragma unroll
    for (int h = 0; h < HEADS; ++h)
        if (first_head + h < heads) {
#pragma unroll
            for (int i = 0; i < PAIRS; ++i) {
                float a = HALF ? first[h].get(i) : first[h].get(2 * i);
                float b = HALF ? second[h].get(i) : first[h].get(2 * i + 1);
                float turned_a = a * c[i] - b * s[i], turned_b = a * s[i] + b * c[i];
                if (HALF) {
                    first[h].set(i, turned_a);
                    second[h].set(i, turned_b);
                } else {
                    first[h].set(2 * i, turned_a);
                    first[h].set(2 * i + 1, turned_b);
                }
            }
            T* place = out + begin + h * head_stride;
            *reinterpret_cast<int4*>(place) = first[h].bits;
            if (HALF) *reinterpret_cast<int4*>(place + half_dim) = second[h].bits;
        }
}

// New keys and values (b, heads, n, d) go to rows slots[b][n] of a cache (b, heads, capacity, d), keys
// rotated on the way.
__global__ void rope_append(const float* __restrict__ k, const float* __restrict__ v,
                            float* __restrict__ k_cache, float* __restrict__ v_cache,
                            const float* __restrict__ cos, const float* __restrict__ sin,
                            const int* __restrict__ positions, const int* __restrict__ slots, int n_pairs,
                            int half_dim, int heads, int n, int capacity) {
    int unit = blockIdx.x * blockDim.x + threadIdx.x;
    if (unit >= n_pairs) return;
    Pair p = locate(unit, half_dim, 1, half_dim, heads, n, positions);
    int head_row = p.row / n, batch = head_row / heads, token = p.row % n;
    int slot = slots[batch * n + token];
    size_t from = (size_t)p.row * half_dim + p.index;  // counted in float2
    size_t to = ((size_t)head_row * capacity + slot) * half_dim + p.index;
    float2 key = reinterpret_cast<const float2*>(k)[from];
    float2 value = reinterpret_cast<const float2*>(v)[from];
    float c = cos[p.angle], s = sin[p.angle];
    reinterpret_cast<float2*>(k_cache)[to] = make_float2(key.x * c - key.y * s, key.x * s + key.y * c);
    reinterpret_cast<float2*>(v_cache)[to] = value;
}
