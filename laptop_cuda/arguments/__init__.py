"""A kernel's parameters as the compiler types them, and the check of a call's arguments against them.

The compiler spells the types (`laptop_entries.h`): typedefs, macros and parameters are seen through."""
# over the guide: parameters and their check belong together
import ctypes
import math
import operator
import re
import struct
from dataclasses import dataclass

import numpy as np

from . import arrays
from .held import accessor, held


class ArgumentError(TypeError, ValueError):
    """A launch whose arguments do not fit the kernel; the message names the parameter."""

    def _render_traceback_(self) -> list[str]:
        return [f"ArgumentError: {self}"]


@dataclass(frozen=True)
class Parameter:
    name: str
    kind: str          # "pointer" or "value"
    # of the value or the pointee, as torch and NumPy name it; "void", "struct" where they have none
    dtype: str
    itemsize: int      # bytes of the value or the pointee
    const: bool        # a pointer to const
    type: str          # as C++ spells it: "const float*"
    category: str      # of the value or the pointee: f i u b v s p
    lanes: int = 1     # 4 for a float4


VECTOR = re.compile(r"(float|double|char|uchar|short|ushort|int|uint|long|ulong|longlong|ulonglong)([1234])")
ELEMENT = {"float": "float32", "double": "float64", "char": "int8", "uchar": "uint8", "short": "int16",
           "ushort": "uint16", "int": "int32", "uint": "uint32", "long": "int64", "ulong": "uint64",
           "longlong": "int64", "ulonglong": "uint64"}
CLASSES = {"__half": ("float16", 1), "__half2": ("float16", 2), "__nv_bfloat16": ("bfloat16", 1),
           "__nv_bfloat162": ("bfloat16", 2), "__nv_fp8_e4m3": ("float8_e4m3fn", 1),
           "__nv_fp8_e5m2": ("float8_e5m2", 1), "Half": ("float16", 1),
           "BFloat16": ("bfloat16", 1), "dim3": ("uint32", 3)}
# dtypes accepted besides the pointee's own: torch's unsigned types are young
ALSO = {"uint32": ("int32",), "uint64": ("int64",), "uint16": ("int16",), "uint8": ("bool",),
        "int8": ("uint8",)}


def parse_parameters(names, types: str) -> list[Parameter]:
    """From the compiler's description, one line per parameter. A parameter pack has one name for several."""
    lines, names = types.splitlines(), list(names)
    names += [f"{names[-1]}[{n}]" if names else f"parameter {n + 1}" for n in range(len(lines) - len(names))]
    return [parse_type(name, line) for name, line in zip(names, lines)]


def parse_type(name: str, line: str) -> Parameter:
    category, size, const, spelled = line.split("|", 3)
    pointer = category.startswith("*")
    category = category.removeprefix("*")
    spelled = re.search(r"\bT = (.*?)(?:;[^\]]*)?\]\s*$", spelled).group(1)
    text = ("const " if const == "1" else "") + _tidy(spelled) + ("*" if pointer else "")
    dtype, lanes = "struct", 1
    bits = int(size) * 8
    if category == "f":
        dtype = f"float{bits}"
    elif category in "iu":
        dtype = ("u" if category == "u" else "") + f"int{bits}"
    elif category == "b":
        dtype = "bool"
    elif category == "v":
        dtype = "void"
    elif spelled.split("::")[-1] in CLASSES:
        dtype, lanes = CLASSES[spelled.split("::")[-1]]
    elif VECTOR.fullmatch(spelled):
        element, count = VECTOR.fullmatch(spelled).groups()
        dtype, lanes = ELEMENT[element], int(count)
    return Parameter(name, "pointer" if pointer else "value", dtype, int(size), const == "1", text, category,
                     lanes)


def _tidy(spelled: str) -> str:
    words = {"long unsigned int": "unsigned long", "long int": "long", "long long int": "long long",
             "long long unsigned int": "unsigned long long", "short int": "short",
             "short unsigned int": "unsigned short", "__nv_bfloat16": "__nv_bfloat16", "__half": "half"}
    return words.get(spelled, spelled)


