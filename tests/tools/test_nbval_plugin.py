"""The plugin against notebooks made to fall into nbval's traps; pytest runs in a fresh folder each time."""
import os
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from nbval.plugin import coalesce_streams

from course_lib.tools.nbval_cells import Notebook
from course_lib.tools.notebooks import chapter_notebooks

ROOT = Path(__file__).resolve().parents[2]
OURS = "import course_lib\n"


def cell(source, stdout=None, count=1, text=None, tags=()):
    outputs = [new_output("stream", name="stdout", text=stdout)] if stdout is not None else []
    if text is not None:
        outputs.append(new_output("execute_result", data={"text/plain": text}, execution_count=count))
    return new_code_cell(source, outputs=outputs, execution_count=count, metadata={"tags": list(tags)} if tags
                         else {})


def shown(source, **data):
    """A cell that shows rich data, of which `data` was saved."""
    return new_code_cell("from IPython.display import HTML, display\n" + source, execution_count=1,
                         outputs=[new_output("display_data", data=data)])


def raising(source, message):
    return new_code_cell(source, execution_count=1, metadata={"tags": ["raises-exception"]},
                         outputs=[new_output("error", ename="ValueError", evalue=message, traceback=[])])


def write(path: Path, *cells, kernel="python3") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=list(cells),
                                metadata={"kernelspec": {"name": kernel, "display_name": "x"}}), path)
    return path


def pytest_on(*arguments, cwd, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")
             and k not in ("COURSE_STRICT", "COURSE_BATCH")}
    for _ in range(2):       # two kernels that start at once may be given one port: one of them dies
        done = subprocess.run([sys.executable, "-m", "pytest", "--nbval", "-p", "no:cacheprovider", "-p",
                               "course_lib.files", *map(str, arguments)], cwd=cwd, capture_output=True, text=True,
                              env=clean | env, timeout=240)
        if "Kernel died before replying" not in done.stdout:
            break
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_what_jupyter_shows_is_what_is_compared(tmp_path):
    write(tmp_path / "good.ipynb",
          cell(OURS + "print(6 * 7)", "42\n"),
          cell("x = 5\nx;"),                                                # a trailing ; silences
          cell("7"     , text="7"), cell("Out[3] + 1", text="8"),           # the history is kept
          cell("import os\nprint(os.environ['OMP_NUM_THREADS'], os.environ['PYTHONHASHSEED'],"
               " 'PYTEST_CURRENT_TEST' in os.environ)", "1 0 False\n"),
          cell("print(hash('attention') == hash('attention'))", "True\n"), kernel="a-name-nobody-has")
    code, said = pytest_on(tmp_path, cwd=tmp_path)
    assert code == 0 and "6 passed" in said, said
    assert "slowest notebooks" in said and "good.ipynb" in said


def test_a_wrong_output_fails_at_its_cell(tmp_path):
    write(tmp_path / "03_wrong.ipynb", new_markdown_cell("# 3 · Groups\n\n## Counting bytes"),
          cell(OURS + "print(1)", "1\n"),
          new_markdown_cell("## Counting sectors\n\n```\n# not a heading\n```"),
          cell("print('sectors', 8)", "sectors 9\n"), cell("print(2)", "2\n"))
    code, said = pytest_on("03_wrong.ipynb", cwd=tmp_path)
    assert code == 1 and "1 failed, 2 passed" in said, said
    assert 'FAILED 03_wrong.ipynb::Cell 1' in said
    assert '03_wrong.ipynb, cell 2 of code, under "Counting sectors"' in said
    assert "-sectors 9" in said and "+sectors 8" in said


def test_what_must_not_pass(tmp_path):
    bad = [(cell("print(1)", count=None), "This cell was never run"),
           (cell("2 + 2"), "+4"),                               # an output too many
           (cell("pass", "gone\n"), "-gone"),                   # an output too few
           (cell("1 / 0"), "ZeroDivisionError"),
           (cell("import sys; print('careful', file=sys.stderr)"), "+careful"),
           (shown("HTML('<b>8</b>')", **{"text/html": "<b>9</b>"}), "+<b>8</b>"),
           (shown("display({'application/json': {'a': 8}}, raw=True)", **{"application/json": {"a": 9}}), "+{'a': 8}"),
           (raising("raise ValueError('eight')", "nine"), "+ValueError: eight")]
    write(tmp_path / "bad.ipynb", cell(OURS + "print(1)", "1\n"), *(made for made, _ in bad))
    code, said = pytest_on(tmp_path, cwd=tmp_path)
    assert code == 1 and "8 failed, 1 passed" in said, said
    assert all(why in said for _, why in bad), said


