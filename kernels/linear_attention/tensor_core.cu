// Causal linear attention in chunks on the tensor cores: rung 4 of linear_attention.cu, in bfloat16.
//
//   q, k, v, out (heads, n, D), D = 64 or 128; state (heads, segments, D D + D) in float: S row by row, then z
//
// Rung 3 reads keys and values twice and writes a state per chunk. Here a block walks its tokens 64 at a time
// with the state in its registers, in float, and four products per chunk, all on the tensor cores:
//
//   scores    P = phi(Q) phi(K)^T     64 x 64, masked: a key after the query has weight 0
//   output    O = phi(Q) S + P V      all chunks before, through a bfloat16 copy of S, and the chunk itself
//   state     S += phi(K)^T V         for the next chunk
//   weights   z += phi(K)^T 1         one more column; the normaliser is phi(Q) z + the row sums of P
//
// A warp holds 16 columns of S, transposed: the sums of V^T phi(K) are, packed, the right operand of phi(Q) S. At
// D = 64 that would be one warp per scheduler, so four warps share the columns: each keeps a quarter of the
// features, makes 16 rows of the output, and reads the others' features from shared memory. P is made once, in
// pieces dealt to all warps. The next chunk's K and Q are mapped by phi between registers and shared memory, by
// half of the warps before the products and by half after them: powers and products overlap.
//
// Everything is read once and written once: 8 n D bytes per head, if there are enough heads to fill the card
// (segments = 1). If not, a head's tokens are cut into segments: linear_walk<D, false> makes the state of each
// (the last one's is not used), segment_prefix adds them up, and linear_walk<D, true> starts every segment from
// its own. Then keys and values are read twice. bfloat16 only: a state grows with n, and half ends at 65504.
#include "../common/tensor_tiles.cuh"

using namespace tensor_core;
using T = __nv_bfloat16;
constexpr int CHUNK = 64;

// phi of eight numbers: elu(x) + 1 = max(x, 0) + e^min(x, 0) (0), relu (1), or x itself (2). Without a branch in it, so
// that no power waits for another.
__device__ __forceinline__ uint4 map_eight(uint4 eight, int map) {
    if (map == 2) return eight;
    const __nv_bfloat162 zero = __float2bfloat162_rn(0.0f);
    __nv_bfloat162* pairs = (__nv_bfloat162*)&eight;
    for (int i = 0; i < 4; ++i) {
        const float2 low = __bfloat1622float2(__hmin2(pairs[i], zero));
        pairs[i] = __hmax2_nan(pairs[i], zero);
        if (map == 0)
            pairs[i] = __hadd2(
                pairs[i], __floats2bfloat162_rn(power_of_two(low.x * LOG2E), power_of_two(low.y * LOG2E)));
    }
    return eight;
}

// What the warps make of a chunk for each other, in 14 jobs. Jobs 0 to 9: 16 x 16 scores, the lower triangle of P.
// Jobs 10 to 13: phi(Q) z of 16 rows; even columns of z are bfloat16 numbers, odd ones what these leave of z. `q`,
// `k` and `z` are a lane's places.
template <int D>
__device__ __forceinline__ void weigh(int job, const unsigned char* shared, int q, int k, int z, T* p_tile,
                                      float* weights, int normalise) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int r = job >= 10 ? job - 10 : job >= 6 ? 3 : job >= 3 ? 2 : job >= 1, c = job - r * (r + 1) / 2;
    float sum[2][4] = {};
    for (int step = 0; step < D / 16; ++step) {
        uint32_t a[4], b[2][2];
        load_matrix_x4(a, shared + (q ^ 32 * step) + r * 32 * D);
        load_matrix_x4((uint32_t(&)[4])b, shared + ((job < 10 ? k + c * 32 * D : z) ^ 32 * step));
        for (int m = 0; m < 2; ++m) multiply_add(sum[m], a, b[m], T());
    }
    const int place = 16 * r * 64 + swizzled<64>(g, 16 * c + 2 * t), key = 16 * (c - r) + 2 * t;
    for (int i = 0; i < 4 && job < 10; ++i) {
        const int row = g + 8 * (i / 2), after = key + 8 * (i % 2) - row;
        const float* p = sum[i % 2] + i / 2 * 2;
        *(uint32_t*)(p_tile + (place ^ 8 * (i % 2)) + 8 * 64 * (i / 2)) =
            pack(after > 0 ? 0.0f : p[0], after >= 0 ? 0.0f : p[1], T());
    }
    for (int h = 0; h < 2 && job >= 10 && t == 0; ++h)
        weights[16 * r + g + 8 * h] = normalise ? sum[0][2 * h] + sum[0][2 * h + 1] : 1.0f;
}

