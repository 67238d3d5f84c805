// The 8-bit floats e4m3 (largest 448, no infinities) and e5m2 (largest 57344): conversions round once, to nearest even,
// and saturate where CUDA's do. There is no arithmetic in these types; kernels convert to half or float first.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned int __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

namespace laptop {

struct Format8 { int mantissa, bias, digits, finest; double largest; unsigned char nan, infinity, largest_bits; };
constexpr int E2M1 = 2;          // of cuda_fp4.h
LAPTOP_FN Format8 format8(__nv_fp8_interpretation_t kind) {
    if ((int)kind == E2M1) return {1, 1, 2, -1, 6.0, 7, 0xff, 7};
    if (kind == __NV_E4M3) return {3, 7, 4, -9, 448.0, 0x7f, 0x7f, 0x7e};      // beyond the largest is only NaN
    return {2, 15, 3, -16, 57344.0, 0x7e, 0x7c, 0x7b};
}

LAPTOP_FN unsigned char narrow8(double value, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
    Format8 f = format8(kind);
    if (__builtin_isnan(value)) return f.nan;
    unsigned char sign = __builtin_signbit(value) ? 0x80 : 0;
    double size = __builtin_fabs(round_to(value, f.digits, f.finest, rounding::nearest));
    if (size > f.largest) return sign | (saturate == __NV_SATFINITE ? f.largest_bits : f.infinity);
    if (size < __builtin_ldexp(1.0, 1 - f.bias)) return sign | (unsigned char)__builtin_ldexp(size, -f.finest);
    int exponent;
    double part = __builtin_frexp(size, &exponent);                      // size = part * 2^exponent, part in [0.5, 1)
    int fraction = (int)__builtin_ldexp(2 * part - 1, f.mantissa);
    return sign | (unsigned char)((exponent - 1 + f.bias) << f.mantissa | fraction);
}

LAPTOP_FN float widen8(unsigned char bits, __nv_fp8_interpretation_t kind) {
    Format8 f = format8(kind);
    int rest = bits & 0x7f, exponent = rest >> f.mantissa, fraction = rest & ((1 << f.mantissa) - 1);
    float size;
    if (rest > f.infinity || (kind == __NV_E4M3 && rest == f.nan)) size = __builtin_nanf("");
    else if (rest == f.infinity) size = __builtin_inff();
    else if (exponent == 0) size = (float)__builtin_ldexp((double)fraction, f.finest);
    else size = (float)__builtin_ldexp(1.0 + fraction / (double)(1 << f.mantissa), exponent - f.bias);
    return bits & 0x80 ? -size : size;
}
}  // namespace laptop

LAPTOP_FN __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t s, __nv_fp8_interpretation_t k) {
    return laptop::narrow8(x, s, k);
}
LAPTOP_FN __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t s, __nv_fp8_interpretation_t k) {
    return laptop::narrow8(x, s, k);
}
LAPTOP_FN __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw x, __nv_saturation_t s, __nv_fp8_interpretation_t k) {
    return laptop::narrow8(laptop::binary16::widen(x.x), s, k);
}
LAPTOP_FN __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw x, __nv_saturation_t s,
                                                         __nv_fp8_interpretation_t k) {
    return laptop::narrow8(laptop::bfloat16::widen(x.x), s, k);
}
LAPTOP_FN __nv_fp8x2_storage_t __nv_cvt_double2_to_fp8x2(double2 x, __nv_saturation_t s, __nv_fp8_interpretation_t k) {
    return (__nv_fp8x2_storage_t)(laptop::narrow8(x.x, s, k) | laptop::narrow8(x.y, s, k) << 8);
}
LAPTOP_FN __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t s, __nv_fp8_interpretation_t k) {
    return (__nv_fp8x2_storage_t)(laptop::narrow8(x.x, s, k) | laptop::narrow8(x.y, s, k) << 8);
}
LAPTOP_FN __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(__half2_raw x, __nv_saturation_t s, __nv_fp8_interpretation_t k) {
    using laptop::binary16;
    return (__nv_fp8x2_storage_t)(laptop::narrow8(binary16::widen(x.x), s, k) | laptop::narrow8(binary16::widen(x.y), s, k) << 8);
}
LAPTOP_FN __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t k) {
    return {laptop::binary16::narrow(laptop::widen8(x, k))};
}
LAPTOP_FN __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x, __nv_fp8_interpretation_t k) {
    return {laptop::binary16::narrow(laptop::widen8((unsigned char)x, k)),
            laptop::binary16::narrow(laptop::widen8((unsigned char)(x >> 8), k))};
}

// Types: one number, two, four.
#ifdef LAPTOP_UNIONS
#define LAPTOP_FP8_COPIES(Type)
#else
#define LAPTOP_FP8_COPIES(Type)                               \
    LAPTOP_IN_PLACE Type(const Type& other) : __x(other.__x) {} \
    LAPTOP_IN_PLACE Type& operator=(const Type& other) { return __x = other.__x, *this; }
