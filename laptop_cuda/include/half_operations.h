// A 16-bit float and its pair, written once and included twice: by cuda_fp16.h with LAPTOP_SCALAR __half, LAPTOP_PAIR __half2,
// LAPTOP_RAW __half_raw, LAPTOP_PAIR_RAW __half2_raw, LAPTOP_FORMAT laptop::binary16 and LAPTOP_NAMED(a, b) a##half##b, by
// cuda_bf16.h with bfloat16's. CUDA overloads __hadd, hexp, ... for both. Operands go through float and the result is rounded
// once to 16 bits; float has more than 2p + 2 bits, so that + - * / and the square root equal the exactly computed value,
// rounded once. Parameters are taken by value: the load happens in the kernel's own line.

struct LAPTOP_RAW { unsigned short x; };
struct alignas(4) LAPTOP_PAIR_RAW { unsigned short x, y; };

struct alignas(2) LAPTOP_SCALAR {
    unsigned short __x;

    LAPTOP_INLINE LAPTOP_SCALAR() = default;
#ifndef LAPTOP_UNIONS
    // Copies are spelt out because g++ and clang hook neither a struct argument read from memory nor a struct result
    // written to it, unless a constructor does it.
    LAPTOP_IN_PLACE constexpr LAPTOP_SCALAR(const LAPTOP_SCALAR& other) : __x(other.__x) {}
    LAPTOP_IN_PLACE LAPTOP_SCALAR& operator=(const LAPTOP_SCALAR& other) { return __x = other.__x, *this; }
#endif
    LAPTOP_QUIET constexpr LAPTOP_SCALAR(LAPTOP_RAW raw) : __x(raw.x) {}
    LAPTOP_QUIET LAPTOP_SCALAR(float value) : __x(LAPTOP_FORMAT::narrow(value)) {}
    LAPTOP_QUIET LAPTOP_SCALAR(double value) : __x(laptop::narrow<LAPTOP_FORMAT>(value)) {}
    template <class Integer, class = std::enable_if_t<std::is_integral<Integer>::value>>
    LAPTOP_QUIET LAPTOP_SCALAR(Integer value) : __x(laptop_integer(value)) {}

    LAPTOP_IN_PLACE operator float() const { return LAPTOP_FORMAT::widen(__x); }
    LAPTOP_IN_PLACE operator LAPTOP_RAW() const { return LAPTOP_RAW{__x}; }

    LAPTOP_QUIET unsigned short laptop_bits() const { return __x; }
    LAPTOP_QUIET static LAPTOP_SCALAR laptop_from(unsigned bits) {
        LAPTOP_SCALAR result;
        result.__x = (unsigned short)bits;
        return result;
    }
    template <class Integer> LAPTOP_QUIET static unsigned short laptop_integer(Integer value) {
        using Wide = std::conditional_t<std::is_signed<Integer>::value, long long, unsigned long long>;
        return laptop::narrow<LAPTOP_FORMAT>(laptop::integer_to_odd(Wide(value)));
    }
};

struct alignas(4) LAPTOP_PAIR {
    LAPTOP_SCALAR x, y;

    LAPTOP_INLINE LAPTOP_PAIR() = default;
#ifndef LAPTOP_UNIONS
    LAPTOP_IN_PLACE LAPTOP_PAIR(const LAPTOP_PAIR& other) { *(uint32_t*)this = *(const uint32_t*)&other; }
    LAPTOP_IN_PLACE LAPTOP_PAIR& operator=(const LAPTOP_PAIR& other) { return *(uint32_t*)this = *(const uint32_t*)&other, *this; }
#endif
    LAPTOP_QUIET constexpr LAPTOP_PAIR(LAPTOP_SCALAR low, LAPTOP_SCALAR high) : x(low), y(high) {}
    LAPTOP_QUIET LAPTOP_PAIR(LAPTOP_PAIR_RAW raw) : x(LAPTOP_RAW{raw.x}), y(LAPTOP_RAW{raw.y}) {}
    LAPTOP_IN_PLACE operator LAPTOP_PAIR_RAW() const { return LAPTOP_PAIR_RAW{x.__x, y.__x}; }
};

