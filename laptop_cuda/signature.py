"""What a kernel takes: its parameters as the source names them and as the compiler types them, and the check
of a call's arguments against them. Also the generated end of every source, the table that names its kernels.

Types come from the compiler (`laptop_entries.h` has it spell them), so that a `typedef`, a macro or a template
parameter is seen through; names come from the text.
"""
import ctypes
import operator
import re
import struct
from dataclasses import dataclass, replace

import torch

from .tokens import Function, Outline, match_angle, match_forward, outline, split_commas


class ArgumentError(TypeError, ValueError):
    """A launch whose arguments do not fit the kernel; the message names the parameter."""

    def _render_traceback_(self) -> list[str]:
        return [f"ArgumentError: {self}"]


@dataclass(frozen=True, eq=False)
class KernelText:
    """A `__global__` function as it stands in the source."""
    name: str                          # with its namespace
    parameters: tuple[str, ...]        # their names
    types: tuple[str, ...]             # their types, as text
    template: tuple[str, ...]          # "typename T", "int N = 32"
    bounds: str                        # the first argument of __launch_bounds__, or ""
    conditions: tuple[tuple[str, ...], ...]
    function: Function

    @property
    def required(self) -> int:
        """How many template arguments have no default."""
        return sum("=" not in t and "..." not in t for t in self.template)


@dataclass(frozen=True)
class Parameter:
    name: str
    kind: str          # "pointer" or "value"
    dtype: str         # of the value or the pointee, as torch names it: float32; "void", "struct" where torch has none
    itemsize: int      # bytes of the value or the pointee
    const: bool        # a pointer to const
    type: str          # as C++ spells it: "const float*"
    category: str      # of the value or the pointee: f i u b v s p
    lanes: int = 1     # 4 for a float4


def kernels(source: Outline) -> list[KernelText]:
    """The kernels of a file, in order."""
    found = [_kernel_text(source, f) for f in source.functions if "__global__" in f.qualifiers and not f.member
             and not (f.template and f.template[1] == f.template[0] + 1)]     # template <>: a specialisation
    return found + _from_macros(source)


def hosts(source: Outline) -> list[KernelText]:
    """The host functions of a file that could be called: no templates, no members."""
    return [_kernel_text(source, f) for f in source.functions
            if not f.qualifiers and not f.member and not f.template]


def _kernel_text(source: Outline, function: Function) -> KernelText:
    names, types = _parameters(source, function)
    template, bounds = (), ""
    if function.template:
        first, last = function.template
        template = tuple(source.source(a, b - 1) for a, b in split_commas(source.tokens, first + 1, last))
    if function.bounds:
        first, last = function.bounds
        begin, end = split_commas(source.tokens, first + 1, last)[0]
        bounds = source.source(begin, end - 1)
    name = f"{function.namespace}::{function.name}" if function.namespace else function.name
    return KernelText(name, names, types, template, bounds, function.conditions, function)


def _from_macros(source: Outline) -> list[KernelText]:
    """Kernels that a macro of the file writes: `#define UNARY(name) __global__ void name##_kernel(...) {...}`."""
    macros = {}
    for token in source.tokens:
        define = re.match(r"#\s*define\s+(\w+)\(([^)]*)\)(.*\b__global__\b.*)$", token.text, re.DOTALL)
        if token.kind == "directive" and define:
            macros[define.group(1)] = [p.strip() for p in define.group(2).split(",")], define.group(3)
    found = []
    for i, token in enumerate(source.tokens[:-1]):
        space = source.namespace[i]
        if token.text in macros and space is not None and source.tokens[i + 1].text == "(":
            names, body = macros[token.text]
            last = match_forward(source.tokens, i + 1)
            given = [source.source(a, b - 1) for a, b in split_commas(source.tokens, i + 2, last)]
            body = body.replace("\\\n", " ")
            for name, value in zip(names, given):
                body = re.sub(rf"\b{name}\b", lambda _: value, body)
            body = re.sub(r"\s*##\s*", "", body)
            for kernel in kernels(outline(f"namespace {space} {{ {body} }}" if space else body)):
                found.append(replace(kernel, conditions=source.conditions[i]))
    return found


