"""Kernel exercises that are worked on a page with a compiler: their cells, and their stored cases and mistakes.

What judges there is the package's own code: `rooms` is what of it a page loads."""
import html
import inspect
import json
from pathlib import Path

from course_lib.exercises.declare import find
from course_lib.exercises.judging import judge
from course_lib.exercises.parts import Exercise
from course_lib.exercises.sealed import write_sealed
from course_lib.exercises.shipped import as_shipped
from course_lib.files import ROOT
from laptop_cuda.build import cache, engine_digest
from laptop_cuda.toolchain.cache import digest, locked

JUDGE = ("course_lib/exercises/{sealed,declare,parts,given,on_page}.py", "course_lib/exercises/judging/{judge,compare,counting,"
         "recognise,screen,verdict,wording,show}.py", "course_lib/exercises/running/{results,values,namespace,kernel_runner,"
         "limits,answers,wire}.py")
# what none of it needs on a page: packages that would import more, and what runs a source here
EMPTY = ("course_lib/__init__.py", "course_lib/exercises/__init__.py", "course_lib/exercises/judging/__init__.py",
         "course_lib/exercises/running/__init__.py", "course_lib/exercises/student.py", "course_lib/exercises/running/runner.py")
TREE = "def tree_leaves(x):\n    return [y for part in (x.values() if isinstance(x, dict) else x) for y in tree_leaves(part)] " \
       "if isinstance(x, (tuple, list, dict)) else [x]\n"


def rooms() -> dict[str, bytes]:
    """{path: content} of the Python that judges, in the place of torch a part of it."""
    paths = [f"{folder}/{name}.py" for pattern in JUDGE for folder, names in [pattern.removesuffix("}.py").split("/{")]
             for name in names.split(",")]
    made = {path: (ROOT / path).read_bytes() for path in paths} | dict.fromkeys(EMPTY, b"")
    own = (Path(__file__).parent / "page_torch.py").read_bytes()
    return made | {"torch/__init__.py": own, "torch/utils/__init__.py": b"", "torch/utils/_pytree.py": TREE.encode()}


def why_not(exercise: Exercise) -> str:
    """Why a page cannot judge an exercise; "" if it can."""
    if exercise.language != "cuda":
        return "it is written in PyTorch"
    plain = not (exercise.budget or exercise.properties or exercise.measure) and exercise.orders == ("forward",)
    plans = [judge.plan(exercise, case) for case in judge.draw(exercise)]
    kinds = {a["dtype"] for arrays, _ in plans for a in arrays}
    return "" if plain and all(len(steps) == 1 for _, steps in plans) and kinds <= {"float32", "int32"} else \
        "a page runs no launches of its kind"


def after(cell) -> list[str]:
    """The HTML below the cell of a kernel exercise."""
    if "exercise" not in cell.metadata.get("tags", []) or not cell.source.startswith("%%cuda"):
        return []
    exercise = find(cell.source.splitlines()[1].split()[-1])
    if why_not(exercise):
        return []
    told = html.escape(json.dumps({"title": exercise.title, "kernel": exercise.name, "stub": exercise.cell(exercise.stub)}), quote=True)
    return [f'<course-cell data-exercise="{exercise.id}" data-verdict="not attempted" data-work="{told}"></course-cell>']


def stored(exercise: Exercise) -> bytes:
    """An exercise as a page has it, made once: what a handout stores, how it is compared, and the texts of the mistakes."""
    declared = Path(inspect.getfile(exercise.launch)).read_bytes()
    own = [p.read_bytes() for p in sorted((ROOT / "course_lib" / "exercises").glob("*/*.py")) if p.parent.name != "chapters"]
    made = cache() / f"worked-{digest(engine_digest(), exercise.id, declared, *own)}"
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
