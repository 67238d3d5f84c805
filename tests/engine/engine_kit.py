"""What the engine tests share: three thread orders, two compilers, and launches counted in one line."""
import contextlib
import functools
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import laptop_cuda as cuda
from laptop_cuda import gpu
from laptop_cuda.inside import toolkit

ORDERS = [pytest.param({"order": "forward"}, id="forward"), pytest.param({"order": "reverse"}, id="reverse"),
          pytest.param({"order": "seeded", "seed": 7}, id="seeded")]
EVERY_ORDER = [contextlib.nullcontext, *(functools.partial(cuda.sanitize, **o.values[0]) for o in ORDERS),
               functools.partial(cuda.sanitize, order="early")]
WAYS = {"plain": contextlib.nullcontext, "sanitize": cuda.sanitize, "profile": cuda.profile}
COUNTS = ("global_load", "global_store", "shared_load", "shared_store", "atomics", "barriers")
# kernels whose launches are played and replayed
PLAYED = """
__global__ void transpose(const float* x, float* out) {
    __shared__ float tile[32][32];
    for (int r = threadIdx.y; r < 32; r += 8) tile[r][threadIdx.x] = x[r * 32 + threadIdx.x];
    __syncthreads();
    for (int r = threadIdx.y; r < 32; r += 8) out[r * 32 + threadIdx.x] = tile[threadIdx.x][r];     // conflicts
}
__global__ void odd_ones(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float s = 0;
    for (int k = 0; k < 4; ++k) {
        if ((k & 1) == (i & 1)) s += x[k * n + i];              // diverges
    }
    out[i] = s;
}
__global__ void reverse(const float* x, float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];                            // writes
    y[threadIdx.x] = s[63 - threadIdx.x];                       // reads
}
__device__ int calls;
__global__ void histogram(const int* x, int* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[x[i]], 1);                       // counts
    if (i == 0) calls = calls + 1;
}
__global__ void lane_sum(const float4* x, float* y) {
    float v = x[threadIdx.x].x;
    for (int o = 16; o; o /= 2) v += __shfl_xor_sync(0xffffffff, v, o);      // shuffles
    if (threadIdx.x == 0) y[0] = v;
}
"""
PLAYED_WITH = {         # grid, block and arguments
    "transpose": lambda: (1, (32, 8), ramp(32, 32), np.zeros((32, 32), np.float32)),
    "odd_ones": lambda: (2, 50, ramp(4, 77), np.zeros(77, np.float32), 77),
    "histogram": lambda: (3, 31, np.arange(80, dtype=np.int32) % 5, np.zeros(5, np.int32), 80),
    "lane_sum": lambda: (1, 32, ramp(32, 4), np.full(1, np.nan, np.float32))}
COMPILERS = ["g++", pytest.param("clang++", marks=pytest.mark.slow)]


@functools.lru_cache(maxsize=None)
def _compiled(source: str, compiler: str):
    return cuda.compile(source)


def compiled(source: str):
    """A module, built once per session and compiler."""
    return _compiled(source, os.environ.get("CXX", ""))


def data_of(name: str) -> dict:
    """Of a TOML file beside the tests."""
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def mod(request):
    """The SOURCE of a file of tests."""
    return compiled(request.module.SOURCE)


@pytest.fixture
def with_nvcc():
    if gpu.nvcc() is None:
        pytest.skip("not run: nvcc is missing (NVIDIA's CUDA toolkit, or pip install \".[inside]\")")


@pytest.fixture
def with_disassembler(with_nvcc):
    if toolkit.nvdisasm() is None:
        pytest.skip("not run: nvdisasm is missing (NVIDIA's CUDA toolkit, or pip install \".[inside]\")")


def use_compiler(monkeypatch, name: str) -> None:
    """Kernels and the runtime are built with this compiler until the test ends."""
    if shutil.which(name) is None:
        pytest.skip(f"not run: {name} is not installed")
    monkeypatch.setenv("CXX", name)


@pytest.fixture(params=COMPILERS)
def compiler(request, monkeypatch) -> str:
    use_compiler(monkeypatch, request.param)
    return request.param


def counted(kernel, grid, block, *args, shared: int = 0, **how):
    """The counts of one launch."""
    with cuda.profile(**how) as report:
        kernel[grid, block, shared](*args)
    assert len(report.launches) == 1
    return report.launches[0]


def checked(kernel, grid, block, *args, shared: int = 0, **how) -> None:
    """One launch under the sanitizer."""
    with cuda.sanitize(**how):
        kernel[grid, block, shared](*args)


def fault(kernel, grid, block, *args, **how) -> cuda.KernelError:
    """What the sanitizer says of one launch that is wrong."""
    with pytest.raises(cuda.KernelError) as caught:
        checked(kernel, grid, block, *args, **how)
    return caught.value


def interrupted(script: str, **environment: str) -> tuple[str, float]:
    """Ctrl-C a second after a script has said `ready`: what it says after `interrupted`, and after how many seconds."""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True,
                               env=os.environ | environment)
    timer = threading.Timer(30, process.kill)
    try:
        assert process.stdout.readline() == "ready\n"
        timer.start()
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        begun = time.monotonic()
        assert process.stdout.readline() == "interrupted\n"
        return process.stdout.readline(), time.monotonic() - begun
    finally:
        timer.cancel()
        process.kill()
        process.wait()


def rounded(value: Fraction, digits: int, finest: int, mode: str = "rn") -> float:
    """The number of a format next to an exact one: the nearest (of two the even one), or in one direction."""
    if not value:
        return 0.0
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent                      # 2^exponent <= size < 2^(exponent + 1)
    unit = Fraction(2) ** max(exponent - digits + 1, finest)
    away = mode == "ru" and value > 0 or mode == "rd" and value < 0
    result = (round if mode == "rn" else math.ceil if away else math.floor)(size / unit) * unit
    largest = Fraction(2) ** (2 - finest - digits) * (2 - Fraction(2) ** (1 - digits))
    found = math.inf if result > largest and (away or mode == "rn") else float(min(result, largest))
    return -found if value < 0 else found


def ramp(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def line_of(source: str, marker: str) -> set[int]:
    """The numbers of the lines that carry `marker` as whole words, counted from 1."""
    return {number for number, line in enumerate(source.splitlines(), 1) if marker + " " in line + " "}
