"""Values of a run: freezing them into plain data, copying inputs, telling whether two are the same."""
import inspect
import numbers
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from .results import Foreign


def freeze(value: Any, depth: int = 0) -> Any:
    """A copy of plain tensors, numbers, strings, None, tuples, lists, dicts; all else becomes Foreign."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value).__module__ == "numpy" and isinstance(value, (numbers.Integral, numbers.Real)):
        return value.item()
    if type(value).__module__ in ("fractions", "decimal"):
        return int(value) if value % 1 == 0 else float(value)
    if isinstance(value, torch.Tensor):
        kind = ("nested" if value.is_nested else "quantized" if value.is_quantized
                else "meta" if value.is_meta else str(value.layout).removeprefix("torch."))
        try:
            return value.detach().cpu().clone() if kind == "strided" else Foreign(f"{kind} tensor")
        except Exception as error:
            return Foreign(type(value).__name__, str(error))
    if depth < 6:
        if isinstance(value, tuple):
            return tuple(freeze(v, depth + 1) for v in value)
        if type(value) is list:
            return [freeze(v, depth + 1) for v in value]
        if type(value) is dict and all(type(k) in (str, int, bool, float) for k in value):
            return {k: freeze(v, depth + 1) for k, v in value.items()}
    if inspect.iscoroutine(value) or inspect.isgenerator(value):
        value.close()                                # otherwise Python warns that it was never awaited
    kind = type(value)
    name = (kind.__name__ if kind.__module__ in ("builtins", "exercise", "__main__")
            else f"{kind.__module__}.{kind.__name__}")
    return Foreign(name)


def copied(value: Any) -> Any:
    """A deep copy of a case's inputs."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, (tuple, list)):
        return type(value)(copied(v) for v in value)
    if isinstance(value, dict):
        return {k: copied(v) for k, v in value.items()}
    return value


def same(a: Any, b: Any) -> bool:
    """Bit for bit the same, NaN included."""
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        if (not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)) or a.shape != b.shape
            or a.dtype != b.dtype):
            return False
        a, b = a.detach(), b.detach()
        return bool(((a == b) | ((a != a) & (b != b))).all())
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and (a == b or (a != a and b != b))


def storages(value: Any) -> set[int]:
    """Addresses of the memory that its tensors use."""
    return {t.untyped_storage().data_ptr() for t in tree_leaves(value)
            if isinstance(t, torch.Tensor) and t.layout == torch.strided and t.numel()}


def has_nan(value: Any) -> bool:
    """Whether a tensor of the value holds NaN, or a number is NaN, as where somebody fills with it."""
    leaves = tree_leaves(value)
    return any(isinstance(t, float) and t != t or isinstance(t, torch.Tensor)
               and (t.is_floating_point() or t.is_complex()) and bool(torch.isnan(t).any()) for t in leaves)
