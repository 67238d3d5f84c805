// The bits of the two 16-bit floats: exact conversions to and from float and double, in plain integer arithmetic.
// cuda_fp16.h and cuda_bf16.h build their types on these. Everything here is LAPTOP_QUIET: it reads no memory of a
// kernel, and lanes that round differently must not look divergent to the tracer. So it calls builtins, never the C++
// library, whose inline functions have hooks.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "engine.h"

// A member that reads or writes *this is inlined even at -O0: the access then belongs to the kernel's own code.
#define LAPTOP_IN_PLACE __attribute__((always_inline)) inline

namespace laptop {

enum class rounding { nearest, zero, down, up };

LAPTOP_FN uint32_t bits_of(float value) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, 4);
    return bits;
}

LAPTOP_FN float float_of(uint32_t bits) {
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
}

// Round a double to `digits` significant bits, but never finer than 2^finest. The result is exact in double.
LAPTOP_FN double round_to(double value, int digits, int finest, rounding mode) {
    if (value == 0 || !__builtin_isfinite(value)) return value;
    int exponent;
    __builtin_frexp(value, &exponent);                        // |value| in [2^(exponent-1), 2^exponent)
    int unit = exponent - digits > finest ? exponent - digits : finest;
    double scaled = __builtin_ldexp(value, -unit);            // exact: a power of two; |scaled| < 2^53
    double down = __builtin_floor(scaled), rest = scaled - down, rounded = down;
    if (mode == rounding::nearest)
        rounded = rest > 0.5 || (rest == 0.5 && __builtin_fmod(down, 2.0) != 0) ? down + 1 : down;
    else if (mode == rounding::up)
        rounded = rest > 0 ? down + 1 : down;
    else if (mode == rounding::zero && value < 0)
        rounded = rest > 0 ? down + 1 : down;
    return __builtin_copysign(__builtin_ldexp(rounded, unit), value);
}

// a + b in double, rounded to odd: a later rounding to fewer digits then gives what one rounding would have given.
LAPTOP_FN double add_to_odd(double a, double b) {
    double sum = a + b;
    if (!__builtin_isfinite(sum)) return sum;
    double part = sum - a, error = (a - (sum - part)) + (b - part);
    if (error == 0) return sum;
    uint64_t bits;
    __builtin_memcpy(&bits, &sum, 8);
    if (bits & 1) return sum;
    bits += (error > 0) == (sum > 0) ? 1 : -1;
    __builtin_memcpy(&sum, &bits, 8);
    return sum;
}

// A 64-bit integer as a double, rounded to odd for the same reason.
LAPTOP_FN double integer_to_odd(unsigned long long value) {
    if (value >> 53) value = ((value >> 11) | ((value & 0x7ff) != 0)) << 11;
    return double(value);
}
LAPTOP_FN double integer_to_odd(long long value) {
    return value < 0 ? -integer_to_odd(0ull - (unsigned long long)value) : integer_to_odd((unsigned long long)value);
}

// IEEE binary16: 1 sign, 5 exponent, 10 mantissa bits; 65504 is the largest, 2^-24 the smallest.
struct binary16 {
    static constexpr int digits = 11, finest = -24;
    static constexpr double largest = 65504.0;
    static constexpr uint16_t infinity = 0x7c00, nan = 0x7fff, largest_bits = 0x7bff, one = 0x3c00;

    LAPTOP_QUIET static float widen(uint16_t half) {
        uint32_t sign = uint32_t(half & 0x8000) << 16, rest = half & 0x7fff;
        if (rest >= 0x7c00) return float_of(sign | 0x7f800000 | (rest & 0x3ff) << 13);
        if (rest < 0x400) return float_of(sign | bits_of(float(rest) * 0x1p-24f));     // subnormal: rest * 2^-24
        return float_of(sign | ((rest << 13) + (112u << 23)));                          // bias 15 becomes 127
    }

    LAPTOP_QUIET static uint16_t narrow(float value) {
        uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
        if (rest > 0x7f800000) return nan;
        if (rest >= 0x477ff000) return uint16_t(sign | infinity);                       // 65520 and above
        if (rest < 0x38800000)                                                          // below 2^-14: adding 1/2,
            return uint16_t(sign | (bits_of(float_of(rest) + 0.5f) - 0x3f000000));      // whose unit is 2^-24, rounds
        return uint16_t(sign | (rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13);
    }
};

// bfloat16: the upper half of a float.
struct bfloat16 {
    static constexpr int digits = 8, finest = -133;
    static constexpr double largest = 0x1.fep127;
    static constexpr uint16_t infinity = 0x7f80, nan = 0x7fff, largest_bits = 0x7f7f, one = 0x3f80;

    LAPTOP_QUIET static float widen(uint16_t half) { return float_of(uint32_t(half) << 16); }

    LAPTOP_QUIET static uint16_t narrow(float value) {
        uint32_t bits = bits_of(value);
        if ((bits & 0x7fffffff) > 0x7f800000) return nan;
        return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
};

// Any double, in any direction.
template <class Format> LAPTOP_FN uint16_t narrow(double value, rounding mode = rounding::nearest) {
    double rounded = round_to(value, Format::digits, Format::finest, mode);
    bool towards_zero = mode == rounding::zero || (mode == rounding::down && value > 0) ||
                        (mode == rounding::up && value < 0);
    if (__builtin_isfinite(value) && __builtin_fabs(rounded) > Format::largest)
        return uint16_t((towards_zero ? Format::largest_bits : Format::infinity) | (value < 0 ? 0x8000 : 0));
    return Format::narrow(float(rounded));               // exact by now
}

template <class Format> LAPTOP_FN uint16_t fused_multiply_add(float a, float b, float c) {
    double product = double(a) * double(b);              // exact: at most 22 bits
    double sum = add_to_odd(product, double(c));
    return narrow<Format>(sum);
}

// What the hardware's float-to-integer conversions do: saturate, and NaN is 0.
template <class Integer> LAPTOP_FN Integer to_integer(double value, rounding mode) {
    if (__builtin_isnan(value)) return 0;
    double whole = mode == rounding::nearest ? __builtin_nearbyint(value)
                 : mode == rounding::down    ? __builtin_floor(value)
                 : mode == rounding::up      ? __builtin_ceil(value)
                                             : __builtin_trunc(value);
    constexpr Integer lowest = Integer(-1) < 0 ? Integer(1ull << (8 * sizeof(Integer) - 1)) : Integer(0);
    constexpr Integer highest = Integer(~lowest);
    if (whole <= double(lowest)) return lowest;
    if (whole >= double(highest)) return highest;
    return Integer(whole);
}
}  // namespace laptop
