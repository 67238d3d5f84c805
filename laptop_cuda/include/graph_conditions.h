// Conditional nodes of graphs (if, while, switch), whose bodies are graphs that the program fills after it has added the
// node; and capture into an existing graph.
#pragma once

typedef unsigned long long cudaGraphConditionalHandle;
enum cudaGraphConditionalNodeType { cudaGraphCondTypeIf, cudaGraphCondTypeWhile, cudaGraphCondTypeSwitch };
enum { cudaGraphCondAssignDefault = 1 };
struct cudaConditionalNodeParams {
    cudaGraphConditionalHandle handle;
    cudaGraphConditionalNodeType type;
    unsigned size;
    cudaGraph_t* phGraph_out;
};
struct cudaGraphEdgeData { unsigned char from_port, to_port, type, reserved[5]; };
enum { cudaStreamAddCaptureDependencies, cudaStreamSetCaptureDependencies };

namespace laptop {
// A handle is its address. It is never freed, as a kernel may still have the handle when the graph is destroyed.
struct Condition {
    unsigned value, at_launch;           // without a default, CUDA leaves the value open: 0 here
    Condition* next;
};
inline Condition*& conditions() {
    static Condition* first = nullptr;
    return first;
}
LAPTOP_FN Condition* condition_of(cudaGraphConditionalHandle handle) {
    Condition* c = conditions();
    while (c && (cudaGraphConditionalHandle)(uintptr_t)c != handle) c = c->next;
    return c;
}
inline std::function<cudaError_t()> work_of(const CUgraphNode_st& node) { return node.work_now ? node.work_now() : node.work; }
inline bool instantiate(CUgraphExec_st& exec, const cudaGraph_st& g) {
    std::vector<CUgraphNode_st*> order = in_order(g);
    exec.keeps = g.nodes, exec.conditions = g.conditions;
    for (CUgraphNode_st* node : order) {
        exec.steps.push_back({node, work_of(*node)});
        if (!exec.steps.back().second) return false;
    }
    return order.size() == g.nodes.size();
}
inline cudaError_t execute(CUgraphExec_st& exec) {
    for (Condition* c : exec.conditions) c->value = c->at_launch;
    for (auto& step : exec.steps)
        if (cudaError_t e = step.second()) return e;
    return cudaSuccess;
}
inline cudaError_t execute_conditional(cudaGraphConditionalNodeType type, const Condition* c,
                                       std::vector<CUgraphExec_st>& bodies) {
    cudaError_t e = cudaSuccess;
    if (type == cudaGraphCondTypeWhile) {
        while (c->value && e == cudaSuccess) e = execute(bodies[0]);
        return e;
    }
    size_t chosen = type == cudaGraphCondTypeSwitch ? c->value : !c->value;
    return chosen < bodies.size() ? execute(bodies[chosen]) : cudaSuccess;
}
}  // namespace laptop

inline cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* handle, cudaGraph_t graph, unsigned value = 0,
                                                    unsigned flags = 0) {
    if (!handle || !graph) return laptop::answer(cudaErrorInvalidValue);
    unsigned at_launch = flags & cudaGraphCondAssignDefault ? value : 0;
    laptop::conditions() = new laptop::Condition{at_launch, at_launch, laptop::conditions()};
    graph->conditions.push_back(laptop::conditions());
    *handle = (cudaGraphConditionalHandle)(uintptr_t)laptop::conditions();
    return cudaSuccess;
}
LAPTOP_FN void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned value) {
    laptop::Condition* c = laptop::condition_of(handle);
    if (!c) laptop::trap("cudaGraphSetConditional of a handle that was never made", LAPTOP_SITE);
    __atomic_store_n(&c->value, value, __ATOMIC_RELAXED);
}
inline cudaError_t laptop_add_conditional(cudaGraphNode_t* made, cudaGraph_t g, const cudaGraphNode_t* needs, size_t n,
                                          cudaConditionalNodeParams* p) {
    const laptop::Condition* condition = laptop::condition_of(p->handle);
    cudaGraphConditionalNodeType type = p->type;
    unsigned most = type == cudaGraphCondTypeSwitch ? p->size : type == cudaGraphCondTypeIf ? 2 : 1;
    if (!condition || !p->size || p->size > most) return laptop::answer(cudaErrorInvalidValue);
    struct Bodies {
        std::vector<cudaGraph_st> graphs;
        std::vector<cudaGraph_t> addresses;
    };
    auto bodies = std::make_shared<Bodies>();
    bodies->graphs.resize(p->size);
    for (cudaGraph_st& body : bodies->graphs) bodies->addresses.push_back(&body);
    cudaGraphNode_t node = nullptr;
    cudaError_t e = laptop::add_node(&node, g, needs, n, cudaGraphNodeTypeConditional, [] { return cudaErrorInvalidValue; });
    if (e != cudaSuccess) return e;
    node->work_now = [=]() -> std::function<cudaError_t()> {
        std::vector<CUgraphExec_st> ready(bodies->graphs.size());
        for (size_t i = 0; i < ready.size(); ++i)
            if (!laptop::instantiate(ready[i], bodies->graphs[i])) return nullptr;
        return [=]() mutable { return laptop::execute_conditional(type, condition, ready); };
    };
    p->phGraph_out = bodies->addresses.data();
    if (made) *made = node;
    return cudaSuccess;
}

// ------------------------------------------------------------------ capture
inline cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t, cudaGraph_t graph, const cudaGraphNode_t* needs,
                                                 const cudaGraphEdgeData*, size_t n, cudaStreamCaptureMode) {
    if (!graph || laptop::capture().graph) return laptop::answer(cudaErrorInvalidValue);
    laptop::captured_needs().assign(needs, needs + n);
    laptop::capture() = {laptop::add_captured, graph};
    return cudaSuccess;
}
inline cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id = nullptr,
                                            cudaGraph_t* graph = nullptr, const cudaGraphNode_t** needs = nullptr,
                                            size_t* n = nullptr) {
    if (id) *id = 1;                                     // one capture at a time
    if (graph) *graph = (cudaGraph_t)laptop::capture().graph;
    if (needs) *needs = laptop::captured_needs().data();
    if (n) *n = laptop::captured_needs().size();
    return cudaStreamIsCapturing(stream, status);
}
inline cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                            cudaGraph_t* graph, const cudaGraphNode_t** needs, const cudaGraphEdgeData** edges,
                                            size_t* n) {
    if (edges) *edges = nullptr;
    return cudaStreamGetCaptureInfo(stream, status, id, graph, needs, n);
}
#define cudaStreamGetCaptureInfo_v2 cudaStreamGetCaptureInfo         // its name in CUDA 11 and 12
inline cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t, cudaGraphNode_t* needs, size_t n, unsigned flags = 0) {
    if (!laptop::capture().graph) return laptop::answer(cudaErrorInvalidValue);
    std::vector<cudaGraphNode_t>& all = laptop::captured_needs();
    if (flags == cudaStreamSetCaptureDependencies) all.clear();
    all.insert(all.end(), needs, needs + n);
    return cudaSuccess;
}
inline cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* needs, const cudaGraphEdgeData*,
                                                       size_t n, unsigned flags = 0) {
    return cudaStreamUpdateCaptureDependencies(stream, needs, n, flags);
}
