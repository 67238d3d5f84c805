"""`python -m laptop_cuda bench`: how fast the engine builds and runs, all in one process, as ratios too.

Times depend on the machine; the ratios much less. Every build here is a fresh one, in a cache of its own,
and its time is what the clock on the wall says; beside it is what the compiler itself used. A run's time
is what the process used, of all its threads, so that a busy machine does not count; of plain runs, which
use all cores, the clock's is in a row of its own."""
import argparse
import ctypes
import os
import resource
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Callable

import numpy as np

import laptop_cuda as cuda

from .. import build
from .kernels import CASES, FLASH, Case

def best(work: Callable[[], object], times: int = 5, clock: Callable[[], float] = time.process_time) -> float:
    """Seconds, the least of a few runs: of all threads of this process, unless another clock is given."""
    taken = []
    for _ in range(times):
        start = clock()
        work()
        taken.append(clock() - start)
    return min(taken)


def built(what: str, work: Callable[[], object], times: int = 3) -> None:
    """A row for the median of a few builds."""
    taken = []
    for _ in range(times):
        start, before = time.perf_counter(), used_by_children()
        work()
        taken.append((time.perf_counter() - start, used_by_children() - before))
    wall, used = sorted(taken)[times // 2]
    row(what, wall, f"({used:.2f} s of compiler)")


def used_by_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def fresh(source: str) -> str:
    """The same source under another key."""
    fresh.count = getattr(fresh, "count", 0) + 1
    return f"{source}// build {os.getpid()}.{fresh.count}\n"


def row(what: str, seconds: float, note: str) -> None:
    shown = f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
    print(f"  {what:<54} {shown:>10}  {note}", flush=True)


def builds() -> None:
    tool = build.compiler()
    print(f"Builds, {tool.version.splitlines()[0]}")
    built("runtime, once for a machine", build.runtime_library, times=1)
    built("kernel of 60 lines, plain", lambda: build_only(False))
    built("kernel of 60 lines, traced", lambda: build_only(True))

    def cell():      # what %%cuda does: the sanitized build, then a launch
        arrays = CASES[1].arrays(32)
        with cuda.sanitize():
            cuda.compile(fresh(FLASH)).flash[1, 128](*arrays, 32, 0.125, 0)
    built("from an edited %%cuda cell to its first result", cell)


def build_only(traced: bool) -> None:
    cuda.Module(fresh(FLASH), "bench.cu", traced=traced)


def loop(folder: Path, case: Case) -> Callable[[list[np.ndarray], int], None]:
    """The case as a plain C++ loop, built."""
    source, made = folder / f"{case.name}.cpp", folder / f"{case.name}.so"
    source.write_text(case.loop)
    flags = ["-O2", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run([*build.compiler().command, *flags, str(source), "-o", str(made)], check=True)
    function = ctypes.CDLL(str(made)).loop

    def run(arrays, n):
        scalars = (ctypes.c_float(x) if isinstance(x, float) else ctypes.c_int(x) for x in case.scalars(n))
        function(*(ctypes.c_void_p(a.ctypes.data) for a in arrays), *scalars)
    return run


def with_fibers(work: Callable[[], object]) -> None:
    os.environ["LAPTOP_CUDA_FIBERS"] = "1"
    try:
        work()
    finally:
        del os.environ["LAPTOP_CUDA_FIBERS"]


def kernel(folder: Path, case: Case, n: int) -> None:
    """One kernel at one size, ours and the loop, as multiples of our plain run."""
    mod, arrays, run_loop = cuda.compile(case.source), case.arrays(n), loop(folder, case)

    def plain():
        getattr(mod, case.name)[case.grid(n), case.block](*arrays, *case.scalars(n))

    def traced(kind):
        with kind():
            plain()
    plain(), traced(cuda.profile)                                  # builds
    error = case.error(arrays)
    assert error < 1e-3, error
    print(f"\n{case.name}, n = {n}; largest error {error:.0e}; as multiples of the plain run")
    quick = best(plain, 15)

    def compared(what: str, seconds: float) -> None:
        ratio = seconds / quick
        row(what, seconds, f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}")
    compared("plain", quick)
    compared("plain, by the clock, on the cores that there are", best(plain, 15, time.perf_counter))
    compared("plain, with a fiber per thread", best(lambda: with_fibers(plain), 5))
    compared("a plain C++ loop, -O2", best(lambda: run_loop(arrays, n), 15))
    compared("profiled", best(lambda: traced(cuda.profile), 3))
    compared("sanitized", best(lambda: traced(cuda.sanitize), 3))


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m laptop_cuda bench", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["engine"], nargs="?", default="engine")
    parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        before = os.environ.get("LAPTOP_CUDA_CACHE")
        os.environ["LAPTOP_CUDA_CACHE"] = name
        build.cache.cache_clear()
        try:
            builds()
            for case in CASES:
                for n in (64, 256):
                    kernel(Path(name), case, n)
        finally:
            os.environ.pop("LAPTOP_CUDA_CACHE")
            if before is not None:
                os.environ["LAPTOP_CUDA_CACHE"] = before
            build.cache.cache_clear()
    return 0
