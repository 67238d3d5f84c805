"""What the statements of a kernel's source assign and use, and on which conditions each depends.

Enough to walk from a value back to the lines that it was made from: names are taken at their word, and
pointers are followed only by name (`const float* row = x + ...`, then `row[c]`)."""
import bisect
from dataclasses import dataclass, field

from .outline import Function, Outline, outline
from .statements import Statement, behind, changed, statements
from .tokens import Token

WORDS = {"if", "else", "for", "while", "do", "switch", "case", "default", "break", "continue", "return",
         "const", "constexpr", "static", "extern", "inline", "volatile", "unsigned", "signed", "int", "long",
         "short", "char", "float", "double", "bool", "void", "auto", "size_t", "struct", "sizeof", "true",
         "false", "nullptr", "__shared__", "__restrict__", "__global__", "__device__", "half", "__half",
         "float2", "float4", "int4", "__syncthreads", "__syncwarp", "INFINITY"}


@dataclass(eq=False)
class Effect:
    """Of a simple statement, or of the condition of a structured one."""
    function: str
    lines: tuple[int, ...]               # that its tokens are on
    tokens: list[Token]
    assigns: set[str] = field(default_factory=set)
    uses: set[str] = field(default_factory=set)
    controls: tuple["Effect", ...] = ()  # the conditions around it, and early exits before it
    is_condition: bool = False
    body: tuple[int, int] = (0, 0)       # of a condition: first and last line of what depends on it

    @property
    def line(self) -> int:
        return self.lines[0]

    @property
    def words(self) -> list[str]:
        return [t.text for t in self.tokens]


def effects(text: str) -> list[Effect]:
    """Of all functions of a file, from its top."""
    found = outline(text)
    made = [e for f in found.functions for e in _Body(found, f).read()]
    own = {f.name for f in found.functions}
    for e in made:
        if e.words[0] in own and e.words[1:2] == ["("]:          # it may assign to what it is given
            e.assigns |= e.uses - own
    return made


class _Body:
    """One function's statements, from its first to its last."""

    def __init__(self, whole: Outline, function: Function):
        self.tokens, self.function = whole.tokens, function
        starts = [0] + [i + 1 for i, c in enumerate(whole.text) if c == "\n"]
        self.line_of = lambda i: bisect.bisect_right(starts, self.tokens[i].start)
        self.found: list[Effect] = []

    def read(self) -> list[Effect]:
        self.block(self.function.body[0], self.function.body[1], ())
        return self.found

    def block(self, opening: int, close: int, controls: tuple) -> None:
        for s in statements(self.tokens, opening + 1, close):
            controls = self.statement(s, controls)

    def statement(self, s: Statement, controls: tuple) -> tuple:
        """The controls of what follows, which early exits add to."""
        if s.kind == "{":
            self.block(s.first, s.last - 1, controls)
        elif s.kind == "simple":
            last = s.last - (self.tokens[s.last - 1].text == ";")
            if last > s.first:
                self.add(s.first, last, controls)
        elif s.kind != "label":
            return self.conditional(s, controls)
        return controls

    def conditional(self, s: Statement, controls: tuple) -> tuple:
        if s.kind == "do":
            self.statement(s.bodies[0], controls)
        made = self.add(s.header[0] - 1 if s.kind == "do" else s.first, s.header[1] + 1, controls)
        made.is_condition = True
        count = len(self.found)
        for body in s.bodies if s.kind != "do" else ():
            self.statement(body, (*controls, made))
        inside = self.found[count:]
        made.body = (min((e.line for e in inside), default=made.line),
                     max((e.lines[-1] for e in inside), default=made.line))
        leaves = any(w in ("return", "continue", "break") for e in inside for w in e.words[:1])
        return (*controls, made) if leaves else controls

    def add(self, first: int, last: int, controls: tuple) -> Effect:
        lines = tuple(sorted({self.line_of(i) for i in range(first, last)}))
        made = Effect(self.function.name, lines, self.tokens[first:last], controls=controls)
        for i in range(first, last):
            token, before = self.tokens[i], self.tokens[i - 1].text if i > first else ""
            if token.kind != "name" or token.text in WORDS or before in (".", "->"):
                continue
            end = behind(self.tokens, i)
            is_changed = self.in_atomic(i) or changed(self.tokens, i, end)
            if is_changed:
                made.assigns.add(token.text)
            if not is_changed or self.tokens[end].text != "=":
                made.uses.add(token.text)
        self.found.append(made)
        return made

    def in_atomic(self, i: int) -> bool:
        """Whether token i is the name in atomicAdd(&name"""
        call, *opening = (t.text for t in self.tokens[i - 3:i])
        return opening == ["(", "&"] and call.startswith("atomic")


def at_line(found: list[Effect], line: int) -> list[Effect]:
    return [e for e in found if line in e.lines]


def reached_from(found: list[Effect], start: list[Effect]) -> dict[Effect, int]:
    """{effect: its distance} of what some statements' values depend on: names, conditions, functions."""
    makers: dict[tuple[str, str], list[Effect]] = {}
    inside: dict[str, list[Effect]] = {}
    for e in found:
        for name in e.assigns:
            makers.setdefault((e.function, name), []).append(e)
        if e.assigns or (e.words[0] == "return" and len(e.words) > 1):
            inside.setdefault(e.function, []).append(e)
    reached, front = {e: 0 for e in start}, start
    while front:
        further = []
        for e in front:
            near = [m for name in e.uses for m in makers.get((e.function, name), [])]
            near += [r for name in e.uses for r in inside.get(name, [])]
            near += e.controls
            for n in near:
                if n not in reached:
                    reached[n] = reached[e] + 1
                    further.append(n)
        front = further
    return reached
