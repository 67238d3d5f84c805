// Thrust's iterators that compute: counting, constant, transform, permutation, zip, discard.
#pragma once
#include "laptop_vectors.h"

namespace thrust {

// An iterator is a position and a function of it; `Self::at(i)` gives the element i further on.
template <class Self, class Value, class Reference = Value>
struct laptop_iterator {
    typedef std::random_access_iterator_tag iterator_category;
    typedef Value value_type;
    typedef ptrdiff_t difference_type;
    typedef void pointer;
    typedef Reference reference;
    ptrdiff_t position = 0;
    Reference operator*() const { return self().at(position); }
    Reference operator[](ptrdiff_t i) const { return self().at(position + i); }
    Self& operator+=(ptrdiff_t n) { return position += n, self(); }
    Self& operator-=(ptrdiff_t n) { return position -= n, self(); }
    Self& operator++() { return ++position, self(); }
    Self& operator--() { return --position, self(); }
    Self operator++(int) { Self old = self(); ++position; return old; }
    Self operator--(int) { Self old = self(); --position; return old; }
    friend Self operator+(Self a, ptrdiff_t n) { return a += n; }
    friend Self operator+(ptrdiff_t n, Self a) { return a += n; }
    friend Self operator-(Self a, ptrdiff_t n) { return a -= n; }
    friend ptrdiff_t operator-(const Self& a, const Self& b) { return a.position - b.position + a.from(b); }
    friend bool operator==(const Self& a, const Self& b) { return a - b == 0; }
    friend bool operator!=(const Self& a, const Self& b) { return a - b != 0; }
    friend bool operator<(const Self& a, const Self& b) { return a - b < 0; }
    ptrdiff_t from(const Self&) const { return 0; }

private:
    Self& self() { return *static_cast<Self*>(this); }
    const Self& self() const { return *static_cast<const Self*>(this); }
};

template <class T>
struct counting_iterator : laptop_iterator<counting_iterator<T>, T> {
    T first{};
    counting_iterator() = default;
    explicit counting_iterator(T first) : first(first) {}
    T at(ptrdiff_t i) const { return T(first + i); }
    ptrdiff_t from(const counting_iterator& other) const { return ptrdiff_t(first) - ptrdiff_t(other.first); }
};
template <class T> counting_iterator<T> make_counting_iterator(T first) { return counting_iterator<T>(first); }

template <class T>
struct constant_iterator : laptop_iterator<constant_iterator<T>, T> {
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

template <class E, class I>
struct permutation_iterator
    : laptop_iterator<permutation_iterator<E, I>, typename std::iterator_traits<E>::value_type,
                      typename std::iterator_traits<E>::reference> {
    E elements;
    I indices;
    permutation_iterator(E elements, I indices) : elements(elements), indices(indices) {}
    typename std::iterator_traits<E>::reference at(ptrdiff_t i) const { return elements[indices[i]]; }
    ptrdiff_t from(const permutation_iterator& other) const { return indices - other.indices; }
};
template <class E, class I> permutation_iterator<E, I> make_permutation_iterator(E e, I i) { return {e, i}; }

template <class Tuple> struct zip_iterator;
template <class... I>
struct zip_iterator<std::tuple<I...>>
    : laptop_iterator<zip_iterator<std::tuple<I...>>, std::tuple<typename std::iterator_traits<I>::value_type...>,
                      std::tuple<typename std::iterator_traits<I>::reference...>> {
    std::tuple<I...> iterators;
    zip_iterator(std::tuple<I...> iterators) : iterators(iterators) {}
    std::tuple<typename std::iterator_traits<I>::reference...> at(ptrdiff_t n) const {
        return std::apply([n](const I&... each) { return std::tuple<typename std::iterator_traits<I>::reference...>(each[n]...); },
                          iterators);
    }
    ptrdiff_t from(const zip_iterator& other) const { return std::get<0>(iterators) - std::get<0>(other.iterators); }
    std::tuple<I...> get_iterator_tuple() const { return iterators; }
};
template <class... I> zip_iterator<std::tuple<I...>> make_zip_iterator(std::tuple<I...> t) { return {t}; }
template <class A, class B, class... I>
zip_iterator<std::tuple<A, B, I...>> make_zip_iterator(A a, B b, I... more) { return {std::tuple<A, B, I...>(a, b, more...)}; }

struct laptop_nowhere { template <class T> const laptop_nowhere& operator=(const T&) const { return *this; } };
template <class = void>
struct discard_iterator : laptop_iterator<discard_iterator<>, laptop_nowhere> {
    laptop_nowhere at(ptrdiff_t) const { return {}; }
};
inline discard_iterator<> make_discard_iterator() { return {}; }
using std::make_reverse_iterator;
using std::reverse_iterator;

}  // namespace thrust
