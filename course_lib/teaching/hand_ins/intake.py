"""The notebooks in a folder of submissions and in zip files in it, read without trusting them.

Nothing is unpacked to the disk and nothing is followed: no links, no devices. Every size is bounded before it
is read, per file and per hand-in, so that one hand-in cannot take the memory or the time of the others."""

import datetime
import io
import re
import stat
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Iterator

from .identity import LONGEST_NAME, Person, moment_of, person_of

MAX_NOTEBOOK = 50 << 20         # bytes of one notebook
MAX_PARTS = 1_000_000           # commas and brackets in one notebook: each costs memory when it is read
MAX_HAND_IN = 200 << 20         # bytes of one hand-in, unpacked
MAX_NOTEBOOKS = 50              # of one hand-in
MAX_ENTRIES = 2_000             # in one zip
MAX_FILES = 20_000


@dataclass
class Found:
    """One notebook, or the reason why there is none."""
    person: Person
    origin: str  # the entry of the folder, or of a class's zip, that it was in: what one person has handed in
    path: PurePosixPath
    when: float
    data: bytes = b""
    problem: str = ""
    sent: float = 0.0               # when its zip came, whatever the dates in it; 0: it was in none


def notebooks_in(folder: Path, class_zips: list[Path] = (), depth: int | None = None) -> Iterator[Found]:
    """Every notebook. `class_zips`: zip files that hold a class, whose inner folders name students."""
    class_zips = [Path(path).resolve() for path in class_zips]
    budgets: dict[str, _Budget] = {}
    count = 0
    for path in sorted(folder.rglob("*")):
        inside = PurePosixPath(path.relative_to(folder).as_posix())
        if (_ignored(inside) or path.suffix.lower() not in (".ipynb", ".zip")
            or stat.S_ISDIR(path.lstat().st_mode)):
            continue
        count += 1
        if count > MAX_FILES:
            raise ValueError(f"{folder} holds more than {MAX_FILES} files")
        if path.resolve() in class_zips:
            found = _class_zip(path, depth)
        else:
            person = person_of(inside, depth)
            found = _file(path, inside, person, moment_of(inside, depth))
        for one in found:
            yield budgets.setdefault(one.origin, _Budget()).spend(one)


class _Budget:
    """What one hand-in has used up of its limits."""

    def __init__(self):
        self.bytes = self.notebooks = 0

    def spend(self, found: Found) -> Found:
        self.bytes += len(found.data)
        self.notebooks += 1
        if not found.problem and (self.bytes > MAX_HAND_IN or self.notebooks > MAX_NOTEBOOKS):
            found.data, found.problem = b"", (f"the hand-in holds more than {MAX_NOTEBOOKS} notebooks or "
                                              f"{MAX_HAND_IN >> 20} MiB")
        return found


def _ignored(path: PurePosixPath) -> bool:
    return any(part.startswith((".", "__MACOSX")) for part in path.parts)


def _file(path: Path, inside: PurePosixPath, person: Person, moment: float | None) -> Iterator[Found]:
    about = path.lstat()
    found = Found(person, person.key, inside, min(about.st_mtime if moment is None else moment, time.time()))
    if not stat.S_ISREG(about.st_mode):
        found.problem = "it is a link or a device, not a file"
    elif path.suffix.lower() == ".zip":
        yield from _zipped(path, found)
        return
    elif about.st_size > MAX_NOTEBOOK:
        found.problem = _too_large()
    else:
        try:
            found.data = path.read_bytes()
        except OSError as error:
            found.problem = error.strerror or "it cannot be opened"
    yield _bounded(found)


def _bounded(found: Found) -> Found:
    if sum(map(found.data.count, (b",", b"[", b"{"))) > MAX_PARTS:
        found.data, found.problem = b"", "it has more parts than a notebook can have"
    return found


def _too_large() -> str:
    return f"it is larger than {MAX_NOTEBOOK >> 20} MiB"


def _zipped(source, found: Found, depth: int = 0) -> Iterator[Found]:
    """The notebooks in one person's zip file, and in zip files in it."""
    folder = found.path.with_suffix("")
    spent = 0
    for name, moment, data, problem in _entries(source, found.when):
        spent += len(data)
        one = Found(found.person, found.origin, folder / name, moment, data, problem,
                    found.sent or found.when)
        if spent > MAX_HAND_IN:
            one.data, one.problem = b"", f"the zip file holds more than {MAX_HAND_IN >> 20} MiB"
            yield one
            return
        if name.suffix.lower() == ".zip" and not problem:
            if depth < 2:
                yield from _zipped(io.BytesIO(data), one, depth + 1)
        else:
            yield _bounded(one)


def _class_zip(path: Path, depth: int | None) -> Iterator[Found]:
    """The notebooks in an instructor's zip file: each entry is of the person whom its inner path names."""
    when = path.stat().st_mtime
    for name, moment, data, problem in _entries(path, when, limit=MAX_FILES):
        person = person_of(name, depth)
        said = moment_of(name, depth)
        moment = moment if said is None else min(said, when)
        one = Found(person, person.key, PurePosixPath(path.name) / name, moment, data, problem)
        if name.suffix.lower() == ".zip" and not problem:
            yield from _zipped(io.BytesIO(data), one)
        else:
            yield _bounded(one)


def _entries(source, when: float,
             limit: int = MAX_ENTRIES) -> Iterator[tuple[PurePosixPath, float, bytes, str]]:
    """(name, time, bytes, problem) of notebooks and zip files in a zip file; one row if it is broken."""
    try:
        with zipfile.ZipFile(source) as archive:
            for entry in archive.infolist()[:limit]:
                name = _safe(entry.filename)
                if entry.is_dir() or _ignored(name) or name.suffix.lower() not in (".ipynb", ".zip"):
                    continue
                with archive.open(entry) as stream:
                    data = stream.read(MAX_NOTEBOOK + 1)    # whatever the zip's own table says
                large = len(data) > MAX_NOTEBOOK
                yield name, _moment(entry, when), b"" if large else data, _too_large() * large
    except (zipfile.BadZipFile, RuntimeError, OSError, EOFError, ValueError, OverflowError) as error:
        why = "it has a password" if "password required" in str(error) else error
        yield PurePosixPath(""), when, b"", f"the zip file cannot be read: {why}"
    except Exception as error:           # zlib and lzma have errors of their own
        yield PurePosixPath(""), when, b"", f"the zip file cannot be read: {type(error).__name__}"


def _safe(filename: str) -> PurePosixPath:
    """A name in a zip as a short path that does not leave it."""
    parts = re.split(r"[/\\]", filename[-4 * LONGEST_NAME:])
    kept = [part if len(part) <= LONGEST_NAME else f"{part[:100]}...{part[-50:]}" for part in parts
            if part not in ("", ".", "..")]
    return PurePosixPath(*kept[-8:])


def _moment(entry: zipfile.ZipInfo, otherwise: float) -> float:
    """When an entry was changed; never later than the zip file itself."""
    try:
        return min(datetime.datetime(*entry.date_time).timestamp(), otherwise)
    except (ValueError, OverflowError):
        return otherwise
