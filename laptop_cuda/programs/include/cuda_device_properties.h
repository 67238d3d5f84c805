// What programs ask about the card: the limits of an A100 (sm_80), under a name that says it is a model.
#pragma once
#include <cstddef>
#include <cstring>

enum cudaComputeMode { cudaComputeModeDefault, cudaComputeModeExclusive, cudaComputeModeProhibited,
                       cudaComputeModeExclusiveProcess };
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1, cudaDevAttrMaxBlockDimX = 2, cudaDevAttrMaxBlockDimY = 3, cudaDevAttrMaxBlockDimZ = 4,
    cudaDevAttrMaxGridDimX = 5, cudaDevAttrMaxGridDimY = 6, cudaDevAttrMaxGridDimZ = 7, cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrTotalConstantMemory = 9, cudaDevAttrWarpSize = 10, cudaDevAttrMaxPitch = 11,
    cudaDevAttrMaxRegistersPerBlock = 12, cudaDevAttrClockRate = 13, cudaDevAttrTextureAlignment = 14, cudaDevAttrGpuOverlap = 15,
    cudaDevAttrMultiProcessorCount = 16, cudaDevAttrKernelExecTimeout = 17, cudaDevAttrIntegrated = 18,
    cudaDevAttrCanMapHostMemory = 19, cudaDevAttrComputeMode = 20, cudaDevAttrConcurrentKernels = 31,
    cudaDevAttrEccEnabled = 32, cudaDevAttrMemoryClockRate = 36, cudaDevAttrGlobalMemoryBusWidth = 37,
    cudaDevAttrL2CacheSize = 38, cudaDevAttrMaxThreadsPerMultiProcessor = 39, cudaDevAttrAsyncEngineCount = 40,
    cudaDevAttrUnifiedAddressing = 41, cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrStreamPrioritiesSupported = 78, cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxRegistersPerMultiprocessor = 82, cudaDevAttrManagedMemory = 83, cudaDevAttrHostNativeAtomicSupported = 86, cudaDevAttrPageableMemoryAccess = 88,
    cudaDevAttrConcurrentManagedAccess = 89, cudaDevAttrCooperativeLaunch = 95, cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrMaxBlocksPerMultiprocessor = 106, cudaDevAttrMemoryPoolsSupported = 115, cudaDevAttrIpcEventSupport = 125 };
struct cudaUUID_t { char bytes[16]; };
struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    size_t totalGlobalMem, sharedMemPerBlock;
    int regsPerBlock, warpSize;
    size_t memPitch;
    int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
    size_t totalConstMem;
    int major, minor;
    size_t textureAlignment, texturePitchAlignment, surfaceAlignment;
    int deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated, canMapHostMemory, computeMode;
    int maxTexture1D, maxTexture2D[2], maxTexture3D[3], maxTexture1DLayered[2], maxTexture2DLayered[3];
    int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount, unifiedAddressing;
    int memoryClockRate, memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor;
    int streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
    size_t sharedMemPerMultiprocessor;
    int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported;
    int singleToDoublePrecisionPerfRatio, pageableMemoryAccess, concurrentManagedAccess, computePreemptionSupported;
    int canUseHostPointerForRegisteredMem, cooperativeLaunch, cooperativeMultiDeviceLaunch;
    size_t sharedMemPerBlockOptin;
    int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost, maxBlocksPerMultiProcessor;
    int accessPolicyMaxWindowSize;
    size_t reservedSharedMemPerBlock;
    int memoryPoolsSupported;
};

