"""What malloc gave and the host never set is unwritten in device memory too; rules.toml has what is right."""
import pytest

SOURCE = """
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
WRONG = [
    ("cudaMemcpy(d, h, 128, cudaMemcpyHostToDevice); copy<<<1, 32>>>(d, e);", "copy reads d[0], which was never written"),
    ("cudaMemcpy(e, d, 128, cudaMemcpyDeviceToDevice); copy<<<1, 32>>>(e, d);", "copy reads e[0], which was never written"),
]


@pytest.mark.parametrize("text, said", WRONG)
def test_what_is_wrong_is_found(program, text, said):
    found = program(SOURCE.format(text))
    assert len(found.errors) == 1 and said in found.errors[0]["message"], found.errors
    assert (found.status, found.stdout, found.notes) == (0, "went on\n", [])
    assert found.errors[0]["kind"] == "uninitialized" and found.errors[0]["line"]
