// Sparse attention on the tensor cores: rung 4 of sparse_attention.cu, for __half and __nv_bfloat16. A block
// of 128 queries visits only the tiles of 64 keys that it needs, each as in flash_attention/tensor_core.cu.
//
//   q, out (heads, n_q, d); k, v (heads / group_size, n_k, d); d is a multiple of 8 up to D, which is 64 or 128; any n.
//
//   kernel                    which tiles                                       which pairs inside
//   window_tensor_core        those that touch the window or the sinks          a comparison, if an edge cuts the tile
//   block_sparse_tensor_core  the row's list of blocks of 128 x 128 keys        a stored mask, if the block is partial
//
// Hidden values must be finite: those in a visited tile are multiplied by 0. A query that sees no key
// gets 0. On an H200 a visited tile runs at 92 % of the rate of flash_tensor_core (data/gpu/README.md).
#include "../common/tiles.cuh"
#include "../common/tensor_tiles.cuh"

using namespace tensor_core;

constexpr int THREADS = 128, TILE_Q = 128, TILE_K = 64, M = 2, ROWS = 16 * M;

// The tiles of one block of queries, for the warp that begins at `row`. any(): does it see a key of the tile?
// whole(): does it see all of them?
// allowed(): one pair.
struct Window {
    int window, n_sink, oldest, sinks, count;
    __device__ Window(int q0, int n, int window, int n_sink) : window(window), n_sink(n_sink) {
        oldest = max(0, q0 - window + 1) / TILE_K;  // the first tile that some query's window touches
        sinks =
            min(oldest, (n_sink + TILE_K - 1) / TILE_K);  // tiles of sinks before it; none is visited twice
        count = sinks + (min(q0 + TILE_Q, n) - 1) / TILE_K - oldest + 1;
    }
    __device__ int first_key(int i) const { return (i < sinks ? i : oldest + i - sinks) * TILE_K; }
    __device__ bool any(int, int row, int k0) const {
        return k0 < row + ROWS && (k0 + TILE_K > row - window + 1 || k0 < n_sink);
    }
    __device__ bool whole(int, int row, int k0) const {
        return k0 + TILE_K - 1 <= row && (row + ROWS - 1 - k0 < window || k0 + TILE_K <= n_sink);
    }
    __device__ bool allowed(int, int row, int key) const {
        return (key <= row) & ((row - key < window) | (key < n_sink));  // no branch, unlike && and ||
    }
};

// Entries first .. of the list of blocks, each two tiles. stored[e] is the index of entry e's mask, or -1 if
// all is seen.
struct Blocks {
    const int* __restrict__ column, * __restrict__ stored;
    const unsigned char* __restrict__ masks;
    int first, count, n_k;
    __device__ int first_key(int i) const { return column[first + i / 2] * TILE_Q + i % 2 * TILE_K; }
    __device__ bool any(int, int, int) const { return true; }
    __device__ bool whole(int i, int, int k0) const {
        return stored[first + i / 2] < 0 && k0 + TILE_K <= n_k;
    }
    __device__ bool allowed(int i, int row, int key) const {
        const int place = stored[first + i / 2];
        return key < n_k &&
               (place < 0 || masks[((size_t)place * TILE_Q + row % TILE_Q) * TILE_Q + key % TILE_Q]);
    }
};

