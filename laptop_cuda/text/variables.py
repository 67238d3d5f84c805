"""The variables of a kernel's source: numbers and arrays of numbers, and where in the text each is known."""
from __future__ import annotations

from dataclasses import dataclass

from .outline import Function, Outline
from .statements import WORDS
from .tokens import Token, match_forward

FLOATS = {"float", "double", "half", "__half"}
INTEGERS = {"int", "unsigned", "size_t", "long", "short", "uint", "bool", "int32_t", "uint32_t", "int64_t",
            "uint64_t"}
OPENING, CLOSED = "([{", ")]}"


@dataclass(frozen=True)
class Variable:
    name: str
    kind: str                    # "float", "integer", or "row": an array or a pointer of floats
    start: int                   # where in the text it is known
    end: int


def variables(whole: Outline, f: Function) -> list[Variable]:
    """The parameters and local variables of a function."""
    found, tokens, kind = [], whole.tokens, ""
    blocks, depth = [f.body[1]], 0               # the blocks' ends; brackets since the type was named
    for i in range(f.parameters[0], f.body[1]):
        text, before, after = (tokens[n].text for n in (i, i - 1, i + 1))
        while i > blocks[-1]:
            blocks.pop()
        if text == "{" and i > f.body[0]:
            blocks.append(match_forward(tokens, i))
        elif text == "for":
            blocks.append(_end_of_loop(tokens, i))
        if text in FLOATS | INTEGERS:
            kind, depth = "float" if text in FLOATS else "integer", 0
        elif text in OPENING or text in CLOSED:
            depth += 1 if text in OPENING else -1
        if text == ";" or depth < 0:
            kind = ""
        declared = before in FLOATS | INTEGERS | {",", "*", "&", "__restrict__"}
        if kind and tokens[i].kind == "name" and not depth and declared and text not in WORDS | INTEGERS:
            is_row = before in ("*", "__restrict__") or after == "["
            flat = after != "[" or tokens[match_forward(tokens, i + 1) + 1].text != "["
            if not is_row or kind == "float" and flat:
                made = "row" if is_row else kind
                found.append(Variable(text, made, tokens[i].end, tokens[blocks[-1]].end))
    return found


def _end_of_loop(tokens: list[Token], i: int) -> int:
    """The last token of the loop whose `for` is token i."""
    i = match_forward(tokens, i + 1) + 1
    if tokens[i].text == "{":
        return match_forward(tokens, i)
    while tokens[i].text != ";":
        i = match_forward(tokens, i) + 1 if tokens[i].text in ("(", "[", "{") else i + 1
    return i
