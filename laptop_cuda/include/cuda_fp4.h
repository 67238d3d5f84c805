// The 4-bit float e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives. Conversions round to nearest even and saturate; NaN is 6.
#pragma once
#include "cuda_fp8.h"

typedef unsigned char __nv_fp4_storage_t, __nv_fp4x2_storage_t;
typedef unsigned short __nv_fp4x4_storage_t;
enum __nv_fp4_interpretation_t { __NV_E2M1 };
enum cudaRoundMode { cudaRoundNearest, cudaRoundZero, cudaRoundPosInf, cudaRoundMinInf };

namespace laptop {
LAPTOP_FN unsigned char narrow4(double value, cudaRoundMode how = cudaRoundNearest) {
    if (how != cudaRoundNearest) not_supported("a conversion to fp4 that is not rounded to nearest", LAPTOP_SITE);
    unsigned char made = narrow8(value, __NV_SATFINITE, (__nv_fp8_interpretation_t)E2M1);
    return (made & 7) | (made >> 4 & 8);
}
LAPTOP_FN float widen4(int bits) { return widen8((unsigned char)((bits & 7) | (bits & 8) << 4), (__nv_fp8_interpretation_t)E2M1); }
}  // namespace laptop

#define LAPTOP_FP4(from, T, value) \
    LAPTOP_FN __nv_fp4_storage_t __nv_cvt_##from##_to_fp4(T x, __nv_fp4_interpretation_t, cudaRoundMode how) { return laptop::narrow4(value, how); }
LAPTOP_FP4(double, double, x) LAPTOP_FP4(float, float, x) LAPTOP_FP4(halfraw, __half_raw, laptop::binary16::widen(x.x))
LAPTOP_FP4(bfloat16raw, __nv_bfloat16_raw, laptop::bfloat16::widen(x.x))
#undef LAPTOP_FP4
#define LAPTOP_FP4X2(from, T, widen) \
    LAPTOP_FN __nv_fp4x2_storage_t __nv_cvt_##from##_to_fp4x2(T x, __nv_fp4_interpretation_t, cudaRoundMode how) { \
        return (__nv_fp4x2_storage_t)(laptop::narrow4(widen(x.x), how) | laptop::narrow4(widen(x.y), how) << 4); }
LAPTOP_FP4X2(double2, double2, ) LAPTOP_FP4X2(float2, float2, ) LAPTOP_FP4X2(halfraw2, __half2_raw, laptop::binary16::widen)
LAPTOP_FP4X2(bfloat16raw2, __nv_bfloat162_raw, laptop::bfloat16::widen)
#undef LAPTOP_FP4X2
LAPTOP_FN __half_raw __nv_cvt_fp4_to_halfraw(__nv_fp4_storage_t x, __nv_fp4_interpretation_t) { return {laptop::binary16::narrow(laptop::widen4(x))}; }
LAPTOP_FN __half2_raw __nv_cvt_fp4x2_to_halfraw2(__nv_fp4x2_storage_t x, __nv_fp4_interpretation_t) {
    return {laptop::binary16::narrow(laptop::widen4(x)), laptop::binary16::narrow(laptop::widen4(x >> 4))};
}

#define LAPTOP_FROM(Type, T, value) LAPTOP_QUIET explicit Type(T v) : __x(value) {}
struct __nv_fp4_e2m1 {
    __nv_fp4_storage_t __x;
    LAPTOP_INLINE __nv_fp4_e2m1() = default;
    template <class T> LAPTOP_QUIET explicit __nv_fp4_e2m1(T v) : __x(laptop::narrow4((double)(float)v)) {}
    LAPTOP_FROM(__nv_fp4_e2m1, double, laptop::narrow4(v))
    template <class T> LAPTOP_QUIET explicit operator T() const { return (T)laptop::widen4(__x); }
};
struct __nv_fp4x2_e2m1 {
    __nv_fp4x2_storage_t __x;
    LAPTOP_INLINE __nv_fp4x2_e2m1() = default;
    LAPTOP_FROM(__nv_fp4x2_e2m1, float2, __nv_cvt_float2_to_fp4x2(v, __NV_E2M1, cudaRoundNearest))
    LAPTOP_FROM(__nv_fp4x2_e2m1, __half2, __nv_cvt_float2_to_fp4x2(__half22float2(v), __NV_E2M1, cudaRoundNearest))
    LAPTOP_QUIET explicit operator float2() const { return {laptop::widen4(__x), laptop::widen4(__x >> 4)}; }
};
struct alignas(2) __nv_fp4x4_e2m1 {
    __nv_fp4x4_storage_t __x;
    LAPTOP_INLINE __nv_fp4x4_e2m1() = default;
    LAPTOP_FROM(__nv_fp4x4_e2m1, float4, (unsigned short)(__nv_fp4x2_e2m1(float2{v.x, v.y}).__x | __nv_fp4x2_e2m1(float2{v.z, v.w}).__x << 8))
    LAPTOP_QUIET explicit operator float4() const {
        return {laptop::widen4(__x), laptop::widen4(__x >> 4), laptop::widen4(__x >> 8), laptop::widen4(__x >> 12)};
    }
};
#undef LAPTOP_FROM
