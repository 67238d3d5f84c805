"""Kernels as loops over a block's threads (`regions/`): the results of fibers to the bit, or fibers."""
from pathlib import Path

import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import data_of
from laptop_cuda.programs import run as run_program
from laptop_cuda.regions import loops_of
HEAD = """
#include <cooperative_groups.h>
#include <curand_kernel.h>
namespace cg = cooperative_groups;
#define TILE 8
#define SQUARE(x) ((x) * (x))
#define SYNC __syncthreads()
#define ALL 0xffffffffu
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
const int ROUNDS = 3;
constexpr unsigned EVERYBODY = 0xFFFFFFFF, HALF = 0xffff;
__device__ float twice(float x) { return 2 * x; }
__device__ int mine() { return threadIdx.x; }
__device__ void grow(int& n) { n += threadIdx.x; }
template <int K> __device__ void raise(int& n) { n += K; }
__device__ void together(cg::thread_block all) { all.sync(); }
"""
TAKES = "(float* x, const float* y, int n, unsigned char byte = 0, bool on = 0, int2 pair = {})"
TID = "int tid = threadIdx.x + 8 * threadIdx.y + 32 * threadIdx.z;"
LOOPS, FIBERS, PACKS, ALONE = data_of("regions.toml").values()       # name: a body, or the end of one


@pytest.fixture(scope="module")
def module():
    bodies = [f"{TID} {body}" if "tid" in body and " tid = " not in body else body
              for body in (*LOOPS.values(), *FIBERS.values())]
    return cuda.compile(HEAD + "".join(f"__global__ void k{i}{TAKES} {{ {body} }}\n"
                                       for i, body in enumerate(bodies)))


def with_loops(module) -> list[str]:
    """The kernels that can run as loops."""
    loops = loops_of(module._files, module.name)
    return [kernel.name for kernel in module._texts if id(kernel.function) in loops]


def run(module, number: int, block=(8, 4, 2)) -> np.ndarray:
    x, y = np.zeros(80, np.float32), np.random.default_rng(number).standard_normal(200).astype(np.float32)
    getattr(module, f"k{number}")[3, block, 1024](x, y, 24, 0, 0, (3, 4))
    return x


@pytest.mark.parametrize("name", LOOPS)
def test_loops_over_threads_give_what_fibers_give(module, name, monkeypatch):
    number = list(LOOPS).index(name)
    assert f"k{number}" in with_loops(module)
    loops = run(module, number), run(module, number, (8, 5, 1))      # the second warp lacks lanes
    monkeypatch.setenv("LAPTOP_CUDA_FIBERS", "1")
    fibers = run(module, number), run(module, number, (8, 5, 1))
    assert loops[0].any() and [x.tobytes() for x in loops] == [x.tobytes() for x in fibers]


@pytest.mark.parametrize("name", FIBERS)
def test_what_threads_may_do_differently_stays_with_fibers(module, name, capsys):
    number = len(LOOPS) + list(FIBERS).index(name)
    assert f"k{number}" not in with_loops(module)
    assert run(module, number).any()


def test_a_template_in_a_namespace():
    module = cuda.compile("""namespace a { namespace b {
        template <class T, int N = 4> __global__ void fill(T* x, T v) {
            __shared__ T s[N];
            T kept = v + threadIdx.x;
            s[threadIdx.x] = kept;
            __syncthreads();
            x[threadIdx.x] = s[N - 1 - threadIdx.x] + kept;
        } } }""")
    x = np.zeros(4, np.int32)
    module["a::b::fill<int>"][1, 4](x, 10)
    assert x.tolist() == [23] * 4
    assert with_loops(module) == ["a::b::fill"]


@pytest.mark.parametrize("body", ["x[0] = missing;", "for (int i = 0; i < 3; ++i) x[0] = missing"])
def test_a_source_that_does_not_compile_says_so_once(body):
    with pytest.raises(cuda.CompileError) as caught:
        cuda.compile(f"__global__ void f(float* x) {{\n    {body}\n}}")
    assert str(caught.value).count("missing") <= 3 and "laptop_" not in str(caught.value)


CRASHES = [("if (threadIdx.x == 5) x[far] = 2;", "out of bounds",
            "names the thread, the array and the element: this"),
           ("x[threadIdx.x] = 7 / (int)(threadIdx.x - 5);", "division by zero",
            "names the thread: this one ran")]


