"""The README says what is there: its links, its commands, its table of chapters; and docs/where_to_run.md its cell for Colab."""
import os
import re
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from course_lib.__main__ import COMMANDS
from course_lib.tools.notebooks import chapter_notebooks

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "NOTATION.md", "data/README.md", "docs/where_to_run.md", "docs/marking.md", "docs/asynchrony.md"]
README = (ROOT / "README.md").read_text()
# in place of Colab's own modules
STAND_INS = {"google/__init__.py": "", "google/colab/__init__.py": "",
             "google/colab/drive.py": "def mount(folder): print('mounted')",
             "google/colab/output.py": "def enable_custom_widget_manager(): print('widgets')"}
USE = """from course_lib.exercises import check, marks
print(marks.file())
import course_lib, os; print(course_lib.__file__); print(os.environ["COURSE_CACHE"])"""


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if not link.startswith("http")]
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []


def test_the_table_of_asynchronous_rules_has_each_pair_once():
    pairs = tomllib.loads((ROOT / "laptop_cuda/asynchronous/tests/pairs.toml").read_text())
    table = re.findall(r"`(\w+) ([\w ]+) (\d+)`", re.sub(r"(?m)^[^|].*", "", (ROOT / "docs/asynchrony.md").read_text()))
    assert sorted(table) == sorted((of, name, str(n)) for of, p in pairs.items() if of != "rules" for name, n, *_ in p["right"] + p["wrong"])


def test_every_command_is_one():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"`make ([\w-]+)|^make ([\w-]+)", README, re.M)) and targets >= {
        a or b for a, b in re.findall(r"`make ([\w-]+)|^make ([\w-]+)", README, re.M)}
    assert set(re.findall(r"python -m course_lib ([\w-]+)", README)) <= set(COMMANDS)


def rows() -> dict[int, list[str]]:
    """{chapter: the cells of its row}"""
    return {int(n): [cell.strip() for cell in rest.split("|")]
            for n, rest in re.findall(r"^\| (\d+) \| (\[.*) \|$", README, re.M)}


def test_the_table_has_every_notebook():
    linked = {re.search(r"notebooks/(\S+)\.ipynb", cells[0])[1] for cells in rows().values()}
    assert linked == {path.stem for path in chapter_notebooks()}


@pytest.mark.parametrize("number", rows())
def test_the_number_of_exercises(number):
    from course_lib.exercises import CHAPTERS
    from course_lib.exercises.declare import load_chapter

    declared = len(load_chapter(CHAPTERS[number]))
    assert rows()[number][-1] == str(declared), f"chapter {number} declares {declared} exercises"


def test_the_picture_is_of_these_chapters(tmp_path):
    """Made by `python -c "from course_lib import figures; figures.chapter_map(file='data/map.png')"`."""
    import matplotlib

    from course_lib import figures

    if f"matplotlib=={matplotlib.__version__}\n" not in (ROOT / "requirements.txt").read_text():
        pytest.skip("not run: another matplotlib than the pinned one draws other pixels")
    figures.chapter_map(file=tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes() == (ROOT / "data" / "map.png").read_bytes()


def test_the_picture_that_moves_is_what_the_player_draws():
    """Made by `python -m course_lib moving-picture`; its words in the README are those of the drawing."""
    from course_lib.tools import moving_picture
    from laptop_cuda.toolchain.compilers import compiler

    if compiler().clang:
        pytest.skip("not run: clang's steps between two accesses are other ones, and they are counted in "
                    "the picture")
    drawn = moving_picture.drawing()
    assert (ROOT / "docs" / "player.svg").read_text() == drawn and len(drawn) < 2e6
    steps = moving_picture.recorded().steps
    column = next(step for step in steps if step["excess"])
    told = re.search(r"!\[(Eight steps.*?)\]", README)[1]
    assert (f"in {column['wavefronts']} passes, {column['excess']} of them lost" in told
            and "a row of x in 4 sectors" in told)


@pytest.mark.slow
def test_the_cell_for_colab_clones_copies_and_checks(tmp_path, monkeypatch):
    if not (ROOT / ".git").exists():
        pytest.skip("not run: this folder is no clone")
    page = (ROOT / "docs/where_to_run.md").read_text()
    cell = re.search(r"```python\n(from google\.colab.*?)```", page, re.S)[1]
    for name, text in STAND_INS.items():
        (tmp_path / "modules" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "modules" / name).write_text(text)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, does in {"pip": "echo pip", "python": f"exec '{sys.executable}'"}.items():  # pip would download
        (tools / name).write_text(f'#!/bin/sh\n{does} "$@"\n')
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH",
                       os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    folder = tmp_path / "drive" / "attention"
    for here, there in (("https://ADDRESS/OF/THE/COURSE.git", f"file://{ROOT}"),
                        ("/content/drive/MyDrive/attention", str(folder)),
                        ("/content/course_cache", str(tmp_path / "cache"))):
        assert here in cell
        cell = cell.replace(here, there)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in (cell, USE)])
    NotebookClient(notebook, timeout=300, kernel_name="python3",
                   resources={"metadata": {"path": str(tmp_path)}}).execute()
    first, second = ("".join(o.get("text", "") for o in c.outputs) for c in notebook.cells)
    assert "pip install -q -e ." in first and "widgets" in first and "C++" in first
    assert len(list((folder / "work").glob("*.ipynb"))) == len(list((ROOT / "notebooks").glob("*.ipynb")))
    assert (second.split() == [str(folder / "work/.progress.json"), str(folder / "course_lib/__init__.py"),
                               str(tmp_path / "cache")])
