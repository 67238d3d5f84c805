"""The cell magic `%%cuda`: a cell of CUDA C++ compiles, and its kernels become names in the notebook.

    %%cuda                     launches are sanitized: a bug is an exception that explains it
    %%cuda --no-sanitize       launches run plain, fast and unchecked
    %%cuda --module m          also binds the module, for constants and template instances: m["tile<64>"]

A cell that does not compile binds the names of its kernels too, to objects that say so: no name ever means
an earlier version of the cell. A cell marked `// EXERCISE 3.7` prints the compiler's error instead of raising
it, so that the rest of the notebook runs; `check` finds it as `.error` of the bound object.
"""
import argparse
import re
import shlex

from IPython import get_ipython
from IPython.core.error import UsageError

from .build import CompileError
from .module import Kernel, Module
from .signature import kernels
from .tokens import outline

EXERCISE = re.compile(r"^\s*//\s*EXERCISE\s+(\S+)", re.MULTILINE)
_bound: dict[str, dict[str, object]] = {}        # what each cell bound, by exercise or by the cell's id


class BrokenKernel:
    """Stands for a kernel whose cell does not compile. `.error` is the CompileError, `.source` the cell's text."""

    def __init__(self, name: str, source: str, error: CompileError):
        self.__name__, self.name, self.source, self.error, self.module = name, name, source, error, None

    def __getitem__(self, configuration):
        raise self.error

    def __call__(self, *arguments, **named):
        raise self.error

    def __repr__(self):
        return f"<kernel {self.name}, whose cell does not compile>"


class Arguments(argparse.ArgumentParser):
    def error(self, message):
        raise UsageError(f"%%cuda: {message}; it takes --no-sanitize and --module NAME")


PARSER = Arguments(prog="%%cuda", add_help=False)
PARSER.add_argument("--no-sanitize", action="store_true")
PARSER.add_argument("--module", default=None)


def cuda_cell(line: str, cell: str) -> None:
    """The magic itself; line n of an error is line n of the cell, the `%%cuda` line included."""
    options = PARSER.parse_args(shlex.split(line))
    names = get_ipython().user_ns
    source = "\n" + cell
    exercise = EXERCISE.search(cell)
    fault = None
    try:
        module = Module(source, "cell", traced=not options.no_sanitize)
        made = {name.split("::")[-1]: Kernel(module, name, sanitized=not options.no_sanitize)
                for name in module.kernels}
    except CompileError as error:
        fault, module = error, None
        made = {name: BrokenKernel(name, source, error) for name in kernel_names(source)}
    key = f"exercise {exercise.group(1)}" if exercise else _cell_id()
    for name, old in _bound.get(key, {}).items():
        if names.get(name) is old and name not in made:
            if fault:
                made[name] = BrokenKernel(name, source, fault)
            else:
                del names[name]
    _bound[key] = made
    names.update(made)
    if options.module:
        names[options.module] = module if module is not None else BrokenKernel(options.module, source, fault)
    if fault and exercise:
        print(f"CompileError: {fault}")
    elif fault:
        raise fault


def kernel_names(source: str) -> list[str]:
    """Names of the kernels in a text that may be broken anywhere."""
    found = [k.function.name for k in kernels(outline(source))]
    found += re.findall(r"__global__[^;{}()]*(?:__launch_bounds__\s*\([^)]*\)[^;{}()]*)?\b(\w+)\s*\(", source)
    return [n for n in dict.fromkeys(found) if n and n != "__launch_bounds__"]


def _cell_id() -> str:
    """JupyterLab sends the cell's id with its text; where there is none, every cell is a new one."""
    header = getattr(get_ipython(), "parent_header", None) or {}
    shown = (header.get("metadata") or {}).get("cellId") if isinstance(header, dict) else None
    return shown or f"unknown {len(_bound)}"


def register() -> None:
    """Defines `%%cuda` in the running notebook or IPython, if there is one."""
    shell = get_ipython()
    if shell is not None:
        shell.register_magic_function(cuda_cell, "cell", "cuda")
