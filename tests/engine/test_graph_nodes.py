"""Nodes of graphs that decide (if, while, switch) and that ask for memory: what runs, what is accounted, and errors by line."""
from __future__ import annotations

import pytest

from laptop_cuda.program import run

CONDITIONS = r"""
#include <cstdio>
#include <cstdlib>
__global__ void choose(int* x, cudaGraphConditionalHandle handle) { cudaGraphSetConditional(handle, *x); }
__global__ void down(int* x, cudaGraphConditionalHandle handle) { cudaGraphSetConditional(handle, --*x); }
__global__ void say(int word) { printf("%d ", word); }
cudaGraph_t* add(cudaGraph_t graph, cudaGraphNode_t* needs, cudaGraphConditionalHandle handle,
                 cudaGraphConditionalNodeType type, unsigned size) {
    cudaGraphNode_t node;
    cudaGraphNodeParams p = {cudaGraphNodeTypeConditional};
    p.conditional.handle = handle, p.conditional.type = type, p.conditional.size = size;
    cudaError_t e = cudaGraphAddNode(&node, graph, needs, nullptr, needs != nullptr, &p);
    return e == cudaSuccess ? p.conditional.phGraph_out : nullptr;
}
void fill(cudaGraph_t body, int word) {
    void* arguments[] = {&word};
    cudaGraphNode_t node;
    cudaGraphNodeParams p = {cudaGraphNodeTypeKernel};
    p.kernel.func = (void*)say, p.kernel.kernelParams = arguments;
    cudaGraphAddNode(&node, body, nullptr, nullptr, 0, &p);
}
void choice(int* x, cudaGraphConditionalNodeType type, unsigned size) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t first;
    cudaGraphConditionalHandle handle;
    cudaGraphCreate(&graph, 0);
    cudaGraphConditionalHandleCreate(&handle, graph);
    void* arguments[] = {&x, &handle};
    cudaGraphNodeParams p = {cudaGraphNodeTypeKernel};
    p.kernel.func = (void*)choose, p.kernel.kernelParams = arguments;
    cudaGraphAddNode(&first, graph, nullptr, nullptr, 0, &p);
    cudaGraph_t* bodies = add(graph, &first, handle, type, size);
    for (unsigned i = 0; i < size; ++i) fill(bodies[i], 10 + i);
    cudaGraphInstantiate(&exec, graph, 0);
    fill(bodies[0], 99);                                   // too late
    for (int value = 0; value < 4; ++value) {
        cudaMemcpy(x, &value, sizeof value, cudaMemcpyHostToDevice);
        cudaGraphLaunch(exec, 0);
        printf("| ");
    }
    puts("");
}
int main(int argc, char** argv) {
    int bug = argc > 1 ? atoi(argv[1]) : 0, three = 3, *x;
    cudaMalloc(&x, sizeof *x);
    cudaMemset(x, 0, sizeof *x);
    if (bug == 1) choose<<<1, 1>>>(x, 12345);
    choice(x, cudaGraphCondTypeIf, 1);
    choice(x, cudaGraphCondTypeIf, 2);
    choice(x, cudaGraphCondTypeSwitch, 3);
    cudaGraph_t graph, again;
    cudaGraphExec_t exec;
    cudaGraphConditionalHandle handle;
    const cudaGraphNode_t* needs;
    cudaStreamCaptureStatus status;
    size_t n;
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    if (bug != 2) cudaMemcpyAsync(x, &three, sizeof three, cudaMemcpyHostToDevice, stream);
    cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, &needs, nullptr, &n);
    cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault);
    cudaGraphNode_t last = n ? *needs : nullptr, node;
    cudaGraph_t* body = add(graph, n ? &last : nullptr, handle, cudaGraphCondTypeWhile, 1);
    size_t count = 2;
    cudaGraphNode_t nodes[2];
    cudaGraphGetNodes(graph, nodes, &count);
    node = nodes[count - 1];
    cudaStreamUpdateCaptureDependencies(stream, &node, nullptr, 1, cudaStreamSetCaptureDependencies);
    say<<<1, 1, 0, stream>>>(20);
    cudaStreamEndCapture(stream, &again);
    cudaStreamBeginCaptureToGraph(stream, body[0], nullptr, nullptr, 0, cudaStreamCaptureModeGlobal);
    say<<<1, 1, 0, stream>>>(21);
    down<<<1, 1, 0, stream>>>(x, handle);
    cudaStreamEndCapture(stream, nullptr);
    cudaGraphInstantiate(&exec, graph, nullptr, nullptr, 0);
    if (bug == 2) cudaFree(x);
    for (int i = 0; i < 2; ++i) cudaGraphLaunch(exec, stream);
    bool refused = add(graph, nullptr, handle, cudaGraphCondTypeWhile, 2) == nullptr;
    fill(body[0], 22);
    cudaGraphExecUpdateResultInfo info;
    cudaGraphExecUpdate(exec, graph, &info);
    cudaGraphLaunch(exec, stream);
    printf("%d %d %d\n", graph == again, refused, info.result);
}
"""
CHOSEN = "| 10 | 10 | 10 | \n11 | 10 | 10 | 10 | \n10 | 11 | 12 | | \n"

