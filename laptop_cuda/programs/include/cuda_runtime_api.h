// The host side of the runtime API. Work is done when a call returns, in whatever order streams have it; device
// memory is a range of addresses of its own (runtime_heap.cpp), and what the API would refuse is refused here.
#pragma once
#include <cstdlib>
#include <cstring>

#include "cuda_device_properties.h"
#include "cuda_errors.h"
#include "laptop_host.h"
#include "library_types.h"
#include "vector_types.h"

enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost,
                      cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9,
                         cudaFuncAttributeNonPortableClusterSizeAllowed = 14 };
enum cudaSharedCarveout { cudaSharedmemCarveoutDefault = -1, cudaSharedmemCarveoutMaxShared = 100,
                          cudaSharedmemCarveoutMaxL1 = 0 };
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
enum cudaSharedMemConfig { cudaSharedMemBankSizeDefault, cudaSharedMemBankSizeFourByte, cudaSharedMemBankSizeEightByte };
enum cudaLimit { cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize, cudaLimitDevRuntimeSyncDepth,
                 cudaLimitDevRuntimePendingLaunchCount, cudaLimitMaxL2FetchGranularity, cudaLimitPersistingL2CacheSize };
enum cudaMemoryAdvise { cudaMemAdviseSetReadMostly = 1, cudaMemAdviseUnsetReadMostly, cudaMemAdviseSetPreferredLocation,
                        cudaMemAdviseUnsetPreferredLocation, cudaMemAdviseSetAccessedBy, cudaMemAdviseUnsetAccessedBy };
enum cudaMemLocationType { cudaMemLocationTypeInvalid, cudaMemLocationTypeDevice, cudaMemLocationTypeHost,
                           cudaMemLocationTypeHostNuma, cudaMemLocationTypeHostNumaCurrent };
struct cudaMemLocation { cudaMemLocationType type; int id; };
enum cudaAccessProperty { cudaAccessPropertyNormal, cudaAccessPropertyStreaming, cudaAccessPropertyPersisting };
struct cudaAccessPolicyWindow {
    void* base_ptr;
    size_t num_bytes;
    float hitRatio;
    cudaAccessProperty hitProp, missProp;
};
enum cudaStreamAttrID { cudaStreamAttributeAccessPolicyWindow = 1, cudaStreamAttributeSynchronizationPolicy = 3,
                        cudaStreamAttributePriority = 8 };
struct cudaStreamAttrValue { cudaAccessPolicyWindow accessPolicyWindow; int syncPolicy, priority; };
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventBlockingSync = 1,
       cudaEventDisableTiming = 2, cudaEventInterprocess = 4, cudaMemAttachGlobal = 1, cudaMemAttachHost = 2,
       cudaMemAttachSingle = 4, cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2,
       cudaHostAllocWriteCombined = 4, cudaHostRegisterDefault = 0, cudaHostRegisterPortable = 1, cudaHostRegisterMapped = 2,
       cudaDeviceScheduleAuto = 0, cudaDeviceScheduleSpin = 1, cudaDeviceScheduleYield = 2,
       cudaDeviceScheduleBlockingSync = 4, cudaDeviceBlockingSync = 4, cudaDeviceScheduleMask = 7, cudaDeviceMapHost = 8, cudaDeviceLmemResizeToMax = 16, cudaDeviceMask = 31,
       cudaOccupancyDefault = 0, cudaCpuDeviceId = -1, cudaInvalidDeviceId = -2 };
typedef struct CUstream_st* cudaStream_t;
enum cudaLaunchAttributeID { cudaLaunchAttributeIgnore, cudaLaunchAttributeCooperative = 2,
                             cudaLaunchAttributeClusterDimension = 4,
                             cudaLaunchAttributeProgrammaticStreamSerialization = 6, cudaLaunchAttributePriority = 8,
                             cudaLaunchAttributePreferredClusterDimension = 11 };
