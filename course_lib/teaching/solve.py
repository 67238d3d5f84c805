"""`python -m course_lib solve [CHAPTER...] --out FOLDER`: the notebooks with every exercise answered."""
import argparse
import sys
from pathlib import Path
from time import perf_counter

from course_lib.tools.notebooks import (NOTEBOOKS, WORK, CellFailed, canonical, chapter_notebooks, execute,
                                        exercise_of, find_notebook)

from course_lib.exercises.declare import find
from course_lib.exercises.parts import Exercise
from course_lib.exercises.judging.verdict import MIME, PASSED


def main(argv: list[str]) -> int:
    # over the guide: a command's arguments, its loop and its report
    parser = argparse.ArgumentParser("python -m course_lib solve",
                                     description="Notebooks with every exercise solved, executed: for an "
                                     "instructor's eyes.")
    parser.add_argument("chapters", nargs="*", metavar="CHAPTER",
                        help="numbers, words or paths; all where none is given")
    parser.add_argument("--out", default="solved", metavar="FOLDER",
                        help="where they go (default: %(default)s, which git ignores)")
    parser.add_argument("--misconceptions", action="store_true",
                        help="answer with the usual mistakes instead")
    arguments = parser.parse_args(argv)
    folder = Path(arguments.out)
    for taken, holds in ((NOTEBOOKS, "the student edition"), (WORK, "your own answers")):
        if folder.resolve() == taken.resolve():
            print(f"{taken.name}/ holds {holds}: choose another --out", file=sys.stderr)
            return 2
    try:
        paths = [find_notebook(name) for name in arguments.chapters] or chapter_notebooks()
    except LookupError as error:
        print(error, file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for path in paths:
        print(f"{path.stem} ...", end=" ", flush=True)
        start = perf_counter()
        try:
            notebook = answered(path, wrong_answer if arguments.misconceptions else right_answer)
            execute(notebook, path)
        except CellFailed as error:
            failed += 1
            print(f"failed\n{error}")
            continue
        write(canonical(notebook), folder / path.name)
        found = verdicts(notebook)
        passed = sum(v["status"] == PASSED for v in found)
        if not arguments.misconceptions and passed < len(found):
            failed += 1
        print(f"{passed} of {len(found)} passed, {perf_counter() - start:.1f} s")
    return 1 if failed else 0


def answered(path: Path, answer):
    """The notebook with `answer(exercise)` in the cell of every exercise; nothing is executed yet."""
    import nbformat
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        for kind, id in exercise_of(cell):
            if kind == "exercise":
                exercise = find(id)
                cell.source = exercise.cell(answer(exercise))
    return notebook


def right_answer(exercise: Exercise) -> str:
    return exercise.solution


def wrong_answer(exercise: Exercise) -> str:
    """The first misconception."""
    return exercise.wrong_code(exercise.misconceptions[0])


def verdicts(notebook) -> list[dict]:
    """The machine-readable verdicts of an executed notebook, in its order."""
    return [output.data[MIME] for cell in notebook.cells if cell.cell_type == "code"
            for output in cell.outputs if MIME in output.get("data", {})]


def write(notebook, path: Path) -> None:
    import nbformat
    path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
