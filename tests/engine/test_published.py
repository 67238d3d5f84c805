"""What published kernels do and a first engine got wrong: each the smallest form of a case found."""
import os
import shutil
import subprocess

import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import ORDERS, checked, compiled, compiler, counted, fault, mod, ramp  # noqa: F401

SOURCE = r"""
#include <cuda_fp16.h>
#include <cuda_fp8.h>
__global__ void beyond_the_mask(float* y) {
    if (threadIdx.x < 4) y[threadIdx.x] = __shfl_down_sync(0xf, (float)threadIdx.x, 16);
}
__global__ void dropped(float* y) {
    float v = threadIdx.x, other = __shfl_down_sync(0xffffffff, v, 8);      // the block has 20 threads
    y[threadIdx.x] = threadIdx.x + 8 < 20 ? v + other : v;
}
__global__ void of_its_time(float* y) {
#if __CUDA_ARCH__ >= 700 && defined(__CUDACC__)
    y[threadIdx.x] = 1;
#endif
}
__global__ void clamp_halves(const half* x, half* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    half v = x[i];
    if (v > __float2half(.5f) || v < __float2half(-.5f)) v = __float2half(0.f);
    y[i] = __hlt(v, __float2half(0.1f)) ? v : __hmul(v, __hsub(hexp(v), __float2half(1.f)));
}
__device__ int a, b = 3, *c;
__constant__ float d[4] = {1, 2, 3, 4}, e = 5;
__global__ void counts_up() { ++a, ++b; }
__global__ void either(const float* x,
#ifdef WIDE
                       const double* weight, int stride,
#else
                       const float* weight,
#endif
                       float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x] * weight[threadIdx.x]; }
namespace ops {
__global__ void twice(float* x) { x[threadIdx.x] *= 2; }
void twice(float* x, int n) { twice<<<1, n>>>(x); }
template <typename T, int N = 2> __global__ void __launch_bounds__(64) more(T* x) { x[threadIdx.x] += N; }
template <class T> void more(T* x, int n) { more<T><<<1, n>>>(x); }
template <class... P> __global__ void sum(float* x, P... p) { x[threadIdx.x] += (p + ...); }
}
"""


@pytest.mark.parametrize("order", ORDERS)
def test_a_value_from_a_lane_outside_the_mask(mod, order):
    y = np.zeros(32, np.float32)
    error = fault(mod.beyond_the_mask, 1, 32, y, **order)
    assert error.kind == "uninitialized" and "not in its mask" in str(error)
    assert "__shfl_down_sync(0xf" in SOURCE.splitlines()[error.line - 1] and not y.any()


def test_an_undefined_value_that_is_dropped_is_a_note(mod):
    y = np.zeros(20, np.float32)
    with cuda.sanitize() as notes:
        mod.dropped[1, 20](y)
    assert y[11] == 11 + 19 and y[12] == 12
    assert len(notes) == 1 and "does not depend on it" in notes[0] and "does not exist" in notes[0]


def test_code_for_an_architecture_is_not_left_out(mod):
    mod.of_its_time[1, 4](y := np.zeros(4, np.float32))
    assert y.sum() == 4


def test_counts_are_exact_where_half_arithmetic_diverges(compiler):
    x = np.random.default_rng(0).standard_normal(2048).astype(np.float16)
    launch = counted(compiled(SOURCE).clamp_halves, 8, 256, x, np.zeros_like(x))
    assert launch.global_load.requests == launch.global_store.requests == 64


def test_functions_without_hooks_call_none_that_have_them(mod):
    """Else the steps of one lane would be in another's order, and counts under divergence wrong."""
    if shutil.which("objdump") is None:
        pytest.skip("not run: objdump is missing (binutils)")
    with cuda.profile():
        mod.of_its_time[1, 4](np.zeros(4, np.float32))
    library = next(lib.path for key, lib in mod._libraries.items() if key[0] == "traced")
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "-C", library], capture_output=True,
                          text=True, env=os.environ | {"LC_ALL": "C"}).stdout
    bodies = {part.split(">:")[0].split("<", 1)[1]: part for part in text.split("\n\n") if ">:" in part}
    hooked = {name for name, body in bodies.items() if "<__sanitizer_cov_trace_pc" in body
              or "<__tsan_func_entry" in body}
    callers = ("laptop::host_launch", "laptop::launch_with", "laptop::call", "laptop_entr", "laptop_table",
               "_GLOBAL_", "__do_global", "std::")
    checked = [name for name in bodies if name not in hooked and not any(c in name for c in callers)]
    assert any(name.startswith("__hlt(") for name in checked)
    for name, body in bodies.items():
        if name in checked:
            assert not [other for other in hooked if f"<{other}>" in body], name


