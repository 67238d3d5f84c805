"""Comparing what came with what was expected, in words."""
from __future__ import annotations

import math
from typing import Any, Callable

import torch
from torch.utils._pytree import tree_leaves

from .runner import Foreign, with_article

SMALL = 64          # a tensor with at most so many elements is shown whole
WIDE = 12           # numbers on a line


def close(atol: float = 1e-5, rtol: float = 1e-4, dtype: bool = True) -> Callable:
    """The same structure, shapes and dtypes, and values within atol + rtol * |expected|."""
    def compare(got, want, case=None) -> str | None:
        return difference(got, want, atol, rtol, dtype)
    return compare


def exact() -> Callable:
    """The same structure, shapes, dtypes and values, bit for bit."""
    return close(atol=0.0, rtol=0.0)


def number(tolerance: float = 0.0, rtol: float = 0.0) -> Callable:
    """A number or a choice that a person typed: 4 and 4.0 are the same; a tensor with one element counts too."""
    def compare(got, want, case=None) -> str | None:
        if isinstance(got, torch.Tensor) and got.numel() == 1:
            got = got.item()
        if isinstance(want, str):
            if not isinstance(got, str):
                wanted = 'one of the letters in quotes, such as "a"' if len(want) == 1 else 'the letters in quotes, such as "abc"'
                return f"type {wanted}; you gave {with_article(type_name(got))}"
            if len(want) == 1 and len(got.strip()) > 1:
                return f"type one letter in quotes, such as \"a\"; you gave {got!r}"
            letters, wanted = (list(filter(str.isalnum, text.lower())) for text in (got, want))
            if wanted == sorted(wanted):                           # a choice of several: "D, a" is "ad"
                letters.sort()
            return None if letters == wanted else f"{got!r} is not the answer"
        if isinstance(got, bool) != isinstance(want, bool) or not isinstance(got, (int, float)):
            if isinstance(got, (tuple, list)) and isinstance(want, (tuple, list)) and len(got) == len(want):
                return next(filter(None, (compare(g, w) for g, w in zip(got, want))), None)
            wanted = ("True or False" if isinstance(want, bool) else
                      f"{len(want)} numbers" if isinstance(want, (tuple, list)) else "a number")
            return f"the answer is {wanted}; you gave {with_article(type_name(got))}"
        if isinstance(got, float) and math.isnan(got):
            return "NaN is not a number that one can predict"
        return None if _near(got, want, tolerance, rtol) else f"{show(got)} is not the answer"
    return compare


def _near(got, want, atol: float, rtol: float) -> bool:
    try:
        return abs(got - want) <= atol + rtol * abs(want)
    except OverflowError:                                # an integer beyond all floats
        return False


def difference(got: Any, want: Any, atol: float, rtol: float, dtype: bool = True, where: str = "") -> str | None:
    """None if equal, else a sentence about the first difference. `where` names the part, such as 'item 2: '."""
    if isinstance(want, torch.Tensor):
        if not isinstance(got, torch.Tensor):
            plain = "plain " * (isinstance(got, Foreign) and got.type.lower().endswith("tensor"))
            return f"{where}returns {a_value(got)}, not a {plain}tensor{_advice(got)}"
        return _tensors(got, want, atol, rtol, dtype, where)
    if isinstance(want, (tuple, list)):
        if not isinstance(got, (tuple, list)):
            return f"{where}returns {a_value(got)} where {len(want)} values are expected{_advice(got)}"
        if len(got) != len(want):
            return f"{where}returns {len(got)} values where {len(want)} are expected"
        parts = (difference(g, w, atol, rtol, dtype, f"{where}item {i}: ") for i, (g, w) in enumerate(zip(got, want)))
        return next(filter(None, parts), None)
    if isinstance(want, dict):
        if not isinstance(got, dict):
            return f"{where}returns {a_value(got)} where a dict is expected{_advice(got)}"
        if got.keys() != want.keys():
            return f"{where}has the keys {', '.join(map(str, got))}; expected {', '.join(map(str, want))}"
        parts = (difference(got[k], want[k], atol, rtol, dtype, f"{where}{k}: ") for k in want)
        return next(filter(None, parts), None)
    if isinstance(want, bool) or want is None or isinstance(want, str):
        same = type(got) is type(want) and got == want
        return None if same else f"{where}is {show(got)}, expected {show(want)}{_advice(got) if want is not None else ''}"
    if isinstance(got, bool) or not isinstance(got, (int, float)):
        return f"{where}is {a_value(got)}, expected the number {show(want)}{_advice(got)}"
    if isinstance(want, int) and isinstance(got, float):
        return f"{where}is the float {show(got)}, expected the integer {want}"
    equal = got == want or (got != got and want != want) or _near(got, want, atol, rtol)
    return None if equal else f"{where}is {show(got)}, expected {show(want)}"


