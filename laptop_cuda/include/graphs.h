// CUDA graphs: by capture of a stream, or node by node. A launch does the nodes' work in the order of their dependencies.
#pragma once
#include "cuda_arrays.h"
#include "host_launch.h"

namespace laptop {
// (void*)kernel, as the rewriter writes it: what the parameters of a graph's node need to call it.
struct Erased {
    const char* name;
    std::function<std::function<cudaError_t()>(const char*, dim3, dim3, void**, size_t)> bind;    // arguments are copied
};
inline std::map<void*, Erased>& erased_kernels() {
    static std::map<void*, Erased> all;
    return all;
}
template <class... P, size_t... I>
auto bound(void (*kernel)(P...), const char* name, dim3 g, dim3 b, void** args, size_t shared, std::index_sequence<I...>) {
    std::tuple<std::remove_cv_t<std::remove_reference_t<P>>...> copies(
        *(std::remove_cv_t<std::remove_reference_t<P>>*)args[I]...);
    return [=]() mutable {
        auto call = [kernel](auto... a) { kernel(a...); };
        return (cudaError_t)host_launch(name, 0, call, launch_config(g, b, shared), std::get<I>(copies)...);
    };
}
template <class... P>
void* erased(const char* name, void (*kernel)(P...)) {
    erased_kernels()[(void*)kernel] = {
        name,
        [=](const char* as, dim3 g, dim3 b, void** args, size_t shared) -> std::function<cudaError_t()> {
            return bound(kernel, as, g, b, args, shared, std::index_sequence_for<P...>{});
        }};
    return (void*)kernel;
}

}  // namespace laptop

namespace laptop { struct Condition; }  // graph_conditions.h
struct CUgraphNode_st {
    std::function<cudaError_t()> work;
    std::vector<CUgraphNode_st*> needs;
    int type;
    std::function<std::function<cudaError_t()>()> work_now;    // instead of work: of graphs that may still change
    void* memory;                                              // the address, of a memory node
};
typedef CUgraphNode_st* cudaGraphNode_t;
struct cudaGraph_st {
    std::vector<std::shared_ptr<CUgraphNode_st>> nodes;
    std::vector<laptop::Condition*> conditions;
};
typedef cudaGraph_st* cudaGraph_t;
struct CUgraphExec_st {
    std::vector<std::pair<CUgraphNode_st*, std::function<cudaError_t()>>> steps;
    std::vector<std::shared_ptr<CUgraphNode_st>> keeps;
    std::vector<laptop::Condition*> conditions;
    bool frees = false;                                        // what a launch before has left, at the next
};
typedef CUgraphExec_st* cudaGraphExec_t;
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive, cudaStreamCaptureStatusInvalidated };
enum cudaGraphNodeType { cudaGraphNodeTypeKernel, cudaGraphNodeTypeMemcpy, cudaGraphNodeTypeMemset, cudaGraphNodeTypeHost,
                         cudaGraphNodeTypeGraph, cudaGraphNodeTypeEmpty, cudaGraphNodeTypeWaitEvent, cudaGraphNodeTypeEventRecord,
                         cudaGraphNodeTypeMemAlloc = 10, cudaGraphNodeTypeMemFree, cudaGraphNodeTypeConditional = 13 };
enum cudaGraphExecUpdateResult { cudaGraphExecUpdateSuccess, cudaGraphExecUpdateError, cudaGraphExecUpdateErrorTopologyChanged };
struct cudaGraphExecUpdateResultInfo { cudaGraphExecUpdateResult result; cudaGraphNode_t errorNode, errorFromNode; };
struct cudaKernelNodeParams { void* func; dim3 gridDim, blockDim; unsigned sharedMemBytes; void** kernelParams; void** extra; };
struct cudaMemsetParams { void* dst; size_t pitch; unsigned value, elementSize; size_t width, height; };
typedef void (*cudaHostFn_t)(void*);
struct cudaHostNodeParams { cudaHostFn_t fn; void* userData; };
enum { cudaGraphInstantiateFlagAutoFreeOnLaunch = 1 };

