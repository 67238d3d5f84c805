"""Ragged shapes: a given case with one size a little smaller, where the task allows it.

A size shrinks by one, or by the step that the statement asks for (even, a multiple of 8). Left out are shapes
that break what the statement says, or an order that all given cases keep, and what the reference does not
take. Arrays are cut to what their dimensions are in all given cases: N, M * N, N - K + 1.
"""
from __future__ import annotations

import html
import math
import operator
import re
from dataclasses import dataclass
from itertools import combinations_with_replacement, permutations, product

import numpy as np

from ..arguments import arrays
from .case import contiguous, elements

SMALL = 1 << 17                  # elements of a case that a ragged one is cut from
WORD = r"[A-Za-z_]\w*"
ORDER = {"≤": operator.le, "<": operator.lt, "≥": operator.ge, ">": operator.gt, "=": operator.eq}
ITEMS = rf"(?:{WORD}|\d+)(?:\s*,\s*(?:{WORD}|\d+))*"
RELATION = re.compile(rf"(?<![\w.^])(?<!,)(?<!, )(?=({ITEMS})\s*([≤<≥>=])\s*({ITEMS}))")
MULTIPLE = re.compile(r"\b(?:divisible by|multiples? of)\s+(\w+)(?:\s+and(?:\s+by)?\s+(\w+))?")
REMAINDER = re.compile(rf"({WORD})\s*(?:%|mod)\s*(\w+)\s*=+\s*0\b")
EVEN = re.compile(r"\b(?:even|odd)(?=\s+(?:number|integer|size|length|value)|\s*(?:[.,;)]|$))")
POWER = re.compile(r"\bpowers? of (?:two|2)\b")


@dataclass
class Shape:
    """The sizes of a ragged case, and what a reader of a refusal should know about them."""
    sizes: dict[str, int]
    note: str


class Statement:
    """What a challenge's text says about its sizes."""

    def __init__(self, text: str = ""):
        self.sentences = sentences(text)
        self.multiples = [(name, by) for s in self.sentences for name, by in _multiples(s)]
        self.powers = {name for s in self.sentences for m in POWER.finditer(s)
                       for name in re.findall(WORD, s[:m.start()])}
        self.relations = [related for s in self.sentences for found in RELATION.findall(s)
                          for related in _related(*found)]

    def step(self, name: str, sizes: dict[str, int]) -> int:
        """What the size is a multiple of."""
        by = [_value(divisor, sizes) for of, divisor in self.multiples if of in (name, "dimensions")]
        return math.lcm(*(b for b in by if b))

    def range_of(self, name: str) -> str:
        """The sentence that says how large the size may be."""
        return next((s for s in self.sentences if re.search(rf"(?<!\w){name}(?!\w)", s)
                     and re.search(r"\d\s*[≤<]|[≥>]\s*\d", s)), "")

    def allows(self, sizes: dict[str, int], before: dict[str, int]) -> bool:
        """Whether everything that it says of the sizes before is true of these sizes too."""
        def says(now):
            for a, sign, b in self.relations:
                x, y = _value(a, now), _value(b, now)
                yield None not in (x, y) and ORDER[sign](x, y)
            for a, b in self.multiples:
                x, y = _value(a, now), _value(b, now)
                yield bool(x and y) and x % y == 0
        return all(then or not was for was, then in zip(says(before), says(sizes)))

    def sets_to_zero(self, name: str) -> bool:
        """Whether it promises that an output holds zeros at first."""
        zero = re.compile(rf"(?<!\w){name}(?!\w).*\b(?:initiali[sz]ed|preset|filled)\b.*(?:\b0\b|\bzeros?\b)")
        return any(zero.search(s) for s in self.sentences)


def sentences(text: str) -> list[str]:
    """The sentences of a text or of a page of HTML, with one sign for each relation."""
    text = re.sub(r"</?(?:li|p|pre|ul|ol|h\d|br|tr|td|div)\b[^>]*>", "\n", text)
    text = html.unescape(re.sub(r"</?[a-z][^>]*>", "", text))
    for signs, sign in ((r"<=|\\leq?\b", "≤"), (r">=|\\geq?\b", "≥"), (r"\\lt\b", "<"), (r"\\gt\b", ">"),
                        (r"\\[()]|\\text|[{}`$]", ""), (r"\\_", "_"), (r"(?<=\d),(?=\d{3})", "")):
        text = re.sub(signs, sign, text)
    return [" ".join(s.split()) for s in re.split(r"\n|(?<=[a-z)\d])\.\s", text) if s.strip()]


def _related(left: str, sign: str, right: str):
    """Each with each of "1 ≤ M, N"; of "M = 1, N = 2" nothing, as it gives an example."""
    sides = [re.findall(r"\w+", side) for side in (left, right)]
    if sign != "=" or len(sides[0]) == len(sides[1]) == 1:
        yield from ((a, sign, b) for a, b in product(*sides))


def _multiples(sentence: str):
    for m in REMAINDER.finditer(sentence):
        yield m.groups()
    for m in MULTIPLE.finditer(sentence):
        yield from ((name, by) for name in re.findall(WORD, sentence[:m.start()]) for by in m.groups() if by)
    for m in EVEN.finditer(sentence):                # odd sizes too shrink by two
        yield from ((name, "2") for name in re.findall(WORD, sentence[:m.start()]))


def _value(word: str, sizes: dict[str, int]) -> int | None:
    return int(word) if word.isdigit() else sizes.get(word)


