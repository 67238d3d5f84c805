// What kernels take from torch's headers: the 16-bit types under torch's names, tensor accessors, accumulation types,
// and the parts of the C++ library that those headers include.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "laptop_library_types.h"
#ifdef LAPTOP
#define LAPTOP_TORCH LAPTOP_IN_PLACE        // what they read and write is seen, in the line of their use
#else
#define LAPTOP_TORCH __host__ __device__ inline
#endif

#define LAPTOP_TORCH_OPERATOR(name, op)                                                                                 \
    LAPTOP_TORCH name operator op(name a, name b) { return (float)a op(float) b; }                                    \
    template <class T, class Result = std::conditional_t<std::is_floating_point<T>::value, T, name>,                  \
              class = std::enable_if_t<std::is_arithmetic<T>::value>>                                                 \
    LAPTOP_TORCH Result operator op(name a, T b) { return (float)a op b; }                                            \
    template <class T, class Result = std::conditional_t<std::is_floating_point<T>::value, T, name>,                  \
              class = std::enable_if_t<std::is_arithmetic<T>::value>>                                                 \
    LAPTOP_TORCH Result operator op(T a, name b) { return a op(float) b; }                                            \
    LAPTOP_TORCH name& operator op##=(name& a, name b) { return a = (float)a op(float) b; }
#define LAPTOP_TORCH_COMPARISON(name, op) LAPTOP_TORCH bool operator op(name a, name b) { return (float)a op(float) b; }
#define LAPTOP_TORCH_NUMBER(name, native, to_bits, raised, narrow, widen)                                             \
    struct alignas(2) name {                                                                                          \
        unsigned short x;                                                                                             \
        struct from_bits_t {};                                                                                        \
        static constexpr from_bits_t from_bits() { return from_bits_t(); }                                            \
        name() = default;                                                                                             \
        LAPTOP_TORCH constexpr name(unsigned short bits, from_bits_t) : x(bits) {}                                    \
        LAPTOP_TORCH name(float value) : x(to_bits(narrow(value))) {}                                                 \
        LAPTOP_TORCH name(const native& value) : x(to_bits(value)) {}                                                 \
        LAPTOP_TORCH operator float() const { return widen(raised(x)); }                                           \
        LAPTOP_TORCH operator native() const { return raised(x); }                                                    \
        LAPTOP_TORCH name operator-() const { return -(float)*this; }                                                 \
    };                                                                                                                \
    LAPTOP_TORCH_OPERATOR(name, +)                                                                                    \
    LAPTOP_TORCH_OPERATOR(name, -)                                                                                    \
    LAPTOP_TORCH_OPERATOR(name, *)                                                                                    \
    LAPTOP_TORCH_OPERATOR(name, /)                                                                                    \
    LAPTOP_TORCH_COMPARISON(name, <)                                                                                  \
    LAPTOP_TORCH_COMPARISON(name, >)                                                                                  \
    LAPTOP_TORCH_COMPARISON(name, <=)                                                                                 \
    LAPTOP_TORCH_COMPARISON(name, >=)                                                                                 \
    LAPTOP_TORCH_COMPARISON(name, ==)                                                                                 \
    LAPTOP_TORCH_COMPARISON(name, !=)

// As in torch they are types of their own beside CUDA's: sources overload functions for both.
namespace c10 {
LAPTOP_TORCH_NUMBER(Half, __half, __half_as_ushort, __ushort_as_half, __float2half, __half2float)
LAPTOP_TORCH_NUMBER(BFloat16, __nv_bfloat16, __bfloat16_as_ushort, __ushort_as_bfloat16, __float2bfloat16,
                    __bfloat162float)

template <class T> struct alignas(2 * sizeof(T)) complex {
    T real_, imag_;
    complex() = default;
    LAPTOP_TORCH constexpr complex(T real, T imag = T()) : real_(real), imag_(imag) {}
    LAPTOP_TORCH constexpr T real() const { return real_; }
    LAPTOP_TORCH constexpr T imag() const { return imag_; }
    LAPTOP_TORCH friend complex operator+(complex a, complex b) { return {a.real_ + b.real_, a.imag_ + b.imag_}; }
    LAPTOP_TORCH friend complex operator-(complex a, complex b) { return {a.real_ - b.real_, a.imag_ - b.imag_}; }
    LAPTOP_TORCH friend complex operator*(complex a, complex b) {
        return {a.real_ * b.real_ - a.imag_ * b.imag_, a.real_ * b.imag_ + a.imag_ * b.real_};
    }
    LAPTOP_TORCH friend complex operator/(complex a, complex b) {
        T norm = b.real_ * b.real_ + b.imag_ * b.imag_;
        complex product = a * complex(b.real_, -b.imag_);
        return {product.real_ / norm, product.imag_ / norm};
    }
    LAPTOP_TORCH complex operator-() const { return {-real_, -imag_}; }
    LAPTOP_TORCH complex& operator+=(complex b) { return *this = *this + b; }
    LAPTOP_TORCH complex& operator-=(complex b) { return *this = *this - b; }
    LAPTOP_TORCH complex& operator*=(complex b) { return *this = *this * b; }
};
}  // namespace c10

