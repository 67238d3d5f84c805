"""Inline PTX becomes calls; the operands of an asm statement are found here, its instructions in ptx/."""
from __future__ import annotations

import re

from .. import ptx
from ..text.tokens import match_forward
from .passes import Pass


class Assembly(Pass):
    def assembly(self, index: int):
        """Inline PTX becomes calls (ptx/). Assembly of the host's processor stays."""
        near = range(index, min(index + 4, len(self.tokens)))
        opening = next((i for i in near if self.tokens[i].text == "("), None)
        if opening is None or self.file and self.file.namespace[index] is not None:
            return                       # outside functions it speaks to the host's assembler
        closing = match_forward(self.tokens, opening)
        template, outputs, inputs = self.asm_parts(opening, closing)
        made = ptx.statement(template, outputs, inputs)
        owner = self.file.owner[index] if self.file else None
        if "unknown(" in made and owner and not owner.qualifiers and not owner.member:
            return
        start, end = self.tokens[index].start, self.tokens[closing].end
        lines = self.text.count("\n", start, end)
        self.edits.replace(start, end, made + ("\n" if self.file else "\\\n") * lines)

    def asm_parts(self, opening: int, closing: int) -> tuple[str, list[ptx.Operand], list[ptx.Operand]]:
        """The text of an asm statement, its outputs and its inputs."""
        sections, i = [[]], opening + 1
        while i < closing:
            text = self.tokens[i].text
            if self.tokens[i].kind == "symbol" and text in (":", "::"):
                sections += [[] for _ in text]
            else:
                last = match_forward(self.tokens, i) if text in ("(", "[") else i
                sections[-1] += range(i, last + 1)
                i = last
            i += 1
        strings = [self.tokens[n] for n in sections[0]]
        template = "".join(ptx.unquoted(t.text) if t.kind == "string" else f" {t.text} " for t in strings)
        return template, *(self.asm_operands(section) for section in (sections + [[], []])[1:3])

    def asm_operands(self, section: list[int]) -> list[ptx.Operand]:
        found = []
        for n, i in enumerate(section):
            if self.tokens[i].kind == "string" and n + 1 < len(section) and self.tokens[i + 1].text == "(":
                last = match_forward(self.tokens, i + 1)
                named = n >= 3 and self.tokens[i - 1].text == "]" and self.tokens[i - 3].text == "["
                text = re.sub(r"\\?\s*\n", " ", self.piece(i + 2, last - 1))
                name = self.tokens[i - 2].text if named else ""
                found.append(ptx.Operand(name, ptx.unquoted(self.tokens[i].text), text))
        return found
