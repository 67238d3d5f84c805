// A tensor map, and the driver's call that makes one.
#pragma once
#include "laptop_asynchronous.h"
#include "cuda_runtime_api.h"

enum cudaError_enum { CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED = 801 };
typedef cudaError_enum CUresult;
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
struct alignas(64) CUtensorMap { cuuint64_t opaque[16]; };
typedef enum CUtensorMapDataType_enum {
    CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_DATA_TYPE_UINT16, CU_TENSOR_MAP_DATA_TYPE_UINT32,
    CU_TENSOR_MAP_DATA_TYPE_INT32, CU_TENSOR_MAP_DATA_TYPE_UINT64, CU_TENSOR_MAP_DATA_TYPE_INT64,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT16, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ, CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
    CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ } CUtensorMapDataType;
typedef enum CUtensorMapInterleave_enum { CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_INTERLEAVE_16B, CU_TENSOR_MAP_INTERLEAVE_32B } CUtensorMapInterleave;
typedef enum CUtensorMapSwizzle_enum { CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_32B, CU_TENSOR_MAP_SWIZZLE_64B,
                          CU_TENSOR_MAP_SWIZZLE_128B } CUtensorMapSwizzle;
typedef enum CUtensorMapL2promotion_enum { CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
                              CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B } CUtensorMapL2promotion;
typedef enum CUtensorMapFloatOOBfill_enum { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA } CUtensorMapFloatOOBfill;

// What the driver refuses is refused. Interleaved layouts are not to be had.
inline CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* data,
                                       const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                       const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
    laptop::asked().shared_limit = 227 << 10;        // a card with tensor maps has room
    static const uint8_t widths[] = {0, 32, 64, 128};
    if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
    if (!map || rank < 1 || rank > 5 || !data || (uintptr_t)data % 16 || type >= sizeof laptop::BYTES_OF || swizzle >= 4 ||
        !sizes || !box || !steps || (rank > 1 && !strides))
        return CUDA_ERROR_INVALID_VALUE;
    laptop::TensorMap made = {laptop::TensorMap::MADE, (uint8_t)rank, laptop::BYTES_OF[type], widths[swizzle], (uint8_t)fill,
                              (char*)data, {}, {}, {}, {}, (uint8_t)type};
    for (uint32_t i = 0; i < rank; ++i) {
        uint64_t stride = i ? strides[i - 1] : made.itemsize;
        bool wrong = !sizes[i] || sizes[i] > 1ull << 32 || !box[i] || box[i] > 256 || !steps[i] || steps[i] > 8;
        if (wrong || (i && (stride % 16 || stride >= 1ull << 40))) return CUDA_ERROR_INVALID_VALUE;
        made.sizes[i] = sizes[i], made.strides[i] = stride, made.box[i] = (uint16_t)box[i];
        made.steps[i] = i ? (uint8_t)steps[i] : 1;       // the innermost one's is not looked at
    }
    uint32_t inner = box[0] * made.itemsize;
    if (inner % 16 || (swizzle && inner > made.swizzle)) return CUDA_ERROR_INVALID_VALUE;
    ::memcpy(map, &made, sizeof made);
    return CUDA_SUCCESS;
}
typedef decltype(&cuTensorMapEncodeTiled) PFN_cuTensorMapEncodeTiled, PFN_cuTensorMapEncodeTiled_v12000;

// The driver's functions by name: the one above, and no other.
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess, cudaDriverEntryPointSymbolNotFound,
                                       cudaDriverEntryPointVersionNotSufficent };
enum { cudaEnableDefault, cudaEnableLegacyStream, cudaEnablePerThreadDefaultStream };
inline cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                           cudaDriverEntryPointQueryResult* found = nullptr) {
    bool known = !::strcmp(name, "cuTensorMapEncodeTiled");
    *function = known ? (void*)&cuTensorMapEncodeTiled : nullptr;
    if (found) *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
inline cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long flags,
                                                    cudaDriverEntryPointQueryResult* found = nullptr) {
    return cudaGetDriverEntryPoint(name, function, flags, found);
}
