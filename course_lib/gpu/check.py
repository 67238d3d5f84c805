"""`python -m course_lib gpu-check`: every kernel on this machine's card against float64, then the tools that are there."""
import argparse
import datetime
import re
import shutil
import subprocess
import sys
from pathlib import Path

from course_lib.gpu.results import FOLDER

ROOT = Path(__file__).resolve().parents[2]
SUITE = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider"]
SANITIZED = ["tests/test_gpu_cases.py"]
ERRORS_FOUND = 86               # the exit code that compute-sanitizer is told to give


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m course_lib gpu-check", description=__doc__)
    parser.add_argument("--no-tools", action="store_true", help="without compute-sanitizer and Nsight Compute")
    parser.add_argument("pytest", nargs="*", help="more for pytest, after --")
    asked = parser.parse_args(argv)
    import torch

    if not torch.cuda.is_available():
        print("gpu-check: there is no CUDA device here, so nothing was checked on one. The same cases run on the CPU engine "
              "in `make test`.", file=sys.stderr)
        return 1
    card = torch.cuda.get_device_name()
    print(f"{card}, torch {torch.__version__}", flush=True)
    build_all()
    status = subprocess.run([*SUITE, "tests", *asked.pytest], cwd=ROOT).returncode
    if status or asked.no_tools:
        return status
    return max(sanitized(shutil.which("compute-sanitizer")), counted(shutil.which("ncu"), card))


def build_all(kernels=()) -> None:
    """Of these kernels, or all. In a process of its own: a kernel that goes wrong there leaves this one its card."""
    subprocess.run([sys.executable, "-m", "course_lib.gpu.cases", *kernels], cwd=ROOT)


def sanitized(tool: str | None) -> int:
    """memcheck and racecheck over the cases. A tool that cannot run here is said, and is no fault of a kernel."""
    if tool is None:
        print("compute-sanitizer was not found: not run")
        return 0
    worst = 0
    for check in ("memcheck", "racecheck"):
        command = [tool, "--tool", check, "--error-exitcode", str(ERRORS_FOUND), "--target-processes", "all", *SUITE, *SANITIZED]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        end = "\n".join((done.stdout + done.stderr).splitlines()[-8:])
        found = re.search(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard", done.stdout + done.stderr)
        if found is None:
            print(f"compute-sanitizer {check} could not run here:\n{end}")
        elif done.returncode:
            print(f"compute-sanitizer {check}: errors\n{end}")
            worst = 1
        else:
            print(f"compute-sanitizer {check}: no errors")
    return worst


def counted(tool: str | None, card: str) -> int:
    if tool is None:
        print("Nsight Compute (ncu) was not found: no counters")
        return 0
    from course_lib.gpu.counters import compare

    try:
        print(compare(tool, card, datetime.date.today().isoformat(), folder_of(card)))
    except ValueError as problem:
        print(f"Nsight Compute: {problem}")
        return 1
    return 0


def folder_of(card: str) -> Path:
    """data/gpu/<card>: the name in small letters and underscores."""
    return FOLDER / re.sub(r"\W+", "_", card.lower()).strip("_")
