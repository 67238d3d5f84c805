"""From the files of a source to a loaded library of its kernels, for the CPU."""
from __future__ import annotations

from pathlib import Path

from . import build, table
from .diagnostics import CompileError
from .library import Library, load_library
from .only_kernels import check_library
from .outline import Outline
from .regions import whole_blocks
from .sources import rewritten, started


def kernel_library(files: list[Outline], name: str, source: str, wanted: list[tuple], traced: bool, *,
                   folder: Path | None = None, start: Path | None = None, include: tuple[Path, ...] = (),
                   entry=None) -> Library:
    """`wanted` are the kernels with their template arguments; `name` and `source` are for error messages;
    includes are looked for in `start` first."""
    text = started(files, name) + rewritten(files, start, include)
    beside = tuple(f.path.name for f in files[1:])

    def built(wholes: list[tuple[int, str]]) -> Path:
        end = table.table(files, wanted, entry or cpu_entry, wholes)
        return build.library(text + end, name, source, folder, traced, beside, include)
    wholes = whole_blocks(files, wanted, name) if not traced and entry in (None, cpu_entry) else []
    try:
        made = built(wholes)
    except CompileError:
        if not wholes:
            raise
        made = built([])         # the source is wrong, or it does what `regions.py` does not know
    check_library(made, name, source)
    return load_library(made, wanted)


def cpu_entry(number: int, address: str) -> str:
    return f"LAPTOP_EXPORT void laptop_entry_{number}(void** args) {{ laptop::call({address}, args); }}\n"
