"""Which known misconception a wrong answer is: the one that gives the same outcomes."""
import re

from .compare import compare_outputs
from .counting import over_budget
from ..parts import Case, Exercise
from ..running.results import Failure, Outcome, Run
from .screen import normal
from ..running.values import same

SAME_KIND, SAME_THREAD, SAME_LINES, EQUAL, SURE = 1, 2, 3, 4, 5


def recognise(exercise: Exercise, cases: list[Case], run: Run, source: str,
              mistakes: list[tuple[str, str, Run]]) -> tuple[str, str] | None:
    """(name, question) of the one of `mistakes`, (name, question, run), with the same outcomes, or None.

    Two misconceptions may both be a race, or both out of bounds: then the one that reports the same lines
    wins, else the one with the same thread at the same element. If that does not tell them apart, none is named."""
    known = {m.name: m for m in exercise.misconceptions}
    found: list[tuple[int, str, str]] = []
    for name, ask, theirs in mistakes:
        if theirs.failure or len(theirs.outcomes) != len(run.outcomes):
            continue
        levels = [alike(exercise, case, a, b) for case, a, b in zip(cases, run.outcomes, theirs.outcomes)]
        if all(levels):
            same_text = name in known and (normal(exercise, exercise.wrong_code(known[name]))
                                           == normal(exercise, source))
            found.append((SURE if same_text else min(levels), name, ask))
    best = [f for f in found if f[0] == max(found)[0]]
    if not best or (best[0][0] <= SAME_THREAD and len(best) > 1):
        return None
    return best[0][1:]


def alike(exercise: Exercise, case: Case, a: Outcome, b: Outcome) -> int:
    """How far two outcomes, right or wrong, are the same answer; 0 is not at all."""
    if a.failure or b.failure:
        return _alike_failures(a.failure, b.failure) if a.failure and b.failure else 0
    if sorted(a.changed) != sorted(b.changed):
        return 0
    if len({(one.counts or {}).get("unwritten") or "" for one in (a, b)}) > 1:
        return 0                                       # a NaN that was computed, and one never overwritten
    if exercise.traffic and a.counts and b.counts:
        if (over_budget(exercise, case, a) is None) != (over_budget(exercise, case, b) is None):
            return 0
        if over_budget(exercise, case, a) and not all(0.8 < a.counts[side] / max(b.counts[side], 1) < 1.25
                                                      for side in ("moved", "stored")):
            return 0
    try:
        compare = compare_outputs(exercise.compare) if exercise.language == "cuda" else exercise.differs
        return EQUAL * (compare(a.value, b.value, case) is None)
    except Exception:
        return EQUAL * same(a.value, b.value)


def _alike_failures(a: Failure, b: Failure) -> int:
    if a.kind != b.kind or a.name != b.name:
        return 0
    if a.kind in ("exception", "refused") and a.message != b.message:
        return 0                                       # two RuntimeErrors need not be the same mistake
    if _about(a) != _about(b):
        return 0                                       # nor two accesses out of bounds, or two races
    if _reported(a) == _reported(b):
        return SAME_LINES
    return SAME_THREAD if _where(a) == _where(b) else SAME_KIND


def _about(failure: Failure) -> list:
    """What a sanitizer's report is about: the array of an access, such as `x` in "reads x[5]", or how the two
    sides of a race meet. (A missing barrier shows at any of the arrays that it is for.)"""
    if failure.kind == "race":
        return [words in failure.message for words in ("by two threads", "in two blocks")]
    return re.findall(r"(\w+)\[", failure.message)[:1]


def _reported(failure: Failure) -> str:
    """What an error says, without line numbers and spacing."""
    return "".join(re.sub(r"\b(line )?\d+\b(?= \||,)", "", failure.message).split())


def _where(failure: Failure) -> str:
    """An error without the text and the number of its line: which thread does what to which element."""
    return re.sub(r"^ *\d+ \|.*\n?|\bline \d+", "", failure.message, flags=re.M)
