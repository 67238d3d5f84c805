"""Which regions can run in packs (`regions/packs.py`): they write nothing but the threads' own variables.

No other thread can see then in which order things happen. What the text does not show counts as a write."""
import re

from ..text.statements import CHANGES, SCALAR, VECTORS, Declared, Statement, assigned, declaration, statements
from ..text.tokens import match_angle_backward, match_backward
from .check import CALLS, CASTS, CONTROL, SHUFFLES, TYPES, Checker
from .warps import WITHOUT_EFFECT

WITH_EFFECT = re.compile(r"atomic.*|curand.*|__st.*|__ldc[vg]|__threadfence.*|tex.*|surf.*|sincosf?")
REFUSED = {"volatile", "asm", "return", "goto", "->", "switch", "auto"}
MACRO_CHANGES = re.compile(r"[=&{;#]|\+\+|--|[\w)\]>]\s*\(")


class Packs:
    """Which regions can run in packs; `declared` are the threads' own variables at the level of regions."""

    def __init__(self, check: Checker, declared: dict[str, Declared]):
        self.check, self.tokens, self.declared = check, check.tokens, declared

    def fits(self, first: int, last: int, uniform: set[str]) -> bool:
        """Whether tokens hold a sum inside a loop or an `if`, and write only the threads' own variables.
        (A loop that is nothing but a sum the compiler itself exchanges with the loop over the threads.)"""
        found = statements(self.tokens, first, last)
        inner = [s for s in found if s.kind != "for" or not self.is_sum(self.inside(s.bodies[0]))]
        return any(self.adds(s, uniform) for s in inner) and self.quiet(first, last, found, uniform)

    def adds(self, made: Statement, uniform: set[str]) -> bool:
        """Whether a statement leads, by ways that a pack's threads go together, to a loop that adds up."""
        if made.kind == "{":
            return any(self.adds(s, uniform) for s in self.inside(made))
        if made.kind == "if":
            first, last = made.header[0] + 1, made.header[1]
            named = declaration(self.tokens, first, last + 1)
            asked = len(made.bodies) == 1 and first == made.first + 2 and not named
            return ((asked or self.check.uniform(first, last, uniform))
                    and any(self.adds(body, uniform) for body in made.bodies))
        if made.kind != "for":
            return False
        counted = self.counted(made, uniform)
        body = made.bodies[0]
        if counted is None or self.leaves(body):
            return False
        return self.is_sum(self.inside(body)) or self.adds(body, uniform | counted)

    def inside(self, made: Statement) -> list[Statement]:
        return statements(self.tokens, made.first + 1, made.last - 1) if made.kind == "{" else [made]

    def counted(self, made: Statement, uniform: set[str]) -> set[str] | None:
        """The variables of a loop that takes as many turns for each thread; None if it may not."""
        first, last = made.header[0] + 1, made.header[1]
        head = statements(self.tokens, first, last)
        variables = declaration(self.tokens, first, head[0].last) if head else []
        names = {v.name for v in variables}
        fixed = all(self.is_number(v) and v.initial and self.check.fixed(v.name, last, made.last)
                    for v in variables)
        if len(head) < 2 or not fixed:
            return None
        inner = {v.name for v in self.all_declared(self.inside(made.bodies[0]))}
        known = uniform | names
        return names if names and not inner & known and self.check.uniform(first, last, known) else None

    def leaves(self, made: Statement) -> bool:
        """Whether a break or continue in a loop's body is that loop's own."""
        if made.kind in ("for", "while", "do"):
            return False
        if made.kind == "simple":
            return self.tokens[made.first].text in ("break", "continue")
        return any(map(self.leaves, made.bodies or self.inside(made)))

    def is_sum(self, body: list[Statement]) -> bool:
        """Whether each turn changes a number that the turn before has left, by what memory holds."""
        if any(s.kind != "simple" for s in body):
            return False
        own = {v.name for v in self.all_declared(body)}
        for s in body:
            name, words = self.tokens[s.first], [t.text for t in self.tokens[s.first + 1:s.last]]
            changed = bool({"+=", "-=", "*="} & set(words[:1])) or words[:1] == ["="] and name.text in words
            if name.kind == "name" and name.text not in own and changed and "[" in words:
                return True
        return False

    def is_number(self, v: Declared) -> bool:
        words = {t.text for t in self.tokens[v.type[0]:v.declarator[1]]}
        return v.plain and not words & {"*", "&"} and {t.text for t in self.tokens[slice(*v.type)]} <= SCALAR

    def all_declared(self, found: list[Statement]) -> list[Declared]:
        variables = []
        for made in found:
            if made.kind == "simple":
                variables += declaration(self.tokens, made.first, made.last)
            elif made.kind == "{":
                variables += self.all_declared(self.inside(made))
            else:
                if made.kind == "for":
                    head = statements(self.tokens, made.header[0] + 1, made.header[1])
                    variables += declaration(self.tokens, head[0].first, head[0].last) if head else []
                variables += self.all_declared(made.bodies)
        return variables

    def changes(self, name: str, first: int, last: int) -> bool:
        """Whether tokens change a number of the thread to which nothing else leads."""
        v, (begin, end) = self.declared.get(name), self.check.kernel.body
        if v is None or not self.is_number(v) or "[" in {t.text for t in self.tokens[slice(*v.declarator)]}:
            return False
        places = [i for i in range(begin, end) if self.tokens[i].text == name]
        return (any(assigned(self.tokens, i) for i in places if first <= i < last)
                and not any(self.tokens[i - 1].text == "&" for i in places))

    def quiet(self, first: int, last: int, found: list[Statement], uniform: set[str]) -> bool:
        words = {t.text for t in self.tokens[first:last]}
        own = self.all_declared(found)
        names = {v.name for v in own}
        known = [*own, *(v for n, v in self.declared.items() if n in words and n not in names)]
        usual = all(self.usual(v) for v in known) and not names & uniform
        operators = any(not f.name.isidentifier() for _, f in self.check.functions)
        if words & REFUSED or "volatile" in self.check.named or not usual or operators:
            return False
        places = {i for v in own for i in range(*v.declarator)}
        self.of_name = {v.name: v for v in known}
        return not any(self.loud(i, places) for i in range(first, last))

    def usual(self, v: Declared) -> bool:
        """Whether a variable's operators are known, and it stands for nothing else."""
        words = {t.text for t in self.tokens[slice(*v.type)]} - {"const", "__restrict__"}
        return words <= SCALAR | VECTORS and "&" not in {t.text for t in self.tokens[slice(*v.declarator)]}

    def loud(self, i: int, places: set[int]) -> bool:
        """Whether the token changes what is not the thread's own, or may."""
        before, token, follows = self.tokens[i - 1], self.tokens[i], self.tokens[i + 1]
        if token.kind == "name" and token.text in self.check.macros:
            body = re.sub(r"^\([^)]*\)", "", self.check.macros[token.text].split("//")[0])
            return MACRO_CHANGES.search(body) is not None
        if token.text == "&":
            return before.kind == "symbol" and before.text not in (")", "]")
        if token.text == "(":
            return self.calls(i)
        if token.text in ("++", "--"):
            if before.kind == "name" or before.text in (")", "]"):
                return not self.is_own(i - 1, places)
            after = self.tokens[i + 2].text in ("[", ".", "->")
            return follows.kind != "name" or after or not self.is_own(i + 1, places)
        shifted = before.text == ">" and token.text == ">="
        return (shifted or token.text in CHANGES) and not self.is_own(i - 2 if shifted else i - 1, places)

    def is_own(self, i: int, places: set[int]) -> bool:
        """Whether what ends with token i is a variable of the thread, or a part of one."""
        part = False
        while self.tokens[i].text == "]" or self.tokens[i - 1].text == ".":
            part, i = True, match_backward(self.tokens, i) - 1 if self.tokens[i].text == "]" else i - 2
        if i in places:
            return True
        v = self.of_name.get(self.tokens[i].text)
        pointer = v and "*" in {t.text for t in self.tokens[slice(*v.declarator)]}
        return v is not None and self.tokens[i - 1].text not in ("*", "->", "::") and not (pointer and part)

    def calls(self, i: int) -> bool:
        """Whether the "(" at token i may begin a call that has an effect."""
        before = self.tokens[i - 1]
        if before.text == ">" and (opening := match_angle_backward(self.tokens, i - 1)) is not None:
            return self.tokens[opening - 1].text not in CASTS
        if before.kind != "name":
            return False
        name = before.text
        if name in self.check.macros:
            return False                     # looked at where it is named
        known = {name, name.removesuffix("f")} & (WITHOUT_EFFECT | CONTROL | TYPES | CASTS | set(SHUFFLES))
        return not known and (not CALLS.fullmatch(name) or WITH_EFFECT.fullmatch(name) is not None)
