// Arithmetic and conversions rounded down, up or towards zero: __fadd_rd and its kin. The machine's own operation does
// it, with its direction of rounding changed for that one operation.
#pragma once
#include <fenv.h>

namespace laptop {
struct Direction {               // in force until it goes out of scope
    LAPTOP_QUIET explicit Direction(int direction) { fesetround(direction); }
    LAPTOP_QUIET ~Direction() { fesetround(FE_TONEAREST); }
};
}  // namespace laptop

// Volatile operands and results keep the operation between the two changes: to a compiler they have no connection.
#define LAPTOP_DIRECTED1(name, To, direction, From, expression)   \
    LAPTOP_FN To name(From given) {                               \
        laptop::Direction until_the_end(direction);               \
        volatile From x = given;                                  \
        volatile To result = expression;                          \
        return result;                                            \
    }
#define LAPTOP_DIRECTED3(name, T, direction, expression, parameters, ...) \
    LAPTOP_FN T name parameters {                                 \
        laptop::Direction until_the_end(direction);               \
        volatile T operands[] = {__VA_ARGS__};                    \
        volatile T result = expression;                           \
        return result;                                            \
    }
#define LAPTOP_DIRECTED2(name, T, direction, operation) \
    LAPTOP_DIRECTED3(name, T, direction, operands[0] operation operands[1], (T x, T y), x, y)

// A machine converts integers with a sign. Of larger ones half is taken, its last bit for all that is lost.
#define LAPTOP_FROM_UNSIGNED(T) \
    ((long long)x >= 0 ? (T)(long long)x : 2 * (T)(long long)(x >> 1 | (x & 1)))

#define LAPTOP_ROUNDED(suffix, direction)                                                             \
    LAPTOP_DIRECTED2(__fadd_##suffix, float, direction, +)                                            \
    LAPTOP_DIRECTED2(__fsub_##suffix, float, direction, -)                                            \
    LAPTOP_DIRECTED2(__fmul_##suffix, float, direction, *)                                            \
    LAPTOP_DIRECTED2(__fdiv_##suffix, float, direction, /)                                            \
    LAPTOP_DIRECTED1(__frcp_##suffix, float, direction, float, 1.f / x)                               \
    LAPTOP_DIRECTED1(__fsqrt_##suffix, float, direction, float, __builtin_sqrtf(x))                   \
    LAPTOP_DIRECTED3(__fmaf_##suffix, float, direction,                                               \
                     __builtin_fmaf(operands[0], operands[1], operands[2]), (float x, float y, float z), x, y, z) \
    LAPTOP_DIRECTED2(__dadd_##suffix, double, direction, +)                                           \
    LAPTOP_DIRECTED2(__dsub_##suffix, double, direction, -)                                           \
    LAPTOP_DIRECTED2(__dmul_##suffix, double, direction, *)                                           \
    LAPTOP_DIRECTED2(__ddiv_##suffix, double, direction, /)                                           \
    LAPTOP_DIRECTED1(__drcp_##suffix, double, direction, double, 1. / x)                              \
    LAPTOP_DIRECTED1(__dsqrt_##suffix, double, direction, double, __builtin_sqrt(x))                  \
    LAPTOP_DIRECTED3(__fma_##suffix, double, direction,                                               \
                     __builtin_fma(operands[0], operands[1], operands[2]), (double x, double y, double z), x, y, z) \
    LAPTOP_DIRECTED1(__double2float_##suffix, float, direction, double, (float)x)                     \
    LAPTOP_DIRECTED1(__int2float_##suffix, float, direction, int, (float)x)                           \
    LAPTOP_DIRECTED1(__uint2float_##suffix, float, direction, unsigned, (float)(long long)x)          \
    LAPTOP_DIRECTED1(__ll2float_##suffix, float, direction, long long, (float)x)                      \
    LAPTOP_DIRECTED1(__ll2double_##suffix, double, direction, long long, (double)x)                   \
    LAPTOP_DIRECTED1(__ull2float_##suffix, float, direction, unsigned long long, LAPTOP_FROM_UNSIGNED(float)) \
    LAPTOP_DIRECTED1(__ull2double_##suffix, double, direction, unsigned long long, LAPTOP_FROM_UNSIGNED(double))
LAPTOP_ROUNDED(rd, FE_DOWNWARD) LAPTOP_ROUNDED(ru, FE_UPWARD) LAPTOP_ROUNDED(rz, FE_TOWARDZERO)
#undef LAPTOP_ROUNDED
#undef LAPTOP_FROM_UNSIGNED
#undef LAPTOP_DIRECTED1
#undef LAPTOP_DIRECTED2
#undef LAPTOP_DIRECTED3
