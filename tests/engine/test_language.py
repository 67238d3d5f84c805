"""The language: what CUDA C++ the engine takes, and that it names what it does not take."""
import math
from typing import Callable

import pytest
import torch
from engine_kit import ORDERS, checked, fault, mod  # noqa: F401
from test_clean import Run, blank, check, listing, randn

import laptop_cuda as cuda

SOURCE = r"""
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math_constants.h>
#include <stdint.h>
#include <stdio.h>
#include <float.h>
#include <assert.h>

__global__ void where_am_i(int* out) {
    int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
}

typedef float (*Op)(float, float);
__device__ float plus_op(float a, float b) { return a + b; }
__device__ float times_op(float a, float b) { return a * b; }
__device__ Op table[2] = {plus_op, times_op};
__global__ void function_pointers(const float* x, float* y) {
    Op local = threadIdx.x < 16 ? plus_op : times_op;
    y[threadIdx.x] = local(x[threadIdx.x], 3.0f) + table[threadIdx.x % 2](x[threadIdx.x], 2.0f);
}
__device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__global__ void recursion(int* y) { y[threadIdx.x] = fibonacci(threadIdx.x); }
template <typename F> __device__ float apply_twice(F f, float x) { return f(f(x)); }
__global__ void lambdas(const float* x, float* y, float a) {
    auto scale = [a](float v) { return a * v; };
    auto shift = [=](float v) -> float { return v + a; };
    y[threadIdx.x] = apply_twice(scale, x[threadIdx.x]) + apply_twice(shift, x[threadIdx.x]);
}
struct Affine {
    float a, b;
    __host__ __device__ __forceinline__ float operator()(float x) const { return a * x + b; }
};
__global__ void struct_in_registers(const float* x, float* y, float a) {
    Affine f{a, 1.0f};
    y[threadIdx.x] = f(x[threadIdx.x]);
}
__global__ void static_and_dynamic(const float* x, float* y) {
    __shared__ int order[32], first;
    extern __shared__ unsigned char raw[];
    float* values = reinterpret_cast<float*>(raw);
    double* wide = (double*)(values + 32);
    int t = threadIdx.x;
    if (t == 0) first = 5;
    order[t] = 31 - t;
    values[t] = x[t];
    wide[t] = t;
    __syncthreads();
    y[t] = values[order[t]] + first + (float)wide[t];
}
template <typename T> __global__ void shared_of_type(const T* x, T* y) {
    __shared__ T s[32];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[31 - threadIdx.x];
}
__global__ void pointers_in_shared(const float* a, const float* b, float* y) {
    __shared__ const float* source;
    if (threadIdx.x == 0) source = blockIdx.x ? b : a;
    __syncthreads();
    y[blockIdx.x * 32 + threadIdx.x] = source[threadIdx.x];
}
__global__ void goto_and_do(int* y) {
    int t = threadIdx.x, n = 0;
    do {
        if (n == t) goto done;
        ++n;
    } while (n < 100);
done:
    y[t] = n;
}
__global__ void atomics_int(int* a) {
    int t = threadIdx.x;
    atomicAdd(&a[0], t); atomicSub(&a[1], t); atomicMax(&a[2], t); atomicMin(&a[3], -t);
    atomicAnd(&a[4], ~(1 << (t % 8))); atomicOr(&a[5], 1 << t); atomicXor(&a[6], t);
    if (t == 7) atomicExch(&a[7], 99);
    atomicCAS(&a[8], t, t + 1);
}
__global__ void atomics_other(unsigned* u, float* f, double* d, unsigned long long* l) {
    unsigned t = threadIdx.x;
    atomicAdd(&u[0], t); atomicMax(&u[1], t); atomicMin(&u[2], t); atomicInc(&u[3], 20u); atomicExch(&u[4], 5u);
    atomicAdd(f, 0.5f); atomicExch(f + 1, 2.5f); atomicAdd(d, 0.25); atomicAdd(l, 1ull << 33);
}
__device__ float atomic_max_float(float* p, float v) {
    int* bits = (int*)p;
    int old = *bits, seen;
    do {
        seen = old;
        old = atomicCAS(bits, seen, __float_as_int(fmaxf(v, __int_as_float(seen))));
    } while (seen != old);
    return __int_as_float(old);
}
__global__ void cas_loop(const float* x, float* y) { atomic_max_float(y, x[threadIdx.x]); }
__global__ void shuffles(const int* x, int* y) {
    int t = threadIdx.x, v = x[t];
    y[t] = __shfl_sync(0xffffffff, v, 5);
    y[32 + t] = __shfl_up_sync(0xffffffff, v, 3);
    y[64 + t] = __shfl_down_sync(0xffffffff, v, 3);
    y[96 + t] = __shfl_xor_sync(0xffffffff, v, 7);
    y[128 + t] = __shfl_sync(0xffffffff, v, 1, 8);
    y[160 + t] = __shfl_down_sync(0xffffffff, v, 1, 4);
}
__global__ void shuffle_types(const double* d, const long long* l, const half* h, double* od, long long* ol, half* oh) {
    int t = threadIdx.x;
    od[t] = __shfl_xor_sync(~0u, d[t], 1);
    ol[t] = __shfl_xor_sync(~0u, l[t], 2);
    oh[t] = __shfl_xor_sync(~0u, h[t], 4);
}
__global__ void votes(const int* x, unsigned* y) {
    int t = threadIdx.x, v = x[t];
    unsigned ballot = __ballot_sync(0xffffffff, v > 10);
    int any = __any_sync(0xffffffff, v == 31), all = __all_sync(0xffffffff, v < 31);
    if (t == 0) y[0] = ballot, y[1] = any, y[2] = all, y[3] = __popc(ballot), y[4] = __ffs(ballot);
    if (t % 2) { unsigned active = __activemask(); if (t == 1) y[5] = active; }
    unsigned same = __match_any_sync(0xffffffff, v % 4);
    if (t == 2) y[6] = same;
    int total = __reduce_add_sync(0xffffffff, v);
    if (t == 3) y[7] = total;
}
__global__ void block_votes(const int* x, int* y) {
    int t = threadIdx.x;
    int count = __syncthreads_count(x[t] > 50), any = __syncthreads_or(x[t] == 99), all = __syncthreads_and(x[t] >= 0);
    if (t == 0) y[0] = count, y[1] = any, y[2] = all;
}
__global__ void functions(const float* x, float* y) {
    float v = x[threadIdx.x];
    float* o = y + threadIdx.x * 16;
    o[0] = __expf(v); o[1] = __logf(v); o[2] = __sinf(v); o[3] = __fdividef(v, 3.0f); o[4] = rsqrtf(v);
    o[5] = __powf(v, 2.0f); o[6] = fmaf(v, v, 1.0f); o[7] = erff(v); o[8] = __frcp_rn(v); o[9] = exp2f(v);
    o[10] = max(v, 1.0f) + min(v, 2.0f); o[11] = __fsqrt_rn(v); o[12] = tanhf(v); o[13] = __saturatef(v);
    o[14] = fmodf(v, 0.3f); o[15] = norm3df(v, v, v);
}
__global__ void kinds_of_numbers(const float* x, int* y) {
    double wide = x[threadIdx.x];
    y[threadIdx.x] = isnan(x[threadIdx.x]) + 2 * isinf(wide) + 4 * isfinite(x[threadIdx.x]);
}
__global__ void bits(const unsigned* x, int* y) {
    unsigned v = x[threadIdx.x];
    int* o = y + threadIdx.x * 8;
    o[0] = __popc(v); o[1] = __clz(v); o[2] = __ffs(v); o[3] = (int)__brev(v); o[4] = __mul24(3, 4);
    o[5] = (int)__byte_perm(v, 0, 0x0123); o[6] = __float2int_rn(2.5f) + __float2int_rz(-2.7f); o[7] = (int)__umulhi(v, 1u << 16);
}
__global__ void header_constants(float* y) {
    y[0] = CUDART_INF_F; y[1] = CUDART_PI_F; y[2] = INFINITY; y[3] = -FLT_MAX; y[4] = INT_MAX; y[5] = warpSize;
}
__global__ void read_only(const float* __restrict__ x, const float4* __restrict__ v, float* __restrict__ y) {
    float4 w = __ldg(&v[threadIdx.x]);
    y[threadIdx.x] = __ldg(x + threadIdx.x) + w.y;
}
__global__ void talk(const int* x) {
    if (threadIdx.x % 16 == 3) printf("thread %d of block %d has %d and %.2f\n", threadIdx.x, blockIdx.x, x[threadIdx.x], 0.5);
}
__global__ void divergent_talk(const int* x, int* y) {
    int sum = 0;
    for (int k = 0; k < threadIdx.x % 4; ++k) sum += x[k];
    if (threadIdx.x == 9) printf("sum %d\n", sum);
    y[threadIdx.x] = sum;
}
__global__ void claims(const int* x) { assert(x[threadIdx.x] < 20); }
__global__ void add_one(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1.0f;
}
void add_two(float* x, int n) {
    dim3 grid((n + 31) / 32), block(32);
    add_one<<<grid, block>>>(x, n);
    add_one<<<grid, 32, 0, 0>>>(x, n);
    cudaDeviceSynchronize();
}
"""


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