namespace laptop {
inline cudaDeviceProp made_model_card() {
    cudaDeviceProp p;
    ::memset((void*)&p, 0, sizeof p);
    ::strcpy(p.name, "laptop_cuda (a CPU with the limits of an A100)");
    p.totalGlobalMem = (size_t)40 << 30, p.sharedMemPerBlock = 48 << 10, p.regsPerBlock = 65536, p.warpSize = 32;
    p.memPitch = 2147483647, p.maxThreadsPerBlock = 1024;
    p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024, p.maxThreadsDim[2] = 64;
    p.maxGridSize[0] = 2147483647, p.maxGridSize[1] = p.maxGridSize[2] = 65535, p.clockRate = 1410000;
    p.totalConstMem = 64 << 10, p.major = 8, p.textureAlignment = p.surfaceAlignment = 512;
    p.texturePitchAlignment = 32, p.deviceOverlap = 1;
    p.multiProcessorCount = 108, p.canMapHostMemory = 1, p.concurrentKernels = 1, p.asyncEngineCount = 1;
    p.unifiedAddressing = 1, p.memoryClockRate = 1215000, p.memoryBusWidth = 5120, p.l2CacheSize = 40 << 20;
    p.maxThreadsPerMultiProcessor = 2048, p.globalL1CacheSupported = p.localL1CacheSupported = 1;
    p.sharedMemPerMultiprocessor = 164 << 10, p.regsPerMultiprocessor = 65536, p.managedMemory = 1;
    p.singleToDoublePrecisionPerfRatio = 2, p.concurrentManagedAccess = 1, p.cooperativeLaunch = 1;
    p.sharedMemPerBlockOptin = 163 << 10, p.maxBlocksPerMultiProcessor = 32, p.reservedSharedMemPerBlock = 1024;
    p.memoryPoolsSupported = 1;
    p.maxTexture1D = p.maxTexture2D[0] = 131072, p.maxTexture2D[1] = 65536;
    p.maxTexture3D[0] = p.maxTexture3D[1] = p.maxTexture3D[2] = 16384;
    p.maxTexture1DLayered[0] = p.maxTexture2DLayered[0] = p.maxTexture2DLayered[1] = 32768;
    p.maxTexture1DLayered[1] = p.maxTexture2DLayered[2] = 2048;
    return p;
}
inline const cudaDeviceProp& model_card() {
    static const cudaDeviceProp card = made_model_card();
    return card;
}
inline int attribute_of_card(cudaDeviceAttr attribute) {
    const cudaDeviceProp& p = model_card();
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock: return p.maxThreadsPerBlock;
        case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: return 1024;
        case cudaDevAttrMaxBlockDimZ: return 64;
        case cudaDevAttrMaxGridDimX: return p.maxGridSize[0];
        case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: return 65535;
        case cudaDevAttrMaxSharedMemoryPerBlock: return (int)p.sharedMemPerBlock;
        case cudaDevAttrTotalConstantMemory: return (int)p.totalConstMem;
        case cudaDevAttrWarpSize: return 32;
        case cudaDevAttrMaxRegistersPerBlock: case cudaDevAttrMaxRegistersPerMultiprocessor: return 65536;
        case cudaDevAttrClockRate: return p.clockRate;
        case cudaDevAttrMultiProcessorCount: return p.multiProcessorCount;
        case cudaDevAttrMemoryClockRate: return p.memoryClockRate;
        case cudaDevAttrGlobalMemoryBusWidth: return p.memoryBusWidth;
        case cudaDevAttrL2CacheSize: return p.l2CacheSize;
        case cudaDevAttrMaxThreadsPerMultiProcessor: return p.maxThreadsPerMultiProcessor;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return (int)p.sharedMemPerMultiprocessor;
        case cudaDevAttrComputeCapabilityMajor: return p.major;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: return (int)p.sharedMemPerBlockOptin;
        case cudaDevAttrMaxBlocksPerMultiprocessor: return p.maxBlocksPerMultiProcessor;
        case cudaDevAttrCanMapHostMemory: case cudaDevAttrConcurrentKernels: case cudaDevAttrAsyncEngineCount:
        case cudaDevAttrUnifiedAddressing: case cudaDevAttrManagedMemory: case cudaDevAttrConcurrentManagedAccess:
        case cudaDevAttrCooperativeLaunch: case cudaDevAttrGpuOverlap: case cudaDevAttrMemoryPoolsSupported: return 1;
        default: return 0;
    }
}
}  // namespace laptop
