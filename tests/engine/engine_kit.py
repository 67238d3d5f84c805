"""What the engine tests share: three thread orders, two compilers, and launches counted in one line."""
import functools
import os
import shutil

import numpy as np
import pytest

import laptop_cuda as cuda

ORDERS = [pytest.param({"order": "forward"}, id="forward"), pytest.param({"order": "reverse"}, id="reverse"),
          pytest.param({"order": "seeded", "seed": 7}, id="seeded")]
COUNTS = ("global_load", "global_store", "shared_load", "shared_store", "atomics", "barriers")
COMPILERS = ["g++", pytest.param("clang++", marks=pytest.mark.slow)]


@functools.lru_cache(maxsize=None)
def _compiled(source: str, compiler: str):
    return cuda.compile(source)


def compiled(source: str):
    """A module, built once per session and compiler."""
    return _compiled(source, os.environ.get("CXX", ""))


def use_compiler(monkeypatch, name: str) -> None:
    """Kernels and the runtime are built with this compiler until the test ends."""
    if shutil.which(name) is None:
        pytest.skip(f"not run: {name} is not installed")
    monkeypatch.setenv("CXX", name)


def counted(kernel, grid, block, *args, shared: int = 0):
    """The counts of one launch."""
    with cuda.profile() as report:
        kernel[grid, block, shared](*args)
    assert len(report.launches) == 1
    return report.launches[0]


def ramp(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.float32)


def line_of(source: str, marker: str) -> set[int]:
    """The numbers of the lines that carry `marker` as whole words, counted from 1."""
    return {number for number, line in enumerate(source.splitlines(), 1) if marker + " " in line + " "}
