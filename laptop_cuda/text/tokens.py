"""CUDA C++ text as tokens: comments, strings, preprocessor lines known, brackets matched. An operator of two or
three signs is one token, unless it begins with ">>", which may close two template lists."""
import re
from dataclasses import dataclass

TOKEN = re.compile(
    r"""(?P<space>(?:\s|\\\r?\n)+)
      | (?P<comment>//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z))
      | (?P<string>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"
                  |(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*"
                  |(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')
      | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
      | (?P<name>[A-Za-z_$][\w$]*)
      | (?P<symbol><<[ \t]*<|<<=?|->|::|&&|\|\||\.\.\.|\+\+|--|[-+*/%&|^=!<>]=|.)""",
    re.VERBOSE | re.DOTALL)
DIRECTIVE = re.compile(r"#(?:\\\r?\n|/\*.*?\*/|//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"|[^\n])*", re.DOTALL)
CLOSING = {")": "(", "]": "[", "}": "{"}
OPENING = set(CLOSING.values())
# a name before "(" that is not the name of a function
SPECIFIERS = {"__launch_bounds__", "__align__", "alignas", "__attribute__", "decltype", "noexcept",
              "__cluster_dims__", "__declspec", "throw", "requires", "__maxnreg__", "__block_size__"}


@dataclass
class Token:
    kind: str       # name, number, string, symbol, or directive (a whole preprocessor line)
    text: str
    start: int
    end: int


def scan(text: str, start: int = 0, end: int | None = None) -> list[Token]:
    """Tokens without spaces and comments; a preprocessor line, continued or not, is one token."""
    tokens, position, end = [], start, len(text) if end is None else end
    line_start = True
    while position < end:
        if text[position] == "#" and line_start:
            match = DIRECTIVE.match(text, position, end)
            tokens.append(Token("directive", match.group(), position, match.end()))
        else:
            match = TOKEN.match(text, position, end)
            if match.lastgroup in ("space", "comment"):
                line_start = line_start or "\n" in match.group()
            else:
                text_of = match.group()
                if match.lastgroup == "symbol" and text_of.startswith("<<") and text_of[2:].endswith("<"):
                    text_of = "<<<"              # some editors write << <grid, block >> >
                tokens.append(Token(match.lastgroup, text_of, position, match.end()))
                line_start = False
        position = match.end()
    return tokens


def match_forward(tokens: list[Token], index: int) -> int:
    """The bracket that closes the one at `index`; the last token if none does."""
    return _matching(tokens, range(index, len(tokens)), OPENING, CLOSING, len(tokens) - 1)


def match_backward(tokens: list[Token], index: int) -> int:
    return _matching(tokens, range(index, -1, -1), CLOSING, OPENING, 0)


def _matching(tokens: list[Token], places: range, enters, leaves, otherwise: int) -> int:
    depth = 0
    for i in places:
        if tokens[i].kind == "symbol":
            depth += (tokens[i].text in enters) - (tokens[i].text in leaves)
            if depth == 0:
                return i
    return otherwise


def _angle(tokens: list[Token], index: int, step: int, own: str, other: str, enters, leaves, skip):
    depth, i = 0, index
    while 0 <= i < len(tokens):
        text = tokens[i].text if tokens[i].kind == "symbol" else ""
        if text in enters:
            i = skip(tokens, i)
        elif text == own:
            depth += 1
        elif text == other:
            depth -= 1
            if depth == 0:
                return i
        elif text == ";" or text in leaves:
            return None
        i += step
    return None


def match_angle(tokens: list[Token], index: int) -> int | None:
    """The ">" of the template argument list that opens at `index`; None if this "<" means less."""
    return _angle(tokens, index, 1, "<", ">", OPENING, CLOSING, match_forward)


def match_angle_backward(tokens: list[Token], index: int) -> int | None:
    return _angle(tokens, index, -1, ">", "<", CLOSING, OPENING, match_backward)


def split_commas(tokens: list[Token], first: int, last: int) -> list[tuple[int, int]]:
    """The comma-separated pieces of tokens[first:last], as (first, last) with last excluded."""
    pieces, begin, i = [], first, first
    while i < last:
        text = tokens[i].text if tokens[i].kind == "symbol" else ""
        if text in ("(", "[", "{"):
            i = match_forward(tokens, i)
        elif text == "<" and i > first and tokens[i - 1].kind == "name":
            close = match_angle(tokens, i)
            i = close if close is not None and close < last else i
        elif text == ",":
            pieces.append((begin, i))
            begin = i + 1
        i += 1
    if begin < last:
        pieces.append((begin, last))
    return pieces


def split_text(text: str, opening: str = "([{", closing: str = ")]}") -> list[str]:
    """The parts of a text between the commas that are in no bracket."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in opening) - (letter in closing)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]
