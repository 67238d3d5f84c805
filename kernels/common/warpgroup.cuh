// Products of a warpgroup, four warps together (wgmma): they return at once and read shared memory themselves. Then
// what attention makes of them. Compiled for sm_90a.
//
// Everything here is collective: all 128 threads of a warpgroup call it together.
#pragma once
#include "asynchronous.cuh"
#include "numbers.cuh"
#include "rows.cuh"
#include "tensor_core.cuh"

namespace asynchronous {

// ---- After begin_products registers are ready; from its issue to the wait for its group a product owns its sums
// and its A.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Returns when all but the LEFT newest groups are done.
template <int LEFT>
__device__ __forceinline__ void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// What a product must be told of a tile in shared memory: rows of 64 numbers, 128 bytes, swizzled as a copy leaves
// them (swizzle=128), eight rows every 1,024 bytes.
__device__ __forceinline__ uint64_t described(const bf16* tile) {
    const uint64_t address = tensor_core::shared_address(tile);
    return (address & 0x3ffff) >> 4 | (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}

// ---- The product: d (64 x n) = a (64 x 16) b (16 x n) + d if adds, in float. Warp w has rows 16 w, 16 w + 1, ...;
// lane l has group g = l / 4 and place t = l % 4, and of d
//
//   d[i]: row g + 8 (i / 2 % 2), column 8 (i / 4) + 2 t + i % 2
//
// a is in shared memory, rows by k, or in registers as mma.sync has it (tensor_core.cuh). b in shared memory is n by
// k (keys) with the first two, k by n (values) with the third.
__device__ __forceinline__ void multiply(float (&d)[32], uint64_t a, uint64_t b, int adds) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; "
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7,"
                 " %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, "
                 "%25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0; }"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
                   "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
                   "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
                   "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
                   "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                 : "l"(a), "l"(b), "r"(adds));
}
__device__ __forceinline__ void multiply(float (&d)[64], uint64_t a, uint64_t b, int adds) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; "
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, "
                 "%7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
                 "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, "
                 "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, "
                 "%58, %59, %60, %61, %62, %63}, %64, %65, p, 1, 1, 0, 0; }"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
                   "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
                   "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
                   "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
                   "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),
                   "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
                   "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
                   "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
                   "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]),
                   "+f"(d[63])
                 : "l"(a), "l"(b), "r"(adds));
}
__device__ __forceinline__ void multiply(float (&d)[32], const uint32_t (&a)[4], uint64_t b, int adds) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0; "
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7,"
                 " %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, "
                 "%25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, 1; }"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
                   "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
                   "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
                   "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
                   "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));
}

// s (64 x KEYS) = q k^T of tiles D wide, in pieces of 64 columns, + s if adds.
template <int D, int KEYS>
__device__ __forceinline__ void multiply_rows(float (&s)[KEYS / 2], const bf16* q_tile, const bf16* k_tile,
                                              int adds = 0) {
#pragma unroll
    for (int c = 0; c < D; c += 16)
        multiply(s, described(q_tile + c / 64 * 64 * 64 + c % 64),
                 described(k_tile + c / 64 * KEYS * 64 + c % 64), adds || c > 0);
}
// Sums that begin with the bias of their column's key: the product adds to it, no instruction of its own does.
template <int COUNT>
__device__ __forceinline__ void start_from(float (&s)[COUNT], const float* bias) {
#pragma unroll
    for (int i = 0; i < COUNT; i += 4) {
        const float2 pair = *(const float2*)(bias + 2 * i + threadIdx.x % 4 * 2);
        s[i] = s[i + 2] = pair.x;
        s[i + 1] = s[i + 3] = pair.y;
    }
    __syncwarp();  // one lane gives the tile back for all
}
// o (64 x D) += p v, p in registers, by 64 columns.
template <int D, int KEYS>
__device__ __forceinline__ void multiply_columns(float (&o)[D / 64][32], const uint32_t (&p)[KEYS / 16][4],
                                                 const bf16* v_tile) {
#pragma unroll
    for (int k = 0; k < KEYS / 16; ++k)
        for (int c = 0; c < D / 64; ++c)
            multiply(o[c], p[k], described(v_tile + (c * KEYS + k * 16) * 64), 1);
}

// ---- The online softmax of a thread's two rows, g and g + 8 of its warp, in powers of two.
struct Softmax {
    float top[2] = {-INFINITY, -INFINITY}, l[2] = {};  // l: of this lane's keys

    // Scores become weights; rows of the output made before must be multiplied by `shrink`.
    template <int COUNT>
    __device__ __forceinline__ void absorb(float (&s)[COUNT], float (&shrink)[2], float to_log2) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float highest = -INFINITY;
            for (int i = 2 * h; i < COUNT; i += 4) highest = fmaxf(highest, fmaxf(s[i], s[i + 1]));
            const float before = top[h];
            top[h] = fmaxf(before, lanes_max(highest, 4) * to_log2);
            shrink[h] = power_of_two(before - finite(top[h]));
            l[h] *= shrink[h];
            for (int i = 2 * h; i < COUNT; i += 4)
                for (int e = i; e < i + 2; ++e) {
                    s[e] = power_of_two(fmaf(s[e], to_log2, -finite(top[h])));
                    l[h] += s[e];
                }
        }
    }
};

template <int PIECES>
__device__ __forceinline__ void scale_rows(float (&o)[PIECES][32], const float (&by)[2]) {
#pragma unroll
    for (int c = 0; c < PIECES; ++c)
        for (int i = 0; i < 32; ++i) o[c][i] *= by[i / 2 % 2];
}

