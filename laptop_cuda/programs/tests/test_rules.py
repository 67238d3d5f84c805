"""Rules of CUDA, each with code that keeps it and code that breaks it: rules.toml has them, with where they are said."""
import tomllib
from pathlib import Path

import numpy as np
import pytest

import laptop_cuda

TABLE = tomllib.loads(Path(__file__).with_name("rules.toml").read_text(encoding="utf-8"))
START = "#include <mma.h>\n#include <cooperative_groups.h>\nusing namespace nvcuda;\n"
KERNEL = "__global__ void {}{}(float* x, int* y) {{\n    __shared__ float s[128]; int t = threadIdx.x; s[t] = t;\n    {}\n}}\n"


def test_kernels_that_keep_a_rule_are_clean_and_those_that_break_it_are_not():
    cases = [(name, n, *case) for name in ("right", "wrong") for n, case in enumerate(TABLE[name])]
    module = laptop_cuda.compile(START + "".join(KERNEL.format(name, n, body) for name, n, _, body, *_ in cases))
    for name, n, rule, _, *kind in cases:
        said = ""
        try:
            with laptop_cuda.sanitize() as notes:
                module[f"{name}{n}"][1, 64](np.zeros(1024, "f4"), y := np.zeros(64, "i4"))
            assert name == "wrong" or (len(notes) == len(kind) and "".join(kind) in str(notes) and (y == y[0]).all()), (rule, notes, y)
            kind = kind if name == "wrong" else ""
        except laptop_cuda.KernelError as error:
            said = error.kind
        assert said == "".join(kind), (rule, n, said)


def test_programs_that_keep_a_rule_are_clean_and_those_that_break_it_are_not(program):
    text, wanted = TABLE["program"], []
    for rule, right, wrong, said in TABLE["calls"]:
        text += f"    {{ {right} }}\n    cudaDeviceSynchronize();\n    {{ {wrong} }}\n    cudaDeviceSynchronize();\n"
        wanted.append((text.count("\n") - 1, said))
    ran = program(text + "}\n")
    told = [error["message"] for error in ran.errors] + ran.notes
    for line, said in wanted:
        assert [m for m in told if said in m and (f"line {line}" in m or "not cooperative" in m)], (said, told)
    assert len(told) == len(wanted) + TABLE["notes"] and ran.status == 0, told
