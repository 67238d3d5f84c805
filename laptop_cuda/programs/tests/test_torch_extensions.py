"""Kernels of torch extensions: the host code is left out, its types in kernels work."""
import ctypes
import re

import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import checked, compiled, compiler, counted, fault, line_of  # noqa: F401

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/DeviceUtils.cuh>
#include <cufft.h>
using at::Tensor;
namespace py = pybind11;
using torch::PackedTensorAccessor32;
struct Params { int n; float scale; const float* x; float* y; };
struct Store {
    Tensor kept;
    cublasHandle_t handle = nullptr;
    Store(int device) { cublasCreate(&handle); }
    at::IntArrayRef sizes() { return kept.sizes(); }
    int device() { return at::cuda::current_device(); }
};
template <typename scalar_t>
__global__ void transpose(const PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> x,
                          at::PackedTensorAccessor64<scalar_t, 2> y, int extra) {
    using acc_t = at::acc_type<scalar_t, true>;
    int i = blockIdx.x, j = threadIdx.x;
    if (j < x.size(1) + extra) y[j][i] = (acc_t)x[i][j] * 2;
}
template <> __global__ void transpose<at::Half>(const PackedTensorAccessor32<at::Half, 2, torch::RestrictPtrTraits> x,
                                                at::PackedTensorAccessor64<at::Half, 2> y, int) {
    y[threadIdx.x][blockIdx.x] = x[blockIdx.x][threadIdx.x];
}
__global__ void scaled(Params p, int extra) {
    if (threadIdx.x < p.n + extra) p.y[threadIdx.x] = p.scale * p.x[threadIdx.x];
}
template <typename T> void launch_transpose(Tensor x, Tensor y) {
    transpose<T><<<x.size(0), x.size(1)>>>(x.packed_accessor32<T, 2, torch::RestrictPtrTraits>(),
                                           y.packed_accessor64<T, 2>(), 0);
}
template void launch_transpose<float>(Tensor x, Tensor y);
__host__ int depth(const at::Tensor& x) { return x.size(2); }
__global__ void halves(const at::Half* x, at::Half* total, at::Half* y) {
    y[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x] + 1;                               // squares
    gpuAtomicAdd(total, y[threadIdx.x]);                                                // total
}
__device__ cufftReal scale(cufftComplex v) { return v.x + v.y; }
__global__ void turned(const c10::complex<float>* x, c10::complex<float>* y, int lanes) {
    if (threadIdx.x >= lanes) return;
    c10::complex<float> v = x[threadIdx.x] * c10::complex<float>(0, scale({1.5f, 0.5f}));
    y[threadIdx.x] = {WARP_SHFL_XOR(v.real_, 1, 32, (1ull << lanes) - 1), v.imag()};    // shuffled
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("transpose", &launch_transpose<float>); }
"""


class Params(ctypes.Structure):
    _fields_ = [("n", ctypes.c_int), ("scale", ctypes.c_float), ("x", ctypes.c_void_p),
                ("y", ctypes.c_void_p)]


def test_arrays_go_into_accessors():
    x, y = np.arange(15, dtype=np.float32).reshape(3, 5), np.zeros((5, 3), np.float32)
    mod = compiled(SOURCE)
    mod["transpose<float>"][3, 8](x, y, 0)
    assert (y == 2 * x.T).all()
    launch = counted(mod["transpose<float>"], 3, 8, x, y, 0, sanitized=True)
    assert launch.global_load.requests == 3 and launch.global_store.bytes == 60


def test_an_accessors_bounds_are_its_arrays():
    x, y = np.zeros((3, 5), np.float32), np.zeros((5, 3), np.float32)
    error = fault(compiled(SOURCE)["transpose<float>"], 3, 8, x, y, 3)
    assert (error.kind == "out of bounds" and "y[15], past its end: y has 15 float32 elements, shape "
            "(5, 3)" in str(error))


@pytest.mark.parametrize("wrong, told", [(np.zeros(4, np.float32), "2-dimensional .* of float32, got 1-dim"),
                          (np.zeros((2, 2)), "got 2-dimensional float64"), (3, "float32, got 3"),
                          (np.zeros((4, 4), np.float32)[:, :2], "contiguous")])
def test_what_does_not_fit_an_accessor_is_named(wrong, told):
    y = np.zeros((5, 3), np.float32)
    with pytest.raises(cuda.ArgumentError, match=told) as caught:
        compiled(SOURCE)["transpose<float>"][1, 1](wrong, y, 0)
    assert "`x`" in str(caught.value)


def test_torchs_half_is_counted_at_the_line_of_its_use(compiler):
    x, total, y = np.arange(32, dtype=np.float16), np.zeros(1, np.float16), np.zeros(32, np.float16)
    launch = counted(compiled(SOURCE).halves, 1, 32, x, total, y, sanitized=True)
    assert (y == x * x + 1).all() and abs(total[0] - y.sum(dtype=np.float32)) < 16
    assert (launch.global_load.bytes, launch.global_store.bytes, launch.atomics.operations) == (192, 64, 32)
    assert {line.line for line in launch.lines} == line_of(SOURCE, "// squares") | line_of(SOURCE, "// total")


def test_torchs_shuffles_and_complex_numbers():
    x, y = (np.arange(32) + 1j).astype(np.complex64), np.zeros(32, np.complex64)
    checked(compiled(SOURCE).turned, 1, 32, x, y, 32)
    wanted = x * 2j
    assert (y.real == wanted.real.reshape(16, 2)[:, ::-1].reshape(32)).all() and (y.imag == wanted.imag).all()
    # lane 30 asks lane 31, which has gone
    assert {fault(compiled(SOURCE).turned, 1, 32, x, y, 31).line} == line_of(SOURCE, "// shuffled")


def test_a_struct_with_pointers_is_checked_and_can_run_again(compiler):
    mod = compiled(SOURCE)
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    params = Params(8, 0.5, x.ctypes.data, y.ctypes.data)
    params.targets = [x, y]
    for run in (cuda.sanitize, cuda.profile):
        with run() as report:
            mod.scaled[1, 32](params, 0)
        assert (y == x / 2).all()
    assert report.launches[0].global_load.bytes == 32
    assert [e["value"] for e in report.launches[0].replay().events if e["kind"] == "store"] == list(x / 2)
    error = fault(mod.scaled, 1, 32, params, 1)
    assert error.kind == "out of bounds" and error.thread == (8, 0, 0)


def test_a_struct_may_hold_tensors():
    torch = pytest.importorskip("torch")
    x, y = torch.arange(8.0), torch.zeros(8)
    params = Params(8, 0.5, x.data_ptr(), y.data_ptr())
    checked(compiled(SOURCE).scaled, 1, 32, params, 0)
    assert (y == x / 2).all()


def test_headers_of_the_include_path_are_rewritten(tmp_path):
    """By name in angle brackets, one including another that includes it again."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "a.cuh").write_text("#pragma once\n"
                                            "#include <lib/b.cuh>\n"
                                            "template <int n> __device__ int summed(int v) {\n"
                                            "    __shared__ int s[n];\n"
                                            "    s[threadIdx.x] = v;\n"
                                            "    __syncthreads();\n"
                                            "    return s[0] + s[n - 1];\n"
                                            "}\n")
    (tmp_path / "lib" / "b.cuh").write_text("#pragma once\n#include <lib/a.cuh>\n#include <cuda_runtime.h>\n")
    (tmp_path / "my.cu").write_text(
        "#include <lib/a.cuh>\n__global__ void ends(int* y) { y[threadIdx.x] = summed<32>(threadIdx.x); }\n")
    mod = cuda.load(tmp_path / "my.cu", include=[tmp_path])
    launch = counted(mod.ends, 1, 32, y := np.zeros(32, np.int32), sanitized=True)
    assert (y == 31).all() and launch.shared_load.requests == 2
    assert {re.sub(r".*/", "", str(line.file)) for line in launch.lines} >= {"a.cuh"}


