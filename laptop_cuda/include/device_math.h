// CUDA's math names. The fast intrinsics (__expf, ...) are as accurate here as the slow ones: a kernel gains time from
// them on a GPU, and time is not measured here.
#pragma once

#define LAPTOP_MATH1(name, T, expression, ...) LAPTOP_FN T name(T x) { return expression; }
#define LAPTOP_MATH2(name, T, expression, ...) LAPTOP_FN T name(T x, T y) { return expression; }
#define LAPTOP_MATH3(name, T, expression, ...) LAPTOP_FN T name(T x, T y, T z) { return expression; }

LAPTOP_MATH1(__expf, float, expf(x)) LAPTOP_MATH1(__exp10f, float, powf(10.f, x))
LAPTOP_MATH1(__logf, float, logf(x)) LAPTOP_MATH1(__log2f, float, log2f(x))
LAPTOP_MATH1(__log10f, float, log10f(x)) LAPTOP_MATH1(__sinf, float, sinf(x))
LAPTOP_MATH1(__cosf, float, cosf(x)) LAPTOP_MATH1(__tanf, float, tanf(x))
LAPTOP_MATH1(__tanhf, float, tanhf(x))
LAPTOP_MATH2(__powf, float, powf(x, y)) LAPTOP_MATH2(__fdividef, float, x / y)
LAPTOP_MATH2(fdividef, float, x / y)
LAPTOP_MATH1(__saturatef, float, x > 0.f ? (x < 1.f ? x : 1.f) : 0.f)
LAPTOP_MATH1(rsqrtf, float, 1.f / sqrtf(x)) LAPTOP_MATH1(rsqrt, double, 1. / sqrt(x))
LAPTOP_FN float rsqrt(float x) { return 1.f / sqrtf(x); }
LAPTOP_MATH1(rcbrtf, float, 1.f / cbrtf(x)) LAPTOP_MATH1(rcbrt, double, 1. / cbrt(x))
LAPTOP_MATH2(rhypotf, float, 1.f / hypotf(x, y)) LAPTOP_MATH2(rhypot, double, 1. / hypot(x, y))
LAPTOP_MATH3(norm3df, float, sqrtf(x * x + y * y + z * z))
LAPTOP_MATH3(norm3d, double, sqrt(x * x + y * y + z * z))
LAPTOP_MATH3(rnorm3df, float, 1.f / sqrtf(x * x + y * y + z * z))
LAPTOP_MATH3(rnorm3d, double, 1. / sqrt(x * x + y * y + z * z))
LAPTOP_FN float norm4df(float x, float y, float z, float w) { return sqrtf(x * x + y * y + z * z + w * w); }
LAPTOP_FN double norm4d(double x, double y, double z, double w) { return sqrt(x * x + y * y + z * z + w * w); }
LAPTOP_MATH1(sinpi, double, sin(3.14159265358979323846 * x))
LAPTOP_MATH1(cospi, double, cos(3.14159265358979323846 * x))
LAPTOP_MATH1(sinpif, float, (float)sinpi((double)x)) LAPTOP_MATH1(cospif, float, (float)cospi((double)x))
// Functions that write through a pointer: the C library's own would touch memory that no hook sees.
#define LAPTOP_TWO(name, T, first, second)                                                               \
    LAPTOP_FN void name(T x, T* s, T* c) {                                                               \
        if (LAPTOP_TRACED) laptop::will_write(s, sizeof(T), LAPTOP_SITE);                                \
        if (LAPTOP_TRACED) laptop::will_write(c, sizeof(T), LAPTOP_SITE);                                \
        *s = first, *c = second;                                                                         \
    }
LAPTOP_TWO(sincospi, double, sinpi(x), cospi(x)) LAPTOP_TWO(sincospif, float, sinpif(x), cospif(x))
LAPTOP_TWO(laptop_sincos, double, sin(x), cos(x)) LAPTOP_TWO(laptop_sincosf, float, sinf(x), cosf(x))
LAPTOP_TWO(laptop_sincos, float, sinf(x), cosf(x))      // CUDA overloads both for float
LAPTOP_TWO(sincospi, float, sinpif(x), cospif(x)) LAPTOP_TWO(__sincosf, float, sinf(x), cosf(x))
#undef LAPTOP_TWO
template <class T> LAPTOP_FN auto laptop_frexp(T x, int* exponent) {
    if (LAPTOP_TRACED) laptop::will_write(exponent, sizeof(int), LAPTOP_SITE);
    return std::frexp(x, exponent);
}
template <class T> LAPTOP_FN T laptop_modf(laptop::same_t<T> x, T* whole) {
    if (LAPTOP_TRACED) laptop::will_write(whole, sizeof(T), LAPTOP_SITE);
    return std::modf(x, whole);
}
template <class T> LAPTOP_FN T laptop_remquo(T x, laptop::same_t<T> y, int* quotient) {
    if (LAPTOP_TRACED) laptop::will_write(quotient, sizeof(int), LAPTOP_SITE);
    return std::remquo(x, y, quotient);
}
// The tag is not looked at: the C library's own reads it where no hook sees it.
LAPTOP_FN double laptop_nan(const char*) { return __builtin_nan(""); }
LAPTOP_FN float laptop_nanf(const char*) { return __builtin_nanf(""); }
namespace std {
using ::laptop_nan;
using ::laptop_nanf;
using ::laptop_frexp;
using ::laptop_modf;
using ::laptop_remquo;
}
#define nan(tag) laptop_nan(tag)
#define nanf(tag) laptop_nanf(tag)
#define sincos laptop_sincos
#define sincosf laptop_sincosf
#define frexp laptop_frexp
#define frexpf laptop_frexp<float>
#define modf laptop_modf
#define modff laptop_modf<float>
#define remquo laptop_remquo
#define remquof laptop_remquo<float>
LAPTOP_MATH1(normcdff, float, 0.5f * erfcf(-x * 0.70710678118654752f))
LAPTOP_MATH1(normcdf, double, 0.5 * erfc(-x * 0.70710678118654752440))
#ifndef __GLIBC__
LAPTOP_MATH1(exp10f, float, powf(10.f, x))
#endif