MEMORY = r"""
#include <cstdio>
#include <cstdlib>
__global__ void fill(float* x, float by) { x[threadIdx.x] = by; }
__global__ void add(float* x, float by) { x[threadIdx.x] += by; }
void account() {
    size_t used[4];
    for (int i = 0; i < 4; ++i) cudaDeviceGetGraphMemAttribute(0, (cudaGraphMemAttributeType)i, used + i);
    printf("[%zu %zu %zu %zu] ", used[0], used[1], used[2], used[3]);
}
int main(int argc, char** argv) {
    int bug = argc > 1 ? atoi(argv[1]) : 0;
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    float *a, *b, *c, host[32] = {};
    cudaGraph_t graph, keeps;
    cudaGraphExec_t exec, kept, freeing;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    cudaMallocAsync(&a, sizeof host, stream);
    fill<<<1, bug == 1 ? 33 : 32, 0, stream>>>(a, 3);
    if (bug == 2) cudaFreeAsync(a, stream);
    add<<<1, 32, 0, stream>>>(a, 4);
    cudaMemcpyAsync(host, a, sizeof host, cudaMemcpyDeviceToHost, stream);
    printf("%d ", bug == 2 ? 0 : cudaFreeAsync(a, stream));
    cudaMallocAsync(&b, 2 * sizeof host, stream);
    if (bug == 3) add<<<1, 32, 0, stream>>>(b, 4);         // not initialised, in the second launch neither
    if (bug != 3) fill<<<1, 64, 0, stream>>>(b, 5);
    cudaFreeAsync(b, stream);
    printf("%d\n", cudaFreeAsync(b, stream));              // twice in one graph
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&exec, graph, 0);
    account();
    for (int i = 0; i < 2; ++i) printf("%d ", cudaGraphLaunch(exec, stream));
    account();
    printf("%g\n", host[31]);
    if (bug == 4) add<<<1, 32>>>(a, 1);                    // given back by the graph

    cudaGraphNode_t made, freed;
    cudaMemAllocNodeParams p = {};
    p.bytesize = 4096;
    cudaGraphCreate(&keeps, 0);
    printf("%d ", cudaGraphAddMemAllocNode(&made, keeps, nullptr, 0, &p));     // no place
    p.poolProps.allocType = cudaMemAllocationTypePinned, p.poolProps.location = {cudaMemLocationTypeDevice, 0};
    printf("%d ", cudaGraphAddMemAllocNode(&made, keeps, nullptr, 0, &p));
    c = (float*)p.dptr;
    cudaGraphInstantiate(&kept, keeps, nullptr, nullptr, 0);
    if (bug == 5) fill<<<1, 32>>>(c, 1);                   // before the launch
    for (int i = 0; i < 2; ++i) printf("%d ", cudaGraphLaunch(kept, stream));  // the second: not given back
    fill<<<1, 32>>>(c, 1);
    account();
    cudaDeviceGraphMemTrim(0);
    account();
    for (int i = 0; i < 2; ++i) printf("%d ", cudaFree(c));
    account();
    cudaDeviceGraphMemTrim(0);
    size_t none = 0;
    cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrReservedMemHigh, &none);
    account();
    puts("");

    cudaGraphCreate(&graph, 0);
    cudaGraphNodeParams q = {cudaGraphNodeTypeMemFree};
    q.free.dptr = c;
    printf("%d ", cudaGraphAddNode(&freed, graph, nullptr, nullptr, 0, &q));
    printf("%d ", cudaGraphAddMemFreeNode(&freed, graph, nullptr, 0, host));   // no graph's memory
    cudaGraphInstantiate(&freeing, graph, 0);
    for (cudaGraphExec_t each : {kept, freeing}) printf("%d ", cudaGraphLaunch(each, stream));
    cudaGraphExecDestroy(kept);
    account();
    cudaGraphInstantiateWithFlags(&kept, keeps, cudaGraphInstantiateFlagAutoFreeOnLaunch);
    for (int i = 0; i < 2; ++i) printf("%d ", cudaGraphLaunch(kept, stream));
    account();
    puts("");
}
"""
ACCOUNTS = """0 1
[0 0 0 0] 0 0 [256 256 256 256] 7
1 0 0 1 [4096 4096 4096 4096] [4096 4096 4096 4096] 0 1 [4096 4096 4096 4096] [0 4096 0 0] 
0 1 0 0 [0 4096 4096 4096] 0 0 [4096 4096 4096 4096] 
"""


@pytest.mark.slow
def test_the_value_of_a_handle_decides_what_runs(tmp_path):
    (tmp_path / "conditions.cu").write_text(CONDITIONS)
    for mode in ("sanitize", "plain"):
        ran = run(tmp_path / "conditions.cu", mode=mode)
        assert (ran.stdout, ran.errors, ran.crash) == (f"{CHOSEN}{'21 21 21 20 ' * 2}{'21 22 ' * 3}20 1 1 0\n", [], "")
    (error,) = run(tmp_path / "conditions.cu", arguments=["1"]).errors
    assert "never made" in error["message"] and error["line"] == 4
    (error,) = run(tmp_path / "conditions.cu", arguments=["2"]).errors
    assert error["kind"] == "out of bounds" and "after cudaFree of x" in error["message"] and error["line"] == 5


@pytest.mark.slow
def test_memory_of_a_graph_is_there_from_its_node_until_it_is_freed(tmp_path):
    (tmp_path / "memory.cu").write_text(MEMORY)
    for mode in ("sanitize", "plain"):
        ran = run(tmp_path / "memory.cu", mode=mode)
        assert (ran.stdout, ran.errors, ran.crash) == (ACCOUNTS, [], "")
    for bug, kind, line, words in (
            (1, "out of bounds", 4, "a[32]"), (2, "out of bounds", 5, "after cudaFree of a"), (3, "uninitialized", 5, "b[0]"),
            (4, "out of bounds", 5, "after cudaFree of a"), (5, "out of bounds", 4, "memory of a graph")):
        (error,) = run(tmp_path / "memory.cu", arguments=[str(bug)]).errors
        assert error["kind"] == kind and words in error["message"] and error["line"] == line, error
