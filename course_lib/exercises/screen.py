"""Verdicts that need no run: the untouched stub, and what the exercise does not allow.

A name that an exercise forbids is looked for where the code uses torch's or a module's: a variable, a
parameter, a function or an attribute of `self` that the student has called by the same name is the student's
own.
"""

from __future__ import annotations

import ast
import re

from .parts import Exercise
from .verdict import NOT_ATTEMPTED, WRONG, Verdict, verdict_on

LOOKED_UP = {
    "getattr",
    "attrgetter",
    "methodcaller",
    "__getattribute__",
    "__dict__",
    "vars",
    "eval",
    "exec",
    "import_module",
    "__import__",
    "globals",
    "locals",
}  # with one of these a name may be written as a string

TAKES_DOWN = {
    "_disable_current_modes",
    "_python_dispatch",
    "_pop_mode",
    "_pop_torch_function_stack",
    "_pop_torch_dispatch_stack",
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "_DisableTorchDispatch",
    "no_dispatch",
    "_get_current_dispatch_mode",
}


def screen(exercise: Exercise, source: str) -> Verdict | None:
    """A verdict if the source need not be run; None otherwise."""
    if (
        not isinstance(source, str)
        or not source.strip()
        or normal(exercise, source) == normal(exercise, exercise.stub)
    ):
        return verdict_on(exercise, NOT_ATTEMPTED, _what_to_do(exercise))
    if exercise.language == "cuda":
        used = forbidden_in_kernel(exercise, source)
        return verdict_on(exercise, WRONG, used) if used else None
    used = outside_names(source)
    for name in exercise.forbid:
        if name in used:
            return verdict_on(
                exercise, WRONG, f"`{name}` may not be used here: the exercise is to do without it."
            )
    if exercise.forbid and used & TAKES_DOWN:
        return verdict_on(
            exercise,
            WRONG,
            f"`{min(used & TAKES_DOWN)}` may not be used here: it hides what your code calls.",
        )
    if "course_lib" in used:
        return verdict_on(
            exercise,
            WRONG,
            "`course_lib` is not available when your work is marked: use the names that the "
            "exercise gives, and import the rest from Python or torch.",
        )
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
        return "".join(_plain_cpp(re.sub(r"^\s*%%cuda.*$", "", source, flags=re.M)).split())
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
    """Whether a body begins with a constant that does nothing; a body of `...` alone is kept, since it is a
    stub's."""
    first = node.body[0]
    if not (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)):
        return False
    return first.value.value is not Ellipsis or len(node.body) > 1


# --- Python -------------------------------------------------------------------------------------------------

