// The reductions of CUB that teaching code uses: BlockReduce and WarpReduce, on shuffles and one row of shared memory.
// As on the card, only thread 0 (lane 0) has the answer, and reusing the temporary storage needs a barrier in between.
#pragma once
#include "../../cuda_runtime.h"

namespace cub {

enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };

struct Sum { template <class T> LAPTOP_FN T operator()(T a, T b) const { return a + b; } };
struct Max { template <class T> LAPTOP_FN T operator()(T a, T b) const { return a < b ? b : a; } };
struct Min { template <class T> LAPTOP_FN T operator()(T a, T b) const { return b < a ? b : a; } };

// Lane 0 of each group of `width` gets the total of its first `valid` lanes.
template <class T, class Operation>
LAPTOP_FN T laptop_warp_total(T value, Operation&& combine, int width, int valid, const void* site) {
    const laptop::Exchange& x = laptop::warp_exchange(laptop::active_lanes(), &value, sizeof(T), laptop::REDUCE, false, site);
    int first = laptop::lane_id() / width * width;
    T lane_value[32];
    unsigned present = x.present;
    for (int lane = first; lane < first + width; ++lane)
        if (present >> lane & 1) lane_value[lane] = laptop::take<T>(x, lane);
    T total = lane_value[first];
    for (int lane = first + 1; lane < first + width && lane < first + valid; ++lane)
        if (present >> lane & 1) total = combine(total, lane_value[lane]);
    return total;
}

template <class T, int WIDTH = 32, int = 0>
class WarpReduce {
public:
    struct TempStorage { char unused; };
    LAPTOP_FN explicit WarpReduce(TempStorage&) {}
    template <class Operation>
    LAPTOP_FN T Reduce(T value, Operation combine) {
        return laptop_warp_total(value, combine, WIDTH, WIDTH, LAPTOP_SITE);
    }
    LAPTOP_FN T Sum(T value) { return laptop_warp_total(value, cub::Sum(), WIDTH, WIDTH, LAPTOP_SITE); }
};

template <class T, int BLOCK_X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int BLOCK_Y = 1, int BLOCK_Z = 1, int = 0>
class BlockReduce {
    static constexpr int warps = (BLOCK_X * BLOCK_Y * BLOCK_Z + 31) / 32;

public:
    struct TempStorage { T of_warp[warps]; };
    LAPTOP_FN explicit BlockReduce(TempStorage& temp) : temp(temp) {}
    template <class Operation>
    LAPTOP_FN T Reduce(T value, Operation combine) { return total(value, combine, BLOCK_X * BLOCK_Y * BLOCK_Z, LAPTOP_SITE); }
    template <class Operation>
    LAPTOP_FN T Reduce(T value, Operation combine, int valid) { return total(value, combine, valid, LAPTOP_SITE); }
    LAPTOP_FN T Sum(T value) { return total(value, cub::Sum(), BLOCK_X * BLOCK_Y * BLOCK_Z, LAPTOP_SITE); }
    LAPTOP_FN T Sum(T value, int valid) { return total(value, cub::Sum(), valid, LAPTOP_SITE); }

private:
    TempStorage& temp;

    template <class Operation>
    LAPTOP_FN T total(T value, Operation&& combine, int valid, const void* site) {
        if (warpSize != 32) laptop::not_supported("cub on a machine whose warps have not 32 lanes", site);
        int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x, warp = thread / 32;
        T of_this = laptop_warp_total(value, combine, 32, valid - warp * 32, site);
        if (thread % 32 == 0) store(&temp.of_warp[warp], of_this, site);
        laptop::block_barrier(false, site);
        if (thread != 0) return of_this;
        for (int w = 1; w < warps && w * 32 < valid; ++w) of_this = combine(of_this, load(&temp.of_warp[w], site));
        return of_this;
    }
    LAPTOP_FN static void store(T* p, T value, const void* site) {
        if (LAPTOP_TRACED) laptop::will_write(p, sizeof(T), site);
        *p = value;
    }
    LAPTOP_FN static T load(const T* p, const void* site) {
        if (LAPTOP_TRACED) laptop::will_read(p, sizeof(T), site);
        return *p;
    }
};

}  // namespace cub
