"""Misuse of the API by host code is a finding, once for each place; so is a read of what the host never set."""
import pytest

SOURCE = """
#include <cstdio>
#include <cstdlib>
struct Pair {{ char c; double d; }};
__global__ void copy(const int* x, int* y) {{ y[threadIdx.x] = x[threadIdx.x]; }}
__global__ void move(const Pair* x, Pair* y) {{ Pair p = x[threadIdx.x]; y[threadIdx.x] = p; }}
int main() {{
    int *d, *e, *h = (int*)malloc(128), k[32] = {{}};
    Pair *p, *q, *r = (Pair*)malloc(32 * sizeof(Pair));
    cudaMalloc(&d, 128), cudaMalloc(&e, 128), cudaMalloc(&p, 32 * sizeof *p), cudaMalloc(&q, 32 * sizeof *p);
    {}
    puts("went on");
}}
"""
WRONG = [
    ("cudaFree(d); cudaFree(d);", "misuse: cudaFree answers cudaErrorInvalidValue: the memory was freed before"),
    ("cudaFree(d + 1);", "the pointer was moved: it is not the start of its memory"),
    ("cudaFree(h);", "the pointer is not one of device memory"),
    ("cudaMemcpy(d, k, 256, cudaMemcpyHostToDevice);", "more bytes than the memory has that it copies to"),
    ("cudaMemcpy(k, d, 256, cudaMemcpyDeviceToHost);", "more bytes than the memory has that it copies from"),
    ("for (int i = 0; i < 3; ++i) cudaMemcpyAsync(k, d, 128, cudaMemcpyHostToDevice);",
     "the direction says to the device, and the destination is not there"),
    ("cudaFree(d); cudaMemcpy(d, k, 128, cudaMemcpyHostToDevice);", "more bytes than the memory has"),
    ("cudaMemset(d, 0, 132);", "cudaMemset answers cudaErrorInvalidValue: more bytes than the memory has"),
    ("cudaMemcpy(d, h, 128, cudaMemcpyHostToDevice); copy<<<1, 32>>>(d, e);", "copy reads d[0], which was never written"),
    ("cudaMemcpy(e, d, 128, cudaMemcpyDeviceToDevice); copy<<<1, 32>>>(e, d);", "copy reads e[0], which was never written"),
]
RIGHT = [
    "cudaMemcpy(d, h, 128, cudaMemcpyHostToDevice); cudaMemcpy(d, k, 128, cudaMemcpyHostToDevice); copy<<<1, 32>>>(d, e);",
    "for (int i = 0; i < 32; ++i) h[i] = i; cudaMemcpy(d, h, 128, cudaMemcpyHostToDevice); copy<<<1, 32>>>(d, e);",
    "for (int i = 0; i < 32; ++i) r[i].c = 'a', r[i].d = i; "
    "cudaMemcpy(p, r, 32 * sizeof *p, cudaMemcpyHostToDevice); move<<<1, 32>>>(p, q);",
    "cudaMemcpy(k, d, 0, cudaMemcpyHostToDevice); cudaFree(nullptr); cudaFree(d), cudaFree(e), free(h);"]


@pytest.mark.parametrize("text, said", WRONG)
def test_what_is_wrong_is_found(program, text, said):
    found = program(SOURCE.format(text))
    assert len(found.errors) == 1 and said in found.errors[0]["message"], found.errors
    assert (found.status, found.stdout, found.notes) == (0, "went on\n", [])
    assert found.errors[0]["kind"] in ("misuse", "uninitialized") and found.errors[0]["line"]


@pytest.mark.parametrize("text", RIGHT)
def test_what_is_right_is_not_accused(program, text):
    assert program(SOURCE.format(text)).errors == []
