"""Kernels as loops over a block's threads (`regions/`): the results of fibers to the bit, or fibers."""
from pathlib import Path

import numpy as np
import pytest

import laptop_cuda as cuda
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
# name: the body of a kernel, with blocks of 8 x 4 x 2 threads; `tid` is declared where it is asked for
LOOPS = {
    "tiles": """
        __shared__ float s[TILE], t[TILE];
        float sum = 0, kept[3] = {1, 2, 3};
        const int i = threadIdx.x, tid = (threadIdx.z * 4 + threadIdx.y) * 8 + i;
        for (int k = 0; k < n; k += TILE) {
            if (tid < 8) s[i] = y[k + i], t[i] = twice(y[i]);
            __syncthreads();
            #pragma unroll
            for (int j = 0; j < TILE; ++j) sum += s[j] * t[i] + SQUARE(kept[j % 3]);
            kept[k % 3] += sum;
            __syncthreads();
        }
        x[tid] = sum + kept[1];""",
    "a tree": """
        extern __shared__ float s[];
        int tid = threadIdx.x + threadIdx.y * blockDim.x + threadIdx.z * blockDim.x * blockDim.y;
        s[tid] = y[tid] * SQUARE(tid);
        __syncthreads();
        for (int half = blockDim.x * blockDim.y * blockDim.z / 2; half > 0; half >>= 1) {
            if (tid < half) s[tid] += s[tid + half];
            __syncthreads();
        }
        if (tid > 3) return;
        x[tid] = s[0] + tid;""",
    "a race": """
        __shared__ float s[64];
        s[tid] = tid;
        x[tid] = s[63 - tid];
        x[(tid + 7) % 64] += s[(tid + 1) % 64];
        __syncthreads();
        x[tid] += x[(tid + 1) % 64];""",
    "a pointer across a barrier": """
        float two[2] = {1, 2}, other = tid;
        float *p = tid % 2 ? two : &other;
        __syncthreads();
        *p += 5;
        __syncthreads();
        x[tid] = two[0] + *p;""",
    "a changed parameter": """
        y += tid; n -= threadIdx.y;
        __syncthreads();
        for (int r = 0; r < ROUNDS; ++r) { x[tid] += *y * n; if (r == 1) continue; x[tid] += 1; }""",
    "narrow copies": """
        byte += 50 * tid; on = tid;
        __syncthreads();
        x[tid] = byte + 1000 * on;""",
    "tickets": """
        float ticket = atomicAdd(&x[64], 1.0f);
        if (n > 3) { __syncthreads(); } else { x[0] = 1; __syncthreads(); }
        x[tid] = ticket;""",
    "many tickets": """
        for (int k = 0; k < 100; ++k) atomicAdd(&x[tid], y[k]);""",
    "no barrier": """
        for (int j = 0; j < n; ++j) { if (j > tid) break; if (j == 3) return; x[tid] += y[j]; }""",
    "barriers of cooperative groups": """
        cg::thread_block cta = cg::this_thread_block();
        __shared__ float s[64];
        auto same = cooperative_groups::this_thread_block();
        s[tid] = y[tid];
        cg::sync(cta);
        for (int k = 0; k < n; ++k) {
            x[tid] += s[(tid + k) % 64];
            same.sync();
            s[63 - tid] += x[tid] * y[k];
            cooperative_groups::sync(cta);
        }""",
    "random numbers": """
        curandState state;
        curand_init(n, tid, 3, &state);
        __syncthreads();
        x[tid] += curand_normal(&state) + umin(tid, n) + curand_uniform(&state);""",
    "a shuffle": "x[threadIdx.x] = __shfl_xor_sync(~0u, y[threadIdx.x], 1);",
    "a sum over lanes, then over warps": """
        __shared__ float of_warp[32];
        float sum = 0, most = y[0];
        int lane = tid % 32;
        for (int k = 0; k < n; k += 8) {
            float v = y[k + tid % 8];
            sum += v;
            #pragma unroll
            for (int d = 16; d > 0; d >>= 1)
                sum += __shfl_down_sync(ALL, sum, d);
            most = fmaxf(most, __shfl_xor_sync(EVERYBODY, sum + v, 3, 8));
            if (lane == 0) of_warp[tid / 32] = sum;
            __syncthreads();
            float other = __shfl_sync(ALL, of_warp[lane % 2], lane / 2, 16);
            sum += other * __shfl_up_sync(ALL, v, 2) + __shfl_xor(other, 4) - __shfl(v, lane + 1, 8);
            __syncwarp();
            __syncthreads();
        }
        x[tid] = sum + most;""",
    "vectors": """
        float4 four = make_float4(tid, n, 1, 2), pairs[2] = {four, make_float4(n, tid, 3, 4)};
        __syncthreads();
        float4 other = __shfl_xor_sync(ALL, pairs[tid % 2], 1);
        four.x += other.y;
        __syncthreads();
        x[tid] = four.x * other.w + pairs[1].z;""",
    "lanes that race": """
        int next = (tid + 1) % 64, mine[2] = {tid, n};
        x[tid] = tid;
        mine[0] += __shfl_sync(ALL, mine[1] + (int)x[next], mine[0] % 5); x[next] += mine[0];
        __syncwarp(0xffffffff);
        x[tid] += x[(tid + 33) % 64];
        { __syncwarp(); x[next] *= 2; }
        if (n > 3) { __syncwarp(); x[tid] += x[next]; } else x[tid] = 1;
        if (tid > 3) return;
        x[tid] += 1;""",
}
TO_M = "for (int k = 0; k < m; ++k) { x[k] = k; __syncthreads(); }"
FIBERS = {
    "a bound of the thread's own": TO_M.replace("k < m", "k < (int)threadIdx.x % 1 + 2"),
    "a bound that grows": "int m = 2; grow(m); m -= threadIdx.x; " + TO_M,
    "a bound that a template changes": "int m = 2; raise<1>(m); " + TO_M,
    "a bound behind a reference": "int m = 2; int& r = m; r = 3; " + TO_M,
    "a way out": "for (int k = 0; k < 3; ++k) { if (k == n) break; x[k] = k; __syncthreads(); }",
    "a return before a barrier": "if (n < 0) return; x[0] = 1; __syncthreads(); x[1] = 2;",
    "a changed member": "pair.x += threadIdx.x; __syncthreads(); x[threadIdx.x] = pair.x + 1;",
    "a shuffle of some lanes": "if (threadIdx.y + threadIdx.z == 0) x[0] += __shfl_xor_sync(0xff, y[threadIdx.x], 1);",
    "a shuffle under half a mask": "x[threadIdx.x] = __shfl_sync(HALF * 65537, y[threadIdx.x], 1);",
    "a shuffle beside memory": "float v = y[0]; v = x[7] + __shfl_sync(ALL, v, 1); x[threadIdx.x] = v + 1;",
    "a shuffle beside a shared number": """
        __shared__ float s; s = n; __syncthreads();
        x[threadIdx.x] = __shfl_sync(ALL, y[0], 1) + s;""",
    "a shuffle that may not be": "float v = n > 3 ? __shfl_sync(ALL, y[0], 1) : 0; x[threadIdx.x] = v;",
    "a shuffle of a shuffle": "x[threadIdx.x] = __shfl_sync(ALL, __shfl_sync(ALL, y[1], 1), 2);",
    "a shuffle that counts": "int i = 2; x[threadIdx.x] = __shfl_sync(ALL, ++i, 1);",
    "a shuffle in a macro": "float v = LARGER(y[1], __shfl_xor_sync(ALL, y[2], 1)); x[threadIdx.x] = v;",
    "a lane from memory": "x[threadIdx.x] = __shfl_sync(ALL, y[threadIdx.x], (int)x[0]);",
    "a shuffle of a pair": "float v = __shfl_sync(ALL, y[0], 1), w = __shfl_sync(ALL, v, 1); x[0] = w;",
    "a turn that some skip": "for (int i = threadIdx.y; i < 4; i += 1) { __syncwarp(); x[i] = i; }",
    "a helper that knows its thread": "x[mine()] = 1;",
    "a macro with a barrier": "x[threadIdx.x] = 1; SYNC; x[threadIdx.x] += 1;",
    "a group that is asked": """
        auto cta = cg::this_thread_block(); x[cta.thread_rank()] = 1; cta.sync(); x[0] += cta.size();""",
    "a group in a helper": "auto cta = cg::this_thread_block(); together(cta); x[threadIdx.x] = 1;",
    "a loop that waits": "int k = 0; while (atomicAdd(&x[0], 1.0f) < 5) ++k; x[1] = k + 1;",
    "an endless loop that waits": "for (;;) if (atomicAdd(&x[0], 1.0f) > 5) break;",
    "a lock": "int* lock = (int*)&x[70]; while (atomicCAS(lock, 0, 1)) {} x[0] += 1; atomicExch(lock, 0);",
    "a lambda": "auto f = [&](int i) { x[i] = 1; }; f(threadIdx.x);",
    "a while": "int k = 0; while (k < 3) { x[k] = k; ++k; __syncthreads(); }",
    "a reference across a barrier": "float v = 1; float& r = v; __syncthreads(); r = 2; x[threadIdx.x] = v;",
    "shared memory of a branch": """
        if (threadIdx.x < 2) { __shared__ float s[2]; s[threadIdx.x] = 1; x[threadIdx.x] = s[0]; }""",
    "what is printed": 'if (threadIdx.x == 1) printf("%d", n); x[0] = 1;',
}


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
# name: the end of a kernel
PACKS = {
    "a product in an if that some threads take": """
        float best = -1e30f;
        for (int j = 0; j < TILE; ++j) {
            const int key = (tid + j) % 13;
            if (key < 9 && tid != 5) {
                float dot = 0;
                for (int c = 0; c < n; ++c) dot += s[tid % 7 + c] * s[AT(key, 1) + c % TILE];
                best = fmaxf(best, dot * key);
            }
        }
        __syncthreads();
        x[tid] = best;""",
    "a sum that outlives its region": """
        float sum = tid, kept[3] = {1, 2, 3}, other = 0; int turns = 0;
        for (int r = 0; r < 3; ++r) {
            for (int j = 0; j < 2; ++j)
                for (int c = 0; c < n; ++c) sum += s[(tid + c) % 64] * kept[j];
            kept[r] += sum; turns++;
            other -= turns * s[turns];
            __syncthreads();
        }
        x[tid] = sum + kept[1] + other + turns;""",
    "sums between shuffles": """
        float sum = 0, most = s[tid], part[2] = {0, 1};
        for (int t = 0; t < n; t += 8) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                float of_j = 0, unused = 3;
                if (j > 0) { for (int c = 0; c < 8; ++c) of_j += s[c + t] * s[(tid ^ j) + c]; }
                else for (int c = 0; c < 4; ++c) { int from = c + tid % 4; of_j = of_j + s[from]; }
                part[j] = part[j] * 0.5f + of_j + unused;
            }
            sum += __shfl_xor_sync(0xffffffffu, part[1], 2);
            most = fmaxf(most, __shfl_down_sync(0xffffffffu, sum, 1));
        }
        x[tid] = sum + most + part[0];""",
    "whole numbers, blocks and ways of their own": """
        unsigned hash = tid; long wide = 0;
        for (int j = 0; j < 3; ++j) {
            {
                for (unsigned c = 0; c < 5; c += 2) hash = hash * 31 + (unsigned)(s[c + j] * 100);
                int k = 0;
                while (k < tid) { k += 3; if (k == 9) break; wide += k; }
            }
            if (tid > 3) if (hash % 2) for (int c = 0; c < n; c++) wide += (long)s[c] + c;
        }
        __syncthreads();
        x[tid] = hash % 1000 + wide;""",
}
# what another thread might see, or what a text does not show
ALONE = {
    "a store": "x[tid] = sum;", "a store through a pointer": "float* p = x; *p = sum; sum += *p;",
    "a store into a pointer's element": "float* p = x + tid; p[1] = sum;",
    "a store beside a sum": "s[tid] += sum;", "a counter in memory": "x[tid]++;",
    "a counter before": "++x[tid];", "a counter in shared memory": "int* p = (int*)s; ++p[tid];",
    "a shift": "((int*)x)[0] <<= 2;", "an atomic": "atomicAdd(&x[0], sum);", "a helper": "sum += twice(sum);",
    "a macro that counts": "int i = 0; NEXT(i); sum += i;", "an address": "float* p = &sum; sum += p[0];",
    "a number of a loop in a macro": "for (int c = 0; c < 2; ++c) { x[AT(0, c)] = 1; }",
    "a return": "if (tid > 60) return;", "two results of one call": "sincosf(sum, x, x + 1);",
    "a volatile number": "volatile float v = sum; sum += v;",
}
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
