// The host side that published files call around their kernels: device memory is host memory, streams and
// events are names, every launch has finished when it returns.
#pragma once
#include "engine.h"
#include "vector_types.h"

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2,
                   cudaErrorInvalidConfiguration = 9, cudaErrorNotSupported = 801, cudaErrorLaunchFailure = 719 };
typedef cudaError_t cudaError;
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost,
                      cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
                         cudaFuncAttributePreferredSharedMemoryCarveout = 9 };
enum cudaSharedCarveout { cudaSharedmemCarveoutDefault = -1, cudaSharedmemCarveoutMaxShared = 100,
                          cudaSharedmemCarveoutMaxL1 = 0 };
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
enum cudaDeviceAttr { cudaDevAttrMaxThreadsPerBlock = 1, cudaDevAttrMaxSharedMemoryPerBlock = 8, cudaDevAttrWarpSize = 10,
                      cudaDevAttrMultiProcessorCount = 16, cudaDevAttrCooperativeLaunch = 95,
                      cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2,
       cudaMemAttachGlobal = 1, cudaHostAllocDefault = 0 };
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], multiProcessorCount;
    int maxThreadsPerMultiProcessor, major, minor, clockRate, memoryClockRate, memoryBusWidth, l2CacheSize;
    size_t totalConstMem, memPitch;
    int canMapHostMemory, concurrentKernels, integrated, asyncEngineCount, maxBlocksPerMultiProcessor, cooperativeLaunch;
};

namespace laptop {
int& last_error();                        // of a launch from host code
void* device_malloc(size_t bytes);        // 256-byte aligned, as cudaMalloc's answer is
void device_free(void* p);
}

inline cudaError_t cudaMalloc(void** p, size_t bytes) {
    *p = laptop::device_malloc(bytes);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
template <class T> cudaError_t cudaMalloc(T** p, size_t bytes) { return cudaMalloc((void**)p, bytes); }
template <class T> cudaError_t cudaMallocManaged(T** p, size_t bytes, unsigned = 1) { return cudaMalloc((void**)p, bytes); }
template <class T> cudaError_t cudaMallocHost(T** p, size_t bytes) { return cudaMalloc((void**)p, bytes); }
template <class T> cudaError_t cudaHostAlloc(T** p, size_t bytes, unsigned) { return cudaMalloc((void**)p, bytes); }
template <class T> cudaError_t cudaMallocAsync(T** p, size_t bytes, cudaStream_t) { return cudaMalloc((void**)p, bytes); }
inline cudaError_t cudaFree(void* p) { laptop::device_free(p); return cudaSuccess; }
inline cudaError_t cudaFreeHost(void* p) { return cudaFree(p); }
inline cudaError_t cudaFreeAsync(void* p, cudaStream_t) { return cudaFree(p); }
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind) {
    ::memmove(to, from, n);
    return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind kind, cudaStream_t = nullptr) {
    return cudaMemcpy(to, from, n, kind);
}
inline cudaError_t cudaMemset(void* to, int value, size_t n) { ::memset(to, value, n); return cudaSuccess; }
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t n, cudaStream_t = nullptr) { return cudaMemset(to, value, n); }
template <class T>
cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, size_t n, size_t offset = 0,
                               cudaMemcpyKind = cudaMemcpyHostToDevice) {
    ::memcpy((char*)&symbol + offset, from, n);
    return cudaSuccess;
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t n, size_t offset = 0,
                                 cudaMemcpyKind = cudaMemcpyDeviceToHost) {
    ::memcpy(to, (const char*)&symbol + offset, n);
    return cudaSuccess;
}
inline cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                size_t height, cudaMemcpyKind) {
    for (size_t row = 0; row < height; row++)
        ::memmove((char*)to + row * to_pitch, (const char*)from + row * from_pitch, width);
    return cudaSuccess;
}
inline cudaError_t cudaMemGetInfo(size_t* unused, size_t* total) {
    *unused = *total = (size_t)1 << 32;
    return cudaSuccess;
}
template <class T> cudaError_t cudaGetSymbolAddress(void** to, const T& symbol) {
    *to = (void*)&symbol;
    return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaDeviceReset() { return cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { *device = 0; return cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) { *count = 1; return cudaSuccess; }
inline cudaError_t cudaPeekAtLastError() { return (cudaError_t)laptop::last_error(); }
inline cudaError_t cudaGetLastError() {
    cudaError_t error = (cudaError_t)laptop::last_error();
    laptop::last_error() = cudaSuccess;
    return error;
}
inline const char* cudaGetErrorString(cudaError_t e) {
    switch (e) {
        case cudaSuccess: return "no error";
        case cudaErrorInvalidValue: return "invalid argument";
        case cudaErrorMemoryAllocation: return "out of memory";
        case cudaErrorInvalidConfiguration: return "invalid configuration argument";
        case cudaErrorNotSupported: return "operation not supported";
        default: return "unspecified launch failure";
    }
}
inline const char* cudaGetErrorName(cudaError_t e) { return e == cudaSuccess ? "cudaSuccess" : "cudaError"; }

inline cudaError_t cudaStreamCreate(cudaStream_t* s) { *s = nullptr; return cudaSuccess; }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) { return cudaStreamCreate(s); }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) { return cudaSuccess; }
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaEventCreate(cudaEvent_t* e) { *e = nullptr; return cudaSuccess; }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return cudaEventCreate(e); }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = nullptr) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { *ms = 0.f; return cudaSuccess; }

template <class F> cudaError_t cudaFuncSetAttribute(F, cudaFuncAttribute, int) { return cudaSuccess; }
template <class F> cudaError_t cudaFuncSetCacheConfig(F, cudaFuncCache) { return cudaSuccess; }
template <class F>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, F, int threads, size_t) {
    *blocks = threads > 0 ? 2048 / threads : 0;
    return cudaSuccess;
}
template <class F>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, F, size_t = 0, int = 0) {
    *grid = 1, *block = 1024;
    return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
    ::memset((void*)p, 0, sizeof *p);
    ::strcpy(p->name, "CPU running CUDA C++");
    p->totalGlobalMem = (size_t)1 << 32, p->sharedMemPerBlock = 48 << 10, p->sharedMemPerBlockOptin = 99 << 10;
    p->sharedMemPerMultiprocessor = 100 << 10, p->regsPerBlock = 65536, p->warpSize = 32, p->maxThreadsPerBlock = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 2147483647, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->multiProcessorCount = 1, p->maxThreadsPerMultiProcessor = 1024, p->major = 8;
    p->totalConstMem = 64 << 10, p->memPitch = 2147483647, p->maxBlocksPerMultiProcessor = 1, p->cooperativeLaunch = 1;
    return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 99 << 10; break;
        case cudaDevAttrWarpSize: *value = 32; break;
        default: *value = 1; break;
    }
    return cudaSuccess;
}
