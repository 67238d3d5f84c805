// Thrust's algorithms, in order and in host code. Each takes an execution policy or none.
#pragma once
#include "laptop_iterators.h"

namespace thrust {

template <class I> using laptop_value = typename std::iterator_traits<I>::value_type;
template <class I>
I laptop_done(I first, I last) { return laptop_wrote(first, last), last; }

// ------------------------------------------------------------------ filling and copying
template <class I, class T> void fill(I a, I b, const T& v) { std::fill(a, b, laptop_value<I>(v)), laptop_wrote(a, b); }
template <class I, class N, class T> I fill_n(I a, N n, const T& v) { return thrust::fill(a, a + n, v), a + n; }
template <class I, class T = laptop_value<I>, class S = T>
void sequence(I a, I b, T first = T(), S step = S(1)) {
    ptrdiff_t n = b - a;
    for (ptrdiff_t i = 0; i < n; ++i) a[i] = laptop_value<I>(first + i * step);
    laptop_wrote(a, b);
}
template <class I, class F> void tabulate(I a, I b, F f) {
    for (ptrdiff_t i = 0, n = b - a; i < n; ++i) a[i] = f(i);
    laptop_wrote(a, b);
}
template <class I, class F> void generate(I a, I b, F f) { std::generate(a, b, f), laptop_wrote(a, b); }
template <class I, class O> O copy(I a, I b, O to) { return laptop_done(to, std::copy(a, b, to)), to + (b - a); }
template <class I, class N, class O> O copy_n(I a, N n, O to) { return thrust::copy(a, a + n, to); }
template <class I, class O, class F> O copy_if(I a, I b, O to, F f) { return laptop_done(to, std::copy_if(a, b, to, f)); }
template <class I, class M, class O, class F> O copy_if(I a, I b, M mask, O to, F f) {
    O out = to;
    for (; a != b; ++a, ++mask) if (f(*mask)) *out = *a, ++out;
    return laptop_done(to, out);
}
template <class I, class M, class O> O gather(M a, M b, I from, O to) {
    O out = to;
    for (; a != b; ++a, ++out) *out = from[*a];
    return laptop_done(to, out);
}
template <class I, class M, class O> void scatter(I a, I b, M map, O to) {
    for (; a != b; ++a, ++map) { O at = to + *map; *at = *a; laptop_wrote(at, at + 1); }
}
template <class I> void reverse(I a, I b) { std::reverse(a, b); }
template <class I, class T> void replace(I a, I b, const T& from, const T& to) { std::replace(a, b, from, to); }
template <class I, class F, class T> void replace_if(I a, I b, F f, const T& to) { std::replace_if(a, b, f, to); }

// ------------------------------------------------------------------ element by element
template <class I, class F> I for_each(I a, I b, F f) { for (; a != b; ++a) f(*a); return b; }
template <class I, class N, class F> I for_each_n(I a, N n, F f) { return thrust::for_each(a, a + n, f); }
template <class I, class O, class F> O transform(I a, I b, O to, F f) {
    O out = to;
    for (; a != b; ++a, ++out) *out = f(*a);
    return laptop_done(to, out);
}
template <class I, class J, class O, class F> O transform(I a, I b, J with, O to, F f) {
    O out = to;
    for (; a != b; ++a, ++with, ++out) *out = f(*a, *with);
    return laptop_done(to, out);
}
template <class I, class O, class F> O adjacent_difference(I a, I b, O to, F f) {
    return laptop_done(to, std::adjacent_difference(a, b, to, [f](const auto& now, const auto& before) { return f(now, before); }));
}
template <class I, class O> O adjacent_difference(I a, I b, O to) { return thrust::adjacent_difference(a, b, to, minus<>()); }

// ------------------------------------------------------------------ sums
template <class I, class T, class F> T reduce(I a, I b, T v, F f) { for (; a != b; ++a) v = f(v, *a); return v; }
template <class I, class T> T reduce(I a, I b, T v) { return thrust::reduce(a, b, v, plus<>()); }
template <class I> laptop_value<I> reduce(I a, I b) { return thrust::reduce(a, b, laptop_value<I>(), plus<>()); }
template <class I, class U, class T, class F> T transform_reduce(I a, I b, U u, T v, F f) {
    for (; a != b; ++a) v = f(v, u(*a));
    return v;
}
template <class I, class J, class T> T inner_product(I a, I b, J with, T v) { return std::inner_product(a, b, with, v); }
template <class I, class J, class T, class F, class G> T inner_product(I a, I b, J with, T v, F f, G g) {
    return std::inner_product(a, b, with, v, f, g);
}
template <class I, class O, class F> O inclusive_scan(I a, I b, O to, F f) {
    return laptop_done(to, std::partial_sum(a, b, to, [f](const auto& x, const auto& y) { return f(x, y); }));
}
template <class I, class O> O inclusive_scan(I a, I b, O to) { return thrust::inclusive_scan(a, b, to, plus<>()); }
template <class I, class O, class T, class F> O exclusive_scan(I a, I b, O to, T v, F f) {
    O out = to;
    for (; a != b; ++a, ++out) {
        T next = f(v, *a);                               // in place: read before it is written
        *out = v, v = next;
    }
    return laptop_done(to, out);
}
template <class I, class O, class T> O exclusive_scan(I a, I b, O to, T v) { return thrust::exclusive_scan(a, b, to, v, plus<>()); }
template <class I, class O> O exclusive_scan(I a, I b, O to) { return thrust::exclusive_scan(a, b, to, laptop_value<I>()); }
template <class I, class O, class U, class F> O transform_inclusive_scan(I a, I b, O to, U u, F f) {
    return thrust::inclusive_scan(make_transform_iterator(a, u), make_transform_iterator(b, u), to, f);
}
template <class K, class I, class O> O inclusive_scan_by_key(K a, K b, I values, O to) {
    for (ptrdiff_t i = 0, n = b - a; i < n; ++i) to[i] = i && a[i - 1] == a[i] ? to[i - 1] + values[i] : values[i];
    return laptop_done(to, to + (b - a));
}
template <class K, class I, class L, class O, class E, class F>
pair<L, O> reduce_by_key(K a, K b, I values, L keys, O sums, E equal, F f) {
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
template <class K, class I, class L, class O> pair<L, O> reduce_by_key(K a, K b, I values, L keys, O sums) {
    return thrust::reduce_by_key(a, b, values, keys, sums, equal_to<>(), plus<>());
}
template <class I, class T> ptrdiff_t count(I a, I b, const T& v) { return std::count(a, b, v); }
template <class I, class F> ptrdiff_t count_if(I a, I b, F f) { return std::count_if(a, b, f); }

// ------------------------------------------------------------------ order
template <class I, class F> void sort(I a, I b, F f) { std::stable_sort(a, b, f); }
template <class I> void sort(I a, I b) { std::stable_sort(a, b); }
template <class I, class F> void stable_sort(I a, I b, F f) { std::stable_sort(a, b, f); }
template <class I> void stable_sort(I a, I b) { std::stable_sort(a, b); }
template <class K, class I, class F> void stable_sort_by_key(K a, K b, I values, F f) {
    std::vector<laptop_value<K>> keys(a, b);
    std::vector<laptop_value<I>> old(values, values + (b - a));
    std::vector<size_t> order(keys.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) { return f(keys[x], keys[y]); });
    for (size_t i = 0; i < order.size(); ++i) a[i] = keys[order[i]], values[i] = old[order[i]];
}
template <class K, class I> void stable_sort_by_key(K a, K b, I values) { thrust::stable_sort_by_key(a, b, values, less<>()); }
template <class K, class I, class F> void sort_by_key(K a, K b, I values, F f) { thrust::stable_sort_by_key(a, b, values, f); }
template <class K, class I> void sort_by_key(K a, K b, I values) { thrust::stable_sort_by_key(a, b, values, less<>()); }
template <class I> bool is_sorted(I a, I b) { return std::is_sorted(a, b); }
template <class I, class F> bool is_sorted(I a, I b, F f) { return std::is_sorted(a, b, f); }
template <class I, class J, class O> O merge(I a, I b, J c, J d, O to) { return laptop_done(to, std::merge(a, b, c, d, to)); }
template <class I> I unique(I a, I b) { return std::unique(a, b); }
template <class I, class F> I unique(I a, I b, F f) { return std::unique(a, b, f); }
template <class I, class O> O unique_copy(I a, I b, O to) { return laptop_done(to, std::unique_copy(a, b, to)); }
template <class K, class I> pair<K, I> unique_by_key(K a, K b, I values) {
    return thrust::reduce_by_key(a, b, values, a, values, equal_to<>(), [](auto x, auto) { return x; });
}
template <class I, class T> I remove(I a, I b, const T& v) { return std::remove(a, b, v); }
template <class I, class F> I remove_if(I a, I b, F f) { return std::remove_if(a, b, f); }
template <class I, class F> I partition(I a, I b, F f) { return std::stable_partition(a, b, f); }
template <class I, class F> I stable_partition(I a, I b, F f) { return std::stable_partition(a, b, f); }

// ------------------------------------------------------------------ search
template <class I, class T> I find(I a, I b, const T& v) { return std::find(a, b, v); }
template <class I, class F> I find_if(I a, I b, F f) { return std::find_if(a, b, f); }
template <class I> I min_element(I a, I b) { return std::min_element(a, b); }
template <class I, class F> I min_element(I a, I b, F f) { return std::min_element(a, b, f); }
template <class I> I max_element(I a, I b) { return std::max_element(a, b); }
template <class I, class F> I max_element(I a, I b, F f) { return std::max_element(a, b, f); }
template <class I> pair<I, I> minmax_element(I a, I b) { return {std::min_element(a, b), std::max_element(a, b)}; }
template <class I, class J> bool equal(I a, I b, J c) { return std::equal(a, b, c); }
template <class I, class F> bool all_of(I a, I b, F f) { return std::all_of(a, b, f); }
template <class I, class F> bool any_of(I a, I b, F f) { return std::any_of(a, b, f); }
template <class I, class F> bool none_of(I a, I b, F f) { return std::none_of(a, b, f); }
template <class I, class T> bool binary_search(I a, I b, const T& v) { return std::binary_search(a, b, v); }
template <class I, class T> I lower_bound(I a, I b, const T& v) { return std::lower_bound(a, b, v); }
template <class I, class T> I upper_bound(I a, I b, const T& v) { return std::upper_bound(a, b, v); }
template <class I, class J, class O> O lower_bound(I a, I b, J c, J d, O to) {
    return thrust::transform(c, d, to, [=](const auto& v) { return std::lower_bound(a, b, v) - a; });
}
template <class I, class J, class O> O upper_bound(I a, I b, J c, J d, O to) {
    return thrust::transform(c, d, to, [=](const auto& v) { return std::upper_bound(a, b, v) - a; });
}

// ------------------------------------------------------------------ the same with an execution policy
#define LAPTOP_WITH_POLICY(name) \
    template <class... A> decltype(auto) name(const laptop_policy&, A&&... a) { return thrust::name(std::forward<A>(a)...); }
LAPTOP_WITH_POLICY(fill) LAPTOP_WITH_POLICY(fill_n) LAPTOP_WITH_POLICY(sequence) LAPTOP_WITH_POLICY(tabulate)
LAPTOP_WITH_POLICY(generate) LAPTOP_WITH_POLICY(copy) LAPTOP_WITH_POLICY(copy_n) LAPTOP_WITH_POLICY(copy_if)
LAPTOP_WITH_POLICY(gather) LAPTOP_WITH_POLICY(scatter) LAPTOP_WITH_POLICY(reverse) LAPTOP_WITH_POLICY(replace)
LAPTOP_WITH_POLICY(replace_if) LAPTOP_WITH_POLICY(for_each) LAPTOP_WITH_POLICY(for_each_n) LAPTOP_WITH_POLICY(transform)
LAPTOP_WITH_POLICY(adjacent_difference) LAPTOP_WITH_POLICY(reduce) LAPTOP_WITH_POLICY(transform_reduce)
LAPTOP_WITH_POLICY(inner_product) LAPTOP_WITH_POLICY(inclusive_scan) LAPTOP_WITH_POLICY(exclusive_scan)
LAPTOP_WITH_POLICY(transform_inclusive_scan) LAPTOP_WITH_POLICY(inclusive_scan_by_key) LAPTOP_WITH_POLICY(reduce_by_key)
LAPTOP_WITH_POLICY(count) LAPTOP_WITH_POLICY(count_if) LAPTOP_WITH_POLICY(sort) LAPTOP_WITH_POLICY(stable_sort)
LAPTOP_WITH_POLICY(sort_by_key) LAPTOP_WITH_POLICY(stable_sort_by_key) LAPTOP_WITH_POLICY(is_sorted)
LAPTOP_WITH_POLICY(merge) LAPTOP_WITH_POLICY(unique) LAPTOP_WITH_POLICY(unique_copy) LAPTOP_WITH_POLICY(unique_by_key)
LAPTOP_WITH_POLICY(remove) LAPTOP_WITH_POLICY(remove_if) LAPTOP_WITH_POLICY(partition) LAPTOP_WITH_POLICY(stable_partition)
LAPTOP_WITH_POLICY(find) LAPTOP_WITH_POLICY(find_if) LAPTOP_WITH_POLICY(min_element) LAPTOP_WITH_POLICY(max_element)
LAPTOP_WITH_POLICY(minmax_element) LAPTOP_WITH_POLICY(equal) LAPTOP_WITH_POLICY(all_of) LAPTOP_WITH_POLICY(any_of)
LAPTOP_WITH_POLICY(none_of) LAPTOP_WITH_POLICY(binary_search) LAPTOP_WITH_POLICY(lower_bound) LAPTOP_WITH_POLICY(upper_bound)
#undef LAPTOP_WITH_POLICY

}  // namespace thrust
