"""Bytes as numbers: the values that a recorded access loaded or stored."""
import numpy as np

from ..text.shared_types import declared

GUESS = {1: "uint8", 2: "float16", 4: "float32", 8: "float64", 16: "float32"}


def item_size(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def shared_type(name: str, itemsize: int, texts) -> str:
    """A shared array's element type, as declared; a guess by size where it is one of the source's own."""
    return declared(name, texts) or GUESS.get(itemsize, "uint8")


def value(raw: bytes, size: int, dtype: str):
    """A number, or a list of them where the access was wider than an element; None for unknown types."""
    if dtype == "bfloat16" and size >= 2:
        halves = np.frombuffer(raw[:size // 2 * 2], np.uint16)
        found = (halves.astype(np.uint32) << 16).view(np.float32)
    else:
        try:
            kind = np.dtype(dtype)
        except TypeError:
            return None
        if size % kind.itemsize:
            return None
        found = np.frombuffer(raw[:size], kind)
    return found[0].item() if len(found) == 1 else found.tolist()