// 16 rows of the output and 16 columns, `o` over `weight`, through `tile`: a lane holds two neighbours of two rows,
// but a good store is 16 bytes of one row.
template <int D>
__device__ __forceinline__ void store_piece(T* __restrict__ out, T* tile, const float (&o)[2][4],
                                            const float (&weight)[4], int column, int rows_left) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    for (int h = 0; h < 2; ++h) {
        const float by = weight[2 * h] == 0.0f ? 0.0f : __fdividef(1.0f, weight[2 * h]);
        for (int m = 0; m < 2; ++m)
            *(uint32_t*)(tile + (swizzled<D>(g, column + 2 * t) ^ 8 * m) + 8 * D * h) =
                pack(o[m][2 * h] * by, o[m][2 * h + 1] * by, T());
    }
    __syncwarp();
    const int row = lane / 2 % 4 * 2 + lane / 8 % 2 + lane / 16 * 8;  // 8 lanes read all banks
    column += lane % 2 * 8;
    if (row < rows_left) *(uint4*)(out + row * D + column) = *(const uint4*)(tile + swizzled<D>(row, column));
}

// Grid (segments, heads), 2 D PARTS threads. Warp w holds columns 16 (w % (D / 16)) .. of S, features
// D / PARTS (w / (D / 16)) .. . Without OUTPUT only the segment's own sums are made. Dynamic shared memory:
// 2 stages of K, V, Q (without OUTPUT K, V), 64 D numbers each; with OUTPUT also P (64 x 64), z (2 D numbers), 64
// floats, and with PARTS > 1 S (D D).
template <int D, bool OUTPUT>
__global__ void __launch_bounds__(32768 / D, OUTPUT ? 1 : 2)
    linear_walk(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                const float* __restrict__ before, float* __restrict__ after, T* __restrict__ out, int n,
                int segment, int map, int normalise) {
    constexpr int PARTS = 128 / D * (128 / D), THREADS = 2 * D * PARTS, TILE = CHUNK * D,
                  STAGE = (OUTPUT ? 3 : 2) * TILE, SIZE = D * D + D, STEPS = D / 16, OWN = D / PARTS,
                  GROUPS = 4 / PARTS, ROWS = THREADS / (D / 8), PIECES = CHUNK / ROWS;
    extern __shared__ __align__(256) unsigned char shared[];
    T *stages = (T*)shared, *p_tile = stages + 2 * STAGE, *z_tile = p_tile + CHUNK * CHUNK;
    float* weights = (float*)(z_tile + 2 * D);
    uint4* s_tile = (uint4*)(weights + CHUNK);

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4,
              early = OUTPUT && warp / 4 % 2 == 0;
    const int slice = warp % STEPS, part = warp / STEPS, column = 16 * slice, feature = OWN * part;
    const int begin = blockIdx.x * segment, length = min(n, begin + segment) - begin;
    const long long head = blockIdx.y, own = head * gridDim.x + blockIdx.x, first = (head * n + begin) * D;
    const uint32_t ones[2] = {0x3f803f80u, 0x3f803f80u};  // 1 and 1 in bfloat16
    const uint32_t counted[2] = {normalise ? ones[0] : 0, normalise ? ones[0] : 0};
    auto group = [&](int j) { return PARTS == 1 ? j : part; };  // the 16 rows that are this warp's number j

    // s[c][i]: feature `feature` + 8 c + 2 t + i % 2, column `column` + g + 8 (i / 2). z[i]: `column` + g + 4 i.
    float s[OWN / 8][4] = {}, z[4] = {}, o[GROUPS][2][4];
    uint32_t values[CHUNK / 16][2][2];  // 16 columns of V
    auto place = [&](int c, int i) { return (feature + 8 * c + 2 * t + i % 2) * D + column + g + i / 2 * 8; };
    if (OUTPUT) {
        before += own * SIZE;
        for (int c = 0; c < OWN / 8; ++c)
            for (int i = 0; i < 4; ++i) s[c][i] = before[place(c, i)];
        for (int i = 0; i < 4 && part == 0; i += 2) z[i] = before[D * D + column + g + 4 * i];
    }
    auto packed = [&](int step) {  // the right operand of phi(Q) S, 16 features of this warp
        const auto &low = s[2 * step], &high = s[2 * step + 1];
        return make_uint4(pack(low[0], low[1], T()), pack(high[0], high[1], T()), pack(low[2], low[3], T()),
                          pack(high[2], high[3], T()));
    };
    auto share_state = [&]() {
        for (int i = 0; i < 4 && part == 0 && t == 0; i += 2) {
            T *high = z_tile + column + g + 4 * i, *rest = high + D;
            *high = __float2bfloat16(z[i]), *rest = __float2bfloat16(z[i] - __bfloat162float(*high));
        }
        for (int step = 0; step < OWN / 16 && PARTS > 1; ++step)
            s_tile[(slice * STEPS + feature / 16 + step) * 32 + lane] = packed(step);
    };

    // A thread's pieces of K and Q, 16 bytes each, on their way to shared memory
    uint4 pieces[(OUTPUT ? 2 : 1) * PIECES];
    const int row = threadIdx.x / (D / 8), at = threadIdx.x % (D / 8) * 8;
    const T* from[2] = {k + first + row * D + at, q + first + row * D + at};
    auto load = [&](int rows_left) {
        for (int i = 0; i < sizeof(pieces) / 16; ++i) {
            const T* piece = from[i / PIECES] + i % PIECES * ROWS * D;
            pieces[i] = row + i % PIECES * ROWS < rows_left ? *(const uint4*)piece : uint4{};
        }
        from[0] += TILE, from[1] += TILE;
    };
    auto prepare = [&](int rows, int turn) {  // the next chunk; then the one after it is on its way
        if (rows <= CHUNK) return;
        T* tile = stages + (1 - turn) * STAGE + swizzled<D>(row, at);
        for (int i = 0; i < sizeof(pieces) / 16; ++i)
            *(uint4*)(tile + i / PIECES * 2 * TILE + i % PIECES * ROWS * D) = map_eight(pieces[i], map);
        load(rows - 2 * CHUNK);
    };
    v += first, out += first;
    auto fetch = [&](int turn, int rows_left) {
        copy_rows<CHUNK, D, THREADS>(stages + turn * STAGE + TILE, v, rows_left, D);
        commit(), v += TILE;
    };
    load(length);
    fetch(0, length);
    prepare(length + CHUNK, 1);
    if (OUTPUT) share_state();

    const int z_right = 2 * (z_tile - stages + lane % 2 * D + lane / 8 % 2 * 8);
    // A lane's places in K, in bytes. 16 columns on is `^ 32`, 16 rows on `+ 32 D`.
    int left = 2 * left_piece<D>(lane), right = 2 * right_piece<D>(lane), turn = 0;
    for (int rows = length; rows > 0; rows -= CHUNK) {
        wait<0>();
        __syncthreads();  // this chunk is there, the last one may be overwritten
        if (rows > CHUNK) fetch(1 - turn, rows - CHUNK);
        if (OUTPUT) {
#pragma unroll 1
            for (int job = warp; job < 14; job += THREADS / 32)
                weigh<D>(job, shared, left + 4 * TILE, right, z_right, p_tile, weights, normalise);
            if (early) prepare(rows, turn);
            for (int i = 0; i < 8 * GROUPS; ++i) o[i / 8][i / 4 % 2][i % 4] = 0.0f;
            for (int step = 0; step < STEPS; ++step) {  // O = phi(Q) S
                const uint4 state = PARTS > 1 ? s_tile[(slice * STEPS + step) * 32 + lane] : packed(step);
                const uint32_t b[2][2] = {{state.x, state.y}, {state.z, state.w}};
                for (int j = 0; j < GROUPS; ++j) {
                    uint32_t a[4];
                    load_matrix_x4(a, shared + (left ^ 32 * step) + 4 * TILE + group(j) * 32 * D);
                    for (int m = 0; m < 2; ++m) multiply_add(o[j][m], a, b[m], T());
                }
            }
        }
        for (int step = 0; step < CHUNK / 16; ++step) {  // S^T += V^T phi(K), 16 tokens at a time
            uint32_t a[4], b[2][2];
            load_matrix_x4_transposed(a, shared + (right ^ 2 * column) + 2 * TILE + step * 32 * D);
            for (int i = 0; i < 4; ++i) values[step][i % 2][i / 2] = a[i];
            for (int c = 0; c < OWN / 16; ++c) {
                load_matrix_x4_transposed((uint32_t(&)[4])b,
                                          shared + (left ^ 2 * feature ^ 32 * c) + step * 32 * D);
                for (int m = 0; m < 2; ++m) multiply_add(s[2 * c + m], a, b[m], T());
            }
            if (part == 0) {
                load_matrix_x4_transposed(a, shared + (right ^ 2 * column) + step * 32 * D);
                multiply_add(z, a, ones, T());
            }
        }
        if (!early) prepare(rows, turn);
        if (OUTPUT) {
            __syncthreads();  // P is whole; Q, S and z are read
            share_state();
            T* q_tile = stages + turn * STAGE + 2 * TILE;  // the way out, Q is not needed any more
            const int p_left = 2 * (2 * STAGE + left_piece<64>(lane));
            float weight[GROUPS][4] = {};
            for (int j = 0; j < GROUPS; ++j)
                for (int i = 0; i < 4; i += 2) weight[j][i] = weights[16 * group(j) + g + 4 * i];
            for (int c = 0; c < CHUNK / 16; ++c)
                for (int j = 0; j < GROUPS; ++j)
                    if (c <= group(j)) {
                        uint32_t a[4];
                        load_matrix_x4(a, shared + (p_left ^ 32 * c) + group(j) * 32 * 64);
                        for (int m = 0; m < 2; ++m) multiply_add(o[j][m], a, values[c][m], T());
                        multiply_add(weight[j], a, counted, T());
                    }
            for (int j = 0; j < GROUPS; ++j)
                store_piece<D>(out + group(j) * 16 * D, q_tile + group(j) * 16 * D, o[j], weight[j], column,
                               rows - 16 * group(j));
            out += TILE;
        }
        left += turn ? -2 * STAGE : 2 * STAGE, right += turn ? -2 * STAGE : 2 * STAGE, turn = 1 - turn;
    }
    if (map == 0)  // rows beyond the end were counted: phi(0) = 1
        for (int i = 0; i < 4; i += 2) z[i] -= -length & (CHUNK - 1);
    if (OUTPUT && blockIdx.x != gridDim.x - 1) return;  // only the last segment knows the state after all
    after += (OUTPUT ? head : own) * SIZE;
    for (int c = 0; c < OWN / 8; ++c)
        for (int i = 0; i < 4; ++i) after[place(c, i)] = s[c][i];
    for (int i = 0; i < 4 && part == 0 && t == 0; i += 2) after[D * D + column + g + 4 * i] = z[i];
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
