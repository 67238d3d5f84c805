// One new query per sequence over a long cache, near the speed of reading it: the rungs for a card of
// kv_cache.cu (dense) and paged_attention.cu (in pages). Keys and values are __half or __nv_bfloat16; sums
// and softmax are float.
//
//   q, out (batch, heads, D), D = 64 or 128; lengths (batch); query head h reads key head h / group, group <= 8
//   dense:  k, v (batch, kv_heads, capacity, D)
//   paged:  keys, values (n_blocks, kv_heads, block_size, D), block_size a multiple of 16; tables (batch, max_pages)
//
// On an H200 a step at D = 128 reaches 83 % of what reading reaches, 81 % in pages (data/gpu/README.md).
// A step reads each key and value once and does 4 x group operations per number. With 8 heads per key head,
// ordinary arithmetic would take longer than the reading; the tensor cores multiply 16 rows at once, of which
// `group` are used.
//   no shared memory   a warp's 16 keys go from memory to registers, 16 bytes per lane, with features in a permuted
//                      order: a sum over features may be taken in any order that is the same in q and k
//   no transposing     of a value's columns, lane group g takes 8 neighbours; two keys' words are interleaved by
//                      byte_perm, and each lane ends with 16 neighbouring columns of the output
//   prefetch           the keys of step j + 1 are loaded before the softmax of step j: with the values of step j, 16
//                      loads of 16 bytes per lane are in flight at D = 128
//   split-KV           parts of the keys are blocks of their own; merge_splits joins them
//
// The cache is loaded once, to the byte, if lengths are multiples of 16; else the last key is loaded again in
// place of those after the end. They get weight 0; memory after the end is never read.
#include "../common/rows.cuh"
#include "../common/tensor_tiles.cuh"

using namespace tensor_core;

constexpr int STEP = 16, WARPS = 4, MAX_GROUP = 8;

// Offset of 16 keys from the head's first number. A page is looked up once for all of them.
struct DenseRows {
    int width;
    __device__ long long place(int key) const { return (long long)key * width; }
};
struct PagedRows {
    const int* __restrict__ table;
    int kv_heads, block_size, width;
    __device__ long long place(int key) const {
        return ((long long)table[key / block_size] * kv_heads * block_size + key % block_size) * width;
    }
};

__device__ __forceinline__ uint32_t low_halves(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x5410); }
__device__ __forceinline__ uint32_t high_halves(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x7632); }

