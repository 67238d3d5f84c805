"""Bytes as numbers: the values that a recorded access loaded or stored."""
import numpy as np

from ..text.shared_types import declared

GUESS = {1: "uint8", 2: "float16", 4: "float32", 8: "float64", 16: "float32"}


def item_size(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def shared_type(name: str, itemsize: int, texts) -> str:
    """A shared array's element type, as declared; a guess by size where it is one of the source's own."""
    return declared(name, texts) or GUESS.get(itemsize, "uint8")


def values(raw: np.ndarray, size: int, dtype: str) -> list:
    """Of accesses of one size, a row of bytes each: a number, or a list where it is wider than an element; None for unknown types."""
    half = dtype == "bfloat16"
    try:
        found = np.ascontiguousarray(raw[:, :size]).view("u2" if half else dtype)
    except (TypeError, ValueError):             # no type of NumPy's; no whole number of elements
        return [None] * len(raw)
    if half:
        found = (found.astype("u4") << 16).view("f4")
    return (found[:, 0] if found.shape[1] == 1 else found).tolist()
