"""The references of exercises, for the tests that hold them to the chapters' modules."""
import shutil
from pathlib import Path

from course_lib.cuda import KERNELS
from course_lib.exercises.declare import find


def reference(id):
    """What the solution of an exercise defines, run with the given names alone."""
    exercise = find(id)
    namespace = dict(exercise.given)
    exec(exercise.solution, namespace)
    return namespace[exercise.name]


def changed_kernels(folder: Path, before: str, after: str, *files: str) -> Path:
    """A copy of kernels/ in `folder` with one piece of text changed in the named files; it must be in one of them."""
    kernels = folder / "kernels"
    shutil.copytree(KERNELS, kernels)
    texts = {kernels / name: (kernels / name).read_text() for name in files}
    assert any(before in text for text in texts.values()), before
    for path, text in texts.items():
        path.write_text(text.replace(before, after))
    return kernels
