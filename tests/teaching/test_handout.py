"""What a class gets: no solution in it, and checks that still say what is wrong."""
import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import nbformat
import pytest
import torch

from course_lib.exercises.cell_text import MARKER
from course_lib.exercises.declare import CHAPTERS, find, load_chapter
from course_lib.teaching.handouts import cutting, declarations, leaks, modules, shown
from course_lib.teaching import handout, nbgrader_export
from course_lib.teaching.copies import similarity
from course_lib.teaching.confined.reach import COURSE
from course_lib.tools.notebooks import CellFailed
from laptop_cuda.build import cache
from notebook_process import execute

# A student's machine adds up in another order than the one that stored what usual mistakes give.
OTHER_MACHINE = {"ATEN_CPU_CAPABILITY": "default", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "OMP_NUM_THREADS": "2"}

# A cell that a handout's own package runs: texts in, verdicts out.
JUDGE = """
import json
from course_lib.exercises import declare, reveal
from course_lib.exercises.judging import judge
assert declare.__file__.startswith({folder!r}), declare.__file__
found = []
for id, text in json.loads({asked!r}):
    verdict = judge.evaluate(declare.find(id), text)
    found.append([verdict.status, verdict.misconception])
reveal(id)
json.dump(found, open("verdicts.json", "w"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("word", CHAPTERS)
def test_a_handout(word, tmp_path):
    """Making it tries each function and kernel on each exercise: what gives right answers is listed."""
    out = tmp_path / "edition"
    made = handout.handout([word], out)
    assert set(made.stay) <= set(cutting.SHOWN)
    assert out.stat().st_mode & 0o055 == 0o055          # others may enter it, whatever folder it was built in
    no_file_holds_a_solution(out, word)
    shares_builds_with_ours(out)
    its_checks_say_what_ours_say(out, word, made)
    its_notebook_runs_once_it_is_solved(out)
    if word == CHAPTERS[0]:
        its_commands_run_a_notebook(out)


def no_file_holds_a_solution(out: Path, word: str) -> None:
    """Searched as a person would, with nothing of the code that built it."""
    texts = {path: zlib.decompress(path.read_bytes()) if path.suffix == ".sealed" else path.read_bytes()
             for path in out.rglob("*") if path.is_file()}
    [sealed] = (text for path, text in texts.items() if path.suffix == ".sealed")
    assert len(texts) > 50 and json.dumps(load_chapter(word)[0].card)[1:-1].encode() in sealed
    whole = b"\0".join(texts.values())
    for exercise in load_chapter(word):
        if exercise.kind in ("predict", "choose"):
            continue
        for body in (exercise.solution, *(exercise.wrong_code(m) for m in exercise.misconceptions)):
            body = body.strip("\n")
            if body == exercise.stub.strip("\n"):
                continue                                 # a fault to be mended may be a misconception too
            for text in (body.encode(), json.dumps(body)[1:-1].encode()):
                assert text not in whole, (exercise, [path for path, data in texts.items() if text in data])


def shares_builds_with_ours(out: Path) -> None:
    """Folders that are ours byte for byte become links to ours, so that nothing is compiled a second time."""
    for name in ("laptop_cuda", "kernels"):
        if all(leaks.same_file(path, COURSE / path.relative_to(out)) for path in (out / name).rglob("*.*")
               if path.is_file()):
            shutil.rmtree(out / name)
            (out / name).symlink_to(COURSE / name)
    assert (out / "laptop_cuda").is_symlink()


def executed_in(out: Path, notebook, name: str, **environment: str) -> None:
    path = out / "work" / name
    path.parent.mkdir(exist_ok=True)
    execute(notebook, path, package=out, COURSE_STRICT="1", COURSE_CACHE=str(cache().parent), **environment)


def its_checks_say_what_ours_say(out: Path, word: str, made: handout.Handout) -> None:
    asked, kept_back = [], {what.removeprefix("exercise ") for what, _ in made.withheld}
    for e in (e for e in load_chapter(word) if e.id not in kept_back):
        asked += [(e.id, e.stub, ["not attempted", None]), (e.id, e.solution, ["passed", None])]
        asked += [(e.id, e.wrong_code(m), ["wrong", m.name]) for m in e.misconceptions]
    texts = json.dumps([(id, text) for id, text, _ in asked])
    judged = nbformat.v4.new_notebook(cells=[
        nbformat.v4.new_code_cell(JUDGE.format(folder=str(out), asked=texts))])
    executed_in(out, judged, "judged.ipynb", **OTHER_MACHINE)
    assert "carries no solutions" in str(judged.cells[0].outputs)
    found = json.loads((out / "work" / "verdicts.json").read_text())
    assert [(id, got) for (id, _, _), got in zip(asked, found)] == [(id, want) for id, _, want in asked]


def its_notebook_runs_once_it_is_solved(out: Path) -> None:
    """Worked through as a student would: where a cell needs an exercise further down, that is done first."""
    notebook = nbformat.read(next((out / "notebooks").glob("*.ipynb")), as_version=4)
    assert not any(c.get("outputs") for c in notebook.cells)
    for cell in notebook.cells:
        if cell.cell_type == "code" and (match := MARKER.match(cell.source)):
            cell.source = find(match[1]).cell(find(match[1]).solution)
    for attempt in range(3):
        try:
            executed_in(out, notebook, "solved.ipynb")
            return nbformat.write(notebook, out / "work" / "solved.ipynb")
        except CellFailed as failed:
            needed = re.search(r"is exercise (\d+\.\d+)\. This edition holds no solution", str(failed))
            if not needed or attempt == 2:
                raise
        of_it = [c for c in notebook.cells if needed[1] in (MARKER.match(c.source) or {1: ""})[1]
                 or f'check("{needed[1]}"' in c.source]
        rest = [c for c in notebook.cells if c not in of_it]
        notebook.cells = [*rest[:2], *of_it, *rest[2:]]


def its_commands_run_a_notebook(out: Path) -> None:
    """The beginning is enough: whole it has run in `its_notebook_runs_once_it_is_solved`."""
    solved = nbformat.read(out / "work" / "solved.ipynb", as_version=4)
    solved.cells = solved.cells[:12]
    nbformat.write(solved, out / "work" / "begun.ipynb")
    own = {"PYTHONPATH": str(out), "OMP_NUM_THREADS": "1", "COURSE_STRICT": "1", "COURSE_CACHE": str(cache().parent)}
    run = subprocess.run([sys.executable, "-m", "course_lib", "run", "work/begun.ipynb"], cwd=out, text=True,
                         capture_output=True, env=os.environ | own)
    assert run.returncode == 0, run.stdout + run.stderr


def a_chapter() -> str:
    return next(word for word in CHAPTERS
                if any(e.kind == "write" and e.language == "python" for e in load_chapter(word)))


def test_a_function_that_is_declared_calls_the_students_own_and_no_other():
    """`quantize` of chapter 7 packs what `affine_codes` gives: only the second is exercise 7.10."""
    module = "course_lib.kv_cache.quantization"
    found = leaks.python_leaks([module], [find("7.10"), find("7.11")])
    assert found == [leaks.Leak(module, "affine_codes", "7.10")] and set(found) <= set(cutting.CUT)
    cut = cutting.cut_python(modules.file_of(module).read_text(), {"affine_codes": find("7.10")})
    assert ("yours('7.10', 'quantize', arguments)" in cut and ".round()" not in cut
            and "codes[..., 0::2]" in cut)


def test_what_is_declared_is_there():
    for leak in cutting.CUT + cutting.SHOWN:
        path, asked = COURSE / leak.where, {leak.name: find(leak.exercise)}
        if path.suffix == ".cu":
            assert cutting.cut_cuda(path.read_text(), asked) != path.read_text(), leak
        else:
            text = modules.file_of(leak.where).read_text()
            made = cutting.cut_python(text, asked)
            assert text != made and f"yours({leak.exercise!r}, " in made, leak


def test_a_kernel_that_is_an_exercise_is_cut_out():
    kernels = [e for word in CHAPTERS for e in load_chapter(word) if e.language == "cuda"
               and e.kind == "write"]
    for exercise in kernels:
        other = "// before {\n__global__ void other(int n) { if (n) { } }\n"
        text = f"{other}{exercise.solution}\n// after\n"
        cut = cutting.cut_cuda(text, {exercise.name: exercise})
        assert (f"is exercise {exercise.id}: it is left out here" in cut and "// after" in cut
                and cut.startswith(other))
        assert similarity.holds(text, exercise) and not similarity.holds(cut, exercise)
    assert kernels


@pytest.mark.slow
def test_the_search_by_behaviour_finds_a_solution_under_any_name(tmp_path):
    """In a package of one module beside what a handout's package always has."""
    (tmp_path / "course_lib" / "attention").mkdir(parents=True)
    (tmp_path / "kernels").mkdir()
    (tmp_path / "course_lib" / "attention" / "__init__.py").write_text("")
    shutil.copy(COURSE / "course_lib" / "cuda.py", tmp_path / "course_lib")
    wanted = next(e for e in load_chapter("language_model") if e.name == "learning_rate")
    text = wanted.solution.replace("def learning_rate(step, steps, peak, warmup, floor)",
                                   "def fade(a, b, c, d, e)")
    renamed = text.replace(text.splitlines()[1], "    step, steps, peak, warmup, floor = a, b, c, d, e\n"
                           + text.splitlines()[1])
    (tmp_path / "course_lib" / "attention" / "hidden.py").write_text(f"import math\n\n\n{renamed}")
    found = leaks.remaining(tmp_path, ["course_lib.attention.hidden"], [wanted])
    assert found == [leaks.Leak("course_lib.attention.hidden", "fade", wanted.id)]