union cudaLaunchAttributeValue {
    int cooperative, programmaticStreamSerializationAllowed, priority; struct { unsigned x, y, z; } clusterDim, preferredClusterDim;
};
struct cudaLaunchAttribute { cudaLaunchAttributeID id; cudaLaunchAttributeValue val; };
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim; size_t dynamicSmemBytes; cudaStream_t stream; cudaLaunchAttribute* attrs; unsigned numAttrs;
};
typedef struct CUevent_st* cudaEvent_t;
// Of graphs the names alone, for headers that mention them: what makes or launches one is not declared.
typedef struct CUgraph_st *cudaGraph_t, *cudaGraphExec_t;
typedef struct CUgraphNode_st* cudaGraphNode_t;
struct cudaKernelNodeParams { void* func; dim3 gridDim, blockDim; unsigned sharedMemBytes; void **kernelParams, **extra; };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive, cudaStreamCaptureStatusInvalidated };
inline cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) { return *status = cudaStreamCaptureStatusNone, cudaSuccess; }
#define cudaStreamLegacy ((cudaStream_t)1)
#define cudaStreamPerThread ((cudaStream_t)2)
struct cudaPointerAttributes { cudaMemoryType type; int device; void *devicePointer, *hostPointer; };
struct cudaFuncAttributes {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes, preferredShmemCarveout;
};

namespace laptop {
LAPTOP_FN cudaError_t answer(cudaError_t e) {
    if (sticky_error()) return (cudaError_t)sticky_error();
    if (e != cudaSuccess) last_error() = e;
    return e;
}
struct Issue {                   // of a copy: who asks for it, and whether host code goes on after it
    const char* name = "cudaMemcpy";
    const void* site = nullptr;
    cudaStream_t stream = nullptr;
    bool waits = true;
};
LAPTOP_FN cudaError_t waited(Order by, cudaStream_t s = nullptr, const void* event = nullptr) {
    return order(by, s, event), synchronised(), answer(cudaSuccess);
}
inline void copy_now(void* to, const void* from, size_t n, const Issue& by = {}) {
    Issued now(by.stream, by.name, by.site, by.waits || place_of(to, n) == Place::HOST);
    AsDevice as;
    now.uses(from, n, false), now.uses(to, n, true);
    move_unseen(to, from, n);
    host_wrote(to, n, from);
}
inline cudaError_t copy(void* to, const void* from, size_t n, cudaMemcpyKind kind, const Issue& by = {}) {
    if (sticky_error()) return (cudaError_t)sticky_error();
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return answer(cudaErrorInvalidMemcpyDirection);
    if (!n) return cudaSuccess;
    const char* why = !to || !from ? "a pointer is null"
                      : place_of(to, n) == Place::OUTSIDE ? "more bytes than the memory has that it copies to"
                      : place_of(from, n) == Place::OUTSIDE ? "more bytes than the memory has that it copies from"
                      : to_device && !is_device_memory(to, n) ? "the direction says to the device, and the destination is not there"
                      : from_device && !is_device_memory(from, n) ? "the direction says from the device, and the source is not there"
                      : !within_malloc(to, n) ? "more bytes than malloc gave to where it copies to"
                      : !within_malloc(from, n) ? "more bytes than malloc gave to where it copies from"
                      : nullptr;
    if (why) {
        if (LAPTOP_TRACED && by.site) refused_call(by.name, why, by.site);
        return answer(cudaErrorInvalidValue);
    }
    if (LAPTOP_TRACED && by.site && place_of(to, n) == Place::HOST) leaves_device(by.name, from, n, by.site);
    copy_now(to, from, n, by);
    if (LAPTOP_TRACED && place_of(to, n) == Place::HOST) copied_out(to, from, n, by.site);
    return cudaSuccess;
}
LAPTOP_FN cudaError_t copy_symbol(const char* name, void* to, const void* from, size_t n, size_t offset, size_t all, const void* site) {
    const char* why = offset > all || n > all - offset ? "more bytes than the variable has" : nullptr;
    if (!within_malloc(to, n) || !within_malloc(from, n)) why = "more bytes than malloc gave to one side";
    if (why && LAPTOP_TRACED) refused_call(name, why, site);
    if (!why) copy_now(to, from, n);
    return answer(why ? cudaErrorInvalidValue : cudaSuccess);
}
inline cudaError_t set(void* to, int value, size_t n, const Issue& by = {}) {
    if (sticky_error()) return (cudaError_t)sticky_error();
    if (!n) return cudaSuccess;
    bool outside = place_of(to, n) == Place::OUTSIDE;
    if (outside || !is_device_memory(to, n)) {
        const char* why = outside ? "more bytes than the memory has" : "the memory is not the device's";
        if (LAPTOP_TRACED && by.site) refused_call(by.name, why, by.site);
        return answer(cudaErrorInvalidValue);
    }
    Issued now(by.stream, by.name, by.site, by.waits && place_of(to, n) == Place::BOTH);
    AsDevice as;
    now.uses(to, n, true);
    set_unseen(to, value, n);
    host_wrote(to, n);
    return cudaSuccess;
}
inline cudaError_t give_back(const char* name, void* p, const void* site) {
    const char* why = device_free(p);
    if (why && LAPTOP_TRACED) refused_call(name, why, site);
    return answer(why ? cudaErrorInvalidValue : cudaSuccess);
}
inline cudaError_t allocate(const char* name, void** p, size_t bytes, unsigned itemsize, bool for_host, const Issue& by = {}) {
    if (sticky_error()) return (cudaError_t)sticky_error();
    if (!by.site) order(Order::STREAMS_MEET);
    *p = bytes ? device_malloc(bytes, name, itemsize, for_host) : nullptr;
    if (by.site) Issued(by.stream, by.name, by.site, false).uses(*p, bytes, true);
    return *p || !bytes ? cudaSuccess : answer(cudaErrorMemoryAllocation);
}
// What device code may not call, or what is not known there.
LAPTOP_FN void host_only(const char* name, const void* site) { if (in_kernel()) not_supported(name, site); }
// cudaMalloc in a kernel is its malloc.
LAPTOP_FN cudaError_t allocate_in_kernel(const char* name, void** p, size_t bytes, unsigned itemsize, const void* site) {
    void* made = kernel_malloc(bytes, site, name, itemsize);
    if (LAPTOP_TRACED) will_write(p, sizeof *p, site);
    *p = made;
    return made ? cudaSuccess : answer(cudaErrorMemoryAllocation);
}
template <class T> struct sized { static constexpr unsigned value = sizeof(T); };
template <> struct sized<void> { static constexpr unsigned value = 1; };
}  // namespace laptop

