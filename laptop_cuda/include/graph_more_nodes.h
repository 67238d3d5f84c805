// Memory and conditional nodes of graphs: their names compile, and a call answers cudaErrorNotSupported. Nodes of the
// other kinds by cudaGraphAddNode.
#pragma once
#include "memory_pools.h"

struct cudaMemAllocNodeParams {
    cudaMemPoolProps poolProps;
    const cudaMemAccessDesc* accessDescs;
    size_t accessDescCount, bytesize;
    void* dptr;
};
enum cudaGraphMemAttributeType { cudaGraphMemAttrUsedMemCurrent, cudaGraphMemAttrUsedMemHigh, cudaGraphMemAttrReservedMemCurrent,
                                 cudaGraphMemAttrReservedMemHigh };
LAPTOP_WITHOUT(cudaGraphAddMemAllocNode) LAPTOP_WITHOUT(cudaGraphAddMemFreeNode) LAPTOP_WITHOUT(cudaDeviceGetGraphMemAttribute)
LAPTOP_WITHOUT(cudaDeviceSetGraphMemAttribute) LAPTOP_WITHOUT(cudaDeviceGraphMemTrim)

typedef unsigned long long cudaGraphConditionalHandle;
enum cudaGraphConditionalNodeType { cudaGraphCondTypeIf, cudaGraphCondTypeWhile, cudaGraphCondTypeSwitch };
enum { cudaGraphCondAssignDefault = 1 };
struct cudaConditionalNodeParams {
    cudaGraphConditionalHandle handle;
    cudaGraphConditionalNodeType type;
    unsigned size;
    cudaGraph_t* phGraph_out;
};
struct cudaGraphNodeParams {
    cudaGraphNodeType type;
    cudaKernelNodeParams kernel;
    cudaMemsetParams memset;
    cudaHostNodeParams host;
    cudaConditionalNodeParams conditional;
};
enum { cudaStreamAddCaptureDependencies, cudaStreamSetCaptureDependencies };
LAPTOP_WITHOUT(cudaGraphConditionalHandleCreate) LAPTOP_WITHOUT(cudaStreamBeginCaptureToGraph)
LAPTOP_WITHOUT(cudaStreamGetCaptureInfo) LAPTOP_WITHOUT(cudaStreamUpdateCaptureDependencies)
LAPTOP_FN void cudaGraphSetConditional(cudaGraphConditionalHandle, unsigned) {
    laptop::not_supported("cudaGraphSetConditional (conditional nodes of graphs)", LAPTOP_SITE);
}
inline cudaError_t cudaGraphAddNode(cudaGraphNode_t* made, cudaGraph_t g, const cudaGraphNode_t* needs, size_t n,
                                    cudaGraphNodeParams* p) {
    switch (p->type) {
        case cudaGraphNodeTypeKernel: return cudaGraphAddKernelNode(made, g, needs, n, &p->kernel);
        case cudaGraphNodeTypeMemset: return cudaGraphAddMemsetNode(made, g, needs, n, &p->memset);
        case cudaGraphNodeTypeHost: return cudaGraphAddHostNode(made, g, needs, n, &p->host);
        case cudaGraphNodeTypeEmpty: return cudaGraphAddEmptyNode(made, g, needs, n);
        default: return laptop::without("cudaGraphAddNode of a conditional, memory or other node");
    }
}
inline cudaError_t cudaGraphAddNode(cudaGraphNode_t* made, cudaGraph_t g, const cudaGraphNode_t* needs, const void*, size_t n,
                                    cudaGraphNodeParams* p) {
    return cudaGraphAddNode(made, g, needs, n, p);
}