LANES = torch.arange(32, dtype=torch.int32)


@pytest.fixture(params=["plain", "sanitized", "profiled"])
def mode(request):
    """Each test of this file runs in all three modes: the result may not depend on the mode."""
    if request.param == "plain":
        yield
    else:
        with cuda.sanitize() if request.param == "sanitized" else cuda.profile():
            yield


CASES: dict[str, Callable[[], Run]] = {}
case, launch = listing(CASES)
POSITIVE = randn(32).abs() + 0.1
INT, UINT = torch.int32, torch.uint32

launch("function_pointers", 1, 32, lambda x=randn(32): ((x, blank(32)), {
    1: torch.where(LANES < 16, x + 3, x * 3) + torch.where(LANES % 2 == 0, x + 2, x * 2)}))
launch("recursion", 1, 10, lambda: ((blank(10, like=INT),), {0: ints(0, 1, 1, 2, 3, 5, 8, 13, 21, 34)}))
launch("lambdas", 1, 32, lambda x=randn(32): ((x, blank(32), 3.0), {1: 9 * x + x + 6}))
launch("struct_in_registers", 1, 32, lambda x=randn(32): ((x, blank(32), 2.0), {1: 2 * x + 1}))
launch("static_and_dynamic", 1, 32, lambda x=randn(32): ((x, blank(32)), {1: x.flip(0) + 5 + LANES}),
       shared=32 * 12)
