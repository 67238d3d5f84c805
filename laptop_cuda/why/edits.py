"""Small changes of a kernel's statements: what a programmer may have meant instead.

A change drops a factor, a term or a statement, takes another operator, constant or variable of the same kind,
multiplies or divides by one that is at hand, or assigns a variable that a loop forgets. Nothing here knows
what is right: `why/trials.py` runs the changed kernels."""
import re
from dataclasses import dataclass

from ..text.effects import Effect
from ..text.outline import outline
from ..text.statements import CHANGES, FLOATS, INTEGERS
from ..text.variables import Variable, variables

OTHERS = {"=": ("+=", "*="), "+=": ("=", "*=", "-="), "*=": ("=", "+="), "-=": ("=", "+="), "<": ("<=",),
          "<=": ("<",), ">": (">=", "<"), ">=": (">",), "==": ("!=",), "!=": ("==",), "+": ("-",),
          "-": ("+",), "*": ("+",), "/": ("*",), "%": ("/",), "&&": ("||",), "||": ("&&",)}
OPENING, CLOSED = "([{", ")]}"
PLAIN, SWAP, WRAP = 1.0, 0.95, 0.9               # how much less likely than a slip of the pen


@dataclass(frozen=True)
class Edit:
    line: int
    start: int                   # in the text
    end: int
    text: str
    likely: float


@dataclass
class Names:
    """What a statement can name: variables by kind, and functions of one argument."""
    floats: list[str]
    integers: list[str]
    rows: list[str]
    calls: list[str]
    unused: list[str]            # rows that the function does not read


def edits(text: str, chosen: list[Effect]) -> list[Edit]:
    """Of some statements, the likeliest first, and of equal ones in the order of the statements."""
    whole = outline(text)
    known = {f.name: variables(whole, f) for f in whole.functions}
    calls = [f.name for f in whole.functions if "__device__" in f.qualifiers
             and "," not in [t.text for t in whole.tokens[f.parameters[0]:f.parameters[1]]]]
    found = []
    for s in chosen:
        at = s.tokens[0].start
        kinds = {kind: [v.name for v in known[s.function] if v.kind == kind and v.start <= at < v.end]
                 for kind in ("float", "integer", "row")}
        used = set().union(*(other.uses for other in chosen if other.function == s.function))
        names = Names(*map(list, map(dict.fromkeys, kinds.values())), [c for c in calls if c != s.function],
                      [name for name in kinds["row"] if name not in used])
        found += _Of(text, s, names).edits()
        if s.words[0] in ("for", "while"):
            found += _forgotten(s, chosen, known[s.function])
    return sorted(dict.fromkeys(found), key=lambda e: -e.likely)


def _forgotten(loop: Effect, chosen: list[Effect], known: list[Variable]) -> list[Edit]:
    """A variable from before a loop that the loop uses and never changes takes the value of one inside it."""
    inside = [s for s in chosen if loop in s.controls and s.function == loop.function]
    if not inside:
        return []
    last = max(inside, key=lambda s: s.tokens[-1].end)
    changed = set().union(*(s.assigns for s in inside))
    here = [v.name for v in known if v.kind == "float" and v.start < last.tokens[0].start < v.end]
    carried = [n for n in here if n not in changed and any(n in s.uses for s in inside)]
    at = last.tokens[-1].end + 1
    return [Edit(last.line, at, at, f" {n} = {other};", WRAP) for n in carried for other in here
            if other in changed]


