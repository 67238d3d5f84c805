"""What comes out of a marking besides the table: gradebooks, late rules, marks by hand, changes."""
import concurrent.futures
import contextlib
import csv
import datetime
import errno
import io
import json
import os
import zipfile
from dataclasses import asdict

import pytest

from course_lib.exercises.declare import find, load_chapter
from course_lib.exercises.judging.verdict import PASSED, WRONG, Verdict
from course_lib.teaching.marks import batch, by_hand, changes
from course_lib.teaching.reports import gradebooks, report
from course_lib.teaching import grade
from course_lib.teaching.reports.class_page import class_page
from course_lib.teaching.hand_ins.identity import Roster
from course_lib.teaching.hand_ins.late import LateRule, read_rule
from course_lib.teaching.marks.store import Store
from course_lib.teaching.hand_ins.submissions import collect
from course_lib.teaching.marks.table import table
from hand_ins import MOODLE, notebook, put, zipped

CELL = "# EXERCISE 3.2\nx = 1"


def verdict(status: str, id: str = "3.2", misconception: str | None = None) -> dict:
    ex = find(id)
    return asdict(Verdict(id, ex.title, status, "Said.", misconception=misconception, of=ex.points,
                          points=ex.points if status == PASSED else 0))


@pytest.fixture
def marked(tmp_path):
    """Ann has passed 3.2, Ben has a misconception, Cleo has sent nothing; nothing is run."""
    folder, results = tmp_path / "in", tmp_path / "out"
    results.mkdir()
    put(folder / MOODLE.format("Ann Lee", 11) / "03_gqa.ipynb", notebook(CELL))
    put(folder / MOODLE.format("Ben =Day", 12) / "03_gqa.ipynb", notebook(CELL + "2"), age=3600 * 30)
    put(tmp_path / "class.csv", "name,id,email,extension\nAnn Lee,11,ann@x.edu,\nBen "
        "=Day,12,ben@x.edu,48\nCleo Fox,13,cleo@x.edu,\n")
    submissions = collect(folder, roster=Roster.read(tmp_path / "class.csv"))
    store = Store(results, 5)
    store.put(find("3.2"), "# EXERCISE 3.2\nx = 1", verdict(PASSED))
    store.put(find("3.2"), "# EXERCISE 3.2\nx = 12", verdict(WRONG, misconception="counts heads twice"))
    return submissions, store, results


def rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_canvas_moodle_and_gradescope_get_what_they_import(marked):
    submissions, store, results = marked
    marks = table(submissions, ["gqa"], store)
    gradebooks.write_gradebooks(results, marks, submissions, ["gqa"])
    points, of = f"{find('3.2').points:g}", f"{sum(e.points for e in load_chapter('gqa')):g}"
    canvas = rows((results / "gradebook_canvas.csv").read_text())
    assert canvas[0] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Attention: gqa"]
    assert canvas[1][0].strip() == "Points Possible" and canvas[1][-1] == of
    assert ([row[:2] + row[-1:] for row in canvas[2:]] == [["Ann Lee", "11", points], ["Ben =Day", "12", "0"],
                                                           ["Cleo Fox", "13", "0"]])
    moodle = rows((results / "gradebook_moodle.csv").read_text())
    assert (moodle[0][:3] == ["Full name", "ID number", "Email address"]
            and moodle[1][:3] == ["Ann Lee", "11", "ann@x.edu"])
    sheet = rows((results / "worksheet_moodle_gqa.csv").read_text())
    assert sheet[1][:4] == ["Participant 11", "Ann Lee", points, of] and len(sheet) == 3
    sent = {path.stem: json.loads(path.read_text()) for path in (results / "gradescope").glob("*.json")}
    ann = next(v for k, v in sent.items() if k.startswith("Ann"))
    assert ann["score"] == float(points) and len(sent) == 3
    assert sum(t["max_score"] for t in ann["tests"]) == float(of)
    assert {t["status"] for t in ann["tests"]} == {"passed", "failed"}


def test_a_group_has_in_the_gradebooks_what_one_of_it_has_handed_in(marked, tmp_path):
    _, store, results = marked
    put(tmp_path / "groups.csv", "name,id,group\nAnn Lee,11,A\nBen =Day,12,A\nCleo Fox,13,A\nDan "
        "Orr,14,B\nEve Fry,15,\n")
    submissions = collect(tmp_path / "in", roster=Roster.read(tmp_path / "groups.csv"))
    gradebooks.write_gradebooks(results, table(submissions, ["gqa"], store), submissions, ["gqa"])
    points = f"{find('3.2').points:g}"
    assert ([row[-1] for row in rows((results / "gradebook_moodle.csv").read_text())[1:]]
            == [points, "0", points, "0", "0"])