LAPTOP_FN float laptop_widen(LAPTOP_SCALAR a) { return LAPTOP_FORMAT::widen(a.laptop_bits()); }
LAPTOP_FN LAPTOP_SCALAR laptop_narrow(LAPTOP_SCALAR, float a) { return LAPTOP_SCALAR::laptop_from(LAPTOP_FORMAT::narrow(a)); }

#define LAPTOP_BINARY(name, expression) \
    LAPTOP_FN LAPTOP_SCALAR name(LAPTOP_SCALAR a, LAPTOP_SCALAR b) { \
        float x = laptop_widen(a), y = laptop_widen(b); \
        return LAPTOP_SCALAR::laptop_from(LAPTOP_FORMAT::narrow(expression));                \
    }
LAPTOP_BINARY(__hadd, x + y) LAPTOP_BINARY(__hsub, x - y)
LAPTOP_BINARY(__hmul, x * y) LAPTOP_BINARY(__hdiv, x / y)
LAPTOP_BINARY(__hadd_rn, x + y) LAPTOP_BINARY(__hsub_rn, x - y) LAPTOP_BINARY(__hmul_rn, x * y)
LAPTOP_BINARY(__hadd_sat, __builtin_fminf(__builtin_fmaxf(x + y, 0.0f), 1.0f))
LAPTOP_BINARY(__hsub_sat, __builtin_fminf(__builtin_fmaxf(x - y, 0.0f), 1.0f))
LAPTOP_BINARY(__hmul_sat, __builtin_fminf(__builtin_fmaxf(x * y, 0.0f), 1.0f))
// A NaN loses against a number, and -0 is below +0.
LAPTOP_BINARY(__hmax, __builtin_isnan(x) ? y : __builtin_isnan(y) ? x : x > y || (x == y && !__builtin_signbit(x)) ? x : y)
LAPTOP_BINARY(__hmin, __builtin_isnan(x) ? y : __builtin_isnan(y) ? x : x < y || (x == y && __builtin_signbit(x)) ? x : y)
LAPTOP_BINARY(__hmax_nan, __builtin_isnan(x) || __builtin_isnan(y) ? NAN : x > y || (x == y && !__builtin_signbit(x)) ? x : y)
LAPTOP_BINARY(__hmin_nan, __builtin_isnan(x) || __builtin_isnan(y) ? NAN : x < y || (x == y && __builtin_signbit(x)) ? x : y)
#undef LAPTOP_BINARY

LAPTOP_FN LAPTOP_SCALAR __hfma(LAPTOP_SCALAR a, LAPTOP_SCALAR b, LAPTOP_SCALAR c) {
    return LAPTOP_SCALAR::laptop_from(
        laptop::fused_multiply_add<LAPTOP_FORMAT>(laptop_widen(a), laptop_widen(b), laptop_widen(c)));
}
LAPTOP_FN LAPTOP_SCALAR __hneg(LAPTOP_SCALAR a) { return LAPTOP_SCALAR::laptop_from(a.laptop_bits() ^ 0x8000); }
LAPTOP_FN LAPTOP_SCALAR __habs(LAPTOP_SCALAR a) { return LAPTOP_SCALAR::laptop_from(a.laptop_bits() & 0x7fff); }
LAPTOP_FN bool __hisnan(LAPTOP_SCALAR a) { return (a.laptop_bits() & 0x7fff) > LAPTOP_FORMAT::infinity; }
LAPTOP_FN int __hisinf(LAPTOP_SCALAR a) {
    return (a.laptop_bits() & 0x7fff) != LAPTOP_FORMAT::infinity ? 0 : a.laptop_bits() & 0x8000 ? -1 : 1;
}
LAPTOP_FN LAPTOP_SCALAR __hfma_sat(LAPTOP_SCALAR a, LAPTOP_SCALAR b, LAPTOP_SCALAR c) {
    float exact = laptop_widen(__hfma(a, b, c));
    return laptop_narrow(a, __builtin_fminf(__builtin_fmaxf(exact, 0.0f), 1.0f));
}
LAPTOP_FN LAPTOP_SCALAR __hfma_relu(LAPTOP_SCALAR a, LAPTOP_SCALAR b, LAPTOP_SCALAR c) {
    LAPTOP_SCALAR result = __hfma(a, b, c);
    return __hisnan(result) || laptop_widen(result) > 0 ? result : LAPTOP_SCALAR::laptop_from(0);
}

