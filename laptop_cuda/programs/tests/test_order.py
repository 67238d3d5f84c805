"""Streams, events and host code: what nothing orders is a finding with both lines, what something orders is none.

order.toml has the cases, each with the section of NVIDIA's manual that decides it."""
import re
import tomllib
from pathlib import Path

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


def test_what_nothing_orders_is_found_with_both_lines_and_nothing_else(program):
    table = tomllib.loads(Path(__file__).with_name("order.toml").read_text(encoding="utf-8"))
    cases = [(f"{first}\n    {then}", 1) for _, first, then in table["wrong"]] + [(text, 0) for _, text in table["right"]]
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
