// float4 and friends, with CUDA's alignments: a cast to float4* of an address that is not a multiple
// of 16 is a bug here as it is there.
#pragma once

#define LAPTOP_VECTORS(name, T, a2, a4)                                                   \
    struct name##1 { T x; };                                                              \
    struct alignas(a2) name##2 { T x, y; };                                               \
    struct name##3 { T x, y, z; };                                                        \
    struct alignas(a4) name##4 { T x, y, z, w; };                                         \
    static inline name##1 make_##name##1(T x) { return {x}; }                             \
    static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                     \
    static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }             \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

LAPTOP_VECTORS(char, signed char, 2, 4)
LAPTOP_VECTORS(uchar, unsigned char, 2, 4)
LAPTOP_VECTORS(short, short, 4, 8)
LAPTOP_VECTORS(ushort, unsigned short, 4, 8)
LAPTOP_VECTORS(int, int, 8, 16)
LAPTOP_VECTORS(uint, unsigned, 8, 16)
LAPTOP_VECTORS(float, float, 8, 16)
LAPTOP_VECTORS(long, long, 16, 16)
LAPTOP_VECTORS(ulong, unsigned long, 16, 16)
LAPTOP_VECTORS(longlong, long long, 16, 16)
LAPTOP_VECTORS(ulonglong, unsigned long long, 16, 16)
LAPTOP_VECTORS(double, double, 16, 16)
#undef LAPTOP_VECTORS

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return uint3{x, y, z}; }
};
