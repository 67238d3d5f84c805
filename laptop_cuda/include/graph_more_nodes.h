// Nodes that are graphs, and nodes of all kinds by cudaGraphAddNode.
#pragma once

inline cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* made, cudaGraph_t g, const cudaGraphNode_t* needs, size_t n,
                                              cudaGraph_t child) {
    auto copy = std::make_shared<CUgraphExec_st>();
    if (!laptop::instantiate(*copy, *child)) return laptop::answer(cudaErrorInvalidValue);
    return laptop::add_node(made, g, needs, n, cudaGraphNodeTypeGraph, [=] { return laptop::execute(*copy); });
}

struct cudaGraphNodeParams {
    cudaGraphNodeType type;
    cudaKernelNodeParams kernel;
    cudaMemsetParams memset;
    cudaHostNodeParams host;
    cudaMemAllocNodeParams alloc;
    cudaMemFreeNodeParams free;
    cudaConditionalNodeParams conditional;
};
inline cudaError_t cudaGraphAddNode(cudaGraphNode_t* made, cudaGraph_t g, const cudaGraphNode_t* needs, size_t n,
                                    cudaGraphNodeParams* p) {
    switch (p->type) {
        case cudaGraphNodeTypeKernel: return cudaGraphAddKernelNode(made, g, needs, n, &p->kernel);
        case cudaGraphNodeTypeMemset: return cudaGraphAddMemsetNode(made, g, needs, n, &p->memset);
        case cudaGraphNodeTypeHost: return cudaGraphAddHostNode(made, g, needs, n, &p->host);
        case cudaGraphNodeTypeEmpty: return cudaGraphAddEmptyNode(made, g, needs, n);
        case cudaGraphNodeTypeMemAlloc: return cudaGraphAddMemAllocNode(made, g, needs, n, &p->alloc);
        case cudaGraphNodeTypeMemFree: return cudaGraphAddMemFreeNode(made, g, needs, n, p->free.dptr);
        case cudaGraphNodeTypeConditional: return laptop_add_conditional(made, g, needs, n, &p->conditional);
        default: return laptop::without("cudaGraphAddNode of a memcpy, child or other node");
    }
}
inline cudaError_t cudaGraphAddNode(cudaGraphNode_t* made, cudaGraph_t g, const cudaGraphNode_t* needs, const cudaGraphEdgeData*,
                                    size_t n, cudaGraphNodeParams* p) {
    return cudaGraphAddNode(made, g, needs, n, p);
}
