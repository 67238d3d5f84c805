"""`make gpu-first`: the first hour on a card, step by step, within a time limit, its findings in one folder.

    make gpu-first LIMIT=590 OUT=folder         as many steps as fit; their logs and results are in the folder
    make gpu-first LIMIT=590 OUT=folder STEPS="racecheck bench"

A step that is red does not stop the next. The last lines say what failed and what to run next. Steps that the
folder holds as done are not repeated, so the same command, given again, continues."""
import argparse
import json
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from course_lib.files import ROOT, write_whole
from course_lib.gpu.check import SANITIZED, SUITE, folder_of

PYTHON = sys.executable
SMI = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm,power.limit", "--format=csv"]
# (kernel, number of its benchmark): profiled one by one.
CENTRAL = (("flash_tensor_core", 1), ("backward_tensor_core", 1), ("decode_tensor_core", 0),
           ("paged_tensor_core", 0), ("linear_walk", 1), ("window_tensor_core", 0))
SECTIONS = ("SpeedOfLight", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "WarpStateStats",
            "Occupancy")


@dataclass(frozen=True)
class Step:
    name: str
    command: list[str]
    limit: int                  # seconds, if that much is left
    expect: str                 # what to look at
    beside: bool = False        # of the step before it: neither is timed


def steps() -> list[Step]:
    course = [PYTHON, "-m", "course_lib"]
    sanitizer = ["compute-sanitizer", "--error-exitcode", "86", "--target-processes", "all"]
    return [
        Step("machine", [PYTHON, "-m", "course_lib.gpu.first", "--describe"], 60,
             "card, driver, nvcc, tools"),
        Step("build", [PYTHON, "-m", "course_lib.gpu.build"], 240,
             "every instance builds; a minute or two on 16 cores"),
        Step("tests", [*SUITE, "tests"], 300,
             "all green; NaN: an entry was not written; an error that moves with the seed: a race"),
        Step("counters", [*course, "gpu-check", "--only", "ncu"], 300,
             "requests and sectors equal; kernels with cp.async too"),
        Step("patterns", [PYTHON, "-m", "course_lib.gpu.patterns"], 300,
             "tests/tools/test_gpu_results.py holds the engine to this card's answers"),
        Step("memcheck", [*sanitizer, "--tool", "memcheck", *SUITE, *SANITIZED], 300, "0 errors"),
        Step("racecheck", [*sanitizer, "--tool", "racecheck", *SUITE, *SANITIZED], 400, "0 hazards",
             beside=True),
        Step("bench", [*course, "gpu-bench"], 590, "all rows; beside the predictions in data/gpu/README.md"),
        *(Step(f"profile_{kernel}", profile(kernel, number), 90, "the limiting pipe, beside the prediction")
          for kernel, number in CENTRAL)]


def profile(kernel: str, number: int) -> list[str]:
    instances = 2 if kernel.startswith("backward") else 1       # one for keys, one for queries
    sections = [word for section in SECTIONS for word in ("--section", section)]
    return ["ncu", "--clock-control", "none", "--kernel-name", f"regex:^{kernel}$",
            "--launch-skip", str(2 * instances), "--launch-count", str(instances), *sections,
            PYTHON, "-m", "course_lib.gpu.benchmarks", kernel, str(number)]


def run(step: Step, seconds: float, log: Path) -> str:
    """"done", "red", "too long", or "missing", with the command's output in the log."""
    if shutil.which(step.command[0]) is None:
        write_whole(log, f"{step.command[0]} was not found\n")
        return "missing"
    with log.open("w") as stream:
        try:
            done = subprocess.run(step.command, cwd=ROOT, timeout=seconds, stdout=stream,
                                  stderr=subprocess.STDOUT)
        except subprocess.TimeoutExpired:
            return "too long"
    return "done" if done.returncode == 0 else "red"


