// CUDA's words as declarations, for reading kernels (parse.py). A function without a body that gets no pointer is taken
// for one that reads and writes no memory; those of lift.py are known by name.
#define __global__ __attribute__((annotate("global")))
#define __device__
#define __host__
#define __shared__ __attribute__((annotate("shared")))
#define __constant__ __attribute__((annotate("constant")))
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#ifndef __restrict__
#define __restrict__ __restrict
#endif
#define __CUDACC__ 1
#define __CUDA_ARCH__ 800
#define NULL nullptr
#define assert(x) ((void)(x))
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 4294967295u
#define M_PI 3.14159265358979323846
typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef signed char int8_t;
typedef unsigned char uint8_t, uchar;
typedef short int16_t;
typedef unsigned short uint16_t, ushort;
typedef int int32_t;
typedef unsigned uint32_t, uint;
typedef long int64_t;
typedef unsigned long uint64_t, uintptr_t;
struct laptop_index { unsigned x, y, z; };
extern const laptop_index threadIdx, blockIdx, blockDim, gridDim;
constexpr int warpSize = 32;

#define LAPTOP_VECTORS(T, name) \
    struct name##1 { T x; }; \
    struct alignas(2 * sizeof(T)) name##2 { T x, y; }; \
    struct name##3 { T x, y, z; }; \
    struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) name##4 { T x, y, z, w; }; \
    name##2 make_##name##2(T, T); \
    name##3 make_##name##3(T, T, T); \
    name##4 make_##name##4(T, T, T, T);
LAPTOP_VECTORS(float, float) LAPTOP_VECTORS(double, double) LAPTOP_VECTORS(int, int) LAPTOP_VECTORS(unsigned, uint)
LAPTOP_VECTORS(char, char) LAPTOP_VECTORS(unsigned char, uchar) LAPTOP_VECTORS(short, short)
LAPTOP_VECTORS(unsigned short, ushort) LAPTOP_VECTORS(long long, longlong)
struct dim3 { unsigned x = 1, y = 1, z = 1; };

#define LAPTOP_HALF(T) \
    struct alignas(2) T { \
        T() = default; \
        T(float); T(double); T(int); \
        operator float() const; \
        T& operator+=(T); T& operator-=(T); T& operator*=(T); T& operator/=(T); \
        unsigned short bits; \
    }; \
    T operator+(T, T); T operator-(T, T); T operator*(T, T); T operator/(T, T); T operator-(T); \
    bool operator<(T, T); bool operator>(T, T); bool operator<=(T, T); bool operator>=(T, T); bool operator==(T, T);
