"""A run that is to answer in time: some blocks are checked, the rest run; results are right and bugs are bugs."""
import time

import numpy as np
import pytest

import laptop_cuda as cuda
from laptop_cuda.launch import current
from laptop_cuda.programs.command import main

pytestmark = pytest.mark.slow

# a right product with one row per thread, long, then a kernel that reads all of it
SOURCE = """
#include <cstdio>
__global__ void product(const float* a, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 0; j < n; ++j) {
        float sum = 0;
        for (int k = 0; k < n; ++k) sum += a[i * n + k] * a[k * n + j];
        c[i * n + j] = sum;
    }
}
__global__ void twice(const float* c, float* d, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n * n BUG) d[i] = 2 * c[i];
}
int main() {
    const int n = 320;
    static float h[n * n];
    float *a, *c, *d;
    cudaMalloc(&a, sizeof h), cudaMalloc(&c, sizeof h), cudaMalloc(&d, sizeof h);
    for (int i = 0; i < n * n; ++i) h[i] = i % 3;
    cudaMemcpy(a, h, sizeof h, cudaMemcpyHostToDevice);
    product<<<n / 32, 32>>>(a, c, n);
    twice<<<n * n / 64 + 1, 64>>>(c, d, n);
    cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost);
    printf("%g\\n", h[n * n - 1]);
}
"""
FOREVER = "__global__ void forever(int* x) { for (int i = 0; i >= 0; i = i + 1 & 7) *x = i; }"


def test_some_blocks_are_checked_and_the_result_is_that_of_a_whole_run(program):
    text = SOURCE.replace("BUG", "")
    whole, start = program(text), time.perf_counter()
    part = program(text, limit=100)
    assert whole.stdout == part.stdout and part.checked_blocks == part.blocks == 1611
    part = program(text, limit=(time.perf_counter() - start) / 3)      # of what this machine needs for all
    assert part.status == 0 and not part.errors
    if not part.timed_out:           # on a machine that is not busy with other things
        assert part.stdout in (whole.stdout, "")
        assert part.checked_blocks < part.blocks


def test_a_later_launch_has_its_share(program):
    found = program(SOURCE.replace("BUG", "+ 1"), limit=10)
    assert [(e["kind"], e["kernel"]) for e in found.errors] == [("out of bounds", "twice")]


def test_what_does_not_end_is_a_note(tmp_path, capfd):
    (tmp_path / "f.cu").write_text(FOREVER + "\nint main() { int* x; cudaMallocManaged(&x, 4); *x = 0; "
                                   "forever<<<1, 1>>>(x); cudaDeviceSynchronize(); return 3; }")
    for options, status, why in ((["--limit", "6"], 0, "had not ended when the limit of 6 seconds was reached"),
                                 (["--limit", "0", "--steps", "1000"], 3, "was stopped: one block ran more than 1,000 steps")):
        assert main([*options, str(tmp_path / "f.cu")]) == status
        said = capfd.readouterr().err
        assert f"note: timeout: forever {why}" in said and "no bug found" in said and "run --" in said


def test_counts_are_of_whole_launches_or_absent():
    mod, n = cuda.compile(SOURCE.split("int main")[0].replace("BUG", "").replace("#include <cstdio>", "")), 160
    a, c, d = (np.arange(n * n) % 3).astype(np.float32), cuda.empty((n * n,)), cuda.empty((n * n,))
    with cuda.profile(limit=60) as report:
        mod.product[1, 1](a, c, 2)
        current().limit.began -= 29.99           # half of it is over, in the middle of what comes next
        mod.product[n // 32, 32](a, c, n)
        mod.twice[n * n // 64, 64](c, d, n)
    assert [launch.kernel for launch in report.launches] == ["product"] and report.uncounted == ["product", "twice"]
    assert report.launches[0].global_load.requests == 8 and "not counted in time: 2 of product, twice" in str(report)
    square = a.reshape(n, n)
    assert np.array_equal(np.asarray(d).reshape(n, n), 2 * (square @ square))


def test_from_python():
    mod = cuda.compile(SOURCE.split("int main")[0].replace("BUG", "").replace("#include <cstdio>", ""))
    n = 160
    a, c, d = (np.arange(n * n) % 3).astype(np.float32), cuda.empty((n * n,)), cuda.empty((n * n,))
    with cuda.sanitize(limit=30) as notes:
        mod.product[n // 32, 32](a, c, n)
        mod.twice[n * n // 64, 64](c, d, n)
    assert notes.blocks == 405 and 1 < notes.checked_blocks <= 405
    square = a.reshape(n, n)
    assert np.array_equal(np.asarray(d).reshape(n, n), 2 * (square @ square))
    with pytest.raises(cuda.KernelError, match="limit of 1 seconds") as caught, cuda.sanitize(limit=1):
        cuda.compile(FOREVER).forever[1, 1](np.zeros(1, np.int32))
    assert caught.value.kind == "timeout"
    with cuda.sanitize() as notes:
        mod.twice[n * n // 64, 64](c, d, n)
    assert notes.checked_blocks == notes.blocks == 400
