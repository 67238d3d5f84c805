"""`run --ncu`: a program with several kernels, its counts in the profiler's own columns."""
import csv

import pytest

from laptop_cuda import gpu
from laptop_cuda.__main__ import main

TWO = """#include <cstdio>
template <int K> __global__ void scale(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] *= K; }
__global__ void strided(const float* x, float* y) { y[threadIdx.x] = x[8 * threadIdx.x]; }
int main() {
    float *x, *y;
    cudaMalloc(&x, 4096); cudaMalloc(&y, 128); cudaMemset(x, 0, 4096);
    scale<2><<<4, 256>>>(x);
    for (int i = 0; i < 2; ++i) strided<<<1, 32>>>(x, y);
    return cudaDeviceSynchronize();
}
"""


@pytest.fixture
def program(tmp_path):
    (tmp_path / "two.cu").write_text(TWO)
    return tmp_path / "two.cu"


def test_each_launch_of_a_program_is_a_row(program):
    page = program.with_name("page.raw.csv")
    assert main(["run", "--ncu", str(page), str(program)]) == 0
    head, units, *rows = csv.reader(page.open())
    sectors = head.index("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum")
    assert [(r[4], r[8], r[sectors]) for r in rows] == [("scale<2>", "(4, 1, 1)", "128"),
                                                        ("strided", "(1, 1, 1)", "32"), ("strided", "(1, 1, 1)", "32")]
    assert units[sectors] == "sector"
    assert main(["run", f"--ncu={program.with_name('page.html')}", str(program)]) == 0
    assert "strided" in program.with_name("page.html").read_text()
    assert main(["run", "--plain", "--ncu", str(page), str(program)]) == 2


@pytest.mark.slow
def test_with_a_compiler_it_says_what_was_chosen_for_a_card(program, monkeypatch, capsys):
    if gpu.nvcc() is None:
        pytest.skip("not run: nvcc is missing (NVIDIA's CUDA toolkit, or pip install \".[inside]\")")
    page = program.with_name("page.csv")
    assert main(["run", "-arch=sm_80", "--ncu", str(page), str(program)]) == 0
    rows = [r for r in csv.DictReader(page.open()) if r["Metric Name"] == "Registers Per Thread"]
    assert len(rows) == 3 and {r["CC"] for r in rows} == {"8.0"} and all(r["Known"].startswith("as compiled")
                                                                        for r in rows)
    monkeypatch.setattr(gpu, "nvcc", lambda: None)
    assert main(["run", "-arch=sm_80", "--ncu", str(page), str(program)]) == 0
    assert "n/a" in [r["Metric Value"] for r in csv.DictReader(page.open())
                     if r["Metric Name"] == "Registers Per Thread"]
