"""The table of marks: every student against every exercise of the chapters."""
from course_lib.exercises.declare import find, load_chapter
from course_lib.exercises.parts import Exercise
from course_lib.exercises.judging.verdict import NOT_ATTEMPTED, NOT_RUN, Verdict
from ..copies.similarity import skeleton
from ..hand_ins.late import LateRule
from ..hand_ins.submissions import Submission
from ..reports import report
from ..reports.report import NOT_HANDED_IN, Mark
from . import marking
from .store import Store

REFERENCE = "same code as the reference"


def table(submissions: list[Submission], chapters: list[str], store: Store,
          late: LateRule | None = None) -> list[Mark]:
    """Every student against every exercise of the chapters. A file that cannot be read has a row
    of its own, and its chapter counts without points."""
    students = list(dict.fromkeys(s.student for s in submissions))
    by = {(s.student, s.chapter): s for s in submissions}
    marks = []
    for student in students:
        for submission in (s for s in submissions if s.student == student and s.problem):
            verdict = Verdict("", "", NOT_RUN, f"The file cannot be marked: {submission.problem}.")
            marks.append(Mark(student, submission.chapter, "", "", "", verdict, file=submission.file,
                              notes=(submission.problem, *submission.notes)))
        for chapter in chapters:
            submission = by.get((student, chapter))
            theirs = [_mark(student, chapter, exercise, submission, store)
                      for exercise in load_chapter(chapter)]
            if late and submission:
                kept, note = late.share(submission)
                for mark in theirs:
                    mark.kept, mark.notes = kept, (*mark.notes, note) if note else mark.notes
            marks += theirs
    return marks


def _mark(student: str, chapter: str, exercise: Exercise, submission: Submission | None,
          store: Store) -> Mark:
    mark = Mark(student, chapter, exercise.id, exercise.title, exercise.kind, None,
                language=exercise.language)

    def without_run(status: str, why: str) -> Mark:
        mark.verdict = Verdict(exercise.id, exercise.title, status, why, of=exercise.points)
        return mark
    if submission is None:
        mark.notes = (NOT_HANDED_IN,)
        return without_run(NOT_ATTEMPTED, "No notebook of this chapter was handed in.")
    mark.file, mark.notes = submission.file, tuple(submission.notes)
    if submission.problem:
        return without_run(NOT_ATTEMPTED, f"The file cannot be marked: {submission.problem}.")
    if exercise.id not in submission.cells:
        return without_run(NOT_ATTEMPTED, f"The notebook has no cell that begins with `{exercise.marker}`.")
    mark.source = submission.cells[exercise.id]
    mark.verdict = store.get(exercise, mark.source)
    if mark.verdict is None:
        failed = store.failed.get((student, exercise.id))
        if failed is None:
            return without_run(NOT_RUN, "The marking has not come to this exercise.")
        mark.verdict = report.verdict_from(failed)
        mark.verdict.title, mark.verdict.of = exercise.title, exercise.points
    return mark


def flag_copies(marks: list[Mark]) -> None:
    """Say whose code equals the reference or a classmate's. Only in *write*: repaired lines are all alike."""
    same: dict[tuple[str, str], list[Mark]] = {}
    references = {}
    for mark in marks:
        if (mark.kind != "write" or mark.verdict.status == NOT_ATTEMPTED or not 0 < len(mark.source)
            <= marking.LONGEST):
            continue
        same.setdefault((mark.exercise, skeleton(mark.source, mark.language)), []).append(mark)
        if mark.exercise not in references:
            references[mark.exercise] = skeleton(find(mark.exercise).solution, mark.language)
    for (id, text), alike in same.items():
        for mark in alike:
            others = [m.student for m in alike if m is not mark]
            flags = [REFERENCE] if text == references[id] else []
            if others:
                shown = ", ".join(others[:5]) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
                flags.append(f"same code as {shown}")
            mark.flags = tuple(flags)
