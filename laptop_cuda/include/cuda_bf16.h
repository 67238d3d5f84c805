// bfloat16 and its pair on a laptop: the upper half of a float, rounded once, to nearest even.
// Two bytes in memory, four for the pair, and that is how the tracer sees their loads and stores.
#pragma once
#include <type_traits>

#include "cuda_runtime.h"
#include "soft_float.h"

struct __nv_bfloat16_raw { unsigned short x; };
struct alignas(4) __nv_bfloat162_raw { unsigned short x, y; };

struct alignas(2) __nv_bfloat16 {
    unsigned short __x;

    LAPTOP_INLINE __nv_bfloat16() = default;
#ifndef LAPTOP_UNIONS
    // Copies are spelt out because g++ and clang hook neither a struct argument read from memory nor a struct result
    // written to it, unless a constructor does it.
    LAPTOP_IN_PLACE __nv_bfloat16(const __nv_bfloat16& other) : __x(other.__x) {}
    LAPTOP_IN_PLACE __nv_bfloat16& operator=(const __nv_bfloat16& other) { return __x = other.__x, *this; }
#endif
    LAPTOP_QUIET __nv_bfloat16(__nv_bfloat16_raw raw) : __x(raw.x) {}
    LAPTOP_QUIET __nv_bfloat16(float value) : __x(laptop::bfloat16::narrow(value)) {}
    LAPTOP_QUIET __nv_bfloat16(double value) : __x(laptop::narrow<laptop::bfloat16>(value)) {}
    template <class Integer, class = std::enable_if_t<std::is_integral<Integer>::value>>
    LAPTOP_QUIET __nv_bfloat16(Integer value) : __x(laptop_integer(value)) {}

    LAPTOP_IN_PLACE operator float() const { return laptop::bfloat16::widen(__x); }
    LAPTOP_IN_PLACE operator __nv_bfloat16_raw() const { return __nv_bfloat16_raw{__x}; }

    LAPTOP_QUIET unsigned short laptop_bits() const { return __x; }
    LAPTOP_QUIET static __nv_bfloat16 laptop_from(unsigned bits) {
        __nv_bfloat16 result;
        result.__x = (unsigned short)bits;
        return result;
    }
    template <class Integer> LAPTOP_QUIET static unsigned short laptop_integer(Integer value) {
        using Wide = std::conditional_t<std::is_signed<Integer>::value, long long, unsigned long long>;
        return laptop::narrow<laptop::bfloat16>(laptop::integer_to_odd(Wide(value)));
    }
};

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;

    LAPTOP_INLINE __nv_bfloat162() = default;
#ifndef LAPTOP_UNIONS
    LAPTOP_IN_PLACE __nv_bfloat162(const __nv_bfloat162& other) { *(uint32_t*)this = *(const uint32_t*)&other; }
    LAPTOP_IN_PLACE __nv_bfloat162& operator=(const __nv_bfloat162& other) { return *(uint32_t*)this = *(const uint32_t*)&other, *this; }
#endif
    LAPTOP_QUIET __nv_bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) : x(low), y(high) {}
    LAPTOP_QUIET __nv_bfloat162(__nv_bfloat162_raw raw) : x(__nv_bfloat16_raw{raw.x}), y(__nv_bfloat16_raw{raw.y}) {}
    LAPTOP_IN_PLACE operator __nv_bfloat162_raw() const { return __nv_bfloat162_raw{x.__x, y.__x}; }
};

using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

#define LAPTOP_SCALAR __nv_bfloat16
#define LAPTOP_PAIR __nv_bfloat162
#define LAPTOP_FORMAT laptop::bfloat16
#define LAPTOP_NAMED(before, after) before##bfloat16##after
#include "half_operations.h"

LAPTOP_FN __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return {a, a}; }

#define CUDART_INF_BF16 __ushort_as_bfloat16(0x7F80u)
#define CUDART_NAN_BF16 __ushort_as_bfloat16(0x7FFFu)
#define CUDART_MIN_DENORM_BF16 __ushort_as_bfloat16(0x0001u)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16(0x7F7Fu)
#define CUDART_NEG_ZERO_BF16 __ushort_as_bfloat16(0x8000u)
#define CUDART_ZERO_BF16 __ushort_as_bfloat16(0x0000u)
#define CUDART_ONE_BF16 __ushort_as_bfloat16(0x3F80u)
