"""From the files of a source to a loaded library of its kernels, for the CPU."""
from pathlib import Path

from .. import build
from ..only_kernels import check_library, warnings_wanted
from ..regions import loops_of, loops_or_none
from ..rewrite import Loops
from ..sources import written
from ..text.outline import Outline
from .library import Library, load_library


def kernel_library(files: list[Outline], name: str, source: str, wanted: list[tuple], traced: bool, *,
                   folder: Path | None = None, start: Path | None = None, include: tuple[Path, ...] = (),
                   entry=None) -> Library:
    """`wanted`: kernels with template arguments; `name`, `source`: for messages; `start`: of includes."""
    beside = tuple(f.path.name for f in files[1:])

    def built(loops: Loops) -> Path:
        text = written(files, name, wanted, start, include, loops, entry)
        given = text, name, source, folder, traced, beside, include
        more = [f"-std={files[0].std}", *warnings_wanted()]
        try:
            return build.library(*given, more)
        except build.CompileError as error:
            if "changes meaning of" not in error.output:    # nvcc has qualified each name before g++ sees it
                raise
            return build.library(*given, [*more, "-fpermissive"])
    made = loops_or_none({} if traced else loops_of(files, name), built)
    check_library(made, name, source)
    return load_library(made, wanted)
