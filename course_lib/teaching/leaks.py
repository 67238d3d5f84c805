"""Which of the package's own functions, classes and kernels solve an exercise: found by running each through
its check."""
from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Iterator

from course_lib.exercises import judge, runner
from course_lib.exercises.declare import CHAPTERS
from course_lib.exercises.limits import TimeIsUp, time_limit
from course_lib.exercises.namespace import driver
from course_lib.exercises.parts import Exercise
from course_lib.exercises.results import Outcome, Request
from course_lib.exercises.values import copied, freeze
from laptop_cuda.build import cache
from .cutting import KERNEL
from .pieces import HandoutError
from .reach import COURSE

# For one function and one exercise: most end at once, by a TypeError. What the clock stopped runs once more,
# longer: it may have been compiling a kernel.
SECONDS = (3.0, 30.0)
# modules beside the chapters that are looked through too
SHARED = {"checks", "launching", "datasets", "explore"}
# they touch files
NOT_TRIED = re.compile(r".*_command|main|study|save\w*|train\w*|write\w*|load\w*|download\w*")


@dataclass(frozen=True)
class Leak:
    """A thing of the package that gives the right answers of an exercise."""
    where: str              # module or file below the course's folder
    name: str
    exercise: str


def python_leaks(modules: list[str], exercises: list[Exercise]) -> list[Leak]:
    """Functions and classes of the modules that pass an exercise's check."""
    asked = [(e, cases := judge.draw(e), judge.expected(e, cases), judge.request(e, cases)) for e in exercises
             if e.language == "python" and e.kind in ("write", "repair")]
    found = []
    for name in modules:
        if not (parts := name.split("."))[1:] or parts[1] not in {*CHAPTERS, *SHARED}:
            continue
        for thing in candidates(importlib.import_module(name)):
            found += [Leak(name, thing.__name__, e.id)
                      for e, cases, wanted, request in asked if inspect.isclass(thing) == request.is_class
                      and passes(thing, e, cases, wanted, request)]
    return found


def candidates(module: ModuleType) -> Iterator[Any]:
    """The functions and classes that a module defines itself."""
    for name, thing in sorted(vars(module).items()):
        thing = inspect.unwrap(thing) if callable(thing) else thing
        if (inspect.isfunction(thing) or inspect.isclass(thing)) and thing.__module__ == module.__name__ \
                and not NOT_TRIED.fullmatch(name):
            yield thing


def passes(thing: Any, exercise: Exercise, cases: list, wanted: list, request: Request) -> bool:
    """Whether the thing gives the right answer in every case."""
    for seconds in SECONDS:
        with contextlib.suppress(TimeIsUp):
            return passes_within(seconds, thing, exercise, cases, wanted, request)
    return False


def passes_within(seconds: float, thing: Any, exercise: Exercise, cases: list, wanted: list,
                  request: Request) -> bool:
    call = driver(request)
    try:
        with (warnings.catch_warnings(), time_limit(seconds), open(os.devnull, "w") as null,
              contextlib.redirect_stdout(null)):
            # functions are tried on arguments that they are not made for
            warnings.simplefilter("ignore")
            for case, want in zip(cases, wanted):
                got = freeze(call(thing, *copied(case.args), **copied(case.kwargs)))
                if judge.fault(exercise, case, Outcome(got), want):
                    return False
    except TimeIsUp:
        raise
    except (Exception, SystemExit):
        return False
    return True


# --- kernels ------------------------------------------------------------------------------------------------

def kernel_leaks(folder: Path, exercises: list[Exercise]) -> list[Leak]:
    """Kernels in the folder's `.cu` files, templates aside, that pass an exercise's check."""
    asked = [(e, judge.draw(e)) for e in exercises if e.language == "cuda" and e.kind in ("write", "repair")]
    found = []
    for path in sorted(folder.rglob("*.cu")) if asked else []:
        text = path.read_text(encoding="utf-8")
        for match in KERNEL.finditer(text):
            count = len(split_parameters(match["parameters"]))
            for exercise, cases in asked:
                request = judge.request(exercise, cases)
                if match["template"] or any(len(step["args"]) != count for steps in request.launches
                                            for step in steps):
                    continue
                if kernel_passes(path, match["name"], exercise, cases, request):
                    found.append(Leak(path.relative_to(folder.parent).as_posix(), match["name"], exercise.id))
    return found


def split_parameters(text: str) -> list[str]:
    return [part for part in re.sub(r"<[^<>]*>", "", text).split(",") if part.strip()]


def kernel_passes(path: Path, name: str, exercise: Exercise, cases: list, request: Request) -> bool:
    """Whether a kernel of a file gives the exercise's results, launched as the exercise launches its own."""
    launches = [[step | {"kernel": name} for step in steps] for steps in request.launches]
    source = (f'#line 1 "{path}"\n' + re.sub(r'#include "([^"]+)"', rf'#include "{path.parent}/\1"',
                                             path.read_text()))
    run = runner.run(replace(request, launches=launches, name=name), source)
    return not run.failure and len(run.outcomes) == len(cases) and not any(
        judge.fault(exercise, case, outcome, want)
        for case, outcome, want in zip(cases, run.outcomes, judge.expected(exercise, cases)))


# --- in a handout -------------------------------------------------------------------------------------------

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
from course_lib.teaching import leaks
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
