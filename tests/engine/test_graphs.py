"""CUDA graphs, captured and built node by node: launches in the order of their dependencies, each checked."""
from __future__ import annotations

from laptop_cuda.program import run

PROGRAM = r"""
#include <cstdio>
template <class T> __global__ void add(T* x, T by) { x[threadIdx.x] += by; }
__global__ void twice(float* x) { x[threadIdx.x] *= 2; }
void told(void* text) { printf("%s ", (const char*)text); }
int main(int argc, char**) {
    float *x, h[8];
    cudaMalloc(&x, sizeof h);
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    cudaGraph_t graph, built;
    cudaGraphExec_t exec, second;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    cudaMemsetAsync(x, 0, sizeof h, stream);
    add<float><<<1, argc > 1 ? 9 : 8, 0, stream>>>(x, 3.f);
    twice<<<1, 8, 0, stream>>>(x);
    cudaMemcpyAsync(h, x, sizeof h, cudaMemcpyDeviceToHost, stream);
    cudaStreamEndCapture(stream, &graph);
    h[7] = -1;
    printf("%g ", h[7]);                                  // nothing was done yet
    cudaGraphInstantiate(&exec, graph, nullptr, nullptr, 0);
    for (int i = 0; i < 2; ++i) cudaGraphLaunch(exec, stream);
    cudaStreamSynchronize(stream);
    printf("%g ", h[7]);

    cudaGraphCreate(&built, 0);
    cudaGraphNode_t doubled, added, asked;
    float by = 5;
    void *add_arguments[] = {&x, &by}, *twice_arguments[] = {&x};
    cudaKernelNodeParams p = {};
    p.func = (void*)twice, p.gridDim = dim3(1), p.blockDim = dim3(8), p.kernelParams = twice_arguments;
    cudaGraphAddKernelNode(&doubled, built, nullptr, 0, &p);
    p.func = (void *)add<float>, p.kernelParams = add_arguments;
    cudaGraphAddKernelNode(&added, built, nullptr, 0, &p);
    cudaGraphAddDependencies(built, &added, &doubled, 1);  // first the sum, then the product
    cudaHostNodeParams host = {told, (void*)"done"};
    cudaGraphAddHostNode(&asked, built, &doubled, 1, &host);
    by = 100;                                              // the node has its own copy
    cudaGraphInstantiate(&second, built, nullptr, nullptr, 0);
    cudaGraphLaunch(second, stream);
    cudaMemcpy(h, x, sizeof h, cudaMemcpyDeviceToHost);
    size_t n = 0;
    cudaGraphGetNodes(built, nullptr, &n);
    printf("%g %d\n", h[7], (int)n);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
}
"""


def test_graphs_run_in_order_and_are_checked(tmp_path):
    (tmp_path / "prog.cu").write_text(PROGRAM)
    ran = run(tmp_path / "prog.cu")
    assert (ran.stdout, ran.errors, ran.crash) == ("-1 6 done 22 3\n", [], "")
    assert [launch["kernel"] for launch in ran.launches] == ["add<float>", "twice"] * 3
    (error,) = run(tmp_path / "prog.cu", arguments=["too many threads"]).errors
    assert error["kind"] == "out of bounds" and error["line"] == 3 and "x[8]" in error["message"]
