"""`python -m course_lib grade`: from a folder of submissions to marks that one can stand behind."""
import csv
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

import pytest

from adversaries import hostile
from course_lib.teaching.marks import batch as batches, marking
from course_lib.teaching import grade
from course_lib.teaching.reports import report
from course_lib.teaching.confined import walls
from course_lib.exercises.running import runner
from course_lib.exercises.declare import all_exercises, find
from course_lib.teaching.confined.reply import STOPPED, Reply
from course_lib.teaching.confined.sandbox import Sandbox
from course_lib.teaching.copies.similarity import skeleton
from course_lib.teaching.hand_ins.identity import person_of
from course_lib.teaching.marks.store import Store
from course_lib.teaching.hand_ins.submissions import chapter_of_name, collect
from course_lib.teaching.marks.table import table

from hand_ins import RIGHT, no_private_exercises_afterwards, notebook, put, zipped  # noqa: F401

PRIVATE = Path(__file__).resolve().parents[1] / "adversaries" / "exercises"
NO_WALLS = [] if not walls.missing() else ["--no-sandbox"]
WRONG = RIGHT.replace("e.sum(-1", "e.sum(0")
GUESS = "# EXERCISE 1.93\nscores = 256"


def run(folder: Path, results: Path, *more: str) -> tuple[int, list[dict]]:
    """(exit status, the rows of the private exercises)."""
    status = grade.main([str(folder), "--out", str(results), "--exercises", str(PRIVATE), *NO_WALLS, *more])
    with open(results / "grades.csv", newline="") as file:
        return status, [row for row in csv.DictReader(file)
                        if row["exercise"] in ("", "1.91", "1.92", "1.93", "1.94")]


def of(rows: list[dict], student: str) -> dict[str, dict]:
    return {row["exercise"]: row for row in rows if row["student"] == student}


@pytest.mark.parametrize("path, student, chapter", [
    ("alice/03_gqa.ipynb", "alice", "gqa"),
    ("03_gqa_alice.ipynb", "alice", "gqa"),
    ("alice_03_gqa.ipynb", "alice", "gqa"),
    ("gqa-bob.ipynb", "bob", "gqa"),
    ("Alice Smith/03_gqa (2).ipynb", "Alice Smith", "gqa"),
    ("alice/notebooks/06_flash_attention.ipynb", "alice", "flash_attention"),
    ("submitted/alice/gqa/gqa.ipynb", "alice", "gqa"),
    ("Alice Smith_4711_assignsubmission_file_/03_gqa.ipynb", "Alice Smith", "gqa"),
    ("smithalice_12345_678910_03_gqa.ipynb", "smithalice", "gqa"),
    ("week3/alice/04_linear_attention_final.ipynb", "alice", "linear_attention"),
    ("alice/01_attention-Copy1.ipynb", "alice", "attention"),
    ("alice/my answers 07.ipynb", "alice", "kv_cache"),
    ("alice/lab 3/03_gqa.ipynb", "alice", "gqa"),
    ("03_gqa.ipynb", "03_gqa", "gqa"),
    ("student42/00_start_here.ipynb", "student42", "start_here"),
    ("submissions/assignment_5551_export/submission_90001/03_gqa.ipynb", "submission_90001", "gqa"),
    ("My Nguyen/03_gqa.ipynb", "My Nguyen", "gqa"),
    ("Sally Field/03_gqa.ipynb", "Sally Field", "gqa"),
    ("Homework Sally Field/Final Version/03_gqa.ipynb", "Sally Field", "gqa")])
def test_names_are_understood(path, student, chapter):
    assert (person_of(PurePosixPath(path)).name, chapter_of_name(PurePosixPath(path))) == (student, chapter)


