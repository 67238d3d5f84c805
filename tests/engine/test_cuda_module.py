"""Modules: kernels as attributes, launches, arguments checked against the signature, constants, globals."""
import re

import numpy as np
import pytest
import torch

import laptop_cuda as cuda
from laptop_cuda import build, gpu, memory, module
from laptop_cuda.text import signature
from laptop_cuda.sources import files_of
from engine_kit import checked, counted, with_nvcc  # noqa: F401

SOURCE = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#define TILE 32
#define EMPTY
#define N 1024
#define T float
#define row 3
constexpr float SCALE = 0.5f;
namespace inner { enum { THREE = 3 }; const bool FLAG = true; }
typedef float real;
__constant__ float filter[3] = {1, 2, 3};
__device__ int counter = 0;
// adds
__global__ void add(const real* __restrict__ x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}
template <typename Type, int COUNT = 4> __global__ void fill(Type* out, Type value, int n) {
    __shared__ Type t[COUNT];
    if (threadIdx.x < COUNT) t[threadIdx.x] = value;
    __syncthreads();
    if (threadIdx.x < n) out[threadIdx.x] = t[threadIdx.x % COUNT];
}
__global__ void dynamic(float* out, int n) {
    extern __shared__ float s[];
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = s[n - 1 - threadIdx.x];
}
__global__ void values(double* out, bool b, char c, unsigned char u, short s, long long l, unsigned int w, half h,
                       __nv_bfloat16 f, double d, float4 v, size_t z) {
    out[0] = b; out[1] = c; out[2] = u; out[3] = s; out[4] = l; out[5] = w; out[6] = float(h); out[7] = float(f);
    out[8] = d; out[9] = v.x + v.w; out[10] = z;
}
struct Pair { int a; float b; };
__global__ void structure(float* out, Pair p, const Pair* many) { out[0] = p.a + p.b; out[1] = many[1].b; }
__global__ void convolve(float* out) { out[threadIdx.x] = filter[threadIdx.x]; if (threadIdx.x == 0) counter += 1; }
__global__ void bytes(void* out, const float4* v, half2* h, unsigned long long* n, bool* b, int4* q) {
    ((float*)out)[0] = v ? v[0].y : -1.0f;
}
namespace inner { __global__ void deep(float* out) { out[0] = THREE; } }
__global__ void twice(float* x) { x[0] *= 2; }
__global__ void twice(float* x, int n) { x[n] *= 4; }
#ifdef NEVER
__global__ void absent(float* x) { undeclared(x); }
#endif
cudaError_t from_host(float* x, const float* y, int n, float scale) {
    dim3 block(32);
    add<<<(n + block.x - 1) / block.x, block>>>(x, y, x, n);
    fill<float, 4><<<1, n < 4 ? n : 4>>>(x, scale, n);
    return cudaGetLastError();
}
"""


@pytest.fixture(scope="module")
def mod():
    return cuda.compile(SOURCE, "kit.cu")


def test_kernels_and_constants_are_attributes(mod):
    assert (mod.kernels == ["add", "fill", "dynamic", "values", "structure", "convolve", "bytes",
                            "inner::deep", "twice", "absent"])
    assert (mod.TILE, mod.SCALE, mod.FLAG) == (32, 0.5, True) and mod.FLAG is True
    assert "EMPTY" not in mod.constants and "add" in dir(mod)
    assert (repr(mod.add) == "<kernel add(const real * __restrict__ x, const float * y, float * out, int n) "
            "of kit.cu>")
    with pytest.raises(AttributeError, match="kit.cu has no kernel and no constant `ad`; its kernels: add"):
        mod.ad


def test_launch(mod):
    x, y, out = torch.arange(100.0), torch.ones(100), torch.zeros(100)
    assert mod.add[4, 32](x, y, out, 100) is None
    assert torch.equal(out, x + 1)
    mod.add[(4,), (32, 1)](n=100, y=y, x=x, out=out.zero_())
    assert torch.equal(out, x + 1)


def test_template_instances(mod):
    out = torch.zeros(6)
    mod["fill<float, 4>"][1, 8](out, 2.5, 6)
    assert out.tolist() == [2.5] * 6
    half = torch.zeros(6, dtype=torch.float16)
    mod.fill["half"][1, 8](half, 1.5, 6)
    assert half.tolist() == [1.5] * 6
    assert mod["fill<int,2>"].__name__ == mod.fill["<int, 2>"].__name__ == "fill<int, 2>"
    with pytest.raises(cuda.ArgumentError,
                       match=r"fill is a template over <typename Type, int COUNT = 4>: name an instance"):
        mod.fill[1, 8](out, 2.5, 6)
    with pytest.raises(cuda.ArgumentError, match="parameter `out` .*needs a tensor of int32, got float32"):
        mod["fill<int>"][1, 8](out, 2, 6)
    with pytest.raises(cuda.ArgumentError, match="add is not a template"):
        mod["add<3>"][1, 1](out, out, out, 1)
    with pytest.raises(cuda.ArgumentError, match="fill<int, 2, 3> gives 3 arguments"):
        mod["fill<int, 2, 3>"][1, 8](out, 2, 6)
    with pytest.raises(cuda.CompileError):
        mod["fill<no_such_type>"][1, 8](out, 2, 6)
    with pytest.raises(KeyError, match="no kernel `file`"):
        mod["file<3>"]


@pytest.mark.parametrize("yes", [True, np.bool_(True)])
def test_values_of_every_type(mod, yes):
    out = torch.zeros(11, dtype=torch.float64)
    mod.values[1, 1](out, yes, -3, 200, -300, -2**40, 2**31, 0.1, 0.1, 0.1, (1, 2, 3, 4), 2**40)
    expected = [1, -3, 200, -300, -2**40, 2**31, torch.tensor(0.1).half().item(),
                torch.tensor(0.1).bfloat16().item(), 0.1, 5, 2**40]
    assert out.tolist() == expected


def test_structures_pass_as_bytes(mod):
    import ctypes

    class Pair(ctypes.Structure):
        _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_float)]
    many = torch.tensor([0.0, 1.0, 2.0, 3.0])
    out = torch.zeros(2)
    mod.structure[1, 1](out, Pair(3, 0.25), many)
    assert out.tolist() == [3.25, 3.0]
    with pytest.raises(cuda.ArgumentError, match="`p` .*needs 8 bytes"):
        mod.structure[1, 1](out, 3, many)


def test_pointers_of_every_type(mod):
    out, v, h = torch.zeros(1), torch.arange(4.0), torch.zeros(2, dtype=torch.float16)
    n, b, q = (torch.zeros(k, dtype=t) for k, t in ((1, torch.int64), (1, torch.bool), (4, torch.int32)))
    mod.bytes[1, 1](out, v, h, n, b, q)
    assert out.item() == 1
    mod.bytes[1, 1](out, None, h, n.view(torch.uint64), b, None)
    assert out.item() == -1


X = torch.zeros(4)
WRONG = [
    ((X, X, X), "add takes 4 arguments, got 3; `n` is missing"),
    ((X, X, X, 4, 5), "add takes 4 arguments, got 5"),
    ((X, X.double(), X, 4), "parameter `y` .const float.. needs a tensor of float32, got float64"),
    ((X, 3, X, 4), "parameter `y` .* needs a tensor, got int 3"),
    ((X, X, X, 4.0), "parameter `n` .int. needs an integer, got float 4.0"),
    ((X, X, X, X), "parameter `n` .int. needs a number, got a tensor of shape"),
    ((X, X, X, None), "parameter `n`"), ((X, X, X, "4"), "parameter `n`"),
    ((X, X, X, 2**31), "parameter `n` .int.: 2147483648 does not fit into int32"),
    ((torch.zeros(2, 2).T, X, X, 4), "parameter `x` .* contiguous tensor, got shape .2, 2. with strides .1, 2."),
    ((X, X, torch.zeros(4, device="meta"), 4), "parameter `out` .* on meta"),
    ((X.to_sparse(), X, X, 4), "parameter `x`"),
    (([1.0], X, X, 4), "parameter `x` .* needs a tensor, got list")]


@pytest.mark.parametrize("arguments, message", WRONG)
def test_wrong_arguments_name_the_parameter(mod, arguments, message):
    with pytest.raises(cuda.ArgumentError, match=message):
        mod.add[1, 4](*arguments)


@pytest.mark.parametrize("launch, message", [
    (lambda add: add(X, X, X, 4), r"add needs a grid and a block: add\[grid, block\]"),
    (lambda add: add[4](X, X, X, 4), r"\[grid, block\]"),
    (lambda add: add[0.5, 4](X, X, X, 4), "grid is made of whole numbers, got 0.5; use //"),
    (lambda add: add[1, (1, 2, 3, 4)](X, X, X, 4), "block has 1 to 3 sizes"),
    (lambda add: add[1, 4](X, X, X, x=X), "given twice"), (lambda add: add[0, 4](X, X, X, 4), "no blocks")])
def test_wrong_launches(mod, launch, message):
    with pytest.raises((cuda.ArgumentError, cuda.KernelError), match=message):
        launch(mod.add)


def test_namespaces_overloads_and_conditionals(mod):
    x = torch.ones(2)
    mod.deep[1, 1](x)
    assert x[0] == 3
    mod["inner::deep"][1, 1](x)
    mod.twice[1, 1](x)
    mod.twice[1, 1](x, 1)
    assert x.tolist() == [6, 4]
    with pytest.raises(cuda.ArgumentError, match="behind an #if"):
        mod.absent[1, 1](x)


def test_launches_from_host_code(mod):
    x = torch.arange(40.0)
    mod.host("from_host")(x, torch.ones(40), 40, 0.5)
    assert x.tolist() == [0.5] * 4 + list(range(5, 41))
    with pytest.raises(cuda.ArgumentError, match="no host function `nothing`; it has: from_host"):
        mod.host("nothing")
    with pytest.raises(cuda.ArgumentError, match="`scale` is missing"):
        mod.host("from_host")(x, x, 40)


def test_a_byte_order_mark_is_no_text_and_a_path_is_a_file(tmp_path):
    y, path = torch.zeros(1), tmp_path / "one.cu"
    text = "\ufeff__global__ void one(float* y) { y[0] += 1; }\r\n"
    path.write_text(text)
    for source in (text, path):
        cuda.compile(source).one[1, 1](y)
    assert y.item() == 2


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("columns", [5, 40])                # rows that share a sector, and rows that do not
def test_views_of_one_tensor_do_not_overwrite_each_other(order, columns):
    rows = torch.zeros(3, columns)
    mod = cuda.compile("__global__ void number(float* a, float* b, float* c) {\n"
                       "int i = threadIdx.x; a[i] = 1; b[i] = 2; c[i] = 3; }")
    checked(mod.number, 1, columns, *(rows[i] for i in order))
    assert [rows[i].unique().tolist() for i in order] == [[1], [2], [3]]


def test_globals_are_one_set_in_every_build(mod):
    out = torch.zeros(3)
    mod.globals["filter"] = [4.0, 5.0]
    mod.globals["counter"] = 0
    mod.convolve[1, 3](out)
    assert out.tolist() == [4, 5, 3] and mod.globals["counter"].item() == 1
    checked(mod.convolve, 1, 3, out)
    assert out.tolist() == [4, 5, 3] and mod.globals["counter"].item() == 2
    with cuda.profile():
        mod.convolve[1, 3](out)
    mod.convolve[1, 3](out)
    assert mod.globals["counter"].item() == 4
    with pytest.raises(cuda.ArgumentError, match="no __device__ or __constant__ variable `filtre`"):
        mod.globals["filtre"] = 1
    with pytest.raises(cuda.ArgumentError, match="holds 12 bytes"):
        mod.globals["filter"] = [1.0] * 4


def test_modules_of_the_same_text_have_globals_of_their_own():
    source = "__device__ int counter = 7;\n__global__ void count(int* x) { x[0] = ++counter; }\n"
    first, second = cuda.compile(source), cuda.compile(source)
    x = torch.zeros(1, dtype=torch.int32)
    for mod, wanted in [(first, 8), (first, 9), (second, 8), (first, 10), (second, 9)]:
        mod.count[1, 1](x)
        assert x.item() == wanted == mod.globals["counter"].item()
    with cuda.sanitize():
        second.count[1, 1](x)
        assert x.item() == 10
        cuda.compile(source).count[1, 1](x)
        assert x.item() == 8
    assert first.globals["counter"].item() == 10


def test_files_beside_the_source_are_rewritten(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "tile.cuh").write_text(
        '#pragma once\n#include "../tile.cu.h"\ntemplate <int N> __device__ float first(float v) {\n'
        "    __shared__ float s[N];\n    s[threadIdx.x] = v;\n    __syncthreads();\n    return s[0];\n}\n"
        "__global__ void beside(float* x) { x[0] = first<2>(7); }\n")
    (tmp_path / "tile.cu.h").write_text('#ifndef TILE_H\n#define TILE_H\n#include "parts/tile.cuh"\n#define '
                                        'NINE 9\n#endif\n')
    (tmp_path / "main.cu").write_text('#include "tile.cu.h"\n'
                                      '__global__ void k(float* x) { x[threadIdx.x] = first<4>(NINE); }\n')
    mod = cuda.load(tmp_path / "main.cu")
    x = torch.zeros(4)
    mod.k[1, 4](x)
    assert x.tolist() == [9] * 4 and mod.kernels == ["k", "beside"] and mod.NINE == 9
    mod.beside[1, 1](x)
    assert x[0] == 7
    (tmp_path / "tile.cu.h").write_text("// one\n__device__ float f() { return missing; }\n")
    with pytest.raises(cuda.CompileError, match="tile.cu.h, line 2: .*missing"):
        cuda.load(tmp_path / "main.cu")


def test_kernels_that_a_macro_writes():
    mod = cuda.compile("#define UNARY(name, expr) \\\n"
                       "  __global__ void name##_kernel(const float* x, float* y, int n) { \\\n"
                       "    int i = threadIdx.x; if (i < n) { float v = x[i]; y[i] = expr; } }\n"
                       "UNARY(square, v * v)\n"
                       "UNARY(negate, -v)\n"
                       "__global__ void plain(float* x) { x[0] = 1; }\n")
    assert mod.kernels == ["plain", "square_kernel", "negate_kernel"]
    x = torch.arange(4.0)
    mod.square_kernel[1, 4](x, y := torch.zeros(4), 4)
    assert y.tolist() == [0, 1, 4, 9]


def test_names_that_the_standard_library_has_too():
    mod = cuda.compile("#include <iostream>\n"
                       "#include <vector>\n"
                       "#include <algorithm>\n"
                       "#include <numeric>\n"
                       "using namespace std;\n"
                       "#define n 8\n#define words 4\n#define args 2\n"       # words of the engine's own
                       "const int N = n * words / (2 * args);\n"
                       "__global__ void copy(float* y) { y[threadIdx.x] = N; }\n"
                       "__global__ void reduce(float* y) { y[threadIdx.x] = max(1, 2); }\n"
                       "void host(float* y) { dim3 gridDim(1), blockDim(N); copy<<<gridDim, blockDim>>>(y); "
                       "cout << N << hermite(1, 1.0); }\n")
    mod.copy[1, 2](y := torch.zeros(2))
    mod.reduce[1, 1](y)
    assert y.tolist() == [2, 8] and mod.N == 8


def test_kernels_named_like_functions_of_the_c_library():
    mod = cuda.compile("#include <cmath>\n"
                       "#include <cstdlib>\n"
                       "__global__ void div(float* y) { y[threadIdx.x] /= 2; }\n"
                       "__global__ void exp(const float* x, float* y, int n) { if (threadIdx.x < n) "
                       "y[threadIdx.x] = expf(x[0]); }\n"
                       "__global__ void max(float* y) { y[0] = fmaxf(y[0], exp(0.0f)); }\n")
    mod.div[1, 2](y := torch.tensor([2.0, 6.0]))
    assert y.tolist() == [1, 3]
    mod.exp[1, 2](torch.zeros(1), y, 1)
    mod.max[1, 1](y)
    assert y.tolist() == [1, 3]


def test_the_host_calls_of_published_files():
    mod = cuda.compile("""
        #include <cuda_profiler_api.h>
        template <int N> __global__ void fill(float* x) { x[threadIdx.x] = N; }
        __device__ float seen[4];
        void run(float* x) {
            cudaFuncSetAttribute(fill<3>, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
            size_t unused, total; cudaMemGetInfo(&unused, &total);
            cudaDeviceProp p; cudaGetDeviceProperties(&p, 0);
            cudaStream_t stream; cudaStreamCreate(&stream);
            cudaEvent_t event; cudaEventCreate(&event); cudaEventRecord(event, stream); cudaStreamWaitEvent(stream, event, 0);
            cudaProfilerStart(); fill<3><<<1, 2, 0, stream>>>(x); cudaProfilerStop();
            void* there; cudaGetSymbolAddress(&there, seen);
            cudaMemcpy2D(there, 8, x, 16, 8, 2, cudaMemcpyDeviceToDevice);
            cudaMemcpyFromSymbol(x + 4, seen, sizeof seen);
        }""")
    mod.host("run")(x := torch.arange(8.0))
    assert x.tolist() == [3, 3, 2, 3, 3, 3, 4, 5]


def test_load_follows_the_file(tmp_path):
    path = tmp_path / "k.cu"
    path.write_text("__global__ void k(float* x) { x[0] = 1; }")
    first = cuda.load(path)
    assert cuda.load(path) is first
    path.write_text("__global__ void k(float* x) { x[0] = 2; }")
    cuda.load(path).k[1, 1](x := torch.zeros(1))
    assert x.item() == 2
    with pytest.raises(FileNotFoundError, match="there is no file .*nothing"):
        cuda.load("nothing")
    with pytest.raises(cuda.ArgumentError, match="use Path"):
        cuda.compile("k.cu")


def test_empty_is_poisoned_and_known_to_be():
    x = cuda.empty(3, 4)
    assert x.isnan().all() and cuda.empty(2, dtype=torch.int32).tolist() == [-2139062144] * 2
    assert not memory.initialised(x).any() and memory.initialised(x[1:]) is memory.initialised(x)
    x[0] = 1
    assert memory.initialised(x) is None
    assert memory.initialised(torch.zeros(2)) is None
    y = cuda.empty(4)
    cuda.compile("__global__ void one(float* y) { y[threadIdx.x] = 1; }").one[1, 2](y)
    assert memory.initialised(y) is None and y.isnan().tolist() == [False, False, True, True]


def test_a_sanitized_launch_remembers_which_bytes_it_wrote():
    y = cuda.empty(4)
    mod = cuda.compile("__global__ void one(float* y) { y[threadIdx.x] = 1; }\n"
                       "__global__ void read(const float* y, float* z) { z[threadIdx.x] = y[threadIdx.x]; }")
    with cuda.sanitize():
        mod.one[1, 2](y)
        mod.read[1, 2](y, torch.zeros(4))
        with pytest.raises(cuda.KernelError) as caught:
            mod.read[1, 4](y, torch.zeros(4))
    assert caught.value.kind == "uninitialized"


def test_more_shared_memory_must_be_asked_for():
    mod = cuda.compile("""__global__ void last(int* y, int n) {
        extern __shared__ int s[];
        s[n - 1] = 7;
        y[0] = s[n - 1];
    }""")
    y, kernel = torch.zeros(1, dtype=torch.int32), mod.last
    with pytest.raises(cuda.KernelError, match="60.000"):
        kernel[1, 1, 60_000](y, 15_000)
    kernel.shared_limit = 99 << 10
    kernel[1, 1, 60_000](y, 15_000)
    assert y.item() == 7
    with pytest.raises(cuda.KernelError, match=r"the limit is 101,376 \(99 KiB\)"):
        kernel[1, 1, 102_000](y, 15_000)


def test_what_compiled_once_is_compiled_again_when_it_changes(tmp_path, monkeypatch, with_nvcc):
    monkeypatch.setenv("LAPTOP_CUDA_CACHE", str(tmp_path))
    (tmp_path / "one.cuh").write_text("#define ONE 1.0f\n")
    file = tmp_path / "good.cu"
    file.write_text('#include "one.cuh"\n__global__ void k(float* x) { x[0] = ONE; }\n')
    gpu.compile_check(file, ("sm_90",))
    with monkeypatch.context() as patch:
        patch.setattr(gpu.subprocess, "run", None)          # not needed
        gpu.compile_check(file, ("sm_90",))
    (tmp_path / "one.cuh").write_text("#define ONE missing\n")
    with pytest.raises(cuda.CompileError):
        gpu.compile_check(file, ("sm_90",))


@pytest.mark.slow
def test_a_kernel_with_grid_sync_is_launched_cooperatively(tmp_path):
    """Only such a launch makes `grid.sync()` valid on a card; others in the file are launched as ever."""
    source = """#include <cooperative_groups.h>
__global__ void ordinary(float* x) { x[threadIdx.x] = 1; }
__global__ void meets(float* x) { x[threadIdx.x] = 1; cooperative_groups::this_grid().sync(); }
"""
    sources = files_of(source, None)
    text = gpu.generated(sources, [(k, "") for k in signature.kernels(sources[0])], "source.cu")
    cooperative = re.findall(r"laptop_start\(\(const void\*\)\(&::(\w+)\).*?(true|false)\)", text)
    assert cooperative == [("ordinary", "false"), ("meets", "true")]
    if gpu.nvcc() is None:
        pytest.skip("not run: nvcc is missing (NVIDIA's CUDA toolkit)")
    (tmp_path / "grid.cu").write_text(source)
    gpu.compile_check(tmp_path / "grid.cu", ("sm_80", "sm_90"))


@pytest.mark.slow
def test_a_gpu_build_describes_its_kernels_without_a_card(mod, monkeypatch, with_nvcc):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(gpu, "write_symbol", lambda *_: None)       # of the globals that other tests have set
    add = mod._named("add")[0]
    library = mod._library_gpu(add, "", torch.device("cuda", 0))
    del mod._libraries["gpu", None, "", 0]
    entry = library.entries[add, ""]
    assert [(p.name, p.dtype, p.const) for p in entry.parameters] == [
        ("x", "float32", True), ("y", "float32", True), ("out", "float32", False), ("n", "int32", False)]
    assert library.constants["TILE"] == 32 and "filter" in library.symbols
    fill = mod._named("fill")[0]
    instance = mod._library_gpu(fill, "<half, 4>", torch.device("cuda", 0)).entries[fill, "<half, 4>"]
    del mod._libraries["gpu", fill, "<half, 4>", 0]
    assert [p.dtype for p in instance.parameters] == ["float16", "float16", "int32"]


def test_globals_set_before_the_first_launch_reach_every_device(monkeypatch):
    """Each device has its own variables: written when its library is loaded, and when set later."""
    written = []
    mod = cuda.compile("__constant__ float filter[3];\n__global__ void k(float* x) { x[0] = filter[0]; }")
    library = next(iter(mod._libraries.values()))
    monkeypatch.setattr(gpu, "library", lambda *_: library.path)
    monkeypatch.setattr(module, "load_library", lambda *_: library)
    monkeypatch.setattr(gpu, "write_symbol", lambda library, name, raw, device: written.append(
            (name, len(raw), device)))
    mod.globals["filter"] = [1.0, 2.0, 3.0]
    for device in (0, 1, 0):
        mod._library_gpu(mod._texts[0], "", torch.device("cuda", device))
    assert written == [("filter", 12, 0), ("filter", 12, 1)]
    mod.globals["filter"] = [4.0]
    assert written[2:] == [("filter", 4, 0), ("filter", 4, 1)]


def test_a_card_s_own_instructions_may_be_used():
    assert gpu.architecture_flag((8, 6)) == "-gencode=arch=compute_86,code=sm_86"
    assert gpu.architecture_flag((9, 0)) == "-gencode=arch=compute_90a,code=sm_90a"


@pytest.mark.parametrize("output, advice",
                         [("nvcc fatal   : Unsupported gpu architecture 'compute_120'", "newer CUDA toolkit"),
                          ("error: #error -- unsupported GNU version! gcc versions later than 13",
                           "NVCC_CCBIN")])
def test_a_toolkit_that_does_not_fit_is_no_fault_of_the_source(output, advice):
    assert advice in str(build.nvcc_problem(output)) and build.nvcc_problem("k.cu(2): error: missing") is None


def test_a_grid_that_is_too_large_says_which_side():
    assert (gpu._limit((5, 65536, 1)).startswith(". The grid's y is at most 65,535")
            and gpu._limit((2**31 - 1, 1, 65535)) == "")


@pytest.mark.gpu
def test_the_same_file_on_the_gpu(mod):
    x, y = torch.arange(100.0, device="cuda"), torch.ones(100, device="cuda")
    out = torch.zeros(100, device="cuda")
    mod.add[4, 32](x, y, out, 100)
    assert torch.equal(out, x + 1)
    mod["fill<half, 4>"][1, 8](half := torch.zeros(6, dtype=torch.float16, device="cuda"), 1.5, 6)
    assert half.tolist() == [1.5] * 6
    mod.dynamic[1, 8, 64 * 1024](out, 8)
    assert out[:8].tolist() == [7, 6, 5, 4, 3, 2, 1, 0]
    mod.globals["filter"] = [4.0, 5.0, 6.0]
    mod.convolve[1, 3](out)
    mod.globals["filter"] = [7.0, 5.0, 6.0]
    mod.convolve[1, 3](out)
    assert out[:3].tolist() == [7, 5, 6]
    launch = counted(mod.add, 4, 32, x, y, x, 100)      # on the CPU, and the result is on the card
    assert launch.global_load.bytes == 800 and torch.equal(x, torch.arange(1.0, 101.0, device="cuda"))
    x -= 1
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        mod.add[4, 32](x, y, out, 100)
    side.synchronize()
    assert torch.equal(out, x + 1)
    with pytest.raises(cuda.KernelError) as caught:
        mod.add[1, 2048](x, y, out, 100)
    assert caught.value.kind == "bad launch"
    with pytest.raises(cuda.ArgumentError, match="`y` is on cpu, but `x` is on cuda"):
        mod.add[4, 32](x, y.cpu(), out, 100)


def test_copies_for_a_traced_launch_keep_aliases():
    from laptop_cuda.arguments import Parameter
    from laptop_cuda.arguments.arrays import CpuCopies
    base = torch.arange(6.0)
    here = CpuCopies([base, 3])
    assert here.values[0] is base and not here.storages            # CPU tensors are passed as they are
    copies = CpuCopies([])
    first, second = copies._here(base[:4].view(2, 2)), copies._here(base[2:])
    first[1, 0] = 9
    assert second[0] == 9 and base[2] == 2 and first.shape == (2, 2)
    copies.given = [base[2:]]
    copies.copy_back([Parameter("x", "pointer", "float32", 4, True, "const float*", "f")])
    assert base[2] == 2
    copies.copy_back([Parameter("x", "pointer", "float32", 4, False, "float*", "f")])
    assert base[2] == 9