// Keys begin .. end of one key head, for its `group` query heads. q and out are those of the first; parts and
// sums too: (group, n_parts, D) and (group, n_parts, 2: largest score in powers of 2, sum of weights), used
// if n_parts > 1.
template <int D, typename T, class Rows>
__device__ __forceinline__ void attend(const Rows rows, const T* __restrict__ q, const T* __restrict__ keys,
                                       const T* __restrict__ values, T* __restrict__ out,
                                       float* __restrict__ parts, float* __restrict__ sums, int begin,
                                       int end, int group, int part, int n_parts, float scale) {
    __shared__ float o_of[WARPS][MAX_GROUP][D], top_of[WARPS][MAX_GROUP], sum_of[WARPS][MAX_GROUP];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const float to_log2 = scale * LOG2E;

    uint4 query[D / 32];  // of head g: features 32 p + 8 t and the seven after
#pragma unroll
    for (int p = 0; p < D / 32; ++p)
        query[p] = g < group ? *(const uint4*)(q + g * D + 32 * p + 8 * t) : make_uint4(0, 0, 0, 0);
    // o[h][j]: features 64 h + 16 t + j and + 8 + j, twice
    float o[D / 64][8][4] = {}, top = -INFINITY, sum = 0.0f;
    uint4 k[2][D / 32];
    auto load_keys = [&](long long at, int last) {
#pragma unroll
        for (int n = 0; n < 2; ++n)
            for (int p = 0; p < D / 32; ++p)
                k[n][p] = *(const uint4*)(keys + at + min(8 * n + g, last) * D + 32 * p + 8 * t);
    };
    constexpr int STRIDE = WARPS * STEP;
    const int start = begin + warp * STEP;
    long long place = start < end ? rows.place(start) : 0;
    long long next_place = start + STRIDE < end ? rows.place(start + STRIDE) : 0;
    if (start < end) load_keys(place, end - start - 1);

    for (int first = start; first < end; first += STRIDE) {
        const int last = end - first - 1;  // index of the last valid row among the 16
        uint4 v[4][D / 64];
#pragma unroll
        for (int r = 0; r < 4; ++r)
            for (int h = 0; h < D / 64; ++h)
                v[r][h] = *(const uint4*)(values + place + min(r / 2 * 8 + 2 * t + r % 2, last) * D + 64 * h +
                                          8 * g);

        float s[2][4] = {};
#pragma unroll
        for (int n = 0; n < 2; ++n)
            for (int p = 0; p < D / 32; ++p) {  // rows g + 8 of the 16 are unused: their registers are 0
                const uint32_t q_left[4] = {query[p].x, 0, query[p].y, 0},
                               q_right[4] = {query[p].z, 0, query[p].w, 0};
                const uint32_t k_left[2] = {k[n][p].x, k[n][p].y}, k_right[2] = {k[n][p].z, k[n][p].w};
                multiply_add(s[n], q_left, k_left, T());
                multiply_add(s[n], q_right, k_right, T());
            }
        // The keys of the next step are loaded while this one waits for its values. A page is looked up a step ahead.
        const int next = first + STRIDE;
        place = next_place;
        if (next < end) load_keys(place, end - next - 1);
        if (next + STRIDE < end) next_place = rows.place(next + STRIDE);
        float highest = -INFINITY;
#pragma unroll
        for (int n = 0; n < 2; ++n)
            for (int e = 0; e < 2; ++e) {
                s[n][e] = 8 * n + 2 * t + e <= last ? s[n][e] * to_log2 : -INFINITY;
                highest = fmaxf(highest, s[n][e]);
            }
        // 4 lanes share a head's scores. Key `first` is valid, so the maximum is finite.
        const float higher = fmaxf(top, lanes_max(highest, 4)), shrink = power_of_two(top - higher);
        top = higher;
        sum *= shrink;
#pragma unroll
        for (int n = 0; n < 2; ++n)
            for (int e = 0; e < 2; ++e) {
                s[n][e] = power_of_two(s[n][e] - higher);
                sum += s[n][e];  // this lane's share
            }
        const uint32_t weights[4] = {pack(s[0][0], s[0][1], T()), 0, pack(s[1][0], s[1][1], T()), 0};
#pragma unroll
        for (int h = 0; h < D / 64; ++h)
            for (int j = 0; j < 8; ++j) {
                const uint32_t a = (&v[0][h].x)[j / 2], b = (&v[1][h].x)[j / 2], c = (&v[2][h].x)[j / 2],
                               d = (&v[3][h].x)[j / 2];
                const uint32_t pair[2] = {j % 2 ? high_halves(a, b) : low_halves(a, b),
                                          j % 2 ? high_halves(c, d) : low_halves(c, d)};
                o[h][j][0] *= shrink;
                o[h][j][1] *= shrink;
                multiply_add(o[h][j], weights, pair, T());
            }
    }
    sum = lanes_sum(sum, 4);
    if (g < group) {
#pragma unroll
        for (int h = 0; h < D / 64; ++h)
            for (int j = 0; j < 8; ++j) {
                o_of[warp][g][64 * h + 16 * t + j] = o[h][j][0];
                o_of[warp][g][64 * h + 16 * t + 8 + j] = o[h][j][1];
            }
        if (t == 0) top_of[warp][g] = top, sum_of[warp][g] = sum;
    }
    __syncthreads();
    for (int e = threadIdx.x; e < group * D; e += 32 * WARPS) {
        const int head = e / D, column = e % D;
        float largest = -INFINITY, total = 0.0f, value = 0.0f;
        for (int w = 0; w < WARPS; ++w) largest = fmaxf(largest, top_of[w][head]);
        for (int w = 0; w < WARPS; ++w)
            if (top_of[w][head] > -INFINITY) {  // a warp without a key: -inf - -inf would be NaN
                const float weight = power_of_two(top_of[w][head] - largest);
                value += weight * o_of[w][head][column];
                total += weight * sum_of[w][head];
            }
        if (n_parts == 1) {
            out[e] = T(total > 0.0f ? value / total : 0.0f);
        } else {
            const long long at = (long long)head * n_parts + part;
            parts[at * D + column] = value;
            if (column == 0) sums[2 * at] = largest, sums[2 * at + 1] = total;
        }
    }
}