def _parameters(source: Outline, function: Function) -> tuple[tuple[str, ...], tuple[str, ...]]:
    names, types = [], []
    tokens = source.tokens
    for begin, end in split_commas(tokens, function.parameters[0] + 1, function.parameters[1]):
        if end - begin == 1 and tokens[begin].text == "void":
            break
        found, i = None, begin
        while i < end and tokens[i].text not in ("=", "["):
            if tokens[i].kind == "name" and tokens[i].text not in ("const", "__restrict__", "volatile"):
                found = i if i > begin else found
            elif tokens[i].text == "<":
                i = match_angle(tokens, i) or i
            elif tokens[i].text == "(":
                inner = next((n for n in range(i, match_forward(tokens, i)) if tokens[n].kind == "name"), None)
                found = inner if inner is not None else found
                break
            i += 1
        names.append(tokens[found].text if found is not None else f"parameter {len(names) + 1}")
        types.append(source.source(begin, (found if found is not None else end) - 1))
    return tuple(names), tuple(types)


# ---- the generated end of a source

def constants(source: Outline) -> list[tuple[str, str, tuple]]:
    """(name, expression, conditions) of the integer and floating constants at namespace scope."""
    found, tokens = {}, source.tokens
    known: set[str] = set()
    for i, token in enumerate(tokens):
        space = source.namespace[i]
        if token.kind == "directive":
            define = re.match(r"#\s*define\s+(\w+)[ \t]+(\S.*?)\s*(?://.*)?$", token.text)
            if define and space is not None:
                numbers = r"\b0[xX][\da-fA-F]+|\b[\d.]+(?:[eE][+-]?\d+)?[fFuUlL]*"
                words = set(re.findall(r"[A-Za-z_]\w*", re.sub(numbers, "", define.group(2))))
                if words <= known and re.fullmatch(r"[\w\s.+\-*/%()<>]+", define.group(2)):
                    known.add(define.group(1))
                    found[define.group(1)] = (define.group(1), define.group(1), ((f"#ifdef {define.group(1)}",),))
        elif space is not None and token.text in ("constexpr", "const") and _starts_declaration(tokens, i):
            near = range(i, min(i + 12, len(tokens)))
            end = next((n for n in near if tokens[n].text in ("=", ";", "{", "(")), None)
            if end and tokens[end].text in ("=", "{") and tokens[end - 1].kind == "name":
                words = {t.text for t in tokens[max(i - 3, 0):end]}
                if words & {"__constant__", "__device__", "*", "[", "&", "template"}:
                    continue
                name = tokens[end - 1].text
                known.add(name)
                found[name] = (name, f"{space}::{name}" if space else name, source.conditions[i])
    return list(found.values())


def _starts_declaration(tokens: list, i: int) -> bool:
    while i and tokens[i - 1].text in ("static", "inline", "__device__", "constexpr", "int", "float", "unsigned"):
        i -= 1
    return i == 0 or tokens[i - 1].text in (";", "{", "}") or tokens[i - 1].kind == "directive"


def symbols(source: Outline) -> list[tuple[str, str, tuple]]:
    """(name, expression, conditions) of the `__constant__` and `__device__` variables at namespace scope."""
    found, tokens = {}, source.tokens
    for i, token in enumerate(tokens):
        space = source.namespace[i]
        if space is None or token.kind != "name" or token.text not in ("__constant__", "__device__", "__managed__"):
            continue
        end = i
        while end < len(tokens) and tokens[end].text not in (";", "=", "[", "{", "("):
            end += 1
        if end < len(tokens) and tokens[end].text != "(" and tokens[end - 1].kind == "name":
            words = {t.text for t in tokens[i:end]}
            if not words & {"extern", "constexpr", "inline", "__shared__", "operator", "struct"}:
                name = tokens[end - 1].text
                found[name] = (name, f"{space}::{name}" if space else name, source.conditions[i])
    return list(found.values())


def guarded(conditions: tuple[tuple[str, ...], ...], text: str) -> str:
    """`text` inside the same #if as the thing it speaks of."""
    for chain in reversed(conditions):
        text = "\n".join(chain) + "\n" + text + "#endif\n"
    return text


# names that the C++ library overloads in the global namespace, so that `&::name` alone is ambiguous
LIBRARY = frozenset(
    "abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh div erf erfc exp exp2 expm1 fabs fdim "
    "floor fma fmax fmin fmod frexp hypot ilogb isfinite isinf isnan isnormal ldexp lgamma llrint llround log log10 "
    "log1p log2 logb lrint lround max min modf nearbyint nextafter pow remainder remquo rint round rsqrt scalbn "
    "signbit sin sinh sqrt tan tanh tgamma trunc".split())


