"""A compiled `.cu`: its kernels as attributes, launched as `module.kernel[grid, block, shared_bytes](...)`.

A module is built twice at most for the CPU, plain and traced, and once for the GPU, each when first needed.
"""
import ctypes
import re
import weakref
from dataclasses import dataclass
from pathlib import Path

import torch

from . import build, gpu, launch, memory, signature
from .rewrite import rewrite, without_libraries
from .sanitize import sanitize
from .signature import ArgumentError, KernelText, Parameter
from .tokens import Outline, outline


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

    Modules of the same text share one library in memory, but each has values of its own for the globals.
    """
    path: Path
    handle: ctypes.CDLL
    entries: dict[tuple[KernelText, str], Entry]
    constants: dict[str, int | float | bool]
    symbols: dict[str, signature.TableRow]
    values: dict[str, bytes]     # of the globals, while another module's are in memory

    def snapshot(self) -> dict[str, bytes]:
        """What the globals hold now for this module."""
        if _in_memory.get(self.path) is not self:
            return self.values
        return {name: ctypes.string_at(row.address, row.bytes) for name, row in self.symbols.items()}

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
            if len(values.get(name, b"")) == row.bytes and not row.whole:     # a const one lies in read-only memory
                ctypes.memmove(row.address, values[name], row.bytes)


_in_memory: weakref.WeakValueDictionary[Path, Library] = weakref.WeakValueDictionary()
_initial: dict[Path, dict[str, bytes]] = {}


class Module:
    """`module.name` is the kernel, or the constant, of that name; `module["name"]` where the module itself has one,
    as for a kernel called `source`."""

    def __init__(self, text: str, name: str, path: Path | None = None, traced: bool | None = None):
        self.source, self.name, self.path = text, name, path
        self._folder = path.parent if path else None
        self._files = files_of(text, self._folder)
        self._texts = [k for file in self._files for k in signature.kernels(file)]
        self._libraries: dict[tuple, Library] = {}
        self._last: Library | None = None
        self.globals = Globals(self)
        # a source that does not compile is an error here and now
        self._library(launch.mode() != "plain" if traced is None else traced)

    @property
    def kernels(self) -> list[str]:
        """Names of the kernels, in the order of the file."""
        return list(dict.fromkeys(k.name for k in self._texts))

    @property
    def constants(self) -> dict[str, int | float | bool]:
        """The file's `#define`d, `constexpr` and `const` numbers."""
        return dict(next(iter(self._libraries.values())).constants)

    def __getattr__(self, name: str):
        if name.startswith("_"):
            raise AttributeError(name)
        if self._named(name):
            return Kernel(self, name)
        if name in self.constants:
            return self.constants[name]
        raise AttributeError(f"{self.name} has no kernel and no constant `{name}`; "
                             f"its kernels: {', '.join(self.kernels)}")

    def __getitem__(self, instance: str) -> "Kernel":
        """`module["tile<64, 32>"]`, an instance of a template kernel."""
        name, arguments = split_instance(instance)
        if not self._named(name):
            raise KeyError(f"{self.name} has no kernel `{name}`; its kernels: {', '.join(self.kernels)}")
        return Kernel(self, name, arguments)

    def host(self, name: str):
        """A host function of the file, to be called with CPU tensors; its `<<<>>>` launches run plain."""
        found = [f for file in self._files for f in signature.hosts(file) if name in (f.name, f.function.name)]
        if not found:
            there = ", ".join(f.name for file in self._files for f in signature.hosts(file))
            raise ArgumentError(f"{self.name} has no host function `{name}`; it has: {there or 'none'}")
        library = self._build(("host", name), [(found[0], "")], False, _host_entry)
        entry = next(iter(library.entries.values()))

        def call(*arguments, **named) -> None:
            if launch.mode() != "plain":
                raise ArgumentError(f"{name}: the launches of a host function are neither counted nor checked; "
                                    "launch its kernels from Python")
            values = signature.bind(name, entry.parameters, arguments, named)
            if any(isinstance(v, torch.Tensor) and v.is_cuda for v in values):
                raise ArgumentError(f"{name}: host functions take CPU tensors")
            cells = gpu.cells(values)
            self._continue_in(library)
            entry.call((ctypes.c_void_p * max(len(cells), 1))(*(ctypes.addressof(c) for c in cells)))
        return call

    def __dir__(self):
        return [*super().__dir__(), *self.kernels, *self.constants]

    def __repr__(self):
        return f"<cuda module {self.name}: {', '.join(self.kernels) or 'no kernels'}>"

    def _named(self, name: str) -> list[KernelText]:
        exact = [k for k in self._texts if k.name == name]
        return exact or [k for k in self._texts if k.function.name == name]

    def _current(self) -> Library:
        self._last = self._last or next(iter(self._libraries.values()))
        self._last.hold()
        return self._last

    def _wanted(self, kernel: KernelText | None, instance: str) -> list[tuple[KernelText, str]]:
        """What goes into one library: an instance of a template alone, or all kernels that are no templates."""
        if kernel is not None and kernel.template:
            return [(kernel, instance)]
        return [(k, "") for k in self._texts if not k.template]

    def _library(self, traced: bool, kernel: KernelText | None = None, instance: str = "") -> Library:
        wanted = self._wanted(kernel, instance)
        key = ("traced" if traced else "plain", kernel if instance else None, instance)
        return self._build(key, wanted, traced, _cpu_entry)

    def _build(self, key: tuple, wanted: list[tuple[KernelText, str]], traced: bool, entry) -> Library:
        if key not in self._libraries:
            text = (f'#include <host_launch.h>\n#include <laptop_entries.h>\n#line 1 "{self.name}"\n'
                    + rewritten(self._files, self._folder) + signature.table(self._files, wanted, entry))
            beside = tuple(f.path.name for f in self._files[1:])
            made = build.library(text, self.name, self.source, self._folder, traced, beside)
            self._libraries[key] = load_library(made, wanted)
        return self._libraries[key]

    def _library_gpu(self, kernel: KernelText, instance: str, device: torch.device) -> Library:
        key = ("gpu", kernel if instance else None, instance, torch.cuda.get_device_capability(device))
        if key not in self._libraries:
            wanted = self._wanted(kernel, instance)
            made = gpu.library(self._files, self.name, self._folder, wanted, device)
            self._libraries[key] = load_library(made, wanted, gpu.PROTOTYPE)
        return self._libraries[key]

    def _continue_in(self, library: Library) -> None:
        """A module's globals are one set of variables, whichever build the next launch runs in."""
        library.hold()
        if self._last is not None and self._last is not library:
            library.restore({name: value for name, value in self._last.snapshot().items()
                             if name in library.symbols and not library.symbols[name].types.startswith("*")})
        self._last = library


