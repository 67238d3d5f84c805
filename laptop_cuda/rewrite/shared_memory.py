"""`__shared__` declarations become references into the memory of the block."""
from __future__ import annotations

import re

from ..text.outline import Function
from ..text.tokens import match_angle, match_forward, split_commas
from .passes import ALIGNMENT, Pass

DROPPED = {"__shared__", "static", "extern", "inline"}


class SharedArrays(Pass):
    def shared(self, index: int):
        first, last = self.statement(index)
        words = {self.tokens[i].text for i in range(first, last)}
        external, at_top = "extern" in words, self.file is not None and self.file.namespace[index] is not None
        alignments, drop, i = [], set(), first
        while i < last:
            token = self.tokens[i]
            if token.kind == "name" and token.text in DROPPED:
                drop.add(i)
            elif token.kind == "name" and token.text in ALIGNMENT:
                close = match_forward(self.tokens, i + 1)
                alignment = re.search(r"aligned\s*\((.*)\)\s*\)\s*\)", self.piece(i, close), re.DOTALL)
                alignments.append(alignment.group(1) if alignment else self.piece(i + 2, close - 1))
                drop.update(range(i, close + 1))
                i = close
            elif token.text in ("(", "[", "{"):
                i = match_forward(self.tokens, i)
            i += 1
        rest = [i for i in range(first, last) if i not in drop]
        names, fault = self.declared_names(rest)
        if fault:
            self.reject(index, fault)
            return
        for i in drop:
            self.edits.replace(self.tokens[i].start, self.tokens[i].end, self.newlines(i))
        self.edits.insert(self.tokens[first].start, "typedef ", -1)
        new = "" if last < len(self.tokens) else ";"
        place = self.tokens[last].end if last < len(self.tokens) else self.tokens[last - 1].end
        local = ""
        for i in names:
            name = self.tokens[i].text
            self.edits.replace(self.tokens[i].start, self.tokens[i].end, f"laptop_type_{name}")
            array = self.tokens[min(i + 1, len(self.tokens) - 1)].text == "["
            local += self.reference(name, alignments, external, at_top, array)
        if at_top:
            self.inject([self.tokens[i].text for i in names], local, index)
        else:
            self.edits.insert(place, new + local)

    def reference(self, name: str, alignments: list[str], external: bool, at_top: bool, array: bool) -> str:
        kind = f"laptop_type_{name}"
        if external:
            element = f"sizeof((*({kind}*)0)[0])" if array else f"sizeof({kind})"
            return f' auto& {name} = *({kind}*)laptop::dynamic_shared("{name}", {element});'
        align, helpers = f"alignof({kind})", ""
        for n, alignment in enumerate(alignments):
            asked = f"laptop_align_{name}_{n}"
            helpers += f" struct alignas({alignment}) {asked} {{}};"
            align = f"({align} > alignof({asked}) ? {align} : alignof({asked}))"
        line, function = ("0", '""') if at_top else ("__LINE__", "__PRETTY_FUNCTION__")
        return (f'{helpers} auto& {name} = *({kind}*)laptop::shared("{name}", {line}, sizeof({kind}), '
                f"{align}, {function});")

    def inject(self, names: list[str], local: str, index: int):
        """A shared array declared outside all functions is declared again in each function that uses it."""
        for function in self.file.functions:
            if function.body[0] < index:
                continue
            begin, end = function.parameters[0], function.body[1]
            used = {t.text for t in self.tokens[begin:end] if t.kind == "name"}
            again = any(self.tokens[i].text == "__shared__"
                        and names[0] in self.piece(i, self.statement(i)[1]) for i in range(*function.body))
            if used & set(names) - self.parameters(function) and not again:
                self.edits.insert(self.tokens[function.body[0]].end, local)

    def parameters(self, function: Function) -> set[str]:
        """The names of a function's parameters, which hide those outside."""
        begin, end = function.parameters
        ends = ("=", "[", ",", ")")
        return {self.tokens[i].text for i in range(begin + 1, end)
                if self.tokens[i].kind == "name" and self.tokens[i + 1].text in ends}

    def declared_names(self, rest: list[int]) -> tuple[list[int], str | None]:
        """The tokens that name the variables of a declaration, from the tokens of the declaration."""
        tokens = [self.tokens[i] for i in rest]
        names = []
        for begin, end in split_commas(tokens, 0, len(tokens)):
            found, i = None, begin
            while i < end:
                text = tokens[i].text
                if tokens[i].kind == "name":
                    found = i
                elif text == "<" and found is not None:
                    i = match_angle(tokens, i) or i
                elif text == "(" and found is not None and tokens[i + 1].text == "*":
                    found = next(n for n in range(i, end) if tokens[n].kind == "name")
                    break
                elif text == "{" and {"struct", "union", "class"} & {t.text for t in tokens[begin:i]}:
                    i = match_forward(tokens, i)
                elif text == "[":
                    i = match_forward(tokens, i)
                elif text in ("=", "(", "{"):
                    return ([], "a __shared__ variable cannot have an initial value; store to it, then "
                            "synchronise")
                i += 1
            if found is None:
                return [], "this __shared__ declaration is not understood"
            names.append(rest[found])
        return names, None
