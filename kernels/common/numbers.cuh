// Number types: float, half and bfloat16 as float and back, 16 bytes of any of them at once, and powers of 2.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }
__device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ inline T narrow(float x) {
    return x;
}
template <>
__device__ inline __half narrow<__half>(float x) {
    return __float2half(x);
}
template <>
__device__ inline __nv_bfloat16 narrow<__nv_bfloat16>(float x) {
    return __float2bfloat16(x);
}

constexpr float LOG2E = 1.4426950408889634f, LN2 = 0.6931471805599453f;

// 2^x by one hardware instruction; results below 2^-126 become 0. exp2f would spend three more on such numbers.
__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 16 bytes of T as numbers, and back. On a card a load of 16 bytes is one instruction; narrower loads need
// more instructions in flight to keep memory busy.
template <typename T>
struct Sixteen {
    static constexpr int COUNT = 16 / sizeof(T);
    int4 bits;
    __device__ __forceinline__ float get(int i) const { return float(reinterpret_cast<const T*>(&bits)[i]); }
    __device__ __forceinline__ void set(int i, float x) { reinterpret_cast<T*>(&bits)[i] = T(x); }
};
