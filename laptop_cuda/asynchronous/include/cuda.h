// What programs of the runtime API take from the driver's header: tensor maps.
#pragma once
#include "cuda_runtime.h"
#include "tensor_maps.h"
#define CUDA_VERSION CUDART_VERSION

inline CUresult cuGetErrorString(CUresult code, const char** text) {
    *text = code == CUDA_SUCCESS ? "no error" : code == CUDA_ERROR_INVALID_VALUE ? "invalid argument" : "not supported";
    return CUDA_SUCCESS;
}

// Memory that devices and processes share: its names are there for headers that only mention them, and every call is refused.
typedef int CUdevice;
typedef cudaLaunchAttribute CUlaunchAttribute;
typedef unsigned long long CUdeviceptr, CUmemGenericAllocationHandle;
enum CUmemAllocationHandleType { CU_MEM_HANDLE_TYPE_NONE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_HANDLE_TYPE_FABRIC = 8 };
enum CUmemLocationType { CU_MEM_LOCATION_TYPE_INVALID, CU_MEM_LOCATION_TYPE_DEVICE };
enum CUmemAllocationType { CU_MEM_ALLOCATION_TYPE_INVALID, CU_MEM_ALLOCATION_TYPE_PINNED };
enum CUmemAccess_flags { CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 };
enum { CU_MEM_ALLOC_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, CU_MULTICAST_GRANULARITY_MINIMUM = 0,
       CU_MULTICAST_GRANULARITY_RECOMMENDED, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
       CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED = 132 };
struct CUmemLocation { CUmemLocationType type; int id; };
struct CUmemAllocationProp { CUmemAllocationType type; CUmemAllocationHandleType requestedHandleTypes; CUmemLocation location; };
struct CUmemAccessDesc { CUmemLocation location; CUmemAccess_flags flags; };
struct CUmulticastObjectProp { unsigned numDevices; size_t size; unsigned long long handleTypes, flags; };
#define LAPTOP_REFUSED(name) template <class... A> CUresult name(A...) { return CUDA_ERROR_NOT_SUPPORTED; }
LAPTOP_REFUSED(cuDeviceGet) LAPTOP_REFUSED(cuDeviceGetAttribute) LAPTOP_REFUSED(cuMemCreate) LAPTOP_REFUSED(cuMemRelease)
LAPTOP_REFUSED(cuMemMap) LAPTOP_REFUSED(cuMemUnmap) LAPTOP_REFUSED(cuMemAddressReserve) LAPTOP_REFUSED(cuMemAddressFree)
LAPTOP_REFUSED(cuMemSetAccess) LAPTOP_REFUSED(cuMemGetAllocationGranularity) LAPTOP_REFUSED(cuMemRetainAllocationHandle)
LAPTOP_REFUSED(cuMemExportToShareableHandle) LAPTOP_REFUSED(cuMemImportFromShareableHandle) LAPTOP_REFUSED(cuMulticastCreate)
LAPTOP_REFUSED(cuMulticastGetGranularity) LAPTOP_REFUSED(cuMulticastAddDevice) LAPTOP_REFUSED(cuMulticastBindMem)
LAPTOP_REFUSED(cuMulticastUnbind)
#undef LAPTOP_REFUSED
struct cudaIpcMemHandle_t { char reserved[64]; };
enum { cudaIpcMemLazyEnablePeerAccess = 1 };
#define LAPTOP_REFUSED(name) template <class... A> cudaError_t name(A...) { return cudaErrorNotSupported; }
LAPTOP_REFUSED(cudaIpcGetMemHandle) LAPTOP_REFUSED(cudaIpcOpenMemHandle) LAPTOP_REFUSED(cudaIpcCloseMemHandle)
#undef LAPTOP_REFUSED
