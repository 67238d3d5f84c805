"""The statements of a function body: where each begins and ends, what it declares, what it changes."""
from dataclasses import dataclass, field

from .tokens import Token, match_angle, match_forward, split_commas

INTEGERS = {"int", "unsigned", "size_t", "long", "short", "uint", "bool", "int32_t", "uint32_t", "int64_t",
            "uint64_t"}
FLOATS = {"float", "double", "half", "__half"}
SCALAR = INTEGERS | {"const", "constexpr", "signed", "char", "float", "double", "std", "::"}
VECTORS = {"half", "__half", "half2", "__nv_bfloat16", "uchar4", "int2", "int4", "uint2", "uint4", "float2",
           "float3", "float4", "double2"}
NO_TYPE = {"return", "break", "continue", "goto", "throw", "delete", "else", "case", "default", "new",
           "using", "typedef", "struct", "class", "union", "enum", "static_assert", "sizeof"}
CHANGES = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", "++", "--"}
ASM = ("asm", "__asm__", "__asm")
BEHIND_A_NAME = ("=", ";", ",", "[", "(", "{")


@dataclass
class Statement:
    """Tokens first to last (excluded). A structured one has a header, "(" to ")", and bodies."""
    kind: str                            # "simple", "label", "{", "for", "while", "if", "switch", "do"
    first: int
    last: int
    header: tuple[int, int] | None = None
    bodies: list["Statement"] = field(default_factory=list)


@dataclass
class Declared:
    """One variable of a declaration. The numbers are token indices, the last of a pair excluded."""
    name: str
    type: tuple[int, int]                # as written, shared by all variables of the statement
    declarator: tuple[int, int]          # stars, name and dimensions
    initial: tuple[int, int] | None      # after the "="
    plain: bool                          # nothing but "= value" follows the name and its dimensions


def statements(tokens: list[Token], first: int, last: int) -> list[Statement]:
    found = []
    while first < last:
        found.append(statement(tokens, first, last))
        first = found[-1].last
    return found


def statement(tokens: list[Token], first: int, last: int) -> Statement:
    kind = tokens[first].text
    if kind == "{":
        return Statement("{", first, match_forward(tokens, first) + 1)
    if kind in ("case", "default"):
        colon = next((i for i in range(first, last) if tokens[i].text == ":"), last - 1)
        return Statement("label", first, colon + 1)
    if kind in ("for", "while", "switch", "if"):
        opening = first + 2 if tokens[first + 1].text == "constexpr" else first + 1
        close = match_forward(tokens, opening)
        bodies = [statement(tokens, close + 1, last)]
        if kind == "if" and bodies[0].last < last and tokens[bodies[0].last].text == "else":
            bodies.append(statement(tokens, bodies[0].last + 1, last))
        return Statement(kind, first, bodies[-1].last, (opening, close), bodies)
    if kind == "do":
        body = statement(tokens, first + 1, last)
        close = match_forward(tokens, body.last + 1)
        return Statement("do", first, min(close + 2, last), (body.last + 1, close), [body])
    end = first
    while end < last and tokens[end].text != ";":
        end = match_forward(tokens, end) + 1 if tokens[end].text in ("(", "[", "{") else end + 1
    return Statement("simple", first, min(end + 1, last))


def declaration(tokens: list[Token], first: int, last: int, behind: tuple = BEHIND_A_NAME) -> list[Declared]:
    """The variables that a simple statement declares; `last` is behind its ";"."""
    begin, i, words = first, first, 0
    while i < last and (tokens[i].kind == "name" or tokens[i].text in ("::", "<")):
        if tokens[i].text in NO_TYPE:
            return []
        if tokens[i].text == "<":
            close = match_angle(tokens, i)
            if close is None or close >= last:
                return []
            i = close
        words += tokens[i].kind == "name" and tokens[i - 1].text != "::"
        i += 1
    stars = i
    while tokens[i].text in ("*", "&") or i > stars and tokens[i].text in ("const", "__restrict__"):
        i += 1
    end_of_type = stars if i > stars else i - 1
    name = i if i > stars else i - 1
    enough = end_of_type > begin and (words >= 2 or i > stars) and tokens[name].kind == "name"
    if not enough or tokens[name + 1].text not in behind or tokens[name - 1].text == "::":
        return []
    return [_declared(tokens, (begin, end_of_type), piece)
            for piece in split_commas(tokens, end_of_type, last - 1)]


def _declared(tokens: list[Token], of_type: tuple[int, int], piece: tuple[int, int]) -> Declared:
    i, end = piece
    while tokens[i].text in ("*", "&", "const", "__restrict__"):
        i += 1
    name = tokens[i].text
    i += 1
    while i < end and tokens[i].text == "[":
        i = match_forward(tokens, i) + 1
    equals = i < end and tokens[i].text == "="
    return Declared(name, of_type, (piece[0], i), (i + 1, end) if equals else None, i == end or equals)


def volatile(tokens: list[Token]) -> set[str]:
    """That word, where it is one of a type, and the names that are declared with it."""
    names = set()
    for at, token in enumerate(tokens):
        if token.text == "volatile" and tokens[at - 1].text not in ASM:
            while at + 2 < len(tokens) and tokens[at + 1].text not in (*BEHIND_A_NAME, ")"):
                at += 1
            names |= {"volatile", tokens[at].text}
    return names - SCALAR - {"*", "&", ">"}


def names_one(tokens: list[Token], first: int, last: int, names: set[str]) -> bool:
    """Whether tokens `first` to `last` name one of what `volatile` has found."""
    places = range(first, last) if names else ()
    return any(tokens[i].text in names and tokens[i - 1].text not in ASM for i in places)


def counts(tokens: list[Token], first: int) -> bool:
    """Whether the loop at token `first` has a condition of its own, which a body that waits does not decide."""
    return tokens[first].text == "for" and [t.text for t in tokens[first + 2:first + 4]] != [";", ";"]


def behind(tokens: list[Token], i: int, ways: tuple[str, ...] = (".", "->", "[")) -> int:
    """The token behind the name at token i and what `ways` lead to from it: name[...][...].x"""
    i += 1
    while tokens[i].text in ways:
        i = match_forward(tokens, i) + 1 if tokens[i].text == "[" else i + 2
    return i


def changed(tokens: list[Token], i: int, end: int) -> bool:
    """Whether what begins with the name at token i and stops before `end` is assigned to or counted."""
    shifted = [t.text for t in tokens[end:end + 2]] == [">", ">="]
    return tokens[i - 1].text in ("++", "--") or tokens[end].text in CHANGES or shifted


def assigned(tokens: list[Token], i: int) -> bool:
    """Whether the variable at token i, or a member of it, is changed there, or has its address taken."""
    before = tokens[i - 2]
    of_cast = before.text == ")" and tokens[i - 3].text == "*"
    no_value = before.kind == "symbol" and before.text not in (")", "]")
    if tokens[i - 1].text == "&" and (of_cast or no_value):
        return True
    return changed(tokens, i, behind(tokens, i, (".", "[") if tokens[i + 1].text == "." else ()))
