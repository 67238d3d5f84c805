"""Blocks over the cores of the machine: the same results and messages, and what must stay on one."""
import os
import sys
import threading

import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import interrupted, mod as module  # noqa: F401
from laptop_cuda.programs import run as run_program
from laptop_cuda.regions import loops_of
from laptop_cuda.sources import files_of

SOURCE = """
__device__ float worked(float v) { for (int k = 0; k < 300; ++k) v = v * 0.99f + 1.5f; return v; }
__global__ void fill(float* x, int n) {
    x[blockIdx.x * blockDim.x + threadIdx.x] = worked(threadIdx.x) + blockIdx.x + gridDim.x;
}
__global__ void turned(float* x, int n) {
    extern __shared__ float all[];
    float kept = worked(blockIdx.x + threadIdx.x);
    for (int k = 0; k < blockIdx.x / 40; k += n) {           // blocks 0 to 39 have no s
        __shared__ float s[256];
        s[threadIdx.x] = all[threadIdx.x] = kept;
        __syncthreads();
        kept += s[255 - threadIdx.x] + all[threadIdx.x ^ 1];
        __syncthreads();
    }
    x[blockIdx.x * 256 + threadIdx.x] = kept;
}
__global__ void tickets(float* x, int n) {
    x[blockIdx.x * 256 + threadIdx.x] = worked(threadIdx.x) + (threadIdx.x ? 0 : atomicAdd(&x[gridDim.x * 256], 1.0f));
}
__global__ void crash(float* x, int n) {
    x[blockIdx.x * 256 + threadIdx.x] = worked(n);
    if (blockIdx.x >= n) x[(1l << 44) + threadIdx.x] = 1;
}
"""
BLOCKS = 1500


def launched(module, name: str, n: int = 30) -> np.ndarray:
    x = np.zeros(BLOCKS * 256 + 1, np.float32)
    getattr(module, name)[BLOCKS, 256, 1024](x, n)
    return x


def most_threads(work) -> int:
    """How many threads this process had beside those of before, while it did some work."""
    def count() -> int:
        return len(os.listdir("/proc/self/task"))
    most, over, before = 0, threading.Event(), count() + 1

    def watch() -> None:
        nonlocal most
        while not over.wait(0.0005):
            most = max(most, count() - before)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        over.set()
        watcher.join()
    return most


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fill", "turned"])
def test_blocks_over_cores_give_what_fibers_on_one_give(module, name, monkeypatch):
    monkeypatch.setenv("LAPTOP_CUDA_CORES", "3")
    over_cores = [launched(module, name).tobytes() for _ in range(5)]
    monkeypatch.setenv("LAPTOP_CUDA_CORES", "1")
    alone = launched(module, name)
    monkeypatch.setenv("LAPTOP_CUDA_FIBERS", "1")
    assert (alone.any() and {*over_cores, alone.tobytes(), launched(module, name).tobytes()}
            == {alone.tobytes()})


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
@pytest.mark.parametrize("name, cores, expected", [("fill", "3", 2), ("fill", "1", 0), ("tickets", "3", 0)])
def test_only_blocks_that_are_apart_run_on_as_many_cores_as_said(module, name, cores, expected, monkeypatch):
    monkeypatch.setenv("LAPTOP_CUDA_CORES", cores)
    assert most_threads(lambda: [launched(module, name) for _ in range(3)]) == expected


@pytest.mark.slow
def test_a_crash_on_another_core_names_line_and_first_block(module, monkeypatch):
    monkeypatch.setenv("LAPTOP_CUDA_CORES", "3")
    line = SOURCE[:SOURCE.index("1l << 44")].count("\n") + 1
    for first in (0, 7, 700, BLOCKS - 1):
        with pytest.raises(cuda.KernelError) as caught:
            launched(module, "crash", first)
        error = caught.value
        assert ((error.kind, error.line, error.block, error.thread)
                == ("out of bounds", line, (first, 0, 0), None))
    assert launched(module, "crash", BLOCKS).any()               # the next launch is well


