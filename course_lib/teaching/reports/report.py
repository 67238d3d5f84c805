"""The grader's results: grades.csv, junit.xml, and one page per student."""
import csv
import hashlib
import io
import re
from dataclasses import dataclass, fields
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

from course_lib.exercises.judging.verdict import NOT_RUN, PASSED, Verdict
from course_lib.files import write_whole

COLUMNS = ["student", "chapter", "exercise", "title", "kind", "points", "of", "verdict", "misconception",
           "flags", "file", "notes"]
NOT_HANDED_IN = "not handed in"


@dataclass
class Mark:
    """One line of the table: a student and an exercise."""
    student: str
    chapter: str
    exercise: str
    title: str
    kind: str
    verdict: Verdict
    source: str = ""
    language: str = "python"
    flags: tuple[str, ...] = ()
    file: str = ""
    notes: tuple[str, ...] = ()
    kept: float = 1.0                  # the share of its points that a late hand-in keeps
    by_hand: float | None = None       # points that a person has given

    @property
    def points(self) -> float:
        """What counts: points by hand, else those of the verdict less what is lost by being late."""
        return self.by_hand if self.by_hand is not None else round(self.verdict.points * self.kept, 2)

    def row(self) -> list[str]:
        return [self.student, self.chapter, self.exercise, self.title, self.kind, f"{self.points:g}",
                f"{self.verdict.of:g}", self.verdict.status, self.verdict.misconception or "",
                "; ".join(self.flags), self.file, "; ".join(self.notes)]


def verdict_from(data: dict) -> Verdict:
    """A verdict from its dict, without the parts that are HTML: what a page shows is escaped, all of it."""
    known = {f.name for f in fields(Verdict)}
    made = Verdict(**{k: v for k, v in data.items() if k in known and k != "picture"})
    made.details = [(str(label), str(text)) for label, text in made.details]
    return made


def write(results: Path, marks: list[Mark]) -> None:
    """All of them, each file replaced in one step."""
    write_table(results, marks)
    write_whole(results / "junit.xml", _junit(marks))
    students: dict[str, list[Mark]] = {}
    for mark in marks:
        students.setdefault(mark.student, []).append(mark)
    pages = page_names(students)
    (results / "students").mkdir(exist_ok=True)
    for old in set((results / "students").glob("*.html")) - {results / "students" / name
                                                             for name in pages.values()}:
        old.unlink()
    for student, theirs in students.items():
        chapters = [(word, list(them)) for word, them in groupby(theirs, lambda mark: mark.chapter)]
        write_whole(results / "students" / pages[student],
                    page("student.html", student, sum=_sum(theirs), chapters=chapters))
    rows = [(student, pages[student], _sum(theirs), sum(bool(mark.flags) for mark in theirs))
            for student, theirs in students.items()]
    write_whole(results / "index.html", page("index.html", "Grades", rows=rows))


def page_names(students) -> dict[str, str]:
    """A safe file name for each student, no two alike."""
    names = {}
    for student in students:
        plain = re.sub(r"[^A-Za-z0-9]+", "_", student).strip("_")[:60]
        if not plain or plain != student or plain.casefold() in {n[:-5].casefold() for n in names.values()}:
            plain = (
                f"{plain or 'student'}-{hashlib.sha256(student.encode('utf-8', 'replace')).hexdigest()[:6]}")
        names[student] = f"{plain}.html"
    return names


def write_table(results: Path, marks: list[Mark]) -> None:
    write_whole(results / "grades.csv", csv_text([COLUMNS, *(mark.row() for mark in marks)]))


def csv_text(rows) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([[safe_cell(str(value)) for value in row] for row in rows])
    return out.getvalue()


def safe_cell(text: str) -> str:
    """A spreadsheet runs a cell that begins with one of these; a file's name is the student's to choose."""
    text = printable(text)
    return f"'{text}" if text.strip()[:1] in tuple("=+-@") or text[:1] in tuple("\t\r\n") else text


def printable(text: str) -> str:
    return re.sub(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]", "?", text)


def _junit(marks: list[Mark]) -> str:
    root = ElementTree.Element("testsuites", name="grades")
    suites: dict[str, ElementTree.Element] = {}
    for mark in marks:
        if mark.student not in suites:
            suites[mark.student] = ElementTree.SubElement(root, "testsuite", name=printable(mark.student))
        case = ElementTree.SubElement(suites[mark.student], "testcase",
                                      name=f"{mark.exercise} {mark.title}".strip(),
                                      classname=printable(f"{mark.student}.{mark.chapter}"))
        if mark.verdict.status != PASSED:          # a skip is never a pass: what was not done is a failure
            kind = "error" if mark.verdict.status == NOT_RUN else "failure"
            problem = ElementTree.SubElement(case, kind,
                                             message=printable(
                    f"{mark.verdict.status}: {mark.verdict.headline}"))
            problem.text = printable(str(mark.verdict))
    for suite in suites.values():
        suite.set("tests", str(len(suite)))
        suite.set("failures", str(len(suite.findall("testcase/failure"))))
        suite.set("errors", str(len(suite.findall("testcase/error"))))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def page(template: str, title: str, **values) -> str:
    """A page, which runs nothing and loads nothing. Jinja escapes what a student may have written."""
    from jinja2 import Environment, FileSystemLoader
    pages = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True,
                        lstrip_blocks=True, keep_trailing_newline=True)
    return printable(pages.get_template(template).render(title=title, **values))


def _sum(marks: list[Mark]) -> str:
    passed = sum(m.verdict.status == PASSED for m in marks)
    files = sum(not m.exercise for m in marks)
    return (f"{sum(m.points for m in marks):g} of {sum(m.verdict.of for m in marks):g} points, "
            f"{passed} of {len(marks) - files} exercises passed"
            + (f", {files} file{'s' * (files != 1)} not marked" if files else ""))
