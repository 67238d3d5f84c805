"""What malloc gave and the host never set is unwritten in device memory too."""
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
    ("cudaMemcpy(d, h, 128, cudaMemcpyHostToDevice); copy<<<1, 32>>>(d, e);", "copy reads d[0], which was never written"),
    ("cudaMemcpy(e, d, 128, cudaMemcpyDeviceToDevice); copy<<<1, 32>>>(e, d);", "copy reads e[0], which was never written"),
]
RIGHT = [
    "cudaMemcpy(d, h, 128, cudaMemcpyHostToDevice); cudaMemcpy(d, k, 128, cudaMemcpyHostToDevice); copy<<<1, 32>>>(d, e);",
    "for (int i = 0; i < 32; ++i) h[i] = i; cudaMemcpy(d, h, 128, cudaMemcpyHostToDevice); copy<<<1, 32>>>(d, e);",
    "for (int i = 0; i < 32; ++i) r[i].c = 'a', r[i].d = i; "
    "cudaMemcpy(p, r, 32 * sizeof *p, cudaMemcpyHostToDevice); move<<<1, 32>>>(p, q);"]


@pytest.mark.parametrize("text, said", WRONG)
def test_what_is_wrong_is_found(program, text, said):
    found = program(SOURCE.format(text))
    assert len(found.errors) == 1 and said in found.errors[0]["message"], found.errors
    assert (found.status, found.stdout, found.notes) == (0, "went on\n", [])
    assert found.errors[0]["kind"] == "uninitialized" and found.errors[0]["line"]


@pytest.mark.parametrize("text", RIGHT)
def test_what_is_right_is_not_accused(program, text):
    assert program(SOURCE.format(text)).errors == []
