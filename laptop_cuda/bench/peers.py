"""Who else runs `bench`'s kernels on a CPU: HIP-CPU, pocl and Oclgrind, each where it is found."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Iterator

from .. import build
from .kernels import Case

# HIP-CPU has neither masks nor a barrier of a warp: shuffles without them, and the barrier of the block.
HIP = """
#include <hip/hip_runtime.h>
#include <stdio.h>
#include <time.h>
#include <algorithm>
#include <vector>
#define __shfl_xor_sync(mask, value, other) __shfl_xor(value, other)
#define __syncwarp() __syncthreads()
#define __expf expf
"""
# Its hipDeviceSynchronize() may return while threads still work: a launch alone may seem to cost nothing.
TOGETHER = 5
HIP_MAIN = """
static double now() {{
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}}
int main(int, char** words) {{
    int n = atoi(words[1]), runs = atoi(words[2]);
    std::vector<std::vector<float>> a = {{{arrays}}};
    FILE* file = fopen(words[3], "rb");
    for (auto& x : a) if (fread(x.data(), 4, x.size(), file) != x.size()) return 1;
    double best = 1e9;
    for (int i = 0; i < runs; ++i) {{
        double start = now();
        for (int k = 0; k < {together}; ++k) {{
            hipLaunchKernelGGL({name}, dim3({grid}), dim3({block}), 0, 0, {given});
            hipDeviceSynchronize();
        }}
        best = std::min(best, (now() - start) / {together});
    }}
    file = fopen(words[3], "wb");
    for (auto& x : a) fwrite(x.data(), 4, x.size(), file);
    fclose(file);
    printf("%.9f", best);
}}
"""


def peers(folder: Path, case: Case, n: int) -> Iterator[tuple[str, float | None, str]]:
    """(name, seconds of all its threads or None, why not)."""
    yield "HIP-CPU", *hip_cpu(folder, case, n)
    yield "pocl", *opencl({}, case, n, 15)
    if n > 64:                           # Oclgrind would take minutes
        return
    tool = shutil.which("oclgrind")
    library = next(Path(tool).resolve().parents[1].glob("lib*/**/liboclgrind-rt.so"), None) if tool else None
    name = "Oclgrind, races and uninitialised reads"
    if library is None:
        yield name, None, "Oclgrind is not installed"
    else:
        checks = {"OCLGRIND_DATA_RACES": "1", "OCLGRIND_UNINITIALIZED": "1"}
        yield name, *opencl({"LAPTOP_CUDA_OPENCL": str(library), **checks}, case, n, 1)


def opencl(environment: dict[str, str], case: Case, n: int, times: int) -> tuple[float | None, str]:
    command = [sys.executable, "-m", "laptop_cuda.bench.opencl", case.name, str(n), str(times)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    try:
        answer = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        reason = (done.stderr.strip().splitlines() or ["failed"])[-1]
        return None, reason[:70]
    if answer["error"] > 1e-3:
        return None, f"its result is off by {answer['error']:.1g}"
    return answer["seconds"], ""


def hip_cpu(folder: Path, case: Case, n: int) -> tuple[float | None, str]:
    where = os.environ.get("HIP_CPU")
    if not where:
        return None, "HIP_CPU is not set to the folder of a checkout"
    program = folder / f"hip-{case.name}-{n}"
    if not program.exists():
        source = program.with_suffix(".cpp")
        source.write_text(HIP + case.source + hip_main(case, n))
        command = [*build.compiler().command, "-std=c++17", "-O2", "-w", f"-I{Path(where) / 'include'}",
                   str(source), "-ltbb", "-lpthread", "-o", str(program)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return None, done.stderr.strip().splitlines()[0][:70]
    arrays, data = case.arrays(n), folder / "arrays"
    data.write_bytes(b"".join(a.tobytes() for a in arrays))
    done = subprocess.run([str(program), str(n), "15", str(data)], capture_output=True, text=True)
    if done.returncode:
        return None, f"it ends with status {done.returncode}"
    result = data.read_bytes()[-arrays[-1].nbytes:]
    arrays[-1].data.cast("B")[:] = result
    if case.error(arrays) > 1e-3:
        return None, f"its result is off by {case.error(arrays):.1g}"
    return float(done.stdout), ""


def hip_main(case: Case, n: int) -> str:
    arrays = ", ".join(f"std::vector<float>({rows * columns})" for rows, columns in case.shapes(n))
    scalars = [f"{x}f" if isinstance(x, float) else str(x) for x in case.scalars(n)]
    given = ", ".join([f"a[{i}].data()" for i in range(len(case.shapes(n)))] + scalars)
    return HIP_MAIN.format(arrays=arrays, name=case.name, given=given, together=TOGETHER,
                           grid=", ".join(map(str, case.grid(n))), block=", ".join(map(str, case.block)))
