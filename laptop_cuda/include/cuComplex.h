// Complex numbers as pairs: cuComplex is a float2, cuDoubleComplex a double2.
#pragma once
#include "cuda_runtime.h"

typedef float2 cuFloatComplex;
typedef float2 cuComplex;
typedef double2 cuDoubleComplex;

// Division scales by the larger part first, so that it neither overflows nor underflows needlessly.
#define LAPTOP_COMPLEX(Type, Real, make, f)                                                          \
    LAPTOP_FN Type make(Real x, Real y) { return {x, y}; }                                           \
    LAPTOP_FN Real cuCreal##f(Type a) { return a.x; }                                                \
    LAPTOP_FN Real cuCimag##f(Type a) { return a.y; }                                                \
    LAPTOP_FN Type cuConj##f(Type a) { return {a.x, -a.y}; }                                         \
    LAPTOP_FN Type cuCadd##f(Type a, Type b) { return {a.x + b.x, a.y + b.y}; }                      \
    LAPTOP_FN Type cuCsub##f(Type a, Type b) { return {a.x - b.x, a.y - b.y}; }                      \
    LAPTOP_FN Type cuCmul##f(Type a, Type b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; } \
    LAPTOP_FN Type cuCdiv##f(Type a, Type b) {                                                       \
        Real s = Real(1) / (__builtin_fabs(b.x) + __builtin_fabs(b.y));                              \
        Real ax = a.x * s, ay = a.y * s, bx = b.x * s, by = b.y * s, t = Real(1) / (bx * bx + by * by); \
        return {(ax * bx + ay * by) * t, (ay * bx - ax * by) * t};                                   \
    }                                                                                                \
    LAPTOP_FN Real cuCabs##f(Type a) { return (Real)__builtin_hypot(a.x, a.y); }                     \
    LAPTOP_FN Type cuCfma##f(Type a, Type b, Type c) {                                               \
        return {a.x * b.x + c.x - a.y * b.y, a.x * b.y + c.y + a.y * b.x};                           \
    }
LAPTOP_COMPLEX(cuFloatComplex, float, make_cuFloatComplex, f)
LAPTOP_COMPLEX(cuDoubleComplex, double, make_cuDoubleComplex, )
#undef LAPTOP_COMPLEX
LAPTOP_FN cuComplex make_cuComplex(float x, float y) { return {x, y}; }
LAPTOP_FN cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex a) { return {a.x, a.y}; }
LAPTOP_FN cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex a) { return {(float)a.x, (float)a.y}; }