def test_files_zip_files_and_zip_files_in_zip_files(tmp_path):
    put(tmp_path / "ann" / "01_attention.ipynb", notebook(RIGHT))
    put(tmp_path / "01_attention_ben.ipynb", notebook(RIGHT))
    put(tmp_path / "cleo.zip", zipped({"01_attention.ipynb": notebook(RIGHT)}))
    put(tmp_path / "all.zip",
        zipped({"dan/01_attention.ipynb": notebook(RIGHT), "__MACOSX/dan/._01.ipynb": "x"}))
    put(tmp_path / "outer.zip", zipped({}) or b"")
    with zipfile.ZipFile(tmp_path / "outer.zip", "w") as archive:
        archive.writestr("eve.zip", zipped({"work/whatever.ipynb": notebook(RIGHT)}))
    found = collect(tmp_path, class_zips=[tmp_path / "all.zip"])
    assert ([(s.student, s.chapter, s.problem) for s in found]
            == [(n, "attention", "") for n in ("ann", "ben", "cleo", "dan", "outer")])
    assert all(set(s.cells) == {"1.91"} for s in found)


def test_a_notebook_of_two_chapters_is_a_hand_in_for_both(tmp_path):
    both = notebook(RIGHT, WRONG.replace("1.91", "1.92"), "# EXERCISE 3.1\nbytes = 1")
    put(tmp_path / "ann" / "all.ipynb", both)
    put(tmp_path / "bob" / "all.ipynb", both)
    put(tmp_path / "bob" / "03_gqa.ipynb", notebook("# EXERCISE 3.1\nbytes = 2"), age=100)
    found = {(s.student, s.chapter): s for s in collect(tmp_path)}
    assert set(found) == {(name, chapter) for name in ("ann", "bob") for chapter in ("attention", "gqa")}
    assert "= 1" in found["ann", "gqa"].cells["3.1"], "the only one there is"
    assert "= 2" in found["bob", "gqa"].cells["3.1"], "a notebook of its own goes before a stray cell"


def test_the_newest_that_can_be_read_wins_and_says_so(tmp_path):
    put(tmp_path / "ann" / "01_attention.ipynb", notebook(WRONG), age=100)
    put(tmp_path / "ann" / "01_attention_v2.ipynb", notebook(RIGHT), age=50)
    put(tmp_path / "ann" / "01_attention_v3.ipynb", "{", age=0)
    [chosen] = collect(tmp_path)
    assert (chosen.file == "ann/01_attention_v2.ipynb" and "normalise" in chosen.cells["1.91"]
            and "sum(-1" in chosen.cells["1.91"])
    assert len(chosen.notes) == 2 and any("v3" in n and "cannot be read" in n for n in chosen.notes)


def test_nobody_who_sent_something_is_missing(tmp_path):
    put(tmp_path / "ann" / "01_attention.ipynb", notebook(RIGHT))
    put(tmp_path / "ann.pdf", "%PDF")  # she has a notebook: this is not looked at
    put(tmp_path / "ben" / "answers.py", "x = 1")
    put(tmp_path / "cleo.zip", zipped({"scan.pdf": "%PDF"}))
    put(tmp_path / "dan_01_attention.rar", "Rar!")
    put(tmp_path / "roster.csv", "ann,ben")
    put(tmp_path / "results" / "marks.json", "{}")
    put(tmp_path / "Ann" / "03_gqa.ipynb", notebook("# EXERCISE 3.1\nx = 1"))
    found = collect(tmp_path)
    assert [(s.student, s.chapter) for s in found] == [
        ("Ann", "attention"), ("Ann", "gqa"), ("ben", ""), ("cleo", ""), ("dan", "attention")]
    assert [bool(s.problem) for s in found] == [False, False, True, True, True]


def test_only_the_chapters_that_are_asked_for(tmp_path):
    put(tmp_path / "in" / "ann" / "01_attention.ipynb", notebook(RIGHT))
    put(tmp_path / "in" / "ben" / "03_gqa.ipynb", notebook("# EXERCISE 3.1\nx = 1"))
    submissions, store = collect(tmp_path / "in"), Store(tmp_path, 1)
    assert set(batches.tasks(submissions, ["gqa"], store, True, None, [])) == {1}
    assert {m.chapter for m in table(submissions[:1], ["gqa"], store)} == {"gqa"}


