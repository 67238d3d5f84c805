"""Plain data as bytes and back, between the grader and a process that it does not trust.

What can travel: None, booleans, numbers, strings, dtypes, tuples, lists, dicts, tensors, NumPy arrays.
Anything else travels as its type's name and a short text (`Opaque`). Reading never runs anything and never
builds anything but these: every size is checked against the bytes that are there before it is used.

    "WIRE" | length of the header, 4 bytes | header, JSON: the tree | each array's bytes, in its order

This file imports only the standard library, torch and numpy: the grader's child loads it alone."""
# over the guide: the whole format in one file, which the child loads alone
from __future__ import annotations

import json
import math
import numbers
import re
from dataclasses import dataclass
from typing import Any

import torch

MAGIC = b"WIRE"
MAX_BYTES = 256 << 20        # of one message
MAX_HEADER = 8 << 20
MAX_NODES = 200_000
MAX_DEPTH = 32
MAX_DIMS = 16

DTYPES = {
    str(t).removeprefix("torch."): t
    for t in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
              torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool,
              torch.complex64, torch.complex128)}
NUMPY = {"float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32",
         "uint64", "bool", "complex64", "complex128"}


class WireError(ValueError):
    """The bytes are no message, or the value is too large to send."""


@dataclass(frozen=True)
class Opaque:
    """Something that cannot travel: only what it called itself."""
    type: str
    text: str

    def __repr__(self):
        return self.text or f"<{self.type}>"


def pack(value: Any, limit: int = MAX_BYTES) -> bytes:
    """A value as bytes. Raises WireError if it is too large, too deep, or contains itself."""
    writer = _Writer(limit)
    tree = writer.node(value, 0)
    header = json.dumps(tree, separators=(",", ":"), allow_nan=False).encode()
    if len(header) > MAX_HEADER or len(header) + writer.bytes > limit:
        raise WireError(f"the value is larger than {limit >> 20} MiB")
    return b"".join([MAGIC, len(header).to_bytes(4, "little"), header, *writer.blobs])