// Grid (n_parts, kv_heads, batch), block 128. keys_per_part is a multiple of 16.
template <typename T, int D>
__global__ void __launch_bounds__(128)
    decode_tensor_core(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                       const int* __restrict__ lengths, T* __restrict__ out, float* __restrict__ parts,
                       float* __restrict__ sums, int capacity, int group, int keys_per_part, float scale) {
    const long long kv_head = (long long)blockIdx.z * gridDim.y + blockIdx.y, head = kv_head * group,
                    rows = kv_head * capacity * D;
    const int begin = blockIdx.x * keys_per_part, end = min(begin + keys_per_part, lengths[blockIdx.z]);
    attend<D>(DenseRows{D}, q + head * D, k + rows, v + rows, out + head * D, parts + head * gridDim.x * D,
              sums + head * gridDim.x * 2, begin, end, group, blockIdx.x, gridDim.x, scale);
}

template <typename T, int D>
__global__ void __launch_bounds__(128, D == 64 ? 4 : 3)
    paged_tensor_core(const T* __restrict__ q, const T* __restrict__ keys, const T* __restrict__ values,
                      const int* __restrict__ tables, const int* __restrict__ lengths, T* __restrict__ out,
                      float* __restrict__ parts, float* __restrict__ sums, int block_size, int max_pages,
                      int group, int keys_per_part, float scale) {
    const int kv_heads = gridDim.y;
    const long long head = ((long long)blockIdx.z * kv_heads + blockIdx.y) * group,
                    inside = (long long)blockIdx.y * block_size * D;
    const int begin = blockIdx.x * keys_per_part, end = min(begin + keys_per_part, lengths[blockIdx.z]);
    const PagedRows rows{tables + (long long)blockIdx.z * max_pages, kv_heads, block_size, D};
    attend<D>(rows, q + head * D, keys + inside, values + inside, out + head * D,
              parts + head * gridDim.x * D, sums + head * gridDim.x * 2, begin, end, group, blockIdx.x,
              gridDim.x, scale);
}

// The parts of one head, weighted by 2^(largest score). Grid (heads, batch), D threads. No keys give 0.
template <typename T>
__global__ void merge_splits(const float* __restrict__ parts, const float* __restrict__ sums,
                             T* __restrict__ out, int n_parts) {
    const long long head = (long long)blockIdx.y * gridDim.x + blockIdx.x;
    parts += head * n_parts * blockDim.x + threadIdx.x;
    sums += head * n_parts * 2;
    float largest = -INFINITY, value = 0.0f, total = 0.0f;
    for (int i = 0; i < n_parts; ++i) largest = fmaxf(largest, sums[2 * i]);
    for (int i = 0; i < n_parts; ++i) {
        const float weight = sums[2 * i + 1] > 0.0f ? power_of_two(sums[2 * i] - largest) : 0.0f;
        value += weight * parts[(long long)i * blockDim.x];
        total += weight * sums[2 * i + 1];
    }
    out[head * blockDim.x + threadIdx.x] = T(total > 0.0f ? value / total : 0.0f);
}