// Each is also a macro, which hands on the text of its arguments: that is how an array gets its name.
#define LAPTOP_ALLOCATOR(name, for_host, more, by)                                                      \
    template <class T> LAPTOP_FN cudaError_t laptop_##name(const char* text, T** p, size_t bytes more) { \
        if (laptop::in_kernel())                                                                        \
            return laptop::allocate_in_kernel(text, (void**)p, bytes, laptop::sized<T>::value, LAPTOP_SITE); \
        return laptop::allocate(text, (void**)p, bytes, laptop::sized<T>::value, for_host by);          \
    }                                                                                                   \
    template <class T> cudaError_t name(T** p, size_t bytes more) {                                     \
        return laptop::allocate(nullptr, (void**)p, bytes, laptop::sized<T>::value, for_host by);       \
    }
#define LAPTOP_MORE(...) , __VA_ARGS__
LAPTOP_ALLOCATOR(cudaMalloc, false, , )
LAPTOP_ALLOCATOR(cudaMallocAsync, false, LAPTOP_MORE(cudaStream_t s = nullptr),
                 LAPTOP_MORE(laptop::Issue{"cudaMallocAsync", LAPTOP_SITE, s, false}))
LAPTOP_ALLOCATOR(cudaMallocManaged, true, LAPTOP_MORE(unsigned = 1), )
LAPTOP_ALLOCATOR(cudaMallocHost, true, LAPTOP_MORE(unsigned = 0), )
LAPTOP_ALLOCATOR(cudaHostAlloc, true, LAPTOP_MORE(unsigned = 0), )
#undef LAPTOP_ALLOCATOR
#undef LAPTOP_MORE
template <class T> cudaError_t cudaMallocPitch(T** p, size_t* pitch, size_t width, size_t height) {
    *pitch = (width + 511) / 512 * 512;
    return laptop::allocate(nullptr, (void**)p, *pitch * height, laptop::sized<T>::value, false);
}
#define cudaMalloc(...) laptop_cudaMalloc(#__VA_ARGS__, __VA_ARGS__)
#define cudaMallocAsync(...) laptop_cudaMallocAsync(#__VA_ARGS__, __VA_ARGS__)
#define cudaMallocManaged(...) laptop_cudaMallocManaged(#__VA_ARGS__, __VA_ARGS__)
#define cudaMallocHost(...) laptop_cudaMallocHost(#__VA_ARGS__, __VA_ARGS__)
#define cudaHostAlloc(...) laptop_cudaHostAlloc(#__VA_ARGS__, __VA_ARGS__)

