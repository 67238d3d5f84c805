"""Comparing an answer with the expected one, in words."""
import math
from typing import Any, Callable

import torch

from ..running.results import Foreign, with_article
from .show import a_value, dtype_name, show, type_name


def close(atol: float = 1e-5, rtol: float = 1e-4, dtype: bool | str = True) -> Callable:
    """The same structure and shapes, and values within atol + rtol * |expected|. `dtype`: True, the same
    dtype; "kind", one of the same kind (any integers, any floats); False, any."""
    def compare(got, want, case=None) -> str | None:
        return difference(got, want, atol, rtol, dtype)
    return compare


def exact(dtype: bool | str = True) -> Callable:
    """The same structure, shapes, dtypes and values, bit for bit."""
    return close(atol=0.0, rtol=0.0, dtype=dtype)


def number(tolerance: float = 0.0, rtol: float = 0.0) -> Callable:
    """A number or a choice that a person typed: 4 and 4.0 are the same; so is a tensor with one element."""
    def compare(got, want, case=None) -> str | None:
        if isinstance(got, torch.Tensor) and got.numel() == 1:
            got = got.item()
        if isinstance(want, str):
            return _letters(got, want)
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


def _letters(got: Any, want: str) -> str | None:
    """A choice of one letter or several; `want` in alphabetical order means that the order does not count."""
    if not isinstance(got, str):
        wanted = ('one of the letters in quotes, such as "a"' if len(want) == 1
                  else 'the letters in quotes, such as "abc"')
        return f"type {wanted}; you gave {with_article(type_name(got))}"
    if len(want) == 1 and len(got.strip()) > 1:
        return f"type one letter in quotes, such as \"a\"; you gave {show(got)}"
    letters, wanted = (list(filter(str.isalnum, text.lower())) for text in (got, want))
    if wanted == sorted(wanted):
        letters.sort()
    return None if letters == wanted else f"{show(got)} is not the answer"


def _near(got, want, atol: float, rtol: float) -> bool:
    # within any tolerance of infinity only infinity is right
    if isinstance(want, float) and math.isinf(want):
        return got == want
    try:
        return abs(got - want) <= atol + rtol * abs(want)
    except OverflowError:                                # an integer beyond all floats
        return False


def difference(got: Any, want: Any, atol: float, rtol: float, dtype: bool = True,
               where: str = "") -> str | None:
    """None if equal, else a sentence on the first difference. `where` names the part, such as 'item 2: '."""
    if isinstance(want, torch.Tensor):
        if not isinstance(got, torch.Tensor):
            plain = "plain " * (isinstance(got, Foreign) and got.type.lower().endswith("tensor"))
            return f"{where}returns {a_value(got)}, not a {plain}tensor{_advice(got, where)}"
        return _tensors(got, want, atol, rtol, dtype, where)
    if isinstance(want, (tuple, list)):
        if not isinstance(got, (tuple, list)):
            return f"{where}returns {a_value(got)} where {len(want)} values are expected{_advice(got, where)}"
        if len(got) != len(want):
            return f"{where}returns {len(got)} values where {len(want)} are expected"
        parts = (difference(g, w, atol, rtol, dtype, f"{_inside(where)}item {i}: ")
                 for i, (g, w) in enumerate(zip(got, want)))
        return next(filter(None, parts), None)
    if isinstance(want, dict):
        if not isinstance(got, dict):
            return f"{where}returns {a_value(got)} where a dict is expected{_advice(got, where)}"
        if got.keys() != want.keys():
            return f"{where}has the keys {', '.join(map(str, got))}; expected {', '.join(map(str, want))}"
        parts = (difference(got[k], want[k], atol, rtol, dtype, f"{_inside(where)}{k}: ") for k in want)
        return next(filter(None, parts), None)
    if isinstance(got, torch.Tensor) and not got.dim():
        got = got.item()                                 # 3 and tensor(3) are one number
    if isinstance(want, bool) or want is None or isinstance(want, str):
        same = type(got) is type(want) and got == want
        return (None if same else f"{where}is {show(got)}, expected "
                f"{show(want)}{_advice(got, where) if want is not None else ''}")
    if isinstance(got, bool) or not isinstance(got, (int, float)):
        return f"{where}is {a_value(got)}, expected the number {show(want)}{_advice(got, where)}"
    if isinstance(want, int) and isinstance(got, float):
        return f"{where}is the float {show(got)}, expected the integer {want}"
    equal = got == want or (got != got and want != want) or _near(got, want, atol, rtol)
    return None if equal else f"{where}is {show(got)}, expected {show(want)}"


