"""Rules of CUDA, each with code that keeps it and code that breaks it: rules.toml has them, with where they are said.

order.toml has what orders streams, events and host code, and what does not."""
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import laptop_cuda

TABLE, ORDER = (tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8")) for name in ("rules", "order"))
START = "#include <mma.h>\n#include <cooperative_groups.h>\nusing namespace nvcuda;\n"
KERNEL = "__global__ void {}{}(float* x, int* y) {{\n    __shared__ float s[128]; int t = threadIdx.x; s[t] = t;\n    {}\n}}\n"


def test_kernels_that_keep_a_rule_are_clean_and_those_that_break_it_are_not():
    cases = [(name, n, *case) for name in ("right", "wrong") for n, case in enumerate(TABLE[name])]
    module = laptop_cuda.compile(START + "".join(KERNEL.format(name, n, body) for name, n, _, body, *_ in cases))
    for name, n, rule, _, *kind in cases:
        said = ""
        try:
            with laptop_cuda.sanitize() as notes:
                module[f"{name}{n}"][1, 64](np.zeros(1024, "f4"), y := np.zeros(64, "i4"))
            assert name == "wrong" or (len(notes) == len(kind) and "".join(kind) in str(notes) and (y == y[0]).all()), (rule, notes, y)
            kind = kind if name == "wrong" else ""
        except laptop_cuda.KernelError as error:
            said = error.kind
        assert said == "".join(kind), (rule, n, said)


def test_programs_that_keep_a_rule_are_clean_and_those_that_break_it_are_not(program):
    text, wanted = TABLE["program"], []
    for rule, right, wrong, said in TABLE["calls"]:
        text += f"    {{ {right} }}\n    cudaDeviceSynchronize();\n    {{ {wrong} }}\n    cudaDeviceSynchronize();\n"
        wanted.append((text.count("\n") - 1, said))
    ran = program(text + "}\n")
    told = [error["message"] for error in ran.errors] + ran.notes
    for line, said in wanted:
        assert [m for m in told if said in m and (f"line {line}" in m or "not cooperative" in m)], (said, told)
    assert len(told) == len(wanted) + TABLE["notes"] and ran.status == 0, told


UNSET = """
#include <cstdio>
#include <cstdlib>
__global__ void copy(const int* x, int* y) {{ y[threadIdx.x] = x[threadIdx.x]; }}
int main() {{
    int *d, *e, *h = (int*)malloc(128);
    cudaMalloc(&d, 128), cudaMalloc(&e, 128);
    {}
    puts("went on");
}}
"""
UNWRITTEN = [
    ("cudaMemcpy(d, h, 128, cudaMemcpyHostToDevice); copy<<<1, 32>>>(d, e);", "copy reads d[0], which was never written"),
    ("cudaMemcpy(e, d, 128, cudaMemcpyDeviceToDevice); copy<<<1, 32>>>(e, d);", "copy reads e[0], which was never written"),
]


@pytest.mark.parametrize("text, said", UNWRITTEN)
def test_what_malloc_gave_and_the_host_never_set_is_unwritten_in_device_memory_too(program, text, said):
    found = program(UNSET.format(text))
    assert len(found.errors) == 1 and said in found.errors[0]["message"], found.errors
    assert (found.status, found.stdout, found.notes) == (0, "went on\n", [])
    assert found.errors[0]["kind"] == "uninitialized" and found.errors[0]["line"]


STREAMS = r"""
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
    cases = [(f"{first}\n    {then}", 1) for _, first, then in ORDER["wrong"]] + [(text, 0) for _, text in ORDER["right"]]
    text, wanted = STREAMS, []
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
