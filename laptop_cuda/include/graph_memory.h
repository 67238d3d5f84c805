// Memory nodes of graphs. The address is fixed when the node is made; a launch asks for the memory and gives it back, so
// that a use before or after is one of freed memory. Graphs have a pool of their own, which keeps what it reserves.
#pragma once
#include "memory_pools.h"

struct cudaMemAllocNodeParams {
    cudaMemPoolProps poolProps;
    const cudaMemAccessDesc* accessDescs;
    size_t accessDescCount, bytesize;
    void* dptr;
};
struct cudaMemFreeNodeParams { void* dptr; };
enum cudaGraphMemAttributeType { cudaGraphMemAttrUsedMemCurrent, cudaGraphMemAttrUsedMemHigh, cudaGraphMemAttrReservedMemCurrent,
                                 cudaGraphMemAttrReservedMemHigh };

namespace laptop {
struct GraphMemory {
    CUmemPoolHandle_st pool = {{0, 1, 1, 1}, ~0ull};     // the threshold: all is kept until it is trimmed
    std::map<void*, size_t> bytes;                       // of each node's address
    std::map<CUgraphExec_st*, unsigned long long> mapped;    // what a graph holds until it is destroyed or trimmed
    unsigned long long most_mapped = 0, most_in_launch = 0;
};
inline GraphMemory& graph_memory() {
    static GraphMemory all;
    return all;
}
inline unsigned long long mapped_bytes() {
    unsigned long long most = graph_memory().pool.used;
    for (auto& exec : graph_memory().mapped) most = std::max(most, exec.second);
    return most;
}
inline bool is_live(void* p) {
    std::lock_guard<std::mutex> lock(pools().lock);
    return pools().given.count(p);
}
inline cudaError_t open_memory(void* p) {
    std::lock_guard<std::mutex> lock(pools().lock);
    GraphMemory& all = graph_memory();
    if (!device_open(p)) return cudaErrorInvalidValue;
    taken_from_pool(pools(), p, all.bytes[p], &all.pool);
    all.most_in_launch = std::max(all.most_in_launch, all.pool.used);
    return cudaSuccess;
}
inline void* reserve_memory(const char* name, size_t bytes, unsigned itemsize) {
    void* p = bytes ? device_reserve(bytes, name, itemsize) : nullptr;
    if (p) graph_memory().bytes[p] = bytes;
    return p;
}
inline bool may_be_freed(cudaGraph_t g, void* p) {
    if (!g || !graph_memory().bytes.count(p)) return false;
    for (auto& node : g->nodes)
        if (node->type == cudaGraphNodeTypeMemFree && node->memory == p) return false;
    return true;
}
// A graph that has not given its memory back may not be launched again, unless it was made to free it.
inline cudaError_t memory_before_launch(const CUgraphExec_st& exec) {
    graph_memory().most_in_launch = 0;
    for (auto& step : exec.steps) {
        if (step.first->type != cudaGraphNodeTypeMemAlloc || !is_live(step.first->memory)) continue;
        if (!exec.frees) return cudaErrorInvalidValue;
        cudaFree(step.first->memory);
    }
    return cudaSuccess;
}
inline void memory_after_launch(CUgraphExec_st* exec) {
    GraphMemory& all = graph_memory();
    if (all.most_in_launch) all.mapped[exec] = std::max(all.mapped[exec], all.most_in_launch);
    all.most_mapped = std::max(all.most_mapped, mapped_bytes());
}
inline cudaError_t capture_allocation(const char* name, void** p, size_t bytes, unsigned itemsize) {
    void* made = *p = reserve_memory(name, bytes, itemsize);
    if (!made) return answer(bytes ? cudaErrorMemoryAllocation : cudaErrorInvalidValue);
    add_captured_node((cudaGraph_t)capture().graph, cudaGraphNodeTypeMemAlloc, [=] { return open_memory(made); })->memory = made;
    return cudaSuccess;
}
inline cudaError_t capture_free(void* p) {
    cudaGraph_t g = (cudaGraph_t)capture().graph;
    if (!may_be_freed(g, p)) return answer(cudaErrorInvalidValue);
    add_captured_node(g, cudaGraphNodeTypeMemFree, [=] { return cudaFree(p); })->memory = p;
    return cudaSuccess;
}
}  // namespace laptop

inline cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t* made, cudaGraph_t g, const cudaGraphNode_t* needs, size_t n,
                                            cudaMemAllocNodeParams* p) {
    const cudaMemPoolProps& pool = p->poolProps;
    bool of_the_card = pool.location.type == cudaMemLocationTypeDevice && pool.location.id == 0;
    if (!g || !of_the_card || pool.allocType != cudaMemAllocationTypePinned || !p->bytesize)
        return laptop::answer(cudaErrorInvalidValue);
    void* memory = p->dptr = laptop::reserve_memory("memory of a graph", p->bytesize, 1);
    if (!memory) return laptop::answer(cudaErrorMemoryAllocation);
    cudaError_t e = laptop::add_node(made, g, needs, n, cudaGraphNodeTypeMemAlloc, [=] { return laptop::open_memory(memory); });
    g->nodes.back()->memory = memory;
    return e;
}
inline cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t* made, cudaGraph_t g, const cudaGraphNode_t* needs, size_t n, void* p) {
    if (!laptop::may_be_freed(g, p)) return laptop::answer(cudaErrorInvalidValue);
    cudaError_t e = laptop::add_node(made, g, needs, n, cudaGraphNodeTypeMemFree, [=] { return cudaFree(p); });
    g->nodes.back()->memory = p;
    return e;
}

// ------------------------------------------------------------------ accounts
// Used: what graphs have mapped, of which they share what is not live at the same time.
inline cudaError_t cudaDeviceGetGraphMemAttribute(int device, cudaGraphMemAttributeType what, void* value) {
    if (device != 0) return laptop::answer(cudaErrorInvalidDevice);
    const laptop::GraphMemory& all = laptop::graph_memory();
    const unsigned long long numbers[] = {laptop::mapped_bytes(), all.most_mapped, all.pool.reserved, all.pool.most_reserved};
    if (what > cudaGraphMemAttrReservedMemHigh) return laptop::answer(cudaErrorInvalidValue);
    *(unsigned long long*)value = numbers[what];
    return cudaSuccess;
}
// Only the highest may be set, and only back.
inline cudaError_t cudaDeviceSetGraphMemAttribute(int device, cudaGraphMemAttributeType what, void* value) {
    if (device != 0) return laptop::answer(cudaErrorInvalidDevice);
    laptop::GraphMemory& all = laptop::graph_memory();
    if (*(unsigned long long*)value) return laptop::answer(cudaErrorInvalidValue);
    if (what == cudaGraphMemAttrUsedMemHigh) all.most_mapped = laptop::mapped_bytes();
    else if (what == cudaGraphMemAttrReservedMemHigh) all.pool.most_reserved = all.pool.reserved;
    else return laptop::answer(cudaErrorInvalidValue);
    return cudaSuccess;
}
inline cudaError_t cudaDeviceGraphMemTrim(int device) {
    if (device != 0) return laptop::answer(cudaErrorInvalidDevice);
    laptop::GraphMemory& all = laptop::graph_memory();
    for (auto& exec : all.mapped) exec.second = std::min(exec.second, all.pool.used);
    return cudaMemPoolTrimTo(&all.pool, 0);
}
