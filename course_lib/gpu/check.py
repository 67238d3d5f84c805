"""`python -m course_lib gpu-check`: every kernel on this card against float64, and NVIDIA's tools if present.

compute-sanitizer and Nsight Compute run whatever the tests said, each within a time limit: a red kernel is no
reason not to learn what they say of the others."""
import argparse
import datetime
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from course_lib.files import ROOT
from course_lib.gpu.results import FOLDER

# The answers in float64 are the CPU's work: with pytest-xdist, several at a time.
SUITE = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider",
         *(["-n", str(min(6, os.cpu_count() or 1))] if find_spec("xdist") else [])]
# The tools are 10 to 100 times slower.
SANITIZED = ["tests/tools/test_gpu_cases.py", "-k", "on_the_card and small"]
ERRORS_FOUND = 86               # the exit code that compute-sanitizer is told to give
LIMIT = 900                     # seconds for the tests, and for each tool


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m course_lib gpu-check",
                                     description=__doc__.splitlines()[0])
    parser.add_argument("--no-tools", action="store_true",
                        help="without compute-sanitizer and Nsight Compute")
    parser.add_argument("--only", choices=("ncu",), help="this tool alone, without the tests")
    parser.add_argument("--limit", type=int, default=LIMIT, help="seconds for the tests, and for each tool")
    parser.add_argument("pytest", nargs="*", help="more for pytest, after --")
    asked = parser.parse_args(argv)
    import torch

    if not torch.cuda.is_available():
        print("gpu-check: there is no CUDA device here, so nothing was checked on one. The same cases run "
              "on the CPU engine in `make test`.", file=sys.stderr)
        return 1
    card = torch.cuda.get_device_name()
    print(f"{card}, torch {torch.__version__}", flush=True)
    if asked.only:
        return counted(shutil.which("ncu"), card, asked.limit)
    build_all(limit=asked.limit)
    worst = tested(asked.pytest, asked.limit)
    if not asked.no_tools:
        worst = max(worst, sanitized(shutil.which("compute-sanitizer"), asked.limit),
                    counted(shutil.which("ncu"), card, asked.limit))
    return worst


def build_all(kernels=(), limit: int = LIMIT) -> int:
    """The instances that these kernels' cases launch, or all: built here, not while a test waits."""
    return within(limit, "the build", [sys.executable, "-m", "course_lib.gpu.build", *kernels])[0]


def tested(more: list[str], limit: int) -> int:
    return within(limit, "the tests", [*SUITE, "tests", *more])[0]


def within(limit: float, name: str, command: list[str], capture: bool = False) -> tuple[int, str]:
    """Exit status and output of a command; after `limit` seconds it is ended, and that is said."""
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} if capture else {}
    try:
        done = subprocess.run(command, cwd=ROOT, timeout=limit, **how)
    except subprocess.TimeoutExpired as late:
        said = late.stdout or b""
        said = said.decode(errors="replace") if isinstance(said, bytes) else said
        print(f"{name} did not finish within {limit:g} s", flush=True)
        return 1, said
    return done.returncode, done.stdout or ""


def sanitized(tool: str | None, limit: float = LIMIT) -> int:
    """memcheck and racecheck over the small cases. A tool that cannot run here is named, and is no error."""
    if tool is None:
        print("compute-sanitizer was not found: not run")
        return 0
    worst = 0
    for check in ("memcheck", "racecheck"):
        command = [tool, "--tool", check, "--error-exitcode", str(ERRORS_FOUND),
                   "--target-processes", "all", *SUITE, *SANITIZED]
        status, said = within(limit, f"compute-sanitizer {check}", command, capture=True)
        end = "\n".join(said.splitlines()[-8:])
        found = re.search(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard", said)
        if found is None:
            print(f"compute-sanitizer {check} could not run here:\n{end}")
        elif status == ERRORS_FOUND or int(found[1] or found[2]):
            print(f"compute-sanitizer {check}: errors\n{end}")
            worst = 1
        elif status:
            print(f"compute-sanitizer {check}: no errors, but the tests under it are red\n{end}")
            worst = 1
        else:
            print(f"compute-sanitizer {check}: no errors")
    return worst


def counted(tool: str | None, card: str, limit: float = LIMIT) -> int:
    if tool is None:
        print("Nsight Compute (ncu) was not found: no counters")
        return 0
    from course_lib.gpu.counters import NotAllowed, compare

    try:
        print(compare(tool, card, datetime.date.today().isoformat(), folder_of(card), limit))
    except NotAllowed as problem:
        print(f"Nsight Compute could not run here: {problem}")
    except ValueError as problem:
        print(f"Nsight Compute: {problem}")
        return 1
    return 0


def folder_of(card: str) -> Path:
    """data/gpu/<card>: the name in small letters and underscores."""
    return FOLDER / re.sub(r"\W+", "_", card.lower()).strip("_")