namespace laptop {
inline cudaError_t add_node(cudaGraphNode_t* made, cudaGraph_t g, const cudaGraphNode_t* needs, size_t n, int type,
                            std::function<cudaError_t()> work) {
    if (!g || !work) return answer(cudaErrorInvalidValue);
    g->nodes.push_back(std::make_shared<CUgraphNode_st>());
    CUgraphNode_st& node = *g->nodes.back();
    node.work = std::move(work), node.type = type;
    for (size_t i = 0; i < n; ++i) node.needs.push_back(needs[i]);
    if (made) *made = &node;
    return cudaSuccess;
}
// What the next captured node depends on: a program may ask for it and change it.
inline std::vector<CUgraphNode_st*>& captured_needs() {
    static std::vector<CUgraphNode_st*> needs;
    return needs;
}
inline cudaGraphNode_t add_captured_node(cudaGraph_t g, int type, std::function<cudaError_t()> work) {
    std::vector<CUgraphNode_st*> needs = captured_needs();
    cudaGraphNode_t made = nullptr;
    add_node(&made, g, needs.data(), needs.size(), type, std::move(work));
    captured_needs() = {made};
    return made;
}
inline void add_captured(void* graph, std::function<cudaError_t()> work) {
    add_captured_node((cudaGraph_t)graph, cudaGraphNodeTypeKernel, std::move(work));
}
inline std::vector<CUgraphNode_st*> in_order(const cudaGraph_st& g) {
    std::vector<CUgraphNode_st*> done;
    auto is_done = [&](CUgraphNode_st* n) {
        for (CUgraphNode_st* d : done) if (d == n) return true;
        return false;
    };
    while (done.size() < g.nodes.size()) {
        size_t before = done.size();
        for (auto& node : g.nodes) {
            bool ready = !is_done(node.get());
            for (CUgraphNode_st* n : node->needs) ready = ready && is_done(n);
            if (ready) done.push_back(node.get());
        }
        if (done.size() == before) return {};            // a circle
    }
    return done;
}
inline std::function<cudaError_t()> kernel_work(const cudaKernelNodeParams* p) {
    auto found = erased_kernels().find(p->func);
    if (found == erased_kernels().end()) return nullptr;
    return found->second.bind(found->second.name, p->gridDim, p->blockDim, p->kernelParams, p->sharedMemBytes);
}
inline std::function<cudaError_t()> memset_work(cudaMemsetParams p) {
    return [=] {
        AsDevice as;
        for (size_t row = 0; row < p.height; ++row) {
            char* to = (char*)p.dst + row * p.pitch;
            if (!is_device_memory(to, p.width * p.elementSize)) return answer(cudaErrorInvalidValue);
            for (size_t i = 0; i < p.width; ++i) move_unseen(to + i * p.elementSize, &p.value, p.elementSize);
            host_wrote(to, p.width * p.elementSize);
        }
        return cudaSuccess;
    };
}
}  // namespace laptop

// ------------------------------------------------------------------ capture
inline cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode = cudaStreamCaptureModeGlobal) {
    if (laptop::capture().graph) return laptop::answer(cudaErrorInvalidValue);
    laptop::captured_needs().clear();
    laptop::capture() = {laptop::add_captured, new cudaGraph_st};
    return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
    cudaGraph_t captured = (cudaGraph_t)laptop::capture().graph;
    laptop::capture() = {};
    if (graph) *graph = captured;                        // null where the program has the graph already
    return laptop::answer(captured ? cudaSuccess : cudaErrorInvalidValue);
}
inline cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
    *status = laptop::capture().graph ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

