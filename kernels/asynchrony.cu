// Attention forward with copies that one thread orders and nobody waits for until they are needed.
//
//   out = softmax(scale * q k^T) v,   lse = log of the sum of exp of each row's scores
//
// q, out (heads, n_q, 64), k, v (heads / group_size, n_k, 64) in bfloat16, lse (heads, n_q) in float; `heads`
// counts batch and heads together. Any n. Sums, softmax and lse in float. For sm_90a: a copy engine (TMA) moves
// whole tiles by a tensor map, barriers in shared memory count arrivals and bytes (common/asynchronous.cuh).
//
// In these four a thread has one query row, so that only the pipeline differs: when a tile of 32 keys and values
// is ordered, who waits for it, and who says that its buffer may be filled again. Tiles in flight are those that
// can be under way while one is used.
//
//   kernel           idea                                   tiles in flight  still wastes
//   1 one_tile       a tile is ordered, waited for, used           0         all wait for each copy
//   2 two_buffers    the next is ordered before this is used       1         all meet after each tile
//   3 ring           a barrier `full` and one `empty` per       STAGES - 1   thread 0 computes, too: who waits for
//                    buffer: a thread may go ahead                           its order waits for its sums
//   4 producer_warp  a warp of its own orders                  STAGES - 1    threads multiply, tensor cores are idle
//   5 warpgroup_attention, 6 overlapped: asynchrony/warpgroup.cu
//   7 flash3_forward, 8 shared_by_cluster: asynchrony/flash3.cu
//
// The result leaves as a tile, too: send_rows. Counted at n = 256, one head: bytes asked of global memory, copies
// included, and wavefronts of shared memory by threads; the last two are chapter 6's.
//
//   kernel                     asked  wavefronts  products of tensor cores
//   1 one_tile               328,704      65,956
//   2 two_buffers            328,704      65,960
//   3 ring<3>                328,704      66,100
//   4 producer_warp<3>       328,704      66,104
//   5 warpgroup_attention    328,704         696   128 of a warpgroup
//   6 overlapped             328,704         712   128
//   7 flash3_forward         197,632         448    96, a third of them twice as wide
//   8 shared_by_cluster      132,096         529    96
//   flash_two_groups         328,704      96,768
//   flash_tensor_core        197,632       6,144   4,096 of a warp
#include "common/asynchronous.cuh"
#include "common/numbers.cuh"
#include "common/rows.cuh"
#include "common/tensor_core.cuh"

using namespace asynchronous;

constexpr int D = 64, ROWS = 64, KEYS = 32;
constexpr uint32_t TILE_BYTES = KEYS * D * sizeof(bf16);

// What a thread keeps of its query row: the row times the scale, and the online softmax.
struct Row {
    float q[D], o[D], top, l;
    int index, seen;  // in its head; the number of keys that it sees
};

__device__ void load_row(Row& row, const bf16* __restrict__ q, int n_q, int n_k, float scale, int causal) {
    row.index = blockIdx.x * ROWS + threadIdx.x;
    const bool exists = threadIdx.x < ROWS && row.index < n_q;
    row.seen = exists ? keys_seen(row.index, n_q, n_k, causal) : 0;
    row.top = -INFINITY;
    row.l = 0.0f;
    q += ((long long)blockIdx.y * n_q + row.index) * D;
#pragma unroll
    for (int c = 0; c < D; c += 8) {
        Sixteen<bf16> eight = {};
        if (exists) eight = *(const Sixteen<bf16>*)(q + c);
        for (int i = 0; i < 8; ++i) row.q[c + i] = scale * eight.get(i), row.o[c + i] = 0.0f;
    }
}

// Number of keys that any row of the block sees.
__device__ int keys_of_block(int n_q, int n_k, int causal) {
    return keys_seen(min((int)(blockIdx.x + 1) * ROWS, n_q) - 1, n_q, n_k, causal);
}

