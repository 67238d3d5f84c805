"""What the engine tests share: three thread orders, two compilers, and launches counted in one line."""
from __future__ import annotations

import functools
import os
import shutil

import pytest

from course_lib import cuda

ORDERS = [pytest.param({"order": "forward"}, id="forward"), pytest.param({"order": "reverse"}, id="reverse"),
          pytest.param({"order": "seeded", "seed": 7}, id="seeded")]
COMPILERS = ["g++", pytest.param("clang++", marks=pytest.mark.slow)]


@functools.lru_cache(maxsize=None)
def compiled(source: str, compiler: str = ""):
    """A module, built once a session; `compiler` names another one than the default."""
    if not compiler:
        return cuda.compile(source)
    if shutil.which(compiler) is None:
        pytest.skip(f"not run: {compiler} is not installed")
    before = os.environ.get("CXX")
    os.environ["CXX"] = compiler
    try:
        return cuda.compile(source)
    finally:
        if before is None:
            del os.environ["CXX"]
        else:
            os.environ["CXX"] = before


def counted(kernel, grid, block, *args, shared: int = 0):
    """The counts of one launch."""
    with cuda.profile() as report:
        kernel[grid, block, shared](*args)
    assert len(report.launches) == 1
    return report.launches[0]


def line_of(source: str, marker: str) -> set[int]:
    """The numbers of the lines that carry `marker`, counted from 1."""
    return {number for number, line in enumerate(source.splitlines(), 1) if marker in line}