def test_days_late_cost_what_the_rule_says(marked):
    submissions, store, _ = marked
    ann = next(s for s in submissions if s.student == "Ann Lee")
    ben = next(s for s in submissions if s.student.startswith("Ben"))
    due = datetime.datetime.fromtimestamp(ann.when) - datetime.timedelta(hours=25)
    rule = LateRule({"gqa": due}, percent=20)
    assert rule.share(ann)[0] == pytest.approx(0.6) and "25 h late: 40 % off" in rule.share(ann)[1]
    assert (LateRule({"": due}, percent=20, most=1).share(ann)[0] == 0
            and LateRule({"": due}, percent=20, grace=26 * 60).share(ann)[0] == 1)
    assert (LateRule({"rope": due}, percent=20).share(ann) == (1.0, "") and LateRule({"": due}).share(ann)[0]
            == 1)
    later = LateRule({"": datetime.datetime.fromtimestamp(ben.when) - datetime.timedelta(hours=47)},
                     percent=50)
    assert later.share(ben)[0] == 1  # 48 hours by the roster
    mark = next(m for m in table(submissions, ["gqa"], store, rule) if (m.student, m.exercise)
                == ("Ann Lee", "3.2"))
    assert mark.points == pytest.approx(0.6 * mark.verdict.points) and "late" in mark.notes[-1]
    assert read_rule(["3=2026-05-01T23:59", "2026-06-01"], 10, None, 0).due.keys() == {"gqa", ""}
    with pytest.raises(ValueError, match="--due soon"):
        read_rule(["soon"], 0, None, 0)


@pytest.mark.parametrize("name, hours, told", [
    ("ann_late_4711_5022_03_gqa.ipynb", 2, "Canvas has it as late, its date does not"), ("ann_4711_5022_03_gqa.ipynb", 2, ""),
    ("ann_4711_5022_03_gqa.ipynb", 0, "50 % off (by the date of its file: Canvas's name for it does not say late)"),
    ("1-2 - Ann Lee - May 1, 2024 1159 PM/03_gqa.ipynb", 0, ""), ("Ann - May 2, 2024 901 AM/03_gqa.ipynb", 2, "9 h late"),
    ("Lab_ann_attempt_2024-05-02-09-01-00_03_gqa.ipynb", 2, "9 h late"), ("ann.zip", 0, "60 min late"), ("ann.zip", 2, "")])
def test_a_platforms_name_for_a_hand_in_says_when_it_came(tmp_path, name, hours, told):
    """Where the name has no date, the file's own counts: `hours` old, with the deadline an hour ago. The dates in a
    zip, here of 1980, are the student's."""
    content = zipped({zipfile.ZipInfo("03_gqa.ipynb"): notebook(CELL)}) if name.endswith(".zip") else notebook(CELL)
    put(tmp_path / name, content, age=3600 * hours)
    due = (datetime.datetime(2024, 5, 2) if "2024" in name
           else datetime.datetime.now() - datetime.timedelta(hours=1))
    note = LateRule({"": due}, percent=50).share(collect(tmp_path)[0])[1]
    assert told in note and bool(note) == bool(told)


