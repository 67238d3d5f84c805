"""A chapter's exercises as a handout has them: comparisons and properties as code, the rest as data."""
import ast
import importlib
import inspect
from pathlib import Path

from course_lib.exercises.declare import CHAPTERS, load_chapter
from course_lib.exercises.parts import Exercise
from course_lib.exercises.sealed import write_sealed
from course_lib.files import write_whole
from ..copies.similarity import lines_of
from .modules import trees_of_notebook
from .pieces import Pieces


def write_declarations(word: str, folder: Path, notebook: Path, kept_back) -> None:
    """Write exercises/chapters/<word>.py and its data. `kept_back`: what the class is not to see yet."""
    exercises = [e for e in load_chapter(word) if e.id not in kept_back]
    module = importlib.import_module(f"course_lib.exercises.chapters.{word}")
    pieces, tables = Pieces(module), {}
    entries = [f"    {exercise.id!r}: dict({pieces.checks(exercise)}),\n" for exercise in exercises]
    for name in names_imported(notebook, module.__name__):
        value = getattr(module, name)
        if name in kept_back:
            tables[name] = []
        elif inspect.isfunction(value) and list(inspect.get_annotations(value).values())[:1] == [int]:
            tables[name] = tabulated(value, exercises)
        else:
            pieces.refer(ast.parse(name))
    target = folder / "course_lib" / "exercises" / "chapters" / f"{word}.py"
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, _module_text(word, pieces, entries, tables))
    write_sealed(target.with_suffix(".sealed"), exercises, tables)


def _module_text(word: str, pieces: Pieces, entries: list[str], tables: dict[str, list]) -> str:
    return (f'"""The exercises of chapter {CHAPTERS.index(word)}, without solutions: see sealed.py."""\n'
            "from pathlib import Path\n\n"
            + "".join(f"{line}\n" for line in sorted(pieces.imports))
            + "from course_lib.exercises.judging.compare import close, number\n"
            + "from course_lib.exercises.sealed import open_sealed, table\n\n"
            + 'STORED = Path(__file__).with_suffix(".sealed")\n'
            + "".join(f"{name} = table(STORED, {name!r})\n" for name in tables)
            + "".join(f"\n{definition}\n" for definition in pieces.definitions.values())
            + "\nopen_sealed(STORED, {\n" + "".join(entries) + "})\n")


def names_imported(notebook: Path, module: str) -> list[str]:
    """What the notebook's cells import from a module."""
    return sorted({alias.name for tree in trees_of_notebook(notebook) for node in ast.walk(tree)
                   if isinstance(node, ast.ImportFrom) and node.module == module for alias in node.names})


def tabulated(function, exercises: list[Exercise]) -> list:
    """The results of a function for 0, 1, 2, ... until it raises; for a solution, which exercises ask."""
    answers = []
    try:
        for number in range(100):
            answer = function(number)
            solved = [e for e in exercises if isinstance(answer, str)
                      and lines_of(answer) == lines_of(e.solution)]
            same = [e.id for e in exercises if solved and (e.name, e.language)
                    == (solved[0].name, solved[0].language)]
            answers.append({"exercises": same} if solved else answer)
    except (IndexError, KeyError, ValueError):
        pass
    return answers
