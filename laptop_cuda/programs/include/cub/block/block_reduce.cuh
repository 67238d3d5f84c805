// The reductions of CUB that teaching code uses: BlockReduce and WarpReduce, on shuffles and one row of shared memory.
// As on the card, only thread 0 (lane 0) has the answer, and reusing the temporary storage needs a barrier in between.
#pragma once
#include <cuda_runtime.h>

namespace cub {

enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };

struct Sum { template <class T> LAPTOP_FN T operator()(T a, T b) const { return a + b; } };
struct Max { template <class T> LAPTOP_FN T operator()(T a, T b) const { return a < b ? b : a; } };
struct Min { template <class T> LAPTOP_FN T operator()(T a, T b) const { return b < a ? b : a; } };

// Temporary storage, as the kernel's own accesses at `site`.
template <class T> LAPTOP_QUIET void laptop_store(T* p, T value, const void* site) {
    if (LAPTOP_TRACED) laptop::will_write(p, sizeof(T), site);
    *p = value;
}
template <class T> LAPTOP_QUIET T laptop_load(const T* p, const void* site) {
    if (LAPTOP_TRACED) laptop::will_read(p, sizeof(T), site);
    return *p;
}

// The total of the lanes from `first` to `end`.
template <class T, class Operation>
LAPTOP_FN T laptop_lanes_total(T value, Operation&& combine, int first, int end, const void* site) {
    const laptop::Exchange& x = laptop::warp_exchange(laptop::active_lanes(), &value, sizeof(T), laptop::REDUCE, false, site);
    T lane_value[32];
    unsigned present = x.present;
    for (int lane = first; lane < end; ++lane)
        if (present >> lane & 1) lane_value[lane] = laptop::take<T>(x, lane);
    T total = lane_value[first];
    for (int lane = first + 1; lane < end; ++lane)
        if (present >> lane & 1) total = combine(total, lane_value[lane]);
    return total;
}
// Lane 0 of each group of `width` gets the total of its first `valid` lanes.
template <class T, class Operation>
LAPTOP_FN T laptop_warp_total(T value, Operation&& combine, int width, int valid, const void* site) {
    int first = laptop::lane_id() / width * width, lanes = valid < width ? valid : width;
    return laptop_lanes_total(value, combine, first, first + (lanes > 1 ? lanes : 1), site);
}

template <class T, int WIDTH = 32, int = 0> class WarpReduce {
public:
    struct alignas(16) TempStorage { char unused[16]; };       // sources place arrays behind it
    LAPTOP_FN explicit WarpReduce(TempStorage&) {}
    template <class Operation> LAPTOP_FN T Reduce(T value, Operation combine, int valid = WIDTH) {
        return laptop_warp_total(value, combine, WIDTH, valid, LAPTOP_SITE);
    }
    LAPTOP_FN T Sum(T value, int valid = WIDTH) { return laptop_warp_total(value, cub::Sum(), WIDTH, valid, LAPTOP_SITE); }
    // The first lane of each segment gets the segment's total.
    template <class Flag, class Operation>
    LAPTOP_FN T HeadSegmentedReduce(T value, Flag head, Operation combine) {
        return segment(value, __ballot_sync(laptop::active_lanes(), head) >> 1, combine, LAPTOP_SITE);
    }
    template <class Flag, class Operation>
    LAPTOP_FN T TailSegmentedReduce(T value, Flag tail, Operation combine) {
        return segment(value, __ballot_sync(laptop::active_lanes(), tail), combine, LAPTOP_SITE);
    }
    template <class Flag> LAPTOP_FN T HeadSegmentedSum(T value, Flag head) {
        return segment(value, __ballot_sync(laptop::active_lanes(), head) >> 1, cub::Sum(), LAPTOP_SITE);
    }
    template <class Flag> LAPTOP_FN T TailSegmentedSum(T value, Flag tail) {
        return segment(value, __ballot_sync(laptop::active_lanes(), tail), cub::Sum(), LAPTOP_SITE);
    }

private:
    template <class Operation>
    LAPTOP_FN static T segment(T value, unsigned tails, Operation&& combine, const void* site) {
        int first = laptop::lane_id(), end = first + 1, last = (first / WIDTH + 1) * WIDTH;
        while (end < last && !(tails >> (end - 1) & 1)) ++end;
        return laptop_lanes_total(value, combine, first, end, site);
    }
};

template <class T, int BLOCK_X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int BLOCK_Y = 1, int BLOCK_Z = 1, int = 0>
class BlockReduce {
    static constexpr int threads = BLOCK_X * BLOCK_Y * BLOCK_Z, warps = (threads + 31) / 32;

public:
    struct alignas(16) TempStorage { T of_warp[warps]; };
    LAPTOP_FN explicit BlockReduce(TempStorage& temp) : temp(temp) {}
    template <class Operation> LAPTOP_FN T Reduce(T value, Operation combine, int valid = threads) {
        return total(value, combine, valid, LAPTOP_SITE);
    }
    LAPTOP_FN T Sum(T value, int valid = threads) { return total(value, cub::Sum(), valid, LAPTOP_SITE); }
    template <int ITEMS, class Operation> LAPTOP_FN T Reduce(T (&values)[ITEMS], Operation combine) {
        return total(of_thread(values, combine), combine, threads, LAPTOP_SITE);
    }
    template <int ITEMS> LAPTOP_FN T Sum(T (&values)[ITEMS]) {
        return total(of_thread(values, cub::Sum()), cub::Sum(), threads, LAPTOP_SITE);
    }

private:
    TempStorage& temp;

    template <int ITEMS, class Operation>
    LAPTOP_FN static T of_thread(T (&values)[ITEMS], Operation combine) {
        T value = values[0];
        for (int i = 1; i < ITEMS; ++i) value = combine(value, values[i]);
        return value;
    }

    template <class Operation> LAPTOP_FN T total(T value, Operation&& combine, int valid, const void* site) {
        if (warpSize != 32) laptop::not_supported("cub on a machine whose warps have not 32 lanes", site);
        int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x, warp = thread / 32;
        T of_this = laptop_warp_total(value, combine, 32, valid - warp * 32, site);
        if (thread % 32 == 0) laptop_store(&temp.of_warp[warp], of_this, site);
        laptop::block_barrier(false, site);
        if (thread != 0) return of_this;
        for (int w = 1; w < warps && w * 32 < valid; ++w) of_this = combine(of_this, laptop_load(&temp.of_warp[w], site));
        return of_this;
    }
};
}  // namespace cub
