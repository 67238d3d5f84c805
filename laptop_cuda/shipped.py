"""The runtime that a wheel brings, built from its own files: `python -m laptop_cuda.shipped FOLDER`."""
import ctypes
import functools
import shutil
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "built"


def brought(engine: str) -> Path | None:
    """None where there is none of this engine, or where it was built for a newer system than this one."""
    return _loadable(FOLDER / _name(engine))


@functools.lru_cache
def _loadable(library: Path) -> Path | None:
    try:
        ctypes.CDLL(str(library))
    except OSError:
        return None
    return library


def _name(engine: str) -> str:
    return f"runtime-{engine}.so"


def ship(folder: Path) -> None:
    """Without a compiler, or with zig's, the folder has none: it is built where it is first wanted."""
    from . import build
    try:
        tool = build.compiler()
    except build.NoCompiler as missing:
        print(f"the runtime is left to be built later: {missing}", file=sys.stderr)
        return
    if tool.zig:
        return
    folder.mkdir(parents=True, exist_ok=True)
    engine = build.engine_digest()
    with tempfile.TemporaryDirectory() as root:
        shutil.copy(build.build_runtime(tool, engine, Path(root), ()), folder / _name(engine))


if __name__ == "__main__":
    ship(Path(sys.argv[1]))
