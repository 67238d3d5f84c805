// half and half2 on a laptop: every operation rounds once, to nearest even, subnormals, infinities and NaN included.
// A half is two bytes in memory and a half2 four, and that is how the tracer sees their loads and stores.
#pragma once
#include <type_traits>

#include "cuda_runtime.h"
#include "soft_float.h"

struct __half_raw { unsigned short x; };
struct alignas(4) __half2_raw { unsigned short x, y; };

struct alignas(2) __half {
    unsigned short __x;

    LAPTOP_INLINE __half() = default;
#ifndef LAPTOP_UNIONS
    // Copies are spelt out because g++ and clang hook neither a struct argument read from memory nor a struct result
    // written to it, unless a constructor does it.
    LAPTOP_IN_PLACE __half(const __half& other) : __x(other.__x) {}
    LAPTOP_IN_PLACE __half& operator=(const __half& other) { return __x = other.__x, *this; }
#endif
    LAPTOP_QUIET __half(__half_raw raw) : __x(raw.x) {}
    LAPTOP_QUIET __half(float value) : __x(laptop::binary16::narrow(value)) {}
    LAPTOP_QUIET __half(double value) : __x(laptop::narrow<laptop::binary16>(value)) {}
    template <class Integer, class = std::enable_if_t<std::is_integral<Integer>::value>>
    LAPTOP_QUIET __half(Integer value) : __x(laptop_integer(value)) {}

    LAPTOP_IN_PLACE operator float() const { return laptop::binary16::widen(__x); }
    LAPTOP_IN_PLACE operator __half_raw() const { return __half_raw{__x}; }

    LAPTOP_QUIET unsigned short laptop_bits() const { return __x; }
    LAPTOP_QUIET static __half laptop_from(unsigned bits) {
        __half result;
        result.__x = (unsigned short)bits;
        return result;
    }
    template <class Integer> LAPTOP_QUIET static unsigned short laptop_integer(Integer value) {
        using Wide = std::conditional_t<std::is_signed<Integer>::value, long long, unsigned long long>;
        return laptop::narrow<laptop::binary16>(laptop::integer_to_odd(Wide(value)));
    }
};

struct alignas(4) __half2 {
    __half x, y;

    LAPTOP_INLINE __half2() = default;
#ifndef LAPTOP_UNIONS
    LAPTOP_IN_PLACE __half2(const __half2& other) { *(uint32_t*)this = *(const uint32_t*)&other; }
    LAPTOP_IN_PLACE __half2& operator=(const __half2& other) { return *(uint32_t*)this = *(const uint32_t*)&other, *this; }
#endif
    LAPTOP_QUIET __half2(__half low, __half high) : x(low), y(high) {}
    LAPTOP_QUIET __half2(__half2_raw raw) : x(__half_raw{raw.x}), y(__half_raw{raw.y}) {}
    LAPTOP_IN_PLACE operator __half2_raw() const { return __half2_raw{x.__x, y.__x}; }
};

using half = __half;
using half2 = __half2;
using __nv_half = __half;
using __nv_half2 = __half2;
using nv_half = __half;
using nv_half2 = __half2;

#define LAPTOP_SCALAR __half
#define LAPTOP_PAIR __half2
#define LAPTOP_FORMAT laptop::binary16
#define LAPTOP_NAMED(before, after) before##half##after
#include "half_operations.h"

LAPTOP_FN __half2 __half2half2(__half a) { return {a, a}; }

#define CUDART_INF_FP16 __ushort_as_half(0x7C00u)
#define CUDART_NAN_FP16 __ushort_as_half(0x7FFFu)
#define CUDART_MIN_DENORM_FP16 __ushort_as_half(0x0001u)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half(0x7BFFu)
#define CUDART_NEG_ZERO_FP16 __ushort_as_half(0x8000u)
#define CUDART_ZERO_FP16 __ushort_as_half(0x0000u)
#define CUDART_ONE_FP16 __ushort_as_half(0x3C00u)
