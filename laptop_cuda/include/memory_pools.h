// Memory pools: memory that is asked for and given back in the order of a stream. As everything has happened when a call
// returns, that is at once. What other processes would have to know is refused by name. Included only for sources that use
// it: it costs build time.
#pragma once
#include <algorithm>
#include <map>
#include <mutex>

#include "host_launch.h"

enum cudaMemAllocationType { cudaMemAllocationTypeInvalid, cudaMemAllocationTypePinned };
enum cudaMemAllocationHandleType { cudaMemHandleTypeNone, cudaMemHandleTypePosixFileDescriptor, cudaMemHandleTypeWin32,
                                   cudaMemHandleTypeWin32Kmt = 4, cudaMemHandleTypeFabric = 8 };
enum cudaMemAccessFlags { cudaMemAccessFlagsProtNone, cudaMemAccessFlagsProtRead, cudaMemAccessFlagsProtReadWrite = 3 };
struct cudaMemAccessDesc { cudaMemLocation location; cudaMemAccessFlags flags; };
struct cudaMemPoolProps {
    cudaMemAllocationType allocType;
    cudaMemAllocationHandleType handleTypes;
    cudaMemLocation location;
    void* win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
};
enum cudaMemPoolAttr {
    cudaMemPoolReuseFollowEventDependencies = 1, cudaMemPoolReuseAllowOpportunistic, cudaMemPoolReuseAllowInternalDependencies,
    cudaMemPoolAttrReleaseThreshold, cudaMemPoolAttrReservedMemCurrent, cudaMemPoolAttrReservedMemHigh,
    cudaMemPoolAttrUsedMemCurrent, cudaMemPoolAttrUsedMemHigh
};
struct cudaMemPoolPtrExportData { unsigned char reserved[64]; };

// What is reserved follows the documented rule: memory given back stays with the pool up to the release threshold.
struct CUmemPoolHandle_st {
    int reuse[4] = {0, 1, 1, 1};         // by attribute; nothing is reused here, an address is used once
    unsigned long long threshold = 0, reserved = 0, most_reserved = 0, used = 0, most_used = 0;
    size_t limit = 0;                    // 0: none
    bool destroyed = false;              // it ends with its last allocation
};
typedef CUmemPoolHandle_st* cudaMemPool_t;

namespace laptop {
struct Pools {
    std::mutex lock;                     // the host may have several threads
    CUmemPoolHandle_st usual;
    cudaMemPool_t current = &usual;
    std::map<void*, std::pair<cudaMemPool_t, size_t>> given;
};
#ifdef LAPTOP_GRAPHS
inline cudaError_t capture_allocation(const char* name, void** p, size_t bytes, unsigned itemsize);    // graph_memory.h
inline cudaError_t capture_free(void* p);
#endif
inline Pools& pools() {
    static Pools all;
    return all;
}
// Whoever frees the memory: cudaFree does so too.
inline void back_to_pool(void* p) {
    Pools& all = pools();
    std::lock_guard<std::mutex> lock(all.lock);
    auto found = all.given.find(p);
    if (found == all.given.end()) return;
    cudaMemPool_t pool = found->second.first;
    pool->used -= found->second.second;
    pool->reserved = std::max(pool->used, std::min(pool->reserved, pool->threshold));
    all.given.erase(found);
    if (pool->destroyed && !pool->used) delete pool;
}
// `all` is locked.
inline void taken_from_pool(Pools& all, void* p, size_t bytes, cudaMemPool_t pool) {
    freed = back_to_pool;
    all.given[p] = {pool, bytes};
    pool->used += bytes;
    pool->most_used = std::max(pool->most_used, pool->used);
    pool->reserved = std::max(pool->reserved, pool->used);
    pool->most_reserved = std::max(pool->most_reserved, pool->reserved);
}
inline cudaError_t take_from_pool(const char* name, void** p, size_t bytes, unsigned itemsize, cudaMemPool_t pool) {
    Pools& all = pools();
    std::lock_guard<std::mutex> lock(all.lock);
    if (!pool) pool = all.current;
    if (pool->limit && bytes > pool->limit - pool->used) return answer(cudaErrorMemoryAllocation);
    cudaError_t e = allocate(name, p, bytes, itemsize, false);
    if (e == cudaSuccess && *p) taken_from_pool(all, *p, bytes, pool);
    return e;
}
}  // namespace laptop