NAMES = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <THC/THCDeviceUtils.cuh>
#include <curand_philox4x32_x.h>
template <typename T> __host__ __device__ T THCCeilDiv(T a, T b) { return (a + b - 1) / b; }
struct GridSpec { torch::Tensor values, weights; };
struct PackedGrid {
    PackedGrid(GridSpec& grid) : values(grid.values.data_ptr<float>()), n((int)grid.values.size(0)),
        weights(grid.weights.defined() ? grid.weights.packed_accessor32<float, 1>()[0] : 0) {}
    float* values;
    int n;
    float weights;
};
template <typename T> __device__ T WARP_SHFL_XOR(T v, int by) { return __shfl_xor_sync(0xffffffffu, v, by); }
__global__ void scaled(PackedGrid grid) { CUDA_KERNEL_LOOP(i, grid.n) grid.values[i] *= 2; }
__global__ void sums(const float* x, float* y) {
    __shared__ float of_warp[32];
    float all = at::native::cuda_utils::BlockReduceSum(x[threadIdx.x], of_warp);
    if (threadIdx.x == 0) y[0] = all;
    if (threadIdx.x < 32) y[1 + threadIdx.x] = WARP_SHFL_XOR(x[threadIdx.x], 1);
}
template <typename T> __global__ void limits(T* y) {
    y[0] = std::numeric_limits<T>::lowest(), y[1] = std::numeric_limits<T>::max();
    y[2] = std::numeric_limits<T>::infinity(), y[3] = at::numeric_limits<T>::lower_bound();
    y[4] = std::numeric_limits<T>::epsilon(), y[5] = std::numeric_limits<T>::quiet_NaN();
    y[6] = THCCeilDiv(7, 2) + at::ceil_div(9, 4);
}
__global__ void turned(c10::complex<float>* z, at::PhiloxCudaState state, unsigned long long* seeds) {
    z[0] = std::conj(z[0]) * std::abs(z[1]);
    auto [seed, offset] = at::cuda::philox::unpack(state);
    seeds[0] = seed, seeds[1] = offset;
}
"""


class Grid(ctypes.Structure):
    _fields_ = [("values", ctypes.c_void_p), ("n", ctypes.c_int), ("weights", ctypes.c_float)]


class Philox(ctypes.Structure):
    _fields_ = [("seed", ctypes.c_uint64), ("offset", ctypes.c_uint64), ("more", ctypes.c_uint32),
                ("captured", ctypes.c_bool)]


@pytest.mark.slow
def test_names_of_torch_that_kernels_use(compiler):
    mod, x, y = compiled(NAMES), np.arange(64, dtype=np.float32), np.zeros(33, np.float32)
    z, seeds, values = np.array([1 + 2j, 3 + 4j], np.complex64), np.zeros(2, np.uint64), x.copy()
    grid = Grid(values.ctypes.data, 50, 0)
    grid.targets = [values]
    for run in (cuda.sanitize, cuda.profile):
        with run():
            mod.scaled[2, 16](grid)
            mod.sums[1, 64](x, y)
    assert (values == np.where(x < 50, 4 * x, x)).all()
    assert y[0] == x.sum() and (y[1:] == x[:32].reshape(16, 2)[:, ::-1].reshape(32)).all()
    checked(mod.turned, 1, 1, z, Philox(11, 22, 0, False), seeds)
    assert z[0] == (1 - 2j) * 5 and list(seeds) == [11, 22]


@pytest.mark.slow
@pytest.mark.parametrize("name, dtype", [("at::Half", "float16"), ("c10::BFloat16", "bfloat16")])
def test_limits_of_torchs_numbers(name, dtype):
    """The C++ library's own would be 0 for types that it does not know."""
    torch = pytest.importorskip("torch")
    y, of = torch.zeros(7, dtype=getattr(torch, dtype)), torch.finfo(getattr(torch, dtype))
    compiled(NAMES)[f"limits<{name}>"][1, 1](y)
    assert y[:5].tolist() == [of.min, of.max, float("inf"), -float("inf"), of.eps]
    assert y[5].isnan() and y[6] == 4 + 3