// What is rounded to the nearest, and in directed_rounding.h in the other directions.
#define LAPTOP_ROUNDED(suffix, ONE, TWO, THREE, direction)       \
    TWO(__fadd_##suffix, float, x + y, direction)                \
    TWO(__fsub_##suffix, float, x - y, direction)                \
    TWO(__fmul_##suffix, float, x * y, direction)                \
    TWO(__fdiv_##suffix, float, x / y, direction)                \
    THREE(__fmaf_##suffix, float, fmaf(x, y, z), direction)      \
    ONE(__frcp_##suffix, float, 1.f / x, direction)              \
    ONE(__fsqrt_##suffix, float, sqrtf(x), direction)            \
    TWO(__dadd_##suffix, double, x + y, direction)               \
    TWO(__dmul_##suffix, double, x * y, direction)               \
    TWO(__dsub_##suffix, double, x - y, direction)               \
    TWO(__ddiv_##suffix, double, x / y, direction)               \
    ONE(__drcp_##suffix, double, 1. / x, direction)              \
    THREE(__fma_##suffix, double, fma(x, y, z), direction)       \
    ONE(__dsqrt_##suffix, double, sqrt(x), direction)
LAPTOP_ROUNDED(rn, LAPTOP_MATH1, LAPTOP_MATH2, LAPTOP_MATH3, )
LAPTOP_MATH1(__frsqrt_rn, float, (float)(1. / sqrt((double)x)))      // right for every float: all were compared
#include "directed_rounding.h"

// Conversions: out of range saturates, NaN is 0.
namespace laptop {
template <class To> LAPTOP_QUIET To saturate(double x) {
    if (x != x) return 0;
    constexpr To lowest = std::numeric_limits<To>::min(), highest = std::numeric_limits<To>::max();
    if (x <= (double)lowest) return lowest;
    if (x >= (double)highest) return highest;
    return (To)x;
}
template <class To, class From> LAPTOP_QUIET To bits(From x) {
    static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
    To y;
    ::memcpy(&y, &x, sizeof y);
    return y;
}
}  // namespace laptop
#define LAPTOP_TO_INTEGER(from, F, to, T)                                                    \
    LAPTOP_FN T __##from##2##to##_rn(F x) { return laptop::saturate<T>(nearbyint((double)x)); } \
    LAPTOP_FN T __##from##2##to##_rz(F x) { return laptop::saturate<T>(trunc((double)x)); }  \
    LAPTOP_FN T __##from##2##to##_rd(F x) { return laptop::saturate<T>(floor((double)x)); }  \
    LAPTOP_FN T __##from##2##to##_ru(F x) { return laptop::saturate<T>(ceil((double)x)); }   \
    LAPTOP_FN F __##to##2##from##_rn(T x) { return (F)x; }
LAPTOP_TO_INTEGER(float, float, int, int) LAPTOP_TO_INTEGER(float, float, uint, unsigned)
LAPTOP_TO_INTEGER(float, float, ll, long long)
LAPTOP_TO_INTEGER(float, float, ull, unsigned long long) LAPTOP_TO_INTEGER(double, double, int, int)
LAPTOP_TO_INTEGER(double, double, uint, unsigned) LAPTOP_TO_INTEGER(double, double, ll, long long)
LAPTOP_TO_INTEGER(double, double, ull, unsigned long long)
#undef LAPTOP_TO_INTEGER
LAPTOP_FN float __double2float_rn(double x) { return (float)x; }
LAPTOP_FN int __float_as_int(float x) { return laptop::bits<int>(x); }
LAPTOP_FN unsigned __float_as_uint(float x) { return laptop::bits<unsigned>(x); }
LAPTOP_FN float __int_as_float(int x) { return laptop::bits<float>(x); }
LAPTOP_FN float __uint_as_float(unsigned x) { return laptop::bits<float>(x); }
LAPTOP_FN long long __double_as_longlong(double x) { return laptop::bits<long long>(x); }
LAPTOP_FN double __longlong_as_double(long long x) { return laptop::bits<double>(x); }
LAPTOP_FN int __double2hiint(double x) { return (int)(laptop::bits<long long>(x) >> 32); }
LAPTOP_FN int __double2loint(double x) { return (int)laptop::bits<long long>(x); }
LAPTOP_FN double __hiloint2double(int high, int low) {
    return laptop::bits<double>((unsigned long long)(unsigned)high << 32 | (unsigned)low);
}

LAPTOP_FN int __popc(unsigned x) { return __builtin_popcount(x); }
LAPTOP_FN int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
LAPTOP_FN int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
LAPTOP_FN int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
LAPTOP_FN int __ffs(int x) { return __builtin_ffs(x); }
LAPTOP_FN int __ffsll(long long x) { return __builtin_ffsll(x); }
LAPTOP_FN int __mul24(int x, int y) { return (x << 8 >> 8) * (y << 8 >> 8); }
LAPTOP_FN unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffff) * (y & 0xffffff); }
LAPTOP_FN int __mulhi(int x, int y) { return (int)((long long)x * y >> 32); }
LAPTOP_FN unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((unsigned long long)x * y >> 32); }
LAPTOP_FN unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}
LAPTOP_FN long long __mul64hi(long long x, long long y) { return (long long)((__int128)x * y >> 64); }
LAPTOP_FN int __hadd(int x, int y) { return (int)(((long long)x + y) >> 1); }
LAPTOP_FN unsigned __uhadd(unsigned x, unsigned y) { return (unsigned)(((unsigned long long)x + y) >> 1); }
LAPTOP_FN int __rhadd(int x, int y) { return (int)(((long long)x + y + 1) >> 1); }
LAPTOP_FN unsigned __urhadd(unsigned x, unsigned y) { return (unsigned)(((unsigned long long)x + y + 1) >> 1); }
LAPTOP_FN unsigned __usad(unsigned x, unsigned y, unsigned z) { return z + (x > y ? x - y : y - x); }
LAPTOP_FN unsigned __sad(int x, int y, unsigned z) { return z + (unsigned)(x > y ? x - y : y - x); }
LAPTOP_FN unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; ++i) y |= (x >> i & 1) << (31 - i);
    return y;
}
LAPTOP_FN unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}
LAPTOP_FN unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        unsigned s = selector >> (4 * i) & 0xf, byte = both >> (8 * (s & 7)) & 0xff;
        if (s & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}
LAPTOP_FN unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) << (shift & 31) >> 32);
}
LAPTOP_FN unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}
LAPTOP_FN unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    return shift < 32 ? __funnelshift_l(low, high, shift) : low;
}
LAPTOP_FN unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    return shift < 32 ? __funnelshift_r(low, high, shift) : high;
}
LAPTOP_FN unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 4; ++i) c += (a >> (8 * i) & 255) * (b >> (8 * i) & 255);
    return c;
}
LAPTOP_FN int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; ++i) c += (int)(signed char)(a >> (8 * i)) * (int)(signed char)(b >> (8 * i));
    return c;
}

