// float4 and friends, with CUDA's alignments: a cast to float4* that is not aligned is a bug here as on a GPU.
//
// They copy themselves in one access of their own width. With the compiler's copy g++ emits no hook where
// a vector is passed or returned by value, and clang a call of memcpy: the traffic would be lost. A copy of
// their own costs them the name of aggregate, so a constructor accepts `float4 acc[4] = {0}`. A member of a union
// must be copied by the compiler: where a source has unions, vectors and half are as structs of the source's own.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define LAPTOP_INLINE inline __attribute__((always_inline))

namespace laptop {
typedef uint16_t Bits2 __attribute__((may_alias));
typedef uint32_t Bits4 __attribute__((may_alias));
typedef uint64_t Bits8 __attribute__((may_alias));
typedef uint32_t Bits16 __attribute__((vector_size(16), may_alias));
template <size_t width> struct Whole;
template <> struct Whole<2> { typedef Bits2 type; };
template <> struct Whole<4> { typedef Bits4 type; };
template <> struct Whole<8> { typedef Bits8 type; };
template <> struct Whole<16> { typedef Bits16 type; };
}  // namespace laptop

#ifdef LAPTOP_UNIONS
#define LAPTOP_COPIES(name, copy) LAPTOP_INLINE name() = default;
#else
#define LAPTOP_COPIES(name, copy)               \
    LAPTOP_INLINE name() = default;             \
    LAPTOP_INLINE name(const name& o) { copy; } \
    LAPTOP_INLINE name& operator=(const name& o) { copy; return *this; }
#endif
#define LAPTOP_WHOLE(bytes) \
    *(laptop::Whole<bytes>::type*)this = *(const laptop::Whole<bytes>::type*)&o
#define LAPTOP_HALVES(bytes)                                                             \
    ((laptop::Whole<bytes>::type*)this)[0] = ((const laptop::Whole<bytes>::type*)&o)[0]; \
    ((laptop::Whole<bytes>::type*)this)[1] = ((const laptop::Whole<bytes>::type*)&o)[1]

#define LAPTOP_VECTORS(name, T, a2, a4, copy2, copy4)                                               \
    struct name##1 {                                                                                \
        T x;                                                                                        \
        LAPTOP_INLINE constexpr name##1(T x) : x(x) {}                                              \
        LAPTOP_COPIES(name##1, (x = o.x))                                                           \
    };                                                                                              \
    struct alignas(a2) name##2 {                                                                    \
        T x, y;                                                                                     \
        LAPTOP_INLINE constexpr name##2(T x, T y = 0) : x(x), y(y) {}                               \
        LAPTOP_COPIES(name##2, copy2)                                                               \
    };                                                                                              \
    struct name##3 {                                                                                \
        T x, y, z;                                                                                  \
        LAPTOP_INLINE constexpr name##3(T x, T y = 0, T z = 0) : x(x), y(y), z(z) {}                \
        LAPTOP_COPIES(name##3, (x = o.x, y = o.y, z = o.z))                                         \
    };                                                                                              \
    struct alignas(a4) name##4 {                                                                    \
        T x, y, z, w;                                                                               \
        LAPTOP_INLINE constexpr name##4(T x, T y = 0, T z = 0, T w = 0) : x(x), y(y), z(z), w(w) {} \
        LAPTOP_COPIES(name##4, copy4)                                                               \
    };                                                                                              \
    static inline name##1 make_##name##1(T x) { return {x}; }                                       \
    static LAPTOP_INLINE name##2 make_##name##2(T x, T y) { return name##2(x, y); }                 \
    static LAPTOP_INLINE name##3 make_##name##3(T x, T y, T z) { return name##3(x, y, z); }         \
    static LAPTOP_INLINE name##4 make_##name##4(T x, T y, T z, T w) { return name##4(x, y, z, w); }

LAPTOP_VECTORS(char, signed char, 2, 4, LAPTOP_WHOLE(2), LAPTOP_WHOLE(4))
LAPTOP_VECTORS(uchar, unsigned char, 2, 4, LAPTOP_WHOLE(2), LAPTOP_WHOLE(4))
LAPTOP_VECTORS(short, short, 4, 8, LAPTOP_WHOLE(4), LAPTOP_WHOLE(8))
LAPTOP_VECTORS(ushort, unsigned short, 4, 8, LAPTOP_WHOLE(4), LAPTOP_WHOLE(8))
LAPTOP_VECTORS(int, int, 8, 16, LAPTOP_WHOLE(8), LAPTOP_WHOLE(16))
LAPTOP_VECTORS(uint, unsigned, 8, 16, LAPTOP_WHOLE(8), LAPTOP_WHOLE(16))
LAPTOP_VECTORS(float, float, 8, 16, LAPTOP_WHOLE(8), LAPTOP_WHOLE(16))
LAPTOP_VECTORS(long, long, 16, 16, LAPTOP_WHOLE(16), LAPTOP_HALVES(16))
LAPTOP_VECTORS(ulong, unsigned long, 16, 16, LAPTOP_WHOLE(16), LAPTOP_HALVES(16))
LAPTOP_VECTORS(longlong, long long, 16, 16, LAPTOP_WHOLE(16), LAPTOP_HALVES(16))
LAPTOP_VECTORS(ulonglong, unsigned long long, 16, 16, LAPTOP_WHOLE(16), LAPTOP_HALVES(16))
LAPTOP_VECTORS(double, double, 16, 16, LAPTOP_WHOLE(16), LAPTOP_HALVES(16))
#undef LAPTOP_VECTORS
#define LAPTOP_ALIGNED(name) \
    using name##_16a = name; struct alignas(32) name##_32a : name { using name::name; };
LAPTOP_ALIGNED(long4) LAPTOP_ALIGNED(ulong4) LAPTOP_ALIGNED(longlong4) LAPTOP_ALIGNED(ulonglong4) LAPTOP_ALIGNED(double4)
#undef LAPTOP_ALIGNED

// of threadIdx; in a namespace without functions, which a call with a threadIdx would find without their prefix
namespace laptop_index {
struct Index { unsigned x, y, z; operator uint3() const { return uint3(x, y, z); } };
}
namespace laptop {
using laptop_index::Index;
}
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    dim3(const uint3& v) : x(v.x), y(v.y), z(v.z) {}
    constexpr dim3(laptop::Index v) : x(v.x), y(v.y), z(v.z) {}
    operator uint3() const { return uint3(x, y, z); }
};