def _tensors(got, want, atol, rtol, dtype, where) -> str | None:
    if got.shape != want.shape:
        hint = ""
        if got.dim() != want.dim() and [s for s in got.shape if s != 1] == [s for s in want.shape if s != 1]:
            hint = ": a dimension of size 1 too many or too few"
        elif got.numel() == want.numel():
            hint = ": the right number of elements, in another arrangement"
        return f"{where}has shape {tuple(got.shape)}, expected {tuple(want.shape)}{hint}"
    if dtype and got.dtype != want.dtype:
        return f"{where}has dtype {_dtype(got)}, expected {_dtype(want)}"
    if not want.numel():
        return None
    g, w = (t.to(torch.complex128 if t.is_complex() else torch.float64) for t in (got, want))
    if not (want.is_floating_point() or want.is_complex()):
        wrong = g != w
    else:
        equal = (g == w) | (torch.isnan(g) & torch.isnan(w))
        wrong = ~(equal | ((g - w).abs() <= atol + rtol * w.abs()))        # a NaN on one side only is wrong
    if not wrong.any():
        return None
    index = tuple(wrong.nonzero()[0].tolist())
    at = f"at [{', '.join(map(str, index))}] " if index else ""
    return (f"{where}{at}is {show(got[index].item())}, expected {show(want[index].item())}; "
            f"{int(wrong.sum())} of {wrong.numel()} elements differ")


def _advice(got) -> str:
    if got is None:
        return ". Is there a `return`?"
    if isinstance(got, Foreign) and got.type.startswith("numpy"):
        return ". A NumPy array does not know about gradients or devices: stay in torch"
    if isinstance(got, Foreign) and got.type in ("generator", "coroutine"):
        return ". Use `return`, not `yield` or `async`"
    return ""


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def type_name(value: Any) -> str:
    """The type as a person names it."""
    if isinstance(value, Foreign):
        return value.type
    if value is None:
        return "None"
    names = {"str": "string", "int": "integer", "bool": "boolean", "Tensor": "tensor"}
    return names.get(type(value).__name__, type(value).__name__)


def a_value(value: Any) -> str:
    """'None', 'the string ...', 'a tuple', 'a numpy.ndarray'."""
    if value is None:
        return "None"
    if type(value) in (bool, int, float, str):
        return f"the {type_name(value)} {show(value)}"
    return with_article(type_name(value))


def show(value: Any, small: int = SMALL) -> str:
    """The value as short text that every machine prints alike."""
    if isinstance(value, torch.Tensor):
        shape = "x".join(map(str, value.shape)) or "scalar"
        if value.numel() > small or value.is_complex():
            return f"a tensor of shape {tuple(value.shape)}, {_dtype(value)}"
        if value.dim() == 0:
            return f"{_rows(value)}  ({_dtype(value)} scalar)"
        return f"{_rows(value)}  ({_dtype(value)}, {shape})"
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, int) and abs(value) >= 10 ** 40:       # Python itself refuses to write very long ones
        return f"{'-' * (value < 0)}10**{math.log10(abs(value)):.0f} or so"
    if isinstance(value, str):
        return repr(value if len(value) < 200 else value[:200] + "...")
    if isinstance(value, (tuple, list, dict)):
        named = value.items() if isinstance(value, dict) else ((f"item {i}", v) for i, v in enumerate(value))
        parts = [(f"{name}: ", show(v, small)) for name, v in named]
        if any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(value)):           # one part below the other
            return "\n".join(name + text.replace("\n", "\n" + " " * len(name)) for name, text in parts)
        if isinstance(value, dict):
            return "{" + ", ".join(map("".join, parts)) + "}"
        inside = ", ".join(text for _, text in parts)
        return f"({inside})" if isinstance(value, tuple) else f"[{inside}]"
    if isinstance(value, Foreign):
        return with_article(value.type)
    return str(value)[:200]


def _float(x: float) -> str:
    if x != x or x in (math.inf, -math.inf):
        return {math.inf: "inf", -math.inf: "-inf"}.get(x, "nan")
    if x == 0 or 1e-3 <= abs(x) < 1e6:
        text = f"{x:.4f}".rstrip("0")
        return text + "0" if text.endswith(".") else text
    return f"{x:.3g}"


def _rows(tensor: torch.Tensor) -> str:
    """Nested lists, one innermost row a line, columns aligned."""
    if tensor.dim() == 0:
        item = tensor.item()
        return _float(item) if isinstance(item, float) else str(item)
    cells = [_float(v) if isinstance(v, float) else str(v) for v in tensor.flatten().tolist()]
    width = max(map(len, cells), default=0)
    cells = iter(cell.rjust(width) for cell in cells)

    def build(shape, indent):
        if len(shape) == 1:
            row = [next(cells) for _ in range(shape[0])]
            lines = [", ".join(row[i:i + WIDE]) for i in range(0, len(row), WIDE)]
            return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
        return "[" + (",\n" + " " * (indent + 1)).join(build(shape[1:], indent + 1) for _ in range(shape[0])) + "]"
    return build(tuple(tensor.shape), 0)