def unpack(message: bytes) -> Any:
    """The value back. Raises WireError for anything that `pack` would not have written."""
    if len(message) < 8 or message[:4] != MAGIC:
        raise WireError("not a message")
    end = 8 + int.from_bytes(message[4:8], "little")
    if end > len(message) or end > 8 + MAX_HEADER:
        raise WireError("the header is longer than the message")
    try:
        tree = json.loads(message[8:end],
                          parse_int=_no_number, parse_float=_no_number, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the header is not JSON: {type(error).__name__}") from None
    reader = _Reader(memoryview(message), end)
    value = reader.value(tree, 0)
    if reader.at != len(message):
        raise WireError("bytes are left over")
    return value


def _no_number(text: str):
    raise ValueError("numbers travel as text")


LONGEST_TEXT = 20_000       # characters


def text_of(value: str, limit: int = LONGEST_TEXT) -> str:
    """A string from elsewhere that can be encoded, printed and stored: no lone surrogates, not endless."""
    short = value if len(value) <= limit else value[:limit] + " ..."
    return short.encode("utf-8", "replace").decode()


class _Writer:
    def __init__(self, limit: int):
        self.limit, self.bytes, self.nodes, self.blobs = limit, 0, 0, []

    def node(self, x: Any, depth: int):
        self.nodes += 1
        if depth > MAX_DEPTH:
            raise WireError(f"the value is nested deeper than {MAX_DEPTH}, or contains itself")
        if self.nodes > MAX_NODES:
            raise WireError(f"the value has more than {MAX_NODES} parts")
        if x is None or x is True or x is False:
            return x
        if isinstance(x, str):
            if len(x) > MAX_HEADER:
                raise WireError("the text is too long")
            return ["s", str.__str__(x)]
        if isinstance(x, torch.Tensor):
            return self.tensor(x)
        if isinstance(x, torch.dtype):
            return ["y", str(x)]
        if type(x).__module__ == "numpy" and type(x).__name__ == "ndarray":
            return self.ndarray(x)
        if isinstance(x, numbers.Integral):
            if int(x).bit_length() > 4096:
                raise WireError("the integer is too long")
            return ["i", str(int(x))]
        if isinstance(x, numbers.Real):
            return ["f", float(x).hex()]
        if isinstance(x, complex):
            return ["c", x.real.hex(), x.imag.hex()]
        if isinstance(x, tuple):
            return ["t", [self.node(part, depth + 1) for part in x]]
        if isinstance(x, list):
            return ["l", [self.node(part, depth + 1) for part in x]]
        if isinstance(x, dict):
            return ["d", [[self.node(k, depth + 1), self.node(v, depth + 1)] for k, v in x.items()]]
        return self.opaque(x)

    def tensor(self, x: torch.Tensor):
        dtype = str(x.dtype).removeprefix("torch.")
        if x.layout is not torch.strided or x.device.type == "meta" or x.is_quantized or dtype not in DTYPES:
            return self.opaque(x)
        self.room(x.numel() * x.element_size())
        flat = x.detach().as_subclass(
            torch.Tensor).resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
        self.blobs.append(flat.view(torch.uint8).numpy().tobytes())
        return ["T", dtype, [str(n) for n in x.shape], x.requires_grad or None]

    def ndarray(self, x):
        if x.dtype.name not in NUMPY:
            return self.opaque(x)
        self.room(x.nbytes)
        self.blobs.append(x.astype(x.dtype.newbyteorder("<")).tobytes())
        return ["N", x.dtype.name, [str(n) for n in x.shape]]

    def room(self, size: int):
        self.bytes += size
        if self.bytes > self.limit:
            raise WireError(f"the value is larger than {self.limit >> 20} MiB")

    def opaque(self, x: Any):
        if isinstance(x, Opaque):
            return ["o", x.type, x.text]
        try:
            text = repr(x)[:500]
        except BaseException as error:      # a student's __repr__
            text = f"<{type(x).__name__}, whose repr raises {type(error).__name__}>"
        return ["o", type(x).__name__[:200], text]


class _Reader:
    def __init__(self, message: memoryview, at: int):
        self.message, self.at, self.nodes = message, at, 0

    def value(self, node: Any, depth: int):
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise WireError("the value has too many parts")
        if node is None or node is True or node is False:
            return node
        if not isinstance(node, list) or not node or not isinstance(node[0], str):
            raise WireError("a part of the value has no kind")
        read = _READ.get(node[0])
        if read is None:
            raise WireError("a part of the value is of an unknown kind")
        arity, method = read
        if len(node) != arity + 1:
            raise WireError("a part of the value is incomplete")
        return method(self, depth, *node[1:])

    def text(self, depth, text):
        if not isinstance(text, str):
            raise WireError("text is not text")
        return text.encode("utf-8", "replace").decode()

    def integer(self, depth, text):
        if not isinstance(text, str) or len(text) > 1300 or not re.fullmatch(r"-?[0-9]+", text):
            raise WireError("not an integer")
        return int(text)

    def real(self, depth, text):
        if not isinstance(text, str) or len(text) > 40:
            raise WireError("not a number")
        try:
            return float.fromhex(text)
        except (ValueError, OverflowError):
            raise WireError("not a number") from None

    def complex(self, depth, real, imag):
        return complex(self.real(depth, real), self.real(depth, imag))

    def dtype(self, depth, text):
        dtype = getattr(torch, text.removeprefix("torch."), None) if isinstance(text, str) else None
        if not isinstance(dtype, torch.dtype):
            raise WireError("not a dtype")
        return dtype

    def parts(self, depth, parts):
        if not isinstance(parts, list):
            raise WireError("parts are not a list")
        return [self.value(part, depth + 1) for part in parts]

    def tuple(self, depth, parts):
        return tuple(self.parts(depth, parts))

    def dict(self, depth, pairs):
        if not isinstance(pairs, list) or not all(isinstance(p, list) and len(p) == 2 for p in pairs):
            raise WireError("a dict is not pairs")
        try:
            return {self.value(k, depth + 1): self.value(v, depth + 1) for k, v in pairs}
        except TypeError:
            raise WireError("a dict's key is no key") from None

    def opaque(self, depth, kind, text):
        return Opaque(text_of(self.text(depth, kind), 200), text_of(self.text(depth, text), 500))

    def blob(self, depth, dtype, shape, known) -> tuple[str, list[int], bytearray]:
        if not isinstance(dtype, str) or dtype not in known:
            raise WireError("unknown dtype")
        if not isinstance(shape, list) or len(shape) > MAX_DIMS:
            raise WireError("not a shape")
        sizes = [self.integer(depth, n) for n in shape]
        if any(n < 0 or n > MAX_BYTES for n in sizes):
            raise WireError("not a shape")
        size = math.prod(sizes) * DTYPES[dtype].itemsize
        if size > len(self.message) - self.at:
            raise WireError("an array is larger than the message")
        data = bytearray(self.message[self.at:self.at + size])
        self.at += size
        return dtype, sizes, data

    def tensor(self, depth, dtype, shape, requires_grad):
        dtype, sizes, data = self.blob(depth, dtype, shape, DTYPES)
        if not data:
            x = torch.empty(sizes, dtype=DTYPES[dtype])
        elif dtype == "bool":                # any byte but 0 and 1 would be no boolean
            x = (torch.frombuffer(data, dtype=torch.uint8) != 0).reshape(sizes)
        else:
            x = torch.frombuffer(data, dtype=DTYPES[dtype]).reshape(sizes)
        return x.requires_grad_() if requires_grad is True and (x.is_floating_point()
                                                                or x.is_complex()) else x

    def ndarray(self, depth, dtype, shape):
        import numpy
        dtype, sizes, data = self.blob(depth, dtype, shape, NUMPY)
        if dtype == "bool":
            return (numpy.frombuffer(data, dtype="uint8") != 0).reshape(sizes)
        return numpy.frombuffer(data, dtype=numpy.dtype(dtype).newbyteorder("<")).reshape(sizes).astype(dtype)


_READ = {"s": (1, _Reader.text), "i": (1, _Reader.integer), "f": (1, _Reader.real), "c": (2, _Reader.complex),
         "y": (1, _Reader.dtype), "t": (1, _Reader.tuple), "l": (1, _Reader.parts), "d": (1, _Reader.dict),
         "o": (2, _Reader.opaque), "T": (3, _Reader.tensor), "N": (2, _Reader.ndarray)}