def expression(kernel: KernelText, instance: str, overloaded: bool) -> str:
    """C++ for the address of the kernel; `instance` is its template argument list with the brackets, or ''."""
    if (overloaded or kernel.name in LIBRARY) and not kernel.template:
        return f"static_cast<void (*)({', '.join(kernel.types)})>(&::{kernel.name})"
    return f"&::{kernel.name}{instance}"


def table(sources: list[Outline], wanted: list[tuple[KernelText, str]], entry) -> str:
    """The end of a generated source: entries, then the table of rows.

    `sources` are the file and the files beside it that it includes. `wanted` holds kernels with their template
    arguments; `entry(number, expression)` writes the C function `laptop_entry_<number>`, which differs between
    CPU and GPU.
    """
    names = [k.name for source in sources for k in kernels(source)]
    text, rows = '\n#line 1 "entries"\n', ""
    for number, (kernel, instance) in enumerate(wanted):
        address = expression(kernel, instance, names.count(kernel.name) > 1)
        text += guarded(kernel.conditions, _bounds(kernel, number) + entry(number, address))
        bounds = f"{_qualified(kernel, f'laptop_bounds_{number}')}{instance}()" if kernel.bounds else "0"
        rows += guarded(kernel.conditions, f'{{"kernel", "{number}", (void*)laptop_entry_{number}, '
                                           f"laptop_entries::types({address}), {bounds}, 0.0, nullptr, 0}},\n")
    for name, value, conditions in (c for source in sources for c in constants(source)):
        rows += guarded(conditions, f'laptop_entries::constant("{name}", {value}),\n')
    for name, value, conditions in (s for source in sources for s in symbols(source)):
        kind = f"std::remove_all_extents_t<decltype({value})>"
        rows += guarded(conditions, f'{{"symbol", "{name}", nullptr, laptop_entries::text<{kind}>, '
                                    f"std::is_const<{kind}>::value, 0.0, (void*)&{value}, sizeof({value})}},\n")
    return (text + "static const laptop_entries::Row laptop_rows[] = {\n" + rows
            + "{nullptr, nullptr, nullptr, nullptr, 0, 0.0, nullptr, 0}};\n"
            + "LAPTOP_EXPORT const laptop_entries::Row* laptop_table() { return laptop_rows; }\n")


def _qualified(kernel: KernelText, name: str) -> str:
    space = kernel.function.namespace
    return f"{space}::{name}" if space else name


def _bounds(kernel: KernelText, number: int) -> str:
    """A function for the launch bounds, in the kernel's namespace and over its template parameters."""
    if not kernel.bounds:
        return ""
    template = f"template <{', '.join(kernel.template)}> " if kernel.template else ""
    made = f"{template}constexpr int laptop_bounds_{number}() {{ return (int)({kernel.bounds}); }}"
    space = kernel.function.namespace
    return (f"namespace {space} {{ {made} }}" if space else made) + "\n"