LAPTOP_HALF(__half) LAPTOP_HALF(__nv_bfloat16)
typedef __half half;
typedef __nv_bfloat16 nv_bfloat16, bfloat16;
struct alignas(4) __half2 { __half x, y; };
struct alignas(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
typedef __half2 half2;

#define LAPTOP_PURE(T, name) template <class... A> T name(A...);
template <class T> struct laptop_real { using type = double; };
template <> struct laptop_real<float> { using type = float; };
#define LAPTOP_REAL(name) template <class... A> decltype((typename laptop_real<A>::type() + ...)) name(A...);
LAPTOP_PURE(float, expf) LAPTOP_PURE(float, exp2f) LAPTOP_PURE(float, exp10f) LAPTOP_PURE(float, expm1f)
LAPTOP_PURE(float, logf) LAPTOP_PURE(float, log2f) LAPTOP_PURE(float, log10f) LAPTOP_PURE(float, log1pf)
LAPTOP_PURE(float, sqrtf) LAPTOP_PURE(float, rsqrtf) LAPTOP_PURE(float, sinf) LAPTOP_PURE(float, cosf)
LAPTOP_PURE(float, tanhf) LAPTOP_PURE(float, powf) LAPTOP_PURE(float, fabsf) LAPTOP_PURE(float, fmaxf)
LAPTOP_PURE(float, fminf) LAPTOP_PURE(float, fmaf) LAPTOP_PURE(float, floorf) LAPTOP_PURE(float, ceilf)
LAPTOP_PURE(float, roundf) LAPTOP_PURE(float, rintf) LAPTOP_PURE(float, truncf) LAPTOP_PURE(float, fmodf)
LAPTOP_PURE(float, erff) LAPTOP_PURE(float, ldexpf) LAPTOP_PURE(float, atan2f) LAPTOP_PURE(float, copysignf)
LAPTOP_REAL(exp) LAPTOP_REAL(exp2) LAPTOP_REAL(log) LAPTOP_REAL(sqrt)
LAPTOP_REAL(rsqrt) LAPTOP_REAL(sin) LAPTOP_REAL(cos) LAPTOP_REAL(tanh)
LAPTOP_REAL(pow) LAPTOP_REAL(fabs) LAPTOP_REAL(fmax) LAPTOP_REAL(fmin)
LAPTOP_REAL(fma) LAPTOP_REAL(floor) LAPTOP_REAL(ceil) LAPTOP_REAL(erf)
LAPTOP_PURE(float, __expf) LAPTOP_PURE(float, __logf) LAPTOP_PURE(float, __log2f) LAPTOP_PURE(float, __fdividef)
LAPTOP_PURE(float, __powf) LAPTOP_PURE(float, __sinf) LAPTOP_PURE(float, __cosf) LAPTOP_PURE(float, __frcp_rn)
LAPTOP_PURE(float, __fmaf_rn) LAPTOP_PURE(float, __saturatef) LAPTOP_PURE(float, __int_as_float)
LAPTOP_PURE(float, __uint_as_float) LAPTOP_PURE(float, __half2float) LAPTOP_PURE(float, __bfloat162float)
LAPTOP_PURE(__half, __float2half) LAPTOP_PURE(__half, __float2half_rn) LAPTOP_PURE(__half, __hadd)
LAPTOP_PURE(__half, __hmul) LAPTOP_PURE(__half, __hfma) LAPTOP_PURE(__nv_bfloat16, __float2bfloat16)
LAPTOP_PURE(__nv_bfloat16, __float2bfloat16_rn) LAPTOP_PURE(__half2, __floats2half2_rn) LAPTOP_PURE(float2, __half22float2)
LAPTOP_PURE(int, __float_as_int) LAPTOP_PURE(unsigned, __float_as_uint) LAPTOP_PURE(int, __float2int_rn)
LAPTOP_PURE(int, __float2int_rd) LAPTOP_PURE(int, __popc) LAPTOP_PURE(int, __ffs) LAPTOP_PURE(int, __clz)
LAPTOP_PURE(unsigned, __ballot_sync) LAPTOP_PURE(unsigned, __activemask) LAPTOP_PURE(int, __any_sync)
LAPTOP_PURE(int, __all_sync) LAPTOP_PURE(unsigned, __brev) LAPTOP_PURE(int, isnan) LAPTOP_PURE(int, isinf)
LAPTOP_PURE(int, printf) LAPTOP_PURE(size_t, __cvta_generic_to_shared) LAPTOP_PURE(float2, __bfloat1622float2)
LAPTOP_PURE(__nv_bfloat162, __floats2bfloat162_rn) LAPTOP_PURE(__nv_bfloat162, __float2bfloat162_rn)
LAPTOP_PURE(unsigned, __byte_perm)
#define LAPTOP_PAIRS(name) template <class A, class... B> A name(A, B...);
LAPTOP_PAIRS(__hadd2) LAPTOP_PAIRS(__hmul2) LAPTOP_PAIRS(__hfma2) LAPTOP_PAIRS(__hmin2) LAPTOP_PAIRS(__hmax2_nan)

template <class T> struct laptop_same { using type = T; };
template <class T> struct laptop_word : laptop_same<T> {};
template <> struct laptop_word<bool> : laptop_same<int> {};
template <> struct laptop_word<char> : laptop_same<int> {};
template <> struct laptop_word<signed char> : laptop_same<int> {};
template <> struct laptop_word<unsigned char> : laptop_same<int> {};
template <> struct laptop_word<short> : laptop_same<int> {};
template <> struct laptop_word<unsigned short> : laptop_same<int> {};
#define LAPTOP_SHUFFLE(name) template <class T> typename laptop_word<T>::type name(unsigned, T, int, int = 32);
LAPTOP_SHUFFLE(__shfl_sync) LAPTOP_SHUFFLE(__shfl_xor_sync) LAPTOP_SHUFFLE(__shfl_down_sync) LAPTOP_SHUFFLE(__shfl_up_sync)
template <class T> T __ldg(const T*);
template <class T> T __ldcs(const T*);
template <class T> void __stcs(T*, typename laptop_same<T>::type);
#define LAPTOP_ATOMIC(name) template <class T> T name(T*, typename laptop_same<T>::type);
LAPTOP_ATOMIC(atomicAdd) LAPTOP_ATOMIC(atomicSub) LAPTOP_ATOMIC(atomicMax) LAPTOP_ATOMIC(atomicMin)
LAPTOP_ATOMIC(atomicExch) LAPTOP_ATOMIC(atomicAnd) LAPTOP_ATOMIC(atomicOr) LAPTOP_ATOMIC(atomicXor)
template <class T> T atomicCAS(T*, typename laptop_same<T>::type, typename laptop_same<T>::type);
template <class A, class B> auto min(A a, B b) -> decltype(true ? +a : +b);
template <class A, class B> auto max(A a, B b) -> decltype(true ? +a : +b);
template <class A> auto abs(A a) -> decltype(+a);
void __syncthreads();
int __syncthreads_or(int), __syncthreads_and(int), __syncthreads_count(int);
void __syncwarp(unsigned = 0xffffffff);
void __threadfence(), __threadfence_block(), __threadfence_system();
namespace std {
using ::min; using ::max; using ::abs; using ::exp; using ::sqrt; using ::log;
}
