"""Where in the source an instruction comes from."""
import functools
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from . import line_table


class Place(NamedTuple):
    file: str
    line: int            # 0: not known


NOWHERE = Place("", 0)


class Texts:
    """{name: text} of a source and what it includes, source first, as `files`."""
    files: dict[str, str]

    def text(self, place: Place) -> str:
        """The source line at a place, "" if it is not known."""
        text = self.files.get(place.file, "").split("\n")
        return text[place.line - 1].rstrip() if 0 < place.line <= len(text) else ""

    def in_included_file(self, place: Place) -> bool:
        return bool(place.file) and place.file != next(iter(self.files))


@functools.lru_cache(maxsize=None)
def _known(library: str) -> dict[int, Place]:
    return {}


def of(library, names: tuple[str, ...], offsets) -> dict[int, Place]:
    """{offset in the library: place in one of the files `names`}. Asks once for each offset."""
    known = _known(str(library))
    wanted = sorted({o for o in offsets if o and o not in known})
    if wanted:
        known.update(_ask(Path(library), names, wanted))
    return {o: known.get(o, NOWHERE) for o in offsets}


def _ask(library: Path, names: tuple[str, ...], offsets: list[int]) -> dict[int, Place]:
    # An offset is a return address: the call before it is wanted. `-i` lists the functions that were inlined
    # there, innermost first. The place is the first in the source, else in a file included.
    addresses = [hex(o - 1) for o in offsets]
    found: dict[int, Place] = {}
    for offset, frames in zip(offsets, _frames(library, names, addresses)):
        places = [place for place in (place_of(f, names) for f in frames) if place.line]
        own = [place for place in places if place.file == names[0]]
        found[offset] = next(iter(own or places), NOWHERE)
    return found


def _frames(library: Path, names: tuple[str, ...], addresses: list[str]) -> list[list[str]]:
    """Per address its lines, of the innermost inlined function first."""
    if sys.platform == "darwin":
        command = ["atos", "-i", "-o", str(library), "-l", "0x0", *addresses]
        answer = subprocess.run(command, capture_output=True, text=True).stdout
        return [group.splitlines() for group in answer.split("\n\n")]
    tool = shutil.which("addr2line") or shutil.which("llvm-addr2line") or shutil.which("llvm-symbolizer")
    if tool is None:
        wanted = [int(a, 16) for a in addresses]
        return line_table.frames(library, wanted, lambda frame: place_of(frame, names).line > 0)
    command = [tool, "-a", "-i", "-e", str(library), *addresses]
    answer = subprocess.run(command, capture_output=True, text=True).stdout
    return [group.splitlines()[1:] for group in re.split("^(?=0x)", answer, flags=re.M)[1:]]


def place_of(frame: str, names: tuple[str, ...]) -> Place:
    """Of "path/flash.cu:12 (discriminator 3)" or "flash (in library) (flash.cu:12)"; else nowhere."""
    frame = frame.split(" (discriminator")[0].rstrip(")")
    path, _, line = frame.rpartition(":")
    for name in names:
        if path.endswith(name) and path.removesuffix(name)[-1:] in ("", "/", "(", " ") and line.isdigit():
            return Place(name, int(line))
    return NOWHERE
