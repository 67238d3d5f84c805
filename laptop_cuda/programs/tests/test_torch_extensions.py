"""Kernels of torch extensions: the host code is left out, its types in kernels work."""
import ctypes
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import checked, compiled, compiler, counted, fault, line_of  # noqa: F401

TEXTS = tomllib.loads(Path(__file__).with_name("torch_extensions.toml").read_text(encoding="utf-8"))
SOURCE, NAMES = TEXTS["source"], TEXTS["names"]


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
    for name, text in TEXTS["others"].items():
        (tmp_path / name).write_text(text)
    mod, x = cuda.load(tmp_path / "k.cu"), np.zeros(1, np.float32)
    mod.near[1, 1](x)
    assert x[0] == 2 and mod.kernels == ["near"] and "HIDDEN" not in mod.constants
    assert cuda.load(tmp_path / "k.cu", define={"WITH_HIDDEN": 1}).HIDDEN == 4
