"""The league: exact scores, the same in every order and on every compiler; a cheat has none."""
import re
import shutil
import sys
from dataclasses import replace

import pytest

from adversaries import cheats
from course_lib.exercises import Launch, judge, runner
from course_lib.exercises.parts import inout
from course_lib.teaching import grade, walls
from course_lib.teaching.batch import each
from course_lib.teaching.league import model, scores
from course_lib.teaching.league.command import main
from course_lib.teaching.league.page import page
from course_lib.teaching.league.score import COUNTS, PROBLEMS, Score, bound, score
from course_lib.teaching.league.scores import Kept, league_cells, scores_of
from course_lib.teaching.sandbox import Sandbox
from course_lib.teaching.submissions import collect

from hand_ins import notebook, put

linux = pytest.mark.skipif(sys.platform != "linux" or bool(walls.missing()),
                           reason="not run: this machine cannot build the walls: " + "; ".join(walls.missing()))
SUMS = next(p for p in PROBLEMS if p.name == "row_sums")


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as made:
        yield made


def test_there_are_ten_problems_and_at_least_thirty_cheats():
    assert len({p.id for p in PROBLEMS}) == len({p.name for p in PROBLEMS}) == 10
    assert len(cheats.CHEATS) >= 30


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 12))])
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_a_plain_kernel_is_right_and_above_the_bound(problem, seed):
    exercise = problem.exercise()
    cases = judge.draw(exercise, seed)
    ran = runner.run(judge.request(exercise, cases, seed), exercise.solution)
    verdict = judge.judge(exercise, cases, ran, exercise.solution, seed)
    assert verdict.status == "passed", str(verdict)
    assert sum(outcome.counts["sectors"] for outcome in ran.outcomes) >= bound(problem, seed)


def test_the_bound_is_what_a_copy_of_everything_moves():
    """A kernel that reads each aligned input once and writes the result once moves exactly the bound."""
    import torch

    from course_lib.exercises import Case
    exercise = SUMS.exercise()
    assert SUMS.bound(exercise, Case(torch.zeros(8, 64))) == 8 * 64 * 4 // 32 + 1


@pytest.mark.parametrize("dtype, sectors", [("float16", 2), ("bfloat16", 2), ("int8", 1), ("bool", 1),
                                            ("float32", 4), ("int32", 4), ("int64", 8), ("float64", 8)])
def test_the_bound_knows_the_size_of_an_element(dtype, sectors):
    import torch

    from course_lib.exercises import Case
    made = replace(SUMS, launch=lambda x: Launch(1, 32, [inout(x)]))
    x = torch.ones(31, dtype=getattr(torch, dtype))              # 31 elements: the last sector is not full
    assert made.bound(made.exercise(), Case(x)) == 2 * sectors


@linux
def test_an_honest_kernel_has_a_score(sandbox):
    made = score(SUMS, cheats.HONEST, 5, sandbox)
    assert made.counts and made.counts[0] >= bound(SUMS, 5), made.why
    assert made == score(SUMS, cheats.HONEST, 5, sandbox)


@linux
@pytest.mark.parametrize("name", cheats.REFUSED)
def test_what_is_not_a_plain_kernel_has_no_score(sandbox, name):
    assert score(SUMS, cheats.REFUSED[name], 5, sandbox).counts is None


@linux
@pytest.mark.slow
@pytest.mark.parametrize("name", ["a result that is built in an array", *(n for n in cheats.CHEATS if n not in cheats.REFUSED | cheats.UNCOUNTED)])
def test_a_cheat_has_no_score(sandbox, name):
    made = score(SUMS, cheats.CHEATS[name], 5, sandbox)
    assert made.counts is None and made.why


@linux
@pytest.mark.slow
@pytest.mark.parametrize("name", cheats.NOTHING_SAVED)
def test_a_detour_to_the_data_saves_nothing(sandbox, name):
    made = score(SUMS, cheats.NOTHING_SAVED[name], 5, sandbox)
    assert made.counts is None or made.counts[0] > score(SUMS, cheats.HONEST, 5, sandbox).counts[0]


@linux
def test_fewer_sectors_than_the_bound_earn_nothing(monkeypatch, sandbox):
    from course_lib.teaching.league import score as module
    monkeypatch.setattr(module, "bound", lambda problem, seed: 10**9)
    made = score(SUMS, cheats.HONEST, 5, sandbox)
    assert made.counts is None and "no kernel can do with fewer" in made.why


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("clang++") and shutil.which("g++")), reason="not run: needs g++ and clang")
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_two_compilers_and_three_orders_count_alike(problem, monkeypatch, needs):
    import laptop_cuda as cuda
    from course_lib.exercises.kernel_runner import launched
    exercise = problem.exercise()
    plans = [judge.plan(exercise, case) for case in judge.draw(exercise, 4)]
    found = set()
    for compiler in ("g++", "clang++"):
        monkeypatch.setenv("CXX", needs(compiler))
        module = cuda.compile("\n" + exercise.solution)
        for order in ("forward", "reverse", "seeded"):
            with cuda.profile(order=order) as report:
                for arrays, steps in plans:
                    launched(cuda, module, arrays, steps)
            found.add(tuple((one.global_load.sectors, one.global_store.sectors, one.shared_load.wavefronts,
                             one.shared_store.wavefronts, one.barriers, one.shared_bytes)
                            for one in report.launches))
    assert len(found) == 1


