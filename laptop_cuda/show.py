"""A kernel shown from its file, coloured, so that no notebook holds a copy of it.

The colours are JupyterLab's own editor colours and follow its theme; the HTML depends on the text alone."""
import html
import re
import sys
from pathlib import Path

from .text.outline import Function, Outline, outline
from .text.tokens import DIRECTIVE, TOKEN

KEYWORDS = set(
    """alignas alignof auto break case const constexpr continue default do else enum extern for goto if inline
    namespace operator return sizeof static struct switch template typedef typename union using volatile
    while""".split())
TYPES = set(
    """bool char double float half int long short signed size_t unsigned void int8_t uint8_t int16_t uint16_t
    int32_t uint32_t int64_t uint64_t half2 float2 float3 float4 int2 int4 uint2 uint4 dim3 __nv_bfloat16
    __nv_bfloat162""".split())
CUDA = {"threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize"}
COLOURS = {"keyword": ("keyword", "#008000"), "type": ("def", "#b00040"), "cuda": ("builtin", "#0055aa"),
           "comment": ("comment", "#408080"), "string": ("string", "#ba2121"),
           "number": ("number", "#666666"), "directive": ("meta", "#aa22ff")}


class Code:
    """Lines of a file, with their numbers: HTML in a notebook, text elsewhere."""

    def __init__(self, text: str, first_line: int, title: str):
        self.text, self.first_line, self.title = text, first_line, title

    def __repr__(self):
        lines = self.text.split("\n")
        return "\n".join([self.title,
                          *(f"{n:4}  {line}".rstrip() for n, line in enumerate(lines, self.first_line))])

    def _repr_html_(self):
        rows = []
        for number, line in enumerate(_coloured(self.text).split("\n"), self.first_line):
            rows.append(f'<span style="opacity:.5;user-select:none">{number:4}  </span>{line}')
        style = "white-space:pre;overflow-x:auto;line-height:1.35;font-size:var(--jp-code-font-size,13px)"
        return (f'<div><code>{html.escape(self.title)}</code><pre style="{style}">' + "\n".join(rows)
                + "</pre></div>")


def show(file: str | Path, *names: str) -> None:
    """Displays kernels (or functions) of a .cu file with the comment above each; no name: the whole file."""
    path = Path(file)
    source = outline(path.read_text())
    pieces = ([_piece(source, path.name, name) for name in names]
              or [Code(source.text.rstrip("\n"), 1, path.name)])
    for piece in pieces:
        if "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None:
            sys.modules["IPython"].display.display(piece)
        else:
            print(piece)


def _piece(source: Outline, file: str, name: str) -> Code:
    found = [f for f in source.functions if f.name == name or f"{f.namespace}::{f.name}" == name]
    if not found:
        there = ", ".join(dict.fromkeys(f.name for f in source.functions if f.qualifiers))
        raise ValueError(f"{file} has no function `{name}`; it has: {there}")
    start, end = _extent(source, found[0])
    text = source.text[start:end]
    line = source.text.count("\n", 0, start) + 1
    return Code(text, line, f"{file}, line {line}")


def _extent(source: Outline, function: Function) -> tuple[int, int]:
    """From the comment right above a function to its last brace, in whole lines."""
    text = source.text
    start = text.rfind("\n", 0, source.tokens[function.first].start) + 1
    end = text.find("\n", source.tokens[function.body[1]].end)
    while start > 0:
        above = text.rfind("\n", 0, start - 1) + 1
        line = text[above:start].strip()
        if line.startswith("//"):
            start = above
        elif line.endswith("*/") and "/*" in text[:start]:
            start = text.rfind("\n", 0, text.rfind("/*", 0, start)) + 1
        else:
            break
    return start, end if end >= 0 else len(text)


def _coloured(text: str) -> str:
    pieces, position, line_start = [], 0, True
    while position < len(text):
        directive = line_start and text[position] == "#"
        match = (DIRECTIVE if directive else TOKEN).match(text, position)
        word, kind = match.group(), match.lastgroup
        if directive:
            kind = "directive"
        elif kind == "name":
            kind = ("keyword" if word in KEYWORDS else "type" if word in TYPES else
                    "cuda" if word in CUDA or re.fullmatch(r"__\w+__|__sync\w+|__shfl\w+", word) else "")
        line_start = "\n" in word if kind in ("space", "comment") else False
        if kind in COLOURS:
            variable, colour = COLOURS[kind]
            style = f'<span style="color:var(--jp-mirror-editor-{variable}-color,{colour})">'
            word = "\n".join(f"{style}{html.escape(part)}</span>" if part else ""
                             for part in word.split("\n"))
        else:
            word = html.escape(word)
        pieces.append(word)
        position = match.end()
    return "".join(pieces)
