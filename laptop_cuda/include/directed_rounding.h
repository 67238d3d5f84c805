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
#define LAPTOP_DIRECTED(name, To, expression, direction, parameters, ...) \
    LAPTOP_FN To name parameters {                                \
        laptop::Direction until_the_end(direction);               \
        volatile __VA_ARGS__;                                     \
        volatile To result = expression;                          \
        return result;                                            \
    }
#define LAPTOP_DIRECTED1(name, T, expression, direction) LAPTOP_CONVERTED(name, T, expression, direction, T)
#define LAPTOP_DIRECTED2(name, T, expression, direction) \
    LAPTOP_DIRECTED(name, T, expression, direction, (T a, T b), T x = a, y = b)
#define LAPTOP_DIRECTED3(name, T, expression, direction) \
    LAPTOP_DIRECTED(name, T, expression, direction, (T a, T b, T c), T x = a, y = b, z = c)
#define LAPTOP_CONVERTED(name, To, expression, direction, From) \
    LAPTOP_DIRECTED(name, To, expression, direction, (From a), From x = a)

// A machine converts integers with a sign. Of larger ones half is taken, its last bit for all that is lost.
#define LAPTOP_FROM_UNSIGNED(T) \
    ((long long)x >= 0 ? (T)(long long)x : 2 * (T)(long long)(x >> 1 | (x & 1)))

#define LAPTOP_TOWARDS(suffix, direction)                                                             \
    LAPTOP_ROUNDED(suffix, LAPTOP_DIRECTED1, LAPTOP_DIRECTED2, LAPTOP_DIRECTED3, direction)           \
    LAPTOP_CONVERTED(__double2float_##suffix, float, (float)x, direction, double)                     \
    LAPTOP_CONVERTED(__int2float_##suffix, float, (float)x, direction, int)                           \
    LAPTOP_CONVERTED(__uint2float_##suffix, float, (float)(long long)x, direction, unsigned)          \
    LAPTOP_CONVERTED(__ll2float_##suffix, float, (float)x, direction, long long)                      \
    LAPTOP_CONVERTED(__ll2double_##suffix, double, (double)x, direction, long long)                   \
    LAPTOP_CONVERTED(__ull2float_##suffix, float, LAPTOP_FROM_UNSIGNED(float), direction, unsigned long long) \
    LAPTOP_CONVERTED(__ull2double_##suffix, double, LAPTOP_FROM_UNSIGNED(double), direction, unsigned long long)
LAPTOP_TOWARDS(rd, FE_DOWNWARD) LAPTOP_TOWARDS(ru, FE_UPWARD) LAPTOP_TOWARDS(rz, FE_TOWARDZERO)
#undef LAPTOP_TOWARDS
#undef LAPTOP_ROUNDED
#undef LAPTOP_FROM_UNSIGNED
#undef LAPTOP_CONVERTED
#undef LAPTOP_DIRECTED
#undef LAPTOP_DIRECTED1
#undef LAPTOP_DIRECTED2
#undef LAPTOP_DIRECTED3