class Row(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_char_p), ("name", ctypes.c_char_p), ("entry", ctypes.c_void_p),
                ("types", ctypes.c_void_p), ("whole", ctypes.c_longlong), ("real", ctypes.c_double),
                ("address", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


@dataclass(frozen=True)
class TableRow:
    kind: str
    name: str
    entry: int
    types: str
    whole: int
    real: float
    address: int
    bytes: int


def read_table(library: ctypes.CDLL) -> list[TableRow]:
    library.laptop_table.restype = ctypes.POINTER(Row)
    rows, position = [], library.laptop_table()
    for row in position:
        if row.kind is None:
            return rows
        types = ctypes.CFUNCTYPE(ctypes.c_char_p)(row.types)().decode() if row.types else ""
        rows.append(TableRow(row.kind.decode(), row.name.decode(), row.entry, types, row.whole, row.real,
                             row.address, row.bytes))


# ---- types

VECTOR = re.compile(r"(float|double|char|uchar|short|ushort|int|uint|long|ulong|longlong|ulonglong)([1234])")
ELEMENT = {"float": "float32", "double": "float64", "char": "int8", "uchar": "uint8", "short": "int16",
           "ushort": "uint16", "int": "int32", "uint": "uint32", "long": "int64", "ulong": "uint64",
           "longlong": "int64", "ulonglong": "uint64"}
CLASSES = {"__half": ("float16", 1), "__half2": ("float16", 2), "__nv_bfloat16": ("bfloat16", 1),
           "__nv_bfloat162": ("bfloat16", 2), "__nv_fp8_e4m3": ("float8_e4m3fn", 1),
           "__nv_fp8_e5m2": ("float8_e5m2", 1), "dim3": ("uint32", 3)}
# tensors that may stand for the pointee besides its own dtype: torch's unsigned types are newcomers
ALSO = {"uint32": ("int32",), "uint64": ("int64",), "uint16": ("int16",), "uint8": ("bool",), "int8": ("uint8",)}


def parse_parameters(kernel: KernelText, types: str) -> list[Parameter]:
    """From the compiler's description, one line a parameter."""
    lines = types.splitlines()
    names = list(kernel.parameters)
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
    return Parameter(name, "pointer" if pointer else "value", dtype, int(size), const == "1", text, category, lanes)


def _tidy(spelled: str) -> str:
    words = {"long unsigned int": "unsigned long", "long int": "long", "long long int": "long long",
             "long long unsigned int": "unsigned long long", "short int": "short",
             "short unsigned int": "unsigned short", "__nv_bfloat16": "__nv_bfloat16", "__half": "half"}
    return words.get(spelled, spelled)


# ---- arguments

def bind(kernel: str, parameters: list[Parameter], arguments: tuple, named: dict) -> list:
    """The arguments in order: tensors (or None) for pointers, packed bytes for values. Checked, all of them."""
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
    if not isinstance(value, torch.Tensor):
        raise ArgumentError(f"{where} needs a tensor, got {_describe(value)}")
    if parameter.category == "p":
        raise ArgumentError(f"{where}: a pointer to pointers cannot be passed; use one tensor and offsets into it")
    got = str(value.dtype).removeprefix("torch.")
    accepted = (parameter.dtype,) + ALSO.get(parameter.dtype, ())
    if parameter.dtype not in ("void", "struct") and got not in accepted:
        raise ArgumentError(f"{where} needs a tensor of {parameter.dtype}, got {got}")
    if value.layout != torch.strided or value.device.type not in ("cpu", "cuda"):
        raise ArgumentError(f"{where} needs a dense tensor on the CPU or a CUDA device, got {value.layout} "
                            f"on {value.device}")
    if not value.is_contiguous() or value.is_conj() or value.is_neg():
        raise ArgumentError(f"{where} needs a contiguous tensor, got shape {tuple(value.shape)} with strides "
                            f"{value.stride()}; pass `.contiguous()`, and copy the result back if the kernel "
                            "writes it")
    return value


def _value(kernel: str, parameter: Parameter, value) -> bytes:
    where = f"{kernel}: parameter `{parameter.name}` ({parameter.type})"
    if isinstance(value, torch.Tensor) and (value.dim() or parameter.category == "s" and parameter.lanes > 1):
        raise ArgumentError(f"{where} needs a number, got a tensor of shape {tuple(value.shape)}")
    if parameter.lanes > 1:
        try:
            parts = [_number(where, parameter.dtype, v) for v in value]
        except TypeError as fault:
            raise ArgumentError(f"{where} needs {parameter.lanes} numbers, got {_describe(value)}") from fault
        if len(parts) != parameter.lanes:
            raise ArgumentError(f"{where} needs {parameter.lanes} numbers, got {len(parts)}")
        return b"".join(parts).ljust(parameter.itemsize, b"\0")
    if parameter.dtype == "struct":
        raw = bytes(value) if isinstance(value, (bytes, bytearray, ctypes.Structure, ctypes.Union)) else None
        if raw is None or len(raw) != parameter.itemsize:
            raise ArgumentError(f"{where} needs {parameter.itemsize} bytes or a ctypes.Structure of that size, "
                                f"got {_describe(value)}")
        return raw
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
    except (TypeError, ValueError, RuntimeError) as fault:
        raise ArgumentError(f"{where} needs a number, got {_describe(value)}") from fault
    if dtype == "float64":
        return struct.pack("d", real)
    if dtype in ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"):
        made = torch.tensor(real, dtype=torch.float64).to(getattr(torch, dtype))
        return bytes(made.reshape(1).view(torch.uint8).tolist())
    raise ArgumentError(f"{where}: values of this type cannot be passed from Python")


def _one_device(kernel: str, parameters: list[Parameter], values: list):
    first = None
    for parameter, value in zip(parameters, values):
        if isinstance(value, torch.Tensor):
            first = first or (parameter, value)
            if value.device != first[1].device:
                raise ArgumentError(f"{kernel}: parameter `{parameter.name}` is on {value.device}, but "
                                    f"`{first[0].name}` is on {first[1].device}")


def _describe(value) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of {str(value.dtype).removeprefix('torch.')}"
    return "None" if value is None else f"{type(value).__name__} {value!r:.40}"