def bind(kernel: str, parameters: list[Parameter], arguments: tuple, named: dict) -> list:
    """The arguments in order: arrays (or None) for pointers, packed bytes for values. All of them checked."""
    names = [p.name for p in parameters]
    if len(arguments) + len(named) != len(parameters) or not set(named) <= set(names):
        wanted = ", ".join(f"{p.type} {p.name}" for p in parameters)
        got = len(arguments) + len(named)
        if len(arguments) < len(names) and got < len(names):
            which = f"; `{next(n for n in names[len(arguments):] if n not in named)}` is missing"
        else:
            which = "".join(f"; it has no `{n}`" for n in named if n not in names)
        plural = "s" * (len(parameters) != 1)
        raise ArgumentError(f"{kernel} takes {len(parameters)} argument{plural}, got {got}{which}. "
                            f"Its parameters: ({wanted})")
    for name in names[:len(arguments)]:
        if name in named:
            raise ArgumentError(f"{kernel}: parameter `{name}` is given twice")
    given = dict(zip(names, arguments)) | named
    values = [_pointer(kernel, p, given[p.name]) if p.kind == "pointer" else _value(kernel, p, given[p.name])
              for p in parameters]
    _one_device(kernel, parameters, values)
    return values


def _pointer(kernel: str, parameter: Parameter, value):
    where = f"{kernel}: parameter `{parameter.name}` ({parameter.type})"
    if value is None:
        return None
    noun = arrays.noun()
    got = arrays.dtype_of(value) if arrays.is_array(value) else ""
    if parameter.category == "p" and got not in ("int64", "uint64"):
        raise ArgumentError(f"{where} needs the addresses of {noun}s, `laptop_cuda.pointers(a, b, ...)`, "
                            f"got {_describe(value)}")
    if not got:
        raise ArgumentError(f"{where} needs {_a(noun)}, got {_describe(value)}{_in_its_place(value)}")
    _check_elements(where, parameter, value, got)
    if arrays.is_tensor(value):
        _check_dense(where, value)
    elif not value.dtype.isnative:
        raise ArgumentError(f"{where} needs an array in this machine's byte order")
    elif not parameter.const and not value.flags.writeable:
        raise ArgumentError(f"{where}: the array is read-only; pass a copy, or declare the parameter const")
    if not arrays.contiguous(value):
        copy = "np.ascontiguousarray(x)" if isinstance(value, np.ndarray) else ".contiguous()"
        strides = value.strides if isinstance(value, np.ndarray) else value.stride()
        raise ArgumentError(f"{where} needs a contiguous {noun}, got shape {tuple(value.shape)} with strides "
                            f"{strides}; pass `{copy}`, and copy the result back if the kernel writes it")
    return value


def _in_its_place(value) -> str:
    """What to write where a number was given as a pointer."""
    number = value.value if isinstance(value, ctypes.c_void_p) else value
    if not isinstance(number, (int, np.integer)) or isinstance(number, bool):
        return ""
    if number == 0:
        return "; None is a null pointer"
    return ("; pass the array itself, not its address. Where a kernel takes addresses, in a `float**` or "
            "`int64_t*`, pass `laptop_cuda.pointers(a, b, ...)`")


def _check_elements(where: str, parameter: Parameter, value, got: str) -> None:
    accepted = (parameter.dtype,) + ALSO.get(parameter.dtype, ())
    if parameter.dtype not in ("void", "struct") and parameter.category != "p" and got not in accepted:
        raise ArgumentError(f"{where} needs {_a(arrays.noun())} of {parameter.dtype}, got {got}")
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        raise ArgumentError(f"{where} needs an array of numbers, got one of Python objects ({got})")
    if isinstance(value, np.ndarray) and value.dtype.names and parameter.dtype == "struct" \
            and value.itemsize != parameter.itemsize:
        raise ArgumentError(f"{where} needs elements of {parameter.itemsize} bytes, got {value.itemsize}: "
                            f"{got:.60}")


def _check_dense(where: str, value) -> None:
    if value.layout != arrays.torch_in_use().strided or value.device.type not in ("cpu", "cuda"):
        raise ArgumentError(f"{where} needs a dense tensor on the CPU or a CUDA device, got {value.layout} "
                            f"on {value.device}")


