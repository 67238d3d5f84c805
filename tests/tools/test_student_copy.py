"""A student's copy shows no output that answers an exercise before the student has run it."""
import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_lib.exercises import find
from course_lib.tools.notebooks import chapter_notebooks
from course_lib.tools.student_copy import student_copy

CARD = "### Exercise 0.3 · Every second number\n\n*{} · difficulty 1 of 5*\n\nHow many?"


def printed(source, tags=()):
    return new_code_cell(source, execution_count=1, metadata={"tags": list(tags)},
                         outputs=[new_output("stream", name="stdout", text="8\n")])


def copied(tmp_path, *cells):
    path = tmp_path / "03_toy.ipynb"
    nbformat.write(new_notebook(cells=list(cells)), path)
    return nbformat.reads(student_copy(path), as_version=4).cells


@pytest.mark.parametrize("kind, shown",
                         [("predict", False), ("choose", False), ("write", True), ("repair", True)])
def test_what_counts_a_guess_is_not_shown_below_it(tmp_path, kind, shown):
    cells = copied(tmp_path, printed("before"), new_markdown_cell(CARD.format(kind)),
                   printed("x = None", ["exercise"]), printed('x = check("0.3", x)', ["check"]),
                   printed("count()"), new_markdown_cell("So it is."), printed("count(2)"),
                   new_markdown_cell("## 6 Next"), printed("after"))
    outputs = [bool(cell.outputs) for cell in cells if cell.cell_type == "code"]
    assert outputs == [True, True, True, shown, shown, True]
    counting = next(cell for cell in cells if cell.source == "count()")
    assert (counting.execution_count is None) != shown
    assert ("nbval-ignore-output" in counting.metadata["tags"]) != shown        # or nbval calls it never run


def test_implementations_and_tagged_cells_are_not_shown(tmp_path):
    cells = copied(tmp_path, printed("show_source(attention)"), printed("print(2.9)", ["answer"]),
                   printed("print(1)"))
    assert [bool(cell.outputs) for cell in cells] == [False, False, True]


@pytest.mark.parametrize("notebook", chapter_notebooks(), ids=lambda path: path.stem)
def test_no_chapter_prints_what_a_guess_is_about(notebook):
    """Between the check of each predict or choose exercise and the next heading nothing is printed."""
    cells = nbformat.reads(student_copy(notebook), as_version=4).cells
    checks = [(i, find(cell["id"].removeprefix("check-").replace("-", "."))) for i, cell in enumerate(cells)
              if "check" in cell.metadata.get("tags", [])]
    for i, exercise in checks:
        if exercise.kind not in ("predict", "choose"):
            continue
        for cell in cells[i + 1:]:
            if cell.cell_type == "markdown" and any(line.startswith("#")
                                                    for line in cell.source.splitlines()):
                break
            assert cell.cell_type != "code" or not cell.outputs, (exercise.id, cell.source[:60])
    # the page is not emptied
    assert any(cell.get("outputs") for cell in cells if not cell.metadata.get("tags"))


@pytest.mark.parametrize("id, number", [("2.2", "47,117"), ("3.2", "320"), ("3.8", "68.6")])
def test_a_guessed_number_is_nowhere_in_its_chapter(id, number):
    """Later sections count it too: their cells are tagged."""
    notebook = next(path for path in chapter_notebooks()
                    if path.stem.startswith(f"{int(id.split('.')[0]):02}_"))
    shown = [output.get("text", "") + output.get("data", {}).get("text/plain", "")
             for cell in nbformat.reads(student_copy(notebook), as_version=4).cells
             for output in cell.get("outputs", [])]
    assert not any(re.search(rf"(?<![\d,]){re.escape(number)}(?!\d)", text) for text in shown)
