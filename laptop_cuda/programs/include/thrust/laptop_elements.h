// Thrust's algorithms that fill, copy, transform and sum.
#pragma once
#include "laptop_iterators.h"

namespace thrust::laptop_host {

template <class I> using laptop_value = typename std::iterator_traits<I>::value_type;
template <class I> I laptop_done(I first, I last) { return laptop_wrote(first, last), last; }

// What the standard library's function of the same name does; the second kind fills a range from `to` on.
#define LAPTOP_AS_STD(name) template <class... A> auto name(A... a) { return std::name(a...); }
#define LAPTOP_FILLS_AS_STD(name)                                                      \
    template <class I, class O, class... A> O name(I a, I b, O to, A... more) {        \
        return laptop_done(to, std::name(a, b, to, more...));                          \
    }

template <class I, class T> void fill(I a, I b, const T& v) { std::fill(a, b, laptop_value<I>(v)), laptop_wrote(a, b); }
template <class I, class N, class T> I fill_n(I a, N n, const T& v) { return laptop_host::fill(a, a + n, v), a + n; }
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
template <class I, class N, class F> I generate_n(I a, N n, F f) { return laptop_host::generate(a, a + n, f), a + n; }
template <class I, class T> void uninitialized_fill(I a, I b, const T& v) {
    std::uninitialized_fill(a, b, v), laptop_wrote(a, b);
}
template <class I, class N, class T> I uninitialized_fill_n(I a, N n, const T& v) {
    return laptop_host::uninitialized_fill(a, a + n, v), a + n;
}
LAPTOP_FILLS_AS_STD(uninitialized_copy)
template <class I, class N, class O> O uninitialized_copy_n(I a, N n, O to) {
    return laptop_host::uninitialized_copy(a, a + n, to);
}
template <class I, class O> O copy(I a, I b, O to) { return laptop_done(to, std::copy(a, b, to)), to + (b - a); }
template <class I, class N, class O> O copy_n(I a, N n, O to) { return laptop_host::copy(a, a + n, to); }
template <class I, class O, class F> O copy_if(I a, I b, O to, F f) { return laptop_done(to, std::copy_if(a, b, to, f)); }
template <class I, class M, class O, class F> O copy_if(I a, I b, M mask, O to, F f) {
    O out = to;
    for (; a != b; ++a, ++mask) if (f(*mask)) *out = *a, ++out;
    return laptop_done(to, out);
}
template <class M, class I, class O> O gather(M a, M b, I from, O to) {
    O out = to;
    for (; a != b; ++a, ++out) *out = from[*a];
    return laptop_done(to, out);
}
template <class M, class S, class I, class O, class F = identity<>>
O gather_if(M a, M b, S stencil, I from, O to, F f = F()) {
    for (; a != b; ++a, ++stencil, ++to) if (f(*stencil)) *to = from[*a], laptop_wrote(to, to + 1);
    return to;
}
template <class I, class M, class S, class O, class F = identity<>>
void scatter_if(I a, I b, M map, S stencil, O to, F f = F()) {
    for (; a != b; ++a, ++map, ++stencil) if (f(*stencil)) {
        O at = to + *map;
        *at = *a, laptop_wrote(at, at + 1);
    }
}
template <class I, class M, class O> void scatter(I a, I b, M map, O to) {
    laptop_host::scatter_if(a, b, map, constant_iterator<bool>(true), to);
}
template <class I, class F, class T> void replace_if(I a, I b, F f, const T& to) { std::replace_if(a, b, f, to); }
template <class I, class S, class F, class T> void replace_if(I a, I b, S stencil, F f, const T& to) {
    for (; a != b; ++a, ++stencil) if (f(*stencil)) *a = to;
}
LAPTOP_AS_STD(replace) LAPTOP_FILLS_AS_STD(replace_copy) LAPTOP_FILLS_AS_STD(replace_copy_if)
template <class I, class J> J swap_ranges(I a, I b, J c) {
    for (; a != b; ++a, ++c) {
        laptop_value<I> kept = *a;
        *a = *c, *c = kept;
    }
    return c;
}

template <class I, class F> I for_each(I a, I b, F f) {
    for (I at = a; at != b; ++at) f(*at);
    laptop_wrote_through(f);
    return laptop_done(a, b);                            // its elements, too, may have been written
}
template <class I, class N, class F> I for_each_n(I a, N n, F f) { return laptop_host::for_each(a, a + n, f); }
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
template <class I, class S, class O, class F, class P> O transform_if(I a, I b, S stencil, O to, F f, P p) {
    for (; a != b; ++a, ++stencil, ++to) if (p(*stencil)) *to = f(*a), laptop_wrote(to, to + 1);
    return to;
}
template <class I, class O, class F, class P> O transform_if(I a, I b, O to, F f, P p) {
    return laptop_host::transform_if(a, b, a, to, f, p);
}
template <class I, class J, class S, class O, class F, class P>
O transform_if(I a, I b, J with, S stencil, O to, F f, P p) {
    for (; a != b; ++a, ++with, ++stencil, ++to) if (p(*stencil)) *to = f(*a, *with), laptop_wrote(to, to + 1);
    return to;
}
template <class I, class O, class F = minus<>> O adjacent_difference(I a, I b, O to, F f = F()) {
    return laptop_done(to, std::adjacent_difference(a, b, to, [f](const auto& now, const auto& before) { return f(now, before); }));
}

template <class I, class T = laptop_value<I>, class F = plus<>> T reduce(I a, I b, T v = T(), F f = F()) {
    for (; a != b; ++a) v = f(v, *a);
    return v;
}
template <class I, class U, class T, class F> T transform_reduce(I a, I b, U u, T v, F f) {
    for (; a != b; ++a) v = f(v, u(*a));
    return v;
}
LAPTOP_AS_STD(inner_product) LAPTOP_AS_STD(count) LAPTOP_AS_STD(count_if)
template <class I, class O, class F = plus<>> O inclusive_scan(I a, I b, O to, F f = F()) {
    return laptop_done(to, std::partial_sum(a, b, to, [f](const auto& x, const auto& y) { return f(x, y); }));
}
template <class I, class O, class T = laptop_value<I>, class F = plus<>>
O exclusive_scan(I a, I b, O to, T v = T(), F f = F()) {
    O out = to;
    for (; a != b; ++a, ++out) {
        T next = f(v, *a);                               // in place: read before it is written
        *out = v, v = next;
    }
    return laptop_done(to, out);
}
template <class I, class O, class T, class F> O inclusive_scan(I a, I b, O to, T v, F f) {
    O out = to;
    for (; a != b; ++a, ++out) *out = v = f(v, *a);
    return laptop_done(to, out);
}
template <class I, class O, class U, class... A> O transform_inclusive_scan(I a, I b, O to, U u, A... more) {
    return laptop_host::inclusive_scan(make_transform_iterator(a, u), make_transform_iterator(b, u), to, more...);
}
template <class I, class O, class U, class T, class F> O transform_exclusive_scan(I a, I b, O to, U u, T v, F f) {
    return laptop_host::exclusive_scan(make_transform_iterator(a, u), make_transform_iterator(b, u), to, v, f);
}
}  // namespace thrust::laptop_host
