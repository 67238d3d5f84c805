"""Pairs of students whose answers agree more often than the class's own habits explain.

One short function is often written twice. So an agreement weighs the less the more of the class has it:
log2(N / n) bits, where n of N students wrote it so. A pair's bits are summed over *write* exercises."""
import itertools
import math
from dataclasses import dataclass

from course_lib.exercises.judging.verdict import NOT_ATTEMPTED
from ..marks import marking
from ..reports.report import Mark
from .similarity import likeness, pieces

ALIKE = 0.8             # likeness from which on two answers count as the same
# bits from which on a pair is shown; docs/marking.md has the share of honest pairs above it
ENOUGH = 11.0


@dataclass(frozen=True)
class Pair:
    """Two students, the exercises in which they agree, and how much that says."""
    students: tuple[str, str]
    exercises: tuple[str, ...]
    bits: float


def pairs(marks: list[Mark], enough: float = ENOUGH) -> list[Pair]:
    """The pairs of at least `enough` bits, those with the most first."""
    shared: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for id, answers in _answers(marks).items():
        different = set(answers.values())                # often few: then little is compared
        alike = {one: {other for other in different if likeness(one, other) >= ALIKE} for one in different}
        having = {one: sum(answer in alike[one] for answer in answers.values()) for one in different}
        for two in itertools.combinations(sorted(answers), 2):
            one, other = (answers[student] for student in two)
            if other in alike[one]:
                bits = math.log2(len(answers) / max(having[one], having[other]))
                shared.setdefault(two, []).append((id, bits))
    made = [Pair(two, tuple(id for id, _ in found), sum(bits for _, bits in found))
            for two, found in shared.items()]
    return sorted((p for p in made if p.bits >= enough), key=lambda p: (-p.bits, p.students))


def _answers(marks: list[Mark]) -> dict[str, dict[str, frozenset]]:
    """{exercise: {student: the pieces of the answer}} of what was written."""
    found: dict[str, dict[str, frozenset]] = {}
    for mark in marks:
        if (mark.kind == "write" and mark.verdict.status != NOT_ATTEMPTED
                and 0 < len(mark.source) <= marking.LONGEST):
            found.setdefault(mark.exercise, {})[mark.student] = pieces(mark.source, mark.language)
    return found