CPU_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Globals:
    """A module's `__device__` and `__constant__` variables: `module.globals["filter"] = weights`."""

    def __init__(self, module: Module):
        self._module = module

    def __getitem__(self, name: str) -> torch.Tensor:
        """A copy of the variable as the last launch on the CPU left it."""
        row = self._row(name)
        raw = torch.frombuffer(bytearray(ctypes.string_at(row.address, row.bytes)), dtype=torch.uint8)
        dtype = signature.parse_type(name, row.types).dtype
        return raw.view(getattr(torch, dtype)) if hasattr(torch, dtype) else raw

    def __setitem__(self, name: str, value) -> None:
        """Sets it from its first element on; on the GPU too, if the module was used there."""
        row = self._row(name)
        if row.whole:
            raise ArgumentError(f"`{name}` is const, and cannot be set")
        dtype = getattr(torch, signature.parse_type(name, row.types).dtype, None)
        tensor = torch.as_tensor(value, dtype=dtype, device="cpu").contiguous().reshape(-1)
        raw = bytes(tensor.view(torch.uint8).tolist())
        if len(raw) > row.bytes:
            raise ArgumentError(f"`{name}` holds {row.bytes} bytes, got {len(raw)}")
        ctypes.memmove(row.address, raw, len(raw))
        for key, library in self._module._libraries.items():
            if key[0] == "gpu":
                gpu.write_symbol(library, name, raw)

    def __iter__(self):
        return iter(self._module._current().symbols)

    def _row(self, name: str) -> signature.TableRow:
        symbols = self._module._current().symbols
        if name not in symbols:
            raise ArgumentError(f"{self._module.name} has no __device__ or __constant__ variable `{name}`; "
                                f"it has: {', '.join(symbols) or 'none'}")
        return symbols[name]