def _value(kernel: str, parameter: Parameter, value) -> bytes:
    where = f"{kernel}: parameter `{parameter.name}` ({parameter.type})"
    packed, wrong = accessor(parameter, value)
    if wrong:
        raise ArgumentError(f"{where} {wrong}")
    if packed is not None:
        return packed
    if arrays.is_array(value) and (value.ndim or parameter.category == "s" and parameter.lanes > 1):
        needed = "`laptop_cuda.tensor_map(x, box=...)`" if parameter.type == "CUtensorMap" else "a number"
        raise ArgumentError(f"{where} needs {needed}, got {_a(_noun_of(value))} of shape {tuple(value.shape)}")
    if parameter.lanes > 1:
        try:
            parts = [_number(where, parameter.dtype, v) for v in value]
        except TypeError as fault:
            raise ArgumentError(f"{where} needs {parameter.lanes} numbers, got {_describe(value)}") from fault
        if len(parts) != parameter.lanes:
            raise ArgumentError(f"{where} needs {parameter.lanes} numbers, got {len(parts)}")
        return b"".join(parts).ljust(parameter.itemsize, b"\0")
    if parameter.dtype == "struct":
        held_as = (bytes, bytearray, np.void, ctypes.Structure, ctypes.Union)
        raw = bytes(value) if isinstance(value, held_as) else None
        if raw is None or len(raw) != parameter.itemsize:
            raise ArgumentError(f"{where} needs {parameter.itemsize} bytes or a ctypes.Structure of that "
                                f"size, got {_describe(value)}")
        return held(raw, getattr(value, "targets", None))
    return _number(where, parameter.dtype, value)


INTEGERS = {"int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q",
            "uint64": "Q"}


def _number(where: str, dtype: str, value) -> bytes:
    if isinstance(value, (str, bytes)) or value is None:
        raise ArgumentError(f"{where} needs a number, got {_describe(value)}")
    if dtype in INTEGERS or dtype == "bool":
        if str(getattr(value, "dtype", "")) == "bool" and not getattr(value, "shape", ()):
            value = bool(value)                             # numpy's has no __index__
        try:
            whole = operator.index(value)
        except (TypeError, RuntimeError) as fault:
            raise ArgumentError(f"{where} needs an integer, got {_describe(value)}") from fault
        if dtype == "bool":
            if whole not in (0, 1):
                raise ArgumentError(f"{where} needs True or False, got {value}")
            return struct.pack("?", bool(whole))
        try:
            return struct.pack(INTEGERS[dtype], whole)
        except struct.error as fault:
            raise ArgumentError(f"{where}: {whole} does not fit into {dtype}") from fault
    try:
        real = float(value)
    except OverflowError as fault:           # of a whole number
        raise ArgumentError(f"{where}: the number does not fit into {dtype}") from fault
    except (TypeError, ValueError, RuntimeError) as fault:
        raise ArgumentError(f"{where} needs a number, got {_describe(value)}") from fault
    if dtype in REALS:
        return _packed(REALS[dtype], real)
    if dtype == "bfloat16":
        return _bfloat16(real)
    raise ArgumentError(f"{where}: values of this type cannot be passed from Python")


REALS = {"float64": "d", "float32": "f", "float16": "e"}


def _packed(form: str, real: float) -> bytes:
    try:
        return struct.pack(form, real)
    except OverflowError:                    # beyond the largest number of the type
        return struct.pack(form, math.copysign(math.inf, real))


def _bfloat16(real: float) -> bytes:
    """The upper half of a float, rounded to nearest even."""
    bits = int.from_bytes(_packed("<f", real), "little")
    if math.isnan(real):
        return (bits >> 16 | 0x40).to_bytes(2, "little")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).to_bytes(2, "little")


def _one_device(kernel: str, parameters: list[Parameter], values: list):
    first = None
    for parameter, value in zip(parameters, values):
        if arrays.is_array(value):
            device = arrays.device_of(value)
            first = first or (parameter, device)
            if device != first[1]:
                raise ArgumentError(f"{kernel}: parameter `{parameter.name}` is on {device}, but "
                                    f"`{first[0].name}` is on {first[1]}")


def _noun_of(value) -> str:
    return "tensor" if arrays.is_tensor(value) else "array"


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _describe(value) -> str:
    if arrays.is_array(value):
        return f"{_a(_noun_of(value))} of {arrays.dtype_of(value)}"
    return "None" if value is None else f"{type(value).__name__} {value!r:.40}"
