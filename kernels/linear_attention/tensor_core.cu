// Causal linear attention in chunks on the tensor cores: rung 4 of linear_attention.cu, in bfloat16.
//
//   q, k, v, out (heads, n, D), D = 64 or 128; state (heads, segments, D D + D) in float: S row by row, then z
//
// On an H200: 41 % of what reading reaches at D = 128, 40 % at D = 64 (data/gpu/README.md).
//
// Rung 3 reads keys and values twice and writes a state per chunk. Here a block walks its tokens 64 at a time
// with the state in its registers, in float, and four products per chunk, all on the tensor cores:
//
//   scores    P = phi(Q) phi(K)^T     64 x 64, masked: a key after the query has weight 0
//   output    O = P V + phi(Q) S      the chunk itself, and all chunks before through a bfloat16 copy of S
//   state     S += phi(K)^T V         for the next chunk
//   weights   z += phi(K)^T 1         one more column; the normaliser is phi(Q) z + the row sums of P
//
// Q, K, V of the next chunk are copied while this one is multiplied. Everything is read once and written
// once: 8 n D bytes per head, if there are enough heads to fill the card (segments = 1). If not, a head's
// tokens are cut into segments: linear_walk<D, false> makes the state of each but the last, segment_prefix
// adds them up, and linear_walk<D, true> starts every segment from its own. Then keys and values are read
// twice.
// bfloat16 only: a state grows with n, and half ends at 65504.
#include "../common/rows.cuh"
#include "../common/tensor_tiles.cuh"

using namespace tensor_core;
using T = __nv_bfloat16;

constexpr int CHUNK = 64;

__device__ __forceinline__ float phi(float x, int map) {
    if (map == 0) return x > 0.0f ? x + 1.0f : power_of_two(x * LOG2E);  // elu(x) + 1
    return map == 1 ? fmaxf(x, 0.0f) : x;
}

__device__ __forceinline__ uint32_t map_pair(uint32_t two, int map) {
    const float2 pair = __bfloat1622float2(*(const __nv_bfloat162*)&two);
    return pack(phi(pair.x, map), phi(pair.y, map), T());
}

// In place, 16 bytes at a time. Rows beyond the end stay 0: phi(0) may be 1.
template <int D, int THREADS>
__device__ __forceinline__ void map_rows(T* tile, int rows_left, int map) {
#pragma unroll
    for (int i = threadIdx.x; i < CHUNK * D / 8; i += THREADS) {
        if (i / (D / 8) >= rows_left) break;
        uint4 eight = *(const uint4*)(tile + 8 * i);
        uint32_t* pairs = &eight.x;
#pragma unroll
        for (int j = 0; j < 4; ++j) pairs[j] = map_pair(pairs[j], map);
        *(uint4*)(tile + 8 * i) = eight;
    }
}