def test_kernels_do_without_functions_of_other_sources(tmp_path):
    (tmp_path / "suite.h").write_text("""
        namespace suite { int enter(const char*); void note(int);
        template <class T> void check(T x) { note(x); }
        struct Registered { int at; Registered(int n) : at(n) { check(n); } }; }
        #define TEST(name) static suite::Registered name##_entered(suite::enter(#name)); void name##_test()
        #define EXPORT(function) void (*exported_##function)(float*) = function;""")
    (tmp_path / "hidden.h").write_text("constexpr int HIDDEN = 4;")
    (tmp_path / "k.cu").write_text("""#include "suite.h"
        #ifdef WITH_HIDDEN
        #include "hidden.h"
        #endif
        #define SHARED __shared__
        template <class T, int N> __global__ void far(T* x);
        __global__ void near(float* x) { [[maybe_unused]] SHARED float s; if (s = 2; threadIdx.x == 0) *x = s; }
        TEST(first) { suite::check(1); }
        void launches(float* x) { far<float, 4><<<1, 1>>>(x); }
        EXPORT(launches)""")
    mod, x = cuda.load(tmp_path / "k.cu"), np.zeros(1, np.float32)
    mod.near[1, 1](x)
    assert x[0] == 2 and mod.kernels == ["near"] and "HIDDEN" not in mod.constants
    assert cuda.load(tmp_path / "k.cu", define={"WITH_HIDDEN": 1}).HIDDEN == 4