for name, dtype in (("float", torch.float32), ("double", torch.float64), ("half", torch.float16),
                    ("unsigned char", torch.uint8), ("long long", torch.int64)):
    launch(f"shared_of_type<{name}>", 1, 32, lambda x=torch.arange(32).to(dtype), dtype=dtype: (
        (x, blank(32, like=dtype)), {1: x.flip(0)}))
launch("pointers_in_shared", 2, 32, lambda a=randn(32), b=randn(32, seed=1): (
    (a, b, blank(64)), {2: torch.cat([a, b])}))
launch("goto_and_do", 1, 32, lambda: ((blank(32, like=INT),), {0: LANES}))
launch("atomics_other", 1, 32, lambda: (
    (torch.tensor([0, 0, 100, 0, 0], dtype=UINT), torch.zeros(2), torch.zeros(1).double(),
     torch.zeros(1, dtype=torch.uint64)),
    {0: torch.tensor([496, 31, 0, 32 % 21, 5]), 1: torch.tensor([16.0, 2.5]), 2: torch.tensor([8.0]),
     3: torch.tensor([32 << 33])}))
launch("cas_loop", 1, 64, lambda x=randn(64): ((x, torch.full((1,), -100.0)), {1: x.max()[None]}))
launch("shuffles", 1, 32, lambda: ((LANES * 10, blank(6, 32, like=INT)), {1: 10 * torch.stack([
    LANES * 0 + 5, torch.where(LANES >= 3, LANES - 3, LANES), torch.where(LANES <= 28, LANES + 3, LANES),
    LANES ^ 7, LANES // 8 * 8 + 1, torch.where(LANES % 4 < 3, LANES + 1, LANES)])}))
launch("shuffle_types", 1, 32, lambda d=randn(32).double(), wide=torch.arange(32) << 40, h=randn(32).half(): (
    (d, wide, h, blank(32, like=d.dtype), blank(32, like=wide.dtype), blank(32, like=h.dtype)),
    {3: d[LANES ^ 1], 4: wide[LANES ^ 2], 5: h[LANES ^ 4]}))
launch("votes", 1, 32, lambda: ((LANES, blank(8, like=UINT)), {
    1: torch.tensor([sum(1 << i for i in range(11, 32)), 1, 0, 21, 12, 0xAAAAAAAA, 0x44444444, 496])}))
launch("block_votes", 1, 100, lambda: ((torch.arange(100).int(), blank(3, like=INT)), {1: ints(49, 1, 1)}))
launch("functions", 1, 16, lambda x=POSITIVE[:16]: ((x, blank(16, 16)), {1: torch.stack([
    x.exp(), x.log(), x.sin(), x / 3, x.rsqrt(), x**2, x * x + 1, x.erf(), 1 / x, x.exp2(),
    x.clamp(min=1) + x.clamp(max=2), x.sqrt(), x.tanh(), x.clamp(0, 1), x.fmod(0.3), x * math.sqrt(3)], 1)}))
launch("kinds_of_numbers", 1, 3, lambda: (
    (torch.tensor([math.nan, -math.inf, 1.0]), blank(3, like=INT)), {1: ints(1, 2, 4)}))
launch("bits", 1, 1, lambda: ((torch.tensor([0x00F01234], dtype=UINT), blank(8, like=INT)), {
    1: ints(9, 8, 3, int(f"{0x00F01234:032b}"[::-1], 2), 12, 0x3412F000, 0, 0xF0)}))
launch("header_constants", 1, 1, lambda: ((blank(6),), {
    0: torch.tensor([math.inf, math.pi, math.inf, torch.finfo(torch.float32).min, 2.0**31, 32.0])}))
launch("read_only", 1, 32, lambda x=randn(32), v=randn(32, 4): ((x, v, blank(32)), {2: x + v[:, 1]}))
for grid, block in ((3, 40), ((2, 3), (8, 5)), ((2, 2, 2), (3, 4, 5)), ((1, 1, 4), (1, 1, 33))):
    @case
    def where_am_i(grid=grid, block=block):
        blocks, threads = (math.prod(side if isinstance(side, tuple) else (side,)) for side in (grid, block))
        want = torch.arange(blocks)[:, None].int() * 1000 + torch.arange(threads).int()
        return Run("where_am_i", grid, block, (blank(blocks, threads, like=INT),), {0: want})
    CASES[f"grid {grid}, block {block}"] = CASES.pop("where_am_i")


@pytest.mark.parametrize("name", CASES)
def test_right_in_every_mode(mod, mode, name):
    run = CASES[name]()
    mod[run.kernel][run.grid, run.block, run.shared](*run.args)
    check(run, atol=1e-5, rtol=1e-5)


def test_constants_in_read_only_memory():
    mod = cuda.compile("__device__ const float HALF = 0.5f;\n__constant__ const int TABLE[2] = {3, 4};\n"
                       "__global__ void k(float* y) { y[0] += HALF * TABLE[1]; }")
    y = torch.ones(1)
    mod.k[1, 1](y)
    checked(mod.k, 1, 1, y)
    assert y.item() == 5
    with pytest.raises(cuda.ArgumentError, match="`HALF` is const"):
        mod.globals["HALF"] = 1.0


def test_integer_atomics(mod, mode):
    a = ints(0, 0, 0, 0, 255, 0, 0, 0, 0)
    mod.atomics_int[1, 32](a)
    assert a.tolist()[:7] == [496, -496, 31, -31, 0, -1, 0]
    assert a[7].item() == 99 and 1 <= a[8].item() <= 32


def test_a_function_of_a_float_is_a_float():
    """As in CUDA, and unlike C: abs(-1.5f) is no integer and exp(x) is not computed in double precision."""
    mod = cuda.compile("__global__ void k(float x, float* y) {\n"
                       "    y[0] = abs(x);\n    y[1] = sizeof(exp(x)) + sizeof(pow(x, 2.0f));\n"
                       "    y[2] = isnan(x) + isinf(1 / (x - x)) + isfinite(x);\n"
                       "    y[3] = norm3d(1.0, 2.0, 2.0) + llmax(3, 4);\n}")
    y = torch.zeros(4)
    mod.k[1, 1](-1.5, y)
    assert y.tolist() == [1.5, 8, 2, 7]


def test_printf_is_shown_once_and_in_order(mod, mode, capsys):
    mod.talk[2, 32](LANES)
    out = capsys.readouterr().out
    lines = [f"thread {t} of block {b} has {t} and 0.50" for b in (0, 1) for t in (3, 19)]
    assert out == "\n".join(lines) + "\n"


def test_printf_of_lanes_that_diverge_is_shown_once(mod, capsys):
    with cuda.profile():
        mod.divergent_talk[1, 32](LANES, torch.zeros(32, dtype=torch.int32))
    assert capsys.readouterr().out == "sum 0\n"


@pytest.mark.parametrize("order", ORDERS)
def test_a_failed_assert_is_an_error(mod, order):
    error = fault(mod.claims, 1, 32, LANES, **order)
    assert "x[threadIdx.x] < 20" in error.message and error.kernel == "claims"
    assert error.line == SOURCE[:SOURCE.index("assert(x[thr")].count("\n") + 1
    mod.claims[1, 16](LANES)
    with pytest.raises(cuda.KernelError):               # a plain run leaves Python alive too
        mod.claims[1, 32](LANES)


UNSUPPORTED = {
    "a header that does not exist": ("#include <nothing_of_the_sort.h>\n__global__ void k(float* y) { y[0] = 0; }", "nothing_of_the_sort.h"),
    "a kernel called as a function": ("__global__ void a(int* y) { y[0] = 1; }\nvoid f(int* y) { a(y); }", "<<<"),
    "a host function in a kernel": ("inline float half_of(float x) { return x / 2; }\n"
                                    "__global__ void k(float* y) { y[0] = half_of(y[0]); }", "__device__"),
    "a kernel that returns something": ("__global__ float k(float* y) { return y[0]; }", "returns void"),
    "streams of C++ in a kernel": ("#include <iostream>\n__global__ void k(float* y) { std::cout << y[0]; }", "printf"),
    "half precision without its header": ("__global__ void k(half* y) { y[0] = y[1]; }", "#include <cuda_fp16.h>"),
    "bfloat16 without its header": ("__global__ void k(__nv_bfloat16* y) { y[0] = y[1]; }", "#include <cuda_bf16.h>"),
    "a heap that CUDA has not": ("__global__ void k(float** y) { y[0] = (float*)calloc(4, 1); }", "use malloc"),
    "exceptions": ("__global__ void k(float* y) { if (y[0] > 1) throw 1; }", "throw"),
    "output of C in a kernel": ('#include <cstdio>\n__global__ void k(float* y) { fprintf(stderr, "%f", y[0]); }', "use printf"),
    "the end of the process": ("#include <exception>\n__global__ void k(float* y) { std::terminate(); }", "terminate"),
    "initialised shared memory": ("__global__ void k(int* y) { __shared__ int s = 3; y[0] = s; }", "__shared__"),
}


POOL = """#include <new>
struct Pool { float at; __device__ float raise(float x) { return x; } };
__device__ float puts(float x) { return x; }"""
MAY_BE_A_DEVICE_FUNCTION = {       # what comes before a kernel, and its body
    "by a macro": ("#define HD __host__ __device__\nHD float f(float x) { return x; }", "y[0] = f(2);"),
    "declared": ("__device__ float f(float x);\nfloat f(float x) { return x; }", "y[0] = f(2.0f);"),
    "an overload": ("__device__ float f(float x) { return x; }\nfloat f(double x) { return 0; }",
                    "y[0] = f(2.0f);"),
    "constexpr": ("constexpr int f(int n) { return n; }", "y[0] = f(2.0f);"),
    "a lambda": ("float f(float x) { return 0; }", "auto f = [](float x) { return x; }; y[0] = f(2);"),
    "names of the host": (POOL, "alignas(Pool) char room[sizeof(Pool)]; Pool* p = new (room) Pool{2};\n"
                                "y[0] = puts(p->raise(p->at));")}


@pytest.mark.parametrize("name", MAY_BE_A_DEVICE_FUNCTION)
def test_what_may_be_a_device_function_is_taken_for_one(name):
    before, body = MAY_BE_A_DEVICE_FUNCTION[name]
    cuda.compile(f"{before}\n__global__ void k(float* y) {{ {body} }}").k[1, 1](y := torch.ones(1))
    assert y.item() == 2


def test_what_other_peoples_kernels_begin_with(tmp_path):
    """A pragma in a macro, a host function with the name of a header's, registers and types of newer toolkits."""
    (tmp_path / "gemm.h").write_text("template <class T> __host__ __device__ T gemm(T a) { return 2 * a; }\n")
    (tmp_path / "k.cu").write_text(r"""#include <bit>
        #include "gemm.h"
        #define UNROLL #pragma unroll 4
        template <class A> void gemm(char kind, A* a) {}
        __global__ void k(float* y) {
            cudaGridDependencySynchronize();
            UNROLL
            for (int i = 0; i < 4; ++i) y[i] = gemm(i);
            unsigned rank = std::bit_width(5u);
            if (y[0]) asm("mov.u32 %0, %%pm0;" : "=r"(rank));
            y[4] = rank + sizeof(double4_16a) + alignof(long4_32a);
        }""")
    k = cuda.load(tmp_path / "k.cu", std="c++20").k
    k[1, 1](y := torch.zeros(5))
    assert y.tolist() == [0, 2, 4, 6, 67]
    with pytest.raises(cuda.KernelError, match="k reaches `%pm0`"):
        (tmp_path / "k.cu").write_text((tmp_path / "k.cu").read_text().replace("if (y[0])", "if (y[1])"))
        cuda.load(tmp_path / "k.cu", std="c++20").k[1, 1](y)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_is_not_supported_is_named(name):
    source, word = UNSUPPORTED[name]
    with pytest.raises(cuda.CompileError) as caught:
        cuda.compile(source)
    assert word in str(caught.value)
    assert caught.value.line > 0, str(caught.value)


NOT_HAD = {"cudaStreamBeginCapture": "cudaStreamBeginCapture(0, 0);",
           "cudaGraphLaunch": "cudaGraphLaunch(0, 0);",
           "cudaTextureObject_t": "cudaTextureObject_t t = 0;",
           "cudaMallocArray": "cudaMallocArray(0, 0, 4);",
           "cudaMemPool_t": "cudaMemPool_t own;\n    cudaMemPoolCreate(&own, 0);",
           "cudaMallocFromPoolAsync": "cudaMallocFromPoolAsync(0, 4, 0, 0);",
           "cudaIpcMemHandle_t": "cudaIpcMemHandle_t h;\n    cudaIpcGetMemHandle(&h, 0);",
           "curandStateSobol32_t": "curandStateSobol32_t* s = 0;",
           "CURAND_RNG_QUASI_SOBOL64": "int type = CURAND_RNG_QUASI_SOBOL64;",
           "nvtxEventAttributes_t": "nvtxEventAttributes_t a = {};", "compareData": "compareData(y, y, 1, 0.f, 0.f);"}
NOT_HAD_IN_KERNELS = {"tex2D": "y[0] = tex2D<float>(1, 0.5f, 0.5f);",
                      "surf2Dwrite": "surf2Dwrite(y[0], 1, 0, 0);"}


@pytest.mark.parametrize("name", [*NOT_HAD, *NOT_HAD_IN_KERNELS, "texture"])
def test_what_the_engine_does_not_have_is_refused_in_one_line(name):
    body = "f(float* y) {\n    " + (NOT_HAD | NOT_HAD_IN_KERNELS).get(name, "y[0] = 0;") + "\n}\n"
    kind = "__global__ void " if name in NOT_HAD_IN_KERNELS else "void "
    old = "texture<float, 2> old;\n" if name == "texture" else "\n"
    with pytest.raises(cuda.CompileError) as caught:
        cuda.compile(old + kind + body)
    ((line, said),) = caught.value.errors
    assert line == (1 if name == "texture" else 3) and said.startswith(f"{name} is of CUDA's ")
    assert "which the engine does not have" in said and "\n" not in said
