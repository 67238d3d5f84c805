"""A problem of the league: a kernel's signature and launch, hidden ragged cases, a bound on its sectors."""
from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from typing import Callable

import torch

from course_lib.exercises import judge
from course_lib.exercises.compare import close
from course_lib.exercises.parts import Case, Exercise

SECTOR = 32


@dataclass(frozen=True)
class LeagueProblem:
    """`par` is a plain kernel that works: its counts are the mark to beat."""
    id: str
    name: str
    title: str
    text: str
    par: str
    cases: Callable                  # torch.Generator -> list of Case
    launch: Callable
    expect: Callable
    tolerance: float = 1e-4

    @property
    def stub(self) -> str:
        source = textwrap.dedent(self.par).strip("\n")
        begin = source.index("__global__")
        return source[begin:source.index(") {", begin) + 3] + "\n    // your code\n}\n"

    def exercise(self) -> Exercise:
        return Exercise(
            id=self.id, title=self.title, kind="write", language="cuda", name=self.name, points=1, minutes=60,
            difficulty=5, card=" ".join(self.text.split()), stub=self.stub,
            solution_text=textwrap.dedent(self.par).strip("\n") + "\n", hints=[], misconceptions=[],
            cases=self.cases, compare=close(atol=self.tolerance), limit=60.0, launch=self.launch,
            expect=self.expect, budget=lambda case: {})

    def bound(self, exercise: Exercise, case: Case) -> int:
        """Sectors that no kernel can do without, since every array of a case matters whole: each sector of an
        input is read at least once, each of an output is written at least once, and of an array that is
        changed in place both."""
        arrays, _ = judge.plan(exercise, case)
        sectors = 0
        for array in arrays:
            size = math.prod(array["shape"]) * getattr(torch, array["dtype"]).itemsize
            times = {"in": 1, "out": 1, "inout": 2, "scratch": 0}[array["role"]]
            sectors += times * -(-size // SECTOR)
        return sectors