def share_shown(text: str, exercise) -> float:
    """Which share of the solution's telling lines a text holds, 0 to 1, by their length."""
    wanted, lines = similarity.telling_lines(exercise), similarity.line_set(text)
    return sum(len(line) for line in wanted if line in lines) / max(1, sum(map(len, wanted)))


def texts_of(thing) -> list[str]:
    """A text, or those that a function of one number returns."""
    if inspect.isfunction(thing) and list(inspect.get_annotations(thing).values())[:1] == [int]:
        return [text for text in declarations.tabulated(thing, []) if isinstance(text, str)]
    return [thing] if isinstance(thing, str) else []


@pytest.mark.parametrize("word", CHAPTERS)
def test_what_shows_most_of_another_solution_is_withheld_until_that_is_handed_in(word):
    """Stubs to repair, functions that the notebook imports, and exercises whose cards name these."""
    exercises, found = load_chapter(word), {}
    module = importlib.import_module(f"course_lib.exercises.chapters.{word}")
    show = {e.id: [e.stub] for e in exercises if e.kind == "repair"} | {
        name: texts_of(getattr(module, name))
        for name in declarations.names_imported(modules.notebook_of(word), module.__name__)}
    for opened in (e for e in exercises if e.kind == "write" and len(e.solution) >= 200):
        found |= {what: opened.id for what, texts in show.items() if what != opened.id
                  and any(share_shown(text, opened) >= 0.8 for text in texts)}
    found |= {e.id: found[name] for e in exercises for name in found if re.search(rf"\b{name}\b", e.card)
              and not name[0].isdigit()}
    assert found == shown.withheld(exercises)
    assert not shown.withheld([e for e in exercises if e.id not in found.values()])