def test_dates_that_seem_to_be_of_unpacking_are_asked_about(tmp_path):
    for number in range(3):
        put(tmp_path / f"ann{number}" / "03_gqa.ipynb", notebook(CELL), age=number // 2)
    rule = LateRule({"": datetime.datetime.now() - datetime.timedelta(hours=1)}, percent=10)
    assert "when you unpacked them" in rule.doubt(collect(tmp_path)) and not LateRule().doubt(collect(tmp_path))
    put(tmp_path / "ben" / "03_gqa.ipynb", notebook(CELL), age=7200)
    assert rule.doubt(collect(tmp_path)) == ""


def test_a_text_answer_and_a_mark_by_hand_survive_a_second_run(tmp_path):
    results = tmp_path / "out"
    results.mkdir()
    cells = json.loads(notebook(CELL))
    cells["cells"].append({"cell_type": "markdown", "metadata": {},
                           "source": ["**Answer 3.a.** Because heads\n", "share keys."]})
    put(tmp_path / "in" / "ann" / "03_gqa.ipynb", json.dumps(cells))
    store = Store(results, 5)
    store.put(find("3.2"), CELL, verdict(WRONG))
    for run in range(3):
        submissions = collect(tmp_path / "in")
        marks = table(submissions, ["gqa"], store)
        lines = by_hand.merge(marks, submissions, by_hand.read(results))
        by_hand.write(results, lines)
        points = {m.exercise: m.points for m in marks}
        if run == 0:
            assert points["3.a"] == points["3.2"] == 0
            text = (results / "by_hand.csv").read_text()
            assert "Because heads\nshare keys." in text
            put(results / "by_hand.csv", text.replace("ann,gqa,3.a,,,,", "ann,gqa,3.a,2,3,Good.,")
                + "ann,gqa,3.2,1.5,,a small slip,\n")
        else:
            assert points["3.a"] == 2 and points["3.2"] == 1.5
            assert next(m for m in marks if m.exercise == "3.a").verdict.of == 3
            assert any("by hand: a small slip" in note for m in marks for note in m.notes)
    put(results / "by_hand.csv", "student,exercise,points\nann,3.2,many\n")
    with pytest.raises(ValueError, match="line 2: points and of are numbers"):
        by_hand.read(results)


def test_the_class_page_says_who_is_stuck_and_why(marked):
    submissions, store, _ = marked
    page = class_page(table(submissions, ["gqa"], store))
    assert ("1 × counts heads twice" in page and "Cleo Fox" in page and "<script" not in page
            and "1 of 2" in page)
    assert page.index("Ben =Day") < page.index("Cleo Fox")


def test_what_a_regrade_changes_is_listed(marked):
    submissions, store, results = marked
    report.write(results, table(submissions, ["gqa"], store))
    before = changes.rows_of(results / "grades.csv")
    store.put(find("3.2"), "# EXERCISE 3.2\nx = 12", verdict(PASSED))
    report.write(results, table(submissions, ["gqa"], store))
    [head, *lines] = rows(changes.changes(before, changes.rows_of(results / "grades.csv")))
    assert (lines == [["Ben =Day", "3.2", WRONG, PASSED, "0", f"{find('3.2').points:g}"]]
            and head[2:4] == ["before", "after"])
    assert changes.rows_of(results / "nothing.csv") == {}


def test_a_full_disk_is_reported_in_one_sentence(tmp_path, monkeypatch, capsys):
    def full(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    put(tmp_path / "in" / "Erin" / "03_gqa.ipynb", "{broken")
    monkeypatch.setattr(report, "write_whole", full)
    assert grade.main([str(tmp_path / "in"), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "No space left on device" in said and "Traceback" not in said


class AtOnce:
    """An executor that passes everything, in the calling thread."""

    @staticmethod
    def submit(function, task):
        done = concurrent.futures.Future()
        done.set_result({id: verdict(PASSED, id) for id in task["cells"]})
        return done


def test_the_table_can_be_looked_at_while_the_run_goes_on(tmp_path, monkeypatch):
    """Written for each student whose last notebook is marked; what changed is against the run before."""
    seen, write = [], grade._write_so_far
    monkeypatch.setattr(batch, "executor_for", lambda *_: contextlib.nullcontext(AtOnce()))
    results = tmp_path / "out"

    def look(*arguments):
        write(*arguments)
        seen.append((changes.rows_of(results / "grades.csv"), (results / "class.html").read_text()))
    monkeypatch.setattr(grade, "_write_so_far", look)
    for name in ("Ann", "Ben", "Cleo"):
        put(tmp_path / "in" / name / "03_gqa.ipynb", notebook(CELL + name))
    put(tmp_path / "in" / "Ann" / "02_rope.ipynb", notebook("# EXERCISE 2.2\nx = 1"))
    command = [str(tmp_path / "in"), "--out", str(results), "--no-sandbox"]
    assert grade.main(command) == 0 and len(seen) == 2
    for table_then, page in seen:
        verdicts = [status for status, _ in table_then.values()]
        assert PASSED in verdicts and "not run" in verdicts and "of 4 notebooks are marked." in page
    assert "notebooks are marked" not in (results / "class.html").read_text()
    for name in ("Ann", "Ben"):
        put(tmp_path / "in" / name / "03_gqa.ipynb", notebook("# EXERCISE 3.3\n" + name))
    assert grade.main(command) == 0 and len(seen) == 3
    assert {row[0] for row in rows((results / "changes.csv").read_text())[1:]} == {"Ann", "Ben"}
