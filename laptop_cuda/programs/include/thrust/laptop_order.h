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

template <class I, class F = less<>> void stable_sort(I a, I b, F f = F()) {
    laptop_in_place(a, b, [f](auto c, auto d) { return std::stable_sort(c, d, f), d; });
}
template <class... A> void sort(A... a) { laptop_host::stable_sort(a...); }
template <class I> void reverse(I a, I b) { laptop_in_place(a, b, [](auto c, auto d) { return std::reverse(c, d), d; }); }
LAPTOP_FILLS_AS_STD(reverse_copy)
template <class I, class G> void shuffle(I a, I b, G&& random) {
    laptop_in_place(a, b, [&](auto c, auto d) { return std::shuffle(c, d, random), d; });
}
template <class I, class O, class G> void shuffle_copy(I a, I b, O to, G&& random) {
    O end = laptop_host::copy(a, b, to);
    laptop_host::shuffle(to, end, random);
}
LAPTOP_AS_STD(is_sorted) LAPTOP_AS_STD(is_sorted_until)

template <class I, class J, class O, class F = less<>> O merge(I a, I b, J c, J d, O to, F f = F()) {
    return laptop_done(to, std::merge(a, b, c, d, to, f));
}
LAPTOP_AS_STD(unique) LAPTOP_AS_STD(remove) LAPTOP_FILLS_AS_STD(remove_copy)
template <class I, class O, class F = equal_to<>> O unique_copy(I a, I b, O to, F f = F()) {
    O out = to;
    if (a == b) return to;
    laptop_value<I> kept = *a;
    for (*out = kept, ++out, ++a; a != b; ++a) if (!f(kept, *a)) kept = *a, *out = kept, ++out;
    return laptop_done(to, out);
}
template <class I, class F = equal_to<>> ptrdiff_t unique_count(I a, I b, F f = F()) {
    return laptop_host::unique_copy(a, b, discard_iterator<>(), f) - discard_iterator<>();
}
template <class I, class S, class O, class F> O remove_copy_if(I a, I b, S stencil, O to, F f) {
    return laptop_host::copy_if(a, b, stencil, to, [f](const auto& x) { return !f(x); });
}
template <class I, class O, class F> O remove_copy_if(I a, I b, O to, F f) {
    return laptop_done(to, std::remove_copy_if(a, b, to, f));
}
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
template <class... A> auto stable_partition_copy(A... a) { return laptop_host::partition_copy(a...); }
template <class I, class S, class F> I partition(I a, I b, S stencil, F f) {
    std::vector<laptop_value<I>> no;
    I yes = laptop_host::partition_copy(a, b, stencil, a, std::back_inserter(no), f).first;
    return laptop_host::copy(no.begin(), no.end(), yes), yes;
}
template <class I, class F> I partition(I a, I b, F f) { return laptop_host::partition(a, b, a, f); }
template <class... A> auto stable_partition(A... a) { return laptop_host::partition(a...); }
LAPTOP_AS_STD(is_partitioned) LAPTOP_AS_STD(partition_point)

LAPTOP_AS_STD(find) LAPTOP_AS_STD(find_if) LAPTOP_AS_STD(find_if_not) LAPTOP_AS_STD(min_element) LAPTOP_AS_STD(max_element)
LAPTOP_AS_STD(equal) LAPTOP_AS_STD(mismatch) LAPTOP_AS_STD(all_of) LAPTOP_AS_STD(any_of) LAPTOP_AS_STD(none_of)
LAPTOP_AS_STD(equal_range)
template <class I, class F = less<>> pair<I, I> minmax_element(I a, I b, F f = F()) {
    return {std::min_element(a, b, f), std::max_element(a, b, f)};
}
// One value, or one per element of a second range.
#define LAPTOP_BOUND(name, found)                                                                         \
    template <class I, class T, class F = less<>> auto name(I a, I b, const T& v, F f = F()) {            \
        return std::name(a, b, v, f);                                                                     \
    }                                                                                                     \
    template <class I, class J, class O, class F = less<>> O name(I a, I b, J c, J d, O to, F f = F()) {  \
        return laptop_host::transform(c, d, to, [=](const auto& v) { return std::name(a, b, v, f) found; });   \
    }
LAPTOP_BOUND(lower_bound, - a) LAPTOP_BOUND(upper_bound, - a) LAPTOP_BOUND(binary_search, )
#undef LAPTOP_BOUND
#undef LAPTOP_AS_STD
#undef LAPTOP_FILLS_AS_STD
}  // namespace thrust::laptop_host
