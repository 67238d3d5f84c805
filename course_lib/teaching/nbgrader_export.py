"""`python -m course_lib export nbgrader --out FOLDER`: the course as a source tree for nbgrader.

    FOLDER/nbgrader_config.py
    FOLDER/source/<word>/<NN_word>.ipynb

An exercise's cell becomes a solution cell (what students get is our stub, word for word), its check a graded
cell: a hidden line makes it fail unless the exercise has passed. `nbgrader generate_assignment`, `autograde`
and the rest then work as usual. nbgrader runs code and checks in one process, without the walls of our `grade`.
"""

import argparse
import sys
from pathlib import Path

from course_lib.exercises.declare import CHAPTERS, NoChapter, chapter_word, find
from course_lib.exercises.parts import Exercise
from .handout import notebook_of

CONFIG = '''"""nbgrader's settings for this course: run nbgrader in this folder."""
c = get_config()  # noqa: F821

c.CourseDirectory.course_id = "attention"
c.ClearSolutions.code_stub = {"python": ""}          # the stub is beside the solution already
c.ExecutePreprocessor.timeout = 300
c.Execute.timeout = 300
'''


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m course_lib export",
                                     description="The course for another grading system.")
    parser.add_argument("system", choices=["nbgrader"])
    parser.add_argument("chapters", nargs="*", metavar="CHAPTER",
                        help="words or numbers; all where none is given")
    parser.add_argument("--out", required=True, metavar="FOLDER")
    args = parser.parse_args(argv)
    out = Path(args.out)
    try:
        words = [chapter_word(name) for name in args.chapters] or CHAPTERS
    except NoChapter as error:
        print(f"export: {error}", file=sys.stderr)
        return 2
    out.mkdir(parents=True, exist_ok=True)
    if not (out / "nbgrader_config.py").exists():       # yours, if you have changed it
        (out / "nbgrader_config.py").write_text(CONFIG)
    for word in words:
        export(word, out)
    print(f"{out}: {', '.join(words)}. Now, in that folder: nbgrader generate_assignment {words[0]} --create")
    return 0


def export(word: str, out: Path) -> Path:
    """Write the chapter's source notebook; returns its path."""
    import nbformat

    from course_lib.tools.notebooks import exercise_of
    notebook = nbformat.read(notebook_of(word), as_version=4)
    for cell in notebook.cells:
        for kind, id in exercise_of(cell):
            exercise = find(id)
            if kind == "exercise":
                cell.source = with_solution(exercise)
                cell.metadata["nbgrader"] = _metadata(f"exercise-{id}", solution=True)
            elif kind == "check":
                cell.source = with_hidden_line(cell.source, exercise)
                cell.metadata["nbgrader"] = _metadata(f"check-{id}", grade=True, points=exercise.points)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    path = out / "source" / word / notebook_of(word).name
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path


def _metadata(grade_id: str, grade: bool = False, solution: bool = False, points: float = 0) -> dict:
    made = {"schema_version": 3, "grade_id": grade_id.replace(".", "-"), "grade": grade, "solution": solution,
            "locked": grade, "task": False}
    return made | ({"points": points} if grade else {})


def with_solution(exercise: Exercise) -> str:
    """The exercise's cell with the solution in effect, and only the stub once nbgrader has cleared it."""
    stub, solution = exercise.stub.strip("\n"), exercise.solution.strip("\n")
    if exercise.language == "cuda":          # a kernel cannot be defined twice, so the stub is switched off
        return exercise.cell(f"// BEGIN SOLUTION\n{solution}\n#if 0\n// END SOLUTION\n{stub}\n"
                             "// BEGIN SOLUTION\n#endif\n// END SOLUTION")
    return exercise.cell(f"{stub}\n\n### BEGIN SOLUTION\n{solution}\n### END SOLUTION")


def with_hidden_line(check: str, exercise: Exercise) -> str:
    """A check that prints a verdict would earn full marks for any verdict: nbgrader goes by exceptions."""
    return (f"{check}\n"
            "### BEGIN HIDDEN TESTS\n"
            "from course_lib.exercises.student import handed_in\n"
            f'assert "{exercise.id}" in handed_in, "exercise {exercise.id} has not passed"\n'
            '### END HIDDEN TESTS')
