"""The statements of a kernel's source: what each assigns, what it uses, on which conditions it depends.

Enough of C++ to walk from a value back to the lines that it was made from: names are taken at their word, and
pointers are followed only by name (`const float* row = x + ...`, then `row[c]`).
"""
from __future__ import annotations

import bisect
from dataclasses import dataclass, field

from .outline import Function, Outline, outline
from .tokens import Token, match_forward

WORDS = {
    "if", "else", "for", "while", "do", "switch", "case", "default", "break", "continue", "return", "const",
    "constexpr", "static", "extern", "inline", "volatile", "unsigned", "signed", "int", "long", "short",
    "char", "float", "double", "bool", "void", "auto", "size_t", "struct", "sizeof", "true", "false",
    "nullptr", "__shared__", "__restrict__", "__global__", "__device__", "half", "__half", "float2", "float4",
    "int4", "__syncthreads", "__syncwarp", "INFINITY"}
CONTROL = ("if", "for", "while", "switch")


@dataclass(eq=False)
class Statement:
    function: str
    lines: tuple[int, ...]               # that its tokens are on
    tokens: list[Token]
    assigns: set[str] = field(default_factory=set)
    uses: set[str] = field(default_factory=set)
    controls: tuple["Statement", ...] = ()       # the conditions around it, and early exits before it
    is_condition: bool = False
    body: tuple[int, int] = (0, 0)       # of a condition: first and last line of what depends on it

    @property
    def line(self) -> int:
        return self.lines[0]

    @property
    def words(self) -> list[str]:
        return [t.text for t in self.tokens]


def statements(text: str) -> list[Statement]:
    """Of all functions of a file, from its top."""
    found = outline(text)
    made = [s for f in found.functions for s in _Body(found, f).read()]
    own = {f.name for f in found.functions}
    for s in made:
        if s.words[0] in own and s.words[1:2] == ["("]:          # it may assign to what it is given
            s.assigns |= s.uses - own
    return made


def parameters_of(text: str, name: str) -> set[str]:
    """Names in the head of the function."""
    found = outline(text)
    f = next(f for f in found.functions if f.name == name)
    return {t.text for t in found.tokens[f.parameters[0]:f.parameters[1]] if t.kind == "name"}


class _Body:
    """One function's statements, by recursive descent over its tokens."""

    def __init__(self, whole: Outline, function: Function):
        self.tokens, self.name = whole.tokens, function.name
        starts = [0] + [i + 1 for i, c in enumerate(whole.text) if c == "\n"]
        self.line_of = lambda i: bisect.bisect_right(starts, self.tokens[i].start)
        self.first, self.last = function.body[0] + 1, function.body[1]
        self.found: list[Statement] = []

    def read(self) -> list[Statement]:
        self.block(self.first, self.last, ())
        return self.found

    def block(self, at: int, end: int, controls: tuple) -> tuple:
        """Reads [at, end); returns the controls of what follows, which early exits add to."""
        while at < end:
            at, controls = self.statement(at, end, controls)
        return controls

    def statement(self, at: int, end: int, controls: tuple) -> tuple[int, tuple]:
        word = self.tokens[at].text
        if word == "{":
            close = min(match_forward(self.tokens, at), end)
            self.block(at + 1, close, controls)
            return close + 1, controls
        if word in CONTROL:
            return self.conditional(at, end, controls)
        if word in ("else", "do"):
            return self.statement(at + 1, end, controls)
        stop = at
        while stop < end and self.tokens[stop].text != ";":
            stop = match_forward(self.tokens, stop) + 1 if self.tokens[stop].text in "([{" else stop + 1
        if stop > at:
            self.add(at, min(stop, end), controls)
        return stop + 1, controls

    def conditional(self, at: int, end: int, controls: tuple) -> tuple[int, tuple]:
        opening = at + 1 if self.tokens[at + 1].text == "(" else at + 2          # if constexpr (
        close = match_forward(self.tokens, opening)
        made = self.add(at, close + 1, controls)
        made.is_condition = True
        count = len(self.found)
        after, _ = self.statement(close + 1, end, (*controls, made))
        if after < end and self.tokens[after].text == "else":
            after, _ = self.statement(after, end, (*controls, made))
        inside = self.found[count:]
        made.body = (min((s.line for s in inside), default=made.line),
                     max((s.lines[-1] for s in inside), default=made.line))
        leaves = any(w in ("return", "continue", "break") for s in inside for w in s.words[:1])
        return after, (*controls, made) if leaves else controls

    def add(self, first: int, last: int, controls: tuple) -> Statement:
        tokens = self.tokens[first:last]
        lines = tuple(sorted({self.line_of(i) for i in range(first, last)}))
        made = Statement(self.name, lines, tokens, controls=controls)
        for i, token in enumerate(tokens):
            if token.kind != "name" or token.text in WORDS or (i and tokens[i - 1].text in (".", "->")):
                continue
            if self.assigned(first + i, last):
                made.assigns.add(token.text)
                if not self.plainly_assigned(first + i, last):
                    made.uses.add(token.text)
            else:
                made.uses.add(token.text)
        self.found.append(made)
        return made

    def after_name(self, at: int, last: int) -> int:
        """The token behind `name[...][...].x`."""
        at += 1
        while at < last and self.tokens[at].text in ("[", ".", "->"):
            at = match_forward(self.tokens, at) + 1 if self.tokens[at].text == "[" else at + 2
        return at

    def assigned(self, at: int, last: int) -> bool:
        """name = , name[i] += , ++name, atomicAdd(&name, or a declaration without a value."""
        text = [t.text for t in self.tokens[max(at - 3, 0):at]]
        in_atomic = text[-2:] == ["(", "&"] and text[0].startswith("atomic")
        if in_atomic or text[-2:] in (["+", "+"], ["-", "-"]):
            return True
        at = self.after_name(at, last)
        rest = [t.text for t in self.tokens[at:min(at + 3, last)]] + [""] * 3
        if rest[0] == "=":
            return rest[1] != "="
        if rest[0] in "+-*/%&|^" and rest[0]:
            return rest[1] == "=" or (rest[0] in "+-" and rest[1] == rest[0])
        return rest[0] == "<<" and rest[1] == "="

    def plainly_assigned(self, at: int, last: int) -> bool:
        after = self.after_name(at, last)
        return after < last and self.tokens[after].text == "="


def at_line(all_statements: list[Statement], line: int) -> list[Statement]:
    return [s for s in all_statements if line in s.lines]


def reached_from(all_statements: list[Statement], start: list[Statement]) -> dict[Statement, int]:
    """{statement: its distance} of what the values of some statements depend on: through names, conditions
    and functions of the file."""
    makers: dict[tuple[str, str], list[Statement]] = {}
    inside: dict[str, list[Statement]] = {}
    for s in all_statements:
        for name in s.assigns:
            makers.setdefault((s.function, name), []).append(s)
        if s.assigns or (s.words[0] == "return" and len(s.words) > 1):
            inside.setdefault(s.function, []).append(s)
    found, front = {s: 0 for s in start}, start
    while front:
        further = []
        for s in front:
            near = [m for name in s.uses for m in makers.get((s.function, name), [])]
            near += [r for name in s.uses for r in inside.get(name, [])]
            near += s.controls
            for n in near:
                if n not in found:
                    found[n] = found[s] + 1
                    further.append(n)
        front = further
    return found