#define LAPTOP_MINMAX(T)                                     \
    LAPTOP_FN T min(T x, T y) { return y < x ? y : x; }      \
    LAPTOP_FN T max(T x, T y) { return x < y ? y : x; }
LAPTOP_MINMAX(int) LAPTOP_MINMAX(unsigned) LAPTOP_MINMAX(long) LAPTOP_MINMAX(unsigned long)
LAPTOP_MINMAX(long long) LAPTOP_MINMAX(unsigned long long)
#undef LAPTOP_MINMAX
LAPTOP_FN float min(float x, float y) { return fminf(x, y); }
LAPTOP_FN float max(float x, float y) { return fmaxf(x, y); }
LAPTOP_FN double min(double x, double y) { return fmin(x, y); }
LAPTOP_FN double max(double x, double y) { return fmax(x, y); }
namespace laptop {
template <class A, class B>
using Mixed = std::enable_if_t<std::is_arithmetic<A>::value && std::is_arithmetic<B>::value &&
                                   !std::is_same<A, B>::value, std::common_type_t<A, B>>;
}
template <class A, class B> LAPTOP_FN laptop::Mixed<A, B> min(A x, B y) {
    return min((std::common_type_t<A, B>)x, (std::common_type_t<A, B>)y);
}
template <class A, class B> LAPTOP_FN laptop::Mixed<A, B> max(A x, B y) {
    return max((std::common_type_t<A, B>)x, (std::common_type_t<A, B>)y);
}
LAPTOP_FN long long llmin(long long x, long long y) { return x < y ? x : y; }
LAPTOP_FN long long llmax(long long x, long long y) { return x > y ? x : y; }
// Templates, as host code has functions of these names.
template <class = void> LAPTOP_FN unsigned umin(unsigned x, unsigned y) { return x < y ? x : y; }
template <class = void> LAPTOP_FN unsigned umax(unsigned x, unsigned y) { return x < y ? y : x; }

#undef LAPTOP_MATH1
#undef LAPTOP_MATH2
#undef LAPTOP_MATH3
