"""A handout's notebook: without outputs, and without cells that show a solution, or nearly all of one."""
from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import dataclass, field
from pathlib import Path

from course_lib.exercises.cell_text import MARKER
from course_lib.exercises.declare import load_chapter
from course_lib.exercises.parts import Exercise
from .declarations import names_imported
from .modules import notebook_of
from .similarity import holds, share_shown

NEARLY_ALL = 0.8        # of a solution's telling lines: the rest is a token or two
SHORTEST = 200          # characters of solution; below, a repaired line is most of it


@dataclass
class Withheld:
    """What a chapter shows of exercises that are still open: exercise ids and functions -> the exercise they
    show."""
    exercises: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)

    def rows(self) -> list[tuple[str, str]]:
        return ([(f"exercise {id}", shown) for id, shown in self.exercises.items()]
                + [(f"`{name}`", shown) for name, shown in self.functions.items()])


def withheld(word: str, exercises: list[Exercise]) -> Withheld:
    """Stubs, and functions that the notebook imports from the declarations, that show an open exercise's
    solution."""
    found = Withheld()
    opened = [e for e in exercises if e.kind == "write" and len(e.solution) >= SHORTEST]
    for exercise in load_chapter(word):
        shown = next((e for e in opened if e is not exercise and share_shown(exercise.stub, e) >= NEARLY_ALL),
                     None)
        if shown and exercise.kind == "repair":
            found.exercises[exercise.id] = shown.id
    module = importlib.import_module(f"course_lib.exercises.chapters.{word}")
    for name in names_imported(notebook_of(word), module.__name__):
        shown = next((e for e in opened for text in _texts(getattr(module, name)) if share_shown(text, e)
                      >= NEARLY_ALL), None)
        if shown:
            found.functions[name] = shown.id
    for exercise in load_chapter(word):
        named = next((n for n in found.functions if re.search(rf"\b{n}\b", exercise.card)), None)
        if named:
            found.exercises[exercise.id] = found.functions[named]
    return found


def _texts(thing) -> list[str]:
    """The texts that a function of one number returns, all but those that are a solution as it is."""
    if not inspect.isfunction(thing) or list(inspect.get_annotations(thing).values())[:1] != [int]:
        return [thing] if isinstance(thing, str) else []
    texts = []
    for number in range(1, 100):
        try:
            texts.append(thing(number))
        except (IndexError, KeyError, ValueError):
            break
    return [text for text in texts if isinstance(text, str)]


def hand_out_notebook(word: str, folder: Path, exercises: list[Exercise], kept_back: Withheld) -> Path:
    """The chapter's notebook without outputs; a note in place of each cell that is taken out."""
    import nbformat
    source = notebook_of(word)
    notebook = nbformat.read(source, as_version=4)
    kept_back = Withheld(kept_back.exercises, dict(kept_back.functions))
    for cell in notebook.cells:
        if note := _note(cell, exercises, kept_back):
            if named := _named(cell, kept_back):        # then its own functions are missing further down
                own = re.findall(r"^def (\w+)\(", cell.source, re.M)
                kept_back.functions |= dict.fromkeys(own, kept_back.functions[named])
            cell.cell_type, cell.source = "markdown", note
            for key in ("outputs", "execution_count"):
                cell.pop(key, None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    path = folder / "notebooks" / source.name
    path.parent.mkdir(exist_ok=True)
    nbformat.write(notebook, path)
    return path


def _note(cell, exercises: list[Exercise], kept_back: Withheld) -> str | None:
    """The text that takes a cell's place; None if the cell may stay."""
    tags = cell.metadata.get("tags", [])
    card = re.match(r"### Exercise (\d+\.\d+)\b", cell.source) if "exercise-card" in tags else None
    marker = MARKER.match(cell.source) if "exercise" in tags else None
    check = re.search(r"check\(\"(\d+\.\d+)\"", cell.source) if "check" in tags else None
    id = next((match[1] for match in (card, marker, check) if match), None)
    if id in kept_back.exercises:
        return ((f"*Exercise {id} follows once exercise {kept_back.exercises[id]} has been handed in: it "
                 "shows most of its solution.*") if card else f"*(exercise {id})*")
    if not card:
        if named := _named(cell, kept_back):
            return (f"*A cell that uses `{named}` follows once exercise {kept_back.functions[named]} has "
                    "been handed in.*")
    shown = next((e for e in exercises if holds(cell.source, e)), None)
    if shown and not card:
        return f"*A cell that shows the solution of exercise {shown.id} was taken out here.*"
    return None


def _named(cell, kept_back: Withheld) -> str | None:
    """The function kept back that a cell of code calls."""
    calls = (name for name in kept_back.functions if re.search(rf"\b{name}\(", cell.source))
    return next(calls, None) if cell.cell_type == "code" else None