INCLUDE = re.compile(r'^([ \t]*#[ \t]*include[ \t]*)"([^"\n]+)"', re.MULTILINE)


def files_of(text: str, folder: Path | None) -> list[Outline]:
    """The source and the files beside it that it includes, each once; they hold kernels and shared arrays too."""
    found, seen = [outline(without_libraries(text))], set()
    found[0].path = None
    waiting = [(text, folder)]
    while waiting:
        including, folder = waiting.pop(0)
        for _, name in INCLUDE.findall(including) if folder else ():
            path = (folder / name).resolve()
            if path.is_file() and path not in seen:
                seen.add(path)
                text = without_libraries(_read(path))
                found.append(outline(text))
                found[-1].path = path
                waiting.append((found[-1].text, path.parent))
    return found


def rewritten(files: list[Outline], folder: Path | None) -> str:
    """The first of `files`, rewritten, its includes pointing to rewritten copies of the others in the cache."""
    copies: dict[Path, Path] = {}

    def one(file: Outline, folder: Path | None) -> str:
        def include(match: re.Match) -> str:
            path = (folder / match.group(2)).resolve()
            beside = next((f for f in files if f.path == path), None)
            if beside is None:
                return match.group()
            if path not in copies:
                copies[path] = Path(match.group(2))         # an include of itself, behind a guard, ends here
                copy = f'#line 1 "{path.name}"\n{one(beside, path.parent)}'
                copies[path] = build.rewritten_header(path.name, copy)
            return f'{match.group(1)}"{copies[path]}"'
        text = rewrite(file)
        return INCLUDE.sub(include, text) if folder else text

    return one(files[0], folder)


def split_instance(text: str) -> tuple[str, str]:
    """'tile<64,32>' -> ('tile', '<64, 32>')."""
    name, _, arguments = text.partition("<")
    return name.strip(), _tidy_arguments(arguments) if arguments else ""


def load_library(path: Path, wanted: list[tuple[KernelText, str]], prototype=CPU_ENTRY) -> Library:
    handle = ctypes.CDLL(str(path))
    made = Library(path, handle, {}, {}, {}, {})
    for row in signature.read_table(handle):
        if row.kind == "kernel":
            kernel, instance = wanted[int(row.name)]
            parameters = signature.parse_parameters(kernel, row.types)
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


def _cpu_entry(number: int, address: str) -> str:
    return f"LAPTOP_EXPORT void laptop_entry_{number}(void** args) {{ laptop::call({address}, args); }}\n"


def _host_entry(number: int, address: str) -> str:
    return f"LAPTOP_EXPORT void laptop_entry_{number}(void** args) {{ laptop::call_host({address}, args); }}\n"


