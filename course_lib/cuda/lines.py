"""Where in the source an instruction comes from."""
import functools
import shutil
import subprocess
import sys
from pathlib import Path


@functools.lru_cache(maxsize=None)
def _known(library: str) -> dict[int, int]:
    return {}


def of(library, source_name: str, offsets) -> dict[int, int]:
    """{offset in the library: line of the source}; 0 where the line is not known. Asks once for each offset."""
    known = _known(str(library))
    wanted = sorted({o for o in offsets if o and o not in known})
    if wanted:
        known.update(_ask(Path(library), source_name, wanted))
    return {o: known.get(o, 0) for o in offsets}


def _ask(library: Path, source_name: str, offsets: list[int]) -> dict[int, int]:
    # An offset is a return address: the call before it is what we want. `-i` lists the functions that were
    # inlined there, innermost first; the first one in the student's file is the line.
    addresses = [hex(o - 1) for o in offsets]
    if sys.platform == "darwin":
        command = ["atos", "-i", "-o", str(library), "-l", "0x0", *addresses]
    else:
        tool = shutil.which("addr2line") or shutil.which("llvm-addr2line") or shutil.which("llvm-symbolizer")
        if tool is None:
            return {}
        command = [tool, "-a", "-i", "-e", str(library), *addresses]
    answer = subprocess.run(command, capture_output=True, text=True).stdout
    found: dict[int, int] = {}
    groups = answer.split("\n\n") if sys.platform == "darwin" else _groups(answer)
    for offset, frames in zip(offsets, groups):
        frames = frames.splitlines() if isinstance(frames, str) else frames
        found[offset] = next((line for line in (_line(f, source_name) for f in frames) if line), 0)
    return found


def _groups(answer: str) -> list[list[str]]:
    groups: list[list[str]] = []
    for line in answer.splitlines():
        if line.startswith("0x"):
            groups.append([])
        elif groups:
            groups[-1].append(line)
    return groups


def _line(frame: str, source_name: str) -> int:
    """The line of "path/flash.cu:12 (discriminator 3)" or "flash (in library) (flash.cu:12)"; 0 for another file."""
    frame = frame.split(" (discriminator")[0].rstrip(")")
    path, _, line = frame.rpartition(":")
    same = path.endswith(source_name) and path.removesuffix(source_name)[-1:] in ("", "/", "(", " ")
    return int(line) if same and line.isdigit() else 0