LAPTOP_FN cudaError_t cudaFree(void* p) {
    if (laptop::in_kernel()) {           // of the kernel's own, or by the destructor of a thread's copy of an argument
        if (laptop::is_of_kernel(p)) laptop::kernel_free(p, LAPTOP_SITE);
        return cudaSuccess;
    }
    laptop::order(laptop::Order::HOST_AWAITS_ALL);
    return laptop::give_back("cudaFree", p, LAPTOP_SITE);
}
LAPTOP_FN cudaError_t cudaFreeAsync(void* p, cudaStream_t s) {
    laptop::host_only("cudaFreeAsync in a kernel", LAPTOP_SITE);
    laptop::Issued(s, "cudaFreeAsync", LAPTOP_SITE, false).uses(p, laptop::allocated(p), true);
    return laptop::give_back("cudaFreeAsync", p, LAPTOP_SITE);
}
LAPTOP_FN cudaError_t cudaFreeHost(void* p) {
    laptop::order(laptop::Order::HOST_AWAITS_ALL);
    return laptop::give_back("cudaFreeHost", p, LAPTOP_SITE);
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind kind) {
    return laptop::copy(to, from, n, kind, {"cudaMemcpy", LAPTOP_SITE});
}
LAPTOP_FN cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind kind, cudaStream_t s = nullptr) {
    laptop::host_only("cudaMemcpyAsync in a kernel", LAPTOP_SITE);
    return laptop::copy(to, from, n, kind, {"cudaMemcpyAsync", LAPTOP_SITE, s, false});
}
inline cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t n) {
    return laptop::copy(to, from, n, cudaMemcpyDeviceToDevice, {"cudaMemcpyPeer", LAPTOP_SITE});
}
inline cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t n, cudaStream_t = nullptr) {
    return laptop::copy(to, from, n, cudaMemcpyDeviceToDevice);
}
LAPTOP_FN cudaError_t cudaMemset(void* to, int value, size_t n) {
    return laptop::set(to, value, n, {"cudaMemset", LAPTOP_SITE});
}
LAPTOP_FN cudaError_t cudaMemsetAsync(void* to, int value, size_t n, cudaStream_t s = nullptr) {
    laptop::host_only("cudaMemsetAsync in a kernel", LAPTOP_SITE);
    return laptop::set(to, value, n, {"cudaMemsetAsync", LAPTOP_SITE, s, false});
}
inline cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
    laptop::AsDevice as;
    cudaError_t e = cudaSuccess;
    for (size_t row = 0; row < height && e == cudaSuccess; row++)
        e = laptop::set((char*)to + row * pitch, value, width, {"cudaMemset2D", LAPTOP_SITE});
    return e;
}
inline cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                size_t height, cudaMemcpyKind kind) {
    laptop::AsDevice as;
    cudaError_t e = cudaSuccess;
    size_t behind = height ? height - 1 : 0;
    bool narrow = to_pitch < width || from_pitch < width;
    if (narrow || !laptop::within_malloc(to, behind * to_pitch + width) || !laptop::within_malloc(from, behind * from_pitch + width)) {
        laptop::refused_call("cudaMemcpy2D", narrow ? "a pitch is less than the width" : "more bytes than malloc gave to one side", LAPTOP_SITE);
        return laptop::answer(cudaErrorInvalidValue);
    }
    for (size_t row = 0; row < height && e == cudaSuccess; row++)
        e = laptop::copy((char*)to + row * to_pitch, (const char*)from + row * from_pitch, width, kind, {"cudaMemcpy2D", LAPTOP_SITE});
    return e;
}
inline cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                     size_t height, cudaMemcpyKind kind, cudaStream_t = nullptr) {
    return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}
