"""A page runs to its end whatever a cell holds, and without a compiler: in processes of their own."""
import os
import subprocess
import sys

import pytest

PAGE = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in ["from course_lib import cuda\\nfrom course_lib.exercises import check", *CELLS]:
    ended = shell.run_cell(cell, store_history=True)
    print("went on" if ended.success else "STOPPED", flush=True)
"""


def page(*cells: str, **environ) -> str:
    ran = subprocess.run([sys.executable, "-c", PAGE.replace("CELLS", repr(cells))], capture_output=True, text=True,
                         env=os.environ | environ)
    return ran.stdout + ran.stderr


CUDA = "%%cuda\n// EXERCISE 0.2\n__global__ void add(const float* x, const float* y, float* out, int n) {{ {} }}"
CHECKS = ['mix = check("0.1", mix)', 'add = check("0.2", add)']


def test_what_is_skipped_renamed_or_broken_stops_nothing_and_its_check_says_what_is_wrong():
    """It does not fall back to the cell as it was before, which was right."""
    said = page(*CHECKS, "# EXERCISE 0.1\ndef mixed(weights, values): return weights @ values", CHECKS[0],
                "# EXERCISE 0.1\ndef mix(weights, values):\n    return weights @ values",
                "# EXERCISE 0.1\ndef mix(weights, values:\n    return 1", CUDA.format("oops"), *CHECKS,
                "cuda.empty, mix, hint", "hint('0.1')", "# EXERCISE 0.1\nmix_of = 1 / 0", CHECKS[0], "1 / 0")
    assert said.count("STOPPED") == 1 and "✓ passed" not in said
    assert "cannot read the cell as it was last run: '(' was never closed" in said
    assert "'oops' was not declared" in said and "ZeroDivisionError" in said
    assert "does not define `mix`" in said and "NameError" not in said


def test_other_cells_raise_and_a_check_where_it_is_strict():
    said = page("1 / 0", "# EXERCISE 0.1\n1 / 0", CHECKS[0], COURSE_STRICT="1")
    assert said.count("STOPPED") == 3


def test_without_a_compiler_the_page_ends_and_says_so_once(tmp_path):
    said = page("%%cuda\n__global__ void who(int* b) { b[0] = 1; }", "b = who[1, 32](1)", "print(b)", CUDA.format(""),
                CHECKS[1], "add[1, 1]()", PATH="", CXX="", LAPTOP_CUDA_CACHE=str(tmp_path))
    assert "STOPPED" not in said and "– not run · Exercise 0.2" in said
    assert said.count("Not run, as there is no compiler") == 3
