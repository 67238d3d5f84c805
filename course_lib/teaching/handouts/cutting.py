"""Taking exercises out of the package's code: functions hand their calls on, kernels are left out.

What is taken out is declared here by name. A handout is searched by text and by behaviour (`leaks.py`): there is
none where a solution is missing from these lists."""
import ast
import re
import textwrap
from dataclasses import dataclass

from course_lib.exercises.parts import Exercise


@dataclass(frozen=True)
class Leak:
    """A thing of the package that gives the right answers of an exercise."""
    where: str              # module or file below the course's folder
    name: str
    exercise: str


CUT = [Leak("course_lib.attention.functions", "softmax", "1.2"),
       Leak("course_lib.rope.rotation", "interleaved_to_half", "2.4"),
       Leak("course_lib.rope.scaling", "ntk_base", "2.7"),
       Leak("course_lib.gqa.grouped", "repeat_kv", "3.3"),
       Leak("course_lib.gqa.grouped", "pool_heads", "3.11"),
       Leak("course_lib.flash_attention.tiles", "merge", "6.3"),
       Leak("course_lib.kv_cache.quantization", "affine_codes", "7.10"),
       Leak("course_lib.language_model.training", "learning_rate", "10.3")]
CALLED_BEFORE = {"1.2"}         # chapter 0 looks into a model that calls it
# These take more arguments, or a notebook uses them: they are part of what a chapter teaches, and stay.
SHOWN = [Leak("course_lib.attention.functions", "causal_mask", "1.6"),
         Leak("course_lib.attention.functions", "scaled_dot_product_attention", "1.5"),
         Leak("course_lib.gqa.grouped", "grouped_query_attention", "1.5"),
         Leak("kernels/attention.cu", "softmax_online", "1.10"),
         Leak("course_lib.flash_attention.op", "flash_attention", "3.4"),
         Leak("course_lib.gqa.grouped", "grouped_query_attention", "3.4"),
         Leak("course_lib.linear_attention.approximations", "positive_features", "4.9"),
         Leak("course_lib.sparse_attention.rules", "sliding_window_mask", "5.1")]


def cut_python(text: str, cut: dict[str, Exercise]) -> str:
    """A module in which the named functions hand their calls on to the student's own."""
    lines = text.splitlines(True)
    for node in reversed(ast.parse(text).body):
        if isinstance(node, ast.FunctionDef) and node.name in cut:
            lines[node.lineno - 1:node.end_lineno] = [_hands_on(node, lines, cut[node.name])]
    return "".join(lines)


def _hands_on(node: ast.FunctionDef, lines: list[str], exercise: Exercise) -> str:
    """The same signature, with a body that calls the student's own work."""
    doc = ast.get_docstring(node, clean=True)
    quoted = (textwrap.indent(f'"""{doc}"""', "    ") + "\n" if doc and '"""' not in doc and "\\" not in doc
              else "")
    head = ("".join(lines[node.lineno - 1 : node.body[0].lineno - 1])
            or f"def {node.name}({ast.unparse(node.args)}):\n")
    return (f"{head}{quoted}    arguments = dict(locals())\n"
            "    from course_lib.exercises.sealed import yours\n"
            f"    return yours({exercise.id!r}, {exercise.name!r}, arguments)\n")


KERNEL = re.compile(r"^(?P<template>template\s*<[^>]*>\s*)?__global__\b[^;{]*?\b(?P<name>\w+)\s*"
                    r"\((?P<parameters>[^;{]*)\)\s*\{", re.M)


def cut_cuda(text: str, cut: dict[str, Exercise]) -> str:
    """A file of kernels without those named."""
    for match in reversed(list(KERNEL.finditer(text))):
        if name := cut.get(match["name"]) and match["name"]:
            text = (f"{text[:match.start()]}// `{name}` is exercise {cut[name].id}: it is left out here."
                    f"{text[_closing(text, match.end() - 1):]}")
    return text


def _closing(text: str, start: int) -> int:
    """Just past the brace that closes the one at `start`; comments and strings are skipped."""
    depth = 0
    for match in re.finditer(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|[{}]', text[start:], re.S):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return start + match.end()
    return len(text)