def shapes(given: list[dict[str, int]], source: dict[str, int], statement: Statement) -> list[Shape]:
    """One shape for each size, or for sizes that are equal in all given cases, less a step."""
    made, groups = [], {}
    for name in source:
        groups.setdefault(tuple(case[name] for case in given), []).append(name)
    for values, names in groups.items():
        step = math.lcm(*(statement.step(name, source) for name in names))
        smaller = source[names[0]] - step
        after = source | dict.fromkeys(names, smaller)
        if smaller < 2 or statement.powers & set(names) or not statement.allows(after, source):
            continue
        if not _orders(given) <= _orders([after]):
            continue
        made.append(Shape(after, _note(names, values, step, statement)))
    return made


def _orders(cases: list[dict[str, int]]) -> set[tuple]:
    return {(a, sign, b) for a, b in permutations(cases[0], 2) for sign in "<≤"
            if all(ORDER[sign](case[a], case[b]) for case in cases)}


def _note(names: list[str], values: tuple[int, ...], step: int, statement: Statement) -> str:
    said = next(filter(None, map(statement.range_of, names)), "")
    allowed = f"The statement allows it: {said}" if said and step == 1 else ""
    common, powers = math.gcd(*values), len(set(values)) > 2 and all(v & (v - 1) == 0 for v in values)
    if not powers and common <= step:
        return allowed
    kept = "a power of two" if powers else f"a multiple of {common}"
    start = f"{allowed}; but in" if allowed else "In"
    return (f"{start} every given test {' = '.join(names)} is {kept}: if the task promises that, this "
            "refusal does not count.")


def sizes_of(values: dict) -> dict[str, int]:
    return {n: v for n, v in values.items() if isinstance(v, int) and not isinstance(v, bool)}


def ragged(given: list[dict], statement: Statement) -> list[tuple[int, dict, str]]:
    """Cases cut from the largest small one: its number among the given, the values, a note."""
    names = set.intersection(*(set(sizes_of(v)) for v in given))
    sizes = [{n: v for n, v in sizes_of(values).items() if n in names} for values in given]
    small = [i for i, v in enumerate(given) if names and sum(map(elements, v.values())) <= SMALL]
    if not small:
        return []
    source = max(small, key=lambda i: sum(map(elements, given[i].values())))
    made = []
    for shape in shapes(sizes, sizes[source], statement):
        cut = _cut(given, sizes, source, shape.sizes)
        if cut is not None:
            made.append((source, cut, shape.note))
    return made


def _cut(given: list[dict], sizes: list[dict], source: int, after: dict[str, int]) -> dict | None:
    """The source's values with these sizes; None if it is not known how the arrays follow from them."""
    before, made, changed = sizes[source], given[source] | after, False
    gone = {before[n] for n in after if after[n] != before[n]}
    for name, value in given[source].items():
        if not arrays.is_array(value):
            continue
        if _leads_to(value, gone):
            return None                  # an element would lead past the end
        shape = []
        for axis, old in enumerate(value.shape):
            new = _new_size([(v[name].shape[axis], s) for v, s in zip(given, sizes)
                             if len(v[name].shape) == len(value.shape)], after)
            if new is None or not 1 <= new <= old or new < old and _bound_together(value, axis):
                return None
            shape.append(new)
        if tuple(shape) != tuple(value.shape):
            changed = True
            made[name] = contiguous(value[tuple(map(slice, shape))])
    return made if changed else None


def _new_size(cases: list[tuple[int, dict]], after: dict[str, int]) -> int | None:
    """What a dimension becomes: the simplest term of the sizes that it is in all given cases, or what it
    always was."""
    for terms in _terms(list(after)):
        found = {term(after) for term in terms if all(term(sizes) == dim for dim, sizes in cases)}
        if found:
            return found.pop() if len(found) == 1 else None
    return cases[0][0] if len({dim for dim, _ in cases}) == 1 else None


def _terms(names: list[str]):
    """What dimensions are made of, as functions of the sizes, the simplest first."""
    yield [lambda s, a=a: s[a] for a in names]
    yield [lambda s, a=a, k=k: s[a] * k for a in names for k in (2, 3, 4)] + [
        lambda s, a=a, k=k: s[a] // k for a in names for k in (2, 4)] + [
        lambda s, a=a, k=k: s[a] + k for a in names for k in (-1, 1)]
    yield [lambda s, some=some, k=k: k * math.prod(s[n] for n in some) for k in (1, 2, 3, 4)
           for count in (2, 3, 4) for some in combinations_with_replacement(names, count)]
    pairs = list(permutations(names, 2))
    yield [lambda s, a=a, b=b: s[a] + s[b] for a, b in pairs] + [
        lambda s, a=a, b=b: s[a] - s[b] + 1 for a, b in pairs] + [
        lambda s, a=a, b=b: s[a] // s[b] if s[b] else 0 for a, b in pairs]


def _leads_to(value, sizes: set[int]) -> bool:
    """Whether an array holds indices or offsets of this many elements, that of the last among them."""
    if not arrays.dtype_of(value).startswith(("int", "uint")) or not elements(value):
        return False
    last = int(np.asarray(value).max())
    return last in sizes or last + 1 in sizes


def _bound_together(value, axis: int) -> bool:
    """Whether the elements along an axis belong together: two equal halves, or parts of one."""
    rows = np.moveaxis(np.asarray(value.float() if arrays.is_tensor(value) else value), axis, -1)
    half, odd = divmod(rows.shape[-1], 2)
    if not odd and half and (rows[..., :half] == rows[..., half:]).all():
        return bool((rows != rows.flat[0]).any())
    return bool((rows >= 0).all() and np.allclose(rows.sum(-1), 1, atol=1e-3) and rows.shape[-1] > 1)
