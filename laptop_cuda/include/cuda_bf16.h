// bfloat16 and its pair on a laptop: the upper half of a float, rounded once, to nearest even.
// Two bytes in memory, four for the pair, and that is how the tracer sees their loads and stores.
#pragma once
#include "cuda_runtime.h"
#include "soft_float.h"

#define LAPTOP_SCALAR __nv_bfloat16
#define LAPTOP_PAIR __nv_bfloat162
#define LAPTOP_RAW __nv_bfloat16_raw
#define LAPTOP_PAIR_RAW __nv_bfloat162_raw
#define LAPTOP_FORMAT laptop::bfloat16
#define LAPTOP_NAMED(before, after) before##bfloat16##after
#include "half_operations.h"

using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

LAPTOP_FN __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return {a, a}; }

#define CUDART_INF_BF16 __ushort_as_bfloat16(0x7F80u)
#define CUDART_NAN_BF16 __ushort_as_bfloat16(0x7FFFu)
#define CUDART_MIN_DENORM_BF16 __ushort_as_bfloat16(0x0001u)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16(0x7F7Fu)
#define CUDART_NEG_ZERO_BF16 __ushort_as_bfloat16(0x8000u)
#define CUDART_ZERO_BF16 __ushort_as_bfloat16(0x0000u)
#define CUDART_ONE_BF16 __ushort_as_bfloat16(0x3F80u)
