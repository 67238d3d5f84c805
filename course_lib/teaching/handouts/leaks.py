"""Which of the package's own functions, classes and kernels solve an exercise: found by its check."""
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Iterator

from course_lib.exercises.judging import judge
from course_lib.exercises.running import runner
from course_lib.exercises.declare import CHAPTERS
from course_lib.exercises.parts import Exercise
from laptop_cuda.build import cache
from ..confined.reach import COURSE
from .cutting import KERNEL, Leak
from .pieces import HandoutError

# modules beside the chapters that are looked through too
SHARED = {"checks", "launching", "datasets", "explore"}
# they touch files
NOT_TRIED = re.compile(r".*_command|main|study|save\w*|train\w*|write\w*|load\w*|download\w*")


class Check:
    """An exercise, ready to be tried on many sources."""

    def __init__(self, exercise: Exercise):
        self.exercise, self.cases = exercise, judge.draw(exercise)
        self.wanted = judge.expected(exercise, self.cases)
        # what uses something forbidden solves it all the same; a function may have a kernel to compile first
        self.request = replace(judge.request(exercise, self.cases), forbid=(), limit=30.0)

    def passes(self, source: str, kernel: str = "") -> bool:
        """Whether a source gives the right answer in every case; most are wrong in the first."""
        asked = self.request
        if kernel:
            asked = replace(asked, name=kernel, launches=[[step | {"kernel": kernel} for step in steps]
                                                          for steps in asked.launches])
        return all(self._passes(replace(asked, inputs=asked.inputs[:count], arrays=asked.arrays[:count],
                                        launches=asked.launches[:count]), source)
                   for count in (1, len(self.cases)))

    def _passes(self, asked, source: str) -> bool:
        run = runner.run(asked, source)
        return not run.failure and not any(
            judge.fault(self.exercise, case, replace(outcome, changed=[]), want)
            for case, outcome, want in zip(self.cases, run.outcomes, self.wanted))


def checks(exercises: list[Exercise], language: str) -> list[Check]:
    return [Check(e) for e in exercises if e.language == language and e.kind in ("write", "repair")]


def python_leaks(modules: list[str], exercises: list[Exercise]) -> list[Leak]:
    """Functions and classes of the modules that pass an exercise's check."""
    asked = checks(exercises, "python")
    return [Leak(module, name, check.exercise.id)
            for module in modules if {*module.split(".")[1:2]} & {*CHAPTERS, *SHARED}
            for name, is_class in candidates(module) for check in asked
            if is_class == check.request.is_class
            and check.passes(f"from {module} import {name} as {check.request.name}")]


def candidates(module: str) -> Iterator[tuple[str, bool]]:
    """The functions and classes that a module defines itself: (name, whether it is a class)."""
    for name, thing in sorted(vars(importlib.import_module(module)).items()):
        thing = inspect.unwrap(thing) if callable(thing) else thing
        if (inspect.isfunction(thing) or inspect.isclass(thing)) and thing.__module__ == module \
                and not NOT_TRIED.fullmatch(name):
            yield name, inspect.isclass(thing)


def kernel_leaks(folder: Path, exercises: list[Exercise]) -> list[Leak]:
    """Kernels in the folder's `.cu` files, templates aside, that pass an exercise's check."""
    asked = checks(exercises, "cuda")
    return [Leak(path.relative_to(folder.parent).as_posix(), match["name"], check.exercise.id)
            for path in sorted(folder.rglob("*.cu")) if asked
            for match in KERNEL.finditer(path.read_text(encoding="utf-8")) if not match["template"]
            for check in asked if takes(match["parameters"], check) and check.passes(as_cell(path), match["name"])]


def takes(parameters: str, check: Check) -> bool:
    """Whether a kernel has as many parameters as each of the exercise's launches gives."""
    count = sum(bool(part.strip()) for part in re.sub(r"<[^<>]*>", "", parameters).split(","))
    return all(len(step["args"]) == count for steps in check.request.launches for step in steps)


def as_cell(path: Path) -> str:
    """A file of kernels as a cell that finds what it includes."""
    return f'#line 1 "{path}"\n' + re.sub(r'#include "([^"]+)"', rf'#include "{path.parent}/\1"',
                                          path.read_text())


def remaining(folder: Path, modules: list[str], exercises: list[Exercise]) -> list[Leak]:
    """Leaks in a handout, its package loaded in a process of its own, away from this one."""
    kernels = folder / "kernels"
    if all(same_file(path, COURSE / path.relative_to(folder)) for path in kernels.rglob("*.cu*")):
        kernels = COURSE / "kernels"                             # what is built already is not built again
    job = json.dumps({"modules": modules, "exercises": [e.id for e in exercises], "kernels": str(kernels)})
    run = subprocess.run([sys.executable, "-c", IN_HANDOUT, str(COURSE), str(folder)], input=job, text=True,
                         capture_output=True, cwd=folder,
                         env=os.environ | {"COURSE_BATCH": "1", "PYTHONDONTWRITEBYTECODE": "1",
                                           "PYTHONPATH": "", "COURSE_CACHE": str(cache().parent)})
    if run.returncode:
        raise HandoutError(f"the handout's package could not be searched:\n{run.stderr[-2000:]}")
    return [Leak(**row) for row in json.loads(run.stdout.splitlines()[-1])]


def same_file(one: Path, other: Path) -> bool:
    return other.is_file() and one.read_bytes() == other.read_bytes()


# The full course judges; the handout's modules are put in place of its own before they are tried.
IN_HANDOUT = """
import json, sys
course, folder = sys.argv[1:]
sys.path.insert(0, course)
from dataclasses import asdict
from pathlib import Path
from course_lib.exercises.declare import find
from course_lib.teaching.handouts import leaks
job = json.load(sys.stdin)
exercises, kernels = [find(id) for id in job["exercises"]], Path(job["kernels"])
import course_lib, laptop_cuda
kept = ("course_lib.exercises", "course_lib.teaching")
for name in [n for n in sys.modules if n.startswith("course_lib.") and not n.startswith(kept)]:
    del sys.modules[name]
course_lib.__path__[:] = [folder + "/course_lib"]
from course_lib import cuda
cuda.KERNELS = kernels
found = leaks.python_leaks(job["modules"], exercises) + leaks.kernel_leaks(kernels, exercises)
print(json.dumps([asdict(leak) for leak in found]))
"""
