// CUB's algorithms of the whole device, in host code: right results, neither counted nor checked. As in CUB, a call
// without temporary storage only says how much it needs.
#pragma once
#include "../../thrust/laptop_algorithms.h"
#include "../block/block_scan.cuh"
#include "../util_type.cuh"

namespace cub {

template <class T> using CountingInputIterator = thrust::counting_iterator<T>;
template <class T> using ConstantInputIterator = thrust::constant_iterator<T>;
template <class T, class F, class I> using TransformInputIterator = thrust::transform_iterator<F, I, T>;
template <class T> struct DoubleBuffer {
    T* d_buffers[2];
    int selector = 0;
    DoubleBuffer(T* current, T* alternate) : d_buffers{current, alternate} {}
    T* Current() { return d_buffers[selector]; }
    T* Alternate() { return d_buffers[!selector]; }
};

template <class F> cudaError_t laptop_device(void* storage, size_t& bytes, F work) {
    if (!storage) return bytes = 256, cudaSuccess;
    laptop::AsDevice as;
    work();
    return laptop::answer(cudaSuccess);
}
template <class O, class T>
void laptop_answer(O out, const T& value) { *out = value, thrust::laptop_wrote(out, out + 1); }

// An algorithm over `n` items from `in`, whose answer goes to `out`.
#define LAPTOP_DEVICE(name, work)                                                                             \
    template <class I, class O>                                                                               \
    static cudaError_t name(void* s, size_t& bytes, I in, O out, int n, cudaStream_t = nullptr) {             \
        return laptop_device(s, bytes, [&] { work; });                                                        \
    }
template <class O> using laptop_of = thrust::laptop_host::laptop_value<O>;
template <class O, class I> laptop_of<O> laptop_place(I in, I best) { return {int(best - in), *best}; }

struct DeviceReduce {
    template <class I, class O, class F, class T>
    static cudaError_t Reduce(void* s, size_t& bytes, I in, O out, int n, F f, T start, cudaStream_t = nullptr) {
        return laptop_device(s, bytes, [&] { laptop_answer(out, thrust::reduce(in, in + n, start, f)); });
    }
    LAPTOP_DEVICE(Sum, laptop_answer(out, thrust::reduce(in, in + n, laptop_of<O>())))
    LAPTOP_DEVICE(Min, laptop_answer(out, *std::min_element(in, in + n)))
    LAPTOP_DEVICE(Max, laptop_answer(out, *std::max_element(in, in + n)))
    LAPTOP_DEVICE(ArgMin, laptop_answer(out, laptop_place<O>(in, std::min_element(in, in + n))))
    LAPTOP_DEVICE(ArgMax, laptop_answer(out, laptop_place<O>(in, std::max_element(in, in + n))))
};
struct DeviceScan {
    LAPTOP_DEVICE(InclusiveSum, thrust::inclusive_scan(in, in + n, out))
    LAPTOP_DEVICE(ExclusiveSum, thrust::exclusive_scan(in, in + n, out))
    template <class I, class O, class F>
    static cudaError_t InclusiveScan(void* s, size_t& bytes, I in, O out, F f, int n, cudaStream_t = nullptr) {
        return laptop_device(s, bytes, [&] { thrust::inclusive_scan(in, in + n, out, f); });
    }
    template <class I, class O, class F, class T>
    static cudaError_t ExclusiveScan(void* s, size_t& bytes, I in, O out, F f, T start, int n, cudaStream_t = nullptr) {
        return laptop_device(s, bytes, [&] { thrust::exclusive_scan(in, in + n, out, start, f); });
    }
};
#undef LAPTOP_DEVICE
// The bits of a key that a radix sort looks at, as a number in the order of the keys.
template <class K> struct laptop_key_bits {
    int begin, end;
    unsigned long long operator()(K key) const { return laptop_ordered(key) >> begin & ~0ull >> (64 - (end - begin)); }
};
struct DeviceRadixSort {
#define LAPTOP_SORTS(name, order)                                                                             \
    template <class K>                                                                                        \
    static cudaError_t SortKeys##name(void* s, size_t& bytes, const K* in, K* out, int n, int begin_bit = 0,  \
                                      int end_bit = 8 * sizeof(K), cudaStream_t = nullptr) {                  \
        return keys(s, bytes, in, out, n, {begin_bit, end_bit}, thrust::order<>());                           \
    }                                                                                                         \
    template <class K, class V>                                                                               \
    static cudaError_t SortPairs##name(void* s, size_t& bytes, const K* in, K* out, const V* from, V* to, int n, \
                                       int begin_bit = 0, int end_bit = 8 * sizeof(K), cudaStream_t = nullptr) { \
        return pairs(s, bytes, in, out, from, to, n, {begin_bit, end_bit}, thrust::order<>());                \
    }
    LAPTOP_SORTS(, less) LAPTOP_SORTS(Descending, greater)
#undef LAPTOP_SORTS
    template <class K>
    static cudaError_t SortKeys(void* s, size_t& bytes, DoubleBuffer<K>& of, int n, int begin_bit = 0, int end_bit = 8 * sizeof(K),
                                cudaStream_t stream = nullptr) {
        if (s) of.selector ^= 1;
        return SortKeys(s, bytes, of.Alternate(), of.Current(), n, begin_bit, end_bit, stream);
    }
    template <class K, class V>
    static cudaError_t SortPairs(void* s, size_t& bytes, DoubleBuffer<K>& of, DoubleBuffer<V>& with, int n, int begin_bit = 0,
                                 int end_bit = 8 * sizeof(K), cudaStream_t stream = nullptr) {
        if (s) of.selector ^= 1, with.selector ^= 1;
        return SortPairs(s, bytes, of.Alternate(), of.Current(), with.Alternate(), with.Current(), n, begin_bit, end_bit, stream);
    }

private:
    template <class K, class F>
    static cudaError_t keys(void* s, size_t& bytes, const K* in, K* out, int n, laptop_key_bits<K> of, F f) {
        return laptop_device(s, bytes, [&] {
            thrust::copy(in, in + n, out), thrust::sort(out, out + n, [&](K a, K b) { return f(of(a), of(b)); });
        });
    }
    template <class K, class V, class F>
    static cudaError_t pairs(void* s, size_t& bytes, const K* in, K* out, const V* from, V* to, int n, laptop_key_bits<K> of, F f) {
        return laptop_device(s, bytes, [&] { thrust::copy(in, in + n, out), thrust::copy(from, from + n, to);
            thrust::sort_by_key(out, out + n, to, [&](K a, K b) { return f(of(a), of(b)); });
        });
    }
};
struct DeviceSelect {
    template <class I, class O, class N, class F>
    static cudaError_t If(void* s, size_t& bytes, I in, O out, N count, int n, F f, cudaStream_t = nullptr) {
        return laptop_device(s, bytes, [&] { laptop_answer(count, thrust::copy_if(in, in + n, out, f) - out); });
    }
    template <class I, class M, class O, class N>
    static cudaError_t Flagged(void* s, size_t& bytes, I in, M flags, O out, N count, int n, cudaStream_t = nullptr) {
        return laptop_device(s, bytes, [&] { laptop_answer(count, thrust::copy_if(in, in + n, flags, out, thrust::identity<>()) - out); });
    }
    template <class I, class O, class N>
    static cudaError_t Unique(void* s, size_t& bytes, I in, O out, N count, int n, cudaStream_t = nullptr) {
        return laptop_device(s, bytes, [&] { laptop_answer(count, thrust::unique_copy(in, in + n, out) - out); });
    }
};
}  // namespace cub