// Comparisons: the plain ones are false for a NaN, the ones ending in u are true for it.
#define LAPTOP_COMPARE(name, op) \
    LAPTOP_FN bool __h##name(LAPTOP_SCALAR a, LAPTOP_SCALAR b) { \
        float x = laptop_widen(a), y = laptop_widen(b); \
        return !__builtin_isnan(x) && !__builtin_isnan(y) && x op y; \
    } \
    LAPTOP_FN bool __h##name##u(LAPTOP_SCALAR a, LAPTOP_SCALAR b) { \
        float x = laptop_widen(a), y = laptop_widen(b); \
        return __builtin_isnan(x) || __builtin_isnan(y) || x op y; \
    } \
    LAPTOP_FN LAPTOP_PAIR __h##name##2(LAPTOP_PAIR a, LAPTOP_PAIR b) { \
        return {LAPTOP_SCALAR::laptop_from(__h##name(a.x, b.x) ? LAPTOP_FORMAT::one : 0),     \
                LAPTOP_SCALAR::laptop_from(__h##name(a.y, b.y) ? LAPTOP_FORMAT::one : 0)};    \
    } \
    LAPTOP_FN LAPTOP_PAIR __h##name##u2(LAPTOP_PAIR a, LAPTOP_PAIR b) { \
        return {LAPTOP_SCALAR::laptop_from(__h##name##u(a.x, b.x) ? LAPTOP_FORMAT::one : 0),  \
                LAPTOP_SCALAR::laptop_from(__h##name##u(a.y, b.y) ? LAPTOP_FORMAT::one : 0)}; \
    } \
    LAPTOP_FN unsigned __h##name##2_mask(LAPTOP_PAIR a, LAPTOP_PAIR b) { \
        return (__h##name(a.x, b.x) ? 0xffffu : 0) | (__h##name(a.y, b.y) ? 0xffff0000u : 0); \
    } \
    LAPTOP_FN bool __hb##name##2(LAPTOP_PAIR a, LAPTOP_PAIR b) { \
        return __h##name(a.x, b.x) && __h##name(a.y, b.y); \
    } \
    LAPTOP_FN bool __hb##name##u2(LAPTOP_PAIR a, LAPTOP_PAIR b) { \
        return __h##name##u(a.x, b.x) && __h##name##u(a.y, b.y); \
    }
LAPTOP_COMPARE(eq, ==) LAPTOP_COMPARE(ne, !=) LAPTOP_COMPARE(lt, <) LAPTOP_COMPARE(le, <=)
LAPTOP_COMPARE(gt, >) LAPTOP_COMPARE(ge, >=)
#undef LAPTOP_COMPARE

#define LAPTOP_PAIRWISE(name, single) \
    LAPTOP_FN LAPTOP_PAIR name(LAPTOP_PAIR a, LAPTOP_PAIR b) { return {single(a.x, b.x), single(a.y, b.y)}; }
LAPTOP_PAIRWISE(__hadd2, __hadd) LAPTOP_PAIRWISE(__hsub2, __hsub)
LAPTOP_PAIRWISE(__hmul2, __hmul) LAPTOP_PAIRWISE(__h2div, __hdiv)
LAPTOP_PAIRWISE(__hadd2_rn, __hadd) LAPTOP_PAIRWISE(__hsub2_rn, __hsub)
LAPTOP_PAIRWISE(__hmul2_rn, __hmul) LAPTOP_PAIRWISE(__hadd2_sat, __hadd_sat)
LAPTOP_PAIRWISE(__hsub2_sat, __hsub_sat) LAPTOP_PAIRWISE(__hmul2_sat, __hmul_sat)
LAPTOP_PAIRWISE(__hmax2, __hmax) LAPTOP_PAIRWISE(__hmin2, __hmin)
LAPTOP_PAIRWISE(__hmax2_nan, __hmax_nan) LAPTOP_PAIRWISE(__hmin2_nan, __hmin_nan)
#undef LAPTOP_PAIRWISE
LAPTOP_FN LAPTOP_PAIR __hfma2(LAPTOP_PAIR a, LAPTOP_PAIR b, LAPTOP_PAIR c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
LAPTOP_FN LAPTOP_PAIR __hfma2_sat(LAPTOP_PAIR a, LAPTOP_PAIR b, LAPTOP_PAIR c) {
    return {__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)};
}
LAPTOP_FN LAPTOP_PAIR __hfma2_relu(LAPTOP_PAIR a, LAPTOP_PAIR b, LAPTOP_PAIR c) {
    return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)};
}
LAPTOP_FN LAPTOP_PAIR __hneg2(LAPTOP_PAIR a) { return {__hneg(a.x), __hneg(a.y)}; }
LAPTOP_FN LAPTOP_PAIR __habs2(LAPTOP_PAIR a) { return {__habs(a.x), __habs(a.y)}; }
LAPTOP_FN LAPTOP_PAIR __hisnan2(LAPTOP_PAIR a) {
    return {LAPTOP_SCALAR::laptop_from(__hisnan(a.x) ? LAPTOP_FORMAT::one : 0),
            LAPTOP_SCALAR::laptop_from(__hisnan(a.y) ? LAPTOP_FORMAT::one : 0)};
}
LAPTOP_FN LAPTOP_PAIR __lowhigh2highlow(LAPTOP_PAIR a) { return {a.y, a.x}; }
LAPTOP_FN float __low2float(LAPTOP_PAIR a) { return laptop_widen(a.x); }
LAPTOP_FN float __high2float(LAPTOP_PAIR a) { return laptop_widen(a.y); }