// ------------------------------------------------------------------ pools
inline cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
    if (device != 0) return laptop::answer(cudaErrorInvalidDevice);
    *pool = &laptop::pools().usual;
    return cudaSuccess;
}
inline cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
    if (device != 0) return laptop::answer(cudaErrorInvalidDevice);
    *pool = laptop::pools().current;
    return cudaSuccess;
}
inline cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
    if (device != 0) return laptop::answer(cudaErrorInvalidDevice);
    if (!pool) return laptop::answer(cudaErrorInvalidValue);
    laptop::pools().current = pool;
    return cudaSuccess;
}
inline cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* p) {
    if (p->allocType != cudaMemAllocationTypePinned || p->location.type != cudaMemLocationTypeDevice || p->location.id != 0)
        return laptop::answer(cudaErrorInvalidValue);
    if (p->handleTypes != cudaMemHandleTypeNone) return laptop::without("cudaMemPoolCreate for other processes");
    *pool = new CUmemPoolHandle_st;
    (*pool)->limit = p->maxSize;
    return cudaSuccess;
}
inline cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
    laptop::Pools& all = laptop::pools();
    std::lock_guard<std::mutex> lock(all.lock);
    if (!pool || pool == &all.usual) return laptop::answer(cudaErrorInvalidValue);
    if (all.current == pool) all.current = &all.usual;
    if (pool->used) pool->destroyed = true;
    else delete pool;
    return cudaSuccess;
}
inline cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
    pool->reserved = std::max(pool->used, std::min<unsigned long long>(pool->reserved, keep));
    return cudaSuccess;
}
inline cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
    unsigned long long number = attribute < cudaMemPoolAttrReleaseThreshold ? 0 : *(unsigned long long*)value;
    if (attribute < cudaMemPoolAttrReleaseThreshold) pool->reuse[attribute] = *(int*)value;
    else if (attribute == cudaMemPoolAttrReleaseThreshold) pool->threshold = number;
    else if (attribute == cudaMemPoolAttrReservedMemHigh && !number) pool->most_reserved = pool->reserved;
    else if (attribute == cudaMemPoolAttrUsedMemHigh && !number) pool->most_used = pool->used;
    else return laptop::answer(cudaErrorInvalidValue);
    return cudaSuccess;
}
inline cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
    const unsigned long long numbers[] = {pool->threshold, pool->reserved, pool->most_reserved, pool->used, pool->most_used};
    if (attribute < cudaMemPoolAttrReleaseThreshold) *(int*)value = pool->reuse[attribute];
    else *(unsigned long long*)value = numbers[attribute - cudaMemPoolAttrReleaseThreshold];
    return cudaSuccess;
}
// There is one card, and its own memory is always open to it.
inline cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc* who, size_t n) {
    for (size_t i = 0; i < n; ++i)
        if (who[i].location.id != 0 || who[i].flags != cudaMemAccessFlagsProtReadWrite) return laptop::answer(cudaErrorInvalidDevice);
    return cudaSuccess;
}
inline cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t, cudaMemLocation* who) {
    *flags = who->id == 0 ? cudaMemAccessFlagsProtReadWrite : cudaMemAccessFlagsProtNone;
    return cudaSuccess;
}

// ------------------------------------------------------------------ memory
template <class T>
static cudaError_t laptop_cudaMallocAsync(const char* text, T** p, size_t bytes, cudaMemPool_t pool, cudaStream_t) {
#ifdef LAPTOP_GRAPHS
    if (laptop::capture().graph) return laptop::capture_allocation(text, (void**)p, bytes, laptop::sized<T>::value);
#endif
    return laptop::take_from_pool(text, (void**)p, bytes, laptop::sized<T>::value, pool);
}
template <class T>
static cudaError_t laptop_cudaMallocAsync(const char* text, T** p, size_t bytes, cudaStream_t stream = nullptr) {
    return laptop_cudaMallocAsync(text, p, bytes, (cudaMemPool_t) nullptr, stream);
}
template <class T>
static cudaError_t laptop_cudaMallocFromPoolAsync(const char* text, T** p, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
    return laptop_cudaMallocAsync(text, p, bytes, pool, stream);
}
#define cudaMallocAsync(...) laptop_cudaMallocAsync(#__VA_ARGS__, __VA_ARGS__)
#define cudaMallocFromPoolAsync(...) laptop_cudaMallocFromPoolAsync(#__VA_ARGS__, __VA_ARGS__)

static inline cudaError_t cudaFreeAsync(void* p, cudaStream_t) {
#ifdef LAPTOP_GRAPHS
    if (laptop::capture().graph) return laptop::capture_free(p);
#endif
    return cudaFree(p);
}

// ------------------------------------------------------------------ other processes
struct cudaIpcMemHandle_t { char reserved[64]; };
struct cudaIpcEventHandle_t { char reserved[64]; };
enum { cudaIpcMemLazyEnablePeerAccess = 1 };
LAPTOP_WITHOUT(cudaIpcGetMemHandle) LAPTOP_WITHOUT(cudaIpcOpenMemHandle) LAPTOP_WITHOUT(cudaIpcCloseMemHandle)
LAPTOP_WITHOUT(cudaIpcGetEventHandle) LAPTOP_WITHOUT(cudaIpcOpenEventHandle) LAPTOP_WITHOUT(cudaMemPoolExportToShareableHandle)
LAPTOP_WITHOUT(cudaMemPoolImportFromShareableHandle) LAPTOP_WITHOUT(cudaMemPoolExportPointer)
LAPTOP_WITHOUT(cudaMemPoolImportPointer)
