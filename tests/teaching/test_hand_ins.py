"""Whatever a folder of submissions can hold: nobody is mistaken, all is bounded, all have a row."""
import os
import time
import unicodedata
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from course_lib.exercises.judging.verdict import PASSED, Verdict
from course_lib.teaching.hand_ins import intake
from course_lib.teaching.reports import report
from course_lib.teaching.hand_ins.identity import Person, Roster, person_of
from course_lib.teaching.copies.similarity import skeleton
from course_lib.teaching.hand_ins.submissions import collect
from course_lib.teaching.marks.table import flag_copies
from hand_ins import MOODLE, RIGHT, no_private_exercises_afterwards, notebook, put, zipped  # noqa: F401


def students(folder: Path, **options) -> list[tuple[str, str, bool]]:
    return [(s.student, s.chapter, bool(s.problem)) for s in collect(folder, **options)]


WORK = "01_attention.ipynb"
CAROL = "Carol Ng_{}_assignsubmission_file_{} {}.ipynb"


@pytest.mark.parametrize("files, named", [
    ({f"{MOODLE.format('Carol Ng', 4711)}/hand-in.zip": zipped({f"Desktop/{WORK}": notebook(RIGHT)}),
      f"{MOODLE.format('Dave Orr', 4712)}/hand-in.zip": zipped({f"Desktop/{WORK}": notebook(RIGHT)}),
      "ursula.zip": zipped({f"work/deep/deeper/{WORK}": notebook(RIGHT)})},
     ["Carol Ng", "Dave Orr", "ursula"]),
    ({f"{MOODLE.format('Anna Schmidt', id)}/{WORK}": notebook(RIGHT) for id in (4711, 4712)},
     ["Anna Schmidt (4711)", "Anna Schmidt (4712)"]),
    ({CAROL.format(4711, "work", "01_attention"): notebook(RIGHT),
      CAROL.format(4711, "Dave Orr", "03_gqa"): notebook(RIGHT.replace("1.91", "3.1")),
      CAROL.format(4712, "work", "01_attention"): notebook(RIGHT)},
     ["Carol Ng (4711)", "Carol Ng (4711)", "Carol Ng (4712)"]),
    ({f"{name}/{WORK}": notebook(RIGHT) for name in ("student 0", "student 1", "Team_12", "team 13 final")}
     | {"student_14_03_gqa.ipynb": notebook(RIGHT.replace("1.91", "3.1"))},
     ["Team_12", "student 0", "student 1", "student 14", "team 13"]),
    ({f"116001-22002 - Jane Brown - May 1, 2026 1159 PM/{WORK}": notebook(RIGHT),
      f"May Day - Sept 30, 2026 905 AM/{WORK}": notebook(RIGHT),
      f"Lab 1_jbrown_attempt_2026-05-01-23-59-02_{WORK}": notebook(RIGHT)}, ["Jane Brown", "May Day", "jbrown"])],
    ids=["zips with one inner folder", "namesakes", "Moodle's files without folders", "a role and a number",
         "Brightspace's folders, Blackboard's files"])
def test_whose_work_it_is(tmp_path, files, named):
    for name, data in files.items():
        put(tmp_path / name, data)
    found = students(tmp_path)
    assert sorted(s for s, _, _ in found) == named and not any(problem for *_, problem in found)
    assert (sorted(chapter for _, chapter, _ in found)
            == sorted("gqa" if "03_gqa" in name else "attention" for name in files))


@pytest.mark.parametrize("name", ["Ann Lee_4711_9999_", "Ann Lee_4711_assignsubmission_file_"])
def test_a_name_on_the_platform_is_no_classmates_number(tmp_path, name):
    """Somebody calls themselves so in Moodle, which adds a number of its own."""
    put(tmp_path / MOODLE.format("Ann Lee", 4711) / "01_attention.ipynb", notebook(RIGHT), age=100)
    put(tmp_path / MOODLE.format(name, 5555) / "01_attention.ipynb", notebook(RIGHT.replace("amax", "max")))
    put(tmp_path.parent / "class.csv", "name,id\nAnn Lee,4711\nEve Fox,5555\n")
    roster = Roster.read(tmp_path.parent / "class.csv")
    ann = next(s for s in collect(tmp_path, roster=roster) if s.student == "Ann Lee")
    assert "amax" in ann.cells["1.91"] and not ann.notes


