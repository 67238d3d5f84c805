"""Every notebook keeps the conventions; and each rule complains about a notebook that breaks it."""
import copy
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_lib.tools import lint
from course_lib.tools.lint import code as code_rules, exercises, text
from course_lib.tools.notebooks import canonical, chapter_notebooks


@pytest.mark.parametrize("path", chapter_notebooks(), ids=lambda path: path.stem)
def test_notebook(path):
    assert lint.complaints(lint.Book(path)) == []


def figure(alt="Bars: a 1, b 2.", caption="*b is larger*"):
    return [new_output("display_data", data={"image/png": "aGVsbG8=", "text/plain": alt},
                       metadata={"image/png": {"alt": alt}}),
            new_output("display_data", data={"text/markdown": caption, "text/plain": "Figure"})]


def good_cells() -> list:
    return [new_markdown_cell("# 12 · A chapter\n\nOne idea."),
            new_code_cell("from course_lib import figures\nimport torch"),
            new_markdown_cell("## 1 A toy\n\n![three boxes](boxes.png)"),
            new_code_cell("figures.bars({})", outputs=figure()), new_markdown_cell("## 2 Sizes"),
            new_code_cell("print(8)", outputs=[new_output("stream", name="stdout", text="8 0.2500\n")]),
            new_markdown_cell("## Where you stand")]


def book(cells) -> lint.Book:
    made = canonical(new_notebook(cells=copy.deepcopy(cells)))
    return lint.Book(Path("12_chapter.ipynb"), nbformat.writes(made) + "\n")


# Chapter 12 declares no exercises, so this one rule has nothing to look at.
RULES = [rule for rule in lint.RULES if rule is not exercises.kinds_of_exercises]


def said(cells) -> dict[str, list[str]]:
    made = book(cells)
    return {rule.__name__: found for rule in RULES if (found := list(rule(made)))}


def test_a_good_notebook_is_in_order():
    assert said(good_cells()) == {}


def code(source, *outputs, **metadata):
    return new_code_cell(source, outputs=list(outputs), metadata=metadata)


def printed(text, name="stdout"):
    return new_output("stream", name=name, text=text)


@pytest.mark.parametrize("rule, cell", [
    ("one_title", new_markdown_cell("# A second title")),
    ("formulas_are_drawn_everywhere", new_markdown_cell(r"By $\text{a\_b}$")),
    ("formulas_are_drawn_everywhere", new_markdown_cell("So\n$$x$$")),
    ("no_skipped_level", new_markdown_cell("#### Too deep")),
    ("ends_with_where_you_stand", new_markdown_cell("## One more thing")),
    ("pictures_have_words", new_markdown_cell("![](boxes.png)")),
    ("pictures_have_words", new_markdown_cell('<img src="x.png">')),
    ("pictures_have_words", code("show()", figure()[0])),
    ("pictures_have_words", code('figures.curves({}, alt="A line.", caption="c")')),
    ("pictures_have_words", code("show()", new_output("display_data", data={"image/png": "aGVsbG8=", "text/plain": "<Figure>"}))),
    ("core_in_time", new_markdown_cell("word " * 4001)),
    ("something_to_run", new_markdown_cell("word " * 900)),
    ("cells_are_short", code("\n".join(f"a{i} = {i}" for i in range(26)))),
    ("lines_fit_the_screen", code("x = 1" + " + 1" * 30)),
    ("code_is_portable", code("import matplotlib.pyplot as plt")),
    ("code_is_portable", code("%%time\nx = 1")),
    ("code_is_portable", code("open('../data/x.json')")),
    ("code_is_portable", code("!ls")),
    ("nbval_sees_everything", code("# NBVAL_IGNORE_OUTPUT\nprint(1)")),
    ("nbval_sees_everything", code("print(1)", tags=["nbval-skip"])),
    ("outputs_are_clean", code("warn()", printed("careful\n", "stderr"))),
    ("outputs_are_clean", code("1 / 0", new_output("error", ename="ZeroDivisionError", evalue="division by zero"))),
    ("nothing_of_one_machine", code("x", printed("/home/ada/course/x.py\n"))),
    ("nothing_of_one_machine", new_markdown_cell("See `C:\\Users\\ada`.")),
    ("nothing_of_one_machine", code("x", printed("<f at 0x7f3a2b4c5d6e>\n"))),
    ("nothing_of_one_machine", code("x", printed("0.3333333\n"))),
    ("nothing_of_one_machine", code("x", printed("error 1.2e-07\n"))),
    ("exercises_as_declared", code("# EXERCISE 12.1\nx = None")),
    ("exercises_as_declared", new_markdown_cell("## An exercise\n\n### Exercise 12.1 · Undeclared", metadata={"tags": ["exercise-card"]})),
    ("nothing_is_given_away", code('reveal("12.1")')),
    ("nothing_is_given_away", code('rotate = find("12.1").given["rotate"]')),
], ids=lambda value: value if isinstance(value, str) else "")
def test_a_broken_rule_is_named(rule, cell):
    cells = good_cells()
    cells.insert(-1 if rule != "ends_with_where_you_stand" else len(cells), cell)
    assert rule in said(cells)


def test_the_first_code_cell_only_imports():
    cells = good_cells()
    for more in ("{}\nx = 1", "import torch\n{}"):
        cells[1].source = more.format(good_cells()[1].source)
        assert list(said(cells)) == ["first_cell_imports"]


