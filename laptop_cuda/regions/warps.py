"""Shuffles in a kernel that runs as loops over its threads (`regions/`).

    v += __shfl_xor_sync(~0u, v, 1);  ->  LAPTOP_EACH_LANE { ... laptop_give(given, laptop_lane, v); }
                                          LAPTOP_EACH_LANE { ... v += laptop_take_xor<float>(given, ..., 1); }

A lane gives its value at the end of one loop over the lanes and takes another's at the start of the next.
That is the same as waiting in the middle of the statement if nothing else in it depends on when it happens."""
import re
from dataclasses import dataclass

from ..rewrite.table import LIBRARY
from ..text.statements import Declared, Statement, declaration
from ..text.tokens import match_forward, split_commas
from .check import SHUFFLES, WARP_BARRIER, Checker, Refused

FULL = {"0xffffffff", "~0", "-1", "4294967295"}
WITHOUT_EFFECT = LIBRARY - {"frexp", "modf", "remquo"} | {"float", "int", "unsigned", "double", "__expf"}


@dataclass
class Exchange:
    """One shuffle: its tokens, first to last (excluded), and those of its arguments."""
    name: str
    first: int
    last: int
    value: tuple[int, int]
    more: list[tuple[int, int]]          # the other lane, then perhaps the width


def holds_warp(tokens: list, made: Statement) -> bool:
    return any(t.text in SHUFFLES or t.text == WARP_BARRIER for t in tokens[made.first:made.last])


def is_warp_barrier(tokens: list, made: Statement) -> bool:
    return made.kind == "simple" and tokens[made.first].text == WARP_BARRIER


class Warps:
    """The exchanges of one kernel; `uniform`: variables alike in all threads, `declared`: each thread's."""

    def __init__(self, check: Checker, declared: dict[str, Declared]):
        self.check, self.tokens, self.declared = check, check.tokens, declared
        self.all: list[Exchange] = []

    def barrier(self, made: Statement, uniform: set[str]) -> None:
        """Refuses a __syncwarp() of some of the lanes."""
        close = match_forward(self.tokens, made.first + 1)
        if close > made.first + 2:
            self.full(made.first + 2, close, uniform)

    def exchanges(self, made: Statement, uniform: set[str]) -> list[Exchange]:
        """The shuffles of a statement."""
        if made.kind != "simple":
            raise Refused("a shuffle in a head, or in a loop that is not counted")
        found, i = [], made.first
        while i < made.last:
            if self.tokens[i].text in SHUFFLES:
                found.append(self.exchange(i, uniform))
                i = found[-1].last
            else:
                i += 1
        self.nothing_else(made, found, uniform)
        self.all += found
        return found

    def exchange(self, i: int, uniform: set[str]) -> Exchange:
        close = match_forward(self.tokens, i + 1)
        given = split_commas(self.tokens, i + 2, close)
        if self.tokens[i].text.endswith("_sync"):
            self.full(*given.pop(0), uniform)
        if len(given) not in (2, 3) or any(t.text in SHUFFLES for t in self.tokens[i + 1:close]):
            raise Refused("a shuffle in a shuffle")
        for first, last in given[1:]:
            self.only_numbers(first, last, uniform)
        self.no_effect(given[0][0], given[0][1])
        return Exchange(self.tokens[i].text, i, close + 1, given[0], given[1:])

    def full(self, first: int, last: int, uniform: set[str]) -> None:
        """Refuses a mask that is not visibly that of all lanes."""
        texts = ["".join(t.text for t in self.tokens[first:last])]
        name = texts[0]
        if last == first + 1 and name in self.check.macros:
            texts = [self.check.macros[name].split("//")[0].strip(" ()")]
        elif last == first + 1 and name in uniform | self.check.constant:
            places = [(f.tokens, i) for f, _ in self.check.functions for i, t in enumerate(f.tokens)
                      if t.text == name and f.tokens[i + 1].text == "="]
            texts = [re.split("[;,]", "".join(t.text for t in tokens[i + 2:i + 5]))[0]
                     for tokens, i in places]
        if not texts or any(text.lower().rstrip("ul") not in FULL for text in texts):
            raise Refused("a shuffle of some of the lanes")

    def only_numbers(self, first: int, last: int, uniform: set[str]) -> None:
        """The other lane is looked up later than CUDA would: nothing may have changed it."""
        for i in range(first, last):
            token, before = self.tokens[i], self.tokens[i - 1]
            known = token.kind in ("number", "symbol") or token.text in self.check.own or self.check.uniform(
                i, i + 1, uniform)
            called = token.text == "(" and before.kind == "name"
            element = token.text == "[" and not self.is_array(before.text)
            if not known or called or element or token.text in ("->", "?", "{") or "=" in token.text or (
                    token.text == "*" and before.kind == "symbol" and before.text != ")"):
                raise Refused("the other lane of a shuffle")
        self.no_effect(first, last)

    def no_effect(self, first: int, last: int) -> None:
        for token in self.tokens[first:last]:
            if token.text.endswith("=") or token.text in ("++", "--"):
                raise Refused("an assignment in a shuffle")
            if token.text.startswith(("atomic", "__st")):
                raise Refused(f"{token.text} in a shuffle")

    def nothing_else(self, made: Statement, found: list[Exchange], uniform: set[str]) -> None:
        """Refuses what the rest of the statement must not do: another thread might see when."""
        inside = {i for x in found for i in range(x.first, x.last)}
        rest = [i for i in range(made.first, made.last) if i not in inside]
        variables = declaration(self.tokens, made.first, made.last)
        equals = [i for i in rest if self.tokens[i].text.endswith("=")]
        several = {"?", "&&", "||", "{", "->", "return"} & {self.tokens[i].text for i in rest}
        if several or len(equals) > 1 or len(variables) > 1:
            raise Refused("a shuffle beside other work")
        target = equals[0] if equals else made.first
        plain = self.tokens[target].text == "=" and (
            self.tokens[target - 1].kind == "name" or self.tokens[target - 1].text == "]")
        for i in rest:
            token = self.tokens[i]
            if token.text == "," and not (equals and equals[0] < i) or token.text in ("++", "--"):
                raise Refused("a shuffle beside other work")
            if not (plain and i < target) and self.reads(i, uniform):
                raise Refused(f"{token.text} beside a shuffle")

    def reads(self, i: int, uniform: set[str]) -> bool:
        """Whether the token may read memory that others write, or call what does."""
        before, token, follows = self.tokens[i - 1], self.tokens[i], self.tokens[i + 1].text
        if token.text == "[":
            return not self.is_array(before.text)
        if token.text == "*":
            return before.kind == "symbol" and before.text not in (")", "]")
        if token.kind != "name" or before.text == ".":
            return False
        if follows == "(":
            return not {token.text, token.text.removesuffix("f")} & WITHOUT_EFFECT
        return not (token.text in self.check.own or self.check.uniform(i, i + 1, uniform))

    def is_array(self, name: str) -> bool:
        """Whether this is a thread's own array: no other thread sees when it is read."""
        own = self.declared.get(name)
        words = [t.text for t in self.tokens[slice(*own.declarator)]] if own else []
        return "[" in words and "*" not in words and "&" not in words
