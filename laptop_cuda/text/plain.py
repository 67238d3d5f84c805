"""C++ without comments, read as the compiler reads it, and what no two readers need read alike.

A comment may begin in no string, a string in no comment, and a line may go on behind a backslash: whoever
reads one of them otherwise than the compiler does can be shown other code than is compiled. A judge therefore
compiles what `plain_text` gives, in which nothing is left to read otherwise, and refuses the rest."""
import functools
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


@functools.lru_cache(maxsize=256)
def plain_text(source: str) -> str:
    """The source with spaces for comments and lines joined that end in a backslash; numbers of lines stay."""
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
    text, before = _joined(source), None
    for piece in PIECE.finditer(text):
        if told := _ambiguous(piece, before):
            return f"{told} in line {text.count(chr(10), 0, piece.start()) + 1} may not be used here."
        before = piece.lastgroup
    return None


def _ambiguous(piece: re.Match, before: str | None) -> str:
    kind, text = piece.lastgroup, piece.group()
    if kind == "raw":
        return 'The raw string `R"(...)"`'
    if kind in ("quoted", "open") and text[0] == "'" and before == "number":
        return "The `'` that follows a number"
    return "The `\\` outside of a text" if kind is None and text == "\\" else ""
