"""What a student's code may read, and as whom it runs."""
import os
import shutil
import stat
import sys
from functools import lru_cache
from pathlib import Path

from . import walls

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parents[1]
COURSE = PACKAGE.parent
ENGINE = COURSE / "laptop_cuda"
COMPILERS = ("c++", "g++", "clang++", "ninja", "ld", "as")


def hidden_paths(extra=()) -> list[Path]:
    """What no student's code may read: the course with its solutions, and whatever the caller adds."""
    return [Path(p).resolve() for p in (COURSE, PACKAGE, *extra)]


def readable_paths(hidden: list[Path]) -> tuple[list[str], list[str]]:
    """(readable, listable): Python, torch, compilers and engine, without what is hidden below them."""
    roots = {Path(p).resolve() for p in (sys.prefix, sys.base_prefix, *library_paths())}
    roots |= set(map(Path, ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/alternatives",
                            "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu")))
    for tool in COMPILERS:
        if found := shutil.which(os.environ.get("CXX", tool) if tool == "c++" else tool):
            roots.add(Path(found).resolve().parent.parent)
    roots = {r for r in roots if r.exists() and r not in hidden and r not in (Path("/"), Path.home())}
    roots = {r for r in roots if not any(h == r or h in r.parents for h in hidden) or _is_python(r)}
    readable, listable = [], []
    for root in sorted(roots):
        _allow(root, hidden, readable, listable)
    readable.append(str(ENGINE))
    return readable, listable


def library_paths() -> list[str]:
    """The part of sys.path that holds Python's own modules and installed packages; no script's folder."""
    prefixes = {Path(p).resolve() for p in (sys.prefix, sys.base_prefix)}
    return [p for p in sys.path if p and (prefixes & {Path(p).resolve(), *Path(p).resolve().parents}
                                          or Path(p).name in ("site-packages", "dist-packages")
                                          or (Path(p) / "torch").is_dir())]


def tool_folders() -> list[str]:
    """Where a compiler and what it calls are found: all that a student's code gets of our PATH."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    found = [shutil.which(tool, path=path) for tool in (os.environ.get("CXX", "c++"), *COMPILERS)]
    return list(dict.fromkeys(str(Path(tool).parent) for tool in found if tool))


def _is_python(root: Path) -> bool:
    """Whether it holds this Python: an environment may be inside the course's clone (.venv)."""
    return any(Path(p).resolve() in (root, *root.parents) for p in (sys.prefix, sys.base_prefix))


def _allow(path: Path, hidden: list[Path], readable: list[str], listable: list[str]) -> None:
    if path in hidden:
        return
    if not any(path in h.parents for h in hidden):
        readable.append(str(path))
        return
    # Landlock rules only grant: name each neighbour of what is hidden
    listable.append(str(path))
    for part in path.iterdir():
        if not part.is_symlink():
            _allow(part, hidden, readable, listable)


def closed_to_others(paths: list[str]) -> bool:
    """Whether an unprivileged user cannot even reach one of the paths."""
    folders = {parent for path in paths for parent in (Path(path), *Path(path).parents)}
    return any(f.is_dir() and not f.stat().st_mode & stat.S_IXOTH for f in folders)


UIDS = 64           # users of one marking process: each run has the next


def spare_uid() -> int:
    """The first of UIDS users that own nothing, others for each marking process; 0 unless this is root."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return 0
    wanted = walls.SPARE_UIDS + os.getpid() % 100_000 * UIDS
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        first, _, count = map(int, line.split())
        if first <= wanted and wanted + UIDS < first + count:
            return wanted
    return 65534 - UIDS                           # a container with few users


@lru_cache(maxsize=1)
def engine_runtime() -> set[Path]:
    """The folders of the engine's runtime, with and without packs, built if need be; none without a compiler."""
    try:
        from laptop_cuda import build
        return {build.runtime_library(whole).parent for whole in (True, False)}
    except Exception:
        return set()
