"""Verdicts that need no run: the untouched stub, and what the exercise does not allow.

A name that an exercise forbids is looked for where the code uses torch's or a module's: a variable, a
parameter, function or attribute of `self` that the student has called so is the student's own."""

import ast

from laptop_cuda.kernel_text import plain_text, refused
from ..running.kernel_runner import without_magic
from ..running.namespace import definition_of
from ..parts import Exercise
from .verdict import NOT_ATTEMPTED, WRONG, Verdict, verdict_on

# ways from a function to what watches it (`running/watch.py`)
LOOKS_INSIDE = {"_getframe", "currentframe", "f_back", "f_locals", "tb_frame", "gi_frame", "gc", "ctypes",
                "modules"}


def screen(exercise: Exercise, source: str) -> Verdict | None:
    """A verdict if the source need not be run; None otherwise."""
    if (not isinstance(source, str) or not source.strip() or normal(exercise, source)
        == normal(exercise, exercise.stub)):
        return verdict_on(exercise, NOT_ATTEMPTED, _what_to_do(exercise))
    if exercise.language == "cuda":
        used = refused(source, exercise.forbid, exercise.stub)
        return verdict_on(exercise, WRONG, used) if used else None
    used = outside_names(source)
    asked = outside_names(source, exercise.name) if used & set(exercise.forbid) else used
    for name in exercise.forbid:
        if name in asked:
            return verdict_on(exercise, WRONG, f"`{name}` may not be used here: the exercise is to do "
                              "without it.")
    if exercise.on_trust and (inside := used & LOOKS_INSIDE):
        return verdict_on(exercise, WRONG, f"`{min(inside)}` reaches into the process that runs the code, and this "
                          "exercise's check looks on from there: do without it.")
    if "course_lib" in used:
        return verdict_on(exercise, WRONG, "`course_lib` is not available when your work is marked: use the "
                          "names that the exercise gives, and import the rest from Python or torch.")
    return None


def _what_to_do(exercise: Exercise) -> str:
    if exercise.kind == "predict":
        wanted = "answer" if isinstance(exercise.answer, str) else "number"
        return f"Type your {wanted} in place of `None`, then run both cells."
    if exercise.kind == "choose":
        return "Type your choice in place of `None`, then run both cells."
    if exercise.kind == "repair":
        return f"Find what is wrong with `{exercise.name}` in the cell above, mend it, then run both cells."
    return f"Write `{exercise.name}` in the cell above, run it, then run this one."


def normal(exercise: Exercise, source: str) -> str:
    """The source without comments, docstrings and spacing, for telling a stub from an attempt."""
    if exercise.language == "cuda":
        return "".join(plain_text(without_magic(source)).split())
    try:
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and _begins_with_text(node):
                node.body = node.body[1:]
        return ast.dump(tree)
    # ValueError: null bytes; a number with more digits than Python prints
    except (SyntaxError, ValueError):
        return source


def _begins_with_text(node: ast.FunctionDef | ast.ClassDef) -> bool:
    """Whether a body begins with a constant that does nothing; a body of `...` alone is a stub's."""
    first = node.body[0]
    if not (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)):
        return False
    return first.value.value is not Ellipsis or len(node.body) > 1


def outside_names(source: str, of: str | None = None) -> set[str]:
    """Names and attributes that a source, or what the name `of` in it rests on, uses and does not define itself."""
    try:
        tree = ast.parse(source) if of is None else definition_of(ast.parse(source), of)
    except (SyntaxError, ValueError):
        return set()
    nodes = list(ast.walk(tree))
    own = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    own |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    own |= {n.name for n in nodes if isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef))}
    own_attributes = (
        own | {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)})
    used = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)} - own
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            of_self = isinstance(node.value, ast.Name) and node.value.id == "self"
            used |= set() if of_self and node.attr in own_attributes else {node.attr}
        elif isinstance(node, ast.alias):
            used.update(node.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            used.update((node.module or "").split("."))
    return used
