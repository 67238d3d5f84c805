"""The references of exercises, for the tests that hold them to the chapters' modules."""
import re
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
    """A copy of kernels/ in `folder` with one piece of text changed in the named files; it must be in one of them.

    Blanks inside the piece match any blanks; those before it are its indentation.
    """
    kernels = folder / "kernels"
    shutil.copytree(KERNELS, kernels)
    indent = before[:len(before) - len(before.lstrip())]
    piece = re.compile((f"(?m)^{indent}" if indent else "") + r"\s+".join(map(re.escape, before.split())))
    changed = {kernels / name: piece.subn(lambda _: after, (kernels / name).read_text()) for name in files}
    assert any(count for _, count in changed.values()), before
    for path, (text, _) in changed.items():
        path.write_text(text)
    return kernels