@pytest.mark.parametrize("statement, kind, next_step", CRASHES, ids=[case[1] for case in CRASHES])
def test_a_crash_in_a_loop_over_threads_names_line_and_block_and_what_to_do_next(statement, kind, next_step,
                                                                                 monkeypatch):
    module = cuda.compile("__global__ void f(float* x, long far) {\n"
                          f"    x[threadIdx.x] = 1;\n    if (blockIdx.y == 2) {{ {statement} }}\n}}")
    def crash() -> cuda.KernelError:
        with pytest.raises(cuda.KernelError) as caught:
            module.f[(2, 3), 32](np.zeros(32, np.float32), 1 << 45)
        assert (caught.value.kind, caught.value.line, caught.value.block) == (kind, 3, (0, 2, 0))
        return caught.value
    error = crash()
    assert (error.thread is None and f"line 3, block (0, 2)\n     3 |     if (" in str(error)
            and next_step in str(error))
    monkeypatch.setenv("LAPTOP_CUDA_FIBERS", "1")
    error = crash()
    assert (error.thread == (5, 0, 0) and "block (0, 2), thread 5" in str(error)
            and "names the thread" not in str(error))


HEADER = """
template <class T> __device__ T half_of(T v) { return v / 2; }
template <class T, int N> __global__ void turned(const T* x, T* y, int n) {
    __shared__ T s[N];
    s[threadIdx.x] = half_of(x[threadIdx.x]);
    __syncthreads();
    y[blockIdx.x * N + threadIdx.x] += s[N - 1 - threadIdx.x] * n;
}
"""
PROGRAM = """
#include "turned.cuh"
#include <cstdio>
#include <cuda_runtime.h>
namespace late { __global__ void add(float* y, int n, float v = 1); }
__global__ void scale(float* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] *= 1.1f;
}
template <class T> __global__ void chosen(T* y) { y[threadIdx.x] += 1; }
template <> __global__ void chosen<float>(float* y) { if (threadIdx.x > 5) y[threadIdx.x] += 2; }
__global__ void never(float* y, int n) {
    if (n < 0) return;
    __syncthreads();
    y[blockIdx.x * blockDim.x + threadIdx.x] *= n;
}
static void (*table[])(float*, int) = {scale, never, scale};
int main() {
    float x[64], *dx, *dy, y[128];
    for (int i = 0; i < 64; ++i) x[i] = 0.1f * i;
    cudaMalloc(&dx, sizeof x), cudaMalloc(&dy, sizeof y);
    cudaMemcpy(dx, x, sizeof x, cudaMemcpyHostToDevice), cudaMemset(dy, 0, sizeof y);
    turned<float, 64><<<2, 64>>>(dx, dy, 3);
    for (auto f : table) f<<<2, 32>>>(dy, 128);
    chosen<<<1, 64>>>(dy), chosen<<<1, 64>>>((unsigned*)dy + 64);
    late::add<<<2, 64>>>(dy, 100, 0.5f);
    int n = 128; void* args[] = {&dy, &n};
    cudaLaunchKernel((void*)scale, dim3(2), dim3(64), args, 0, 0);
    cudaMemcpy(y, dy, sizeof y, cudaMemcpyDeviceToHost);
    for (float v : y) printf("%a ", v);
    return cudaGetLastError();
}
namespace late { __global__ void add(float* y, int n, float v) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += v; CRASH } }
"""


def program(folder, crash: str = "") -> Path:
    (folder / "turned.cuh").write_text(HEADER)
    (folder / "prog.cu").write_text(PROGRAM.replace("CRASH", crash))
    return folder / "prog.cu"


def test_programs_print_with_loops_what_they_print_with_fibers(tmp_path, monkeypatch):
    loops = run_program(program(tmp_path), mode="plain")
    monkeypatch.setenv("LAPTOP_CUDA_FIBERS", "1")
    fibers = run_program(tmp_path / "prog.cu", mode="plain")
    assert (loops.status == fibers.status == 0 and len(loops.stdout.split()) == 128
            and loops.stdout == fibers.stdout)
    checked = run_program(tmp_path / "prog.cu")
    assert checked.stdout == loops.stdout and not checked.errors