def outside_names(source: str) -> set[str]:
    """Names and attributes that a source uses and does not define itself."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return set()
    nodes = list(ast.walk(tree))
    own = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    own |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    own |= {n.name for n in nodes if isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef))}
    own_attributes = own | {
        n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
    }
    used = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)} - own
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            of_self = isinstance(node.value, ast.Name) and node.value.id == "self"
            used |= set() if of_self and node.attr in own_attributes else {node.attr}
        elif isinstance(node, ast.alias):
            used.update(node.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            used.update((node.module or "").split("."))
    if used & LOOKED_UP:
        used |= {
            n.value
            for n in nodes
            if isinstance(n, ast.Constant) and isinstance(n.value, str) and n.value.isidentifier()
        }
    return used


# --- CUDA C++ -----------------------------------------------------------------------------------------------

# Compiler features that reach past the kernel: what uses them cannot be counted or sanitized. Spelled in any
# way that the preprocessor allows, hence no pasting of tokens and no alternative spellings of `#` and `[`.
BEYOND_A_KERNEL = (
    "__attribute__",
    "__attribute",
    "__declspec",
    "asm",
    "__asm__",
    "__asm",
    "_Pragma",
    "dlsym",
    "dlopen",
    "__has_include",
    "__has_embed",
    "__extension__",
    "thread_local",
    "gnu",
    "__gnu__",
    "clang",
    "no_sanitize",
)
# names of the compiler and of the engine; `__builtin_align__` is CUDA's
BEYOND_BY_PREFIX = re.compile(r"__atomic_|__sync_|__builtin_(?!align__$)|__tsan|__sanitizer|laptop|LAPTOP")
# Functions of the C library that read or write memory for their caller. No GPU has them, and no hook sees
# what they touch.
HOST_FUNCTIONS = re.compile(
    r"mem(?:pcpy|ccpy|cmp|r?chr|mem|frob)|rawmemchr|b(?:copy|cmp|zero)|rindex|stpn?cpy|"
    r"str(?:n?cpy|n?cat|n?cmp|n?len|n?dupa?|r?chr|chrnul|c?spn|pbrk|str|casestr|n?casecmp|sep|tok|tok_r|coll|"
    r"xfrm|verscmp|fry|to[dflu]\w*|ftime|ptime|from[dfl])|wcs\w+|wcr?tomb|wmem\w+|mb(?:len|rlen|r?towc)|"
    r"mbsr?towcs|ato(?:f|i|l|ll)|a64l|l64a|v?sn?printf|v?[df]printf|v?asprintf|vprintf|v?[sf]?scanf|f?puts|"
    r"fmemopen|open_memstream|fread|fwrite|qsort|qsort_r|bsearch|lfind|lsearch|rand_r|random_r|"
    r"(?:init|set)state(?:_r)?|(?:[dejlmn]rand|seed|lcong)48(?:_r)?|(?:gm|local|c|asc)time(?:_r)?|"
    r"mktime|timegm")
# what the engine defines as macros, so that it sees what they touch
ENGINE_MACROS = {"memcpy", "memset", "memmove", "printf", "assert", "abort", "exit"}
# a bracket that follows no name, call or index opens a lambda
LAMBDA = re.compile(r"(?:^|[^\w\s)\]]|\breturn)\s*\[")
SPELLINGS = {"##": "`##`", "%:": "`%:`", "<:": "`<:`", "[[": "an attribute in `[[ ]]`", "??": "`??`"}
HEADERS = re.compile(
    r"(?:cuda_\w+|cooperative_groups(?:/\w+)?|mma|math|cmath|cstdio|stdio|cassert|assert|cfloat|float|"
    r"climits|limits|cstdint|stdint)(?:\.h)?"
)


def forbidden_in_kernel(exercise: Exercise, source: str) -> str | None:
    """A sentence about the first thing in a kernel's source that the exercise does not allow."""
    plain = _plain_cpp(source)
    words = set(re.findall(r"\w+", plain))
    for name in exercise.forbid:
        if name in words or name == "lambda" and LAMBDA.search(plain):
            return f"`{name}` may not be used here: the exercise is to do without it."
    stub = _plain_cpp(exercise.stub)
    for name in BEYOND_A_KERNEL:
        if name in words and name not in stub:
            return f"`{name}` may not be used in an exercise: it reaches past the kernel."
    for name in sorted(words):
        if BEYOND_BY_PREFIX.match(name):
            return f"`{name}` may not be used in an exercise: it is the compiler's or the engine's."
        if HOST_FUNCTIONS.fullmatch(name) and name not in stub:
            return f"`{name}` may not be used in an exercise: it is no function of a GPU."
    if re.search(r"\bindex\s*\(", plain) and not re.search(r"\b(?:int|unsigned|\w+_t)\s+index\s*\(", plain):
        return "`index` may not be used in an exercise: it is no function of a GPU."
    for spelling, said in SPELLINGS.items():
        if spelling in plain and spelling not in stub:
            return f"{said} may not be used in an exercise."
    if re.search(r"\bextern\b(?!\s+__shared__)", plain):
        return "`extern` may be used for `__shared__` arrays only."
    for line in re.findall(r"^\s*#\s*(\w+)(.*)$", plain, flags=re.M):
        told = _directive(*line)
        if told and told not in stub:
            return told
    return None


def _directive(name: str, rest: str) -> str | None:
    if name == "include":
        header = re.fullmatch(r'\s*[<"]([\w./]+)[>"]\s*', rest)
        if not header or not HEADERS.fullmatch(header[1]):
            return (f"`#include{rest}` does not compile in an exercise: use CUDA's own headers, or those for "
                    "numbers such as <cmath>.")
    if name == "pragma" and rest.split()[:1] != ["unroll"]:
        return f"`#pragma{rest}` may not be used in an exercise; `#pragma unroll` may."
    if name in ("define", "undef") and (found := re.match(r"\s*(\w+)", rest)):
        if found[1].startswith("__"):
            return (f"`#{name}{rest}` may not be used in an exercise: names that begin with two underscores "
                    "are the compiler's.")
        if found[1] in ENGINE_MACROS:
            return f"`#{name}{rest}` may not be used in an exercise: `{found[1]}` keeps its meaning."
    if name in ("include_next", "import", "embed", "line", "ident", "assert"):
        return f"`#{name}` may not be used in an exercise."
    return None


def _plain_cpp(source: str) -> str:
    """C++ without comments, and with the lines joined that end in a backslash."""
    joined = re.sub(r"\\[ \t]*\r?\n", "", source)
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", joined, flags=re.S)
