"""C++ without comments, read as the compiler reads it, and what no two readers need read alike.

A comment may begin in no string, a string in no comment, and a line may go on behind a backslash: whoever
reads one of them otherwise than the compiler does can be shown other code than is compiled. A judge therefore
compiles what `plain_text` gives, in which nothing is left to read otherwise, and refuses the rest.
"""
import re

PIECE = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))
      | (?P<raw>(?:u8|[uUL])?R")
      | (?P<quoted>(?:u8|[uUL])?(?:"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])+'))
      | (?P<open>["'][^\n]*)
      | (?P<number>\.?\d[\w.]*(?:'\w[\w.]*)*)
      | (?P<word>[\w$]+)
      | .""", re.VERBOSE | re.DOTALL)
SPLICE = re.compile(r"\\[ \t]*\r?\n")
CONTROL = re.compile(r"[^\S \t\r\n]|\r(?!\n)|[\0-\x08\x0e-\x1f\x7f]")


def plain_text(source: str) -> str:
    """The source with spaces for its comments and with the lines joined that end in a backslash; every line
    keeps its number."""
    return "".join(re.sub(r"[^\n]", " ", piece.group()) if piece.lastgroup == "comment" else piece.group()
                   for piece in PIECE.finditer(_joined(source)))


def _joined(source: str) -> str:
    """Each line whole, and as many empty ones behind it as it was broken."""
    lines = SPLICE.sub("\0", source).replace("\r\n", "\n").split("\n")
    return "\n".join(line.replace("\0", "") + "\n" * line.count("\0") for line in lines)


def unreadable(source: str) -> str | None:
    """A sentence about the first thing that compilers read in different ways, or that no kernel needs."""
    if CONTROL.search(source):
        return "A control character may not be used here."
    text, before = _joined(source), ""
    for piece in PIECE.finditer(text):
        told = _ambiguous(piece, before)
        if told:
            return f"{told} in line {text.count(chr(10), 0, piece.start()) + 1} may not be used here."
        before = piece.group()[-1]
    return None


def _ambiguous(piece: re.Match, before: str) -> str:
    kind, text = piece.lastgroup, piece.group()
    if kind == "raw":
        return 'The raw string `R"(...)"`'
    if kind == "quoted" and text[0] == "'" and re.fullmatch(r"[\w$.]|[^\0-\x7f]", before):
        return "The `'` that follows a name or a number"
    if kind == "open":
        return f"The quote {text[0]} without an end"
    return "The `\\` outside of a text" if kind is None and text == "\\" else ""
