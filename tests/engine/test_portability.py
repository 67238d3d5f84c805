"""Other compilers, another processor, the fibers' fallback, and the runtime under sanitizers."""
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import laptop_cuda as cuda
from laptop_cuda import build
from laptop_cuda.rewrite import rewrite

HERE = Path(__file__).parent
pytestmark = pytest.mark.slow

KERNELS = r"""
#include <cuda_fp16.h>
#include <cooperative_groups.h>
__global__ void sum_of_rows(const float* x, float* y, int n) {
    __shared__ float s[128];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    float v = 0;
    for (int k = i; k < n; k += gridDim.x * blockDim.x) v += t % 3 ? x[k] : expf(x[k] / 4);
    s[t] = v;
    __syncthreads();
    for (int d = 64; d > 0; d /= 2) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    y[i] = s[t / 2] + (float)__float2half(v);
}
__global__ void warps(const float* x, float* y, int n) {
    auto tile = cooperative_groups::tiled_partition<16>(cooperative_groups::this_thread_block());
    float v = x[threadIdx.x];
    for (int d = 8; d > 0; d /= 2) v += tile.shfl_down(v, d);
    if (threadIdx.x >= n / 2) return;
    atomicAdd(&y[0], v);
    y[1 + threadIdx.x] = __shfl_xor_sync(0xffffffff, v, 3);
}
__global__ void race(const float* x, float* y, int n) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = s[63 - threadIdx.x];
}
__global__ void outside(const float* x, float* y, int n) { y[threadIdx.x] = x[threadIdx.x + n]; }
"""


def needs(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"not run: {program} is not installed")


def shell(*command: object, **more) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600, **more)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def kernel_source() -> str:
    """KERNELS as the engine compiles them, with their entries."""
    names = ("sum_of_rows", "warps", "race", "outside")
    entries = "".join(f'extern "C" __attribute__((visibility("default"))) void laptop_entry_{i}(void** args) '
                      f"{{ laptop::call(&{name}, args); }}\n" for i, name in enumerate(names))
    return f'#include <cuda_runtime.h>\n#line 1 "kernels.cu"\n{rewrite(KERNELS)}\n{entries}'


def run_without_python(folder: Path, compiler: str, *emulator: str) -> str:
    """Builds the core's runtime, the kernels and arm64_main.cpp with one compiler, and runs them."""
    folder.mkdir()
    tool = build.Compiler((compiler,), "clang" in compiler, "")
    (folder / "kernels.cpp").write_text(kernel_source())
    runtime = build.build_runtime(tool, "", folder, (), whole=False)
    libraries = []
    for name, flags in (("plain", tool.plain()), ("traced", tool.traced())):
        libraries.append(folder / f"{name}.so")
        shell(compiler, *build.COMMON, *flags, f"-I{build.HEADERS}", "-c", folder / "kernels.cpp", "-o",
              folder / f"{name}.o")
        shell(compiler, folder / f"{name}.o", "-shared", "-o", libraries[-1], runtime,
              f"-Wl,-rpath,{runtime.parent}")
    shell(compiler, "-std=c++17", f"-I{build.HEADERS}", HERE / "arm64_main.cpp", "-o", folder / "main",
          runtime, f"-Wl,-rpath,{runtime.parent}", "-ldl")
    return shell(*emulator, folder / "main", *libraries)


def test_arm64_gives_the_same_results_and_counts(tmp_path):
    """The hand-written switch, the hooks and the counts, under qemu-user."""
    needs("aarch64-linux-gnu-g++", "qemu-aarch64")
    here = run_without_python(tmp_path / "native", "g++")
    there = run_without_python(tmp_path / "arm64", "aarch64-linux-gnu-g++", "qemu-aarch64", "-L",
                               "/usr/aarch64-linux-gnu")
    assert there == here
    assert "race, " in here and "out of bounds, " in here and here.count("\n") == 6 + 18 + 12


