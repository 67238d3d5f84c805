"""The score of one kernel: exact counts over all hidden cases, and whether they count at all."""
from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from course_lib.exercises import judge
from course_lib.exercises.counting import used
from course_lib.exercises.verdict import PASSED
from .. import marking
from ..sandbox import Sandbox
from .problem import LeagueProblem
from .products import PRODUCTS
from .rows import ROWS

PROBLEMS: list[LeagueProblem] = ROWS + PRODUCTS
COUNTS = ("sectors", "wavefronts", "barriers", "shared_bytes")


@dataclass(frozen=True)
class Score:
    """`counts` in the order of COUNTS, which decide in that order; None for a kernel without a score, and
    then `why` gives the reason."""
    counts: tuple[int, ...] | None
    why: str = ""


@lru_cache(maxsize=None)
def bound(problem: LeagueProblem, seed: int) -> int:
    """Sectors that no kernel can do without, over all cases of this seed."""
    exercise = problem.exercise()
    return sum(problem.bound(exercise, case) for case in judge.draw(exercise, seed))


def score(problem: LeagueProblem, source: str, seed: int, sandbox: Sandbox) -> Score:
    """Judge a kernel as `grade` does, behind the same walls, and add up what it used.

    The counts come from the process that ran the kernel. Fewer sectors than the bound cannot be, so they earn
    nothing.
    """
    verdict, run = marking.mark_and_run(problem.exercise(), source, seed, sandbox)
    if verdict.status != PASSED:
        return Score(None, verdict.headline)
    counted = [{name: used(outcome.counts, name) for name in COUNTS} for outcome in run.outcomes]
    if any(type(count) is not int or count < 0 for counts in counted for count in counts.values()):
        return Score(None, "What the kernel uses was not counted.")
    total = tuple(max(c[name] for c in counted) if name == "shared_bytes" else sum(c[name] for c in counted)
                  for name in COUNTS)
    least = bound(problem, seed)
    if total[0] < least:
        return Score(None, f"{total[0]:,} sectors were counted; no kernel can do with fewer than {least:,}.")
    return Score(total)
