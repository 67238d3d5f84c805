// CUB's small types.
#pragma once
#include <cuda_runtime.h>

namespace cub {

struct NullType {};
template <class K, class V> struct KeyValuePair { K key; V value; };
// The logarithm of N to the base 2, rounded up
template <int N> struct Log2 { enum { VALUE = N <= 1 ? 0 : 1 + Log2<(N + 1) / 2>::VALUE }; };
template <> struct Log2<1> { enum { VALUE = 0 }; };

}  // namespace cub
