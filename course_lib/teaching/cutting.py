"""Taking exercises out of the package's code: functions hand their calls on, kernels are left out.

What belongs to a chapter is decided by its folder: `course_lib/<word>/` and `kernels/<word>.cu`,
`kernels/<word>/`.
"""

from __future__ import annotations

import ast
import re
import textwrap

from course_lib.exercises.declare import chapter_of
from course_lib.exercises.parts import Exercise
from .similarity import solves


# What of the package gives an exercise's right answers, besides what has its name or its text: found by
# `leaks.py`, which stops a handout that would show another. The first are taken out.
SOLVES = {
    "course_lib.attention.functions": {"softmax": "1.2"},
    "course_lib.rope.rotation": {"interleaved_to_half": "2.4"},
    "course_lib.rope.scaling": {"ntk_base": "2.7"},
    "course_lib.gqa.grouped": {"pool_heads": "3.11", "repeat_kv": "3.3"},
    "course_lib.flash_attention.tiles": {"merge": "6.3"},
    "course_lib.kv_cache.quantization": {"affine_codes": "7.10"},
    "course_lib.language_model.training": {"learning_rate": "10.3"},
}
# These take more arguments, or a notebook uses them: they are part of what a chapter teaches, and stay.
SHOWN = [
    ("course_lib.attention.functions", "causal_mask", "1.6"),
    ("course_lib.attention.functions", "scaled_dot_product_attention", "1.5"),
    ("course_lib.gqa.grouped", "grouped_query_attention", "1.5"),
    ("kernels/attention.cu", "softmax_online", "1.10"),
    ("course_lib.flash_attention.op", "flash_attention", "3.4"),
    ("course_lib.gqa.grouped", "grouped_query_attention", "3.4"),
    ("course_lib.linear_attention.approximations", "positive_features", "4.9"),
    ("course_lib.sparse_attention.rules", "sliding_window_mask", "5.1"),
]


def cut_python(text: str, module: str, exercises: list[Exercise], also: dict[str, str] = {}) -> str:
    """Functions and classes at the top of a module that are exercises hand their calls on to the student's
    own.

    `also`: name -> exercise of what is to be cut besides. A function that has an exercise's name and calls
    one that is cut stays as it is: the solution is in the other one.
    """
    leaks, word = SOLVES.get(module, {}) | also, module.split(".")[1]
    lines = text.splitlines(True)
    nodes = [node for node in ast.parse(text).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    asked = [e for e in exercises if e.language == "python" and e.kind in ("write", "repair")]
    cut: dict[str, Exercise] = {}
    for node in nodes:
        own = "".join(lines[node.lineno - 1:node.end_lineno])
        exercise = next((e for e in asked if leaks.get(node.name) == e.id or solves(own, e)), None)
        if exercise:
            cut[node.name] = exercise
    for node in nodes:
        exercise = next((e for e in asked if e.name == node.name and chapter_of(e.id) == word), None)
        if exercise and node.name not in cut and not _called(node) & cut.keys():
            cut[node.name] = exercise
    for node in reversed(nodes):
        if node.name in cut:
            lines[node.lineno - 1:node.end_lineno] = [_hands_on(node, lines, cut[node.name])]
    return "".join(lines)


def _called(node: ast.AST) -> set[str]:
    return {n.func.id for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}


def _hands_on(node: ast.FunctionDef | ast.ClassDef, lines: list[str], exercise: Exercise) -> str:
    """The same signature, with a body that calls the student's own work."""
    doc = ast.get_docstring(node, clean=True)
    quoted = (textwrap.indent(f'"""{doc}"""', "    ") + "\n" if doc and '"""' not in doc and "\\" not in doc
              else "")
    if isinstance(node, ast.ClassDef):
        return (f"class {node.name}:\n{quoted}    def __new__(cls, *args, **kwargs):\n"
                "        from course_lib.exercises.sealed import yours\n"
                f"        return yours({exercise.id!r}, {node.name!r})(*args, **kwargs)\n")
    head = ("".join(lines[node.lineno - 1 : node.body[0].lineno - 1])
            or f"def {node.name}({ast.unparse(node.args)}):\n")
    return (f"{head}{quoted}    arguments = dict(locals())\n"
            "    from course_lib.exercises.sealed import yours\n"
            f"    return yours({exercise.id!r}, {exercise.name!r}, arguments)\n")


KERNEL = re.compile(r"^(?P<template>template\s*<[^>]*>\s*)?__global__\b[^;{]*?\b(?P<name>\w+)\s*"
                    r"\((?P<parameters>[^;{]*)\)\s*\{", re.M)


def cut_cuda(text: str, word: str, exercises: list[Exercise], also: dict[str, str] = {}) -> str:
    """Kernels that are exercises are left out of a file. `also`: kernel -> exercise of what is to be left out
    besides."""
    for match in reversed(list(KERNEL.finditer(text))):
        end, name = _closing(text, match.end() - 1), match["name"]
        exercise = next((e for e in exercises if e.language == "cuda" and
                         (e.name == name and chapter_of(e.id) == word or also.get(name) == e.id
                          or solves(text[match.start():end], e))), None)
        if exercise:
            text = (f"{text[:match.start()]}// `{name}` is exercise {exercise.id}: it is left out here."
                    f"{text[end:]}")
    return text


def _closing(text: str, start: int) -> int:
    """Just past the brace that closes the one at `start`; comments and strings are skipped."""
    depth = 0
    for match in re.finditer(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|[{}]', text[start:], re.S):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return start + match.end()
    return len(text)
