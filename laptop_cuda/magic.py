"""The cell magic `%%cuda`: a cell of CUDA C++ compiles, and its kernels become names in the notebook.

    %%cuda                     launches are sanitized: a bug is an exception that explains it
    %%cuda --no-sanitize       launches run plain, fast and unchecked
    %%cuda --module m          also binds the module, for constants and template instances: m["tile<64>"]

A cell that does not compile, for whatever reason, binds the names of its kernels too, to objects that say so: no name ever means
an earlier version of the cell. A program on top may give cells names (`name_cells`): a named cell that
does not compile prints the error instead of raising it, so that the rest of the notebook runs, and the
error is `.error` of the bound objects."""
import argparse
import re
import shlex
import sys
from collections.abc import Callable

from .build import CompileError, NoCompiler
from .kernel import Kernel
from .module import Module
from .text.outline import outline
from .text.signature import kernels

_bound: dict[str, dict[str, object]] = {}        # what each cell bound, by its name or its id
_namers: list[Callable[[str], str | None]] = []


def name_cells(namer: Callable[[str], str | None]) -> None:
    """`namer(text)` is asked for the name of each %%cuda cell; None if it has none."""
    _namers.append(namer)


def _shell():
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


class BrokenKernel:
    """Stands for a kernel that could not be compiled: `.error` says why, `.source` is the cell's text."""

    def __init__(self, name: str, source: str, error: Exception):
        self.__name__, self.name, self.source, self.error, self.module = name, name, source, error, None

    def __getitem__(self, configuration):
        raise self.error

    def __call__(self, *arguments, **named):
        raise self.error

    def __repr__(self):
        return f"<kernel {self.name}, whose cell does not compile>"


class Arguments(argparse.ArgumentParser):
    def error(self, message):
        from IPython.core.error import UsageError
        raise UsageError(f"%%cuda: {message}; it takes --no-sanitize and --module NAME")


PARSER = Arguments(prog="%%cuda", add_help=False)
PARSER.add_argument("--no-sanitize", action="store_true")
PARSER.add_argument("--module", default=None)


def cuda_cell(line: str, cell: str) -> None:
    """The magic itself; line n of an error is line n of the cell, the `%%cuda` line included."""
    options = PARSER.parse_args(shlex.split(line))
    names = _shell().user_ns
    source = "\n" + cell
    name = next(filter(None, (namer(cell) for namer in _namers)), None)
    fault = None
    try:
        module = Module(source, "cell", traced=not options.no_sanitize)
        made = {kernel.split("::")[-1]: Kernel(module, kernel, sanitized=not options.no_sanitize)
                for kernel in module.kernels}
    except (CompileError, NoCompiler) as error:
        fault, module = error, None
        made = {kernel: BrokenKernel(kernel, source, error) for kernel in kernel_names(source)}
    key = f"named {name}" if name else _cell_id()
    for kernel, old in _bound.get(key, {}).items():
        if names.get(kernel) is old and kernel not in made:
            if fault:
                made[kernel] = BrokenKernel(kernel, source, fault)
            else:
                del names[kernel]
    _bound[key] = made
    names.update(made)
    if options.module:
        names[options.module] = module if module is not None else BrokenKernel(options.module, source, fault)
    if fault and name:
        print(f"{type(fault).__name__}: {fault}")
    elif fault:
        raise fault


def kernel_names(source: str) -> list[str]:
    """Names of the kernels in a text that may be broken anywhere."""
    found = [k.function.name for k in kernels(outline(source))]
    found += re.findall(r"__global__[^;{}()]*(?:__launch_bounds__\s*\([^)]*\)[^;{}()]*)?\b(\w+)\s*\(", source)
    return [n for n in dict.fromkeys(found) if n and n != "__launch_bounds__"]


def _cell_id() -> str:
    """JupyterLab sends the cell's id with its text; where there is none, every cell is a new one."""
    header = getattr(_shell(), "parent_header", None) or {}
    shown = (header.get("metadata") or {}).get("cellId") if isinstance(header, dict) else None
    return shown or f"unknown {len(_bound)}"


def register() -> None:
    """Defines `%%cuda` in the running notebook or IPython, if there is one."""
    shell = _shell()
    if shell is not None:
        shell.register_magic_function(cuda_cell, "cell", "cuda")
