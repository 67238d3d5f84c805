// FlashAttention-3 forward: rungs 7 and 8 of the ladder that begins in asynchrony.cu.
//
//   out = softmax(scale * q k^T) v,   lse = log of the sum of exp of each row's scores
//
// q, out (heads, n_q, D), k, v (heads / group_size, n_k, D) in bfloat16, lse (heads, n_q) in float; D is 64 or 128.
// Any n; scale above 0. Sums, softmax and lse in float. For sm_90a. In three groups a bias per key, for chapter 9.
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

constexpr int ROWS = 128, KEYS = 128, SLOTS = 4, PRODUCER = 128, CONSUMERS = 256, TWO_GROUPS = 256;
// Barriers of the hardware: a warpgroup's own, and its turn at the tensor cores.
enum { OWN = 1, TURN = 4 };

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

// A warpgroup's rows from row0 on against all tiles; `group` is its number, of GROUPS.
template <int D, int DV, bool BIAS, int GROUPS, typename R>
__device__ __forceinline__ void consume(R ring, bf16* q_tile, const CUtensorMap* out_map,
                                        float* __restrict__ lse, int group, int row0, int tiles, int n_q,
                                        int n_k, float scale, int causal) {
    const int row = row0 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    const int seen_by_all = keys_seen(row0, n_q, n_k, causal);
    Softmax softmax;
    float o[DV / 64][32] = {}, s[KEYS / 2], shrink[2];
    uint32_t p[KEYS / 16][4];
    auto weigh = [&](int j) {
        ring.leave(2 * j);
        if ((j + 1) * KEYS > seen_by_all) hide(s, row, j * KEYS, n_q, n_k, causal);
        softmax.absorb(s, shrink, scale * LOG2E);
    };
    if (tiles > 0) {
        const bf16* k_tile = ring.arrived(0);
        if (BIAS) start_from(s, ring.bias(0));
        begin_products();
        multiply_rows<D, KEYS>(s, q_tile, k_tile, BIAS);
        commit_products();
        wait_products<0>();
        weigh(0);
        pack_rows(p, s);
    }
    if (group == GROUPS - 1 && tiles > 1) announce(TURN, TWO_GROUPS);  // the first turn is the first one's
    for (int j = 1; j < tiles; ++j) {
        const bf16 *k_tile = ring.arrived(2 * j), *v_tile = ring.arrived(2 * j - 1);
        if (BIAS) start_from(s, ring.bias(2 * j));
        meet(TURN + group, TWO_GROUPS);
        begin_products();
        multiply_rows<D, KEYS>(s, q_tile, k_tile, BIAS);
        commit_products();
        multiply_columns<DV, KEYS>(o, p, v_tile);
        commit_products();
        if (group + 1 < GROUPS || j + 1 < tiles) announce(TURN + (group + 1) % GROUPS, TWO_GROUPS);
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
        multiply_columns<DV, KEYS>(o, p, v_tile);
        commit_products();
        wait_products<0>();
        ring.leave(2 * tiles - 1);
    }
    send_rows(q_tile, o, softmax, out_map, lse, row0, blockIdx.y, n_q, OWN + group);
}

// A block: GROUPS warpgroups and the producer, whose registers they take.
template <int D, int DV, bool BIAS, int GROUPS>
__device__ __forceinline__ void attend(const CUtensorMap* q_map, const CUtensorMap* k_map,
                                       const CUtensorMap* v_map, const CUtensorMap* bias_map,
                                       const CUtensorMap* out_map, float* __restrict__ lse, int group_size,
                                       int n_q, int n_k, float scale, int causal) {
    constexpr int ROWS = 64 * GROUPS, CONSUMERS = 128 * GROUPS;
    extern __shared__ __align__(1024) bf16 q_tiles[];
    __shared__ uint64_t q_full, full[SLOTS], empty[SLOTS];
    Ring<D, ROWS, KEYS, SLOTS, DV, BIAS> ring = {q_tiles, &q_full, full, empty};
    const int row0 = (gridDim.x - 1 - blockIdx.x) * ROWS, head = blockIdx.y;
    const int tiles = tiles_seen(row0, ROWS, KEYS, n_q, n_k, causal);
    if (threadIdx.x == 0) ring.start(CONSUMERS / 32);
    __syncthreads();

    if (threadIdx.x < PRODUCER) {
        give_registers<24>();
        if (threadIdx.x == 0)
            ring.produce(q_map, k_map, v_map, row0, head, head / group_size, tiles, bias_map, n_k);
    } else {
        take_registers<GROUPS == 2 ? 240 : 160>();
        const int group = threadIdx.x / 128 - 1;
        wait(&q_full, 0);
        consume<D, DV, BIAS, GROUPS>(ring, q_tiles + group * 64 * D, out_map, lse, group, row0 + group * 64,
                                     tiles, n_q, n_k, scale, causal);
    }
}