// Without these the C++ library's would answer 0 for each.
#define LAPTOP_TORCH_LIMITS(name, digits_, most, normal, step)                                                        \
    template <> class std::numeric_limits<c10::name> : public std::numeric_limits<float> {                            \
        LAPTOP_TORCH static constexpr c10::name of(unsigned short bits) { return {bits, c10::name::from_bits()}; }    \
                                                                                                                      \
    public:                                                                                                           \
        static constexpr int digits = digits_;                                                                        \
        LAPTOP_TORCH static constexpr c10::name max() { return of(most); }                                            \
        LAPTOP_TORCH static constexpr c10::name lowest() { return of(0x8000 | most); }                                \
        LAPTOP_TORCH static constexpr c10::name infinity() { return of(most + 1); }                                   \
        LAPTOP_TORCH static constexpr c10::name quiet_NaN() { return of(most + 1 + normal / 2); }                     \
        LAPTOP_TORCH static constexpr c10::name min() { return of(normal); }                                          \
        LAPTOP_TORCH static constexpr c10::name denorm_min() { return of(1); }                                        \
        LAPTOP_TORCH static constexpr c10::name epsilon() { return of(step); }                                        \
    };
LAPTOP_TORCH_LIMITS(Half, 11, 0x7bff, 0x0400, 0x1400)
LAPTOP_TORCH_LIMITS(BFloat16, 8, 0x7f7f, 0x0080, 0x3c00)
#undef LAPTOP_TORCH_LIMITS
#define LAPTOP_TORCH_COMPLEX(Result, name, value) \
    template <class T> LAPTOP_TORCH Result name(c10::complex<T> z) { return value; }
namespace std {
LAPTOP_TORCH_COMPLEX(T, real, z.real_) LAPTOP_TORCH_COMPLEX(T, imag, z.imag_)
LAPTOP_TORCH_COMPLEX(T, norm, z.real_ * z.real_ + z.imag_ * z.imag_)
LAPTOP_TORCH_COMPLEX(T, abs, ::hypot(z.real_, z.imag_))
LAPTOP_TORCH_COMPLEX(c10::complex<T>, conj, (c10::complex<T>{z.real_, -z.imag_}))
LAPTOP_TORCH_COMPLEX(c10::complex<T>, exp, (c10::complex<T>{::exp(z.real_) * ::cos(z.imag_), ::exp(z.real_) * ::sin(z.imag_)}))
}  // namespace std
#undef LAPTOP_TORCH_COMPLEX
#undef LAPTOP_TORCH_OPERATOR
#undef LAPTOP_TORCH_COMPARISON
#undef LAPTOP_TORCH_NUMBER