// One block of queries over its tiles. Dynamic shared memory: 2 (128 D + 2 * 2 * 64 D) bytes.
template <int D, typename T, class Tiles>
__device__ __forceinline__ void visit_all(const Tiles tiles, const T* __restrict__ q, const T* __restrict__ k,
                                          const T* __restrict__ v, T* __restrict__ out, int q0, int n_q,
                                          int n_k, int d, float scale) {
    constexpr bool HOLD_Q = D == 64;
    constexpr int STAGE = 2 * TILE_K * D;
    extern __shared__ __align__(128) unsigned char shared[];
    T *q_tile = (T*)shared, *stages = q_tile + TILE_Q * D;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, warp_row = threadIdx.x / 32 * ROWS,
              first_row = q0 + warp_row;

    auto fetch = [&](int i) {
        const int k0 = tiles.first_key(i);
        T* stage = stages + i % 2 * STAGE;
        copy_rows<TILE_K, D, THREADS>(stage, k + (long long)k0 * d, n_k - k0, d);
        copy_rows<TILE_K, D, THREADS>(stage + TILE_K * D, v + (long long)k0 * d, n_k - k0, d);
        commit();
    };
    copy_rows<TILE_Q, D, THREADS>(q_tile, q + (long long)q0 * d, n_q - q0, d);
    if (tiles.count > 0)
        fetch(0);
    else
        commit();
    wait<0>();
    __syncthreads();

    uint32_t q_held[M][HOLD_Q ? D / 16 : 1][4];
    if constexpr (HOLD_Q) hold_rows<M, D>(q_held, q_tile + warp_row * D);
    const float to_log2 = scale * LOG2E;
    float o[M][D / 8][4] = {}, top[M][2], l[M][2], by[M][2];  // of rows 16 m + g and 16 m + g + 8
#pragma unroll
    for (int m = 0; m < M; ++m)
        for (int h = 0; h < 2; ++h) top[m][h] = -INFINITY, l[m][h] = 0.0f;

    for (int i = 0; i < tiles.count; ++i) {
        if (i + 1 < tiles.count) fetch(i + 1);
        const int k0 = tiles.first_key(i);
        const T* k_tile = stages + i % 2 * STAGE;
        if (tiles.any(i, first_row, k0)) {
            float s[M][TILE_K / 8][4] = {};
            multiply_rows<M, TILE_K, D, HOLD_Q>(s, q_held, q_tile + warp_row * D, k_tile);
            if (!tiles.whole(i, first_row, k0)) {
#pragma unroll
                for (int m = 0; m < M; ++m)
                    for (int n = 0; n < TILE_K / 8; ++n)
                        for (int e = 0; e < 4; ++e) {
                            const int row = first_row + 16 * m + e / 2 * 8 + g,
                                      key = k0 + 8 * n + 2 * t + e % 2;
                            if (!tiles.allowed(i, row, key)) s[m][n][e] = -INFINITY;
                        }
            }
            absorb_tile<M, TILE_K, D>(s, top, l, o, to_log2);
            multiply_columns<M, TILE_K, D>(o, s, k_tile + TILE_K * D);
        }
        wait<0>();
        __syncthreads();  // tile i + 1 is complete, tile i may be overwritten
    }
#pragma unroll
    for (int m = 0; m < M; ++m)
        for (int h = 0; h < 2; ++h) {
            const float sum = lanes_sum(l[m][h], 4);
            by[m][h] = sum > 0.0f ? 1.0f / sum : 0.0f;
        }
    store_rows<M, D>(out + (long long)first_row * d, q_tile + warp_row * D, o, by, n_q - first_row, d);
}

// Grid (n / 128, heads), block 128; blocks at the end of the text visit most tiles and start first.
template <typename T, int D>
__global__ void __launch_bounds__(THREADS, 2)
    window_tensor_core(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                       T* __restrict__ out, int group_size, int n, int d, int window, int n_sink,
                       float scale) {
    const int q0 = (gridDim.x - 1 - blockIdx.x) * TILE_Q;
    const long long head = (long long)blockIdx.y * n * d,
                    kv_head = (long long)(blockIdx.y / group_size) * n * d;
    visit_all<D>(Window(q0, n, window, n_sink), q + head, k + kv_head, v + kv_head, out + head, q0, n, n, d,
                 scale);
}

// start (query blocks + 1), column, stored: the lists of BlockMask; masks (partial blocks, 128, 128), one
// byte per pair.
template <typename T, int D>
__global__ void __launch_bounds__(THREADS, 2)
    block_sparse_tensor_core(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                             const int* __restrict__ start, const int* __restrict__ column,
                             const int* __restrict__ stored, const unsigned char* __restrict__ masks,
                             T* __restrict__ out, int group_size, int n_q, int n_k, int d, float scale) {
    const int first = start[blockIdx.x], q0 = blockIdx.x * TILE_Q;
    const long long head = (long long)blockIdx.y * n_q * d,
                    kv_head = (long long)(blockIdx.y / group_size) * n_k * d;
    const Blocks tiles{column, stored, masks, first, 2 * (start[blockIdx.x + 1] - first), n_k};
    visit_all<D>(tiles, q + head, k + kv_head, v + kv_head, out + head, q0, n_q, n_k, d, scale);
}