#define LAPTOP_SYMBOL_COPY(name, parameters, to, from, more)                                                      \
    template <class T> LAPTOP_FN cudaError_t name(parameters, size_t n, size_t offset = 0, cudaMemcpyKind = cudaMemcpyDefault more) { \
        return laptop::copy_symbol(#name, to, from, n, offset, sizeof symbol, LAPTOP_SITE);                      \
    }
#define LAPTOP_BOTH(...) __VA_ARGS__
LAPTOP_SYMBOL_COPY(cudaMemcpyToSymbol, LAPTOP_BOTH(T& symbol, const void* from), (char*)&symbol + offset, from, )
LAPTOP_SYMBOL_COPY(cudaMemcpyFromSymbol, LAPTOP_BOTH(void* to, const T& symbol), to, (const char*)&symbol + offset, )
LAPTOP_SYMBOL_COPY(cudaMemcpyToSymbolAsync, LAPTOP_BOTH(T& symbol, const void* from), (char*)&symbol + offset, from,
                   LAPTOP_BOTH(, cudaStream_t = nullptr))
LAPTOP_SYMBOL_COPY(cudaMemcpyFromSymbolAsync, LAPTOP_BOTH(void* to, const T& symbol), to, (const char*)&symbol + offset,
                   LAPTOP_BOTH(, cudaStream_t = nullptr))
#undef LAPTOP_SYMBOL_COPY
#undef LAPTOP_BOTH
template <class T> cudaError_t cudaGetSymbolAddress(void** to, const T& symbol) {
    *to = (void*)&symbol;
    laptop::device_variable("", &symbol, sizeof symbol, 0);
    return cudaSuccess;
}
template <class T> cudaError_t cudaGetSymbolSize(size_t* to, const T&) {
    *to = sizeof(T);
    return cudaSuccess;
}
inline cudaError_t cudaMemGetInfo(size_t* unused, size_t* total) {
    *unused = *total = laptop::model_card().totalGlobalMem;
    return cudaSuccess;
}
template <class T> cudaError_t cudaHostGetDevicePointer(T** device, void* host, unsigned) {
    *device = (T*)host;
    return laptop::answer(laptop::place_of(host, 1) == laptop::Place::BOTH ? cudaSuccess : cudaErrorInvalidValue);
}
inline cudaError_t cudaHostRegister(void* p, size_t bytes, unsigned) {
    if (!p || !bytes) return laptop::answer(cudaErrorInvalidValue);
    return laptop::answer(laptop::host_register(p, bytes) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered);
}
inline cudaError_t cudaHostUnregister(void* p) {
    return laptop::answer(laptop::host_unregister(p) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
    laptop::Place place = laptop::place_of(p, 1);
    bool device = place == laptop::Place::DEVICE || place == laptop::Place::BOTH;
    *a = {device ? (place == laptop::Place::BOTH ? cudaMemoryTypeManaged : cudaMemoryTypeDevice) : cudaMemoryTypeUnregistered,
          device ? 0 : -1, device ? (void*)p : nullptr, place == laptop::Place::DEVICE ? nullptr : (void*)p};
    return cudaSuccess;
}
template <class L> cudaError_t cudaMemPrefetchAsync(const void*, size_t, L, cudaStream_t = nullptr) { return cudaSuccess; }
template <class L> cudaError_t cudaMemPrefetchAsync(const void*, size_t, L, unsigned, cudaStream_t) { return cudaSuccess; }
template <class L> cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, L) { return cudaSuccess; }
inline cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void*, size_t = 0, unsigned = 4) { return cudaSuccess; }

LAPTOP_FN cudaError_t cudaDeviceSynchronize() {
    laptop::await_children(LAPTOP_SITE);
    return laptop::waited(laptop::Order::HOST_AWAITS_ALL);
}
inline cudaError_t cudaThreadSynchronize() { return laptop::waited(laptop::Order::HOST_AWAITS_ALL); }
inline cudaError_t cudaDeviceReset() { return cudaThreadSynchronize(); }
inline cudaError_t cudaThreadExit() { return cudaThreadSynchronize(); }
inline cudaError_t cudaSetDevice(int d) { return laptop::answer(d == 0 ? cudaSuccess : cudaErrorInvalidDevice); }
inline cudaError_t cudaGetDevice(int* device) { *device = 0; return cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) { *count = 1; return cudaSuccess; }
inline cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) { *device = 0; return cudaSuccess; }
inline cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
inline cudaError_t cudaGetDeviceFlags(unsigned* flags) { *flags = 0; return cudaSuccess; }
inline cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
inline cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit) { *value = 1 << 20; return cudaSuccess; }
inline cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
inline cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
inline cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* c) {
    *c = cudaSharedMemBankSizeFourByte;
    return cudaSuccess;
}
inline cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* c) { *c = cudaFuncCachePreferNone; return cudaSuccess; }
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* most) { *least = 0, *most = -5; return cudaSuccess; }
inline cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { *can = 0; return cudaSuccess; }
enum cudaDeviceP2PAttr { cudaDevP2PAttrPerformanceRank = 1, cudaDevP2PAttrAccessSupported, cudaDevP2PAttrNativeAtomicSupported,
                         cudaDevP2PAttrCudaArrayAccessSupported };