class Kernel:
    """A kernel of a module, or an instance of a template kernel; `[grid, block]` makes it a launch."""

    def __init__(self, module: Module, name: str, instance: str = "", sanitized: bool = False):
        self.module, self.name, self.instance, self.sanitized = module, name, instance, sanitized

    error = None          # a kernel whose cell does not compile has one
    shared_limit = 48 << 10     # set it for more dynamic shared memory, as cudaFuncSetAttribute does

    @property
    def source(self) -> str:
        """The text that the kernel was compiled from, the whole file or cell."""
        return self.module.source

    @property
    def __name__(self) -> str:
        return self.name + self.instance

    def __getitem__(self, configuration):
        """`[grid, block]` or `[grid, block, shared_bytes]`; a string names a template instance: `["64, 32"]`."""
        if isinstance(configuration, str):
            return Kernel(self.module, self.name, _tidy_arguments(configuration), self.sanitized)
        if not isinstance(configuration, tuple) or len(configuration) not in (2, 3):
            raise ArgumentError(f"{self.__name__} is launched as {self.__name__}[grid, block](...) or "
                                f"[grid, block, shared_bytes](...), got [{configuration!r}]")
        grid, block, *shared = configuration
        return Launch(self, _three("grid", grid), _three("block", block), _whole("shared_bytes", *shared or [0]))

    def __call__(self, *arguments, **named):
        raise ArgumentError(f"{self.__name__} needs a grid and a block: {self.__name__}[grid, block](...)")

    def __repr__(self):
        kernel = self.module._named(self.name)[0]
        wanted = ", ".join(f"{t} {n}" for t, n in zip(kernel.types, kernel.parameters))
        return f"<kernel {self.__name__}({wanted}) of {self.module.name}>"

    def _texts(self) -> list[KernelText]:
        """The kernels that this name may mean: more than one where it is overloaded or chosen by an #if."""
        found = self.module._named(self.name)
        instance = self.instance.strip("<> ")
        count = len(_arguments(instance)) if self.instance else 0
        for kernel in found:
            template = f"{kernel.name} is a template over <{', '.join(kernel.template)}>"
            example = f'module["{kernel.name}<{", ".join("..." for _ in kernel.template)}>"]'
            if kernel.template and not self.instance and kernel.required:
                raise ArgumentError(f"{template}: name an instance, {example}")
            if kernel.template and count < kernel.required:
                raise ArgumentError(f"{template}: {self.__name__} gives {count} of its {kernel.required} arguments")
            if kernel.template and count > len(kernel.template) and "..." not in template:
                raise ArgumentError(f"{template}: {self.__name__} gives {count} arguments")
            if not kernel.template and self.instance:
                raise ArgumentError(f"{kernel.name} is not a template; launch it as {kernel.name}[grid, block](...)")
        return found


class Launch:
    """A kernel with its grid, block and dynamic shared memory; calling it runs it."""

    def __init__(self, kernel: Kernel, grid: tuple, block: tuple, shared_bytes: int):
        self.kernel, self.grid, self.block, self.shared_bytes = kernel, grid, block, shared_bytes

    def __call__(self, *arguments, **named) -> None:
        given = [*arguments, *named.values()]
        device = next((a.device for a in given if isinstance(a, torch.Tensor) and a.is_cuda), None)
        if launch.mode() != "plain":       # counts and checks are made on the CPU, whatever the machine
            device = None
        if device is not None:
            self._run(arguments, named, device)
        elif self.kernel.sanitized and launch.mode() == "plain":
            with sanitize():
                self._run(arguments, named, None)
        else:
            self._run(arguments, named, None)

    def _run(self, arguments: tuple, named: dict, device: torch.device | None) -> None:
        module, name = self.kernel.module, self.kernel.__name__
        texts = self.kernel._texts()
        traced = launch.mode() != "plain"
        faults = []
        for text in texts:
            instance = (self.kernel.instance or "<>") if text.template else ""
            library = (module._library_gpu(text, instance, device) if device is not None
                       else module._library(traced, text, instance))
            entry = library.entries.get((text, instance))
            if entry is None:              # behind an #if that is not taken
                continue
            try:
                values = signature.bind(name, entry.parameters, arguments, named)
            except ArgumentError as fault:
                faults.append(fault)
                continue
            if device is not None:
                gpu.run(entry, name, self.grid, self.block, self.shared_bytes, values, device)
            else:
                module._continue_in(library)
                here = CpuCopies(values)
                launch.run(entry=entry.call, kernel=name, grid=self.grid, block=self.block,
                           shared_bytes=self.shared_bytes, params=entry.parameters, values=here.values,
                           library=library.path, source=module.source, source_name=module.name,
                           launch_bounds=entry.launch_bounds, shared_limit=self.kernel.shared_limit,
                           files={file.path.name: file.text for file in module._files[1:]})
                here.copy_back(entry.parameters)
            if device is not None or not traced:
                for parameter, value in zip(entry.parameters, values):
                    if isinstance(value, torch.Tensor) and not parameter.const:
                        memory.mark_written(value)
            return
        raise faults[0] if faults else ArgumentError(f"{name} stands behind an #if that is not compiled")


