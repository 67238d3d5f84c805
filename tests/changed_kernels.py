"""Small changes of a kernel file, all built as one library: each is a branch that a number turns on."""
import re
import shutil
from os.path import commonprefix
from pathlib import Path

import pytest

from course_lib import cuda

TOKEN = re.compile(r'//[^\n]*|\s+|("[^"]*"|\w[\w.]*|->|::|&&|\|\||\+\+|--|[-+*/%&|^<>=!]=|.)')
OPEN, CLOSE = "([{", ")]}"
BEFORE = {*OPEN, *",;}?:", "return", "=", "+=", "-=", "*="}                  # what an expression begins after
AFTER = {*CLOSE, *",;?:"}
# What a proof for every size claims where the sanitizer names a fault.
CLAIMS = {"out of bounds": {"inside"}, "misaligned": {"inside"}, "race": {"stores", "races"},
          "barrier divergence": {"barriers"}, "deadlock": {"barriers"}}
# Without hooks: a check of the number is no access of the kernel's.
SWITCH = ("__device__ int chosen;\n__attribute__((no_sanitize(\"thread\"))) static __device__ bool"
          " changed(int n) { return n == chosen; }\n#line 1\n")


def changed_kernels(folder: Path, word: str, changes: list[tuple[str, str]], *beside: str) -> cuda.Module:
    """kernels/<word>.cu with all changes, each a piece of text and what it becomes, in that file or in those
    beside it. `module.globals["chosen"] = 1` turns on the first; 0 is the kernel as it is.

    Blanks inside a piece match any blanks; those before it are its indentation. A piece ends where an operand does
    that stays one in parentheses."""
    kernels = folder / "kernels"
    shutil.copytree(cuda.KERNELS, kernels)
    found = set()
    for path in (kernels / f"{word}.cu", *(kernels / name for name in beside)):
        text, places = path.read_text(), {}             # (start, end, whether statements): {number: new text}
        for number, (before, after) in enumerate(changes, 1):
            indent = before[:len(before) - len(before.lstrip())]
            piece = (f"(?m)^{indent}" if indent else "") + r"\s+".join(map(re.escape, before.split()))
            for match in re.finditer(piece, text):
                start, end, statements, new = core(match[0], after)
                places.setdefault((match.start() + start, match.start() + end, statements), {})[number] = new
                found.add(number)
        path.write_text((SWITCH if path.suffix == ".cu" else "") + switched(text, places))
    missing = [change for n, change in enumerate(changes, 1) if n not in found]
    assert not missing, missing
    return cuda.load(kernels / f"{word}.cu")


def proved(kernel, wanted: set[str], **asked) -> set[str]:
    """Those of the wanted claims that hold for every size; one that is refuted once is asked no more."""
    from laptop_cuda.proofs.claims import Claims
    from laptop_cuda.proofs.solve import Solver

    def refute(self, claim, *more, once=Claims.refute, **named):
        if claim in {*wanted, "overflow", "barriers"} and self.found[claim].verdict == "proved":
            once(self, claim, *more, **named)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Claims, "refute", refute)
        patch.setattr(Solver, "smallest", lambda self, *_: ({}, self.solver.model(), False))
        return wanted & {f.claim for f in cuda.prove(kernel, **asked).findings if f.verdict == "proved"}


def core(before: str, after: str) -> tuple[int, int, bool, str]:
    """The part of a piece that becomes a branch: statements that come or go, else the argument or condition around
    what differs, else all of it. Its place, whether it is statements, and what it becomes."""
    was, now = ([m.span(1) for m in TOKEN.finditer(text) if m[1]] for text in (before, after))
    old, new = [before[a:b] for a, b in was], [after[a:b] for a, b in now]
    for ends_first in (True, False):
        a, b = common(old, new, ends_first)
        parts = old[a:len(old) - b], new[a:len(new) - b]
        if statements := all(not part or part[-1] in ";}" and whole(part) for part in parts):
            break
    else:
        a -= reach(old[:a][::-1], BEFORE, CLOSE, OPEN)
        b -= reach(old[len(old) - b:], AFTER, OPEN, CLOSE)
        parts = old[a:len(old) - b], new[a:len(new) - b]
        if not all(part and part[0] != "if" and whole(part) and reach(part, {","}, OPEN, CLOSE) == len(part)
                   for part in parts):
            a, b, statements = 0, 0, old[-1] in ";}"
    place, becomes = was[a:len(was) - b], now[a:len(now) - b]
    text = re.sub(r"//[^\n]*|\n", " ", after[becomes[0][0]:becomes[-1][1]]) if becomes else ""
    start = place[0][0] if place else was[a - 1][1] if a else 0
    return start, place[-1][1] if place else start, statements, text


def common(old: list[str], new: list[str], ends_first: bool) -> tuple[int, int]:
    """How many words are the same at the beginning and at the end."""
    if ends_first:
        return common(old[::-1], new[::-1], False)[::-1]
    begin = len(commonprefix([old, new]))
    return begin, len(commonprefix([old[begin:][::-1], new[begin:][::-1]]))


def whole(words: list[str]) -> bool:
    depths = [sum((w in OPEN) - (w in CLOSE) for w in words[:n + 1]) for n in range(len(words))]
    return min(depths) >= 0 == depths[-1]


def reach(words: list[str], stops: set[str], opens: str, closes: str) -> int:
    """How many of these words go on with an expression."""
    depth = 0
    for n, word in enumerate(words):
        if not depth and word in stops:
            return n
        depth += (word in opens) - (word in closes)
    return len(words)


def switched(text: str, places: dict[tuple[int, int, bool], dict[int, str]]) -> str:
    """From the end on, and what is inside another first."""
    longer = []                                          # (where, by how much)
    for (start, end, statements), news in sorted(places.items(), key=lambda item: (-item[0][0], item[0][1])):
        end += sum(more for at, more in longer if at < end)
        own = text[start:end]
        if statements:
            made = "".join(f"if (changed({n})) {{ {new} }} else " for n, new in news.items()) + f"{{ {own} }}"
        else:
            made = "(" + "".join(f"changed({n}) ? ({new}) : " for n, new in news.items()) + f"({own}))"
        text = text[:start] + made + text[end:]
        longer.append((start, len(made) - len(own)))
    return text
