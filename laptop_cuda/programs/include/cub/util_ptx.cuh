// CUB's shuffles of any type among groups of LANES lanes, and a block's direct loads and stores.
#pragma once
#include "block/block_scan.cuh"

namespace cub {

LAPTOP_FN unsigned LaneId() { return (unsigned)laptop::lane_id(); }
template <int LANES, class T>
LAPTOP_FN T ShuffleIndex(T value, int lane, unsigned mask) { return laptop::__shfl_of(mask, value, lane, LANES, LAPTOP_SITE); }
// `first` and `last` are the lanes of the group whose values may be taken, counted in the group.
template <int LANES, class T> LAPTOP_FN T ShuffleUp(T value, int offset, int first, unsigned mask) {
    int lane = laptop::lane_id();
    bool there = lane % LANES - offset >= first;
    return laptop::shuffle(mask, value, there ? lane - offset : lane, LAPTOP_SITE);
}
template <int LANES, class T> LAPTOP_FN T ShuffleDown(T value, int offset, int last, unsigned mask) {
    int lane = laptop::lane_id();
    bool there = lane % LANES + offset <= last;
    return laptop::shuffle(mask, value, there ? lane + offset : lane, LAPTOP_SITE);
}
template <int LANES>
LAPTOP_FN unsigned WarpMask(unsigned group) { return LANES == 32 ? ~0u : ((1u << LANES) - 1) << (group * LANES); }

#define LAPTOP_DIRECT(name, parameters, first, step)                                                          \
    template <parameters class T, int ITEMS>                                                                  \
    LAPTOP_FN void LoadDirect##name(int thread, const T* from, T (&items)[ITEMS], int valid = 1 << 30) {      \
        laptop_direct_load(first, step, from, items, valid, LAPTOP_SITE);                                     \
    }                                                                                                         \
    template <parameters class T, int ITEMS, class D>                                                         \
    LAPTOP_FN void LoadDirect##name(int thread, const T* from, T (&items)[ITEMS], int valid, D otherwise) {   \
        for (T& item : items) item = T(otherwise);                                                            \
        laptop_direct_load(first, step, from, items, valid, LAPTOP_SITE);                                     \
    }                                                                                                         \
    template <parameters class T, int ITEMS>                                                                  \
    LAPTOP_FN void StoreDirect##name(int thread, T* to, T (&items)[ITEMS], int valid = 1 << 30) {             \
        laptop_direct_store(first, step, to, items, valid, LAPTOP_SITE);                                      \
    }
#define LAPTOP_OF_THREADS int THREADS,
LAPTOP_DIRECT(Blocked, , thread * ITEMS, 1)
LAPTOP_DIRECT(Striped, LAPTOP_OF_THREADS, thread, THREADS)
#undef LAPTOP_OF_THREADS
#undef LAPTOP_DIRECT
}  // namespace cub
