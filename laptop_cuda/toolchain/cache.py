"""Where builds are kept, and the helpers that make a folder of them safe for several processes.

A program on this engine has its own caches: `prefer_cache` names a folder, and perhaps an environment variable."""
import contextlib
import functools
import hashlib
import os
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path

KEPT_BUILDS = 2000           # beyond that, the quarter that was used longest ago is removed
IN_USE = 3600                # seconds: what was used since may belong to a build that is going on
_variables = ["LAPTOP_CUDA_CACHE"]
_preferred: list[Path] = []


def prefer_cache(folder: Path, variable: str = "") -> None:
    """Builds go to this folder if it is writable, before the user's cache. `variable` may name another."""
    if variable and variable not in _variables:
        _variables.append(variable)
    if folder not in _preferred:
        _preferred.append(folder)
    cache.cache_clear()


def user_cache() -> Path:
    """The folder of this user's own."""
    folder = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return Path(os.environ.get("XDG_CACHE_HOME") or folder) / "laptop_cuda"


@functools.lru_cache
def cache() -> Path:
    """LAPTOP_CUDA_CACHE if set, else the first writable: a preferred folder, the user's, a temporary."""
    asked = next((os.environ[name] for name in _variables if os.environ.get(name)), None)
    for folder in (Path(asked),) if asked else (*_preferred, user_cache()):
        with contextlib.suppress(OSError):
            (folder / "cuda").mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder / "cuda"):
                return folder / "cuda"
    return Path(tempfile.mkdtemp(prefix="laptop-cuda-"))


@contextlib.contextmanager
def locked(folder: Path, name: str = "lock"):
    import fcntl
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / name, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def digest(*parts: str | bytes) -> str:
    made = hashlib.sha256()
    for part in parts:
        made.update(part.encode() if isinstance(part, str) else part)
        made.update(b"\0")
    return made.hexdigest()[:20]


def rewritten_header(name: str, text: str) -> Path:
    """A rewritten copy of a file that the source includes; the same text is the same file."""
    folder = cache() / f"header-{digest(text)}"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / name).exists():
        made = folder / f"{name}.{secrets.token_hex(8)}.new"
        made.write_text(text, encoding="utf-8")
        made.replace(folder / name)
    used(folder)
    return folder / name


def prune(folder: Path, new: Path) -> None:
    """Keeps the cache from growing for ever. A library that is loaded somewhere survives its file."""
    if new.exists():
        return
    builds = [f for f in folder.iterdir() if not f.name.startswith(("runtime-", "precompiled-"))]
    if len(builds) > KEPT_BUILDS:
        for old in sorted(builds, key=used_at)[:KEPT_BUILDS // 4]:
            if used_at(old) < time.time() - IN_USE:
                shutil.rmtree(old, ignore_errors=True)


def used(folder: Path) -> None:
    """Notes that a build was taken from the cache."""
    with contextlib.suppress(OSError):         # a cache that can only be read
        os.utime(folder)


def used_at(folder: Path) -> float:
    """When a build was made or last used; another process may remove it meanwhile."""
    try:
        return folder.stat().st_mtime
    except OSError:
        return time.time()
