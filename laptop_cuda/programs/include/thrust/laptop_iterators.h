// Thrust's iterators that compute: counting, constant, transform, permutation, zip, discard.
#pragma once
#include "laptop_vectors.h"

namespace thrust {

// An iterator is a position and a function of it; `Self::at(i)` gives the element i further on.
template <class Self, class Value, class Reference = Value> struct laptop_iterator : laptop_walk<Self> {
    typedef std::random_access_iterator_tag iterator_category;
    typedef Value value_type;
    typedef ptrdiff_t difference_type;
    typedef void pointer;
    typedef Reference reference;
    ptrdiff_t position = 0;
    Reference operator*() const { return self().at(position); }
    Reference operator[](ptrdiff_t i) const { return self().at(position + i); }
    void laptop_move(ptrdiff_t n) { position += n; }
    ptrdiff_t laptop_from(const Self& other) const { return position - other.position + self().from(other); }
    ptrdiff_t from(const Self&) const { return 0; }

private:
    const Self& self() const { return *static_cast<const Self*>(this); }
};

template <class T> struct counting_iterator : laptop_iterator<counting_iterator<T>, T> {
    T first{};
    counting_iterator() = default;
    explicit counting_iterator(T first) : first(first) {}
    T at(ptrdiff_t i) const { return T(first + i); }
    ptrdiff_t from(const counting_iterator& other) const { return ptrdiff_t(first) - ptrdiff_t(other.first); }
};
template <class T> counting_iterator<T> make_counting_iterator(T first) { return counting_iterator<T>(first); }

template <class T> struct constant_iterator : laptop_iterator<constant_iterator<T>, T> {
    T value{};
    constant_iterator() = default;
    explicit constant_iterator(T value, ptrdiff_t at = 0) : value(value) { this->position = at; }
    T at(ptrdiff_t) const { return value; }
};
template <class T> constant_iterator<T> make_constant_iterator(T value) { return constant_iterator<T>(value); }

template <class F, class I, class R = std::decay_t<std::invoke_result_t<F, typename std::iterator_traits<I>::reference>>>
struct transform_iterator : laptop_iterator<transform_iterator<F, I, R>, R> {
    I source;
    F function;
    transform_iterator(I source, F function = F()) : source(source), function(function) {}
    R at(ptrdiff_t i) const { return function(source[i]); }
    ptrdiff_t from(const transform_iterator& other) const { return source - other.source; }
};
template <class F, class I> transform_iterator<F, I> make_transform_iterator(I source, F f) { return {source, f}; }

template <class E, class I> struct permutation_iterator
    : laptop_iterator<permutation_iterator<E, I>, typename std::iterator_traits<E>::value_type,
                      typename std::iterator_traits<E>::reference> {
    E elements;
    I indices;
    permutation_iterator(E elements, I indices) : elements(elements), indices(indices) {}
    typename std::iterator_traits<E>::reference at(ptrdiff_t i) const { return elements[indices[i]]; }
    ptrdiff_t from(const permutation_iterator& other) const { return indices - other.indices; }
};
template <class E, class I> permutation_iterator<E, I> make_permutation_iterator(E e, I i) { return {e, i}; }
template <class E, class I> void laptop_wrote(permutation_iterator<E, I> a, permutation_iterator<E, I> b) {
    for (ptrdiff_t i = a.position, end = i + (b - a); i < end; ++i) {
        E at = a.elements + a.indices[i];
        laptop_wrote(at, at + 1);
    }
}

template <class Tuple> struct zip_iterator;
template <class... I> struct zip_iterator<std::tuple<I...>>
    : laptop_iterator<zip_iterator<std::tuple<I...>>, std::tuple<typename std::iterator_traits<I>::value_type...>,
                      std::tuple<typename std::iterator_traits<I>::reference...>> {
    typedef std::tuple<typename std::iterator_traits<I>::reference...> references;
    std::tuple<I...> iterators;
    zip_iterator() = default;
    zip_iterator(std::tuple<I...> iterators) : iterators(iterators) {}
    references at(ptrdiff_t n) const {
        return std::apply([n](const I&... each) { return references(each[n]...); }, iterators);
    }
    ptrdiff_t from(const zip_iterator& other) const { return std::get<0>(iterators) - std::get<0>(other.iterators); }
    std::tuple<I...> get_iterator_tuple() const {
        return std::apply([this](const I&... each) { return std::tuple<I...>((each + this->position)...); }, iterators);
    }
};
template <class... I> zip_iterator<std::tuple<I...>> make_zip_iterator(std::tuple<I...> t) { return {t}; }
template <class A, class B, class... I>
zip_iterator<std::tuple<A, B, I...>> make_zip_iterator(A a, B b, I... more) { return {std::tuple<A, B, I...>(a, b, more...)}; }
template <class... I> void laptop_wrote(zip_iterator<std::tuple<I...>> a, zip_iterator<std::tuple<I...>> b) {
    std::apply([n = b - a](const I&... each) { (laptop_wrote(each, each + n), ...); }, a.get_iterator_tuple());
}
template <class F> struct zip_function {
    F function;
    template <class T> decltype(auto) operator()(T&& t) const { return std::apply(function, std::forward<T>(t)); }
};
template <class F> zip_function<F> make_zip_function(F f) { return {f}; }

struct laptop_nowhere { template <class T> const laptop_nowhere& operator=(const T&) const { return *this; } };
template <class = void> struct discard_iterator : laptop_iterator<discard_iterator<>, laptop_nowhere> {
    laptop_nowhere at(ptrdiff_t) const { return {}; }
};
inline discard_iterator<> make_discard_iterator() { return {}; }
using std::iterator_traits, std::make_reverse_iterator, std::reverse_iterator;
using random_access_traversal_tag = std::random_access_iterator_tag;
template <class I> void laptop_wrote(reverse_iterator<I> a, reverse_iterator<I> b) { laptop_wrote(b.base(), a.base()); }
template <class I> struct iterator_value { typedef typename iterator_traits<I>::value_type type; };
template <class I> struct iterator_reference { typedef typename iterator_traits<I>::reference type; };
template <class I> struct iterator_pointer { typedef typename iterator_traits<I>::pointer type; };
template <class I> struct iterator_difference { typedef typename iterator_traits<I>::difference_type type; };
}  // namespace thrust