def test_folders_that_are_numbers_are_students(tmp_path):
    for number in range(1, 41):
        put(tmp_path / f"{number:02d}" / "01_attention.ipynb", notebook(RIGHT))
    put(tmp_path / "07" / "Alice Smith" / "03_gqa.ipynb", notebook("# EXERCISE 3.1\nx = 1"))
    found = students(tmp_path)
    assert len({s for s, _, _ in found}) == 40 and ("07", "gqa", False) in found


def test_one_name_in_two_spellings_is_one_student(tmp_path):
    for form, chapter in (("NFC", "01_attention"), ("NFD", "03_gqa")):
        put(tmp_path / unicodedata.normalize(form, "José") / f"{chapter}.ipynb",
            notebook(RIGHT.replace("1.91", f"{chapter[1]}.1")))
    assert len({s for s, _, _ in students(tmp_path)}) == 1


def test_a_zip_never_speaks_for_a_classmate(tmp_path):
    alice = put(tmp_path / "Alice Smith" / "01_attention.ipynb", notebook(RIGHT))
    path = tmp_path / "mallory.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("Alice Smith/01_attention.ipynb", "../Alice Smith/01_attention.ipynb",
                     "/Alice Smith/01_attention.ipynb"):
            archive.writestr(zipfile.ZipInfo(name, (2099, 1, 1, 0, 0, 0)), notebook("# EXERCISE 1.91\nx = 1"))
    found = {s.student: s for s in collect(tmp_path)}
    assert set(found) == {"Alice Smith", "mallory"} and found["Alice Smith"].cells == {"1.91": RIGHT}
    assert (found["Alice Smith"].file == str(alice.relative_to(tmp_path)) and found["mallory"].when
            <= path.stat().st_mtime)
    os.utime(alice, (time.time() + 1e8,) * 2)
    assert {s.student: s for s in collect(tmp_path)}["Alice Smith"].when <= time.time()


def test_a_class_in_one_zip_is_named_by_its_inner_folders_where_the_instructor_says_so(tmp_path):
    inner = zipped({"Desktop/01_attention.ipynb": notebook(RIGHT)})
    put(tmp_path / "export.zip",
        zipped({"ann/01_attention.ipynb": notebook(RIGHT), "ben/hand-in.zip": inner}))
    assert students(tmp_path) == [("export", "attention", False)]
    assert [s for s, _, _ in students(tmp_path, class_zips=[tmp_path / "export.zip"])] == ["ann", "ben"]


def test_the_level_of_the_names_can_be_said():
    path = PurePosixPath("03/ann lee/answers.ipynb")
    assert (person_of(path).name == "03" and person_of(path, depth=2).name == "ann lee"
            and person_of(path, depth=3).name == "answers")


@pytest.mark.parametrize("text",
                         ["name,id,email\nAnna Schmidt,4711,a@x.edu\nBen Lee,12,b@x.edu\nCleo Day,13,\n",
                          'Student,ID,SIS Login ID,Section\n"Schmidt, Anna",4711,anna,1\n'
                          '"Lee, Ben",12,ben,1\n"Day, Cleo",13,c,1\n',
                          "First name,Last name,ID number,Email address\nAnna,Schmidt,4711,a@x.edu\n"
                          "Ben,Lee,12,b@x.edu\nCleo,Day,13,c@x.edu\n"])
