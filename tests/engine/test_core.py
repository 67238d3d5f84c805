"""The core alone: it imports no pack, and works when any of their folders, or all of them, are gone."""
import ast
import os
import re
import shutil
import subprocess
import sys

import pytest

from laptop_cuda import build
from laptop_cuda.packs import core_alone

PACKS = sorted(file.parent.name for file in build.PACKAGE.glob("*/pack.toml"))
USE = r"""
import numpy as np
import laptop_cuda as cuda
mod = cuda.compile('''
#include <cuda_fp16.h>
#include <device_functions.h>
__device__ int blocks;
__global__ void turn(const float* x, float* y, int n) {
    __shared__ float s[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0) atomicAdd(&blocks, 1);
    s[threadIdx.x] = i < n ? __half2float(__float2half(x[i])) : 0;
    __syncthreads();
    if (i < n) y[i] = s[31 - threadIdx.x];
}''')
x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
mod.turn[2, 32](x, y, 64)
assert mod.globals["blocks"].tolist() == [2] and (y == x.reshape(2, 32)[:, ::-1].ravel()).all()
with cuda.profile() as report:
    mod.turn[2, 32](x, y, 64)
assert report.launches[0].global_load.sectors == 8
try:
    with cuda.sanitize():
        mod.turn[3, 32](x, y, 70)
except cuda.KernelError as error:
    assert error.kind == "out of bounds" and "x[64]" in str(error)
    print("found")
assert cuda.show and cuda.inspect
try:
    print(cuda.run.__name__)
except ImportError as missing:
    print("this is in the pack `programs`" in str(missing))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A copy of the engine: one, since packs without headers leave its runtime as it is, which is built once."""
    made = tmp_path_factory.mktemp("alone") / "laptop_cuda"
    return shutil.copytree(build.PACKAGE, made, ignore=shutil.ignore_patterns("__pycache__", "tests", "built"))


def works_without(gone, package):
    for pack in gone:
        (package / pack).rename(package.parent / pack)
    place = {"cwd": package.parent, "capture_output": True, "text": True, "env": os.environ | {
        "PYTHONPATH": str(package.parent), "LAPTOP_CUDA_CACHE": str(build.cache().parent)}}
    asks = f"{USE}print(cuda.build.runtime_library(False).parent.name)"
    ran = subprocess.run([sys.executable, "-c", asks], **place)
    core = build.runtime_library(False).parent.name      # the one of the tree that was copied
    assert ran.stdout.split() == ["found", "True" if "programs" in gone else "run", core], ran.stderr
    said = subprocess.run([sys.executable, "-m", "laptop_cuda", "--help"], **place).stdout
    for pack, command in (("programs", "run prog.cu"), ("judge", "judge FOLDER"),
                          ("bench", "bench [engine]")):
        assert (command in said) == (pack not in gone)
    for pack in gone:
        (package.parent / pack).rename(package / pack)


def test_it_works_without_all(package):
    works_without(PACKS, package)


@pytest.mark.slow
def test_it_works_without_each(package):
    for pack in PACKS:
        works_without([pack], package)


def test_no_module_and_no_header_of_the_core_takes_one_of_a_pack():
    taken = {name.name for pack in PACKS for name in (build.PACKAGE / pack / "include").glob("*")}
    taken -= {path.name for path in (build.PACKAGE / "include").glob("*")}
    for path in build.PACKAGE.rglob("*"):
        parts = path.relative_to(build.PACKAGE).parts
        if parts[0] in PACKS or "tests" in parts or not path.is_file():
            continue
        if path.suffix == ".py":
            nodes = [n for n in ast.walk(ast.parse(path.read_text()))
                     if isinstance(n, ast.Import | ast.ImportFrom)]
            words = {word for node in nodes
                     for name in [getattr(node, "module", "") or "", *(a.name for a in node.names)]
                     for word in name.split(".")}
            assert not words & set(PACKS), path
        elif parts[0] in ("include", "runtime"):
            included = re.findall(r'#\s*include\s*[<"]([^>"/]+)', path.read_text())
            assert not set(included) & taken, path


def test_a_first_kernel_waits_for_the_core_alone():
    own = "#include <each_thread.h>\n#include <cmath>\n# include \"cuda_runtime.h\"\n#include<cooperative_groups.h>\n"
    assert core_alone(own) and build.runtime_library(False) != build.runtime_library()
    for name in ("<host_launch.h>", "<cuda/barrier>", "<cub/cub.cuh>", "<omp.h>", "<cuda/std/array>", "<cudaTypedefs.h>",
                 '"/of/the/cache/rewritten.h"', '"beside.h"', "MACRO"):
        assert not core_alone(f"{own}#include {name}\nint after;\n"), name
