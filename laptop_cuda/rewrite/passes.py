"""What the parts of the rewriter share: the tokens of a file, edits of its text, and how to refuse a
statement."""
from __future__ import annotations

from ..text.outline import Function, Outline
from ..text.tokens import Token, match_backward, match_forward

STATEMENT_END = {";", "{", "}"}
ALIGNMENT = {"alignas", "__align__", "__attribute__"}


class Edits:
    """Replacements in a text, by position; none overlaps another."""

    def __init__(self):
        self.list: list[tuple[int, int, int, str]] = []

    def insert(self, position: int, text: str, order: int = 0):
        self.list.append((position, position, order, text))

    def replace(self, start: int, end: int, text: str):
        self.list.append((start, end, 0, text))

    def apply(self, text: str, first: int = 0, last: int | None = None) -> str:
        """The edited text, or that of its part from `first` to `last`."""
        last = len(text) if last is None else last
        pieces, position = [], first
        for start, end, _, new in sorted(self.list, key=lambda e: (e[0], e[1], e[2])):
            if first <= start and end <= last:
                pieces += [text[position:start], new]
                position = end
        return "".join(pieces) + text[position:last]

    def within(self, first: int, last: int) -> bool:
        """Whether something between these positions is edited."""
        return any(start < last and end > first for start, end, _, _ in self.list)


class Pass:
    """The tokens of a file, or of the body of one macro (`file` is None then)."""

    def __init__(self, text: str, tokens: list[Token], edits: Edits, file: Outline | None, kernels: set[str],
                 host_only: set[str] = frozenset()):
        self.text, self.tokens, self.edits, self.file = text, tokens, edits, file
        self.kernels, self.host_only = kernels, host_only
        self.by_reference = {f.name for f in (file.functions if file else ()) if "__global__" in f.qualifiers
                             and "&" in [t.text for t in tokens[f.parameters[0]:f.parameters[1]]]}
        self.rejected: set[int] = set()
        self.tails: set[int] = set()         # each `while` that ends a `do`
        self.returns: set[int] = set()       # each `return` in a loop of a kernel

    def device_function(self, index: int) -> Function | None:
        """The function around a token, if it runs on the device only."""
        owner = self.file.owner[index] if self.file else None
        return owner if owner and owner.on_device and "__host__" not in owner.qualifiers else None

    def statement(self, index: int) -> tuple[int, int]:
        """The first token of the declaration around `index`, and its ";" (or one past the end of a macro)."""
        first = index
        while first > 0:
            before = self.tokens[first - 1]
            if before.text == ")":
                opening = match_backward(self.tokens, first - 1)
                if opening == 0 or self.tokens[opening - 1].text not in ALIGNMENT | {"decltype"}:
                    break
                first = opening - 1
                continue
            if before.kind == "directive" or before.text in STATEMENT_END | {":", "\\"}:
                break
            first -= 1
        last = index
        while last < len(self.tokens) and self.tokens[last].text != ";":
            last = match_forward(self.tokens, last) if self.tokens[last].text in ("(", "[", "{") else last
            last += 1
        return first, last

    def reject(self, index: int, sentence: str):
        """A static_assert before the statement (or the function head) that holds token `index`."""
        parens = 0
        first = index
        while first > 0:
            before = self.tokens[first - 1]
            if before.text in (")", "]"):
                first = match_backward(self.tokens, first - 1)
                continue
            if before.text in ("(", "["):
                parens += 1
            elif (before.kind == "directive" or before.text in STATEMENT_END
                  and not self.in_parentheses(first - 1)):
                break
            first -= 1
        if first in self.rejected:
            return
        self.rejected.add(first)
        message = sentence.replace('"', "'")
        self.edits.insert(self.tokens[first].start, f'static_assert(false, "laptop: {message}"); ', -2)

    def in_parentheses(self, index: int) -> bool:
        """Whether the ";" at `index` is one of a for(;;)."""
        if self.tokens[index].text != ";":
            return False
        i = index - 1
        while i >= 0 and self.tokens[i].text not in ("{", "}") and index - i < 60:
            if self.tokens[i].text in (")", "]"):
                i = match_backward(self.tokens, i)
            elif self.tokens[i].text == "(":
                return True
            i -= 1
        return False

    def piece(self, first: int, last: int) -> str:
        if first > last or first >= len(self.tokens):
            return ""
        return self.text[self.tokens[first].start:self.tokens[min(last, len(self.tokens) - 1)].end]

    def newlines(self, index: int) -> str:
        return "\n" * self.tokens[index].text.count("\n")