// Functions: computed in float, rounded once.
#define LAPTOP_FUNCTION(name, expression) \
    LAPTOP_FN LAPTOP_SCALAR h##name(LAPTOP_SCALAR a) { \
        float x = laptop_widen(a); \
        return LAPTOP_SCALAR::laptop_from(LAPTOP_FORMAT::narrow(expression));                 \
    } \
    LAPTOP_FN LAPTOP_PAIR h2##name(LAPTOP_PAIR a) { return {h##name(a.x), h##name(a.y)}; }
LAPTOP_FUNCTION(sqrt, __builtin_sqrtf(x))
LAPTOP_FUNCTION(rsqrt, float(1.0 / __builtin_sqrt(double(x)))) LAPTOP_FUNCTION(rcp, 1.0f / x)
LAPTOP_FUNCTION(exp, __builtin_expf(x)) LAPTOP_FUNCTION(exp2, std::exp2(x))
LAPTOP_FUNCTION(exp10, float(__builtin_pow(10.0, double(x)))) LAPTOP_FUNCTION(log, __builtin_logf(x))
LAPTOP_FUNCTION(log2, std::log2(x)) LAPTOP_FUNCTION(log10, std::log10(x))
LAPTOP_FUNCTION(sin, __builtin_sinf(x)) LAPTOP_FUNCTION(cos, __builtin_cosf(x))
LAPTOP_FUNCTION(tanh, __builtin_tanhf(x)) LAPTOP_FUNCTION(tanh_approx, __builtin_tanhf(x))
LAPTOP_FUNCTION(floor, __builtin_floorf(x)) LAPTOP_FUNCTION(ceil, __builtin_ceilf(x))
LAPTOP_FUNCTION(trunc, __builtin_truncf(x)) LAPTOP_FUNCTION(rint, __builtin_nearbyintf(x))
#undef LAPTOP_FUNCTION

#define LAPTOP_OPERATOR(op, single, pair) \
    LAPTOP_FN LAPTOP_SCALAR operator op(LAPTOP_SCALAR a, LAPTOP_SCALAR b) { return single(a, b); } \
    LAPTOP_FN LAPTOP_PAIR operator op(LAPTOP_PAIR a, LAPTOP_PAIR b) { return pair(a, b); }    \
    LAPTOP_IN_PLACE LAPTOP_SCALAR& operator op##=(LAPTOP_SCALAR& a, LAPTOP_SCALAR b) { return a = single(a, b); } \
    LAPTOP_IN_PLACE LAPTOP_PAIR& operator op##=(LAPTOP_PAIR& a, LAPTOP_PAIR b) { return a = pair(a, b); }
LAPTOP_OPERATOR(+, __hadd, __hadd2) LAPTOP_OPERATOR(-, __hsub, __hsub2)
LAPTOP_OPERATOR(*, __hmul, __hmul2) LAPTOP_OPERATOR(/, __hdiv, __h2div)
#undef LAPTOP_OPERATOR
LAPTOP_FN LAPTOP_SCALAR operator+(LAPTOP_SCALAR a) { return a; }
LAPTOP_FN LAPTOP_SCALAR operator-(LAPTOP_SCALAR a) { return __hneg(a); }
LAPTOP_FN LAPTOP_PAIR operator+(LAPTOP_PAIR a) { return a; }
LAPTOP_FN LAPTOP_PAIR operator-(LAPTOP_PAIR a) { return __hneg2(a); }

