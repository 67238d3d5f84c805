"""The engine's headers in the compiler's own form: reading them is most of a small kernel's build."""
import contextlib
import os
import secrets
import shutil
import subprocess
import time
from pathlib import Path

from .cache import cache, digest, locked, used, used_at
from .compilers import Compiler, files_in

HEAD = "#include <each_thread.h>\n#include <laptop_entries.h>\n"      # how a generated source begins
KEPT = 24 * 3600                        # seconds: those of other flags and of older engines go, 27 MB each
FOLDER = "precompiled-"
# clang 14 takes va_list for another type after headers of this kind, unless these have made one
MAKES_A_LIST = ("static inline void laptop_list(int n, ...)"
                " { __builtin_va_list a; __builtin_va_start(a, n); __builtin_va_end(a); }\n")
TRIED = "#include <string>\nauto tried(double v) { return std::to_string(v); }\n"


def precompiled(tool: Compiler, flags: list[str], include: list[str]) -> list[str]:
    """What to tell the compiler of a source that begins with HEAD. Nothing with zig, nor with a clang that
    refuses what comes after headers of this kind.

    Made once for a compiler and its flags, and again when a header has changed. LAPTOP_CUDA_PRECOMPILED=0
    does without: a folder that is thrown away after one kernel would not get its 27 MB back."""
    if tool.zig or os.environ.get("LAPTOP_CUDA_PRECOMPILED") == "0":
        return []
    kept = [f for f in flags if not f.startswith(("-I", "-iquote", "-fdump", "-Wpedantic"))] + include
    head = HEAD + MAKES_A_LIST * tool.clang
    folder = cache() / (FOLDER + digest(head, *kept, *tool.command, tool.version))
    made = folder / "start.h.gch"
    if not _fresh(made):
        with locked(folder):
            if not _fresh(made):
                _forget(folder)
                _make(tool, head, kept, made)
    used(folder)
    return ["-include", str(folder / "start.h")] if made.stat().st_size else []


def _fresh(made: Path) -> bool:
    """Whether no header has changed since; the time of a file's node also tells a package that came later."""
    try:
        since = made.stat().st_mtime_ns
        headers = (made.parent / "headers").read_text().splitlines()
        return all(os.stat(path).st_ctime_ns <= since for path in headers)
    except OSError:
        return False


def _make(tool: Compiler, head: str, flags: list[str], made: Path) -> None:
    folder = made.parent
    (folder / "start.h").write_text(head)
    new = folder / f"{secrets.token_hex(8)}.new"
    depends = folder / "start.d"
    begun = time.time_ns()
    command = [*tool.command, *flags, "-x", "c++-header", "-MD", "-MF", depends, "-c", folder / "start.h",
               "-o", new]
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True)
    if tool.clang and not done.returncode:
        command = [*tool.command, *flags, "-fsyntax-only", "-include-pch", new, "-"]
        done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, input=TRIED.encode())
    if done.returncode:
        new.write_bytes(b"")                    # the build without it will say what is wrong
        depends.write_text("start.h:")
    (folder / "headers").write_text("".join(f"{path}\n" for path in files_in(depends)))
    os.utime(new, ns=(begun, begun))            # what changes while it is made is newer
    new.replace(made)


def _forget(folder: Path) -> None:
    for old in folder.parent.glob(FOLDER + "*"):
        if old != folder and used_at(old) < time.time() - KEPT:
            with contextlib.suppress(OSError):
                shutil.rmtree(old)