@pytest.mark.slow
def test_a_dead_kernel_is_noticed_at_once(tmp_path):
    write(tmp_path / "dead.ipynb", cell(OURS + "import os\nos._exit(1)"), cell("print(1)", "1\n"))
    code, said = pytest_on(tmp_path, cwd=tmp_path)
    assert code == 1 and "The kernel died while this cell ran" in said and "1 failed, 1 xfailed" in said, said


@pytest.mark.slow
def test_serial_and_parallel_agree_from_any_folder(tmp_path):
    folder = tmp_path / "a folder é"
    for name in "abc":
        write(folder / f"{name}.ipynb", cell(OURS + f"x = '{name}'"), cell("print(x)", f"{name}\n"),
              cell("print(x)", "no\n"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for arguments, cwd in [((folder,), elsewhere), ((), folder), ((folder, "-n", "2"), elsewhere)]:
        code, said = pytest_on(*arguments, cwd=cwd)
        assert code == 1 and "3 failed, 6 passed" in said, said


@pytest.mark.slow
def test_other_projects_are_left_alone(tmp_path):
    write(tmp_path / "theirs.ipynb", cell("print(1)", count=None),
          cell("import os; print('COURSE_BATCH' in os.environ)", "False\n"))
    (tmp_path / "test_x.py").write_text("def test_x(): pass\n")
    code, said = pytest_on(tmp_path, cwd=tmp_path)
    assert code == 0 and "3 passed" in said and "slowest notebooks" not in said, said


@pytest.mark.slow
def test_another_nbval_is_refused_in_one_line(tmp_path):
    write(tmp_path / "good.ipynb", cell(OURS + "print(1)", "1\n"))
    (tmp_path / "conftest.py").write_text("import course_lib.tools.nbval_cells as c\nc.version = lambda "
                                          "name: '0.12.0'\n")
    code, said = pytest_on(tmp_path, cwd=tmp_path)
    assert code != 0 and "pip install 'nbval==0.11.*'" in said and "passed" not in said, said


@pytest.mark.slow
def test_strict_leaves_the_outputs_of_exercises_alone(tmp_path):
    write(tmp_path / "strict.ipynb", cell(OURS + "pass"),
          cell("print('solved')", count=None, tags=["exercise"]),
          cell("print('passed')", "not attempted\n", tags=["check"]),
          cell("raise SystemError('not passed')", tags=["check"]))
    code, said = pytest_on(tmp_path, cwd=tmp_path, COURSE_STRICT="1")
    assert code == 1 and "1 failed, 3 passed" in said and "SystemError" in said, said
    code, said = pytest_on(tmp_path, cwd=tmp_path)
    assert "3 failed, 1 passed" in said, said


@pytest.mark.parametrize("path", chapter_notebooks(), ids=lambda path: path.stem)
def test_a_wrong_output_in_each_notebook(path, request):
    """Every cell is compared, and one character more in any output that is no picture is a difference.
    That a difference fails at its cell, whatever the kind of output, is seen in the notebooks above."""
    notebook = Notebook.from_parent(request.session, path=path)
    notebook.setup_sanitize_files()
    changed = 0
    for cell in notebook.collect():
        assert cell.options["check"] and not cell.options["skip"], f"cell {cell.cell_num} is not compared"
        stored = coalesce_streams(cell.cell.outputs)
        assert cell.compare_outputs(deepcopy(stored), stored)
        for number, output in enumerate(stored):
            named = ["text"] if output.output_type == "stream" else output.get("data", ["ename", "evalue"])
            for key in named:
                if key in notebook.skip_compare:
                    continue
                hurt = deepcopy(stored)
                holder = hurt[number].get("data", hurt[number])
                holder[key] = {**holder[key], "9": 9} if isinstance(holder[key], dict) else "9" + holder[key]
                assert not cell.compare_outputs(stored, hurt), f"{key} of cell {cell.cell_num}"
                changed += 1
    assert changed > 20, "a notebook prints something"


@pytest.mark.slow
def test_a_handouts_notebook_has_no_outputs_and_only_what_has_not_passed_turns_red(tmp_path):
    """Strict: a cell without saved outputs is run and not compared. Not strict: it fails, as before."""
    from course_lib.exercises import find
    ex = find("0.1")
    write(tmp_path / "mine.ipynb", cell(OURS + "from course_lib.exercises import check", count=None),
          cell("print(6 * 7)", count=None), cell(ex.cell(ex.solution), count=None, tags=["exercise"]),
          cell('mix = check("0.1", mix)', count=None, tags=["check"]), cell("1 / 0", count=None))
    code, said = pytest_on("mine.ipynb", cwd=tmp_path, COURSE_STRICT="1")
    assert code == 1 and "1 failed, 4 passed" in said, said
    assert "ZeroDivisionError" in said
    code, said = pytest_on("mine.ipynb", cwd=tmp_path)
    assert code == 1 and "This cell was never run" in said
