// CUB's small types, and the order of keys.
#pragma once
#include <cuda_runtime.h>

namespace cub {

struct NullType {};
template <class K, class V> struct KeyValuePair { K key; V value; };
// The logarithm of N to the base 2, rounded up
template <int N> struct Log2 { enum { VALUE = N <= 1 ? 0 : 1 + Log2<(N + 1) / 2>::VALUE }; };
template <> struct Log2<1> { enum { VALUE = 0 }; };

// A key as a number without sign of the same order; zeros of either sign are equal.
template <class Key> LAPTOP_QUIET unsigned long long laptop_ordered(Key key) {
    constexpr int BITS = 8 * sizeof(Key);
    unsigned long long bits = 0, sign = 1ull << (BITS - 1), all = sign | (sign - 1);
    __builtin_memcpy(&bits, (const void*)&key, sizeof(Key));
    if (std::is_integral<Key>::value) return std::is_signed<Key>::value ? bits ^ sign : bits;
    if (bits == sign) bits = 0;
    return bits & sign ? ~bits & all : bits | sign;
}
}  // namespace cub