// 7: grid (n_q / 128, heads), block 384, dynamic shared memory: 2 D (128 + 4 * 128) bytes.
template <int D>
__global__ void __launch_bounds__(PRODUCER + CONSUMERS, 1)
    flash3_forward(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                   const __grid_constant__ CUtensorMap v_map, const __grid_constant__ CUtensorMap out_map,
                   float* __restrict__ lse, int group_size, int n_q, int n_k, float scale, int causal) {
    attend<D, D, false, 2>(&q_map, &k_map, &v_map, nullptr, &out_map, lse, group_size, n_q, n_k, scale,
                           causal);
}

// The same in three warpgroups, whose registers suffice for values of width 64 alone; with BIAS of scale * (q k^T +
// key_bias), by a map of key_bias, rows of a multiple of 4. Grid (n_q / 192, heads), block 512, dynamic shared
// memory: 2 D (192 + 4 * 128) + 4 * 512 bytes.
template <int D, bool BIAS>
__global__ void __launch_bounds__(PRODUCER + 384, 1)
    flash3_three_groups(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                        const __grid_constant__ CUtensorMap v_map,
                        const __grid_constant__ CUtensorMap out_map,
                        const __grid_constant__ CUtensorMap bias_map, float* __restrict__ lse, int group_size,
                        int n_q, int n_k, float scale, int causal) {
    attend<D, 64, BIAS, 3>(&q_map, &k_map, &v_map, &bias_map, &out_map, lse, group_size, n_q, n_k, scale,
                           causal);
}

// 8: two neighbouring blocks, a cluster, share each tile: 256 rows per copy of k and v. Each orders half of it, for
// the shared memory of both; a slot is empty when the warps of both have left it, and each block's own barrier
// expects the whole tile. The arrival has the block's scope, as in CUTLASS: it follows products that were waited for,
// and the other block is to see no store of this one's. A release at the cluster's scope is a MEMBAR.ALL.GPU per
// warp, tile and block, with which this rung took 1.4 times as long (H200, D = 128).
__device__ __forceinline__ void arrive_at(uint64_t* barrier, int block) {
    asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
                 "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(tensor_core::shared_address(barrier)),
                 "r"(block) : "memory");
}
__device__ __forceinline__ void meet_cluster() { ptx::barrier_cluster_arrive(), ptx::barrier_cluster_wait(); }

template <int D>
struct SharedRing : Ring<D, ROWS, KEYS, SLOTS> {
    __device__ void produce(const CUtensorMap* q_map, const CUtensorMap* k_map, const CUtensorMap* v_map,
                            int row0, int head, int kv_head, int tiles, int block) {
        const int none = 0;  // the queries alone
        Ring<D, ROWS, KEYS, SLOTS>::produce(q_map, k_map, v_map, row0, head, kv_head, none);
        const uint16_t both = 3;
        for (int i = 0; i < 2 * tiles; ++i) {
            uint64_t *full = &this->full[i % SLOTS], *empty = &this->empty[i % SLOTS];
            while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, empty,
                                                  i / SLOTS % 2 ^ 1)) {}
            expect(full, KEYS * D * sizeof(bf16));
            for (int c = 0; c < D; c += 64) {
                const int half = block * KEYS / 2, at[] = {c, i / 2 * KEYS + half, kv_head};
                ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global,
                                          this->tile(i) + c * KEYS + half * 64, i % 2 ? v_map : k_map, at,
                                          full, both);
            }
        }
    }
    __device__ __forceinline__ void leave(int i) {
        if (threadIdx.x % 32 == 0)
            for (int block = 0; block < 2; ++block) arrive_at(&this->empty[i % SLOTS], block);
    }
};

// Grid (n_q / 128 rounded up to an even number, heads), block and shared memory as before; maps of 64 keys.
template <int D>
__global__ void __launch_bounds__(PRODUCER + CONSUMERS, 1) __cluster_dims__(2)
    shared_by_cluster(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                      const __grid_constant__ CUtensorMap v_map, const __grid_constant__ CUtensorMap out_map,
                      float* __restrict__ lse, int group_size, int n_q, int n_k, float scale, int causal) {
    extern __shared__ __align__(1024) bf16 q_tiles[];
    __shared__ uint64_t q_full, full[SLOTS], empty[SLOTS];
    SharedRing<D> ring = {{q_tiles, &q_full, full, empty}};
    const int block = blockIdx.x % 2, head = blockIdx.y;
    const int row0 = (gridDim.x - 1 - blockIdx.x) * ROWS, last_row0 = row0 + block * ROWS;  // of the two
    const int tiles = tiles_seen(last_row0, ROWS, KEYS, n_q, n_k, causal);
    if (threadIdx.x == 0) ring.start(2 * CONSUMERS / 32);
    meet_cluster();

    if (threadIdx.x < PRODUCER) {
        give_registers<24>();
        if (threadIdx.x == 0)
            ring.produce(&q_map, &k_map, &v_map, row0, head, head / group_size, tiles, block);
    } else {
        take_registers<240>();
        const int group = threadIdx.x / 128 - 1;
        wait(&q_full, 0);
        consume<D, D, false, 2>(ring, q_tiles + group * 64 * D, &out_map, lse, group, row0 + group * 64,
                                tiles, n_q, n_k, scale, causal);
    }
    meet_cluster();  // nobody leaves while the other may still write here
}
