"""The engine's headers in the compiler's own form: reading them is most of the work of building a small kernel."""
import contextlib
import os
import re
import secrets
import shutil
import subprocess
import time
from pathlib import Path

from .cache import cache, digest, locked, used, used_at
from .compilers import Compiler

HEAD = "#include <each_thread.h>\n#include <laptop_entries.h>\n"      # how a generated source begins
KEPT = 24 * 3600                        # seconds: those of other flags and of older engines go, 27 MB each
FOLDER = "precompiled-"


def precompiled(tool: Compiler, flags: list[str], include: list[str]) -> list[str]:
    """What to tell the compiler of a source that begins with HEAD; nothing with zig and clang, which do not take it everywhere.

    Made once for a compiler and its flags, and again when a header has changed. LAPTOP_CUDA_PRECOMPILED=0 does
    without: a folder that is thrown away after one kernel would not get its 27 MB back.
    """
    if tool.zig or tool.clang or os.environ.get("LAPTOP_CUDA_PRECOMPILED") == "0":
        return []
    kept = [f for f in flags if not f.startswith(("-I", "-iquote", "-fdump"))] + include
    folder = cache() / (FOLDER + digest(HEAD, *kept, *tool.command, tool.version))
    made = folder / "start.h.gch"               # which clang takes, too, for `-include start.h`
    if not _fresh(made):
        with locked(folder):
            if not _fresh(made):
                _forget(folder)
                _make(tool, kept, made)
    used(folder)
    return ["-include", str(folder / "start.h")] if made.stat().st_size else []


def _fresh(made: Path) -> bool:
    """Whether no header has changed since; the time of a file's node also tells a package that came later."""
    try:
        since = made.stat().st_mtime_ns
        return all(os.stat(p).st_ctime_ns <= since for p in (made.parent / "headers").read_text().splitlines())
    except OSError:
        return False


def _make(tool: Compiler, flags: list[str], made: Path) -> None:
    folder = made.parent
    (folder / "start.h").write_text(HEAD)
    new = folder / f"{secrets.token_hex(8)}.new"
    depends = folder / "start.d"
    begun = time.time_ns()
    command = [*tool.command, *flags, "-x", "c++-header", "-MD", "-MF", depends, "-c", folder / "start.h",
               "-o", new]
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True)
    if done.returncode:
        new.write_bytes(b"")                    # the build without it will say what is wrong
        depends.write_text("start.h:")
    words = re.split(r"(?<!\\)\s+", depends.read_text().replace("\\\n", " ").split(":", 1)[1].strip())
    files = [folder / word.replace("\\ ", " ") for word in words if word]
    (folder / "headers").write_text("".join(f"{path}\n" for path in files))
    os.utime(new, ns=(begun, begun))            # what changes while it is made is newer
    new.replace(made)


def _forget(folder: Path) -> None:
    for old in folder.parent.glob(FOLDER + "*"):
        if old != folder and used_at(old) < time.time() - KEPT:
            with contextlib.suppress(OSError):
                shutil.rmtree(old)