#endif
#define LAPTOP_FP8(Type, kind)                                                                      \
    struct Type {                                                                                   \
        __nv_fp8_storage_t __x;                                                                     \
        LAPTOP_INLINE Type() = default;                                                             \
        LAPTOP_FP8_COPIES(Type)                                                                     \
        LAPTOP_QUIET explicit Type(float v) : __x(laptop::narrow8(v, __NV_SATFINITE, kind)) {}      \
        LAPTOP_QUIET explicit Type(double v) : __x(laptop::narrow8(v, __NV_SATFINITE, kind)) {}     \
        LAPTOP_QUIET explicit Type(__half v)                                                        \
            : __x(laptop::narrow8(laptop::binary16::widen(v.laptop_bits()), __NV_SATFINITE, kind)) {} \
        LAPTOP_QUIET explicit Type(__nv_bfloat16 v)                                                 \
            : __x(laptop::narrow8(laptop::bfloat16::widen(v.laptop_bits()), __NV_SATFINITE, kind)) {} \
        template <class I, class = std::enable_if_t<std::is_integral<I>::value>>                    \
        LAPTOP_QUIET explicit Type(I v) : __x(laptop::narrow8((double)v, __NV_SATFINITE, kind)) {}  \
        LAPTOP_IN_PLACE explicit operator float() const { return laptop::widen8(__x, kind); }       \
        LAPTOP_IN_PLACE explicit operator double() const { return laptop::widen8(__x, kind); }      \
        LAPTOP_IN_PLACE explicit operator __half() const { return __half(laptop::widen8(__x, kind)); } \
        LAPTOP_IN_PLACE explicit operator __nv_bfloat16() const { return __nv_bfloat16(laptop::widen8(__x, kind)); } \
        LAPTOP_IN_PLACE explicit operator int() const {                                             \
            return laptop::to_integer<int>(laptop::widen8(__x, kind), laptop::rounding::zero);      \
        }                                                                                           \
        LAPTOP_IN_PLACE explicit operator bool() const { return (__x & 0x7f) != 0; }                \
    };
LAPTOP_FP8(__nv_fp8_e4m3, __NV_E4M3) LAPTOP_FP8(__nv_fp8_e5m2, __NV_E5M2)
#undef LAPTOP_FP8

#define LAPTOP_FP8_VECTORS(Pair, Four, kind)                                                        \
    struct alignas(2) Pair {                                                                        \
        __nv_fp8x2_storage_t __x;                                                                   \
        LAPTOP_INLINE Pair() = default;                                                             \
        LAPTOP_FP8_COPIES(Pair)                                                                     \
        LAPTOP_QUIET explicit Pair(float2 v) : __x(__nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, kind)) {} \
        LAPTOP_QUIET explicit Pair(double2 v) : __x(__nv_cvt_double2_to_fp8x2(v, __NV_SATFINITE, kind)) {} \
        LAPTOP_QUIET explicit Pair(__half2 v) : Pair(__half22float2(v)) {}                          \
        LAPTOP_QUIET explicit Pair(__nv_bfloat162 v) : Pair(__bfloat1622float2(v)) {}               \
        LAPTOP_IN_PLACE explicit operator float2() const {                                          \
            return {laptop::widen8((unsigned char)__x, kind), laptop::widen8((unsigned char)(__x >> 8), kind)}; \
        }                                                                                           \
        LAPTOP_IN_PLACE explicit operator __half2() const { return __half2(__nv_cvt_fp8x2_to_halfraw2(__x, kind)); } \
    };                                                                                              \
    struct alignas(4) Four {                                                                        \
        __nv_fp8x4_storage_t __x;                                                                   \
        LAPTOP_INLINE Four() = default;                                                             \
        LAPTOP_FP8_COPIES(Four)                                                                     \
        LAPTOP_QUIET explicit Four(float4 v)                                                        \
            : __x(__nv_cvt_float2_to_fp8x2(float2{v.x, v.y}, __NV_SATFINITE, kind) |                \
                  (unsigned)__nv_cvt_float2_to_fp8x2(float2{v.z, v.w}, __NV_SATFINITE, kind) << 16) {} \
        LAPTOP_QUIET explicit Four(double4 v)                                                       \
            : __x(__nv_cvt_double2_to_fp8x2(double2{v.x, v.y}, __NV_SATFINITE, kind) |              \
                  (unsigned)__nv_cvt_double2_to_fp8x2(double2{v.z, v.w}, __NV_SATFINITE, kind) << 16) {} \
        LAPTOP_QUIET explicit Four(__half2 low, __half2 high)                                       \
            : __x(Pair(low).__x | (unsigned)Pair(high).__x << 16) {}                                \
        LAPTOP_QUIET explicit Four(__nv_bfloat162 low, __nv_bfloat162 high)                         \
            : __x(Pair(low).__x | (unsigned)Pair(high).__x << 16) {}                                \
        LAPTOP_IN_PLACE explicit operator float4() const {                                          \
            return {laptop::widen8((unsigned char)__x, kind), laptop::widen8((unsigned char)(__x >> 8), kind), \
                    laptop::widen8((unsigned char)(__x >> 16), kind), laptop::widen8((unsigned char)(__x >> 24), kind)}; \
        }                                                                                           \
    };
LAPTOP_FP8_VECTORS(__nv_fp8x2_e4m3, __nv_fp8x4_e4m3, __NV_E4M3)
LAPTOP_FP8_VECTORS(__nv_fp8x2_e5m2, __nv_fp8x4_e5m2, __NV_E5M2)
#undef LAPTOP_FP8_VECTORS