def test_every_variable_of_a_declaration_is_known(mod):
    assert {"a", "b", "c", "d", "e"} <= set(mod.globals)
    mod.globals["a"], mod.globals["b"] = 0, 3
    mod.counts_up[1, 1]()
    checked(mod.counts_up, 1, 1)                    # another build, the same variables
    assert int(mod.globals["a"][0]) == 2 and int(mod.globals["b"][0]) == 5
    assert [float(v) for v in mod.globals["d"]] == [1, 2, 3, 4] and float(mod.globals["e"][0]) == 5


def test_a_parameter_list_with_an_if_in_it(mod):
    y = np.zeros(4, np.float32)
    mod.either[1, 4](ramp(4), ramp(4), y, 4)
    assert y.tolist() == [0, 1, 4, 9]
    mod.either[1, 4](ramp(4), weight=ramp(4), y=y, n=2)
    wide = cuda.compile("#define WIDE\n" + SOURCE)
    wide.either[1, 4](ramp(4), np.ones(4), 1, y, n=4)
    assert y.tolist() == [0, 1, 2, 3]


def test_a_kernel_and_a_host_function_of_one_name(mod):
    mod["ops::twice"][1, 3](x := ramp(3))
    assert x.tolist() == [0, 2, 4]
    mod["ops::more<float, 5>"][1, 3](x)
    mod["ops::sum<int, int>"][1, 3](x, 10, 20)
    assert x.tolist() == [35, 37, 39]


LIBRARY = {
    "common.h": """#pragma once
#include <cublas_v2.h>
cublasHandle_t handle;
static cublasHandle_t other;
void setup_main() { cublasCreate(&handle), cublasSgemm(other); }
""",
    "layer.cu": """#include "common.h"
#include <torch/extension.h>
#define TORCH_BINDING(name, type) torch::Tensor name##_torch(torch::Tensor x) { name(x.data_ptr<type>()); return x; }
torch::Tensor forward(torch::Tensor x);
__global__ void add_one(float* x, const __nv_bfloat16* b, half h) {
    float at = (float)b[threadIdx.x];
    x[threadIdx.x] += at + (float)h;
}
TORCH_BINDING(add_one, float)
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("add_one", &add_one_torch); }
void call() { setup_main(); }
__global__ void twice(float* x) { x[threadIdx.x] *= 2; }
void kept(float* x) { twice<<<1, 2>>>(x); }
int main() { call(); return 0; }
"""}


def test_host_code_of_libraries_is_left_out_across_files(tmp_path):
    for name, text in LIBRARY.items():
        (tmp_path / name).write_text(text)
    mod = cuda.load(tmp_path / "layer.cu")
    import torch
    mod.add_one[1, 2](x := torch.zeros(2), torch.tensor([1.0, 2.0]).bfloat16(), 0.5)
    mod.host("kept")(x)
    assert x.tolist() == [3, 5]
    with pytest.raises(cuda.CompileError, match="line 2: .*'missing'"):
        cuda.compile("#include <cublas_v2.h>\n__global__ void k(float* x) { x[0] = missing; }\n")


def test_folders_for_includes(tmp_path):
    (tmp_path / "utils").mkdir()
    (tmp_path / "utils" / "utils.h").write_text("#pragma once\n"
                                                "#define LANE(x) asm(\"mov.u32 %0, %%laneid;\" : "
                                                "\"=r\"(x))\n")
    text = '#include "utils.h"\n__global__ void k(unsigned* x) { unsigned l; LANE(l); x[l] = l; }\n'
    (tmp_path / "k.cu").write_text(text)
    with pytest.raises(cuda.CompileError, match="there is no utils.h"):
        cuda.load(tmp_path / "k.cu")
    for mod in (cuda.load(tmp_path / "k.cu", include=[tmp_path / "utils"]),
                cuda.compile(text, include=[tmp_path / "utils"])):
        mod.k[1, 4](x := np.zeros(4, np.uint32))
        assert x.tolist() == [0, 1, 2, 3]
    first, again = (cuda.load(tmp_path / "k.cu", [tmp_path / "utils"]) for _ in range(2))
    assert first is again