// Grid (segments, heads), D = 64: 128 threads, D = 128: 256. Warp w holds rows 32 (w / 2) .. + 31 of S, columns
// D / 2 (w % 2) .. ; of the output it makes 16 rows, columns 64 (w / 4) .. . Without OUTPUT only the
// segment's own sums are made. Dynamic shared memory: 2 stages of 3 (without OUTPUT 2) tiles, 64 D numbers
// each; with OUTPUT also S (D D), the output (64 D), and z (D floats).
template <int D, bool OUTPUT>
__global__ void __launch_bounds__(2 * D, 1)
    linear_walk(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                const float* __restrict__ before, float* __restrict__ after, T* __restrict__ out, int n,
                int segment, int map, int normalise) {
    constexpr int THREADS = 2 * D, TILE = CHUNK * D, HALVES = D / 64, STAGE = (OUTPUT ? 3 : 2) * TILE,
                  SIZE = D * D + D, COLUMNS = D / 2;
    extern __shared__ __align__(128) unsigned char shared[];
    T* stages = (T*)shared;  // K; V as HALVES tiles 64 wide; Q
    T* s_tile = stages + 2 * STAGE;  // S as HALVES tiles of D rows, 64 wide
    T* out_tile = s_tile + D * D;
    float* z_shared = (float*)(out_tile + TILE);

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    // Later rows have more keys: two warps of one scheduler (w and w + 4, or of two blocks) get rows that balance.
    const int half = warp / 4, s_row = 32 * (warp / 2) + g, s_column = COLUMNS * (warp % 2) + 2 * t;
    const int row_group = (half + blockIdx.y) % 2 ? 3 - warp % 4 : warp % 4;
    const long long head = blockIdx.y, first_token = head * n, own = head * gridDim.x + blockIdx.x;
    const int begin = blockIdx.x * segment, end = min(n, begin + segment);

    float s[2][COLUMNS / 8][4] = {}, z[2][4] = {};  // rows s_row + 16 m and + 8; z is the same in all columns
    if (OUTPUT) {
        before += own * SIZE;
#pragma unroll
        for (int c = 0; c < COLUMNS / 8; ++c)
            for (int h = 0; h < 4; ++h) {
                const float2 pair = *(const float2*)(before + (s_row + 8 * h) * D + s_column + 8 * c);
                s[h / 2][c][h % 2 * 2] = pair.x, s[h / 2][c][h % 2 * 2 + 1] = pair.y;
            }
        for (int h = 0; h < 4; ++h) z[h / 2][h % 2 * 2] = before[D * D + s_row + 8 * h];
    }
    auto fetch = [&](int start) {
        T* stage = stages + (start - begin) / CHUNK % 2 * STAGE;
        const long long at = (first_token + start) * D;
        copy_rows<CHUNK, D, THREADS>(stage, k + at, end - start, D);
        for (int h = 0; h < HALVES; ++h)
            copy_rows<CHUNK, 64, THREADS>(stage + TILE + h * CHUNK * 64, v + at + 64 * h, end - start, D);
        if (OUTPUT) copy_rows<CHUNK, D, THREADS>(stage + 2 * TILE, q + at, end - start, D);
        commit();
    };
    if (begin < end) fetch(begin);

    for (int start = begin; start < end; start += CHUNK) {
        T* k_tile = stages + (start - begin) / CHUNK % 2 * STAGE;
        T *v_tile = k_tile + TILE, *q_tile = v_tile + TILE;
        const int rows = min(CHUNK, end - start);
        wait<0>();
        __syncthreads();  // this chunk has arrived, the last one may be overwritten
        if (start + CHUNK < end) fetch(start + CHUNK);
        map_rows<D, THREADS>(k_tile, rows, map);
        if (OUTPUT) {
            if (HALVES == 2) map_rows<D, THREADS>(q_tile, rows, map);  // read by two warps each
#pragma unroll
            for (int c = 0; c < COLUMNS / 8; ++c)
                for (int h = 0; h < 4; ++h) {
                    const int column = s_column + 8 * c;
                    *(uint32_t*)(s_tile + column / 64 * D * 64 + swizzled<64>(s_row + 8 * h, column % 64)) =
                        pack(s[h / 2][c][h % 2 * 2], s[h / 2][c][h % 2 * 2 + 1], T());
                }
            for (int h = 0; h < 4; ++h)
                if (t == 0 && warp % 2 == 0) z_shared[s_row + 8 * h] = z[h / 2][h % 2 * 2];
        }
        __syncthreads();

        if (OUTPUT) {
            uint32_t held[1][D / 16][4];
            float p[1][CHUNK / 8][4] = {}, o[1][8][4] = {}, weight[2] = {}, by[1][2];
            hold_rows<1, D>(held, q_tile + 16 * row_group * D);
#pragma unroll
            for (int step = 0; HALVES == 1 && step < D / 16; ++step)
                for (int i = 0; i < 4; ++i) held[0][step][i] = map_pair(held[0][step][i], map);
            // Keys after the warp's last query have weight 0: their products are left out, 16 keys at a time.
#pragma unroll
            for (int n = 0; n < CHUNK / 16; ++n)
                if (n <= row_group)
                    multiply_rows<1, 16, D, true>((float(&)[1][2][4])p[0][2 * n], held, q_tile,
                                                  k_tile + n * 16 * D);
#pragma unroll
            for (int c = 0; c < CHUNK / 8; ++c)
                for (int i = 0; i < 4; ++i) {
                    if (8 * c + 2 * t + i % 2 > 16 * row_group + g + i / 2 * 8) p[0][c][i] = 0.0f;
                    weight[i / 2] += p[0][c][i];
                }
#pragma unroll
            for (int n = 0; n < CHUNK / 16; ++n)
                if (n <= row_group)
                    multiply_columns<1, 16, 64>(o, (const float(&)[1][2][4])p[0][2 * n],
                                                v_tile + half * CHUNK * 64 + n * 16 * 64);
            const int piece = left_piece<64>(lane);
#pragma unroll
            for (int step = 0; step < D / 16; ++step) {
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    uint32_t right[2][2];
                    load_matrix_x4_transposed((uint32_t(&)[4])right,
                                              s_tile + half * D * 64 + step * 16 * 64 + (piece ^ 16 * c));
                    multiply_add(o[0][2 * c], held[0][step], right[0], T());
                    multiply_add(o[0][2 * c + 1], held[0][step], right[1], T());
                }
                for (int i = 0; i < 4;
                     ++i) {  // a[i]: row g + 8 (i % 2), features 16 step + 8 (i / 2) + 2 t, + 1
                    const float2 pair = __bfloat1622float2(*(const __nv_bfloat162*)&held[0][step][i]);
                    const float* z_pair = z_shared + 16 * step + i / 2 * 8 + 2 * t;
                    weight[i % 2] += pair.x * z_pair[0] + pair.y * z_pair[1];
                }
            }
            for (int h = 0; h < 2; ++h) {
                weight[h] = lanes_sum(weight[h], 4);  // 4 lanes share a row
                by[0][h] = !normalise ? 1.0f : weight[h] == 0.0f ? 0.0f : 1.0f / weight[h];
            }
            store_rows<1, 64>(out + (first_token + start + 16 * row_group) * D + 64 * half,
                              out_tile + warp * 16 * 64, o, by, rows - 16 * row_group, D);
        }
        const uint32_t ones[2] = {0x3f803f80u, 0x3f803f80u};  // 1 and 1 in bfloat16
        const int k_piece = right_piece<D>(lane) ^ 32 * (warp / 2), v_piece = left_piece<64>(lane);
#pragma unroll
        for (int step = 0; step < CHUNK / 16; ++step) {  // S += phi(K)^T V, 16 tokens at a time
            uint32_t left[2][4];
            for (int m = 0; m < 2; ++m)
                load_matrix_x4_transposed(left[m], k_tile + step * 16 * D + (k_piece ^ 16 * m));
#pragma unroll
            for (int c = 0; c < COLUMNS / 16; ++c) {
                const int column = COLUMNS * (warp % 2) + 16 * c;
                uint32_t right[2][2];
                load_matrix_x4_transposed(
                    (uint32_t(&)[4])right,
                    v_tile + column / 64 * CHUNK * 64 + step * 16 * 64 + (v_piece ^ column % 64));
                for (int m = 0; m < 2; ++m) {
                    multiply_add(s[m][2 * c], left[m], right[0], T());
                    multiply_add(s[m][2 * c + 1], left[m], right[1], T());
                }
            }
            for (int m = 0; m < 2; ++m) multiply_add(z[m], left[m], ones, T());
        }
    }
    if (OUTPUT && blockIdx.x != gridDim.x - 1)
        return;  // only the last segment knows the state after all tokens
    after += (OUTPUT ? head : own) * SIZE;
#pragma unroll
    for (int c = 0; c < COLUMNS / 8; ++c)
        for (int h = 0; h < 4; ++h)
            *(float2*)(after + (s_row + 8 * h) * D + s_column + 8 * c) =
                make_float2(s[h / 2][c][h % 2 * 2], s[h / 2][c][h % 2 * 2 + 1]);
    if (t == 0 && warp % 2 == 0)
        for (int h = 0; h < 4; ++h) after[D * D + s_row + 8 * h] = z[h / 2][h % 2 * 2];
}

// Sums of segments become the states that segments start from: state[s] = initial + sums of all before s. One
// thread per entry. Grid (size / 256, heads).
__global__ void segment_prefix(const float* __restrict__ initial, float* __restrict__ state, int segments,
                               int size) {
    const int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= size) return;
    float sum = initial[(long long)blockIdx.y * size + e];
    state += (long long)blockIdx.y * segments * size + e;
    for (int s = 0; s < segments; ++s) {
        const float own = s + 1 < segments ? state[(long long)s * size] : 0.0f;
        state[(long long)s * size] = sum;
        sum += own;
    }
}
