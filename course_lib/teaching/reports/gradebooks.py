"""Marks for the gradebooks of Canvas, Moodle and Gradescope, in the formats that these import."""
import itertools
import json
from pathlib import Path

from course_lib.exercises.judging.verdict import NOT_ATTEMPTED, PASSED
from course_lib.files import write_whole
from ..hand_ins.submissions import Submission
from .report import Mark, csv_text, page_names


def write_gradebooks(results: Path, marks: list[Mark], submissions: list[Submission],
                     chapters: list[str]) -> None:
    people: dict[str, Submission] = {}
    for submission in submissions:
        people.setdefault(submission.student, submission)
    sums = {place: (sum(m.points for m in marks if (m.student, m.chapter) == place),
                    sum(m.verdict.of for m in marks if (m.student, m.chapter) == place))
            for place in itertools.product(people, chapters)}
    sums = _with_groups(sums, people, {(s.student, s.chapter) for s in submissions if s.cells})
    write_whole(results / "gradebook_canvas.csv", canvas(people, sums, chapters))
    write_whole(results / "gradebook_moodle.csv", moodle(people, sums, chapters))
    for chapter in chapters:
        write_whole(results / f"worksheet_moodle_{chapter}.csv", moodle_worksheet(people, sums, chapter))
    folder = results / "gradescope"
    folder.mkdir(exist_ok=True)
    names = page_names(list(people))
    for student in people:
        theirs = [m for m in marks if m.student == student]
        write_whole(folder / names[student].replace(".html", ".json"),
                    json.dumps(gradescope(theirs), indent=1))


def _with_groups(sums: dict, people: dict[str, Submission], handed_in: set[tuple[str, str]]) -> dict:
    """Who has handed in nothing of a chapter has what another of the same `group` in the roster has."""
    groups: dict[str, list[str]] = {}
    for student, submission in people.items():
        groups.setdefault(submission.row.get("group", ""), []).append(student)
    shared = dict(sums)
    for student, chapter in sums.keys() - handed_in:
        group = people[student].row.get("group", "")
        theirs = [sums[other, chapter] for other in groups[group] if (other, chapter) in handed_in]
        if group and theirs:
            shared[student, chapter] = max(theirs)
    return shared


def title(chapter: str) -> str:
    return f"Attention: {chapter.replace('_', ' ')}"


def canvas(people: dict[str, Submission], sums: dict, chapters: list[str]) -> str:
    """Student, ID, SIS User ID, SIS Login ID, Section, one column per assignment; row 2: points possible."""
    head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *map(title, chapters)]
    most = [f"{max((sums[p, c][1] for p in people), default=0):g}" for c in chapters]
    rows = [[s.row.get("name") or student, _number(s), "", s.row.get("login", ""), s.row.get("section", ""),
             *(f"{sums[student, c][0]:g}" for c in chapters)] for student, s in people.items()]
    return csv_text([head, ["    Points Possible", "", "", "", "", *most], *rows])


def moodle(people: dict[str, Submission], sums: dict, chapters: list[str]) -> str:
    """For the grade import: choose `ID number` or `Email address` in "Map from"."""
    rows = [[s.row.get("name") or student, *(s.row.get(name, "") for name in ("id", "email", "login")),
             *(f"{sums[student, c][0]:g}" for c in chapters)] for student, s in people.items()]
    return csv_text([["Full name", "ID number", "Email address", "Username", *map(title, chapters)], *rows])


def moodle_worksheet(people: dict[str, Submission], sums: dict, chapter: str) -> str:
    """An offline grading worksheet: the participant's number is in the name of the folder Moodle made."""
    rows = [[f"Participant {s.given.id}", s.row.get("name") or s.given.name, *(f"{n:g}" for n in sums[student, chapter]), ""]
            for student, s in people.items() if s.given.id]
    return csv_text([["Identifier", "Full name", "Grade", "Maximum Grade", "Feedback comments"], *rows])


def gradescope(marks: list[Mark]) -> dict:
    """A results.json: one test per exercise."""
    tests = [{"name": f"{m.exercise} {m.verdict.title or m.title}".strip(), "number": m.exercise,
              "score": m.points, "max_score": m.verdict.of,
              "status": "passed" if m.verdict.status == PASSED else "failed",
              "output": "" if m.verdict.status == NOT_ATTEMPTED else str(m.verdict), "output_format": "text",
              "visibility": "visible"} for m in marks if m.exercise]
    return {"score": sum(m.points for m in marks), "tests": tests, "visibility": "visible",
            "output": "\n".join(dict.fromkeys(note for m in marks for note in m.notes))}


def _number(submission: Submission) -> str:
    return submission.row.get("id") or submission.given.id