// ------------------------------------------------------------------ nodes
inline cudaError_t cudaGraphCreate(cudaGraph_t* g, unsigned = 0) { *g = new cudaGraph_st; return cudaSuccess; }
inline cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* made, cudaGraph_t g, const cudaGraphNode_t* needs, size_t n,
                                          const cudaKernelNodeParams* p) {
    return laptop::add_node(made, g, needs, n, cudaGraphNodeTypeKernel, laptop::kernel_work(p));
}
inline cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* made, cudaGraph_t g, const cudaGraphNode_t* needs, size_t n,
                                            void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return laptop::add_node(made, g, needs, n, cudaGraphNodeTypeMemcpy, [=] { return laptop::copy(to, from, bytes, kind); });
}
inline cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* made, cudaGraph_t g, const cudaGraphNode_t* needs, size_t n,
                                          const cudaMemcpy3DParms* p) {
    cudaMemcpy3DParms c = *p;
    return laptop::add_node(made, g, needs, n, cudaGraphNodeTypeMemcpy, [=] { return laptop::copy_3d(c); });
}
inline cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* made, cudaGraph_t g, const cudaGraphNode_t* needs, size_t n,
                                          const cudaMemsetParams* p) {
    return laptop::add_node(made, g, needs, n, cudaGraphNodeTypeMemset, laptop::memset_work(*p));
}
inline cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* made, cudaGraph_t g, const cudaGraphNode_t* needs, size_t n,
                                        const cudaHostNodeParams* p) {
    cudaHostNodeParams c = *p;
    return laptop::add_node(made, g, needs, n, cudaGraphNodeTypeHost, [=] { return c.fn(c.userData), cudaSuccess; });
}
inline cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* made, cudaGraph_t g, const cudaGraphNode_t* needs, size_t n) {
    return laptop::add_node(made, g, needs, n, cudaGraphNodeTypeEmpty, [] { return cudaSuccess; });
}
inline cudaError_t cudaGraphAddDependencies(cudaGraph_t, const cudaGraphNode_t* from, const cudaGraphNode_t* to, size_t n) {
    for (size_t i = 0; i < n; ++i) to[i]->needs.push_back(from[i]);
    return cudaSuccess;
}
inline cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t* nodes, size_t* n) {
    for (size_t i = 0; nodes && i < *n && i < g->nodes.size(); ++i) nodes[i] = g->nodes[i].get();
    *n = g->nodes.size();
    return cudaSuccess;
}
inline cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
    *type = (cudaGraphNodeType)node->type;
    return cudaSuccess;
}
inline cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const cudaKernelNodeParams* p) {
    node->work = laptop::kernel_work(p);
    return laptop::answer(node->work ? cudaSuccess : cudaErrorInvalidValue);
}

#include "graph_conditions.h"
#include "graph_memory.h"
#include "graph_more_nodes.h"

// ------------------------------------------------------------------ launches
inline cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t g, unsigned long long flags = 0) {
    CUgraphExec_st exec;
    if (!laptop::instantiate(exec, *g)) return laptop::answer(cudaErrorInvalidValue);
    exec.frees = flags & cudaGraphInstantiateFlagAutoFreeOnLaunch;
    *made = new CUgraphExec_st(exec);
    return cudaSuccess;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t g, unsigned long long flags = 0) {
    return cudaGraphInstantiateWithFlags(made, g, flags);
}
template <class Node> cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t g, Node, char*, size_t) {
    return cudaGraphInstantiateWithFlags(made, g);
}
inline cudaError_t cudaGraphClone(cudaGraph_t* made, cudaGraph_t g) { *made = new cudaGraph_st(*g); return cudaSuccess; }
inline cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
    cudaError_t e = laptop::memory_before_launch(*exec);
    if (e == cudaSuccess) e = laptop::execute(*exec);
    laptop::memory_after_launch(exec);
    return laptop::answer(e);
}
inline cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, const cudaKernelNodeParams* p) {
    for (auto& step : exec->steps)
        if (step.first == node && (step.second = laptop::kernel_work(p))) return cudaSuccess;
    return laptop::answer(cudaErrorInvalidValue);
}
// The same number of nodes counts as the same shape.
inline cudaError_t laptop_update(cudaGraphExec_t exec, cudaGraph_t g) {
    CUgraphExec_st fresh;
    if (!laptop::instantiate(fresh, *g) || fresh.steps.size() != exec->steps.size()) return laptop::answer(cudaErrorInvalidValue);
    for (size_t i = 0; i < fresh.steps.size(); ++i) exec->steps[i].second = fresh.steps[i].second;
    exec->conditions = fresh.conditions;
    return cudaSuccess;
}
inline cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t g, cudaGraphExecUpdateResultInfo* info) {
    cudaError_t e = laptop_update(exec, g);
    if (info) info->result = e ? cudaGraphExecUpdateErrorTopologyChanged : cudaGraphExecUpdateSuccess;
    return e;
}
inline cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t g, cudaGraphNode_t*, cudaGraphExecUpdateResult* result) {
    cudaError_t e = laptop_update(exec, g);
    if (result) *result = e ? cudaGraphExecUpdateErrorTopologyChanged : cudaGraphExecUpdateSuccess;
    return e;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    laptop::graph_memory().mapped.erase(exec);
    delete exec;
    return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t g) { delete g; return cudaSuccess; }
inline cudaError_t cudaGraphDestroyNode(cudaGraphNode_t) { return laptop::answer(cudaErrorNotSupported); }