// Weights as the next product's A: sums of two neighbouring 8 columns are, packed, one tile of A.
template <int COUNT>
__device__ __forceinline__ void pack_rows(uint32_t (&p)[COUNT / 8][4], const float (&s)[COUNT]) {
#pragma unroll
    for (int k = 0; k < COUNT / 8; ++k)
        for (int r = 0; r < 4; ++r)
            p[k][r] = tensor_core::pack(s[8 * k + 2 * r], s[8 * k + 2 * r + 1], bf16());
}

// Number of tiles that rows row0 to row0 + rows - 1 see anything of.
__device__ __forceinline__ int tiles_seen(int row0, int rows, int keys, int n_q, int n_k, int causal) {
    return (keys_seen(min(row0 + rows, n_q) - 1, n_q, n_k, causal) + keys - 1) / keys;
}

// Hides what the rows do not see of keys k0, k0 + 1, ...; row is the thread's first.
template <int COUNT>
__device__ __forceinline__ void hide(float (&s)[COUNT], int row, int k0, int n_q, int n_k, int causal) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int seen = keys_seen(row + 8 * h, n_q, n_k, causal) - k0 - 2 * (threadIdx.x % 4);
        for (int i = 2 * h; i < COUNT; i += 4)
            for (int e = 0; e < 2; ++e)
                if (2 * i - 4 * h + e >= seen) s[i + e] = -INFINITY;
    }
}

// ---- The way in: ROWS query rows, and tiles of KEYS keys and of as many values, in turn, in a ring of SLOTS tiles
// with two barriers each. Values may be narrower than keys, and with a tile of keys comes its BIAS.
template <int D, int ROWS, int KEYS, int SLOTS, int DV = D, bool BIAS = false>
struct Ring {
    bf16* q_tile;  // by 64 rows and 64 columns; the ring's tiles are behind it, and behind them the biases
    uint64_t *q_full, *full, *empty;

    // One thread starts the barriers; each warp that uses the tiles leaves each of them once.
    __device__ void start(int warps) {
        init(q_full, 1);
        for (int s = 0; s < SLOTS; ++s) init(&full[s], 1), init(&empty[s], warps);
    }
    // One thread orders the queries, then keys and values. The bias's map is one row, a head at whole 16 bytes.
    __device__ void produce(const CUtensorMap* q_map, const CUtensorMap* k_map, const CUtensorMap* v_map,
                            int row0, int head, int kv_head, int tiles, const CUtensorMap* bias_map = nullptr,
                            int n_k = 0) {
        expect(q_full, ROWS * D * sizeof(bf16));
        for (int r = 0; r < ROWS; r += 64)
            for (int c = 0; c < D; c += 64)
                load_tile(q_tile + r * D + c * 64, q_map, c, row0 + r, head, q_full);
        for (int i = 0; i < 2 * tiles; ++i) {
            const int s = i % SLOTS, width = i % 2 ? DV : D;
            const int TILE = KEYS * (BIAS && i % 2 == 0 ? D + 2 : width);  // a float has the bytes of two
            wait(&empty[s], i / SLOTS % 2 ^ 1);
            expect(&full[s], TILE * sizeof(bf16));
            for (int c = 0; c < width; c += 64)
                load_tile(tile(i) + c * KEYS, i % 2 ? v_map : k_map, c, i / 2 * KEYS, kv_head, &full[s]);
            if (BIAS && i % 2 == 0) {
                const int at[] = {kv_head * ((n_k + 3) & ~3) + i / 2 * KEYS};
                ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, bias(i), bias_map, at,
                                          full + s);
            }
        }
    }
    __device__ __forceinline__ bf16* tile(int i) { return q_tile + ROWS * D + i % SLOTS * (KEYS * D); }
    __device__ __forceinline__ float* bias(int i) {
        return (float*)(q_tile + (ROWS + SLOTS * KEYS) * D) + i % SLOTS * KEYS;
    }
    // Tile i when it is there: keys of tile j are 2 j, its values 2 j + 1.
    __device__ __forceinline__ const bf16* arrived(int i) {
        wait(&full[i % SLOTS], i / SLOTS % 2);
        return tile(i);
    }
    __device__ __forceinline__ void leave(int i) {
        if (threadIdx.x % 32 == 0) arrive(&empty[i % SLOTS]);
    }
};

// ---- The way out: a warpgroup's 64 rows through its tile of shared memory, by one copy per 64 columns. `number` is
// a barrier of the hardware, for its 128 threads alone.
__device__ __forceinline__ void meet(int number, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
template <int PIECES>
__device__ __forceinline__ void send_rows(bf16* tile, const float (&o)[PIECES][32], const Softmax& softmax,
                                          const CUtensorMap* out_map, float* __restrict__ lse, int row0,
                                          int head, int n_q, int number) {
    const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const float sum = lanes_sum(softmax.l[h], 4), by = sum > 0.0f ? 1.0f / sum : 0.0f;
        for (int c = 0; c < PIECES; ++c)
            for (int i = 2 * h; i < 32; i += 4) {
                const int place = tensor_core::swizzled<64>(row + 8 * h, i / 4 * 8 + lane % 4 * 2);
                *(uint32_t*)(tile + c * 64 * 64 + place) =
                    tensor_core::pack(o[c][i] * by, o[c][i + 1] * by, bf16());
            }
        if (lane % 4 == 0 && row0 + row + 8 * h < n_q)
            lse[(long long)head * n_q + row0 + row + 8 * h] =
                sum > 0.0f ? (softmax.top[h] + log2f(sum)) * LN2 : -INFINITY;
    }
    fence_async();
    meet(number, 128);
    if (threadIdx.x % 128 == 0) {
        for (int c = 0; c < PIECES; ++c) store_tile(out_map, c * 64, row0, head, tile + c * 64 * 64);
        finish_stores();
    }
}

}  // namespace asynchronous
