"""Which files of the runtime are compiled together, and how well."""
import os
from pathlib import Path

# What a kernel calls at each access, and what counts. The rest is to be built soon.
HOT = ("asynchronous", "fibers", "hooks", "own", "products", "sanitize", "trace", "warp")


def runtime_parts(folders: list[Path], clang: bool) -> list[tuple[str, str]]:
    """Of each part its text and its level of optimisation: a part for each core, two to four.

    clang has -O1 for -Og, by which zig, too, would add checks of its own."""
    soon = "-O1" if clang else "-Og"
    parts = {path for folder in folders for path in folder.glob("runtime_*.cpp")}
    hot = {path for path in parts if path.stem.removeprefix("runtime_") in HOT}
    cold = parts - hot
    return [(text, "-O2") for text in _together(hot)] + [(text, soon) for text in _together(cold)]


def _together(sources: set[Path]) -> list[str]:
    """One or two parts, alike in size: each parses the standard library once."""
    parts: list[list[Path]] = [[] for _ in range(2 if (os.cpu_count() or 2) >= 4 else 1)]
    for source in sorted(sources, key=lambda p: (-p.stat().st_size, p.name)):
        min(parts, key=lambda part: sum(p.stat().st_size for p in part)).append(source)
    return ["".join(f'#include "{p}"\n' for p in sorted(part)) for part in parts]
