// Thrust's algorithms of order and search: sorts, sets, what removes or divides, bounds.
#pragma once
#include "laptop_elements.h"

namespace thrust::laptop_host {

// An algorithm that swaps elements needs true references: what an iterator such as zip gives is sorted in a vector.
template <class I, class F> I laptop_in_place(I a, I b, F f) {
    if constexpr (std::is_lvalue_reference<typename std::iterator_traits<I>::reference>::value) return f(a, b);
    else {
        std::vector<laptop_value<I>> kept(a, b);
        ptrdiff_t end = f(kept.begin(), kept.end()) - kept.begin();
        std::copy(kept.begin(), kept.end(), a);
        return a + end;
    }
}

// ------------------------------------------------------------------ order
template <class I, class F> void stable_sort(I a, I b, F f) {
    laptop_in_place(a, b, [f](auto c, auto d) { return std::stable_sort(c, d, f), d; });
}
template <class I> void stable_sort(I a, I b) { laptop_host::stable_sort(a, b, less<>()); }
template <class I, class F> void sort(I a, I b, F f) { laptop_host::stable_sort(a, b, f); }
template <class I> void sort(I a, I b) { laptop_host::stable_sort(a, b, less<>()); }
template <class I> void reverse(I a, I b) {
    laptop_in_place(a, b, [](auto c, auto d) { return std::reverse(c, d), d; });
}
template <class I, class O> O reverse_copy(I a, I b, O to) { return laptop_done(to, std::reverse_copy(a, b, to)); }
template <class I, class G> void shuffle(I a, I b, G&& random) {
    laptop_in_place(a, b, [&](auto c, auto d) { return std::shuffle(c, d, random), d; });
}
template <class I, class O, class G> void shuffle_copy(I a, I b, O to, G&& random) {
    O end = laptop_host::copy(a, b, to);
    laptop_host::shuffle(to, end, random);
}
template <class I> bool is_sorted(I a, I b) { return std::is_sorted(a, b); }
template <class I, class F> bool is_sorted(I a, I b, F f) { return std::is_sorted(a, b, f); }
template <class I> I is_sorted_until(I a, I b) { return std::is_sorted_until(a, b); }
template <class I, class F> I is_sorted_until(I a, I b, F f) { return std::is_sorted_until(a, b, f); }

// ------------------------------------------------------------------ sets: two sorted ranges into one
#define LAPTOP_SETS(name)                                                                                 \
    template <class I, class J, class O, class F> O name(I a, I b, J c, J d, O to, F f) {                 \
        return laptop_done(to, std::name(a, b, c, d, to, f));                                             \
    }                                                                                                     \
    template <class I, class J, class O> O name(I a, I b, J c, J d, O to) {                               \
        return laptop_host::name(a, b, c, d, to, less<>());                                                    \
    }
LAPTOP_SETS(merge) LAPTOP_SETS(set_union) LAPTOP_SETS(set_intersection) LAPTOP_SETS(set_difference)
LAPTOP_SETS(set_symmetric_difference)
#undef LAPTOP_SETS

// ------------------------------------------------------------------ removing and dividing
template <class I> I unique(I a, I b) { return std::unique(a, b); }
template <class I, class F> I unique(I a, I b, F f) { return std::unique(a, b, f); }
template <class I, class O, class F> O unique_copy(I a, I b, O to, F f) {
    O out = to;
    if (a == b) return to;
    laptop_value<I> kept = *a;
    for (*out = kept, ++out, ++a; a != b; ++a) if (!f(kept, *a)) kept = *a, *out = kept, ++out;
    return laptop_done(to, out);
}
template <class I, class O> O unique_copy(I a, I b, O to) { return laptop_host::unique_copy(a, b, to, equal_to<>()); }
template <class I, class F> ptrdiff_t unique_count(I a, I b, F f) {
    return laptop_host::unique_copy(a, b, discard_iterator<>(), f) - discard_iterator<>();
}
template <class I> ptrdiff_t unique_count(I a, I b) { return laptop_host::unique_count(a, b, equal_to<>()); }
template <class I, class S, class O, class F> O remove_copy_if(I a, I b, S stencil, O to, F f) {
    return laptop_host::copy_if(a, b, stencil, to, [f](const auto& x) { return !f(x); });
}
template <class I, class O, class F> O remove_copy_if(I a, I b, O to, F f) {
    return laptop_done(to, std::remove_copy_if(a, b, to, f));
}
template <class I, class O, class T> O remove_copy(I a, I b, O to, const T& v) {
    return laptop_done(to, std::remove_copy(a, b, to, v));
}
template <class I, class T> I remove(I a, I b, const T& v) { return std::remove(a, b, v); }
template <class I, class F> I remove_if(I a, I b, F f) { return std::remove_if(a, b, f); }
template <class I, class S, class F> I remove_if(I a, I b, S stencil, F f) {
    return laptop_host::remove_copy_if(a, b, stencil, a, f);
}
template <class I, class S, class T, class O, class F>
pair<T, O> partition_copy(I a, I b, S stencil, T yes, O no, F f) {
    T in = yes;
    O out = no;
    for (; a != b; ++a, ++stencil) {
        if (f(*stencil)) *in = *a, ++in;
        else *out = *a, ++out;
    }
    return {laptop_done(yes, in), laptop_done(no, out)};
}
template <class I, class T, class O, class F> pair<T, O> partition_copy(I a, I b, T yes, O no, F f) {
    return laptop_host::partition_copy(a, b, a, yes, no, f);
}
template <class I, class T, class O, class F> pair<T, O> stable_partition_copy(I a, I b, T yes, O no, F f) {
    return laptop_host::partition_copy(a, b, a, yes, no, f);
}
template <class I, class S, class T, class O, class F>
pair<T, O> stable_partition_copy(I a, I b, S stencil, T yes, O no, F f) {
    return laptop_host::partition_copy(a, b, stencil, yes, no, f);
}
template <class I, class S, class F> I partition(I a, I b, S stencil, F f) {
    std::vector<laptop_value<I>> no;
    I yes = laptop_host::partition_copy(a, b, stencil, a, std::back_inserter(no), f).first;
    return laptop_host::copy(no.begin(), no.end(), yes), yes;
}
template <class I, class F> I partition(I a, I b, F f) { return laptop_host::partition(a, b, a, f); }
template <class I, class F> I stable_partition(I a, I b, F f) { return laptop_host::partition(a, b, a, f); }
template <class I, class S, class F> I stable_partition(I a, I b, S stencil, F f) {
    return laptop_host::partition(a, b, stencil, f);
}
template <class I, class F> bool is_partitioned(I a, I b, F f) { return std::is_partitioned(a, b, f); }
template <class I, class F> I partition_point(I a, I b, F f) { return std::partition_point(a, b, f); }

// ------------------------------------------------------------------ search
template <class I, class T> I find(I a, I b, const T& v) { return std::find(a, b, v); }
template <class I, class F> I find_if(I a, I b, F f) { return std::find_if(a, b, f); }
template <class I, class F> I find_if_not(I a, I b, F f) { return std::find_if_not(a, b, f); }
template <class I> I min_element(I a, I b) { return std::min_element(a, b); }
template <class I, class F> I min_element(I a, I b, F f) { return std::min_element(a, b, f); }
template <class I> I max_element(I a, I b) { return std::max_element(a, b); }
template <class I, class F> I max_element(I a, I b, F f) { return std::max_element(a, b, f); }
template <class I, class F> pair<I, I> minmax_element(I a, I b, F f) {
    return {std::min_element(a, b, f), std::max_element(a, b, f)};
}
template <class I> pair<I, I> minmax_element(I a, I b) { return laptop_host::minmax_element(a, b, less<>()); }
template <class I, class J> bool equal(I a, I b, J c) { return std::equal(a, b, c); }
template <class I, class J, class F> bool equal(I a, I b, J c, F f) { return std::equal(a, b, c, f); }
template <class I, class J> pair<I, J> mismatch(I a, I b, J c) { return std::mismatch(a, b, c); }
template <class I, class J, class F> pair<I, J> mismatch(I a, I b, J c, F f) { return std::mismatch(a, b, c, f); }
template <class I, class F> bool all_of(I a, I b, F f) { return std::all_of(a, b, f); }
template <class I, class F> bool any_of(I a, I b, F f) { return std::any_of(a, b, f); }
template <class I, class F> bool none_of(I a, I b, F f) { return std::none_of(a, b, f); }
template <class I, class T> pair<I, I> equal_range(I a, I b, const T& v) { return std::equal_range(a, b, v); }
template <class I, class T, class F> pair<I, I> equal_range(I a, I b, const T& v, F f) {
    return std::equal_range(a, b, v, f);
}
// One value, or one per element of a second range.
#define LAPTOP_BOUND(name, found)                                                                         \
    template <class I, class T, class F> auto name(I a, I b, const T& v, F f) { return std::name(a, b, v, f); } \
    template <class I, class T> auto name(I a, I b, const T& v) { return std::name(a, b, v, less<>()); }  \
    template <class I, class J, class O, class F> O name(I a, I b, J c, J d, O to, F f) {                 \
        return laptop_host::transform(c, d, to, [=](const auto& v) { return std::name(a, b, v, f) found; });   \
    }                                                                                                     \
    template <class I, class J, class O> O name(I a, I b, J c, J d, O to) {                               \
        return laptop_host::name(a, b, c, d, to, less<>());                                                    \
    }
LAPTOP_BOUND(lower_bound, - a) LAPTOP_BOUND(upper_bound, - a) LAPTOP_BOUND(binary_search, )
#undef LAPTOP_BOUND

}  // namespace thrust::laptop_host
