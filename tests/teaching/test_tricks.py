"""Thirty and more tricks of students' code, and whatever a hand-in can hold: no credit, no stop."""
import csv
import json
import math
import os
import time
import zipfile
from pathlib import Path

import pytest

from adversaries import hostile, tricks
from course_lib.exercises.declare import load_chapter
from course_lib.teaching.reports import gradebooks, report
from course_lib.teaching.reports.class_page import class_page
from course_lib.teaching.marks.store import Store
from course_lib.teaching.hand_ins.submissions import collect
from course_lib.teaching.marks.table import table
from hand_ins import RIGHT, notebook, put, zipped
from test_sandbox import COURSE, linux, marked, needs_engine, sandbox, strangers  # noqa: F401

FEW = ("answers from two processes", "changes its answer after it has returned",
       "replaces what Python is made of")


@linux
@pytest.mark.parametrize("name",
                         [pytest.param(n, marks=() if n in FEW else pytest.mark.slow) for n in tricks.PYTHON])
def test_a_trick_earns_nothing_and_stops_nothing(sandbox, name):  # noqa: F811
    verdict = marked(sandbox, tricks.PYTHON[name])
    assert verdict.status == "wrong" and verdict.points == 0, str(verdict)
    assert marked(sandbox, hostile.HONEST).status == "passed" and not strangers(sandbox)
    assert not [p for p in ("/dev/shm/answer", "/run/lock/answer", "/var/tmp/answer") if os.path.exists(p)]


@linux
@pytest.mark.slow
@pytest.mark.parametrize("name", tricks.KERNELS)
def test_a_trick_of_a_kernel_earns_nothing(sandbox, needs_engine, name):  # noqa: F811
    begin = time.monotonic()
    verdict = marked(sandbox, tricks.KERNELS[name], "1.94")
    assert verdict.status == "wrong" and verdict.points == 0, str(verdict)
    assert time.monotonic() - begin < 60 and not strangers(sandbox)


HOSTILE_NAMES = ["=HYPERLINK(\"http://x\",\"y\")", "<script>alert(1)</script>", "new\nline", "\u202egnp.exe",
                 "\x07bell", "-rf", "a" * 200, "ann;ben,\"cleo\"", "ＡＮＮ", "\ufeffann", "' or 1=1 --",
                 "%s%n", "CON", "name\twith\ttabs", "@SUM(A1)", "+1+1"]


def in_folder(folder: Path) -> None:
    """Everything that is no ordinary notebook, each by a student of its own."""
    for name in HOSTILE_NAMES:
        put(folder / name.replace("/", "|") / "01_attention.ipynb", notebook(RIGHT))
    put(folder / "casey" / "01_attention.ipynb", notebook(RIGHT))
    put(folder / "CASEY" / "01_attention.ipynb", notebook(RIGHT), age=100)
    (folder / "fifo").mkdir()
    os.mkfifo(folder / "fifo" / "01_attention.ipynb")
    (folder / "link").mkdir()
    (folder / "link" / "01_attention.ipynb").symlink_to("/etc/passwd")
    (folder / "loop").symlink_to(folder)
    (folder / "device").mkdir()
    (folder / "device" / "01_attention.ipynb").symlink_to("/dev/zero")
    (folder / "hollow").mkdir()
    with open(folder / "hollow" / "01_attention.ipynb", "wb") as file:
        file.truncate(1 << 40)
    (folder / "a folder as a file" / "01_attention.ipynb").mkdir(parents=True)


def cells(*made: dict) -> bytes:
    return json.dumps({"cells": [{"cell_type": "code"} | cell for cell in made]}).encode()


NOTHING = {f"nothing {chr(97 + n)}": data for n, data in enumerate((
    b"", b"{", b"[]", b"null", b"\xff\xfe\x00", b'{"cells": 3}', zipped({"a": "b"}),
    b'{"cells": [1, null, {"cell_type": "code"}]}', b'{"cells": [{"cell_type": "code", "source": {"a": 1}}]}',
    b'{"cells": ' + b"[" * 100_000, "{\"cells\": [\"\ud800\"]}".encode("utf-8", "surrogatepass")))}