@pytest.mark.parametrize("first", ["%%capture\n", "%%time\n\n", "%%capture out\n%%time\n"])
def test_a_magic_may_stand_above_the_marker(tmp_path, first):
    put(tmp_path / "ann.ipynb", notebook(first + RIGHT))
    assert collect(tmp_path)[0].cells["1.91"].strip() == RIGHT.strip()


def test_the_cells_say_what_they_answer_and_the_last_of_two_counts(tmp_path):
    """Whatever the file's name is; a comment may be written above the marker."""
    put(tmp_path / "ann" / "03_gqa.ipynb",
        notebook(WRONG, "# mine\n\n" + RIGHT, "%%cuda\n// mine\n// EXERCISE 1.94\nint x;"))
    [found] = collect(tmp_path)
    assert found.chapter == "attention" and set(found.cells) == {"1.91", "1.94"}
    assert "sum(-1" in found.cells["1.91"] and "the last one" in found.notes[0]


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    """A small class, marked once; the results lie among the submissions."""
    folder = tmp_path_factory.mktemp("batch")
    renamed = RIGHT.replace("e ", "weights ").replace("e.sum",
                                                      "weights.sum").replace("return e", "return  weights")
    put(folder / "ann" / "01_attention.ipynb", notebook(RIGHT, GUESS))
    put(folder / "ben" / "01_attention.ipynb", notebook(renamed, "# EXERCISE 1.93\nscores = 32"))
    put(folder / "01_attention_cleo.ipynb", notebook(WRONG + "\n# <script>alert(1)</script>"))
    put(folder / "dan.zip",
        zipped(
            {"01_attention.ipynb": notebook("# EXERCISE 1.91\ndef normalise(x):\n    raise "
                                            "NotImplementedError")}))
    put(folder / "eve" / "01_attention.ipynb", "broken")
    put(folder / "=cmd()" / "01_attention.ipynb",
        notebook("# EXERCISE 1.91" + hostile.QUICK["ends the process"]))
    status, rows = run(folder, folder / "results", "--seed", "3")
    return folder, folder / "results", status, rows


def test_points_and_verdicts(batch):
    _, _, status, rows = batch
    assert status == 0
    assert ({e: (r["verdict"], r["points"], r["of"]) for e, r in of(rows, "ann").items()}
            == {"1.91": ("passed", "2", "2"), "1.92": ("not attempted", "0", "3"),
                "1.93": ("passed", "1", "1"), "1.94": ("not attempted", "0", "2")})
    assert of(rows, "cleo")["1.91"]["misconception"] == "sums over the wrong axis"
    assert of(rows, "ben")["1.93"]["misconception"] == "adds the lengths"
    assert of(rows, "dan")["1.91"]["verdict"] == "not attempted"
    assert of(rows, "eve")[""]["verdict"] == "not run" and "no notebook" in of(rows, "eve")[""]["notes"]


def test_equal_code_is_flagged_names_and_spacing_aside(batch):
    rows = batch[3]
    assert of(rows, "ann")["1.91"]["flags"] == "same code as the reference; same code as ben"
    assert of(rows, "ben")["1.91"]["flags"] == "same code as the reference; same code as ann"
    assert not of(rows, "cleo")["1.91"]["flags"] and not of(rows, "ann")["1.93"]["flags"]


def test_a_name_is_no_formula(batch):
    assert report.safe_cell("\n=1+1").startswith("'")
    assert of(batch[3], "'=cmd()")["1.91"]["verdict"] == "wrong"


def test_pages_show_code_verdict_and_misconception_and_run_nothing(batch):
    pages = {p.name: p.read_text() for p in (batch[1] / "students").glob("*.html")}
    assert len(pages) == 6 and "ann.html" in pages
    page = pages["cleo.html"]
    assert "<script" not in page and "&lt;script&gt;alert(1)" in page and "default-src 'none'" in page
    assert "sums over the wrong axis" in page and "Which entries should add up to 1?" in page
    assert 'href="students/ann.html"' in (batch[1] / "index.html").read_text()