def go(chosen: list[Step], limit: float, out: Path, say=print) -> dict[str, str]:
    """Runs what is not done yet and fits; {step: outcome}, also in out/first.json."""
    out.mkdir(parents=True, exist_ok=True)
    state = out / "first.json"
    outcome = json.loads(state.read_text()) if state.exists() else {}
    end = time.monotonic() + limit
    for group in together(chosen):
        left, began = end - time.monotonic(), time.monotonic()
        group = [step for step in group if outcome.get(step.name) != "done" and left >= min(step.limit, 30)]
        for step in group:
            say(f"{step.name}: {step.expect}", flush=True)
        with ThreadPoolExecutor(max(1, len(group))) as pool:
            ended = pool.map(lambda step: run(step, min(step.limit, left), out / f"{step.name}.log"), group)
            outcome |= zip([step.name for step in group], ended)
        for step in group:
            log = out / f"{step.name}.log"
            say("\n".join(f"    {line[:150]}" for line in log.read_text(errors="replace").splitlines()[-4:]))
            say(f"{step.name}: {outcome[step.name]} after {time.monotonic() - began:.0f} s, {log}", flush=True)
        if group:
            write_whole(state, json.dumps(outcome, indent=1) + "\n")
            collect(out)
    return outcome


def together(chosen: list[Step]) -> list[list[Step]]:
    """In order; what may run beside the step before it, with that step."""
    groups = []
    for step in chosen:
        if step.beside and groups:
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


def collect(out: Path) -> None:
    """Results of this card beside the logs."""
    import torch

    folder = folder_of(torch.cuda.get_device_name()) if torch.cuda.is_available() else None
    for file in folder.glob("*") if folder and folder.exists() else ():
        shutil.copy(file, out / file.name)


def closing(chosen: list[Step], outcome: dict, command: str) -> list[str]:
    """What failed, and what to run next."""
    named = lambda *kinds: [step.name for step in chosen if outcome.get(step.name) in kinds]
    lines = []
    for kind, say in (("red", "failed; the log says why"), ("too long", "did not finish in its time"),
                      ("missing", "not run: the tool was not found")):
        if named(kind):
            lines.append(f"{say}: {', '.join(named(kind))}")
    again = [step.name for step in chosen if outcome.get(step.name) in (None, "too long")]
    lines.append(f"run next: {command} STEPS=\"{' '.join(again)}\"" if again else
                 "every step has run" + ("" if named("red") else ": put the results under data/gpu/ "
                                         "and the times beside the predictions"))
    return lines


def describe() -> int:
    import torch

    for command in (SMI, ["nvcc", "--version"], ["compute-sanitizer", "--version"], ["ncu", "--version"],
                    ["g++", "--version"]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30)
            print(f"{command[0]}: {' | '.join((done.stdout or done.stderr).strip().splitlines()[-2:])}")
        except (FileNotFoundError, subprocess.TimeoutExpired) as problem:
            print(f"{command[0]}: {type(problem).__name__}")
    print(f"torch {torch.__version__}, "
          f"{torch.cuda.get_device_properties(0) if torch.cuda.is_available() else 'no CUDA device'}")
    return 0 if torch.cuda.is_available() else 1


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m course_lib gpu-first",
                                     description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=float, default=3600, help="seconds for all of it")
    parser.add_argument("--out", type=Path, default=Path("gpu_first"), help="the folder for logs and results")
    parser.add_argument("--steps", default="", help="names of steps, else all")
    parser.add_argument("--describe", action="store_true", help="say what this machine has, and end")
    asked = parser.parse_args(argv)
    if asked.describe:
        return describe()
    chosen = [step for step in steps()
              if not asked.steps or step.name in asked.steps.replace(",", " ").split()]
    if not chosen:
        parser.error(f"no such step; there are: {' '.join(step.name for step in steps())}")
    import torch
    if not torch.cuda.is_available():
        print("no CUDA device: nothing was run")
        return 1
    outcome = go(chosen, asked.limit, asked.out.resolve())
    print("\n".join(closing(chosen, outcome, f"make gpu-first LIMIT={asked.limit:g} OUT={asked.out}")))
    return 1 if {"red", "missing"} & {outcome.get(step.name) for step in chosen} else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
