"""Streams, events and host code: what nothing orders is a finding with both lines, what something orders is none.

Beside each case the section of the CUDA C++ Programming Guide that decides it, or of the Runtime API's manual."""
import re

START = r"""
#include <cstdio>
#include <cstdlib>
__global__ void fill(int* x, int v) { x[threadIdx.x] = v; }
__global__ void add(const int* x, int* y) { atomicAdd(y + threadIdx.x, x[threadIdx.x]); }
__global__ void half(int* x, int first) { x[2 * threadIdx.x + first] = 1; }
static void CUDART_CB look(void* p) { printf("%d", *(int*)p); }
int main() {
    int *d, *e, *f, *m, *p, h[64] = {};
    cudaStream_t s, t, u;
    cudaEvent_t v, w;
    cudaMalloc(&d, 256), cudaMalloc(&e, 256), cudaMalloc(&f, 256), cudaMallocManaged(&m, 256), cudaMallocHost(&p, 256);
    cudaMemset(d, 0, 256), cudaMemset(e, 0, 256), cudaMemset(f, 0, 256), cudaDeviceSynchronize();
    for (int i = 0; i < 64; ++i) m[i] = p[i] = i;
    cudaStreamCreate(&s), cudaStreamCreate(&t), cudaStreamCreateWithFlags(&u, cudaStreamNonBlocking);
    cudaEventCreate(&v), cudaEventCreate(&w);
"""
STREAMS, EVENTS, DEFAULT = "Streams", "Events", "Default Stream"
OVERLAP, SYNCHRONISING, MANAGED = "Overlapping Behavior", "API synchronization behavior", "Unified Memory: Coherency and Concurrency"
WRONG = [         # the last two statements are not ordered
    (STREAMS, "fill<<<1, 64, 0, s>>>(d, 1);", "add<<<1, 64, 0, t>>>(d, e);"),
    (STREAMS, "add<<<1, 64, 0, s>>>(d, e);", "cudaMemsetAsync(d, 0, 256, t);"),
    (EVENTS, "cudaEventRecord(v, s); fill<<<1, 64, 0, s>>>(d, 1);", "cudaStreamWaitEvent(t, v); add<<<1, 64, 0, t>>>(d, e);"),
    (EVENTS, "cudaEventRecord(v, t); fill<<<1, 64, 0, s>>>(m, 1);", "cudaEventSynchronize(v); h[0] = m[5];"),
    (DEFAULT, "fill<<<1, 64>>>(d, 1);", "add<<<1, 64, 0, u>>>(d, e);"),
    (SYNCHRONISING, "cudaMemset(d, 0, 256);", "fill<<<1, 64, 0, u>>>(d, 1);"),
    (SYNCHRONISING, "fill<<<1, 64, 0, u>>>(d, 1);", "cudaMemcpy(h, d, 256, cudaMemcpyDeviceToHost);"),
    (MANAGED, "fill<<<1, 64>>>(m, 1);", "h[0] = m[3];"),
    (MANAGED, "add<<<1, 64>>>(m, d);", "m[3] = 7;"),
    (MANAGED, "fill<<<1, 64, 0, s>>>(m, 1);", "cudaStreamSynchronize(t); h[0] = m[3];"),
    (SYNCHRONISING, "cudaMemcpyAsync(p, d, 256, cudaMemcpyDeviceToHost, s);", "h[0] = p[0];"),
    (SYNCHRONISING, "cudaMemcpyAsync(d, p, 256, cudaMemcpyHostToDevice, s);", "p[9] = 4;"),
    (SYNCHRONISING, "cudaMemcpyAsync(p, d, 256, cudaMemcpyDeviceToHost, s);", "cudaLaunchHostFunc(t, look, p);"),
]
RIGHT = [
    (STREAMS, "half<<<1, 32, 0, s>>>(d, 0); half<<<1, 32, 0, t>>>(d, 1);"),
    (STREAMS, "add<<<1, 64, 0, s>>>(d, e); add<<<1, 64, 0, t>>>(d, e);"),
    (EVENTS, "fill<<<1, 64, 0, s>>>(d, 1); cudaEventRecord(v, s); cudaStreamWaitEvent(t, v); cudaEventRecord(w, t); "
             "cudaStreamWaitEvent(u, w); fill<<<1, 64, 0, u>>>(d, 2); cudaEventRecord(v, u); cudaEventSynchronize(v); "
             "cudaMemcpy(h, d, 256, cudaMemcpyDeviceToHost);"),
    (EVENTS, "fill<<<1, 64, 0, s>>>(m, 1); cudaEventRecord(v, s); cudaEventSynchronize(v); h[0] = m[3];"),
    (DEFAULT, "fill<<<1, 64, 0, s>>>(d, 1); fill<<<1, 64>>>(d, 2); add<<<1, 64, 0, t>>>(d, e);"),
    (DEFAULT, "fill<<<1, 64, 0, cudaStreamPerThread>>>(d, 1); add<<<1, 64>>>(d, e); fill<<<1, 64, 0, s>>>(e, 2);"),
    (DEFAULT, "fill<<<1, 64, 0, s>>>(m, 1); cudaStreamSynchronize(0); h[0] = m[3];"),
    (SYNCHRONISING, "fill<<<1, 64, 0, s>>>(d, 1); fill<<<1, 64>>>(m, 1); cudaMemcpy(h, d, 256, cudaMemcpyDeviceToHost); h[0] = m[3];"),
    (SYNCHRONISING, "cudaMemcpyAsync(h, d, 256, cudaMemcpyDeviceToHost, s); h[3] = 1; cudaMemcpyAsync(e, h, 256, cudaMemcpyHostToDevice, s);"),
    (SYNCHRONISING, "cudaMemcpyAsync(d, p, 256, cudaMemcpyHostToDevice, s); h[0] = p[3]; cudaStreamSynchronize(s); p[3] = 1;"),
    (SYNCHRONISING, "cudaMemcpyAsync(p, d, 256, cudaMemcpyDeviceToHost, s); cudaLaunchHostFunc(s, look, p);"),
    (OVERLAP, "fill<<<1, 64, 0, s>>>(m, 1); cudaFree(f); h[0] = m[3]; cudaMalloc(&f, 256);"),
    (MANAGED, "m[3] = 2; add<<<1, 64, 0, s>>>(m, d); add<<<1, 64, 0, t>>>(m, d); h[0] = m[3]; cudaDeviceSynchronize(); m[3] = 1;"),
]


def test_what_nothing_orders_is_found_with_both_lines_and_nothing_else(program):
    cases = [(f"{first}\n    {then}", 1) for _, first, then in WRONG] + [(text, 0) for _, text in RIGHT]
    text, wanted = START, []
    for case, wrong in cases:
        text += f"    {case}\n    cudaDeviceSynchronize();\n"
        if wrong:
            wanted.append((text.count("\n") - 2, text.count("\n") - 1))
    found = program(text + "    puts(\"\");\n}\n")
    lines = [tuple(sorted(map(int, re.findall(r"  line (\d+) of", error["message"])))) for error in found.errors]
    assert lines == wanted, "\n".join(error["message"] for error in found.errors)
    assert {error["kind"] for error in found.errors} == {"race"} and found.status == 0 and not found.notes
    assert "d[0] is written by kernel fill and is read by kernel add in another stream" in found.errors[0]["message"]
    assert "p[9] is read by cudaMemcpyAsync and is written by host code, which has not waited: " in found.errors[11]["message"]
