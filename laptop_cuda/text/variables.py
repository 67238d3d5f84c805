"""The variables of a kernel's source: numbers and arrays of numbers, and where in the text each is known."""
from dataclasses import dataclass

from .effects import WORDS
from .outline import Function, Outline
from .statements import BEHIND_A_NAME, FLOATS, INTEGERS, Declared, Statement, declaration, statements
from .tokens import Token, split_commas


@dataclass(frozen=True)
class Variable:
    name: str
    kind: str                    # "float", "integer", or "row": an array or a pointer of floats
    start: int                   # where in the text it is known
    end: int


def variables(whole: Outline, f: Function) -> list[Variable]:
    """The parameters and local variables of a function."""
    tokens, (first, last) = whole.tokens, f.body
    parameters = [v for a, b in split_commas(tokens, f.parameters[0] + 1, f.parameters[1])
                  for v in declaration(tokens, a, b + 1, (*BEHIND_A_NAME, ")"))]
    found = [(v, last) for v in parameters] + _within(tokens, statements(tokens, first + 1, last), last)
    made = [_variable(tokens, v, tokens[end].end) for v, end in found]
    return [v for v in made if v]


def _within(tokens: list[Token], found: list[Statement], end: int) -> list[tuple[Declared, int]]:
    """What some statements declare, each with the last token of the block or the loop that knows it."""
    made = []
    for s in found:
        if s.kind == "simple":
            made += [(v, end) for v in declaration(tokens, s.first, s.last)]
        elif s.kind == "{":
            made += _within(tokens, statements(tokens, s.first + 1, s.last - 1), s.last - 1)
        elif s.kind == "for":
            made += _within(tokens, statements(tokens, s.header[0] + 1, s.header[1])[:1], s.last - 1)
        made += _within(tokens, s.bodies, end)
    return made


def _variable(tokens: list[Token], v: Declared, end: int) -> Variable | None:
    """Of a declaration, if it is a number's or an array's of floats."""
    kind = next((t.text for t in tokens[v.type[1] - 1:v.type[0] - 1:-1] if t.text != "const"), "")
    at = next(i for i in range(*v.declarator) if tokens[i].text == v.name)
    dimensions = [t.text for t in tokens[at:v.declarator[1]]].count("[")
    is_row = dimensions == 1 or "*" in (t.text for t in tokens[v.declarator[0]:at])
    if kind not in FLOATS and (kind not in INTEGERS or is_row) or dimensions > 1 or v.name in WORDS:
        return None
    kind = "row" if is_row else "float" if kind in FLOATS else "integer"
    return Variable(v.name, kind, tokens[at].end, end)