#define LAPTOP_COMPARISON(op, single, pair) \
    LAPTOP_FN bool operator op(LAPTOP_SCALAR a, LAPTOP_SCALAR b) { return single(a, b); }     \
    LAPTOP_FN bool operator op(LAPTOP_PAIR a, LAPTOP_PAIR b) { return pair(a, b); }
LAPTOP_COMPARISON(==, __heq, __hbeq2) LAPTOP_COMPARISON(!=, __hneu, __hbneu2)
LAPTOP_COMPARISON(<, __hlt, __hblt2) LAPTOP_COMPARISON(<=, __hle, __hble2)
LAPTOP_COMPARISON(>, __hgt, __hbgt2) LAPTOP_COMPARISON(>=, __hge, __hbge2)
#undef LAPTOP_COMPARISON

#define LAPTOP_STEP(op, base) \
    LAPTOP_IN_PLACE LAPTOP_SCALAR& operator op(LAPTOP_SCALAR& a) { \
        return a = base(a, LAPTOP_SCALAR::laptop_from(LAPTOP_FORMAT::one));                   \
    } \
    LAPTOP_IN_PLACE LAPTOP_SCALAR operator op(LAPTOP_SCALAR& a, int) { \
        LAPTOP_SCALAR before = a; \
        a = base(before, LAPTOP_SCALAR::laptop_from(LAPTOP_FORMAT::one));                     \
        return before; \
    }
LAPTOP_STEP(++, __hadd) LAPTOP_STEP(--, __hsub)
#undef LAPTOP_STEP

LAPTOP_FN LAPTOP_SCALAR LAPTOP_NAMED(__float2, )(float a) { return LAPTOP_SCALAR(a); }
LAPTOP_FN LAPTOP_SCALAR LAPTOP_NAMED(__float2, _rn)(float a) { return LAPTOP_SCALAR(a); }
LAPTOP_FN LAPTOP_SCALAR LAPTOP_NAMED(__float2, _rz)(float a) {
    return LAPTOP_SCALAR::laptop_from(laptop::narrow<LAPTOP_FORMAT>(a, laptop::rounding::zero));
}
LAPTOP_FN LAPTOP_SCALAR LAPTOP_NAMED(__float2, _rd)(float a) {
    return LAPTOP_SCALAR::laptop_from(laptop::narrow<LAPTOP_FORMAT>(a, laptop::rounding::down));
}
LAPTOP_FN LAPTOP_SCALAR LAPTOP_NAMED(__float2, _ru)(float a) {
    return LAPTOP_SCALAR::laptop_from(laptop::narrow<LAPTOP_FORMAT>(a, laptop::rounding::up));
}
LAPTOP_FN LAPTOP_SCALAR LAPTOP_NAMED(__double2, )(double a) { return LAPTOP_SCALAR(a); }
LAPTOP_FN float LAPTOP_NAMED(__, 2float)(LAPTOP_SCALAR a) { return laptop_widen(a); }

LAPTOP_FN LAPTOP_PAIR LAPTOP_NAMED(__float2, 2_rn)(float a) { return {LAPTOP_SCALAR(a), LAPTOP_SCALAR(a)}; }
LAPTOP_FN LAPTOP_PAIR LAPTOP_NAMED(__floats2, 2_rn)(float a, float b) { return {LAPTOP_SCALAR(a), LAPTOP_SCALAR(b)}; }
LAPTOP_FN LAPTOP_PAIR LAPTOP_NAMED(__float22, 2_rn)(float2 a) { return {LAPTOP_SCALAR(a.x), LAPTOP_SCALAR(a.y)}; }
LAPTOP_FN float2 LAPTOP_NAMED(__, 22float2)(LAPTOP_PAIR a) { return make_float2(laptop_widen(a.x), laptop_widen(a.y)); }

