// cooperative_groups::inclusive_scan and exclusive_scan over a tile or over coalesced threads.
#pragma once
#include "reduce.h"

namespace cooperative_groups {

template <class Group, class T, class Operation = plus<T>>
LAPTOP_FN T inclusive_scan(const Group& group, T value, Operation&& combine = {}) {
    laptop_values<Group, T> all;
    laptop_gather(group, value, all, LAPTOP_SITE);
    T total = all.value[0];
    for (int i = 1; i <= all.own; ++i) total = combine(total, all.value[i]);
    return total;
}
template <class Group, class T, class Operation = plus<T>>
LAPTOP_FN T exclusive_scan(const Group& group, T value, Operation&& combine = {}) {
    laptop_values<Group, T> all;
    laptop_gather(group, value, all, LAPTOP_SITE);
    T total{};
    for (int i = 0; i < all.own; ++i) total = i ? combine(total, all.value[i]) : all.value[0];
    return total;
}
}  // namespace cooperative_groups
