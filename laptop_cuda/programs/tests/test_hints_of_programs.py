"""The first plain run of a program is checked in passing, and does what it would have done."""
import secrets

import pytest
from test_program import tool

SOURCE = """
#include <cstdio>
#include <fstream>
static std::ofstream log_file("LOG");
template <class T> __global__ void sum(const T* x, T* out, int n) {
    if (threadIdx.x < n) atomicAdd(out, x[threadIdx.x]);
}
int main(int n, char** words) {
    float *x, *out, h[64], r;
    for (float& v : h) v = 1;
    cudaMalloc(&x, 256), cudaMalloc(&out, 4), cudaMemset(out, 0, 4);
    cudaMemcpy(x, h, 256, cudaMemcpyHostToDevice);
    for (int i = 0; i < 2; ++i) sum<<<1, 96>>>(x, out, SIZE);
    log_file << "once";
    cudaMemcpy(&r, out, 4, cudaMemcpyDeviceToHost);
    printf("%g %d\\n", SIZE > 64 ? 0 : r, n);
}
"""


@pytest.mark.slow
def test_an_overrun_is_one_line_and_what_is_right_none(tmp_path, monkeypatch):
    def ran(*more: str):
        done = tool(tmp_path, "run", *more, tmp_path / "prog.cu", "word")
        return done.returncode, done.stdout, done.stderr, (tmp_path / "LOG").read_text()
    monkeypatch.setenv("LAPTOP_CUDA_HINT", "30")
    (tmp_path / "prog.cu").write_text(f"// {secrets.token_hex(8)}{SOURCE}")
    said = "laptop_cuda: hint: out of bounds in sum, line 6: `python -m laptop_cuda run` without --plain explains it\n"
    ran("-DSIZE=65")                                     # builds in the background might take longer
    assert ran("--plain", "-DSIZE=65") == (0, "0 2\n", said, "once")
    assert ran("--plain", "-DSIZE=65") == (0, "0 2\n", "", "once")
    assert ran("--plain", "-DSIZE=64") == (0, "128 2\n", "", "once")