// The row meets keys k0, k0 + 1, ... of a tile. All threads read the same key at once: no bank is asked twice.
__device__ void absorb(Row& row, const bf16* k_tile, const bf16* v_tile, int k0) {
    for (int j = 0; j < min(KEYS, row.seen - k0); ++j) {
        float s = 0.0f;
#pragma unroll
        for (int c = 0; c < D; c += 8) {
            const Sixteen<bf16> key = *(const Sixteen<bf16>*)(k_tile + j * D + c);
            for (int i = 0; i < 8; ++i) s += row.q[c + i] * key.get(i);
        }
        const float top = fmaxf(row.top, s), p = expf(s - top), shrink = expf(row.top - top);
#pragma unroll
        for (int c = 0; c < D; c += 8) {
            const Sixteen<bf16> value = *(const Sixteen<bf16>*)(v_tile + j * D + c);
            for (int i = 0; i < 8; ++i) row.o[c + i] = shrink * row.o[c + i] + p * value.get(i);
        }
        row.l = shrink * row.l + p;
        row.top = top;
    }
}

// One thread orders keys k0, k0 + 1, ... and their values; `full` says when both are there.
__device__ void order(bf16* k_tile, bf16* v_tile, const CUtensorMap* k_map, const CUtensorMap* v_map, int k0,
                      int kv_head, uint64_t* full) {
    expect(full, 2 * TILE_BYTES);
    load_tile(k_tile, k_map, 0, k0, kv_head, full);
    load_tile(v_tile, v_map, 0, k0, kv_head, full);
}

// The results leave as a tile, swizzled: eight threads that store the same 16 bytes of their rows would else meet
// in the same banks. The copy reads shared memory by another way than threads do: ordinary stores are fenced first.
__device__ void send_rows(const Row& row, bf16* out_tile, const CUtensorMap* out_map, float* __restrict__ lse,
                          int n_q) {
    if (threadIdx.x < ROWS) {
        const float by = row.l > 0.0f ? 1.0f / row.l : 0.0f;
#pragma unroll
        for (int c = 0; c < D; c += 8) {
            Sixteen<bf16> eight;
            for (int i = 0; i < 8; ++i) eight.set(i, by * row.o[c + i]);
            *(Sixteen<bf16>*)(out_tile + tensor_core::swizzled<D>(threadIdx.x, c)) = eight;
        }
        if (row.index < n_q) lse[(long long)blockIdx.y * n_q + row.index] = log_sum_exp(row.top, row.l);
    }
    fence_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        store_tile(out_map, 0, blockIdx.x * ROWS, blockIdx.y, out_tile);
        finish_stores();
    }
}

// 1: grid (n_q / 64, heads), block 64.
__global__ void one_tile(const __grid_constant__ CUtensorMap k_map, const __grid_constant__ CUtensorMap v_map,
                         const __grid_constant__ CUtensorMap out_map, const bf16* __restrict__ q,
                         float* __restrict__ lse, int group_size, int n_q, int n_k, float scale, int causal) {
    __shared__ alignas(1024) bf16 k_tile[KEYS * D], v_tile[KEYS * D], out_tile[ROWS * D];
    __shared__ uint64_t full;
    const int kv_head = blockIdx.y / group_size, end = keys_of_block(n_q, n_k, causal);
    if (threadIdx.x == 0) init(&full, 1);
    __syncthreads();

    Row row;
    load_row(row, q, n_q, n_k, scale, causal);
    int parity = 0;
    for (int k0 = 0; k0 < end; k0 += KEYS) {
        if (threadIdx.x == 0) order(k_tile, v_tile, &k_map, &v_map, k0, kv_head, &full);
        wait(&full, parity);
        parity ^= 1;
        absorb(row, k_tile, v_tile, k0);
        __syncthreads();  // all have finished with the tile
    }
    send_rows(row, out_tile, &out_map, lse, n_q);
}

// 2: the copy of tile j + 1 is under way while tile j is used. Grid and block as before.
__global__ void two_buffers(const __grid_constant__ CUtensorMap k_map,
                            const __grid_constant__ CUtensorMap v_map,
                            const __grid_constant__ CUtensorMap out_map, const bf16* __restrict__ q,
                            float* __restrict__ lse, int group_size, int n_q, int n_k, float scale,
                            int causal) {
    __shared__ alignas(1024) bf16 k_tiles[2][KEYS * D], v_tiles[2][KEYS * D], out_tile[ROWS * D];
    __shared__ uint64_t full[2];
    const int kv_head = blockIdx.y / group_size, end = keys_of_block(n_q, n_k, causal);
    if (threadIdx.x == 0) {
        for (int s = 0; s < 2; ++s) init(&full[s], 1);
        if (end > 0) order(k_tiles[0], v_tiles[0], &k_map, &v_map, 0, kv_head, &full[0]);
    }
    __syncthreads();

    Row row;
    load_row(row, q, n_q, n_k, scale, causal);
    for (int k0 = 0, j = 0; k0 < end; k0 += KEYS, ++j) {
        const int now = j % 2, next = 1 - now;
        if (threadIdx.x == 0 && k0 + KEYS < end)
            order(k_tiles[next], v_tiles[next], &k_map, &v_map, k0 + KEYS, kv_head, &full[next]);
        wait(&full[now], j / 2 % 2);
        absorb(row, k_tiles[now], v_tiles[now], k0);
        __syncthreads();  // tile j may be overwritten
    }
    send_rows(row, out_tile, &out_map, lse, n_q);
}

