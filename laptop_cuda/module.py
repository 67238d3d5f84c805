"""A compiled `.cu`: its kernels as attributes, launched as `module.kernel[grid, block, shared_bytes](...)`.

A module is built twice at most for the CPU, plain and traced, and once for the GPU, each when first needed."""
import re
from pathlib import Path

from . import gpu, launch, packs
from .arguments import ArgumentError
from .kernel import Kernel
from .launch.kernel_library import kernel_library
from .launch.library import Globals, Library, load_library
from .only_kernels import as_judged
from .sources import cpu_entry, files_of, read, split_instance
from .text import signature
from .text.diagnostics import CompileError, undefined_names, unknown_names
from .text.signature import KernelText


class Module:
    """`module.name` is that kernel or constant; `module["name"]` where the module has its own (`source`)."""

    def __init__(self, text: str, name: str, path: Path | None = None, traced: bool | None = None,
                 include: tuple[Path, ...] = (), define: tuple[str, ...] = (), std: str = "c++17"):
        self.source, self.name, self.path = text, name, path
        self._folder = path.parent if path else None
        self._include, self._define, self._std = include, define, std
        self._start = self._folder or (Path() if include else None)      # where `#include "..."` looks first
        self._libraries: dict[tuple, Library] = {}
        self._last: Library | None = None
        self.globals = Globals(self)
        # a source that does not compile is an error here and now
        self._first_build(launch.mode() != "plain" if traced is None else traced)

    def _first_build(self, traced: bool) -> None:
        """Host code that calls functions of other sources is left out: a library of kernels does without.
        Device code with a name that the engine's CUB and torch do not have is an error when it is reached."""
        missing, blamed, everywhere, first = set(), set(), False, None
        while True:
            self._files = files_of(as_judged(self.source), self._start, self._include, missing,
                                   set() if everywhere else blamed)
            self._files[0].defines, self._files[0].std = self._define, self._std
            self._texts = [k for file in self._files for k in signature.kernels(file)]
            try:
                self._library(traced)
                return
            except CompileError as error:
                first = first or error
                (undefined, files), unknown = undefined_names(error.output), unknown_names(error.output)
                unknown |= {name.rpartition("::")[2] for name in unknown}           # for host functions
                if undefined | unknown <= missing and files <= blamed:
                    if everywhere or not blamed:
                        raise first
                    everywhere = True
                files = files if blamed or not files else {self.name}        # headers' may go with its own
                missing, blamed = missing | undefined | unknown, blamed | files if files else set()

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
        raise AttributeError(f"{self.name} has no kernel and no constant `{name}`; its kernels: "
                             f"{', '.join(self.kernels)}")

    def __getitem__(self, instance: str) -> "Kernel":
        """`module["tile<64, 32>"]`, an instance of a template kernel."""
        name, arguments = split_instance(str(instance))
        if not self._named(name):
            raise KeyError(f"{self.name} has no kernel `{name}`; its kernels: {', '.join(self.kernels)}")
        return Kernel(self, name, arguments)

    def host(self, name: str):
        """A host function of the file, to be called with CPU arrays. Its launches are counted and checked
        like others. It runs in a process of its own, so a crash is a `KernelError`; its result is dropped."""
        return packs.part("programs.host_call").host_function(self, name)

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
        """What goes into one library: an instance of a template alone, or all kernels but templates."""
        if kernel is not None and kernel.template:
            return [(kernel, instance)]
        return [(k, "") for k in self._texts if not k.template]

    def _library(self, traced: bool, kernel: KernelText | None = None, instance: str = "") -> Library:
        wanted = self._wanted(kernel, instance)
        key = ("traced" if traced else "plain", kernel if instance else None, instance)
        return self._build(key, wanted, traced, cpu_entry)

    def _build(self, key: tuple, wanted: list[tuple[KernelText, str]], traced: bool, entry) -> Library:
        if key not in self._libraries:
            self._libraries[key] = kernel_library(
                self._files, self.name, self.source, wanted, traced, entry=entry,
                folder=self._folder, start=self._start, include=self._include)
        return self._libraries[key]

    def builds(self) -> list[Path]:
        """The libraries that were built for the CPU so far."""
        return [library.path for key, library in self._libraries.items() if key[0] != "gpu"]

    def _library_gpu(self, kernel: KernelText, instance: str, device) -> Library:
        key = ("gpu", kernel if instance else None, instance, gpu.index(device))
        if key not in self._libraries:
            wanted = self._wanted(kernel, instance)
            made = gpu.library(self._files, self.name, self._folder, wanted, device, self._include)
            self._libraries[key] = library = load_library(made, wanted, gpu.PROTOTYPE)
            for name, raw in self.globals.given.items():        # set before the first launch on this device
                if name in library.symbols:
                    gpu.write_symbol(library, name, raw, key[-1])
        return self._libraries[key]

    def _continue_in(self, library: Library) -> None:
        """A module's globals are one set of variables, whichever build the next launch runs in."""
        library.hold()
        if self._last is not None and self._last is not library:
            library.restore({name: value for name, value in self._last.snapshot().items()
                             if name in library.symbols and not library.symbols[name].types.startswith("*")})
        self._last = library


