"""The lines of a library's code, read from its DWARF 4 tables: for machines without addr2line.

It knows no inlined calls: code of a header has the place of the source's row before it, which calls it."""
import bisect
import functools
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .object_file import sections_of

COPY, ADVANCE_PC, ADVANCE_LINE, SET_FILE, CONST_ADD_PC, FIXED_ADVANCE_PC = 1, 2, 3, 4, 8, 9
END_SEQUENCE, SET_ADDRESS = 1, 2
ENDS = -1


class Row(NamedTuple):
    address: int
    file: str
    line: int            # 0: of no line; ENDS: the end of a stretch of code


class _Reader:
    def __init__(self, data: bytes, at: int = 0):
        self.data, self.at = data, at

    def take(self, form: str):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def text(self) -> str:
        end = self.data.index(b"\0", self.at)
        made, self.at = self.data[self.at:end].decode("utf-8", "replace"), end + 1
        return made

    def number(self, signed: bool = False) -> int:
        """LEB128."""
        made = shift = 0
        while True:
            byte = self.take("B")
            made |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return made - (1 << shift) if signed and byte & 64 else made


def frames(library: Path, offsets: list[int], wanted: Callable[[str], bool]) -> list[list[str]]:
    """Per offset the nearest "file:line" that is wanted, of its row or of those before it in its stretch."""
    rows = rows_of(library)
    starts = [row.address for row in rows]
    found = []
    for offset in offsets:
        at, place = bisect.bisect_right(starts, offset) - 1, ""
        while at >= 0 and rows[at].line != ENDS and not wanted(place):
            place = f"{rows[at].file}:{rows[at].line}"
            at -= 1
        found.append([place] if wanted(place) else [])
    return found


def rows_of(library: Path) -> list[Row]:
    """By address."""
    return _rows(library, library.stat().st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _rows(library: Path, modified: int) -> list[Row]:
    data = library.read_bytes()
    tables = [s for s in sections_of(data) if s.name == ".debug_line"]
    lines = b"".join(data[s.offset:s.offset + s.size] for s in tables)
    rows, reader = [], _Reader(lines)
    while reader.at < len(lines):
        size = reader.take("I")
        end = reader.at + size
        if reader.take("H") == 4:
            rows += _unit(reader, end)
        reader.at = end
    return sorted(rows, key=lambda row: (row.address, row.line != ENDS))


def _unit(reader: _Reader, end: int) -> list[Row]:
    # over the guide: one branch per opcode
    program = reader.take("I") + reader.at
    step, _, _, base, span, first = reader.take("BBBbBB")
    lengths = [0, *(reader.take("B") for _ in range(first - 1))]
    while reader.text():                         # folders
        pass
    files = [""]
    while name := reader.text():
        files.append(name)
        for _ in range(3):                       # its folder, time and length
            reader.number()
    reader.at = program
    rows, address, file, line = [], 0, 1, 1

    def row(number: int) -> None:
        rows.append(Row(address, files[file] if file < len(files) else "", number))

    while reader.at < end:
        code = reader.take("B")
        if code >= first:
            address += (code - first) // span * step
            line += base + (code - first) % span
            row(line)
        elif code == 0:
            after = reader.number() + reader.at
            kind = reader.take("B")
            if kind == SET_ADDRESS:
                address = reader.take("Q")
            elif kind == END_SEQUENCE:
                row(ENDS)
                address, file, line = 0, 1, 1
            reader.at = after
        elif code == COPY:
            row(line)
        elif code == ADVANCE_PC:
            address += reader.number() * step
        elif code == ADVANCE_LINE:
            line += reader.number(signed=True)
        elif code == SET_FILE:
            file = reader.number()
        elif code == CONST_ADD_PC:
            address += (255 - first) // span * step
        elif code == FIXED_ADVANCE_PC:
            address += reader.take("H")
        else:
            for _ in range(lengths[code]):
                reader.number()
    return rows
