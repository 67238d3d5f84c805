// FlashAttention-3 forward: the last rung of the ladder that begins in asynchrony.cu.
//
//   out = softmax(scale * q k^T) v,   lse = log of the sum of exp of each row's scores
//
// q, out (heads, n_q, D), k, v (heads / group_size, n_k, D) in bfloat16, lse (heads, n_q) in float; D is 64 or 128.
// Any n; scale above 0. Sums, softmax and lse in float. For sm_90a; has not run on a card.
//
// What rung 6 does within a warpgroup, and beyond it:
//   two warpgroups      64 query rows each, from the same tiles of 128 keys: k and v are copied once for 128 rows
//   ping-pong           a warpgroup orders its products after the other has ordered its own: the tensor cores have
//                       the products of one while the other has its softmax
//   the registers       the producer's warpgroup gives its registers to the other two (setmaxnreg)
//   the mask            only in tiles that the diagonal or an edge cuts; keys that no row of the block sees are not
//                       ordered
//   the order           blocks that see most keys start first
#include "../common/warpgroup.cuh"

using namespace asynchronous;

constexpr int GROUPS = 2, ROWS = 64 * GROUPS, KEYS = 128, SLOTS = 4, PRODUCER = 128, CONSUMERS = 128 * GROUPS;
// Barriers of the hardware: a warpgroup's own, and its turn at the tensor cores.
enum { OWN = 1, TURN = OWN + GROUPS };

__device__ __forceinline__ void announce(int number, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
template <int COUNT>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// A warpgroup's rows from row0 on against all tiles; `group` is 0 or 1.
template <int D>
__device__ __forceinline__ void consume(Ring<D, ROWS, KEYS, SLOTS> ring, bf16* q_tile,
                                        const CUtensorMap* out_map, float* __restrict__ lse, int group,
                                        int row0, int tiles, int n_q, int n_k, float scale, int causal) {
    const int row = row0 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    const int seen_by_all = keys_seen(row0, n_q, n_k, causal);
    Softmax softmax;
    float o[D / 64][32] = {}, s[KEYS / 2], shrink[2];
    uint32_t p[KEYS / 16][4];
    auto weigh = [&](int j) {
        ring.leave(2 * j);
        if ((j + 1) * KEYS > seen_by_all) hide(s, row, j * KEYS, n_q, n_k, causal);
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
    if (group == 1 && tiles > 1) announce(TURN, CONSUMERS);  // the first turn is the other's
    for (int j = 1; j < tiles; ++j) {
        const bf16 *k_tile = ring.arrived(2 * j), *v_tile = ring.arrived(2 * j - 1);
        meet(TURN + group, CONSUMERS);
        begin_products();
        multiply_rows<D, KEYS>(s, q_tile, k_tile);
        commit_products();
        multiply_columns<D, KEYS>(o, p, v_tile);
        commit_products();
        if (group == 0 || j + 1 < tiles) announce(TURN + 1 - group, CONSUMERS);
        wait_products<1>();
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
    send_rows(q_tile, o, softmax, out_map, lse, row0, blockIdx.y, n_q, OWN + group);
}

// 7: grid (n_q / 128, heads), block 384, dynamic shared memory: 2 D (128 + 4 * 128) bytes.
template <int D>
__global__ void __launch_bounds__(PRODUCER + CONSUMERS, 1)
    flash3_forward(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                   const __grid_constant__ CUtensorMap v_map, const __grid_constant__ CUtensorMap out_map,
                   float* __restrict__ lse, int group_size, int n_q, int n_k, float scale, int causal) {
    extern __shared__ __align__(1024) bf16 q_tiles[];
    __shared__ uint64_t q_full, full[SLOTS], empty[SLOTS];
    Ring<D, ROWS, KEYS, SLOTS> ring = {q_tiles, &q_full, full, empty};
    const int row0 = (gridDim.x - 1 - blockIdx.x) * ROWS, head = blockIdx.y;
    const int tiles = tiles_seen(row0, ROWS, KEYS, n_q, n_k, causal);
    if (threadIdx.x == 0) ring.start(CONSUMERS / 32);
    __syncthreads();

    if (threadIdx.x < PRODUCER) {
        give_registers<24>();
        if (threadIdx.x == 0) ring.produce(&q_map, &k_map, &v_map, row0, head, head / group_size, tiles);
    } else {
        take_registers<240>();
        const int group = threadIdx.x / 128 - 1;
        wait(&q_full, 0);
        consume<D>(ring, q_tiles + group * 64 * D, &out_map, lse, group, row0 + group * 64, tiles, n_q, n_k,
                   scale, causal);
    }
}
