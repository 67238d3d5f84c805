"""Inline PTX becomes calls; the operands of an asm statement are found here, its instructions in ptx/."""
import re

from .. import ptx
from ..text.statements import ASM
from ..text.tokens import match_forward
from .passes import Edits, Part


def assembly(part: Part, edits: Edits):
    """Inline PTX becomes calls (ptx/). Assembly of the host's processor stays."""
    for i in part.all(*ASM):
        near = range(i, min(i + 4, len(part.tokens)))
        opening = next((n for n in near if part.tokens[n].text == "("), None)
        if opening is None or part.file and part.file.namespace[i] is not None:
            continue                     # outside functions it speaks to the host's assembler
        closing = match_forward(part.tokens, opening)
        made = ptx.statement(*asm_parts(part, opening, closing))
        owner = part.file.owner[i] if part.file else None
        if "unknown(" in made and owner and not owner.qualifiers and not owner.member:
            continue
        lines = part.piece(i, closing).count("\n")
        edits.replace(part.tokens[i], part.tokens[closing], made + ("\n" if part.file else "\\\n") * lines)


def asm_parts(part: Part, opening: int, closing: int) -> tuple[str, list[ptx.Operand], list[ptx.Operand]]:
    """The text of an asm statement, its outputs and its inputs."""
    sections, i = [[]], opening + 1
    while i < closing:
        text = part.tokens[i].text
        if part.tokens[i].kind == "symbol" and text in (":", "::"):
            sections += [[] for _ in text]
        else:
            last = match_forward(part.tokens, i) if text in ("(", "[") else i
            sections[-1] += range(i, last + 1)
            i = last
        i += 1
    strings = [part.tokens[n] for n in sections[0]]
    template = "".join(ptx.unquoted(t.text) if t.kind == "string" else f" {t.text} " for t in strings)
    return template, *(asm_operands(part, section) for section in (sections + [[], []])[1:3])


def asm_operands(part: Part, section: list[int]) -> list[ptx.Operand]:
    found, tokens = [], part.tokens
    for n, i in enumerate(section):
        if tokens[i].kind == "string" and n + 1 < len(section) and tokens[i + 1].text == "(":
            last = match_forward(tokens, i + 1)
            named = n >= 3 and tokens[i - 1].text == "]" and tokens[i - 3].text == "["
            text = re.sub(r"\\?\s*\n", " ", part.piece(i + 2, last - 1))
            found.append(ptx.Operand(tokens[i - 2].text if named else "", ptx.unquoted(tokens[i].text), text))
    return found