LAPTOP_FN LAPTOP_PAIR LAPTOP_NAMED(make_, 2)(LAPTOP_SCALAR a, LAPTOP_SCALAR b) { return {a, b}; }
LAPTOP_FN LAPTOP_PAIR LAPTOP_NAMED(__halves2, 2)(LAPTOP_SCALAR a, LAPTOP_SCALAR b) { return {a, b}; }
LAPTOP_FN LAPTOP_SCALAR LAPTOP_NAMED(__low2, )(LAPTOP_PAIR a) { return a.x; }
LAPTOP_FN LAPTOP_SCALAR LAPTOP_NAMED(__high2, )(LAPTOP_PAIR a) { return a.y; }
LAPTOP_FN LAPTOP_PAIR LAPTOP_NAMED(__low2, 2)(LAPTOP_PAIR a) { return {a.x, a.x}; }
LAPTOP_FN LAPTOP_PAIR LAPTOP_NAMED(__high2, 2)(LAPTOP_PAIR a) { return {a.y, a.y}; }
LAPTOP_FN LAPTOP_PAIR LAPTOP_NAMED(__lows2, 2)(LAPTOP_PAIR a, LAPTOP_PAIR b) { return {a.x, b.x}; }
LAPTOP_FN LAPTOP_PAIR LAPTOP_NAMED(__highs2, 2)(LAPTOP_PAIR a, LAPTOP_PAIR b) { return {a.y, b.y}; }

LAPTOP_FN short LAPTOP_NAMED(__, _as_short)(LAPTOP_SCALAR a) { return (short)a.laptop_bits(); }
LAPTOP_FN unsigned short LAPTOP_NAMED(__, _as_ushort)(LAPTOP_SCALAR a) { return a.laptop_bits(); }
LAPTOP_FN LAPTOP_SCALAR LAPTOP_NAMED(__short_as_, )(short a) { return LAPTOP_SCALAR::laptop_from((unsigned short)a); }
LAPTOP_FN LAPTOP_SCALAR LAPTOP_NAMED(__ushort_as_, )(unsigned short a) { return LAPTOP_SCALAR::laptop_from(a); }

// __half2int_rn and its kin, __int2half_rn and its kin
#define LAPTOP_ROUNDED(name, Integer, suffix, mode) \
    LAPTOP_FN Integer LAPTOP_NAMED(__, 2##name##_##suffix)(LAPTOP_SCALAR a) { \
        return laptop::to_integer<Integer>(laptop_widen(a), laptop::rounding::mode);           \
    } \
    LAPTOP_FN LAPTOP_SCALAR LAPTOP_NAMED(__##name##2, _##suffix)(Integer a) { \
        using Wide = std::conditional_t<std::is_signed<Integer>::value, long long, unsigned long long>; \
        return LAPTOP_SCALAR::laptop_from(laptop::narrow<LAPTOP_FORMAT>(laptop::integer_to_odd(Wide(a)), \
                                                                    laptop::rounding::mode));  \
    }
#define LAPTOP_INTEGER(name, Integer)             \
    LAPTOP_ROUNDED(name, Integer, rn, nearest)    \
    LAPTOP_ROUNDED(name, Integer, rz, zero)       \
    LAPTOP_ROUNDED(name, Integer, rd, down)       \
    LAPTOP_ROUNDED(name, Integer, ru, up)
LAPTOP_INTEGER(int, int) LAPTOP_INTEGER(uint, unsigned)
LAPTOP_INTEGER(short, short) LAPTOP_INTEGER(ushort, unsigned short)
LAPTOP_INTEGER(ll, long long) LAPTOP_INTEGER(ull, unsigned long long)
#undef LAPTOP_INTEGER
#undef LAPTOP_ROUNDED

LAPTOP_FN LAPTOP_SCALAR atomicAdd(LAPTOP_SCALAR* p, LAPTOP_SCALAR v) {
    return laptop::atomic(p, [v](LAPTOP_SCALAR old) LAPTOP_QUIET { return __hadd(old, v); }, LAPTOP_SITE);
}
LAPTOP_FN LAPTOP_PAIR atomicAdd(LAPTOP_PAIR* p, LAPTOP_PAIR v) {
    return laptop::atomic(p, [v](LAPTOP_PAIR old) LAPTOP_QUIET { return __hadd2(old, v); }, LAPTOP_SITE);
}

#undef LAPTOP_SCALAR
#undef LAPTOP_PAIR
#undef LAPTOP_RAW
#undef LAPTOP_PAIR_RAW
#undef LAPTOP_FORMAT
#undef LAPTOP_NAMED
