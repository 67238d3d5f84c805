"""The runtime that a wheel brings."""
import ctypes
import functools
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "built"


def brought(engine: str) -> Path | None:
    """None where there is none of this engine, or where it was built for a newer system than this one."""
    return _loadable(FOLDER / file_name(engine))


@functools.lru_cache
def _loadable(library: Path) -> Path | None:
    try:
        ctypes.CDLL(str(library))
    except OSError:
        return None
    return library


def file_name(engine: str) -> str:
    return f"runtime-{engine}.so"
