"""What the passes of the rewriter share: a file's tokens, edits of its text, and how to refuse a statement.

A pass is a function of a `Part` and of the `Edits` that it adds to; `PASSES` in `rewrite/` lists them."""
from dataclasses import dataclass, field

from ..text.outline import Function, Outline
from ..text.tokens import Token, match_backward, match_forward

STATEMENT_END = {";", "{", "}"}
ALIGNMENT = {"alignas", "__align__", "__attribute__"}


class Edits:
    """Replacements in a text, by position; none overlaps another."""

    def __init__(self):
        self.list: list[tuple[int, int, int, str]] = []
        self.rejected: set[int] = set()      # where a refusal is already

    def insert(self, position: int, text: str, order: int = 0):
        self.list.append((position, position, order, text))

    def replace(self, first: Token, last: Token, text: str):
        """Of the tokens from first to last."""
        self.list.append((first.start, last.end, 0, text))

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


@dataclass
class Part:
    """The tokens of a file, or of the body of one macro (`file` is None then)."""
    text: str
    tokens: list[Token]
    file: Outline | None
    kernels: set[str]
    host_only: set[str] = frozenset()        # functions that a kernel may not call
    places: dict[str, list[int]] = field(default_factory=dict)       # of each name, and of <<<

    def __post_init__(self):
        for i, token in enumerate(self.tokens):
            if token.kind == "name" or token.text == "<<<":
                self.places.setdefault(token.text, []).append(i)

    def all(self, *words: str) -> list[int]:
        """The tokens that are one of these words."""
        return sorted(i for word in words for i in self.places.get(word, ()))

    def words(self, first: int, last: int) -> list[str]:
        return [t.text for t in self.tokens[first:last]]

    def device_function(self, index: int) -> Function | None:
        """The function around a token, if it runs on the device only."""
        owner = self.file.owner[index] if self.file else None
        return owner if owner and owner.on_device and "__host__" not in owner.qualifiers else None

    def in_device_body(self, index: int) -> bool:
        owner = self.device_function(index)
        return owner is not None and owner.body[0] < index < owner.body[1]

    def own(self, name: str) -> bool:
        return any(f.name == name for f in self.file.functions)

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


def reject(part: Part, edits: Edits, index: int, sentence: str):
    """A static_assert before the statement (or the function head) that holds token `index`."""
    first = index
    while first > 0:
        before = part.tokens[first - 1]
        if before.text in (")", "]"):
            first = match_backward(part.tokens, first - 1)
            continue
        if before.kind == "directive" or before.text in STATEMENT_END and not part.in_parentheses(first - 1):
            break
        first -= 1
    place = part.tokens[first].start
    if place not in edits.rejected:
        edits.rejected.add(place)
        message = sentence.replace('"', "'")
        edits.insert(place, f'static_assert(false, "laptop: {message}"); ', -2)
