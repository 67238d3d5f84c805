"""Whose work is in a folder: submissions of any naming, notebooks and zip files, found and read without trusting them.

    alice/03_gqa.ipynb   03_gqa_alice.ipynb   alice.zip with 03_gqa.ipynb   week3.zip with alice/03_gqa.ipynb
    Alice Smith_4711_assignsubmission_file_/03_gqa.ipynb   submitted/alice/gqa/gqa.ipynb

Nothing is unpacked to the disk and nothing is followed: no links, no devices, no zip bomb.
"""
from __future__ import annotations

import datetime
import io
import json
import re
import stat
import zipfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from course_lib.exercises.declare import CHAPTERS
from course_lib.exercises.cell_text import MARKER, without_magic

MAX_NOTEBOOK = 50 << 20
MAX_FILES = 20_000
INSTEAD = {".zip", ".rar", ".7z", ".tar", ".gz", ".tgz", ".py", ".pdf", ".docx"}        # what students send, besides notebooks

# Words in a file's or a folder's name that name no person.
NOBODY = {"final", "finished", "copy", "copie", "kopie", "version", "ver", "v", "new", "old", "draft", "done",
          "solution", "solutions", "solved", "submission", "submissions", "submitted", "submit", "assignment",
          "assignments", "exercise", "exercises", "homework", "hw", "answer", "answers", "task", "tasks", "lab",
          "labs", "week", "chapter", "ch", "notebook", "notebooks", "work", "attention", "course", "src", "release",
          "handin", "upload", "uploads", "files", "of", "the", "my", "part", "late", "untitled", "checkpoint",
          "start", "here", "onlinetext", "file", "assignsubmission", "macosx", "ipynb", "checkpoints"}
NOBODY |= {part for word in CHAPTERS for part in word.split("_")}


@dataclass
class Submission:
    """One student's file for one chapter."""
    student: str
    chapter: str                       # a word of CHAPTERS, or "" if that cannot be told
    file: str                          # where it was found, for people
    when: float                        # seconds since 1970
    cells: dict[str, str] = field(default_factory=dict)       # exercise id -> the text of its cell
    problem: str = ""                  # why it cannot be read
    notes: list[str] = field(default_factory=list)


def collect(folder: Path) -> list[Submission]:
    """One submission for each student and chapter: the newest that can be read; its notes say which others there were.

    A folder or a file in which there is no notebook counts as a submission too: nobody is missing in the table.
    """
    found: dict[tuple[str, str], list[Submission]] = {}
    names: dict[str, str] = {}
    handed_in = [read(*file) for file in _files(folder)]
    for made in handed_in + _without_notebook(folder, handed_in):
        made.student = names.setdefault(_key(made.student), made.student)          # one spelling for one student
        found.setdefault((_key(made.student), made.chapter), []).append(made)
    chosen = []
    for versions in found.values():
        versions.sort(key=lambda s: (not s.problem, s.when, s.file), reverse=True)
        best = versions[0]
        for other in versions[1:]:
            why = f"cannot be read: {other.problem}" if other.problem else f"of {_moment(other.when)}"
            best.notes.append(f"{best.file} of {_moment(best.when)} is marked, the newest of {len(versions)}; "
                              f"not {other.file} ({why})")
        chosen.append(best)
    return sorted(chosen, key=lambda s: (_key(s.student), CHAPTERS.index(s.chapter) if s.chapter else 99))


def _without_notebook(folder: Path, handed_in: list[Submission]) -> list[Submission]:
    """The folders and files right in `folder` that gave no submission, where their student has no other."""
    heard = {PurePosixPath(s.file).parts[0] for s in handed_in}
    students, missed = {_key(s.student) for s in handed_in}, []
    for entry in sorted(folder.iterdir()):
        name = entry.name if entry.is_dir() else entry.stem
        student = _person(name) or name
        ours = (entry / "marks.json").exists() or (folder / "marks.json").exists()           # results of the grader
        sent = entry.is_dir() or entry.suffix.lower() in INSTEAD
        if sent and not ours and not entry.name.startswith(".") and not {entry.name, name} & heard and _key(student) not in students:
            missed.append(Submission(student, chapter_of_name(PurePosixPath(name)), entry.name, entry.lstat().st_mtime,
                                     problem="there is no notebook in it"))
    return missed


def _key(student: str) -> str:
    return " ".join(re.split(r"[\s_.-]+", student.casefold()))


def _moment(when: float) -> str:
    return datetime.datetime.fromtimestamp(when).strftime("%Y-%m-%d %H:%M")


# --- files -------------------------------------------------------------------------------------------------------

def _files(folder: Path):
    """(path below the folder, time, bytes, problem) of every notebook, zip files looked into."""
    count = 0
    for path in sorted(folder.rglob("*")):
        inside = PurePosixPath(path.relative_to(folder).as_posix())
        if _ignored(inside) or path.suffix.lower() not in (".ipynb", ".zip"):
            continue
        count += 1
        if count > MAX_FILES:
            raise ValueError(f"{folder} holds more than {MAX_FILES} files")
        about = path.lstat()
        if stat.S_ISDIR(about.st_mode):
            continue
        if not stat.S_ISREG(about.st_mode):
            yield inside, about.st_mtime, b"", "it is a link or a device, not a file"
        elif path.suffix.lower() == ".zip":
            yield from _zipped(inside, about.st_mtime, path, depth=0)
        elif about.st_size > MAX_NOTEBOOK:
            yield inside, about.st_mtime, b"", f"it is larger than {MAX_NOTEBOOK >> 20} MiB"
        else:
            try:
                yield inside, about.st_mtime, path.read_bytes(), ""
            except OSError as error:
                yield inside, about.st_mtime, b"", error.strerror or "it cannot be opened"


