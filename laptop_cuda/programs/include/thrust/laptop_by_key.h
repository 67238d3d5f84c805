// Thrust's algorithms by key: scans, sums and sorts of values that keys order or divide.
#pragma once
#include "laptop_order.h"

namespace thrust::laptop_host {

template <class K, class I, class O, class E = equal_to<>, class F = plus<>>
O inclusive_scan_by_key(K a, K b, I values, O to, E equal = E(), F f = F()) {
    if (a == b) return to;
    O out = to;
    laptop_value<K> key = *a;                            // in place: read before it is written
    laptop_value<I> total = *values;
    for (*out = total, ++out, ++a, ++values; a != b; ++a, ++values, ++out) {
        laptop_value<I> value = *values;
        total = equal(key, *a) ? laptop_value<I>(f(total, value)) : value;
        key = *a, *out = total;
    }
    return laptop_done(to, out);
}
template <class K, class I, class O, class T = laptop_value<I>, class E = equal_to<>, class F = plus<>>
O exclusive_scan_by_key(K a, K b, I values, O to, T first = T(), E equal = E(), F f = F()) {
    if (a == b) return to;
    O out = to;
    laptop_value<K> key = *a;                            // in place: read before it is written
    for (T total = first; a != b; ++a, ++values, ++out) {
        if (!equal(key, *a)) total = first;
        T next = f(total, *values);
        key = *a, *out = total, total = next;
    }
    return laptop_done(to, out);
}
template <class K, class I, class L, class O, class E = equal_to<>, class F = plus<>>
pair<L, O> reduce_by_key(K a, K b, I values, L keys, O sums, E equal = E(), F f = F()) {
    L key = keys;
    O sum = sums;
    while (a != b) {
        laptop_value<K> of = *a;
        laptop_value<I> total = *values;
        for (++a, ++values; a != b && equal(of, *a); ++a, ++values) total = f(total, *values);
        *key = of, ++key;
        *sum = total, ++sum;
    }
    return {laptop_done(keys, key), laptop_done(sums, sum)};
}
template <class K, class I, class L, class O, class E = equal_to<>>
pair<L, O> unique_by_key_copy(K a, K b, I values, L keys, O firsts, E equal = E()) {
    return laptop_host::reduce_by_key(a, b, values, keys, firsts, equal, project1st<>());
}
template <class K, class I, class E = equal_to<>> pair<K, I> unique_by_key(K a, K b, I values, E equal = E()) {
    return laptop_host::unique_by_key_copy(a, b, values, a, values, equal);
}

template <class K, class I, class F = less<>> void stable_sort_by_key(K a, K b, I values, F f = F()) {
    std::vector<laptop_value<K>> keys(a, b);
    std::vector<laptop_value<I>> old(values, values + (b - a));
    std::vector<size_t> order(keys.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) { return f(keys[x], keys[y]); });
    for (size_t i = 0; i < order.size(); ++i) a[i] = keys[order[i]], values[i] = old[order[i]];
}
template <class... A> void sort_by_key(A... a) { laptop_host::stable_sort_by_key(a...); }
}  // namespace thrust::laptop_host
