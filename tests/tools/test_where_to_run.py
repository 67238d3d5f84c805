"""docs/where_to_run.md: the cell for Colab, in a plain kernel with stand-ins for Colab's own modules."""
import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
STAND_INS = {"google/__init__.py": "", "google/colab/__init__.py": "",
             "google/colab/drive.py": "def mount(folder): print('mounted')",
             "google/colab/output.py": "def enable_custom_widget_manager(): print('widgets')"}
USE = """from course_lib.exercises import check, marks
print(marks.file())
import course_lib, os; print(course_lib.__file__); print(os.environ["COURSE_CACHE"])"""


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
