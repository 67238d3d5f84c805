// A tensor map, and the driver's call that makes one.
#pragma once
#include "laptop_asynchronous.h"
#include "cuda_runtime_api.h"

enum cudaError_enum { CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED = 801, CUDA_ERROR_UNKNOWN = 999 };
typedef cudaError_enum CUresult;
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
struct alignas(64) CUtensorMap { cuuint64_t opaque[16]; };
typedef enum CUtensorMapDataType_enum {
    CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_DATA_TYPE_UINT16, CU_TENSOR_MAP_DATA_TYPE_UINT32,
    CU_TENSOR_MAP_DATA_TYPE_INT32, CU_TENSOR_MAP_DATA_TYPE_UINT64, CU_TENSOR_MAP_DATA_TYPE_INT64,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT16, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ, CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
    CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ, CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B,
    CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B, CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B } CUtensorMapDataType;
typedef enum CUtensorMapInterleave_enum { CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_INTERLEAVE_16B, CU_TENSOR_MAP_INTERLEAVE_32B } CUtensorMapInterleave;
typedef enum CUtensorMapSwizzle_enum { CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_32B, CU_TENSOR_MAP_SWIZZLE_64B,
                          CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B,
                          CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B, CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B } CUtensorMapSwizzle;
typedef enum CUtensorMapL2promotion_enum { CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
                              CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B } CUtensorMapL2promotion;
typedef enum CUtensorMapFloatOOBfill_enum { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA } CUtensorMapFloatOOBfill;

// What the driver refuses of any map is refused; numbers of 4 and 6 bits are not to be had. What is made has no box yet.
inline CUresult laptop_begun(laptop::TensorMap& made, CUtensorMap* map, unsigned type, cuuint32_t rank, void* data, const cuuint64_t* sizes,
                             const cuuint64_t* strides, const cuuint32_t* steps, unsigned interleave, unsigned swizzle, unsigned promotion,
                             unsigned fill) {
    laptop::asked().shared_limit = 227 << 10;        // a card with tensor maps has room
    static const uint8_t widths[] = {0, 32, 64, 128, 128, 128, 128}, atoms[] = {16, 16, 16, 16, 32, 33, 64}, slices[] = {0, 16, 32};
    if (type >= CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B && type <= CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B) return CUDA_ERROR_NOT_SUPPORTED;
    if (!map || (uintptr_t)map % 64 || rank < 1 || rank > 5 || !data || type >= sizeof laptop::BYTES_OF || swizzle >= sizeof widths ||
        interleave >= sizeof slices || !sizes || !steps || (rank > 1 && !strides) || promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B ||
        fill > 1 || (fill && type < CU_TENSOR_MAP_DATA_TYPE_FLOAT16))
        return CUDA_ERROR_INVALID_VALUE;
    unsigned slice = slices[interleave], aligned = slice == 32 ? 32 : 16;
    if ((uintptr_t)data % aligned || (slice && rank < 3) || (slice == 32 && swizzle != CU_TENSOR_MAP_SWIZZLE_32B)) return CUDA_ERROR_INVALID_VALUE;
    made.made = laptop::TensorMap::MADE, made.rank = rank, made.itemsize = laptop::BYTES_OF[type], made.fill = fill, made.type = type;
    made.data = (char*)data, made.swizzle = widths[swizzle], made.atom = atoms[swizzle], made.interleave = slice;
    for (uint32_t i = 0; i < rank; ++i) {
        uint64_t stride = i ? strides[i - 1] : slice ? slice : made.itemsize;
        bool wrong = !sizes[i] || sizes[i] > 1ull << 32 || ((i || slice) && (!steps[i] || steps[i] > 8));
        if (wrong || (i && (stride % aligned || stride >= 1ull << 40))) return CUDA_ERROR_INVALID_VALUE;
        made.sizes[i] = sizes[i], made.strides[i] = stride;
        made.steps[i] = i || slice ? (uint8_t)steps[i] : 1;      // the innermost one's is not looked at
    }
    return CUDA_SUCCESS;
}
inline CUresult laptop_ended(const laptop::TensorMap& made, CUtensorMap* map) {
    uint32_t inner = made.box[0] * made.itemsize;
    if (!made.interleave && (inner % 16 || (made.swizzle && inner > made.swizzle))) return CUDA_ERROR_INVALID_VALUE;
    ::memcpy(map, &made, sizeof made);
    return CUDA_SUCCESS;
}
inline CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* data,
                                       const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                       const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    laptop::TensorMap made = {};
    CUresult begun = laptop_begun(made, map, type, rank, data, sizes, strides, steps, interleave, swizzle, promotion, fill);
    if (begun || !box) return begun ? begun : CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; i < rank; ++i) {
        if (!box[i] || box[i] > 256) return CUDA_ERROR_INVALID_VALUE;
        made.box[i] = (uint16_t)box[i];
    }
    return laptop_ended(made, map);
}
inline CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* data,
                                        const cuuint64_t* sizes, const cuuint64_t* strides, const int* lower, const int* upper,
                                        cuuint32_t channels, cuuint32_t pixels, const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                        CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    laptop::TensorMap made = {};
    CUresult begun = laptop_begun(made, map, type, rank, data, sizes, strides, steps, interleave, swizzle, promotion, fill);
    if (begun || rank < 3 || !lower || !upper || !channels || channels > 256 || !pixels || pixels > 1024)
        return begun ? begun : CUDA_ERROR_INVALID_VALUE;
    int limit = rank == 3 ? 32768 : rank == 4 ? 128 : 16, first = !made.interleave;
    for (uint32_t i = 0; i < rank - 2; ++i) {
        bool wrong = lower[i] < -limit || lower[i] >= limit || upper[i] < -limit || upper[i] >= limit;
        if (wrong || lower[i] >= (int64_t)made.sizes[first + i] + upper[i]) return CUDA_ERROR_INVALID_VALUE;       // no area
        made.lower[i] = (int16_t)lower[i], made.upper[i] = (int16_t)upper[i];
    }
    made.box[0] = (uint16_t)channels, made.box[1] = (uint16_t)pixels, made.im2col = true;
    return laptop_ended(made, map);
}
typedef decltype(&cuTensorMapEncodeTiled) PFN_cuTensorMapEncodeTiled, PFN_cuTensorMapEncodeTiled_v12000;
typedef decltype(&cuTensorMapEncodeIm2col) PFN_cuTensorMapEncodeIm2col, PFN_cuTensorMapEncodeIm2col_v12000;

// The driver's functions by name: the two above, and no other.
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess, cudaDriverEntryPointSymbolNotFound,
                                       cudaDriverEntryPointVersionNotSufficent };
enum { cudaEnableDefault, cudaEnableLegacyStream, cudaEnablePerThreadDefaultStream };
inline cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                           cudaDriverEntryPointQueryResult* found = nullptr) {
    *function = !::strcmp(name, "cuTensorMapEncodeTiled") ? (void*)&cuTensorMapEncodeTiled
              : !::strcmp(name, "cuTensorMapEncodeIm2col") ? (void*)&cuTensorMapEncodeIm2col : nullptr;
    if (found) *found = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
inline cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long flags,
                                                    cudaDriverEntryPointQueryResult* found = nullptr) {
    return cudaGetDriverEntryPoint(name, function, flags, found);
}