def test_a_cell_that_was_never_run():
    made = book(good_cells())
    made.code[2].execution_count = None
    assert list(code_rules.outputs_are_clean(made)) == ["'print(8)': never run"]


def test_deeper_sections_do_not_count():
    cells = good_cells()
    cells[-1:-1] = [new_markdown_cell("## Deeper: a proof"),
                    *[c for _ in range(6) for c in (new_markdown_cell("word " * 800), code("1"))]]
    assert said(cells) == {}
    cells[-1:-1] = [new_markdown_cell("## 3 Back in the core\n\n" + "word " * 800), code("1")]
    assert said(cells) == {}
    read = "core_in_time"
    cells[-1:-1] = [c for _ in range(5) for c in (new_markdown_cell("word " * 800), code("1"))]
    assert list(said(cells)) == [read]


def test_a_rerun_that_is_needed_is_noticed():
    made = book(good_cells())
    made.text = made.text.replace('"language": "python"', '"language": "Python"')
    made.notebook = nbformat.reads(made.text, 4)
    assert [line[:22] for line in code_rules.canonical_form(made)] == ["not in canonical form:"]


def test_words():
    assert (
        lint.words("One $x^2 + y$ two `code here` three.\n```\nnot "
                   "these\n```\n<details><summary>Hint</summary>nor these</details>") == 5)
    assert lint.words("[a link](https://example.org/long/path)") == 2


# What the lint says about exercises, on the exercises that are there

def exercise_notebook(word: str):
    """A notebook of just this chapter's exercises, as shipped."""
    from course_lib.exercises import CHAPTERS, cells
    from course_lib.exercises.declare import load_chapter

    number = CHAPTERS.index(word)
    made = [new_markdown_cell(f"# {number} · X"), code("import torch"), new_markdown_cell("## Exercises")]
    for exercise in load_chapter(word):
        made += [nbformat.from_dict({"id": f"{exercise.id.replace('.', '-')}-{i}"} | cell)
                 for i, cell in enumerate(cells(exercise.id))]
        made[-1].outputs = [printed("not attempted\nThe cells below use the reference.\n")]
    notebook = canonical(new_notebook(cells=made + [new_markdown_cell("## Where you stand")]))
    return lint.Book(Path(f"{number:02}_{word}.ipynb"), nbformat.writes(notebook) + "\n")


@pytest.fixture
def shipped():
    from course_lib.exercises.declare import load_chapter

    if not load_chapter("attention"):
        pytest.skip("no exercises are declared yet")
    return exercise_notebook("attention")


def test_exercises_as_shipped_are_in_order(shipped):
    assert (list(exercises.exercises_as_declared(shipped)) == []
            and list(exercises.nothing_is_given_away(shipped)) == [])


def test_a_missing_a_changed_and_a_solved_exercise(shipped):
    stub = next(i for i, cell in enumerate(shipped.cells) if "exercise" in cell.metadata.get("tags", []))
    changed = copy.deepcopy(shipped)
    changed.cells[stub].source += "\n    # and a word of mine"
    assert any("not as declared" in line for line in exercises.exercises_as_declared(changed))
    gone = copy.deepcopy(shipped)
    del gone.cells[stub - 1:stub + 2]
    assert any("declared and not in the notebook" in line for line in exercises.exercises_as_declared(gone))
    solved = copy.deepcopy(shipped)
    solved.cells[stub + 1].outputs = [printed("passed\n")]
    assert any("ships with it attempted" in line for line in exercises.nothing_is_given_away(solved))
    solved.cells[stub + 1].outputs = [printed("not attempted\n")]
    assert any("its reference did not run" in line for line in exercises.nothing_is_given_away(solved))


def test_a_leaked_solution_is_found(shipped):
    from course_lib.exercises import find

    leaks = 0
    for i, cell in enumerate(list(shipped.cells)):
        for kind, id in exercises.exercise_of(cell):
            if kind == "exercise" and find(id).kind in ("write", "repair"):
                leaking = copy.deepcopy(shipped)
                leaking.cells.insert(2, code("show_source()", printed(find(id).solution)))
                leaks += any(id in line for line in exercises.nothing_is_given_away(leaking))
    assert leaks > 0


@pytest.mark.parametrize("prose, said", [("the loss is 1.93 nats", "says 1.93"),
                                         ("it has 664,831 parameters", "says 664,831")])
def test_a_number_that_no_cell_prints(prose, said):
    cells = [new_markdown_cell(prose),
             new_code_cell("print(loss)",
                           outputs=[new_output("stream", name="stdout", text="1.776 of 664,832")])]
    assert [line for line in text.numbers_are_printed(book(cells)) if said in line]


@pytest.mark.parametrize("prose", ["the loss is 1.78", "it has 664,832 parameters",
                                   "Kwon et al. report 20.4 to 38.2 % and 96.31 %", "about 12",
                                   "from data/rope_study.json: 1.931", "$1.23$ and `4.567`", "in 2023"])
def test_a_number_that_a_cell_prints_or_a_source_gives(prose):
    cells = [new_markdown_cell(prose),
             new_code_cell("print(loss)",
                           outputs=[new_output("stream", name="stdout", text="1.776 of 664,832")])]
    assert list(text.numbers_are_printed(book(cells))) == []
