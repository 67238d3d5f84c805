"""What a compiled object asks of others, read from its ELF tables: symbols, and code that runs by itself.

Objects of 64 bits, little-endian: x86-64 and arm64 on Linux."""
import functools
import struct
from dataclasses import dataclass
from pathlib import Path

SYMBOLS, DYNAMIC_SYMBOLS, VERSION_NEEDED, VERSIONS = 2, 11, 0x6FFFFFFE, 0x6FFFFFFF
# STT_OBJECT, STT_COMMON, STT_TLS
VARIABLE_KINDS = (1, 5, 6)
# STT_FUNC, STT_GNU_IFUNC
FUNCTION_KINDS = (2, 10)
# sections whose functions run when a library is loaded, or unloaded
BY_ITSELF = (".preinit_array", ".init_array", ".fini_array", ".ctors", ".dtors")


@dataclass
class ObjectFile:
    """Names that it needs, with the library that has them where the file says so; names that it gives, and
    those of its variables, of those that can be written (with their bytes) and of functions (with their places),
    its own alone included; and its sections of code that runs by itself."""
    needs: dict[str, str]
    gives: set[str]
    variables: set[str]
    writable: dict[str, int]
    functions: dict[str, range]
    by_itself: list[str]


@dataclass(frozen=True)
class Section:
    name: str
    kind: int
    writable: bool
    offset: int
    size: int
    link: int


def sections_of(data: bytes) -> list[Section]:
    """Of a file's bytes; none of what is no such file."""
    if data[:6] != b"\x7fELF\x02\x01":
        return []
    table, = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    rows = [struct.unpack_from("<IIQQQQI", data, table + i * size) for i in range(count)]
    return [Section(_text(data, rows[names][4] + at), kind, bool(flags & 1), *place)
            for at, kind, flags, _, *place in rows]


def _text(data: bytes, begin: int) -> str:
    return data[begin:data.index(b"\0", begin)].decode("utf-8", "replace")


def read_object(path: Path) -> ObjectFile | None:
    """None for what is no such file. It is shared by who asks again, and nobody changes it."""
    return _read(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _read(path: Path, _: int) -> ObjectFile | None:
    data = path.read_bytes()
    sections = sections_of(data)
    if not sections:
        return None

    def text(section: int, at: int) -> str:
        return _text(data, sections[section].offset + at)

    files = _files(data, sections, text)
    versions = next((s.offset for s in sections if s.kind == VERSIONS), None)
    made = ObjectFile({}, set(), set(), {}, {}, [])
    for section in sections:
        if section.name.startswith(BY_ITSELF):
            made.by_itself.append(section.name)
        if section.kind not in (SYMBOLS, DYNAMIC_SYMBOLS):
            continue
        for i in range(1, section.size // 24):
            at, info, _, place, begin, size = struct.unpack_from("<IBBHQQ", data, section.offset + 24 * i)
            called = text(section.link, at)
            if info & 15 in FUNCTION_KINDS and place:
                made.functions[called] = range(begin, begin + size)
            if info & 15 in VARIABLE_KINDS:
                made.variables.add(called)
                if 0 < place < len(sections) and sections[place].writable:
                    made.writable[called] = size
            if info >> 4 == 0:                                   # local
                continue
            if place:
                made.gives.add(called)
            elif section.kind == DYNAMIC_SYMBOLS and versions is not None:
                number, = struct.unpack_from("<H", data, versions + 2 * i)
                made.needs[called] = files.get(number & 0x7FFF, "")
            else:
                made.needs.setdefault(called, "")
    return made


def _files(data: bytes, sections: list[Section], text) -> dict[int, str]:
    """{a version's number: the library that has it}"""
    found = {}
    for section in sections:
        at = section.offset
        while section.kind == VERSION_NEEDED:
            _, count, file, first, step = struct.unpack_from("<HHIII", data, at)
            part = at + first
            for _ in range(count):
                _, _, number, _, after = struct.unpack_from("<IHHII", data, part)
                found[number] = text(section.link, file)
                part += after
            if not step:
                break
            at += step
    return found
