// Brackets around what a profiler should look at; here `cuda.profile()` does that from Python.
#pragma once
#include "cuda_runtime_api.h"
inline cudaError_t cudaProfilerStart() { return cudaSuccess; }
inline cudaError_t cudaProfilerStop() { return cudaSuccess; }
