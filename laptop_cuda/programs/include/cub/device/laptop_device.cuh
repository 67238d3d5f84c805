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

struct DeviceReduce {
    template <class I, class O, class F, class T>
    static cudaError_t Reduce(void* s, size_t& bytes, I in, O out, int n, F f, T start, cudaStream_t = nullptr) {
        return laptop_device(s, bytes, [&] { laptop_answer(out, thrust::reduce(in, in + n, start, f)); });
    }
    template <class I, class O>
    static cudaError_t Sum(void* s, size_t& bytes, I in, O out, int n, cudaStream_t = nullptr) {
        return laptop_device(s, bytes, [&] { laptop_answer(out, thrust::reduce(in, in + n, thrust::laptop_host::laptop_value<O>())); });
    }
    template <class I, class O>
    static cudaError_t Min(void* s, size_t& bytes, I in, O out, int n, cudaStream_t = nullptr) {
        return laptop_device(s, bytes, [&] { laptop_answer(out, *std::min_element(in, in + n)); });
    }
    template <class I, class O>
    static cudaError_t Max(void* s, size_t& bytes, I in, O out, int n, cudaStream_t = nullptr) {
        return laptop_device(s, bytes, [&] { laptop_answer(out, *std::max_element(in, in + n)); });
    }
    template <class I, class O>
    static cudaError_t ArgMin(void* s, size_t& bytes, I in, O out, int n, cudaStream_t = nullptr) {
        return laptop_device(s, bytes, [&] {
            auto best = std::min_element(in, in + n);
            laptop_answer(out, thrust::laptop_host::laptop_value<O>{int(best - in), *best});
        });
    }
    template <class I, class O>
    static cudaError_t ArgMax(void* s, size_t& bytes, I in, O out, int n, cudaStream_t = nullptr) {
        return laptop_device(s, bytes, [&] {
            auto best = std::max_element(in, in + n);
            laptop_answer(out, thrust::laptop_host::laptop_value<O>{int(best - in), *best});
        });
    }
};
struct DeviceScan {
    template <class I, class O>
    static cudaError_t InclusiveSum(void* s, size_t& bytes, I in, O out, int n, cudaStream_t = nullptr) {
        return laptop_device(s, bytes, [&] { thrust::inclusive_scan(in, in + n, out); });
    }
    template <class I, class O>
    static cudaError_t ExclusiveSum(void* s, size_t& bytes, I in, O out, int n, cudaStream_t = nullptr) {
        return laptop_device(s, bytes, [&] { thrust::exclusive_scan(in, in + n, out); });
    }
    template <class I, class O, class F>
    static cudaError_t InclusiveScan(void* s, size_t& bytes, I in, O out, F f, int n, cudaStream_t = nullptr) {
        return laptop_device(s, bytes, [&] { thrust::inclusive_scan(in, in + n, out, f); });
    }
    template <class I, class O, class F, class T>
    static cudaError_t ExclusiveScan(void* s, size_t& bytes, I in, O out, F f, T start, int n, cudaStream_t = nullptr) {
        return laptop_device(s, bytes, [&] { thrust::exclusive_scan(in, in + n, out, start, f); });
    }
};
// The bits of a key that a radix sort looks at, as a number in the order of the keys.
template <class K>
struct laptop_key_bits {
    int begin, end;
    unsigned long long operator()(K key) const {
        unsigned long long bits = 0, sign = 1ull << (8 * sizeof(K) - 1);
        if (std::is_floating_point<K>::value && key == K(0)) key = K(0);          // -0 is 0
        ::memcpy(&bits, &key, sizeof(K));
        if (std::is_floating_point<K>::value) bits = bits & sign ? ~bits : bits | sign;
        else if (std::is_signed<K>::value) bits ^= sign;
        return bits >> begin & ~0ull >> (64 - (end - begin));
    }
};
struct DeviceRadixSort {
    template <class K>
    static cudaError_t SortKeys(void* s, size_t& bytes, const K* in, K* out, int n, int begin_bit = 0, int end_bit = 8 * sizeof(K),
                                cudaStream_t = nullptr) {
        return keys(s, bytes, in, out, n, {begin_bit, end_bit}, thrust::less<unsigned long long>());
    }
    template <class K>
    static cudaError_t SortKeysDescending(void* s, size_t& bytes, const K* in, K* out, int n, int begin_bit = 0,
                                          int end_bit = 8 * sizeof(K), cudaStream_t = nullptr) {
        return keys(s, bytes, in, out, n, {begin_bit, end_bit}, thrust::greater<unsigned long long>());
    }
    template <class K, class V>
    static cudaError_t SortPairs(void* s, size_t& bytes, const K* in, K* out, const V* from, V* to, int n, int begin_bit = 0,
                                 int end_bit = 8 * sizeof(K), cudaStream_t = nullptr) {
        return pairs(s, bytes, in, out, from, to, n, {begin_bit, end_bit}, thrust::less<unsigned long long>());
    }
    template <class K, class V>
    static cudaError_t SortPairsDescending(void* s, size_t& bytes, const K* in, K* out, const V* from, V* to, int n,
                                           int begin_bit = 0, int end_bit = 8 * sizeof(K), cudaStream_t = nullptr) {
        return pairs(s, bytes, in, out, from, to, n, {begin_bit, end_bit}, thrust::greater<unsigned long long>());
    }
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
        return laptop_device(s, bytes, [&] {
            thrust::copy(in, in + n, out), thrust::copy(from, from + n, to);
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