class CpuCopies:
    """The arguments of a traced launch: CUDA tensors as CPU tensors, aliases still aliases; the others as they are."""

    def __init__(self, given: list):
        self.given, self.storages = given, {}
        self.values = [self._here(v) if isinstance(v, torch.Tensor) and v.device.type != "cpu" else v for v in given]

    def _here(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.storages:
            self.storages[storage.data_ptr()] = torch.UntypedStorage(storage.nbytes()).copy_(storage)
        copy = torch.empty(0, dtype=tensor.dtype)
        return copy.set_(self.storages[storage.data_ptr()], tensor.storage_offset(), tensor.shape, tensor.stride())

    def copy_back(self, parameters: list[Parameter]) -> None:
        for parameter, value in zip(parameters, self.given):
            if isinstance(value, torch.Tensor) and not parameter.const:
                copy = self.storages.get(value.untyped_storage().data_ptr())
                if copy is not None:
                    value.untyped_storage().copy_(copy)


def _three(what: str, size) -> tuple[int, int, int]:
    sizes = tuple(size) if isinstance(size, (tuple, list)) else (size,)
    if not 1 <= len(sizes) <= 3:
        raise ArgumentError(f"{what} has 1 to 3 sizes, got {size!r}")
    return tuple(_whole(what, s) for s in (*sizes, 1, 1)[:3])


def _whole(what: str, value) -> int:
    try:
        whole = value.__index__()
    except (AttributeError, TypeError):
        raise ArgumentError(f"{what} is made of whole numbers, got {value!r}"
                            + ("; use // to divide" if isinstance(value, float) else "")) from None
    if whole < 0 or whole >= 2**32:
        raise ArgumentError(f"{what} cannot be {whole}")
    return whole


def _arguments(text: str) -> list[str]:
    parts, depth, part = [], 0, ""
    for letter in text:
        depth += (letter in "(<[{") - (letter in ")>]}")
        if letter == "," and depth == 0:
            parts, part = [*parts, part], ""
        else:
            part += letter
    return [p.strip() for p in [*parts, part] if p.strip()]


def _tidy_arguments(text: str) -> str:
    """'64,32>' or '<64, 32>' or '64, 32' -> '<64, 32>'."""
    text = text.strip()
    text = text.removeprefix("<")
    if text.endswith(">") and text.count(">") > text.count("<"):
        text = text[:-1]
    return f"<{', '.join(_arguments(text))}>"


_loaded: dict[Path, Module] = {}


def load(path: str | Path) -> Module:
    """A .cu file; the same module again until the file, or a file that it includes, changes."""
    path = Path(path).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    text, known = _read(path), _loaded.get(path)
    if known is None or text != known.source or any(not _is_still(file) for file in known._files[1:]):
        _loaded[path] = Module(text, path.name, path)
    return _loaded[path]


def _is_still(file: Outline) -> bool:
    """Whether an included file reads as when it was compiled. Compares texts: an outline takes milliseconds."""
    return file.path.is_file() and without_libraries(_read(file.path)) == file.text


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8-sig", errors="replace")


def compile(source: str | Path, name: str = "source.cu") -> Module:
    """CUDA C++ text, or a Path to a file of it."""
    if isinstance(source, Path):
        return load(source)
    if "\n" not in source and re.fullmatch(r"[\w./\\ -]+\.cuh?", source):
        raise ArgumentError(f"compile takes CUDA C++ text or a Path, got the file name {source!r}; "
                            f"use Path({source!r})")
    return Module(source.removeprefix("\ufeff"), name)