inline cudaError_t cudaDeviceGetP2PAttribute(int*, cudaDeviceP2PAttr, int, int) {        // of two cards: there is one
    return laptop::answer(cudaErrorInvalidDevice);
}
inline cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return laptop::answer(cudaErrorNotSupported); }
inline cudaError_t cudaDeviceDisablePeerAccess(int) { return laptop::answer(cudaErrorNotSupported); }
inline cudaError_t cudaRuntimeGetVersion(int* version) { *version = 13000; return cudaSuccess; }
inline cudaError_t cudaDriverGetVersion(int* version) { *version = 13000; return cudaSuccess; }
LAPTOP_FN cudaError_t cudaPeekAtLastError() {
    if (LAPTOP_TRACED) laptop::error_was_read();
    return (cudaError_t)(laptop::sticky_error() ? laptop::sticky_error() : laptop::last_error());
}
LAPTOP_FN cudaError_t cudaGetLastError() {
    cudaError_t error = cudaPeekAtLastError();
    laptop::last_error() = cudaSuccess;
    return error;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
    if (device != 0) return laptop::answer(cudaErrorInvalidDevice);
    *p = laptop::model_card();
    return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    *value = laptop::attribute_of_card(attribute);
    return cudaSuccess;
}

namespace laptop {
typedef long long Time;      // in nanoseconds; <chrono> would be half of what this header takes to read
inline Time now() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000LL + t.tv_nsec; }
inline bool is_of_device(const void* handle) { return handle == (void*)8; }     // of a stream or event that a kernel made
inline void* handle(size_t bytes) { return in_kernel() ? (void*)8 : ::calloc(1, bytes); }
inline cudaError_t end_handle(void* h) {
    if (!is_of_device(h)) ::free(h);
    return cudaSuccess;
}
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
    *s = (cudaStream_t)laptop::handle(8);
    laptop::order(flags & cudaStreamNonBlocking ? laptop::Order::MADE_APART : laptop::Order::MADE, *s);
    return cudaSuccess;
}
inline cudaError_t cudaStreamCreate(cudaStream_t* s) { return cudaStreamCreateWithFlags(s, 0); }
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned f, int) { return cudaStreamCreateWithFlags(s, f); }
inline cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) { *priority = 0; return cudaSuccess; }
inline cudaError_t cudaStreamGetFlags(cudaStream_t, unsigned* flags) { *flags = 0; return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t s) { return laptop::waited(laptop::Order::HOST_AWAITS, s); }
inline cudaError_t cudaStreamQuery(cudaStream_t s) { return laptop::waited(laptop::Order::HOST_AWAITS, s); }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned = 0) {
    return laptop::order(laptop::Order::AWAITS_EVENT, s, e), laptop::answer(cudaSuccess);
}
inline cudaError_t cudaStreamDestroy(cudaStream_t s) { return laptop::end_handle(s); }
// Caches are not modelled: what a program asks of them changes nothing.
inline cudaError_t cudaStreamSetAttribute(cudaStream_t, cudaStreamAttrID, const cudaStreamAttrValue*) { return cudaSuccess; }
inline cudaError_t cudaStreamGetAttribute(cudaStream_t, cudaStreamAttrID, cudaStreamAttrValue* v) { *v = {}; return cudaSuccess; }
inline cudaError_t cudaCtxResetPersistingL2Cache() { return cudaSuccess; }
inline cudaError_t cudaStreamAddCallback(cudaStream_t s, void (*f)(cudaStream_t, cudaError_t, void*), void* data, unsigned) {
    laptop::Issued now(s, "cudaStreamAddCallback", LAPTOP_SITE, false);
    f(s, cudaSuccess, data);
    return cudaSuccess;
}
inline cudaError_t cudaLaunchHostFunc(cudaStream_t s, void (*f)(void*), void* data) {
    laptop::Issued now(s, "cudaLaunchHostFunc", LAPTOP_SITE, false);
    return f(data), cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t* e) { *e = (cudaEvent_t)laptop::handle(sizeof(laptop::Time)); return cudaSuccess; }