@linux
@pytest.mark.slow
def test_a_class_has_a_table_and_a_page(tmp_path):
    cell = "%%cuda\n// EXERCISE 91.3\n"
    put(tmp_path / "in" / "Ann Smith" / "league.ipynb", notebook(cell + cheats.HONEST))
    put(tmp_path / "in" / "Bob <b>" / "league.ipynb", notebook(cell + cheats.CHEATS["zeros"]))
    assert main(["mark", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--seed", "5"]) == 0
    text = (tmp_path / "out" / "league.html").read_text()
    assert re.search(r"<td>1</td><td>Ann Smith</td>", text) and "<b>" not in text and "<script" not in text
    rows = (tmp_path / "out" / "league.csv").read_text().splitlines()
    assert len(rows) == 1 + 2 * 11
    assert any(row.startswith("Ann Smith,row_sums,") and row.split(",")[2].isdigit() for row in rows)
    assert any(row.startswith("Bob <b>,row_sums,,,,,") for row in rows)


def test_a_student_is_in_the_league_by_the_cells_that_were_handed_in(tmp_path):
    put(tmp_path / "Ann" / "league.ipynb", notebook("%%cuda\n// EXERCISE 91.3\n" + cheats.HONEST))
    put(tmp_path / "Ann" / "01_attention.ipynb", notebook("# EXERCISE 1.1\npass", "%%cuda\n// EXERCISE 91.1\nx"))
    put(tmp_path / "Bob" / "01_attention.ipynb", notebook("# EXERCISE 1.1\npass"))
    found = league_cells(collect(tmp_path))
    assert found["Ann"].keys() == {"91.1", "91.3"} and not found["Bob"]


@linux
@pytest.mark.slow
def test_grade_makes_the_class_table(tmp_path, monkeypatch):
    """Of the kernels alone that were handed in; what is known is not scored again."""
    monkeypatch.setattr(scores, "KERNELS", {SUMS.id: SUMS})
    monkeypatch.setattr(scores, "PROBLEMS", [SUMS])
    monkeypatch.setattr(scores.model, "score", lambda *arguments: Score(None, "left out here"))
    monkeypatch.setattr(scores, "each", lambda function, tasks, jobs, finished: [
        finished(key, scores_of(*arguments)) for key, arguments in tasks.items()])
    put(tmp_path / "in" / "Ann" / "league.ipynb", notebook("%%cuda\n// EXERCISE 91.3\n" + cheats.HONEST))
    put(tmp_path / "in" / "Bob" / "notes.ipynb", notebook("# EXERCISE 1.1\n").replace("EXERCISE", "my notes on"))
    command = [str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--seed", "5"]
    assert grade.main(command) == 0
    text = (tmp_path / "out" / "league.html").read_text()
    assert "<td>1</td><td>Ann</td>" in text and "Bob" not in text and "par" in text
    assert len(Kept(tmp_path / "out").known) == 2, "Ann's, and the plain kernels'"
    monkeypatch.setattr(scores, "each", lambda function, tasks, *rest: tasks and pytest.fail("scored again"))
    assert grade.main(command) == 0
    assert (tmp_path / "out" / "league.html").read_text() == text


def test_equal_sectors_are_decided_by_the_other_counts():
    theirs = {"Ann": {SUMS.id: Score((100, 9, 0, 0))}, "Bob": {SUMS.id: Score((100, 8, 5, 5))},
              "Cyd": {SUMS.id: Score((99, 50, 50, 50))}, "Dan": {SUMS.id: Score(None, "wrong")}}
    par = {p.id: Score((200,) + (0,) * (len(COUNTS) - 1)) for p in PROBLEMS}
    made = page(PROBLEMS, theirs, par, {p.id: 50 for p in PROBLEMS}, 1)
    order = re.findall(r"<td>(Ann|Bob|Cyd|Dan)</td>", made)
    assert order[:4] == ["Cyd", "Bob", "Ann", "Dan"]
    assert order[4:] == ["Cyd", "Cyd", "Bob", "Ann"]             # best, then the places of the one problem


def test_equal_losses_share_a_place():
    scores = {name: {model.ID: Score(counts)} for name, counts in
              (("Ann", (15438, 90)), ("Bob", (13425, 99)), ("Cyd", (15438, 90)), ("Dan", (15438, 91)))}
    par = {p.id: Score(None) for p in PROBLEMS} | {model.ID: Score((20000, 80))}
    made = page(PROBLEMS, scores, par, {p.id: 50 for p in PROBLEMS}, 1)
    made = made[made.index(model.TITLE):]
    rows = re.findall(r"<tr><td>(\w+)</td><td>([^<]+)</td><td>([\d.]+)</td>", made)
    assert rows[1:] == [("best", "Bob", "1.3425"), ("par", "a plain model", "2.0000"), ("1", "Bob", "1.3425"),
                        ("2", "Ann", "1.5438"), ("2", "Cyd", "1.5438"), ("4", "Dan", "1.5438")]


def test_the_notebook_has_a_stub_per_problem(tmp_path):
    assert main(["out", "--out", str(tmp_path / "league.ipynb")]) == 0
    made = next(s for s in collect(tmp_path) if s.cells)
    assert made.cells.keys() == {*(p.id for p in PROBLEMS), model.ID}
    assert "your code" in made.cells["91.3"]


@pytest.mark.slow
def test_a_worker_that_dies_takes_no_other_students_answer_with_it():
    dies, raises = ("__import__('os')._exit(1)",), ("1 / 0",)
    answers = each(eval, {"dies": dies, "raises": raises, "answers": ("6 * 7",)}, 2)
    assert answers == {"dies": "the process that worked on it died", "answers": 42,
                       "raises": "ZeroDivisionError: division by zero"}
