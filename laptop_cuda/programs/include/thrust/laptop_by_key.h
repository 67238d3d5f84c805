// Thrust's algorithms by key: scans, sums, sorts and sets of values that keys order or divide.
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

// Sets: two sorted ranges of keys, each with values.
template <class F> auto laptop_keys(F f) {
    return [f](const auto& x, const auto& y) { return f(std::get<0>(x), std::get<0>(y)); };
}
#define LAPTOP_SETS_BY_KEY(name)                                                                          \
    template <class K, class L, class I, class J, class M, class O, class F = less<>>                     \
    pair<M, O> name##_by_key(K a, K b, L c, L d, I values, J others, M keys, O to, F f = F()) {           \
        auto end = laptop_host::name(make_zip_iterator(a, values), make_zip_iterator(b, values + (b - a)),     \
                                make_zip_iterator(c, others), make_zip_iterator(d, others + (d - c)),     \
                                make_zip_iterator(keys, to), laptop_keys(f)).get_iterator_tuple();        \
        return {std::get<0>(end), std::get<1>(end)};                                                      \
    }
LAPTOP_SETS_BY_KEY(merge) LAPTOP_SETS_BY_KEY(set_union) LAPTOP_SETS_BY_KEY(set_difference)
LAPTOP_SETS_BY_KEY(set_symmetric_difference)
#undef LAPTOP_SETS_BY_KEY
template <class K, class L, class I, class M, class O, class F = less<>>      // its values all come from the first range
pair<M, O> set_intersection_by_key(K a, K b, L c, L d, I values, M keys, O to, F f = F()) {
    auto end = laptop_host::set_intersection(make_zip_iterator(a, values), make_zip_iterator(b, values + (b - a)),
                                        make_zip_iterator(c, c), make_zip_iterator(d, d),
                                        make_zip_iterator(keys, to), laptop_keys(f)).get_iterator_tuple();
    return {std::get<0>(end), std::get<1>(end)};
}
}  // namespace thrust::laptop_host