def test_junit_counts_what_did_not_pass(batch):
    root = ElementTree.parse(batch[1] / "junit.xml").getroot()
    suites = {s.get("name"): s for s in root}
    cases = {c.get("name").split()[0]: c for c in suites["ann"]
             if c.get("name").split()[0] in ("1.91", "1.92", "1.93")}
    assert len(cases["1.91"]) == 0 and cases["1.92"].find("failure") is not None
    assert int(suites["ann"].get("tests")) == len(suites["ann"]) and suites["eve"].get("errors") == "1"


@pytest.mark.slow
def test_a_second_run_marks_only_what_changed(batch, capsys, monkeypatch):
    folder, results, _, before = batch
    waits = []
    monkeypatch.setattr(os, "fsync", waits.append)
    assert run(folder, results)[1] == before                  # the seed is remembered, results are no hand-in
    assert "0 notebooks marked now" in capsys.readouterr().out
    path = put(folder / "dan" / "01_attention.ipynb", notebook(RIGHT + "# by dan"))
    after = run(folder, results, "--jobs", "1")[1]
    path.unlink()
    assert "1 notebook marked now" in capsys.readouterr().out
    assert len(waits) == 3, "a busy disk takes seconds: the marks wait for it, the pages can be made again"
    assert of(after, "dan")["1.91"]["verdict"] == "passed" and "newest" in of(after, "dan")["1.91"]["notes"]
    assert ([r for r in after if r["student"] not in ("dan", "ann", "ben")]
            == [r for r in before if r["student"] not in ("dan", "ann", "ben")])


def test_what_cannot_be_marked_is_refused_in_words(tmp_path, capsys):
    folder = tmp_path / "in"
    assert grade.main([str(folder), "--out", str(tmp_path / "out")]) == 2
    folder.mkdir()
    assert grade.main([str(folder), "--out", str(tmp_path / "out"), *NO_WALLS]) == 2
    said = capsys.readouterr().err
    assert "is not a folder" in said and "no notebook" in said
    assert "Traceback" not in said


def test_two_graders_of_one_folder_and_a_damaged_memory_are_refused(tmp_path, capsys):
    results = tmp_path / "results"
    put(tmp_path / "in" / "ann.ipynb", notebook(GUESS))
    asked = [str(tmp_path / "in"), "--out", str(results)]
    with grade.alone(results):
        assert grade.main(asked) == 2 and "another `grade` is writing" in capsys.readouterr().err
        assert results.stat().st_mode & 0o777 == 0o700
    put(results / "marks.json", '{"seed": 1, "verd')
    assert grade.main(asked) == 2 and "is damaged" in capsys.readouterr().err
    assert not (results / "grades.csv").exists()