inline cudaError_t cudaEventCreate(cudaEvent_t* e, unsigned) { return cudaEventCreate(e); }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return cudaEventCreate(e); }
inline cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s = nullptr) {
    laptop::order(laptop::Order::RECORDED, s, e);
    if (e && !laptop::is_of_device(e)) *(laptop::Time*)e = laptop::now();
    return laptop::answer(e ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t e) { return laptop::waited(laptop::Order::HOST_AWAITS_EVENT, nullptr, e); }
inline cudaError_t cudaEventQuery(cudaEvent_t e) { return laptop::waited(laptop::Order::HOST_AWAITS_EVENT, nullptr, e); }
inline cudaError_t cudaEventDestroy(cudaEvent_t e) { return laptop::end_handle(e); }
// The time that passed on this machine: never 0, as programs divide by it.
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
    if (!from || !to) return laptop::answer(cudaErrorInvalidResourceHandle);
    if (LAPTOP_TRACED && !laptop::host_has_waited(to))
        laptop::refused_call("cudaEventElapsedTime", "the event may not have come yet: no cudaEventSynchronize() before", LAPTOP_SITE);
    const float passed = (*(laptop::Time*)to - *(laptop::Time*)from) / 1e6f;
    *ms = passed > 1e-3f ? passed : 1e-3f;
    return cudaSuccess;
}

template <class F> cudaError_t cudaFuncSetAttribute(F, cudaFuncAttribute of, int value) {
    laptop::Asked& a = laptop::asked();
    bool shared = of == cudaFuncAttributeMaxDynamicSharedMemorySize;
    if (of == cudaFuncAttributeNonPortableClusterSizeAllowed) a.cluster_limit = value ? 16 : 8;
    if (shared && (value < 0 || (size_t)value > a.shared_limit)) return laptop::answer(cudaErrorInvalidValue);
    if (shared && (size_t)value > a.dynamic) a.dynamic = (size_t)value;
    return cudaSuccess;
}
template <class F> cudaError_t cudaFuncSetCacheConfig(F, cudaFuncCache) { return cudaSuccess; }
template <class F> cudaError_t cudaFuncSetSharedMemConfig(F, cudaSharedMemConfig) { return cudaSuccess; }
template <class F> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, F) {
    *a = {0, 0, 0, 1024, 32, 80, 80, 0, 48 << 10, -1};
    return cudaSuccess;
}
// By threads and shared memory alone: the registers of a kernel are not known.
template <class F>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, F, int threads, size_t shared) {
    const cudaDeviceProp& card = laptop::model_card();
    *blocks = threads > 0 ? card.maxThreadsPerMultiProcessor / threads : 0;
    if (shared && (int)(card.sharedMemPerMultiprocessor / shared) < *blocks)
        *blocks = (int)(card.sharedMemPerMultiprocessor / shared);
    return cudaSuccess;
}
template <class F>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, F f, int threads, size_t shared, unsigned) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, f, threads, shared);
}
// As many as a cluster may have everywhere, and as many as fit by their threads.
template <class F> cudaError_t cudaOccupancyMaxPotentialClusterSize(int* size, F, const cudaLaunchConfig_t*) {
    return *size = 8, cudaSuccess;
}
template <class F> cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, F f, const cudaLaunchConfig_t* c) {
    int threads = c->blockDim.x * c->blockDim.y * c->blockDim.z;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(clusters, f, threads, c->dynamicSmemBytes);
    *clusters *= laptop::model_card().multiProcessorCount;
    for (unsigned i = 0; i < c->numAttrs; ++i)
        if (const auto& s = c->attrs[i].val.clusterDim; c->attrs[i].id == cudaLaunchAttributeClusterDimension)
            *clusters /= s.x * s.y * s.z;
    return cudaSuccess;
}
template <class F, class S = size_t>           // S: shared memory, or a function that gives it for a block's size
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, F, S = {}, int limit = 0) {
    *block = limit > 0 && limit < 1024 ? limit : 1024;
    *grid = laptop::model_card().multiProcessorCount * (laptop::model_card().maxThreadsPerMultiProcessor / *block);
    return cudaSuccess;
}
#define cudaOccupancyMaxPotentialBlockSizeVariableSMem cudaOccupancyMaxPotentialBlockSize