CONTENTS = NOTHING | {
    "deep": b'{"cells": [], "metadata": ' + b'{"a": ' * 50_000 + b"1" + b"}" * 50_000 + b"}",
    "ids twice": notebook(RIGHT, "# EXERCISE 1.93\nscores = 1").replace(
        '"metadata"', '"id": "same", "metadata"').encode(),
    "outputs": cells({"source": RIGHT, "outputs": [{"text": "x" * 10**6}] * 20}),
    "long number": b'{"cells": [], "nbformat": ' + b"9" * 5000 + b"}",
    "no numbers": cells({"source": "x", "execution_count": math.nan}, {"execution_count": -math.inf}),
    "cells twice": b'{"cells": 1, "cells": [{"cell_type": "code", "source": "# EXERCISE 1.91\\nx"}]}',
    "utf-16": notebook(RIGHT).encode("utf-16"),
    "format 3": json.dumps({"worksheets": [{"cells": [{"cell_type": "code", "input": [RIGHT]}]}]}).encode(),
    "source of sources": cells({"source": [["# EXERCISE 1.91"], 3, None]}),
    "marker of control characters": notebook("# EXERCISE 1.91\x00\x1b[2J\u202e" + RIGHT).encode(),
    "an object with every key": json.dumps({"cells": {"cell_type": "code", "source": RIGHT}}).encode()}


def link_in_a_zip() -> bytes:
    entry = zipfile.ZipInfo("01_attention.ipynb")
    entry.external_attr = 0o120777 << 16
    return zipped({entry: "/etc/passwd", "C:\\Users\\x\\02_rope.ipynb": notebook(RIGHT),
                   "//host/share/03_gqa.ipynb": notebook(RIGHT), "a\x00b.ipynb": "x",
                   "01_attention.ipynb/": ""})


ZIPS = NOTHING | {
        "a link": link_in_a_zip(), "cut short": zipped({"01_attention.ipynb": notebook(RIGHT)})[:-30],
        "a way out": zipped({"../../dan/01_attention.ipynb": notebook(RIGHT)}),
        "bomb": zipped({"01_attention.ipynb": "0" * (60 << 20)}), "no zip": b"PK\x03\x04" + b"\xff" * 500,
        "a wrong checksum": (whole := zipped({"01_attention.ipynb": notebook(RIGHT)}))[:60] + bytes(8)
        + whole[68:],
        "locked": zipped({"01_attention.ipynb": "x" * 50}).replace(b"PK\x01\x02\x14\x03\x14\x00\x00\x00",
                                                                   b"PK\x01\x02\x14\x03\x14\x00\x01\x00")}


def test_whatever_a_folder_holds_the_batch_ends_and_each_has_a_row(tmp_path):
    folder, results = tmp_path / "in", tmp_path / "out"
    results.mkdir()
    in_folder(folder)
    for name, data in CONTENTS.items():
        put(folder / name / "01_attention.ipynb", data)
    for name, data in ZIPS.items():
        put(folder / f"zip {name}.zip", data)
    begin = time.monotonic()
    submissions, chapters = collect(folder), ["attention", "gqa"]
    marks = table(submissions, chapters, Store(results, 1))
    report.write(results, marks)
    gradebooks.write_gradebooks(results, marks, submissions, chapters)
    page = class_page(marks)
    assert time.monotonic() - begin < 20
    students = {s.student for s in submissions}
    assert len(students) == len(HOSTILE_NAMES) + 1 + 6 + len(CONTENTS) + len(ZIPS), sorted(students)
    of = sum(e.points for word in chapters for e in load_chapter(word))
    with open(results / "grades.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for student in {row["student"] for row in rows}:
        assert sum(float(row["of"]) for row in rows if row["student"] == student) == of, student
    assert not [row for row in rows if row["student"][:1] in "=+-@\t\r"], "a spreadsheet would compute a name"
    assert "root:" not in (results / "grades.csv").read_text() + page and "<script>alert" not in page
    for path in (results / "students").iterdir():
        assert "<script>alert" not in path.read_text() and len(path.name) < 255
    assert {"\\u202egnp.exe", "\\ufeffann", "name\\u0009with\\u0009tabs"} <= students, (
        "what cannot be seen is spelled out")
    of_student = {s.student: s for s in submissions}
    assert of_student["casey"].file == "casey/01_attention.ipynb" and of_student["zip a way out"].cells
    assert all(of_student[name].cells == {"1.91": RIGHT} for name in ("utf", "format"))
    assert all(of_student[name].problem for name in ("fifo", "link", "device", "zip bomb", "zip no zip"))
    assert of_student["zip locked"].problem.endswith("it has a password")
    assert not any(of_student[before + name].cells for name in NOTHING for before in ("", "zip "))
