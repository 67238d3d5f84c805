"""Small changes of a kernel file, all built as one library: each is a branch that a number turns on."""
import re
import shutil
from difflib import SequenceMatcher
from pathlib import Path

from course_lib import cuda

TOKEN = re.compile(r'//[^\n]*|\s+|("[^"]*"|\w[\w.]*|->|::|&&|\|\||\+\+|--|[-+*/%&|^<>=!]=|.)')
PAIRS = {"(": ")", "[": "]", "{": "}"}
ASSIGNS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^="}
BEFORE = {*PAIRS, ",", ";", "}", "return", "else", *ASSIGNS}     # what an expression begins after
CONTROL = ("if", "for", "while", "switch")
# Without hooks: a check of the number is no access of the kernel's.
SWITCH = ("__device__ int chosen;\n__attribute__((no_sanitize(\"thread\"))) static __device__ bool"
          " changed(int n) { return n == chosen; }\n#line 1\n")


def changed_kernels(folder: Path, word: str, changes: list[tuple[str, str]], *beside: str) -> cuda.Module:
    """kernels/<word>.cu with all changes, each a piece of text and what it becomes, in that file or in those
    beside it. `module.globals["chosen"] = 1` turns on the first; 0 is the kernel as it is.

    Blanks inside a piece match any blanks; those before it are its indentation."""
    kernels = folder / "kernels"
    shutil.copytree(cuda.KERNELS, kernels)
    found = set()
    for path in (kernels / f"{word}.cu", *(kernels / name for name in beside)):
        file = _File(path.read_text())
        found |= {n for n, change in enumerate(changes, 1) if file.add(n, *change)}
        path.write_text((SWITCH if path.suffix == ".cu" else "") + file.switched())
    missing = [change for n, change in enumerate(changes, 1) if n not in found]
    assert not missing, missing
    return cuda.load(kernels / f"{word}.cu")


class _File:
    def __init__(self, text: str):
        self.text, self.hunks = text, []                # (number, first token, last token + 1, new text)
        self.found = [m for m in TOKEN.finditer(text) if m[1]]
        self.tokens = [m[1] for m in self.found]
        self.partner, opened = {}, []
        for i, token in enumerate(self.tokens):
            if token in PAIRS:
                opened.append(i)
            elif token in PAIRS.values():
                self.partner[i] = opened.pop()
                self.partner[self.partner[i]] = i

    def add(self, number: int, before: str, after: str) -> bool:
        indent = before[:len(before) - len(before.lstrip())]
        piece = (f"(?m)^{indent}" if indent else "") + r"\s+".join(map(re.escape, before.split()))
        places = [*re.finditer(piece, self.text)]
        for place in places:
            within = [i for i, m in enumerate(self.found)
                      if m.end() > place.start() and m.start() < place.end()]
            first = within[0]                            # the piece may begin and end inside a name
            after_all = (self.text[self.start(first):place.start()] + after
                         + self.text[place.end():self.start(within[-1], end=True)])
            new = [m for m in TOKEN.finditer(after_all) if m[1]]
            old, now = ([m[1] for m in ms] for ms in ((self.found[i] for i in within), new))
            for kind, a, b, c, d in SequenceMatcher(None, old, now, autojunk=False).get_opcodes():
                if kind != "equal":
                    text = after_all[new[c].start():new[d - 1].end()] if d > c else ""
                    self.hunks.append((number, first + a, first + b, text))
        return bool(places)

    def switched(self) -> str:
        """Each place with the text of every change there, in a condition or a branch."""
        places = sorted({self.whole(i, j) for _, i, j, _ in self.hunks}, key=lambda p: (p[0], -p[1]))
        merged = []
        for i, j, statement in places:
            if merged and i < merged[-1][1]:
                merged[-1] = self.whole(merged[-1][0], max(j, merged[-1][1]))
            else:
                merged.append((i, j, statement))
        text = self.text
        for i, j, statement in reversed(merged):
            text = text[:self.start(i)] + self.branches(i, j, statement) + text[self.start(j - 1, end=True):]
        return text

    def start(self, i: int, end: bool = False) -> int:
        return self.found[i].end() if end else self.found[i].start()

    def branches(self, i: int, j: int, statement: bool) -> str:
        within = [h for h in self.hunks if i <= h[1] and h[2] <= j]
        texts = {n: self.with_hunks(i, j, [h for h in within if h[0] == n]) for n, *_ in within}
        own = self.with_hunks(i, j, [])
        if statement:
            tests = (f"if (changed({n})) {{ {new} }} else " for n, new in texts.items())
            return "".join(tests) + f"{{ {own} }}"
        return "(" + "".join(f"changed({n}) ? ({new}) : " for n, new in texts.items()) + f"({own}))"

    def with_hunks(self, i: int, j: int, hunks: list) -> str:
        at, parts = self.start(i), []
        for _, a, b, new in hunks:
            first = self.start(a) if b > a or a < j else self.start(a - 1, end=True)
            parts += [self.text[at:first], new, " "]
            at = self.start(b - 1, end=True) if b > a else first
        return re.sub(r"//[^\n]*", "", "".join(parts) + self.text[at:self.start(j - 1, end=True)])

    def whole(self, i: int, j: int) -> tuple[int, int, bool]:
        """The smallest expression or statement around the tokens [i, j), and whether it is a statement."""
        t = self.tokens
        if i == j:                                       # an insertion belongs to an operand beside it
            i, j = (i, j + 1) if t[i - 1] in BEFORE else (i - 1, j)
        while outside := [other for n in range(i, j) if not i <= (other := self.partner.get(n, n)) < j]:
            i, j = min(i, *outside), max(j, 1 + max(outside))
        statement = t[i] in (*CONTROL, "continue", "break", "return") or ";" in self.top(i, j)
        first = (";", "{", "}") if statement else BEFORE
        while t[i - 1] not in first and not self.heads(i - 1):
            i = self.partner.get(i - 1, i - 1)
            if not statement and t[i] == ">" and t[i + 1] in ("(", "::"):
                while t[i] != "<":
                    i -= 1
        if statement:
            while t[j - 1] not in (";", "}"):
                j = self.partner.get(j, j) + 1
            return i, j, True
        while t[j] not in (",", ";", *PAIRS.values()):
            j = self.partner.get(j, j) + 1
        if self.opener(i) != "{" and "," in self.top(i, j):                # arguments: the call
            return self.whole(i - 1, j + 1)
        deleted = [h for h in self.hunks if h[1:3] == (i, j) and not h[3].strip()]
        return (i, j + 1, True) if deleted and t[j] == ";" else (i, j, False)

    def top(self, i: int, j: int) -> list[str]:
        """The tokens that are in no bracket there."""
        found = []
        while i < j:
            found.append(self.tokens[i])
            i = self.partner[i] + 1 if self.tokens[i] in PAIRS else i + 1
        return found

    def opener(self, i: int) -> str:
        """Of the bracket around a token."""
        while self.tokens[i := i - 1] not in PAIRS:
            i = self.partner.get(i, i)
        return self.tokens[i]

    def heads(self, i: int) -> bool:
        """Whether this is the bracket that closes `if (...)` or the like."""
        return self.tokens[i] == ")" and self.tokens[self.partner[i] - 1] in CONTROL