def _ignored(path: PurePosixPath) -> bool:
    return any(part.startswith((".", "__MACOSX")) for part in path.parts)


def _zipped(path: PurePosixPath, when: float, source, depth: int):
    """The notebooks in a zip file, and in zip files in it. `path` without its suffix stands for a folder."""
    inside = path.with_suffix("")
    try:
        with zipfile.ZipFile(source) as archive:
            for entry in archive.infolist()[:MAX_FILES]:
                parts = PurePosixPath(entry.filename.replace("\\", "/")).parts
                name = PurePosixPath(*[p for p in parts if p not in ("/", "..")])
                full = inside / name
                if entry.is_dir() or _ignored(name) or name.suffix.lower() not in (".ipynb", ".zip"):
                    continue
                moment = _zip_time(entry, when)
                with archive.open(entry) as stream:
                    data = stream.read(MAX_NOTEBOOK + 1)          # what is really there, whatever the zip says
                if len(data) > MAX_NOTEBOOK:
                    yield full, moment, b"", f"it is larger than {MAX_NOTEBOOK >> 20} MiB"
                elif name.suffix.lower() == ".ipynb":
                    yield full, moment, data, ""
                elif depth < 2:
                    yield from _zipped(full, moment, io.BytesIO(data), depth + 1)
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, OSError, EOFError, ValueError, OverflowError) as error:
        yield path, when, b"", f"the zip file cannot be read: {error}"
    except Exception as error:           # zlib and lzma have errors of their own
        yield path, when, b"", f"the zip file cannot be read: {type(error).__name__}"


def _zip_time(entry: zipfile.ZipInfo, otherwise: float) -> float:
    try:
        return datetime.datetime(*entry.date_time).timestamp()
    except (ValueError, OverflowError):
        return otherwise


# --- notebooks ---------------------------------------------------------------------------------------------------

def read(path: PurePosixPath, when: float, data: bytes, problem: str) -> Submission:
    """A submission from a notebook's bytes: of all its cells, those that begin with an exercise's marker."""
    made = Submission(student_of(path), chapter_of_name(path), str(path), when, problem=problem)
    if problem:
        return made
    try:
        cells = json.loads(data.decode("utf-8-sig", "replace"))["cells"]
        texts = [_source(cell) for cell in cells if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
        made.problem = f"it is no notebook ({type(error).__name__})"
        return made
    for text in texts:
        match = MARKER.match(text)
        if match:
            if match[1] in made.cells:
                made.notes.append(f"exercise {match[1]} has more than one cell: the last one is marked")
            made.cells[match[1]] = without_magic(text)
    numbers = [int(id.split(".")[0]) for id in made.cells]
    if numbers:
        number = max(set(numbers), key=numbers.count)
        if number < len(CHAPTERS):
            made.chapter = CHAPTERS[number]
    elif not made.chapter:
        made.problem = "it holds no exercise of this course"
    return made


def _source(cell: dict) -> str:
    source = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    return source if isinstance(source, str) else ""


# --- names -------------------------------------------------------------------------------------------------------

def chapter_of_name(path: PurePosixPath) -> str:
    """The chapter that a file's name speaks of: its word, else its number; "" if it names none."""
    for part in (path.stem, *reversed(path.parts[:-1])):
        plain = re.sub(r"[^a-z0-9]+", "_", part.lower())
        words = [w for w in CHAPTERS if re.search(rf"(?:^|_)\d*_?{w}(?:_|$)", plain)]
        if words:
            return max(words, key=len)
    number = re.match(r"(?:.*[_\s-])?(\d{2})(?:[_\s-]|$)", path.stem)
    return CHAPTERS[int(number[1])] if number and int(number[1]) < len(CHAPTERS) else ""


def student_of(path: PurePosixPath) -> str:
    """The student that a path speaks of: the innermost folder that names somebody, else the file's own name."""
    for part in reversed(path.parts[:-1]):
        name = _person(part)
        if name:
            return name
    return _person(path.stem) or path.stem


def _person(text: str) -> str:
    """What is left of a name when the chapter, numbers and words such as 'final' are gone."""
    text = re.sub(r"_\d+_assignsubmission_.*$", "", text)                  # Moodle
    text = re.sub(r"(?:_late)?_\d{3,}_\d{3,}_.*$", "", text, flags=re.I)    # Canvas
    plain = text
    for word in sorted(CHAPTERS, key=len, reverse=True):
        plain = re.sub(rf"(?<![A-Za-z0-9])\d*[_\s-]*{word}(?![A-Za-z0-9])", " ", plain, flags=re.I)
    parts = [p for p in re.split(r"[\s_()\[\]-]+", plain) if p]
    parts = [p for p in parts if not re.fullmatch(r"(?:v|copy|ch|hw|week|assignment|part)?\d{0,2}", p, re.I)]
    kept = [p for p in parts if p.lower() not in NOBODY]
    if not kept:
        return ""
    return text.strip() if len(kept) == len([p for p in re.split(r"[\s_()\[\]-]+", text) if p]) else " ".join(kept)