namespace c10 {               // of host classes, which sources tell apart
template <class T> struct intrusive_ptr : std::shared_ptr<T> { using std::shared_ptr<T>::shared_ptr; };
template <class T> struct List : std::vector<T> {};
}  // namespace c10
namespace at {
struct SymIntArrayRef {};
struct TensorList {};
using c10::BFloat16;
using c10::Half;
using std::nullopt;
using std::optional;

template <typename T> struct DefaultPtrTraits { typedef T* PtrType; };
template <typename T> struct RestrictPtrTraits { typedef T* __restrict__ PtrType; };

template <typename T, size_t N, template <typename> class Traits = DefaultPtrTraits, typename index_t = int64_t>
class TensorAccessor {
public:
    typedef typename Traits<T>::PtrType PtrType;
    LAPTOP_TORCH TensorAccessor(PtrType data, const index_t* sizes, const index_t* strides)
        : data_(data), sizes_(sizes), strides_(strides) {}
    LAPTOP_TORCH decltype(auto) operator[](index_t i) const {
        if constexpr (N == 1) return (data_[strides_[0] * i]);
        else return TensorAccessor<T, N - 1, Traits, index_t>(data_ + strides_[0] * i, sizes_ + 1, strides_ + 1);
    }
    LAPTOP_TORCH index_t size(index_t i) const { return sizes_[i]; }
    LAPTOP_TORCH index_t stride(index_t i) const { return strides_[i]; }
    LAPTOP_TORCH PtrType data() const { return data_; }

protected:
    PtrType data_;
    const index_t *sizes_, *strides_;
};

template <typename T, size_t N, template <typename> class Traits = DefaultPtrTraits, typename index_t = int64_t>
class GenericPackedTensorAccessor;

// A member of host classes. Its functions are named by constructors of structs that kernels take; none is called here.
struct Tensor {
    template <typename T> T* data_ptr() const;
    template <typename T> T* data() const;
    template <typename T> T* mutable_data_ptr() const;
    template <typename T> const T* const_data_ptr() const;
    template <typename T, size_t N, template <typename> class Traits = DefaultPtrTraits>
    GenericPackedTensorAccessor<T, N, Traits, int32_t> packed_accessor32() const;
    template <typename T, size_t N, template <typename> class Traits = DefaultPtrTraits>
    GenericPackedTensorAccessor<T, N, Traits, int64_t> packed_accessor64() const;
    int64_t size(int64_t d) const;
    int64_t stride(int64_t d) const;
    int64_t dim() const;
    int64_t numel() const;
    bool defined() const;
};

// Python fills it: see arguments/held.py
template <typename T, size_t N, template <typename> class Traits, typename index_t>
class GenericPackedTensorAccessor {
public:
    typedef typename Traits<T>::PtrType PtrType;
    LAPTOP_TORCH decltype(auto) operator[](index_t i) const {
        return TensorAccessor<T, N, Traits, index_t>(data_, sizes_, strides_)[i];
    }
    LAPTOP_TORCH index_t size(index_t i) const { return sizes_[i]; }
    LAPTOP_TORCH index_t stride(index_t i) const { return strides_[i]; }
    LAPTOP_TORCH PtrType data() const { return data_; }

protected:
    PtrType data_;
    index_t sizes_[N], strides_[N];
};
template <typename T, size_t N, template <typename> class Traits = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, Traits, int32_t>;
template <typename T, size_t N, template <typename> class Traits = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, Traits, int64_t>;
template <typename T, size_t N, template <typename> class Traits = DefaultPtrTraits, typename index_t = int64_t>
using PackedTensorAccessor = GenericPackedTensorAccessor<T, N, Traits, index_t>;

template <typename T> struct scalar_value_type { using type = T; };
template <typename T> struct scalar_value_type<c10::complex<T>> { using type = T; };

// of integers the bounds are the extremes, of floating point numbers the infinities
template <typename T> struct numeric_limits {
    using Std = std::numeric_limits<T>;
    LAPTOP_TORCH static constexpr T lowest() { return Std::lowest(); }
    LAPTOP_TORCH static constexpr T max() { return Std::max(); }
    LAPTOP_TORCH static constexpr T lower_bound() {
        if constexpr (Std::has_infinity) return -Std::infinity();
        else return Std::lowest();
    }
    LAPTOP_TORCH static constexpr T upper_bound() { return Std::has_infinity ? Std::infinity() : Std::max(); }
};

// From Python: the bytes of this struct.
struct PhiloxCudaState {
    union Payload { uint64_t val; int64_t* ptr; } seed_, offset_;
    uint32_t offset_intragraph_;
    bool captured_;
};

template <typename T> struct OpMathType { using type = T; };
template <> struct OpMathType<Half> { using type = float; };
template <> struct OpMathType<BFloat16> { using type = float; };
template <typename T> using opmath_type = typename OpMathType<T>::type;
template <typename T, bool device> struct AccumulateType : OpMathType<T> {};
template <bool device> struct AccumulateType<int, device> { using type = int64_t; };
template <typename T, bool device> using acc_type = typename AccumulateType<T, device>::type;

namespace native::cuda_utils {
template <typename T> LAPTOP_TORCH T WarpReduceSum(T value) {
    for (int by = 16; by > 0; by >>= 1) value += __shfl_down_sync(0xffffffffu, value, by);
    return value;
}
// The sum over a one-dimensional block, in its first thread; `shared` has a place for each warp.
template <typename T> LAPTOP_TORCH T BlockReduceSum(T value, T* shared) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    value = WarpReduceSum(value);
    __syncthreads();                     // one call may follow another
    if (lane == 0) shared[warp] = value;
    __syncthreads();
    value = threadIdx.x < blockDim.x / 32 ? shared[lane] : T(0);
    return warp == 0 ? WarpReduceSum(value) : value;
}
}  // namespace native::cuda_utils

