// Thrust's algorithms, in order and in host code; each takes an execution policy or none.
#pragma once
#include "laptop_by_key.h"

namespace thrust {

// Raw pointers without a policy are the host's; what else an algorithm is given, it may follow to device memory.
struct laptop_on_host {};
template <class I>
using laptop_side = std::conditional_t<std::is_pointer<std::decay_t<I>>::value, laptop_on_host, laptop::AsDevice>;
template <class I> using laptop_no_policy = std::enable_if_t<!std::is_base_of<laptop_policy, std::decay_t<I>>::value, int>;
#define LAPTOP_ALGORITHM(name, side)                                                   \
    template <class... A> decltype(auto) name(const laptop_policy&, A&&... a) {        \
        [[maybe_unused]] laptop::AsDevice as;                                          \
        return laptop_host::name(std::forward<A>(a)...);                               \
    }                                                                                  \
    template <class I, class... A, laptop_no_policy<I> = 0>                            \
    decltype(auto) name(I&& first, A&&... a) {                                         \
        [[maybe_unused]] side as;                                                      \
        return laptop_host::name(std::forward<I>(first), std::forward<A>(a)...);       \
    }
#define LAPTOP_SIDED(name) LAPTOP_ALGORITHM(name, laptop_side<I>)
LAPTOP_ALGORITHM(copy, laptop::AsDevice) LAPTOP_ALGORITHM(copy_n, laptop::AsDevice)    // a cudaMemcpy, if raw
LAPTOP_SIDED(fill) LAPTOP_SIDED(fill_n) LAPTOP_SIDED(sequence) LAPTOP_SIDED(tabulate) LAPTOP_SIDED(generate)
LAPTOP_SIDED(generate_n) LAPTOP_SIDED(uninitialized_fill) LAPTOP_SIDED(uninitialized_fill_n)
LAPTOP_SIDED(uninitialized_copy) LAPTOP_SIDED(uninitialized_copy_n) LAPTOP_SIDED(copy_if) LAPTOP_SIDED(gather)
LAPTOP_SIDED(gather_if) LAPTOP_SIDED(scatter) LAPTOP_SIDED(scatter_if) LAPTOP_SIDED(replace)
LAPTOP_SIDED(replace_if) LAPTOP_SIDED(replace_copy) LAPTOP_SIDED(replace_copy_if) LAPTOP_SIDED(swap_ranges)
LAPTOP_SIDED(for_each) LAPTOP_SIDED(for_each_n) LAPTOP_SIDED(transform) LAPTOP_SIDED(transform_if)
LAPTOP_SIDED(adjacent_difference) LAPTOP_SIDED(reduce) LAPTOP_SIDED(transform_reduce)
LAPTOP_SIDED(inner_product) LAPTOP_SIDED(inclusive_scan) LAPTOP_SIDED(exclusive_scan)
LAPTOP_SIDED(transform_inclusive_scan) LAPTOP_SIDED(transform_exclusive_scan) LAPTOP_SIDED(count)
LAPTOP_SIDED(count_if) LAPTOP_SIDED(sort) LAPTOP_SIDED(stable_sort) LAPTOP_SIDED(reverse)
LAPTOP_SIDED(reverse_copy) LAPTOP_SIDED(shuffle) LAPTOP_SIDED(shuffle_copy) LAPTOP_SIDED(is_sorted)
LAPTOP_SIDED(is_sorted_until) LAPTOP_SIDED(merge) LAPTOP_SIDED(unique)
LAPTOP_SIDED(unique_copy) LAPTOP_SIDED(unique_count) LAPTOP_SIDED(remove) LAPTOP_SIDED(remove_if)
LAPTOP_SIDED(remove_copy) LAPTOP_SIDED(remove_copy_if) LAPTOP_SIDED(partition) LAPTOP_SIDED(partition_copy)
LAPTOP_SIDED(stable_partition) LAPTOP_SIDED(stable_partition_copy) LAPTOP_SIDED(is_partitioned)
LAPTOP_SIDED(partition_point) LAPTOP_SIDED(find) LAPTOP_SIDED(find_if) LAPTOP_SIDED(find_if_not)
LAPTOP_SIDED(min_element) LAPTOP_SIDED(max_element) LAPTOP_SIDED(minmax_element) LAPTOP_SIDED(equal)
LAPTOP_SIDED(mismatch) LAPTOP_SIDED(all_of) LAPTOP_SIDED(any_of) LAPTOP_SIDED(none_of)
LAPTOP_SIDED(binary_search) LAPTOP_SIDED(lower_bound) LAPTOP_SIDED(upper_bound) LAPTOP_SIDED(equal_range)
LAPTOP_SIDED(inclusive_scan_by_key) LAPTOP_SIDED(exclusive_scan_by_key) LAPTOP_SIDED(reduce_by_key)
LAPTOP_SIDED(unique_by_key) LAPTOP_SIDED(unique_by_key_copy) LAPTOP_SIDED(sort_by_key)
LAPTOP_SIDED(stable_sort_by_key)
#undef LAPTOP_ALGORITHM
#undef LAPTOP_SIDED
}  // namespace thrust