@pytest.mark.slow
def test_a_crash_of_a_program_in_a_loop_over_threads_names_line_and_block(tmp_path):
    ran = run_program(program(tmp_path, "if (i == 70) ((volatile float*)y)[1l << 45] = 1;"), mode="plain")
    last = PROGRAM.rstrip("\n").count("\n") + 1
    assert ([(e["kind"], e["line"], e["block"], e["thread"]) for e in ran.errors]
            == [("out of bounds", last, [1, 0, 0], None)])


def test_a_program_that_the_loops_cannot_hold_runs_with_fibers(tmp_path):
    (tmp_path / "prog.cu").write_text("""
        #include <cstdio>
        struct Large { float v[200]; };
        template <class T> __global__ void k(T* x) { T v = x[threadIdx.x]; __syncthreads(); x[threadIdx.x + 1] = v; }
        int main() { Large* x; cudaMallocManaged(&x, 9 * sizeof(Large)); x->v[7] = 5; k<<<1, 8>>>(x);
                     cudaDeviceSynchronize(); printf("%g", x[1].v[7]); }""")
    assert run_program(tmp_path / "prog.cu", mode="plain").stdout == "5"


ATOMICS = """
__global__ void many(int* x) {
    for (int i = 0; i < 300; ++i) atomicAdd(x, 1);
    __syncthreads();
    x[1] = x[0];
}
__global__ void waits(int* x) {
    if (threadIdx.x == 1) atomicExch(x, 5);
    if (threadIdx.x == 0) { while (atomicAdd(x, 0) == 0); x[1] = x[0]; }
}
"""


def test_a_block_of_many_atomics_is_not_cut_short_and_one_that_waits_gets_an_answer():
    mod = cuda.compile(ATOMICS)
    x = np.zeros(2, np.int32)
    mod.many[2, 64](x)
    assert x.tolist() == [2 * 64 * 300] * 2
    x[:] = 0
    mod.waits[1, 32](x)
    assert x.tolist() == [5, 5]


# Threads that add up side by side (`regions/packs.py`).
PACK_HEAD = """
#define TILE 8
#define AT(i, j) ((i) * TILE + (j))
#define NEXT(i) (i += 1)
__device__ float twice(float x) { return 2 * x; }
"""
INDEX = """
        int tid = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        __shared__ float s[200];
        for (int i = tid; i < 200; i += blockDim.x * blockDim.y * blockDim.z) s[i] = y[i];
        __syncthreads();
"""
SUM = """
        float sum = 0;
        for (int j = 0; j < 2; ++j) for (int c = 0; c < n; ++c) sum += s[c + j];
"""


def kernel(number: int, body: str) -> str:
    return f"__global__ void k{number}{TAKES} {{ {INDEX} {body} }}\n"


@pytest.fixture(scope="module")
def packed():
    return cuda.compile(PACK_HEAD + "".join(kernel(*each) for each in enumerate(PACKS.values())))


def in_packs(module) -> list[bool]:
    loops = loops_of(module._files, module.name)
    return ["LAPTOP_EACH_PACK" in loops[id(kernel.function)] for kernel in module._texts]


@pytest.mark.parametrize("name", PACKS)
def test_packs_give_what_fibers_give(packed, name, monkeypatch):
    number = list(PACKS).index(name)
    assert in_packs(packed)[number]
    blocks = (64, 1, 1), (8, 4, 2), (7, 5, 2), (3, 1, 1), (6, 7, 1)
    packs = [run(packed, number, block) for block in blocks]
    monkeypatch.setenv("LAPTOP_CUDA_FIBERS", "1")
    fibers = [run(packed, number, block) for block in blocks]
    assert all(x.any() for x in packs) and [x.tobytes() for x in packs] == [x.tobytes() for x in fibers]


def test_what_others_may_see_is_done_thread_by_thread():
    bodies = [f"{SUM} __syncthreads(); x[tid] = sum;", *(f"{SUM} {more}" for more in ALONE.values())]
    module = cuda.compile(PACK_HEAD + "".join(map(kernel, range(len(bodies)), bodies)))
    found = dict(zip(["nothing else", *ALONE], in_packs(module)))
    assert [name for name, packed in found.items() if packed] == ["nothing else"]