_loaded: dict[tuple[Path, tuple, tuple], tuple[Module, list]] = {}


def load(path: str | Path, include: list[str | Path] = (), define: dict[str, object] = {},
         std: str = "c++17") -> Module:
    """A .cu file; the same module again until the file, or a file that it includes, changes.

    `include` are folders in which its includes are looked for besides its own, as with -I, and `define`
    the macros of its build, as with -D: {"HEAD_SIZE": 64, "WITH_CUDA": ""}; `std` is as in -std=c++20."""
    search, macros = _folders(include), _macros(define)
    path = Path(path)
    known, stamps = _loaded.get((path, search, macros, std), (None, []))
    if known is not None and stamps == [_stamp(file) for file, _ in stamps]:
        return known                    # the usual case, at every launch: no file is read
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path.resolve()}")
    made = Module(read(path), path.name, path.resolve(), include=search, define=macros, std=std)
    read_files = (path, *(file.path for file in made._files[1:]))
    _loaded[path, search, macros, std] = made, [_stamp(file) for file in read_files]
    return made


def _folders(include: list[str | Path]) -> tuple[Path, ...]:
    if isinstance(include, (str, Path)):                 # a string's letters are folders' names too
        raise ArgumentError(f"include is a list of folders: [{str(include)!r}]")
    return tuple(Path(folder).resolve() for folder in include)


def _macros(define: dict[str, object]) -> tuple[str, ...]:
    if not isinstance(define, dict) or any(v is None for v in define.values()):
        raise ArgumentError(f'define is a dict of macros, {{"N": 64, "WITH_CUDA": ""}}, got {define!r:.60}')
    return tuple(f"{name}={int(v) if isinstance(v, bool) else v}" for name, v in define.items())


def _stamp(file: Path) -> tuple:
    """Changes when the file does."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return file, None
    return file, (status.st_mtime_ns, status.st_size, status.st_ino)


def compile(source: str | Path, name: str = "source.cu", include: list[str | Path] = (),
            define: dict[str, object] = {}, std: str = "c++17") -> Module:
    """CUDA C++ text, or a Path to a file of it. `include` are folders for its includes, as with -I; `define`
    are macros, as with -D; `std` is as in -std=c++20."""
    if isinstance(source, Path):
        return load(source, include, define, std)
    if not isinstance(source, str):
        raise ArgumentError(f"compile takes CUDA C++ text or a Path, got {type(source).__name__}")
    if "\n" not in source and re.fullmatch(r"[\w./\\ -]+\.cuh?", source):
        raise ArgumentError(f"compile takes CUDA C++ text or a Path, got the file name {source!r}; "
                            f"use Path({source!r})")
    search = _folders(include)
    return Module(source.removeprefix("\ufeff"), name, include=search, define=_macros(define), std=std)