@pytest.mark.slow
def test_the_stop_button_ends_all_cores_and_a_fork_is_well():
    script = """
import os, sys, numpy as np, laptop_cuda as cuda
mod = cuda.compile('''__global__ void k(float* x, int from) {
    float v = x[blockIdx.x];
    for (int k = 0; k < 3000; ++k) v = v * 0.99f + 1.5f;
    if (blockIdx.x >= from) while (x[0] < 1e9f) x[1] = x[1] * 0.5f + x[2];
    x[blockIdx.x] = v;
}''')
x = np.zeros(2000, np.float32)
mod.k[2000, 1](x, 2000)
print('ready', flush=True)
try:
    mod.k[2000, 1](x, 700)
except KeyboardInterrupt:
    print('interrupted', flush=True)
mod.k[2000, 1](x, 2000)
child = os.fork()
if child == 0:
    mod.k[2000, 1](x, 2000)
    os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(os.listdir('/proc/self/task')), flush=True)
"""
    said, _ = interrupted(script, LAPTOP_CUDA_CORES="3", LAPTOP_CUDA_HINT="0", OMP_NUM_THREADS="1",
                          OPENBLAS_NUM_THREADS="1")      # a hint waits in a thread
    assert said == "5 1\n"


@pytest.mark.slow
def test_programs_print_the_same_on_one_core(tmp_path, monkeypatch):
    (tmp_path / "prog.cu").write_text("#include <cstdio>\n" + SOURCE + """
    int main() {
        float* x; cudaMallocManaged(&x, 1500 * 256 * sizeof *x);
        turned<<<1500, 256, 1024>>>(x, 30);
        unsigned long sum = 0;
        for (int i = 0; i < 1500 * 256; ++i) sum = sum * 31 + ((unsigned*)x)[i];
        printf("%lx", sum);
    }""")
    printed = set()
    for cores in ("3", "1"):
        monkeypatch.setenv("LAPTOP_CUDA_CORES", cores)
        printed.add(run_program(tmp_path / "prog.cu", mode="plain").stdout)
    assert len(printed) == 1 and printed.pop() > "1"


HEAD = """
struct Pair { float a, b; };
__device__ int counter;
__constant__ float weights[4];
__device__ float block_of(float v) { return v + blockIdx.x; }
__device__ Pair operator+(Pair a, Pair b) { return {a.a + b.a, a.b + b.b}; }
__device__ float twice(float v) { return 2 * v; }
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
#define ADD(p, v) atomicAdd(p, v)
"""
APART = ["x[INDEX] = twice(weights[1]);", "float v = x[INDEX]; __syncthreads(); x[INDEX + 1] = v;"]
TOGETHER = ["atomicAdd(&x[0], 1.0f);", "ADD(x, 1.0f);", "*(volatile float*)x = 1;",
            "x[0] = 1; __threadfence();", "counter = 1;", "curand_init(1, 2, 3, (curandState*)x);",
            "x[0] = block_of(1);", "x[0] = __ldcg(x + 1);"]


@pytest.mark.parametrize("body", APART + TOGETHER)
def test_blocks_that_may_talk_stay_on_one_core(body):
    loops = loops_of(files_of(f"{HEAD}__global__ void k(float* x) {{ {body} }}", None), "k.cu")
    assert ("LAPTOP_IF_LOOPS(false)" in "".join(loops.values())) == (body in TOGETHER) and len(loops) == 1


@pytest.mark.parametrize("more", [
    "struct Odd { int n; }; __device__ Odd operator*(Odd a, Odd b) { return {a.n + (int)blockIdx.x}; }",
    "struct Counted { int* n; __device__ void add() { atomicAdd(n, 1); } };",
    "struct Late { int n; __device__ void go(); }; __device__ void Late::go() { n = blockIdx.x; }",
    "typedef volatile float Seen;"])
def test_an_operator_a_member_or_a_type_that_reaches_other_blocks_keeps_them_on_one_core(more):
    loops = loops_of(files_of(f"{HEAD}{more} __global__ void k(float* x) {{ x[INDEX] = 1; }}", None), "k.cu")
    assert "LAPTOP_IF_LOOPS(false)" in "".join(loops.values())