def test_what_would_hand_out_a_solution_is_refused(tmp_path):
    exercise = next(e for e in load_chapter(a_chapter()) if similarity.telling_lines(e))
    (tmp_path / "notes.md").write_text(f"```python\n{exercise.solution}```\n")
    with pytest.raises(handout.HandoutError, match=f"notes.md: exercise {exercise.id}"):
        handout._search(tmp_path, [], [exercise], [], [])


def test_the_instructors_side_is_not_in_a_handout():
    names = modules.closure(handout.ROOTS, ["attention"])
    assert "course_lib.exercises.student" in names and "course_lib.cuda" in names
    ours = (".grade", ".solve", ".handout", ".sandbox", ".exercises.attention")
    assert not {m for m in names if m.endswith(ours)}


def test_what_moves_in_a_notebook_is_handed_out_with_its_front_end_and_no_other(tmp_path):
    tree = modules.ast.parse('explore.show("sectors", stride=2)\nexplore.names()\nother.show("banks")')
    assert modules.explorables_of(tree) == ["course_lib.explore.sectors"]
    names = modules.closure(modules.explorables_of(tree) + ["course_lib.explore"], ["attention"])
    assert {"course_lib.explore.sectors", "course_lib.explore.frame.explorable"} <= set(names)
    assert "course_lib.explore.gaussians" not in names
    (tmp_path / "course_lib" / "explore" / "frame").mkdir(parents=True)
    handout._rest(tmp_path, ["attention"], names, {})
    assert (tmp_path / "course_lib" / "explore" / "frame" / "explore.js").exists()
    assert (tmp_path / "laptop_cuda" / "browser" / "kit.js").exists()


def test_the_table_of_commands_loses_what_is_not_handed_out():
    text = (COURSE / "course_lib/tools/commands.json").read_text()
    made = json.loads(handout.commands_kept(text, modules.closure(handout.ROOTS, ["attention"])))
    assert {"lab", "run", "fresh"} <= set(made)
    assert not {"grade", "handout", "train", "attention-study", "w2-audit"} & set(made)


