// What programs of the runtime API take from the driver's header: tensor maps.
#pragma once
#include "cuda_runtime.h"
#include "tensor_maps.h"
#define CUDA_VERSION CUDART_VERSION

inline CUresult cuGetErrorString(CUresult code, const char** text) {
    *text = code == CUDA_SUCCESS ? "no error" : code == CUDA_ERROR_INVALID_VALUE ? "invalid argument" : "not supported";
    return CUDA_SUCCESS;
}
