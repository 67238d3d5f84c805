// CUB's exchange of a block's items between arrangements: ITEMS neighbours per thread (blocked), every THREADS-th item
// (striped), or every 32nd of a warp's. Through one row of shared memory, without CUB's padding.
#pragma once
#include "block_scan.cuh"

namespace cub {

template <class T, int BLOCK_X, int ITEMS, bool = false, int BLOCK_Y = 1, int BLOCK_Z = 1, int = 0>
class BlockExchange {
    static constexpr int THREADS = BLOCK_X * BLOCK_Y * BLOCK_Z;
    enum Arrangement { BLOCKED, STRIPED, WARP_STRIPED };

public:
    struct alignas(16) TempStorage { alignas(T) char item[sizeof(T) * THREADS * ITEMS]; };
    LAPTOP_FN explicit BlockExchange(TempStorage& temp) : row((T*)temp.item) {}
#define LAPTOP_EXCHANGES(name, from, to)                                                                      \
    LAPTOP_FN void name(T (&in)[ITEMS], T (&out)[ITEMS]) { exchange(in, out, from, to, LAPTOP_SITE); }        \
    LAPTOP_FN void name(T (&items)[ITEMS]) { exchange(items, items, from, to, LAPTOP_SITE); }
    LAPTOP_EXCHANGES(StripedToBlocked, STRIPED, BLOCKED)
    LAPTOP_EXCHANGES(BlockedToStriped, BLOCKED, STRIPED)
    LAPTOP_EXCHANGES(WarpStripedToBlocked, WARP_STRIPED, BLOCKED)
    LAPTOP_EXCHANGES(BlockedToWarpStriped, BLOCKED, WARP_STRIPED)
#undef LAPTOP_EXCHANGES
    // Item i goes to place rank[i] of the block.
#define LAPTOP_SCATTERS(name, to)                                                                             \
    template <class Rank>                                                                                     \
    LAPTOP_FN void name(T (&in)[ITEMS], T (&out)[ITEMS], Rank (&rank)[ITEMS]) {                               \
        scatter(in, out, rank, to, LAPTOP_SITE);                                                              \
    }                                                                                                         \
    template <class Rank>                                                                                     \
    LAPTOP_FN void name(T (&items)[ITEMS], Rank (&rank)[ITEMS]) { scatter(items, items, rank, to, LAPTOP_SITE); }
    LAPTOP_SCATTERS(ScatterToBlocked, BLOCKED) LAPTOP_SCATTERS(ScatterToStriped, STRIPED)
#undef LAPTOP_SCATTERS
    template <class Rank>
    LAPTOP_QUIET void laptop_scatter(T (&items)[ITEMS], Rank (&rank)[ITEMS], bool striped, const void* site) {
        scatter(items, items, rank, striped ? STRIPED : BLOCKED, site);
    }

private:
    T* row;

    LAPTOP_QUIET static int place(Arrangement how, int i) {
        int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
        if (how == BLOCKED) return thread * ITEMS + i;
        if (how == STRIPED) return i * THREADS + thread;
        constexpr int LANES = THREADS < 32 ? THREADS : 32;
        return thread / LANES * LANES * ITEMS + i * LANES + thread % LANES;
    }
    LAPTOP_QUIET void exchange(T (&in)[ITEMS], T (&out)[ITEMS], Arrangement from, Arrangement to, const void* site) {
        int rank[ITEMS];
        for (int i = 0; i < ITEMS; ++i) rank[i] = place(from, i);
        scatter(in, out, rank, to, site);
    }
    template <class Rank>
    LAPTOP_QUIET void scatter(T (&in)[ITEMS], T (&out)[ITEMS], Rank (&rank)[ITEMS], Arrangement to, const void* site) {
        for (int i = 0; i < ITEMS; ++i) laptop_store(row + rank[i], in[i], site);
        laptop::block_barrier(false, site);
        for (int i = 0; i < ITEMS; ++i) out[i] = laptop_load(row + place(to, i), site);
    }
};
}  // namespace cub