def suite(files: list[str], environment: dict[str, str], *options: str) -> None:
    """The quick tests of some files, in a process of their own. What is preloaded there is for the
    runtime: a compiler that starts under libasan takes twice as long."""
    start = "import os, sys, pytest; os.environ.pop('LD_PRELOAD', 0); sys.exit(pytest.main())"
    done = subprocess.run([sys.executable, "-c", start, "-q", "-x", "-p", "no:cacheprovider", "-m",
                           "not slow", *options, *(str(HERE / f) for f in files)], capture_output=True,
                          text=True, timeout=1800, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


ENGINE = ["test_counts.py", "test_bugs.py", "test_clean.py", "test_language.py", "test_half.py"]


# the first is the quick suite's
COMPILERS = ["g++", "clang++", "clang++-14", "clang++-19", "g++-11", "g++-12"]


@pytest.mark.parametrize("compiler", COMPILERS[1:])
def test_the_suite_with_another_compiler(compiler):
    needs(compiler)
    for other in COMPILERS[:COMPILERS.index(compiler)]:
        if Path(shutil.which(other) or "").resolve() == Path(shutil.which(compiler)).resolve():
            pytest.skip(f"not run: {compiler} is {other}, which has its run")
    # g++ 11 keeps the headers in its blocks: an endless loop around an atomic has no line of its own.
    without = ["-k", "not waits_for_the_next_block"] if compiler == "g++-11" else []
    suite(ENGINE[1:], {"CXX": compiler}, *without)
    suite(["../tools/test_gpu_cases.py"], {"CXX": compiler}, "-k",
          "on_the_engine and (attend_by_group or backward_keys and bias or paged_decode_warps and 7 or delta_chunks)")


def test_the_suite_with_the_compiler_of_ziglang():
    """Its counts and its asserts. The rest by hand, in a Python that has it:
    CXX="python -m ziglang c++" python -m pytest -m "not slow" tests/engine/test_{bugs,clean,language,half}.py"""
    pytest.importorskip("ziglang", reason="not run: the package ziglang is not installed")
    suite(["test_counts.py", "test_language.py"], {"CXX": f"{sys.executable} -m ziglang c++"},
          "-k", "test_counts or assert or trap")


OPENMP = r"""
#include <omp.h>
#include <cstdio>
__global__ void k(int* x) { x[threadIdx.x] = 1; }
int main() {
    int* x;
    cudaMalloc(&x, 4 * 32);
    k<<<1, 32>>>(x);
    int sum = 0, wide = 0;
    double start = omp_get_wtime();
#pragma omp parallel for reduction(+ : sum) num_threads(2)
    for (int i = 0; i < 8; ++i) sum += x[i], wide = omp_get_num_threads();
    printf("%d %d %d\n", sum, wide, omp_get_wtime() >= start);
}
"""


@pytest.mark.parametrize("compiler, threads", [("g++", 2), ("clang++", 1)])
def test_openmp_also_where_the_compiler_has_none(compiler, threads, monkeypatch, tmp_path):
    needs(compiler)
    if build.has_openmp((shutil.which("clang++") or "",)):
        pytest.skip("not run: clang++ has OpenMP here")
    monkeypatch.setenv("CXX", compiler)
    (tmp_path / "prog.cu").write_text(OPENMP)
    assert cuda.run(tmp_path / "prog.cu").stdout == f"8 {threads} 1\n"
    assert cuda.load(tmp_path / "prog.cu").kernels == ["k"]


@pytest.mark.parametrize("module", [name.removesuffix(".py") for name in ENGINE])
def test_nvcc_takes_the_same_sources(module, tmp_path):
    """What the laptop runs is CUDA C++, not a dialect of ours. Later cards take what sm_80 takes."""
    needs("nvcc")
    (tmp_path / "kernels.cu").write_text(importlib.import_module(module).SOURCE)
    shell("nvcc", "-std=c++17", "-arch=sm_80", "-cubin", tmp_path / "kernels.cu", "-o", tmp_path / "kernels.cubin")


def test_the_fallback_fibers():
    """ucontext, for processors without a switch of their own."""
    suite(["test_clean.py", "test_bugs.py"], {"LAPTOP_CUDA_RUNTIME_FLAGS": "-DLAPTOP_UCONTEXT"}, "-k",
          "forward or plain")


def test_the_runtime_under_address_and_undefined_sanitizers():
    """Undefined behaviour traps: the runtime answers `__ubsan_handle_...` itself, so nothing may report."""
    library = shell("g++", "-print-file-name=libasan.so").strip()
    if not os.path.isabs(library):
        pytest.skip("not run: libasan is not installed")
    flags = "-O0 -fsanitize=address,undefined -fsanitize-undefined-trap-on-error -fno-omit-frame-pointer"
    suite(ENGINE, {"LAPTOP_CUDA_RUNTIME_FLAGS": flags, "LD_PRELOAD": library,
           "ASAN_OPTIONS": "detect_leaks=0:handle_segv=0:allow_user_segv_handler=1:detect_odr_violation=0"},
          "-s", "-k", "not shared_of_type and not (every_mode and plain)")        # these ask the compiler more than the runtime


def test_the_tracer_needs_bounded_memory():
    """10^8 traced accesses in less than 1 GiB."""
    program = r'''
import resource, torch
import laptop_cuda as cuda
mod = cuda.compile("__global__ void k(const float* x, float* y, int n) { float s = 0;"
                   " for (int i = 0; i < n; ++i) s += x[(threadIdx.x + i) % 1024]; y[threadIdx.x] = s; }")
x, y = torch.rand(1024), torch.zeros(1024)
with cuda.profile() as small:
    mod.k[1, 1024](x, y, 1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with cuda.profile() as report:
    mod.k[1, 1024](x, y, 97657)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert report.launches[0].global_load.requests == 32 * 97657
print(after - before)
'''
    grown = int(shell(sys.executable, "-c", program).split()[-1])
    assert grown < 1 << 20, f"{grown} KiB"
