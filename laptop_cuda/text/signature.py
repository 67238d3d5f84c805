"""The kernels and host functions of a source, with their parameters as the text names them."""
import re
from dataclasses import dataclass, replace

from .outline import Function, Outline, outline
from .tokens import match_angle, match_forward, split_commas


@dataclass(frozen=True, eq=False)
class KernelText:
    """A `__global__` function as the source has it."""
    name: str                          # with its namespace
    parameters: tuple[str, ...]        # their names
    types: tuple[str, ...]             # their types, as text
    template: tuple[str, ...]          # "typename T", "int N = 32"
    bounds: str                        # the first argument of __launch_bounds__, or ""
    conditions: tuple[tuple[str, ...], ...]
    function: Function
    choices: tuple[tuple[tuple[str, ...], ...], ...] = ()     # per parameter: the #if chains inside the list

    @property
    def required(self) -> int:
        """How many template arguments have no default."""
        return sum("=" not in t and "..." not in t for t in self.template)


def kernels(source: Outline) -> list[KernelText]:
    """The kernels of a file, in order."""
    found = [_kernel_text(source, f) for f in source.functions if "__global__" in f.qualifiers and not f.member
             and not (f.template and f.template[1] == f.template[0] + 1)]     # template <>: a specialisation
    return found + _from_macros(source)


def hosts(source: Outline) -> list[KernelText]:
    """The host functions of a file that could be called: no templates, no members."""
    return [_kernel_text(source, f) for f in source.functions
            if not f.qualifiers and not f.member and not f.template]


def _kernel_text(source: Outline, function: Function) -> KernelText:
    names, types, choices = _parameters(source, function)
    template, bounds = (), ""
    if function.template:
        first, last = function.template
        template = tuple(source.source(a, b - 1) for a, b in split_commas(source.tokens, first + 1, last))
    if function.bounds:
        first, last = function.bounds
        begin, end = split_commas(source.tokens, first + 1, last)[0]
        bounds = source.source(begin, end - 1)
    name = f"{function.namespace}::{function.name}" if function.namespace else function.name
    return KernelText(name, names, types, template, bounds, function.conditions, function, choices)


def _from_macros(source: Outline) -> list[KernelText]:
    """Kernels that a macro of the file writes: `#define UNARY(name) __global__ void name##_kernel(...)`."""
    macros = {}
    for token in source.tokens:
        define = re.match(r"#\s*define\s+(\w+)\(([^)]*)\)(.*\b__global__\b.*)$", token.text, re.DOTALL)
        if token.kind == "directive" and define:
            macros[define.group(1)] = [p.strip() for p in define.group(2).split(",")], define.group(3)
    found = []
    for i, token in enumerate(source.tokens[:-1]):
        space = source.namespace[i]
        if token.text in macros and space is not None and source.tokens[i + 1].text == "(":
            names, body = macros[token.text]
            last = match_forward(source.tokens, i + 1)
            given = [source.source(a, b - 1) for a, b in split_commas(source.tokens, i + 2, last)]
            body = body.replace("\\\n", " ")
            for name, value in zip(names, given):
                body = re.sub(rf"\b{name}\b", lambda _: value, body)
            body = re.sub(r"\s*##\s*", "", body)
            for kernel in kernels(outline(f"namespace {space} {{ {body} }}" if space else body)):
                found.append(replace(kernel, conditions=source.conditions[i]))
    return found


def _parameters(source: Outline, function: Function) -> tuple[tuple, tuple, tuple]:
    """Names, types and #if chains of the parameters; where an #if chooses, all of its branches."""
    names, types, choices = [], [], []
    tokens, outside = source.tokens, len(function.conditions)
    for begin, end in split_commas(tokens, function.parameters[0] + 1, function.parameters[1]):
        if end - begin == 1 and tokens[begin].text == "void":
            break
        found, i = None, begin
        while i < end and tokens[i].text not in ("=", "["):
            if tokens[i].kind == "name" and tokens[i].text not in ("const", "__restrict__", "volatile"):
                found = i if i > begin else found
            elif tokens[i].text == "<":
                i = match_angle(tokens, i) or i
            elif tokens[i].text == "(":
                inner = next((n for n in range(i, match_forward(tokens, i)) if tokens[n].kind == "name"),
                             None)
                found = inner if inner is not None else found
                break
            i += 1
        names.append(tokens[found].text if found is not None else f"parameter {len(names) + 1}")
        types.append(source.source(begin, (found if found is not None else end) - 1))
        choices.append(source.conditions[found if found is not None else begin][outside:])
    return tuple(names), tuple(types), tuple(choices) if any(choices) else ()