// 3: no barrier of the whole block in the loop. Tile j is in stage j % STAGES; the stage's turns are the phases of
// its two barriers. Grid and block as before.
template <int STAGES>
__global__ void ring(const __grid_constant__ CUtensorMap k_map, const __grid_constant__ CUtensorMap v_map,
                     const __grid_constant__ CUtensorMap out_map, const bf16* __restrict__ q,
                     float* __restrict__ lse, int group_size, int n_q, int n_k, float scale, int causal) {
    __shared__ alignas(1024) bf16 k_tiles[STAGES][KEYS * D], v_tiles[STAGES][KEYS * D], out_tile[ROWS * D];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    const int kv_head = blockIdx.y / group_size;
    const int tiles = (keys_of_block(n_q, n_k, causal) + KEYS - 1) / KEYS;
    if (threadIdx.x == 0)
        for (int s = 0; s < STAGES; ++s) init(&full[s], 1), init(&empty[s], ROWS);
    __syncthreads();

    Row row;
    load_row(row, q, n_q, n_k, scale, causal);
    for (int j = 1 - STAGES; j < tiles; ++j) {
        const int next = j + STAGES - 1, to = next % STAGES;
        if (threadIdx.x == 0 && next < tiles) {
            wait(&empty[to], next / STAGES % 2 ^ 1);  // all have left its last tile
            order(k_tiles[to], v_tiles[to], &k_map, &v_map, next * KEYS, kv_head, &full[to]);
        }
        __syncwarp();  // thread 0 is back
        if (j < 0) continue;  // the ring fills
        const int s = j % STAGES;
        wait(&full[s], j / STAGES % 2);
        absorb(row, k_tiles[s], v_tiles[s], j * KEYS);
        arrive(&empty[s]);
    }
    send_rows(row, out_tile, &out_map, lse, n_q);
}

// 4: warps 0 and 1 compute, thread 64 orders. Grid (n_q / 64, heads), block 96.
template <int STAGES>
__global__ void producer_warp(const __grid_constant__ CUtensorMap k_map,
                              const __grid_constant__ CUtensorMap v_map,
                              const __grid_constant__ CUtensorMap out_map, const bf16* __restrict__ q,
                              float* __restrict__ lse, int group_size, int n_q, int n_k, float scale,
                              int causal) {
    __shared__ alignas(1024) bf16 k_tiles[STAGES][KEYS * D], v_tiles[STAGES][KEYS * D], out_tile[ROWS * D];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    const int kv_head = blockIdx.y / group_size;
    const int tiles = (keys_of_block(n_q, n_k, causal) + KEYS - 1) / KEYS;
    if (threadIdx.x == 0)
        for (int s = 0; s < STAGES; ++s) init(&full[s], 1), init(&empty[s], ROWS / 32);
    __syncthreads();

    Row row;
    load_row(row, q, n_q, n_k, scale, causal);
    if (threadIdx.x >= ROWS) {
        for (int j = 0; threadIdx.x == ROWS && j < tiles; ++j) {
            const int s = j % STAGES;
            wait(&empty[s], j / STAGES % 2 ^ 1);  // both warps have left its last tile
            order(k_tiles[s], v_tiles[s], &k_map, &v_map, j * KEYS, kv_head, &full[s]);
        }
    } else {
        for (int j = 0; j < tiles; ++j) {
            const int s = j % STAGES;
            wait(&full[s], j / STAGES % 2);
            absorb(row, k_tiles[s], v_tiles[s], j * KEYS);
            __syncwarp();
            if (threadIdx.x % 32 == 0) arrive(&empty[s]);
        }
    }
    send_rows(row, out_tile, &out_map, lse, n_q);
}
