"""A loaded build: its kernels' entries, its constants, its `__device__` and `__constant__` variables."""
import ctypes
import weakref
from dataclasses import dataclass
from pathlib import Path

from .. import gpu
from ..arguments import arrays
from ..arguments import ArgumentError, Parameter, parse_parameters, parse_type
from ..text.signature import KernelText


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


@dataclass
class Entry:
    """One kernel in one library."""
    call: object                 # the C function
    parameters: list[Parameter]
    launch_bounds: int
    library: ctypes.CDLL


@dataclass(eq=False)
class Library:
    """A loaded build: its entries by (kernel, template arguments), its constants, its globals.

    Modules of the same text share one library in memory, but each has values of its own for the globals."""
    path: Path
    handle: ctypes.CDLL
    entries: dict[tuple[KernelText, str], Entry]
    constants: dict[str, int | float | bool]
    symbols: dict[str, TableRow]
    values: dict[str, bytes]     # of the globals, while another module's are in memory

    def snapshot(self) -> dict[str, bytes]:
        """What the globals hold now for this module."""
        if _in_memory.get(self.path) is not self:
            return self.values
        return {name: ctypes.string_at(row.address, row.bytes) for name, row in self.symbols.items()}

    def in_memory(self) -> "Library":
        """The one of this path whose values are in memory."""
        return held(self.path) or self

    def hold(self) -> None:
        """Puts this module's values of the globals into memory."""
        other = _in_memory.get(self.path)
        if other is not self:
            if other is not None:
                other.values = other.snapshot()
            _in_memory[self.path] = self
            self.restore(self.values)

    def restore(self, values: dict[str, bytes]) -> None:
        for name, row in self.symbols.items():
            # a const one is in read-only memory
            if len(values.get(name, b"")) == row.bytes and not row.whole:
                ctypes.memmove(row.address, values[name], row.bytes)


_in_memory: weakref.WeakValueDictionary[Path, Library] = weakref.WeakValueDictionary()
_initial: dict[Path, dict[str, bytes]] = {}


def held(path: Path) -> Library | None:
    """The library of a build whose variables are in memory; None if it has no variables."""
    return _in_memory.get(path)


CPU_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def load_library(path: Path, wanted: list[tuple[KernelText, str]], prototype=CPU_ENTRY) -> Library:
    handle = ctypes.CDLL(str(path))
    made = Library(path, handle, {}, {}, {}, {})
    names: list[str] | None = None
    for row in read_table(handle):
        if row.kind == "names":
            names = row.name.split("|")[1:]
        elif row.kind == "kernel":
            kernel, instance = wanted[int(row.name)]
            parameters = parse_parameters(kernel.parameters if names is None else names, row.types)
            names = None
            made.entries[kernel, instance] = Entry(prototype(row.entry), parameters, row.whole, handle)
        elif row.kind == "symbol":
            made.symbols[row.name] = row
        elif row.kind:
            made.constants[row.name] = {"int": int, "bool": bool}.get(row.kind, float)(
                row.real if row.kind == "float" else row.whole)
    if prototype is CPU_ENTRY and made.symbols:
        if path not in _initial:
            _in_memory[path] = made
            _initial[path] = made.snapshot()
        made.values = _initial[path]
    return made


class Globals:
    """A module's `__device__` and `__constant__` variables: `module.globals["filter"] = weights`."""

    def __init__(self, module):
        self._module = module
        self.given: dict[str, bytes] = {}       # for a build that comes later

    def __getitem__(self, name: str):
        """A copy of the variable as the last launch on the CPU left it: a tensor; without torch an array."""
        row = self._row(name)
        return arrays.from_bytes(ctypes.string_at(row.address, row.bytes), parse_type(name, row.types).dtype)

    def __setitem__(self, name: str, value) -> None:
        """Sets it from its first element on; on the GPU too, if the module was used there."""
        row = self._row(name)
        if row.whole:
            raise ArgumentError(f"`{name}` is const, and cannot be set")
        raw = arrays.to_bytes(value, parse_type(name, row.types).dtype)
        if len(raw) > row.bytes:
            raise ArgumentError(f"`{name}` holds {row.bytes} bytes, got {len(raw)}")
        ctypes.memmove(row.address, raw, len(raw))
        self.given[name] = raw
        for key, library in self._module._libraries.items():
            if key[0] == "gpu" and name in library.symbols:
                gpu.write_symbol(library, name, raw, key[-1])

    def __iter__(self):
        return iter(self._module._current().symbols)

    def _row(self, name: str) -> TableRow:
        symbols = self._module._current().symbols
        if name not in symbols:
            raise ArgumentError(f"{self._module.name} has no __device__ or __constant__ variable `{name}`; "
                                f"it has: {', '.join(symbols) or 'none'}")
        return symbols[name]
