"""Kernel exercises that are worked on a page with a compiler: their cells, and their stored cases and mistakes.

What judges there is the package's own code: `rooms` is what of it a page loads."""
import html
import inspect
import json
from pathlib import Path

from course_lib.exercises.declare import find
from course_lib.exercises.parts import Exercise
from course_lib.exercises.sealed import write_sealed
from course_lib.exercises.shipped import as_shipped
from course_lib.files import ROOT
from course_lib.tools.notebooks import exercise_of
from laptop_cuda.build import cache, engine_digest
from laptop_cuda.toolchain.cache import digest, locked

JUDGE = {"": "sealed declare parts given on_page", "judging/": "judge compare counting recognise screen verdict wording show",
         "running/": "results values namespace kernel_runner limits answers wire"}
# what none of it needs on a page: packages that would import more, and what runs a source here
EMPTY = ("__init__", "exercises/__init__", "exercises/judging/__init__", "exercises/running/__init__", "exercises/student",
         "exercises/running/runner")
# What is read where no script of the page runs.
NO_SCRIPT = "Where scripts are allowed and the browser is of 2023 or later, this cell works here. In JupyterLab it does:"
STOP = '<button type="button" name="stop" hidden>Stop</button>'
TREE = "def tree_leaves(x):\n    return [y for part in (x.values() if isinstance(x, dict) else x) for y in tree_leaves(part)] " \
       "if isinstance(x, (tuple, list, dict)) else [x]\n"


def rooms() -> dict[str, bytes]:
    """{path: content} of the Python that judges, in the place of torch a part of it."""
    judge = [f"course_lib/exercises/{room}{name}.py" for room, names in JUDGE.items() for name in names.split()]
    made = {path: (ROOT / path).read_bytes() for path in judge} | {f"course_lib/{name}.py": b"" for name in EMPTY}
    own = (Path(__file__).parent / "page_torch.py").read_bytes()
    return made | {"torch/__init__.py": own, "torch/utils/__init__.py": b"", "torch/utils/_pytree.py": TREE.encode()}


def judges(exercise: Exercise) -> bool:
    """Whether a page judges an exercise: kernels, in one order of threads and without a budget of its own."""
    return exercise.language == "cuda" and exercise.orders == ("forward",) and not exercise.budget


def exercise_in(cell) -> Exercise | None:
    """The exercise whose cell this is."""
    return next((find(id) for kind, id in exercise_of(cell) if kind == "exercise"), None)


def after(cell) -> list[str]:
    """The HTML below the cell of a kernel exercise."""
    exercise = exercise_in(cell)
    if exercise is None or not judges(exercise):
        return []
    known = {"exercise": exercise.id, "verdict": "not attempted"}
    form = (editor(f"Work on {exercise.id} here", f"Exercise {exercise.id}: {html.escape(exercise.title)}", exercise.cell(exercise.stub),
                   f'<button name="submit">Check exercise {exercise.id}</button>') + STOP +
            '<span class="run-mark"></span><a class="run-mark" download="marks.json" '
            'title="All marks of this browser, for the notebooks: progress(marks_of=\'marks.json\')">Save marks</a>')
    return [place(known, form, f"make lab ARGS={int(exercise.id.split('.')[0])}")]


def place(known: dict[str, str], form: str, command: str) -> str:
    """Where something runs on a page: its form, what is told below it, and what is read where no script of the page runs."""
    data = " ".join(f'data-{name}="{html.escape(text)}"' for name, text in known.items())
    return (f'<course-cell {data}>\n<template><form class="run-bar">{form}</form><div class="run-result" data-result data-state="idle">'
            f'<p class="run-told" aria-live="polite"></p></div></template>{NO_SCRIPT} <code>{command}</code></course-cell>')


def editor(opens: str, label: str, text: str = "", check: str = "") -> str:
    """A text that can be opened, and given back as it was; beside it are the numbers of its lines."""
    text = html.escape(text).replace("\n", "&#10;")
    return (f'<details><summary>{opens}</summary><div class="run-editor" tabindex="-1"><div aria-hidden="true"></div>'
            f'<textarea name="text" aria-label="{label}" spellcheck="false" wrap="off">{text}</textarea></div>'
            f'{check} <button type="reset" name="reset">As it was</button></details>')


def elsewhere(cell, command: str) -> list[str]:
    """Below an exercise that this page does not judge: why, and what opens it where it is judged."""
    exercise = exercise_in(cell)
    if exercise is None:
        return []
    why = ("it asks for the notebook's Python" if exercise.language != "cuda" else "a page with a compiler does (make book LIVE=1)"
           if judges(exercise) else "it is judged in several orders of events")
    return [cannot(f"Exercise {exercise.id} is not judged", why, "it is", command)]


def cannot(what: str, why: str, there: str, command: str) -> str:
    """What this page does not do, and the command of what does."""
    told = html.escape(f"{what} on this page: {why}. In JupyterLab {there}:")
    return f'<p class="cannot-run" data-cannot="{html.escape(why)}">{told} <code>{command}</code></p>'


def stored(exercise: Exercise) -> bytes:
    """An exercise as a page has it, made once: what a handout stores, how it is compared, and the texts of the mistakes."""
    declared = Path(inspect.getfile(exercise.launch))
    own = [p.read_bytes() for room in ("judging", "running") for p in sorted((ROOT / "course_lib/exercises" / room).glob("*.py"))]
    texts = [declared.read_bytes(), declared.with_suffix(".toml").read_bytes()]
    made = cache() / f"worked-{digest(engine_digest(), exercise.id, *texts, *own)}"
    with locked(made):
        if not (made / "exercise").exists():
            compare = inspect.getclosurevars(exercise.compare).nonlocals
            write_sealed(made / "new", [exercise], {
                "compare": {name: compare[name] for name in ("atol", "rtol", "dtype")}, "shipped": as_shipped(exercise),
                "codes": [exercise.wrong_code(m) for m in exercise.misconceptions]})
            (made / "new").replace(made / "exercise")
        return (made / "exercise").read_bytes()


def write(folder: Path, cells: list) -> int:
    """The files of the exercises that have a place on the pages."""
    ids = [cell.source.splitlines()[1].split()[-1] for cell in cells if after(cell)]
    for id in ids:
        (folder / f"exercise-{id}").write_bytes(stored(find(id)))
    return len(ids)