namespace cuda {
namespace philox {
LAPTOP_TORCH std::tuple<uint64_t, uint64_t> unpack(PhiloxCudaState state) {
    if (state.captured_) return {*state.seed_.ptr, *state.offset_.ptr + state.offset_intragraph_};
    return {state.seed_.val, state.offset_.val};
}
}  // namespace philox
namespace detail {
// an array of any number of dimensions; from Python: the bytes of this struct
template <typename T, typename index_t> struct TensorInfo {
    T* data;
    index_t sizes[25], strides[25];
    int dims;
    bool is_contiguous;
};
template <typename T, typename index_t, int dims> struct IndexToOffset {
    LAPTOP_TORCH static index_t get(index_t linear, const TensorInfo<T, index_t>& info) {
        index_t offset = 0;
        for (int d = (dims > 0 ? dims : info.dims) - 1; d > 0; --d) {
            offset += linear % info.sizes[d] * info.strides[d];
            linear /= info.sizes[d];
        }
        return offset + linear * info.strides[0];
    }
};
}  // namespace detail
}  // namespace cuda
}  // namespace at
namespace torch {
using namespace at;
struct CustomClassHolder {};
}  // namespace torch
namespace pybind11 {}        // sources rename it

template <typename T> LAPTOP_TORCH T gpuAtomicAdd(T* to, T value) { return atomicAdd(to, value); }
LAPTOP_TORCH c10::Half gpuAtomicAdd(c10::Half* to, c10::Half value) { return atomicAdd((__half*)to, (__half)value); }
LAPTOP_TORCH c10::BFloat16 gpuAtomicAdd(c10::BFloat16* to, c10::BFloat16 value) {
    return atomicAdd((__nv_bfloat16*)to, (__nv_bfloat16)value);
}
template <typename T> LAPTOP_TORCH void gpuAtomicAddNoReturn(T* to, T value) { gpuAtomicAdd(to, value); }

// By 64-bit indices, as torch's own: `n` may be near the largest int.
#define CUDA_KERNEL_LOOP_TYPE(i, n, index_type)                                                                       \
    int64_t laptop_at_##i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;                                           \
    for (index_type i = laptop_at_##i; laptop_at_##i < (n); laptop_at_##i += blockDim.x * gridDim.x, i = laptop_at_##i)
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int)
template <typename T> LAPTOP_TORCH constexpr T div_rtn(T a, T b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }
namespace at {
template <typename T> LAPTOP_TORCH constexpr T ceil_div(T a, T b) { return (a + b - 1) / b; }
namespace native {
template <typename T, typename index_t>
LAPTOP_TORCH void fastAtomicAdd(T* to, index_t i, index_t, T value, bool) { gpuAtomicAdd(to + i, value); }
}  // namespace native
namespace cuda {
template <typename T> LAPTOP_TORCH constexpr T ATenCeilDiv(T a, T b) { return (a + b - 1) / b; }
}  // namespace cuda
}  // namespace at
namespace torch::headeronly { using at::native::fastAtomicAdd; }

#define C10_HOST_DEVICE __host__ __device__
#define C10_DEVICE __device__
#define C10_HOST __host__
#define C10_LAUNCH_BOUNDS_0
#define C10_LAUNCH_BOUNDS_1(most) __launch_bounds__(most)
#define C10_LAUNCH_BOUNDS_2(most, blocks) __launch_bounds__(most, blocks)
#define C10_RESTRICT __restrict
#define C10_WARP_SIZE 32
