"""Addresses inside a value that a kernel gets: torch's tensor accessors, structs with pointers.

A traced launch works on copies of its arrays, so it must know which bytes of a value are the address of one."""
import re
import struct

from . import arrays

# torch's accessor is an address, then the sizes, then the strides, both in elements
ACCESSOR = re.compile(r"\bGenericPackedTensorAccessor<(?P<element>[\w: ]+), (?P<rank>\d+)")
ELEMENTS = {"float": "float32", "double": "float64", "__half": "float16", "__nv_bfloat16": "bfloat16",
            "c10::Half": "float16", "c10::BFloat16": "bfloat16", "bool": "bool", "char": "int8",
            "signed char": "int8", "unsigned char": "uint8", "short": "int16", "int": "int32",
            "long": "int64", "long int": "int64", "long long": "int64", "long long int": "int64"}
POINTER = 8


class Held(bytes):
    """The bytes of a value, and the arrays whose addresses are in it."""
    targets: list | None = None          # None: any tensor that the program has


def held(raw: bytes, targets: list | None) -> Held:
    made = Held(raw)
    made.targets = targets
    return made


def accessor(parameter, value) -> tuple[Held | None, str]:
    """The bytes of a tensor accessor for an array, or what is wrong with it; neither if it is no accessor."""
    found = ACCESSOR.search(parameter.type)
    if not found:
        return None, ""
    rank, dtype = int(found["rank"]), ELEMENTS.get(found["element"].removeprefix("const "), "")
    if not arrays.is_array(value) or value.ndim != rank or arrays.dtype_of(value) != dtype:
        got = f"{value.ndim}-dimensional {arrays.dtype_of(value)}" if arrays.is_array(value) else repr(value)
        return None, f"needs a {rank}-dimensional {arrays.noun()} of {dtype}, got {got:.40}"
    if not arrays.contiguous(value):
        return None, f"needs a contiguous {arrays.noun()}"
    shape = tuple(value.shape)
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    index = "i" if (parameter.itemsize - POINTER) // (2 * rank) == 4 else "q"
    raw = struct.pack(f"=Q{2 * rank}{index}", arrays.address(value) or 0, *shape, *strides)
    return held(raw, [value]), ""


def words(value: bytes) -> list[tuple[int, int]]:
    """(place, number) of each word of a value that may be an address."""
    whole = len(value) // POINTER * POINTER
    return [(POINTER * i, word) for i, (word,) in enumerate(struct.iter_unpack("=Q", value[:whole]))]
