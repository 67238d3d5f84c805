// cooperative_groups::reduce over a tile or over coalesced threads: every lane gets the total.
#pragma once
#include "../cooperative_groups.h"

namespace cooperative_groups {

// less keeps the smaller of two values and greater the larger, as in CUDA.
#define LAPTOP_OPERATION(name, expression)                             \
    template <class T = void>                                          \
    struct name {                                                      \
        LAPTOP_FN T operator()(T a, T b) const { return expression; }  \
    };
LAPTOP_OPERATION(plus, a + b) LAPTOP_OPERATION(less, b < a ? b : a)
LAPTOP_OPERATION(greater, a < b ? b : a) LAPTOP_OPERATION(bit_and, a & b)
LAPTOP_OPERATION(bit_or, a | b) LAPTOP_OPERATION(bit_xor, a ^ b)
#undef LAPTOP_OPERATION

template <class Group> struct laptop_most { static constexpr unsigned threads = 32; };
template <unsigned Size, class Parent>
struct laptop_most<thread_block_tile<Size, Parent, true>> { static constexpr unsigned threads = Size; };
// The values of the group, in rank order.
template <class Group, class T> struct laptop_values {
    T value[laptop_most<Group>::threads];
    int count = 0, own = 0;
};
template <unsigned Size, class Parent, class T, class Values>
LAPTOP_FN void laptop_gather(const thread_block_tile<Size, Parent, true>& tile, const T& value, Values& all,
                             const void* site) {
    laptop::show(&value);
    tile.laptop_wait(site);
    all.own = tile.thread_rank(), all.count = tile.laptop_threads();
    for (int rank = 0; rank < all.count; ++rank) all.value[rank] = tile.template laptop_value<T>(rank);
    tile.laptop_wait(site);
}
template <class T, class Values>
LAPTOP_FN void laptop_gather(const coalesced_group& group, const T& value, Values& all, const void* site) {
    const laptop::Exchange& x = laptop::warp_exchange(group.laptop_lanes(), &value, sizeof(T), laptop::REDUCE, false, site);
    for (int lane = 0; lane < 32; ++lane) {
        if (!(x.present >> lane & 1)) continue;
        if (lane == laptop::lane_id()) all.own = all.count;
        all.value[all.count++] = laptop::take<T>(x, lane);
    }
}

// Halves are folded onto each other, as the hardware's butterfly does.
template <class Group, class T, class Operation>
LAPTOP_FN T reduce(const Group& group, T value, Operation&& combine) {
    laptop_values<Group, T> all;
    laptop_gather(group, value, all, LAPTOP_SITE);
    for (int left = all.count; left > 1;) {
        int kept = (left + 1) / 2;
        for (int i = 0; i + kept < left; ++i) all.value[i] = combine(all.value[i], all.value[i + kept]);
        left = kept;
    }
    return all.value[0];
}
}  // namespace cooperative_groups
