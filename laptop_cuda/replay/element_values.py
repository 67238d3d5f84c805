"""Bytes as numbers: the values that a recorded access loaded or stored."""
import re

import numpy as np

C_TYPES = {"float": "float32", "double": "float64", "half": "float16", "__half": "float16",
           "__nv_bfloat16": "bfloat16", "int": "int32", "unsigned": "uint32", "unsigned int": "uint32",
           "long": "int64", "unsigned long": "uint64", "long long": "int64", "size_t": "uint64",
           "unsigned long long": "uint64", "short": "int16", "unsigned short": "uint16", "char": "int8",
           "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
           "int8_t": "int8", "uint8_t": "uint8", "int16_t": "int16", "uint16_t": "uint16",
           "int32_t": "int32", "uint32_t": "uint32", "int64_t": "int64", "uint64_t": "uint64",
           **{f"{c}{n}": t for c, t in (("float", "float32"), ("double", "float64"), ("int", "int32"),
                                        ("uint", "uint32")) for n in (2, 3, 4)},
           "half2": "float16", "__half2": "float16", "__nv_bfloat162": "bfloat16"}
GUESS = {1: "uint8", 2: "float16", 4: "float32", 8: "float64", 16: "float32"}


def item_size(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def shared_type(name: str, itemsize: int, texts) -> str:
    """A shared array's element type, as declared; a guess by size where it is one of the source's own."""
    declared = re.compile(rf"__shared__\s+(?:__align__\s*\(\d+\)\s*|alignas\s*\(\d+\)\s*)?"
                          rf"([\w: ]+?)\s+(?:\w+\s*(?:\[[^;]*?\])+\s*,\s*)*{re.escape(name)}\s*[\[;]")
    for text in texts:
        if found := declared.search(text):
            spelled = found.group(1).split("::")[-1].strip()
            if spelled in C_TYPES:
                return C_TYPES[spelled]
    return GUESS.get(itemsize, "uint8")


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