def _inside(where: str) -> str:
    return where and f"{where.removesuffix(': ')}, "


def _tensors(got, want, atol, rtol, dtype, where) -> str | None:
    if got.shape != want.shape:
        hint = ""
        if got.dim() != want.dim() and [s for s in got.shape if s != 1] == [s for s in want.shape if s != 1]:
            hint = ": a dimension of size 1 too many or too few"
        elif got.numel() == want.numel():
            hint = ": the right number of elements, in another arrangement"
        return f"{where}has shape {tuple(got.shape)}, expected {tuple(want.shape)}{hint}"
    if dtype and got.dtype != want.dtype and not (dtype == "kind" and _kind(got) == _kind(want)):
        return f"{where}has dtype {dtype_name(got)}, expected {dtype_name(want)}"
    wrong = _wrong_elements(got, want, atol, rtol)
    if not wrong.any():
        return None
    index = tuple(wrong.nonzero()[0].tolist())
    at = f"at [{', '.join(map(str, index))}] " if index else ""
    return (f"{where}{at}is {show(got[index].item())}, expected {show(want[index].item())}; "
            f"{int(wrong.sum())} of {wrong.numel()} elements differ")


def _wrong_elements(got: torch.Tensor, want: torch.Tensor, atol: float, rtol: float) -> torch.Tensor:
    """Which elements differ: where a NaN is on one side only, and all that differ from infinity."""
    if _kind(got) == _kind(want) and not (want.is_floating_point() or want.is_complex()):
        return got != want
    g, w = (t.to(torch.complex128 if t.is_complex() else torch.float64) for t in (got, want))
    equal = (g == w) | (torch.isnan(g) & torch.isnan(w))
    return ~(equal | (torch.isfinite(w) & ((g - w).abs() <= atol + rtol * w.abs())))


def _kind(tensor: torch.Tensor) -> str:
    return ("complex" if tensor.is_complex() else "float" if tensor.is_floating_point() else
            "bool" if tensor.dtype == torch.bool else "integer")


def compare_outputs(compare: Callable, names: list[str] | None = None) -> Callable:
    """A comparison of a kernel's outputs, one by one, from one of a single value."""
    def outputs(got, want, case) -> str | None:
        for i, (g, w) in enumerate(zip(got, want)):
            if told := compare(g, w, case):
                return (f"{names[i] if names else f'output {i + 1}'}: " if len(want) > 1 else "") + told
        return None if len(got) == len(want) else f"has {len(got)} outputs, expected {len(want)}"
    return outputs


def same_form(got: Any, want: Any) -> bool:
    """Whether a value has the structure and the shapes of the expected one."""
    if isinstance(want, torch.Tensor):
        return isinstance(got, torch.Tensor) and got.shape == want.shape
    if isinstance(want, (tuple, list)):
        return isinstance(got, (tuple, list)) and len(got) == len(want) and all(map(same_form, got, want))
    if isinstance(want, dict):
        return (isinstance(got, dict) and got.keys() == want.keys()
                and all(same_form(got[k], want[k]) for k in want))
    return isinstance(got, type(want)) or isinstance(got, (int, float)) and isinstance(want, (int, float))


def _advice(got, where: str = "") -> str:
    if got is None:
        return "" if "item" in where else ". Does every path reach a `return`?"      # what holds the item was returned
    if isinstance(got, Foreign) and got.type.startswith("numpy"):
        return ". A NumPy array does not know about gradients or devices: stay in torch"
    if isinstance(got, Foreign) and got.type in ("generator", "coroutine"):
        return ". Use `return`, not `yield` or `async`"
    if isinstance(got, Foreign) and got.type in ("range", "zip", "map", "filter", "list_reverseiterator"):
        return ". Make a list of it: `list(...)`"
    return ""
