"""Values as short text for a person, alike on every machine."""
import math
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ..running.results import Foreign, with_article

SMALL = 64          # a tensor with at most so many elements is shown whole
WIDE = 12           # numbers per line; a row of more than two lines is shown by its ends


def dtype_name(tensor: torch.Tensor) -> str:
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
            return f"a tensor of shape {tuple(value.shape)}, {dtype_name(value)}"
        if value.dim() == 0:
            return f"{_rows(value)}  ({dtype_name(value)} scalar)"
        return f"{_rows(value)}  ({dtype_name(value)}, {shape})"
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return _float(value)
    # Python itself refuses to write very long ones
    if isinstance(value, int) and abs(value) >= 10 ** 40:
        return f"{'-' * (value < 0)}10**{math.log10(abs(value)):.0f} or so"
    if isinstance(value, str):
        return repr(value if len(value) < 200 else value[:200] + "...")
    if isinstance(value, (tuple, list, dict)):
        named = value.items() if isinstance(value, dict) else ((f"item {i}", v) for i, v in enumerate(value))
        parts = [(f"{name}: ", show(v, small)) for name, v in named]
        # one part below the other
        if any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(value)):
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
    """Nested lists, one innermost row per line, columns aligned."""
    if tensor.dim() == 0:
        item = tensor.item()
        return _float(item) if isinstance(item, float) else str(item)
    cells = [_float(v) if isinstance(v, float) else str(v) for v in tensor.flatten().tolist()]
    width = max(map(len, cells), default=0)
    cells = iter(cell.rjust(width) for cell in cells)

    def build(shape, indent):
        if len(shape) == 1:
            row = [next(cells) for _ in range(shape[0])]
            if len(row) > 2 * WIDE:
                row[WIDE - 2:-1] = ["..."]
            lines = [", ".join(row[i:i + WIDE]) for i in range(0, len(row), WIDE)]
            return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
        return ("[" + (",\n" + " " * (indent + 1)).join(build(shape[1:], indent + 1) for _ in range(shape[0]))
                + "]")
    return build(tuple(tensor.shape), 0)
