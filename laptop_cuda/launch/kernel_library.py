"""From the files of a source to a loaded library of its kernels, for the CPU."""
from pathlib import Path

from .. import build
from ..only_kernels import check_library, warnings_wanted
from ..regions import loops_of, loops_or_none
from ..rewrite import table
from ..rewrite import Loops
from ..sources import rewritten, started
from ..text.outline import Outline
from .library import Library, load_library


def kernel_library(files: list[Outline], name: str, source: str, wanted: list[tuple], traced: bool, *,
                   folder: Path | None = None, start: Path | None = None, include: tuple[Path, ...] = (),
                   entry=None) -> Library:
    """`wanted`: kernels with template arguments; `name`, `source`: for messages; `start`: of includes."""
    end = table.table(files, wanted, entry or cpu_entry)
    beside = tuple(f.path.name for f in files[1:])

    def built(loops: Loops) -> Path:
        text = started(files, name) + rewritten(files, start, include, loops)
        return build.library(text + end, name, source, folder, traced, beside, include,
                             [f"-std={files[0].std}", *warnings_wanted()])
    made = loops_or_none({} if traced else loops_of(files, name), built)
    check_library(made, name, source)
    return load_library(made, wanted)


def cpu_entry(number: int, address: str) -> str:
    return (f"LAPTOP_EXPORT void laptop_entry_{number}(void** laptop_args) {{ laptop::call({address}, "
            f"laptop_args); }}\n")