def test_what_a_class_has_not_handed_in_yet_is_cut_too():
    """Chapters 1, 3 and 6: 2.4 and 2.7 lie between, called by nothing there; chapters 7 and 10 are to come. What an
    earlier chapter asked, and what another that is handed out calls, stays."""
    def cut(words: list[str]) -> set[str]:
        sources = [modules.file_of(leak.where) for leak in cutting.CUT]
        return {e.id for e in handout.still_to_come(words, sources)} & {leak.exercise for leak in cutting.CUT}
    assert cut(["attention", "gqa", "flash_attention"]) == {"2.4", "2.7", "7.10", "10.3"}
    assert cut(["kv_cache", "field_guide"]) == set() and cut(["gqa"]) == {"6.3", "7.10", "10.3"}
    kept = handout.makefile_kept((COURSE / "Makefile").read_text())
    assert not re.search("test-all|slow|make book|book:|gpu-", kept)
    assert kept.count("\nlab: ready\n\t@$(PY) -m course_lib lab") == kept.count("make clean ") == 1


def test_a_handout_goes_neither_into_the_course_nor_over_other_files(capsys, tmp_path):
    (tmp_path / "README.md").write_text("mine")
    assert handout.main([a_chapter(), "--out", str(tmp_path)]) == 2
    assert "holds other files" in capsys.readouterr().err and (tmp_path / "README.md").read_text() == "mine"
    assert (handout.main([a_chapter(), "--out", str(COURSE / "notebooks")])
            == handout.main([a_chapter(), "--out", str(COURSE)]) == 2)
    assert handout.main(["nothing", "--out", "/nowhere"]) == 2
    said = capsys.readouterr().err
    assert ("notebooks holds other files" in said and "is the course itself" in said
            and "no chapter 'nothing'" in said)


def cleared(text: str) -> str:
    """What nbgrader's ClearSolutions leaves, with our setting of an empty stub."""
    kept, inside = [], False
    for line in text.splitlines():
        if "BEGIN SOLUTION" in line:
            inside = True
            kept.append("")
        elif "END SOLUTION" in line:
            inside = False
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def test_the_export_holds_the_solution_and_leaves_our_stub():
    from course_lib.exercises.judging import judge as core
    for word in CHAPTERS:
        for exercise in load_chapter(word):
            made = nbgrader_export.with_solution(exercise)
            released = cleared(made)
            assert MARKER.match(made)[1] == MARKER.match(released)[1] == exercise.id
            assert core.screen(exercise, released.removeprefix("%%cuda\n")).status == "not attempted"
            assert exercise.solution.strip() in made


def test_what_the_students_own_work_does_not_take_is_said(monkeypatch):
    from course_lib.exercises import sealed, student
    monkeypatch.setitem(student.handed_in, "0.1", lambda x: x + 1)
    assert sealed.yours("0.1", "mix", {"x": 1, "mask": None, "causal": False}) == 2
    with pytest.raises(sealed.NotYours, match="takes no `mask`"):
        sealed.yours("0.1", "mix", {"x": 1, "mask": torch.ones(3, dtype=torch.bool)})


def test_an_export_leaves_settings_that_are_there(tmp_path):
    (tmp_path / "nbgrader_config.py").write_text("# mine")
    assert nbgrader_export.main(["nbgrader", "0", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "nbgrader_config.py").read_text() == "# mine"


@pytest.mark.slow
def test_nbgrader_takes_the_export_there_and_back(tmp_path):
    pytest.importorskip("nbgrader", reason="not run: nbgrader is not installed")
    word = a_chapter()
    assert nbgrader_export.main(["nbgrader", word, "--out", str(tmp_path)]) == 0

    def nbgrader(*args: str) -> str:
        run = subprocess.run([sys.executable, "-m", "nbgrader", *args], cwd=tmp_path, text=True,
                             capture_output=True, env=os.environ | {
            "OMP_NUM_THREADS": "1", "PYTHONPATH": str(COURSE), "COURSE_BATCH": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"})
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stderr

    nbgrader("generate_assignment", word, "--create")
    name = modules.notebook_of(word).name
    released = tmp_path / "release" / word / name
    text = released.read_text()
    assert "BEGIN SOLUTION" not in text and "HIDDEN TESTS" not in text and "handed_in" not in text
    right = nbformat.read(released, as_version=4)
    for cell in right.cells:
        if cell.cell_type == "code" and (match := MARKER.match(cell.source)):
            cell.source = find(match[1]).cell(find(match[1]).solution)
    for student in ("ann", "ben"):
        folder = tmp_path / "submitted" / student / word
        folder.mkdir(parents=True)
        shutil.copy(released, folder / name)
        if student == "ann":
            nbformat.write(right, folder / name)
    nbgrader("autograde", word)
    from nbgrader.api import Gradebook
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as book:
        scores = {s.student.id: (s.score, s.max_score) for s in book.assignment_submissions(word)}
    total = sum(e.points for e in load_chapter(word))
    assert scores == {"ann": (total, total), "ben": (0, total)}
