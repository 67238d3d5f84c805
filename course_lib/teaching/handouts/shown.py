"""A handout's notebook: without outputs, and without cells that show a solution, or nearly all of one."""
import re
from pathlib import Path

from course_lib.exercises.cell_text import MARKER
from course_lib.exercises.parts import Exercise
from ..copies.similarity import holds
from .modules import notebook_of

# What a chapter shows of exercises that are still open, all but a token or two of the solution: exercises and
# functions that its notebook imports from the declarations -> the exercise they show.
SHOW_ANOTHER = {"6.8": "6.7", "6.9": "6.7", "gallery": "6.7"}


def withheld(exercises: list[Exercise]) -> dict[str, str]:
    """What is not handed out while these exercises are open."""
    opened = {e.id for e in exercises}
    return {what: id for what, id in SHOW_ANOTHER.items() if id in opened}


def in_words(what: str) -> str:
    return f"exercise {what}" if what[0].isdigit() else f"`{what}`"


def hand_out_notebook(word: str, folder: Path, exercises: list[Exercise], kept_back: dict[str, str]) -> Path:
    """The chapter's notebook without outputs; a note in place of each cell that is taken out."""
    import nbformat
    source = notebook_of(word)
    notebook = nbformat.read(source, as_version=4)
    kept_back = dict(kept_back)
    for cell in notebook.cells:
        if note := _note(cell, exercises, kept_back):
            if named := _named(cell, kept_back):        # then its own functions are missing further down
                own = re.findall(r"^def (\w+)\(", cell.source, re.M)
                kept_back |= dict.fromkeys(own, kept_back[named])
            cell.cell_type, cell.source = "markdown", note
            for key in ("outputs", "execution_count"):
                cell.pop(key, None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    path = folder / "notebooks" / source.name
    path.parent.mkdir(exist_ok=True)
    nbformat.write(notebook, path)
    return path


def _note(cell, exercises: list[Exercise], kept_back: dict[str, str]) -> str | None:
    """The text that takes a cell's place; None if the cell may stay."""
    tags = cell.metadata.get("tags", [])
    card = re.match(r"### Exercise (\d+\.\d+)\b", cell.source) if "exercise-card" in tags else None
    marker = MARKER.match(cell.source) if "exercise" in tags else None
    check = re.search(r"check\(\"(\d+\.\d+)\"", cell.source) if "check" in tags else None
    id = next((match[1] for match in (card, marker, check) if match), None)
    if id in kept_back:
        return ((f"*Exercise {id} follows once exercise {kept_back[id]} has been handed in: it "
                 "shows most of its solution.*") if card else f"*(exercise {id})*")
    if card:
        return None
    if named := _named(cell, kept_back):
        return (f"*A cell that uses `{named}` follows once exercise {kept_back[named]} has been handed in.*")
    shown = next((e for e in exercises if holds(cell.source, e)), None)
    return shown and f"*A cell that shows the solution of exercise {shown.id} was taken out here.*"


def _named(cell, kept_back: dict[str, str]) -> str | None:
    """The function kept back that a cell of code calls."""
    calls = (name for name in kept_back if re.search(rf"\b{name}\(", cell.source))
    return next(calls, None) if cell.cell_type == "code" else None
