"""A student's copy of a notebook: as it ships, but without the outputs that answer an exercise."""
import re
from pathlib import Path

ANSWER = "answer"       # tag of a cell whose output answers an exercise and which no rule below finds
GUESSED = re.compile(r"^\*(predict|choose) ·", re.M)
HEADING = re.compile(r"^#{1,6} ", re.M)
SHOWS_A_SOLUTION = re.compile(r"\b(show_source|reveal)\(")


def student_copy(source: Path) -> str:
    """The text of the copy. Answers are the outputs of three kinds of cells:

    - those below a *predict* or *choose* exercise, up to the next heading: they count what was guessed;
    - those that print an implementation;
    - those tagged "answer".

    Such a cell is as if it had never been run, and nbval has nothing to compare it with."""
    import nbformat

    notebook = nbformat.read(source, as_version=4)
    guessed = False
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        if cell.cell_type == "markdown":
            if HEADING.search(cell.source):
                guessed = bool(GUESSED.search(cell.source))
        elif cell.cell_type == "code" and not {"exercise", "check"} & set(tags):
            if guessed or ANSWER in tags or SHOWS_A_SOLUTION.search(cell.source):
                cell.outputs, cell.execution_count = [], None
                cell.metadata["tags"] = [*tags, "nbval-ignore-output"]
    return nbformat.writes(notebook) + "\n"