def test_a_roster_names_who_is_missing_and_who_is_unknown(tmp_path, text):
    folder = tmp_path / "in"
    put(folder / MOODLE.format("Anna S.", 4711) / "01_attention.ipynb", notebook(RIGHT))
    put(folder / "ben lee" / "01_attention.ipynb", notebook(RIGHT))
    put(folder / "zoe" / "01_attention.ipynb", notebook(RIGHT))
    put(tmp_path / "class.csv", text)
    found = {s.student: s for s in collect(folder, roster=Roster.read(tmp_path / "class.csv"))}
    assert len(found) == 4 and next(s for s in found.values() if s.row.get("id") == "4711").cells
    assert next(s for s in found.values() if s.row.get("id") == "12").cells
    assert next(s for s in found.values() if s.row.get("id") == "13").problem == "nothing was handed in"
    assert "not on the roster" in found["zoe"].notes


def test_two_lines_of_a_roster_that_fit_are_none():
    roster = Roster([{"name": "Ann Lee", "id": "1", "login": "", "email": ""},
                     {"name": "Lee, Ann", "id": "2", "login": "", "email": ""}])
    assert roster.find(Person("ann lee")) is None and roster.find(Person("x", "2"))["id"] == "2"


def test_a_students_page_names_no_classmate(tmp_path):
    marks = [report.Mark(name, "attention", "1.1", "t", "write",
                         Verdict("1.1", "t", PASSED, "All agree.", points=1, of=1),
                         source="def f(x):\n    return x") for name in ("yuri", "mia")]
    flag_copies(marks)
    report.write(tmp_path, marks)
    assert "yuri" in (tmp_path / "grades.csv").read_text() and marks[1].flags == ("same code as yuri",)
    assert "yuri" not in (tmp_path / "students" / "mia.html").read_text()


def test_no_number_is_too_long_to_compare():
    long = "def f(x):\n    return 0x" + "f" * 4000
    assert skeleton(long) == skeleton(long) != skeleton("def f(x):\n    return 1")
    marks = [report.Mark("ann", "attention", "1.1", "t", "write", Verdict("1.1", "t", PASSED, ""),
                         source=long)]
    flag_copies(marks)


def within(seconds: float, call):
    begin = time.monotonic()
    result = call()
    assert time.monotonic() - begin < seconds
    return result


def test_many_cells_and_long_ones_take_no_time(tmp_path):
    put(tmp_path / "ann" / "01_attention.ipynb", notebook(*("# EXERCISE 1.91\nx = 1" for _ in range(40_000))))
    put(tmp_path / "ben" / "01_attention.ipynb",
        notebook(*(f"# EXERCISE 1.{n}\nx = 1" for n in range(999)), "# EXERCISE 1.91\n" + "x" * 10**7))
    put(tmp_path / "cleo" / "01_attention.ipynb", notebook("# EXERCISE " + "9" * 5000 + ".1\nx = 1"))
    found = within(20, lambda: collect(tmp_path))
    assert (len(found[0].notes) == 1 and sum(map(len, found[1].cells.values())) < 7_000_000
            and len(found[1].cells) <= 200)
    assert found[2].student == "cleo" and not found[2].cells


def test_a_name_of_sixty_thousand_underscores_is_short_work(tmp_path):
    put(tmp_path / "ann.zip",
        zipped({"_" * 60_000 + f"/{n}/01_attention.ipynb": notebook(RIGHT) for n in range(5)}))
    [found] = within(10, lambda: collect(tmp_path))
    assert found.student == "ann" and len(found.file) < 3000


def test_a_zip_that_unpacks_to_much_is_one_row(tmp_path):
    bomb = '{"cells": [' + "[]," * 10_000_000 + "[]]}"
    put(tmp_path / "ann.zip",
        zipped({f"{n:02d}_x.ipynb": bomb for n in range(6)} | {"01_attention.ipynb": notebook(RIGHT)}))
    put(tmp_path / "ben.zip",
        zipped({f"{n}.ipynb": notebook(RIGHT) for n in range(intake.MAX_NOTEBOOKS + 20)}))
    found = within(60, lambda: collect(tmp_path))
    assert {s.student for s in found} == {"ann", "ben"} and next(s for s in found if s.student == "ben").cells
    assert (all(s.problem or s.cells for s in found)
            and any("parts" in s.problem for s in found if s.student == "ann"))
