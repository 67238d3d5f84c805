"""`kernel<<<grid, block>>>(x)` becomes a call, and cudaLaunchKernel learns the kernel's type."""
from __future__ import annotations

import re

from ..text.outline import Outline
from ..text.tokens import match_angle, match_angle_backward, match_backward, match_forward, split_commas
from .passes import Pass


BY_FUNCTION = ("cudaLaunchKernel", "cudaLaunchCooperativeKernel")
MACRO = re.compile(r"#\s*define\s+(\w+)")


def launches_in_device_code(files: list[Outline]) -> bool:
    """Whether a kernel may launch another: by its own text, a device function's, or that of a macro there."""
    macros = {found[1] for file in files for t in file.tokens if t.kind == "directive" and "<<<" in t.text
              and (found := MACRO.match(t.text))}
    return any(token.text == "<<<" or token.text in macros for file in files
               for token, owner in zip(file.tokens, file.owner) if owner and owner.on_device)


class Launches(Pass):
    def launch(self, opening: int):
        begin = self.callee_start(opening)
        end = self.configuration_end(opening)
        if begin is None or end is None:
            return
        after = end + 3                       # the "(" of the arguments
        if after >= len(self.tokens) or self.tokens[after].text != "(":
            return
        first, last = self.tokens[begin].start, self.tokens[opening - 1].end
        callee = re.sub(r"\s+", " ", self.text[first:last].replace("\\\n", " "))
        quoted = callee.replace("\\", "\\\\").replace('"', '\\"')
        base = callee.split("<")[0].split("::")[-1].strip()
        function, by = ("host_launch_by_reference", "&") if base in self.by_reference else ("host_launch", "")
        # what a child's callee needs is copied: its parent's thread ends before it runs
        owner = self.file.owner[opening] if self.file else None
        captured = "=" if owner and owner.on_device else "&"
        head = f'laptop::{function}("{quoted}", __LINE__, [{captured}](auto{by}... laptop_args) {{ '
        self.edits.insert(first, head)
        self.edits.replace(self.tokens[opening].start, self.tokens[opening].end,
                           "(laptop_args...); }, laptop::launch_config(")
        empty = match_forward(self.tokens, after) == after + 1
        self.edits.replace(self.tokens[end].start, self.tokens[end + 2].end, ")")
        self.edits.replace(self.tokens[after].start, self.tokens[after].end, "" if empty else ", ")
        close = match_forward(self.tokens, after)
        pointers = self.pointers_of(base)
        zeros = {first for n, (first, last) in enumerate(split_commas(self.tokens, after + 1, close))
                 if n in pointers and last == first + 1 and self.tokens[first].text == "0"}
        for i in range(after, close):
            if self.tokens[i].text == "NULL" or i in zeros:      # an integer as an argument of a template
                self.edits.replace(self.tokens[i].start, self.tokens[i].end, "nullptr")

    def pointers_of(self, kernel: str) -> set[int]:
        """Which parameters of a kernel are pointers in each of its definitions."""
        found = []
        for file in (self.file.together or [self.file]) if self.file else ():
            for f in file.functions:
                if f.name == kernel and "__global__" in f.qualifiers:
                    pieces = split_commas(file.tokens, f.parameters[0] + 1, f.parameters[1])
                    found.append({n for n, (first, last) in enumerate(pieces)
                                  if "*" in file.source(first, last - 1)})
        return set.intersection(*found) if found else set()

    def callee_start(self, opening: int) -> int | None:
        """The first token of the expression before `<<<`: k, ns::k<T>, object.k, table[i], (choose(n))."""
        i = opening - 1
        if i < 0:
            return None
        while True:
            text = self.tokens[i].text
            if text == ">":
                i = match_angle_backward(self.tokens, i)
                if not i:
                    return None
                i -= 1
                continue
            if text in (")", "]"):
                i = match_backward(self.tokens, i)
                before = self.tokens[i - 1] if i else None
                if before and (before.kind == "name" and before.text != "return"
                               or before.text in ("]", ")")):
                    i -= 1
                    continue
            elif self.tokens[i].kind != "name":
                return None
            if i and self.tokens[i - 1].text == "template":
                i -= 1
            if i > 1 and self.tokens[i - 1].text in (".", "->", "::"):
                if self.tokens[i - 2].kind == "name" or self.tokens[i - 2].text in (">", ")", "]"):
                    i -= 2
                    continue
                i -= 1
            elif i == 1 and self.tokens[0].text == "::":
                i = 0
            return i

    def configuration_end(self, opening: int) -> int | None:
        """The first of the three ">" that close a launch configuration."""
        spaced = self.tokens[opening].end - self.tokens[opening].start > 3
        i = opening + 1
        while i + 2 < len(self.tokens):
            text = self.tokens[i].text
            if text in ("(", "[", "{"):
                i = match_forward(self.tokens, i)
            elif text == ";":
                return None
            elif text == ">" and [t.text for t in self.tokens[i : i + 4]] in ([">", ">", ">"],
                                                                              [">", ">", ">", "("]):
                if spaced or self.tokens[i + 2].end - self.tokens[i].start == 3:
                    return i
            i += 1
        return None

    def launch_by_function(self, index: int):
        """Give cudaLaunchKernel(f, ...) the kernel's name, and its type: a cast to void* would hide it."""
        opening = index + 1
        if opening + 1 >= len(self.tokens) or self.tokens[opening].text != "(":
            return
        first = opening + 1
        if self.tokens[first].text == "(":
            close = match_forward(self.tokens, first)
            if {t.text for t in self.tokens[first + 1:close]} <= {"const", "void", "*"}:
                self.edits.replace(self.tokens[first].start, self.tokens[close].end, "")
                first = close + 1
        pieces = split_commas(self.tokens, first, match_forward(self.tokens, opening))
        name = self.piece(first, pieces[0][1] - 1) if pieces else ""
        self.edits.replace(self.tokens[index].start, self.tokens[index].end, "laptop::launch_kernel")
        self.edits.insert(self.tokens[opening].end, f'"{name.lstrip("&")}", ', -1)
