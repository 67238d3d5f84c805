// Rungs 5 and 6 of the ladder that begins in asynchrony.cu: products that return at once, by a warpgroup.
//
//   out = softmax(scale * q k^T) v,   lse = log of the sum of exp of each row's scores
//
// q, out (heads, n_q, D), k, v (heads / group_size, n_k, D) in bfloat16, lse (heads, n_q) in float; D is 64 or 128.
// Any n; scale above 0. Sums, softmax and lse in float. For sm_90a.
//
// Four warps have 64 query rows. The tensor cores read q, k and v from shared memory, as the copies left them;
// scores and output stay in registers. A fifth warp orders tiles of 64 keys, and of their values, into a ring of
// four tiles.
//
//   kernel                 idea                                        still wastes
//   5 warpgroup_attention  both products by wgmma, waited for at once  tensor cores and lanes wait for one another
//   6 overlapped           scores of the next tile are ordered before  a softmax longer than a product; k and v are
//                          this tile's output: a softmax runs while    copied again for every 64 rows
//                          a product does
//   7 flash3_forward       flash3.cu
#include "../common/warpgroup.cuh"

using namespace asynchronous;

constexpr int ROWS = 64, KEYS = 64, SLOTS = 4, CONSUMERS = 128;

// 5: grid (n_q / 64, heads), block 160, dynamic shared memory: 2 D (64 + 4 * 64) bytes.
template <int D>
__global__ void __launch_bounds__(160)
    warpgroup_attention(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                        const __grid_constant__ CUtensorMap v_map,
                        const __grid_constant__ CUtensorMap out_map, float* __restrict__ lse, int group_size,
                        int n_q, int n_k, float scale, int causal) {
    extern __shared__ __align__(1024) bf16 q_tile[];
    __shared__ uint64_t q_full, full[SLOTS], empty[SLOTS];
    Ring<D, ROWS, KEYS, SLOTS> ring = {q_tile, &q_full, full, empty};
    const int row0 = blockIdx.x * ROWS, head = blockIdx.y, lane = threadIdx.x % 32;
    const int tiles = tiles_seen(row0, ROWS, KEYS, n_q, n_k, causal);
    if (threadIdx.x == 0) ring.start(CONSUMERS / 32);
    __syncthreads();

    if (threadIdx.x >= CONSUMERS) {
        if (lane == 0) ring.produce(&q_map, &k_map, &v_map, row0, head, head / group_size, tiles);
        return;
    }
    const int row = row0 + threadIdx.x / 32 * 16 + lane / 4;
    Softmax softmax;
    float o[D / 64][32] = {}, shrink[2];
    wait(&q_full, 0);
    for (int j = 0; j < tiles; ++j) {
        float s[KEYS / 2];
        const bf16* k_tile = ring.arrived(2 * j);
        begin_products();
        multiply_rows<D, KEYS>(s, q_tile, k_tile);
        commit_products();
        wait_products<0>();
        ring.leave(2 * j);

        hide(s, row, j * KEYS, n_q, n_k, causal);
        softmax.absorb(s, shrink, scale * LOG2E);
        scale_rows(o, shrink);
        uint32_t p[KEYS / 16][4];
        pack_rows(p, s);

        const bf16* v_tile = ring.arrived(2 * j + 1);
        begin_products();
        multiply_columns<D, KEYS>(o, p, v_tile);
        commit_products();
        wait_products<0>();
        ring.leave(2 * j + 1);
    }
    send_rows(q_tile, o, softmax, &out_map, lse, row0, head, n_q, 1);
}

// 6: the products in the order s0, s1, o0, s2, o1, ...: while o of tile j is made, lanes turn scores of tile j + 1
// into weights. Grid, block and shared memory as before.
template <int D>
__global__ void __launch_bounds__(160)
    overlapped(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
               const __grid_constant__ CUtensorMap v_map, const __grid_constant__ CUtensorMap out_map,
               float* __restrict__ lse, int group_size, int n_q, int n_k, float scale, int causal) {
    extern __shared__ __align__(1024) bf16 q_tile[];
    __shared__ uint64_t q_full, full[SLOTS], empty[SLOTS];
    Ring<D, ROWS, KEYS, SLOTS> ring = {q_tile, &q_full, full, empty};
    const int row0 = blockIdx.x * ROWS, head = blockIdx.y, lane = threadIdx.x % 32;
    const int tiles = tiles_seen(row0, ROWS, KEYS, n_q, n_k, causal);
    if (threadIdx.x == 0) ring.start(CONSUMERS / 32);
    __syncthreads();

    if (threadIdx.x >= CONSUMERS) {
        if (lane == 0) ring.produce(&q_map, &k_map, &v_map, row0, head, head / group_size, tiles);
        return;
    }
    const int row = row0 + threadIdx.x / 32 * 16 + lane / 4;
    Softmax softmax;
    float o[D / 64][32] = {}, s[KEYS / 2], shrink[2];
    uint32_t p[KEYS / 16][4];
    wait(&q_full, 0);
    auto weigh = [&](int j) {
        ring.leave(2 * j);
        hide(s, row, j * KEYS, n_q, n_k, causal);
        softmax.absorb(s, shrink, scale * LOG2E);
    };
    if (tiles > 0) {
        const bf16* k_tile = ring.arrived(0);
        begin_products();
        multiply_rows<D, KEYS>(s, q_tile, k_tile);
        commit_products();
        wait_products<0>();
        weigh(0);
        pack_rows(p, s);
    }
    for (int j = 1; j < tiles; ++j) {
        const bf16 *k_tile = ring.arrived(2 * j), *v_tile = ring.arrived(2 * j - 1);
        begin_products();
        multiply_rows<D, KEYS>(s, q_tile, k_tile);
        commit_products();
        multiply_columns<D, KEYS>(o, p, v_tile);
        commit_products();
        wait_products<1>();  // the scores are there, the output may not be
        weigh(j);
        wait_products<0>();
        ring.leave(2 * j - 1);
        scale_rows(o, shrink);
        pack_rows(p, s);
    }
    if (tiles > 0) {
        const bf16* v_tile = ring.arrived(2 * tiles - 1);
        begin_products();
        multiply_columns<D, KEYS>(o, p, v_tile);
        commit_products();
        wait_products<0>();
        ring.leave(2 * tiles - 1);
    }
    send_rows(q_tile, o, softmax, &out_map, lse, row0, head, n_q, 1);
}
