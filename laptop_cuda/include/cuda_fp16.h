// half and half2 on a laptop: every operation rounds once, to nearest even, subnormals, infinities and NaN included.
// A half is two bytes in memory and a half2 four, and that is how the tracer sees their loads and stores.
#pragma once
#include "cuda_runtime.h"
#include "soft_float.h"

#define LAPTOP_SCALAR __half
#define LAPTOP_PAIR __half2
#define LAPTOP_RAW __half_raw
#define LAPTOP_PAIR_RAW __half2_raw
#define LAPTOP_FORMAT laptop::binary16
#define LAPTOP_NAMED(before, after) before##half##after
#include "half_operations.h"

using half = __half;
using half2 = __half2;
using __nv_half = __half;
using __nv_half2 = __half2;
using nv_half = __half;
using nv_half2 = __half2;

LAPTOP_FN __half2 __half2half2(__half a) { return {a, a}; }

#define CUDART_INF_FP16 __ushort_as_half(0x7C00u)
#define CUDART_NAN_FP16 __ushort_as_half(0x7FFFu)
#define CUDART_MIN_DENORM_FP16 __ushort_as_half(0x0001u)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half(0x7BFFu)
#define CUDART_NEG_ZERO_FP16 __ushort_as_half(0x8000u)
#define CUDART_ZERO_FP16 __ushort_as_half(0x0000u)
#define CUDART_ONE_FP16 __ushort_as_half(0x3C00u)