class _Of:
    """The changes of one statement."""

    def __init__(self, text: str, s: Effect, names: Names):
        self.source, self.s, self.names, self.tokens = text, s, names, s.tokens
        self.declares = s.words[0] in FLOATS | INTEGERS | {"const", "__shared__", "extern", "auto"}

    def edits(self) -> list[Edit]:
        found = []
        if not (self.s.is_condition or self.declares or self.s.words[0] in ("return", "using", "else")):
            found.append(self.replace(0, len(self.tokens) - 1, "", PLAIN))
            if self.text(1) == "(" and self.match(1) == len(self.tokens) - 1:        # its value is dropped
                found += [Edit(self.s.line, self.tokens[0].start, self.tokens[0].start, f"{v} {op} ", SWAP)
                          for v in self.names.floats + self.names.integers for op in ("=", "+=")]
        for i, t in enumerate(self.tokens):
            if t.kind == "number" or t.text == "INFINITY":
                found += self.constants(i)
            elif t.kind == "symbol":
                found += self.operators(i)
            elif self.is_read(i):
                found += self.variables(i)
        return found

    def replace(self, first: int, last: int, text: str, likely: float) -> Edit:
        """Of whole tokens."""
        start, end = self.tokens[first].start, self.tokens[last].end
        return Edit(self.s.line, start, end, text, likely)

    def text(self, i: int) -> str:
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ""

    def constants(self, i: int) -> list[Edit]:
        t = self.text(i)
        if re.fullmatch(r"\d+u?", t):
            n = int(t.rstrip("u"))
            return [self.replace(i, i, str(m), PLAIN) for m in {n + 1, n - 1, 2 * n, n // 2} - {n} if m >= 0]
        if t.startswith("0x"):
            return []
        first = i - 1 if self.text(i - 1) == "-" else i
        others = ["0.0f", "1.0f", "-INFINITY"]
        maxima = [f"fmaxf({a}, {b})" for n, a in enumerate(self.names.floats) for b in self.names.floats[:n]]
        return ([self.replace(first, i, o, PLAIN) for o in others]
                + [self.replace(first, i, o, SWAP) for o in self.names.floats]
                + [self.replace(first, i, o, WRAP) for o in maxima[:12]])

    def operators(self, i: int) -> list[Edit]:
        t, found = self.text(i), []
        if t == "," and self.inside_index(i):
            return [self.replace(i, i, f" * {n} +", PLAIN) for n in self.names.integers]
        binary = i and (self.tokens[i - 1].kind in ("name", "number") or self.text(i - 1) in (")", "]"))
        shift = t == ">" and self.text(i + 1).startswith(">")
        if not binary or shift or t not in OTHERS or self.declared_at(i - 1) or self.is_pointer_mark(i):
            return []
        found = [self.replace(i, i, other, PLAIN) for other in OTHERS[t]]
        if t in ("*", "/", "+", "-", "%"):
            end = self.operand_end(i + 1, t in "+-")
            found.append(self.replace(i, end, "", PLAIN))
            start = self.operand_start(i - 1)
            found.append(self.replace(start, i, "", PLAIN))
        return found

    def inside_index(self, i: int) -> bool:
        """Whether the bracket around a token is [."""
        depth = 0
        while i > 0 and depth >= 0:
            i -= 1
            depth += (self.text(i) in CLOSED) - (self.text(i) in OPENING)
        return self.text(i) == "["

    def declared_at(self, i: int) -> bool:
        return self.text(i + 1) == "=" and (self.declares or self.text(i - 1) in FLOATS | INTEGERS)

    def is_pointer_mark(self, i: int) -> bool:
        types = FLOATS | INTEGERS
        return self.text(i) == "*" and (self.text(i - 1) in types or self.text(i + 1) == "__restrict__")

    def variables(self, i: int) -> list[Edit]:
        name, n = self.text(i), self.names
        if name in n.integers:
            changes = [self.replace(i, i, o, SWAP) for o in n.integers if o != name]
            return changes + [self.replace(i, i, o, SWAP) for o in (f"({name} + 1)", f"(2 * {name})")]
        end = self.primary_end(i)
        own = self.source[self.tokens[i].start:self.tokens[end].end]
        places = [self.source[self.tokens[j + 1].start:self.tokens[self.match(j + 1) - 1].end + 1]
                  for j in range(len(self.tokens) - 1) if self.text(j + 1) == "["]
        there = [f"{row}{place}" for row in n.unused for place in dict.fromkeys(places)]
        like = [o for o in (n.floats if name in n.floats else n.rows) if o != name]
        others = [o for o in n.floats if o != name]
        wraps = [f"({own} {op} {o})" for o in others for op in "*/"] + [f"fmaxf({own}, {o})" for o in others]
        wraps += [f"({own} / {o})" for o in n.integers] + [f"({own} * {o})" for o in there]
        wraps += [f"{f}({own})" for f in n.calls]
        return ([self.replace(i, i, o, SWAP) for o in like] + [self.replace(i, end, w, WRAP) for w in wraps])

    def is_read(self, i: int) -> bool:
        """A variable that we know, and whose value is used here."""
        name, n = self.text(i), self.names
        if name not in n.floats and name not in n.integers and name not in n.rows:
            return False
        if self.text(i - 1) in FLOATS | INTEGERS | {"&", ".", "->"} or self.text(i + 1) == "(":
            return False
        after = self.text(self.primary_end(i) + 1)
        assigned = after in CHANGES or self.text(i - 1) in ("++", "--")
        in_list = self.declares and self.text(i - 1) in ("float", "int")
        return not assigned and not in_list and (name not in n.rows or self.text(i + 1) == "[")

    def match(self, i: int) -> int:
        depth = 0
        for j in range(i, len(self.tokens)):
            depth += (self.text(j) in OPENING) - (self.text(j) in CLOSED)
            if not depth:
                return j
        return len(self.tokens) - 1

    def primary_end(self, i: int) -> int:
        end = self.match(i) if self.text(i) in OPENING else i
        while self.text(end + 1) in ("[", "(", "."):
            end = end + 2 if self.text(end + 1) == "." else self.match(end + 1)
        return end

    def operand_end(self, i: int, is_term: bool) -> int:
        i += self.text(i) in ("-", "!")
        end = self.primary_end(i)
        while is_term and self.text(end + 1) in ("*", "/", "%"):
            end = self.primary_end(end + 2)
        return min(end, len(self.tokens) - 1)

    def operand_start(self, i: int) -> int:
        while i > 0:
            if self.text(i) in CLOSED:
                depth = 0
                while i >= 0:
                    depth += (self.text(i) in CLOSED) - (self.text(i) in OPENING)
                    if not depth:
                        break
                    i -= 1
                if self.tokens[i - 1].kind != "name" and self.text(i - 1) not in (")", "]"):
                    return i
                i -= 1
            elif self.text(i - 1) == ".":
                i -= 2
            else:
                return i
        return max(i, 0)