def test_missing_walls_are_named_and_no_sandbox_is_asked_for(tmp_path, monkeypatch, capsys):
    put(tmp_path / "in" / "ann" / "01_attention.ipynb", notebook(RIGHT))
    monkeypatch.setattr(walls, "missing", lambda: ["reading only what is allowed (no Landlock)"])
    command = [str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--exercises", str(PRIVATE)]
    assert grade.main(command) == 2
    said = capsys.readouterr().err
    assert "no Landlock" in said and "--no-sandbox" in said and not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_worker_that_dies_costs_one_notebook_and_without_walls_it_is_marked(tmp_path, monkeypatch):
    for name in ("ann", "ben", "cleo"):
        put(tmp_path / "in" / name / "01_attention.ipynb", notebook(RIGHT + f"# {name}"))
    monkeypatch.setattr(marking, "mark_notebook", dies_over_ben)
    status, rows = run(tmp_path / "in", tmp_path / "out")
    assert status == 1 and {n: of(rows, n)["1.91"]["verdict"] for n in ("ann", "ben", "cleo")} == {
        "ann": "passed", "ben": "not run", "cleo": "passed"}
    monkeypatch.undo()
    put(tmp_path / "in" / "dan" / "01_attention.ipynb",
        notebook("# EXERCISE 1.91" + hostile.QUICK["ends the process"]))
    _, rows = run(tmp_path / "in", tmp_path / "out", "--no-sandbox", "--jobs", "1")
    assert of(rows, "ben")["1.91"]["verdict"] == "passed" and of(rows, "dan")["1.91"]["verdict"] == "wrong"


@pytest.mark.slow
@pytest.mark.parametrize("ended", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_a_run_that_is_stopped_loses_nothing_and_leaves_no_process(tmp_path, ended):
    put(tmp_path / "in" / "ann" / "01_attention.ipynb", notebook(RIGHT))
    for number in range(8):
        put(tmp_path / "in" / f"sleeper{number}" / "01_attention.ipynb",
            notebook(f"# EXERCISE 1.91\nimport time\ntime.sleep({60 + number})"))
    process = subprocess.Popen(
        [sys.executable, "-c",
         "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"       # as in a terminal
         "import sys; from course_lib.__main__ import main; sys.exit(main(sys.argv[1:]))",
         "grade", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--exercises", str(PRIVATE),
         *NO_WALLS, "--jobs", "2" if ended == signal.SIGINT else "1"],
        stderr=subprocess.PIPE, text=True, start_new_session=True, env=os.environ | {"TMPDIR": str(tmp_path)})
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith("1/9 ann"):
            break
    begin = time.monotonic()
    os.kill(process.pid, ended) if ended == signal.SIGKILL else os.killpg(process.pid, ended)
    rest = process.communicate(timeout=60)[1]
    if ended == signal.SIGINT:
        assert process.returncode == 130 and "1 of 9 notebooks are marked and kept" in rest, "".join(said) + rest
        assert "Traceback" not in rest and not list(tmp_path.glob("course-marking-*"))
    assert time.monotonic() - begin < 20
    assert len(json.loads((tmp_path / "out" / "marks.json").read_text())["verdicts"]) == 1
    with pytest.raises(ProcessLookupError):                            # no worker is left
        while time.monotonic() - begin < 30:
            os.killpg(process.pid, 0)
            time.sleep(0.1)
    while at_work := [p for p in Path("/proc").glob("[0-9]*/cwd") if str(tmp_path) in target(p)]:
        assert time.monotonic() - begin < 30, at_work                  # nor what runs a student's code
        time.sleep(0.1)


def target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


def dies_over_ben(task):
    if "# ben" in task["cells"]["1.91"]:
        os._exit(9)
    return {"1.91": {"id": "1.91", "title": "", "status": "passed", "headline": "", "details": [],
                     "points": 2, "of": 2}}


def test_skeletons():
    assert (skeleton("def f(x, n=1):\n    '''doc'''\n    y = x + n  # why\n    return y")
            == skeleton("def g(a, b=1):\n  c = a+b\n  return c"))
    assert skeleton("def f(x): return torch.exp(x)") != skeleton("def f(x): return torch.log(x)")
    assert (skeleton("def f(x: int) -> int:\n    y: int = x\n    return y")
            == skeleton("def f(x):\n    y = x\n    return y"))
    assert (skeleton("int i = a[0]; // x", "cuda") == skeleton("int  index=b[0];/* y */", "cuda")
            != skeleton("int i = a[1];", "cuda"))
    assert skeleton("def f(:", "python") == skeleton("def  f( :", "python")


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(strict=not NO_WALLS) as made:
        yield made


@pytest.mark.parametrize("exercise",
                         [pytest.param(e, id=e.id, marks=() if e.id[:2] == "1." and e.language == "python"
                                       else pytest.mark.slow) for e in all_exercises()])
def test_what_passes_in_the_notebook_passes_when_marked(exercise, sandbox):
    if exercise.language == "cuda" and marking.no_engine():
        pytest.skip("not run: no compiler for kernels on this machine")
    verdict = marking.mark(exercise, exercise.solution, 1, sandbox)
    assert verdict.status == "passed", str(verdict)
    mistake = exercise.misconceptions[0]
    verdict = marking.mark(exercise, exercise.wrong_code(mistake), 0, sandbox)
    assert verdict.misconception == mistake.name, str(verdict)


def test_a_busy_machine_fails_nobody():
    """What was stopped by the clock without having worked runs again, and longer; what did work does not."""
    exercise, limits = find("1.2"), []

    class Busy:
        def run(self, request, source):
            limits.append(request.limit)
            if len(limits) == 2:
                return Reply(runner.run(request, source))
            return Reply(trouble=f"no answer came: the code {STOPPED['time']}",
                         cpu=self.share * request.limit, starved=self.starved * request.limit)

    for Busy.share, Busy.starved, status in ((0.2, 0.8, "passed"), (0.2, 0.01, "wrong"), (0.9, 0.4, "wrong")):
        limits.clear()
        assert marking.mark(exercise, exercise.solution, 0, Busy()).status == status
        assert limits[1:] == ([4 * limits[0]] if status == "passed" else [])


@pytest.mark.slow
@pytest.mark.skipif(bool(walls.missing()), reason="not run: this machine cannot build the walls")
def test_a_class_of_adversaries(tmp_path):
    """Everything hostile at once, two at a time: only the honest get marks, all of them, and no worker is
    lost. Three that only wait for the clock, as others do, are seen in test_sandbox."""
    waits = ("loops for ever and catches everything", "sleeps in C", "searches with a bad pattern")
    heavy = {name: code for name, code in hostile.HEAVY.items() if name not in waits}
    kernels = {name: code for name, code in hostile.CUDA.items() if "loops" not in name}
    everything = {**hostile.QUICK, **heavy, **kernels}
    for number, (name, code) in enumerate(everything.items()):
        id, head = ("1.94", "%%cuda\n//") if name in hostile.CUDA else ("1.92" if "def attend" in code
                                                                        else "1.91", "#")
        cell = f"{head} EXERCISE {id}{code.replace('COURSE', str(Path(__file__).resolve().parents[2]))}"
        put(tmp_path / "in" / f"foe{number:02d}" / "01_attention.ipynb", notebook(cell, GUESS))
        if number % 10 == 0:
            put(tmp_path / "in" / f"friend{number:02d}" / "01_attention.ipynb", notebook(RIGHT, GUESS))
    status, rows = run(tmp_path / "in", tmp_path / "out")
    assert status == 0 and len(everything) >= 30
    for row in rows:
        foe, attempted = row["student"].startswith("foe"), row["verdict"] != "not attempted"
        if attempted:
            assert (row["verdict"] == "passed") == (not foe or row["exercise"] == "1.93"), row


@pytest.mark.slow
def test_a_cluster_marks_as_one_machine_does(tmp_path):
    distributed = pytest.importorskip("distributed", reason="not run: dask.distributed is not installed")
    for name in ("ann", "ben", "cleo"):
        put(tmp_path / "in" / name / "01_attention.ipynb", notebook(RIGHT if name != "ben" else WRONG, GUESS))
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True,
                                  dashboard_address=None) as cluster:
        status, rows = run(tmp_path / "in", tmp_path / "out", "--dask", cluster.scheduler_address)
    assert (status == 0 and of(rows, "ann")["1.91"]["verdict"] == of(rows, "cleo")["1.91"]["verdict"]
            == "passed")
    assert of(rows, "ben")["1.91"]["misconception"] == "sums over the wrong axis"


@pytest.mark.slow
def test_a_worker_that_dies_takes_no_other_students_answer_with_it():
    dies, raises = ("__import__('os')._exit(1)",), ("1 / 0",)
    answers = batches.each(eval, {"dies": dies, "raises": raises, "answers": ("6 * 7",)}, 2)
    assert answers == {"dies": "the process that marked it died", "answers": 42,
                       "raises": "ZeroDivisionError: division by zero"}
