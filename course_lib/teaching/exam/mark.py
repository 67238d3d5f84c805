"""Marking an exam: each student's cells on the student's own sheet, behind the walls that `grade` uses."""
from dataclasses import replace
from pathlib import Path

from course_lib.exercises.parts import Exercise
from course_lib.exercises.judging.verdict import NOT_ATTEMPTED, NOT_RUN, PASSED, WRONG, Verdict
from ..confined.sandbox import Sandbox
from ..hand_ins.submissions import Submission
from ..marks import marking
from ..marks.batch import each
from ..reports import report
from ..reports.report import NOT_HANDED_IN, Mark
from .predict import QUESTIONS
from .sheets import PROBLEMS, Sheet, key_of, sheet

OF_32_LANES = (" With 32 lanes per warp its result is right, and your GPU has {}: look for what takes 32 for "
               "granted, such as `/ 32`, `% 32`, a shuffle's distance, or an array with a place per warp.")


def exercises_of(drawn: Sheet) -> dict[str, Exercise]:
    """{id: exercise} of a sheet, in the order of the notebook."""
    made = [q.exercise(drawn.machine, drawn.questions[q.id]) for q in QUESTIONS]
    made += [p.exercise(drawn.machine, drawn.numbers[p.id], drawn.choices[p.id]) for p in PROBLEMS]
    return {exercise.id: exercise for exercise in made}


def mark_sheet(task: dict) -> dict:
    """{"secret", "student", "cells": {id: source}, "strict", "hide"} -> {id: verdict as a dict}."""
    sandbox = marking.warm_sandbox(task["strict"], tuple(task["hide"]))
    drawn = sheet(task["secret"], task["student"])
    exercises = exercises_of(drawn)
    cells = {id: source for id, source in task["cells"].items() if id in exercises}
    verdicts = marking.mark_cells(cells, exercises.__getitem__, drawn.seed, sandbox)
    for id, verdict in verdicts.items():
        if verdict["status"] == NOT_ATTEMPTED:
            verdict["headline"] = "The cell is as it was handed out."
        if verdict["status"] == WRONG and takes_32_lanes(exercises[id], cells[id], drawn.seed, sandbox):
            verdict["headline"] += OF_32_LANES.format(exercises[id].machine["warp_size"])
    return verdicts


def takes_32_lanes(exercise: Exercise, source: str, seed: int, sandbox: Sandbox) -> bool:
    """Whether a kernel is wrong on its machine and right where warps have 32 lanes, what it may use aside."""
    machine = exercise.machine or {}
    if machine.get("warp_size", 32) == 32:
        return False

    def right(lanes: int) -> bool:
        there = replace(exercise, machine=machine | {"warp_size": lanes}, budget=lambda case: {}, least=None)
        return marking.mark(there, source, seed, sandbox).status == PASSED
    return right(32) and not right(machine["warp_size"])


def marks_of(submissions: list[Submission], secret: str, jobs: int, strict: bool,
             hide: list[Path]) -> list[Mark]:
    """The table: every student against every exercise. Who is not on the roster has no sheet."""
    hidden = [str(path.resolve()) for path in hide]
    tasks = {index: ({"secret": secret, "student": key_of(made.row), "cells": made.cells, "strict": strict,
                      "hide": hidden},)
             for index, made in enumerate(submissions) if made.row and made.cells and not made.problem}
    answers = each(mark_sheet, tasks, jobs)
    marks = []
    for index, made in enumerate(submissions):
        if not made.row:
            told = Verdict("", "", NOT_RUN, "The roster has no student of this name or number, so no sheet.")
            marks.append(
                Mark(made.student, "exam", "", "", "", told, file=made.file, notes=tuple(made.notes)))
            continue
        drawn = sheet(secret, key_of(made.row))
        marks += [_mark(made, exercise, answers.get(index)) for exercise in exercises_of(drawn).values()]
    return marks


def _mark(made: Submission, exercise: Exercise, answer: dict | str | None) -> Mark:
    mark = Mark(made.student, "exam", exercise.id, exercise.title, exercise.kind, None, file=made.file,
                language=exercise.language, source=made.cells.get(exercise.id, ""), notes=tuple(made.notes))

    def without_run(status: str, why: str) -> Mark:
        mark.verdict = Verdict(exercise.id, exercise.title, status, why, of=exercise.points)
        return mark
    if isinstance(answer, str):
        return without_run(NOT_RUN, f"The marking itself failed: {answer}")
    if made.problem:
        mark.notes = (made.problem if made.file else NOT_HANDED_IN, *mark.notes)
        return without_run(NOT_ATTEMPTED, f"Nothing can be marked: {made.problem}.")
    if not answer or exercise.id not in answer:
        return without_run(NOT_ATTEMPTED, f"The notebook has no cell that begins with `{exercise.marker}`.")
    mark.verdict = report.verdict_from(answer[exercise.id])
    return mark
