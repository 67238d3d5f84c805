"""class.html: who is stuck where, what the class gets wrong, whose code is alike. For the instructor."""
from collections import Counter

from course_lib.exercises.judging.verdict import NOT_ATTEMPTED, NOT_RUN, PASSED, WRONG
from ..copies.pairs import pairs
from ..copies.similarity import skeleton
from ..marks.table import REFERENCE
from .report import Mark, page

Table = tuple[str, list[str], list[list]]         # title, columns, rows
ICON = {PASSED: "✓", WRONG: "✗", NOT_ATTEMPTED: "○", NOT_RUN: "–"}


def class_page(marks: list[Mark], so_far: str = "") -> str:
    """`so_far`: a sentence about a run that is going on. Students are compared when it is over."""
    marks = [m for m in marks if m.exercise and m.kind != "text"]
    tables = [_stuck(marks), _exercises(marks), _grid(marks)]
    if not so_far:      # of these two only what was found
        tables += [table for table in (_pairs(marks), _alike(marks)) if table[2]]
    return page("class.html", "The class", so_far=so_far, tables=tables)


def _exercises(marks: list[Mark]) -> Table:
    """One line per exercise: how many passed, and the commonest misconceptions."""
    rows = []
    for id, theirs in _by(marks, "exercise").items():
        count = Counter(m.verdict.status for m in theirs)
        mistakes = Counter(m.verdict.misconception for m in theirs if m.verdict.misconception).most_common(3)
        told = "; ".join(f"{n} × {name}" for name, n in mistakes)
        tried = len(theirs) - count[NOT_ATTEMPTED]
        rows.append([id, theirs[0].title, f"{count[PASSED]} of {tried}", count[WRONG], count[NOT_ATTEMPTED],
                     told])
    return ("Exercises",
            ["exercise", "title", "passed of tried", "wrong", "not tried", "commonest misconceptions"], rows)


def _stuck(marks: list[Mark]) -> Table:
    """Who has tried and not passed, by student, those with the most first; who has not begun a chapter."""
    rows = []
    for student, theirs in _by(marks, "student").items():
        wrong = [m.exercise for m in theirs if m.verdict.status == WRONG]
        silent = [chapter for chapter, them in _by(theirs, "chapter").items()
                  if all(m.verdict.status == NOT_ATTEMPTED for m in them)]
        if wrong or silent:
            rows.append([student, len(wrong), ", ".join(wrong), ", ".join(silent)])
    rows.sort(key=lambda row: -row[1])
    return "Who is stuck", ["student", "wrong", "where", "chapters not begun"], rows


def _grid(marks: list[Mark]) -> Table:
    ids = list(_by(marks, "exercise"))
    rows = [[student, *(ICON[by[id].verdict.status] if id in by else "" for id in ids)]
            for student, theirs in _by(marks, "student").items() for by in [{m.exercise: m for m in theirs}]]
    return "Everybody", ["student", *ids], rows


def _pairs(marks: list[Mark]) -> Table:
    """Pairs whose agreement the class's habits do not explain; a reason to talk, no verdict."""
    rows = [[*p.students, f"{p.bits:.0f}", ", ".join(p.exercises)] for p in pairs(marks)]
    columns = ["student", "student", "bits", "in exercises"]
    return "Pairs that agree more often than chance", columns, rows


def _alike(marks: list[Mark]) -> Table:
    """One line per exercise and code that several have, or that is the reference's."""
    groups: dict[tuple[str, str], list[str]] = {}
    for mark in marks:
        if mark.flags:
            code = skeleton(mark.source, mark.language)
            groups.setdefault((mark.exercise, code), []).append(mark.student)
    references = {(m.exercise, skeleton(m.source, m.language)) for m in marks if REFERENCE in m.flags}
    rows = [[key[0], len(students), ", ".join(students), "yes" if key in references else ""]
            for key, students in groups.items()]
    return ("Code that is the same, names and spacing aside",
            ["exercise", "students", "who", "the reference's"], rows)


def _by(marks: list[Mark], name: str) -> dict[str, list[Mark]]:
    groups: dict[str, list[Mark]] = {}
    for mark in marks:
        groups.setdefault(getattr(mark, name), []).append(mark)
    return groups
