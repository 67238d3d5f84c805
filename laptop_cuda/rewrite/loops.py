"""Loops in a kernel: a step for one that may wait, an announced `return`, and a barrier that is passed by."""
import re

from ..text.statements import CHANGES, counts, names_one, volatile
from ..text.tokens import match_forward
from .passes import Edits, Part

LEFT_EARLY, PASSED_BY = " laptop::left_early()", " else laptop::passed_by();"
HARMLESS = re.compile(r"while|for|if|volatile|__nanosleep|__threadfence\w*|__sync\w*")


def waiting_loops(part: Part, edits: Edits):
    """Give an empty body its call, a step with a line of its own, and one beside something volatile a word before it."""
    tails, left = set(), set()               # each `while` that ends a `do`; each `return` that is announced
    names = volatile(part.tokens)
    for i in part.all("while", "for", "do"):
        if i in tails:
            continue
        if part.tokens[i].text == "do":
            body = i + 1
            tails.add(_until("while", part, body))
        else:
            body = match_forward(part.tokens, i + 1) + 1
        returns_within(part, edits, body, left)
        words, last = part.words(body, body + 2), _end(part, i, body) if names else body
        if words[:1] == [";"]:
            edits.insert(part.tokens[body].start, "laptop::turn()")
        elif words == ["{", "}"]:
            edits.insert(part.tokens[body + 1].start, "laptop::turn();")
        elif words and names_one(part.tokens, i, body if counts(part.tokens, i) else last, names):
            looks = str(_only_looks(part, i, last)).lower()
            edits.insert(part.tokens[body].start, f"LAPTOP_MAY_WAIT({looks}) ", -1)


def _only_looks(part: Part, first: int, last: int) -> bool:
    """Whether these tokens change nothing that the loop could come to an end by."""
    return not any(part.tokens[i].text in CHANGES or part.tokens[i].text == "(" and part.tokens[i - 1].kind == "name"
                   and not HARMLESS.fullmatch(part.tokens[i - 1].text) for i in range(first, last))


def _end(part: Part, first: int, body: int) -> int:
    """The last token of the loop that begins at `first`."""
    at = _until("while", part, body) if part.tokens[first].text == "do" else body
    return match_forward(part.tokens, at) if part.words(at, at + 1) == ["{"] else _until(";", part, at)


def _until(text: str, part: Part, at: int) -> int:
    """The next such token, outside brackets."""
    while at < len(part.tokens) - 1 and part.tokens[at].text != text:
        at = match_forward(part.tokens, at) + 1 if part.tokens[at].text in ("(", "[", "{") else at + 1
    return at


def returns_within(part: Part, edits: Edits, body: int, left: set[int]):
    """Announce a `return` in a kernel's loop: its thread has not gone past the barriers there."""
    if body >= len(part.tokens) or part.tokens[body].text != "{" or not part.file:
        return
    owner = part.file.owner[body]
    if not owner or "__global__" not in owner.qualifiers:
        return
    for i in range(body, match_forward(part.tokens, body)):
        if part.words(i, i + 2) == ["return", ";"] and i not in left:
            left.add(i)
            edits.insert(part.tokens[i].end, LEFT_EARLY)
        if part.tokens[i].text == "if" and i not in left:
            left.add(i)
            passes_by(part, edits, i)


def passes_by(part: Part, edits: Edits, at: int):
    """An `if` with a barrier and without an `else`: who does not go in says so."""
    first = match_forward(part.tokens, at + 1 + (part.tokens[at + 1].text == "constexpr")) + 1
    word = part.tokens[first].text
    last = match_forward(part.tokens, first + (word != "{")) + (word != "{")         # "}", or ";" of a barrier alone
    inside = part.tokens[at:last + 2]
    meets = any(t.text.startswith("__syncthreads") for t in inside[:-1])
    if ((meets and word == "{" or word.startswith("__syncthreads")) and inside[-1].text != "else"
            and all(t.kind != "directive" for t in inside)):
        edits.insert(part.tokens[last].end, PASSED_BY)
