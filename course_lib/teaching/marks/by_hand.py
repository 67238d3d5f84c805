"""Marks that a person gives: RESULTS/by_hand.csv, which `grade` writes and reads again, filled in.

A student's text answer is a Markdown cell that begins with `Answer 3.a` (a heading or bold, or not): each has a
line with its text. Points of an ordinary exercise replace the automatic ones. Filled-in lines are kept."""

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from course_lib.exercises.judging.verdict import NOT_ATTEMPTED, PASSED, Verdict
from course_lib.files import write_whole
from ..hand_ins.submissions import Submission
from ..reports.report import Mark, csv_text

COLUMNS = ["student", "chapter", "exercise", "points", "of", "comment", "answer"]
NAME = "by_hand.csv"


@dataclass
class Line:
    student: str
    chapter: str
    exercise: str
    points: str = ""
    of: str = ""
    comment: str = ""
    answer: str = ""


def read(results: Path) -> list[Line]:
    try:
        with open(results / NAME, newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except FileNotFoundError:
        return []
    lines = [Line(**{name: (row.get(name) or "").removeprefix("'" * (name == "student")) for name in COLUMNS})
             for row in rows]
    for number, line in enumerate(lines, 2):
        if not all(re.fullmatch(r"\d+(\.\d+)?|", value) for value in (line.points, line.of)):
            raise ValueError(f"{results / NAME}, line {number}: points and of are numbers, such as 2.5")
    return lines


def merge(marks: list[Mark], submissions: list[Submission], lines: list[Line]) -> list[Line]:
    """Put the given points into the marks; return the lines to write: the given ones, all text answers."""
    given = {(line.student, line.exercise): line for line in lines if line.points or line.comment}
    for submission in submissions:
        for id, text in submission.answers.items():
            line = given.setdefault((submission.student, id),
                                    Line(submission.student, submission.chapter, id))
            line.answer = text
    by = {(m.student, m.exercise): m for m in marks}
    for (student, id), line in given.items():
        mark = by.get((student, id)) or _text_mark(line)
        if (student, id) not in by:
            places = [i for i, m in enumerate(marks) if m.student == student and m.chapter in (mark.chapter, "")]
            marks.insert(places[-1] + 1 if places else len(marks), mark)   # after the chapter's others
        if line.points:
            mark.by_hand = float(line.points)
            if line.of and mark.kind == "text":
                mark.verdict.of = float(line.of)
            mark.notes = (*mark.notes,
                          f"{line.points} points by hand" + (f": {line.comment}" if line.comment else ""))
            if mark.kind == "text":
                mark.verdict.status, mark.verdict.headline = PASSED, line.comment or "Marked by hand."
    return list(given.values())


def _text_mark(line: Line) -> Mark:
    verdict = Verdict(line.exercise, "Text answer", NOT_ATTEMPTED,
                      "A text answer: it waits for a mark by hand.", of=float(line.of or 0))
    return Mark(line.student, line.chapter, line.exercise, "Text answer", "text", verdict, source=line.answer)


def write(results: Path, lines: list[Line]) -> None:
    if lines:
        ordered = sorted(lines, key=lambda line: (line.exercise, line.student))
        write_whole(results / NAME, csv_text([COLUMNS, *([getattr(line, name) for name in COLUMNS]
                                                         for line in ordered)]), durable=True)
