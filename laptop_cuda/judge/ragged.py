"""Ragged shapes: a given case with one size less by one.

Left out are shapes that break an order that all given cases keep, and what the reference does not take.
Arrays are cut to what their dimensions are in all given cases: N, M * N, N - K + 1."""
import math
import operator
from dataclasses import dataclass
from itertools import combinations_with_replacement, permutations

import numpy as np

from ..arguments import arrays
from .case import contiguous, elements

SMALL = 1 << 17                  # elements of a case that a ragged one is cut from
ORDER = {"≤": operator.le, "<": operator.lt}


@dataclass
class Shape:
    """The sizes of a ragged case, and what a reader of a refusal should know about them."""
    sizes: dict[str, int]
    note: str


def shapes(given: list[dict[str, int]], source: dict[str, int]) -> list[Shape]:
    """One shape for each size, or for sizes that are equal in all given cases, less one."""
    made, groups = [], {}
    for name in source:
        groups.setdefault(tuple(case[name] for case in given), []).append(name)
    for values, names in groups.items():
        after = source | dict.fromkeys(names, source[names[0]] - 1)
        if after[names[0]] >= 2 and _orders(given) <= _orders([after]):
            made.append(Shape(after, _note(names, values)))
    return made


def _orders(cases: list[dict[str, int]]) -> set[tuple]:
    return {(a, sign, b) for a, b in permutations(cases[0], 2) for sign in "<≤"
            if all(ORDER[sign](case[a], case[b]) for case in cases)}


def _note(names: list[str], values: tuple[int, ...]) -> str:
    common, powers = math.gcd(*values), len(set(values)) > 2 and all(v & (v - 1) == 0 for v in values)
    if not powers and common == 1:
        return ""
    kept = "a power of two" if powers else f"a multiple of {common}"
    return (f"In every given test {' = '.join(names)} is {kept}: if the task promises that, this refusal "
            "does not count.")


def sizes_of(values: dict) -> dict[str, int]:
    return {n: v for n, v in values.items() if isinstance(v, int) and not isinstance(v, bool)}


def ragged(given: list[dict]) -> list[tuple[int, dict, str]]:
    """Cases cut from the largest small one: its number among the given, the values, a note."""
    names = set.intersection(*(set(sizes_of(v)) for v in given))
    sizes = [{n: v for n, v in sizes_of(values).items() if n in names} for values in given]
    small = [i for i, v in enumerate(given) if names and sum(map(elements, v.values())) <= SMALL]
    if not small:
        return []
    source = max(small, key=lambda i: sum(map(elements, given[i].values())))
    made = []
    for shape in shapes(sizes, sizes[source]):
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
    """What a dimension becomes: the simplest term of the sizes that it is in all cases, or its constant."""
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
