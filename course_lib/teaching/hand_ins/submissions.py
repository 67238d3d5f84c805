"""Submissions from a folder of any naming: one per student and chapter, with what was found beside it.

    alice/03_gqa.ipynb   03_gqa_alice.ipynb   alice.zip with 03_gqa.ipynb   submitted/alice/gqa/gqa.ipynb
    Alice Smith_4711_assignsubmission_file_/anything.zip   smithalice_12345_678910_03_gqa.ipynb"""
import codecs
import datetime
import json
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from course_lib.exercises.cell_text import MARKER
from course_lib.exercises.running.kernel_runner import without_magic
from course_lib.exercises.declare import CHAPTERS
from .identity import LONGEST_NAME, Person, Roster, from_name
from .intake import Found, notebooks_in

LONGEST_CELL = 30_001           # characters kept of a cell: one more than what is marked
MAX_IDS = 200                   # exercises in one notebook
ANSWER = re.compile(r"\A\s*(?:#{1,6}\s*|\*\*)?Answer\s+(\d{1,3}\.[a-z]\w{0,9})\b[*:.]*", re.I)
# what students send in place of notebooks
INSTEAD = {".zip", ".rar", ".7z", ".tar", ".gz", ".tgz", ".py", ".pdf", ".docx"}


@dataclass
class Submission:
    """One student's file for one chapter."""
    student: str                       # the name that the table shows; no two students have the same
    chapter: str                       # a word of CHAPTERS, or "" if that cannot be told
    file: str                          # where it was found, for people
    when: float                        # seconds since 1970
    sent: float = 0.0                  # when it was handed in; a date in a student's zip is `when` alone
    cells: dict[str, str] = field(default_factory=dict)       # exercise id -> the text of its cell
    problem: str = ""                  # why it cannot be read
    notes: list[str] = field(default_factory=list)
    person: Person = Person("")        # who it is, by the roster where there is one
    given: Person = Person("")         # who it is by the file's own path
    answers: dict[str, str] = field(default_factory=dict)     # text answers: id -> Markdown
    row: dict[str, str] = field(default_factory=dict)         # the student's line of the roster
    beside: bool = False               # in a notebook that is another chapter's by most of its exercises


def collect(folder: Path, class_zips: list[Path] = (), depth: int | None = None,
            roster: Roster | None = None) -> list[Submission]:
    """One submission per student and chapter: the newest that can be read; its notes name the others.

    A folder or a file without a notebook counts as a submission too, and so does a student of the roster who
    sent nothing, so that the table misses nobody."""
    handed_in = [made for found in notebooks_in(folder, class_zips, depth) for made in read(found)]
    handed_in += _without_notebook(folder, handed_in)
    if roster:
        _match(handed_in, roster)
    whole = {(s.person.key, s.chapter) for s in handed_in if not s.beside and not s.problem}
    handed_in = [s for s in handed_in if not s.beside or (s.person.key, s.chapter) not in whole]
    found: dict[tuple[str, str], list[Submission]] = {}
    for made in handed_in:
        found.setdefault((made.person.key, made.chapter), []).append(made)
    chosen = [_newest(versions) for versions in found.values()]
    _name(chosen)
    return sorted(chosen,
                  key=lambda s: (s.student.casefold(), s.student, CHAPTERS.index(s.chapter) if s.chapter
                                 else 99))


def _newest(versions: list[Submission]) -> Submission:
    versions.sort(key=lambda s: (not s.problem, s.when, s.file), reverse=True)
    best = versions[0]
    for other in versions[1:6]:
        why = f"cannot be read: {other.problem}" if other.problem else f"of {_moment(other.when)}"
        best.notes.append(f"{best.file} of {_moment(best.when)} is marked, the newest of {len(versions)}; "
                          f"not {other.file} ({why})")
    if len(versions) > 6:
        best.notes.append(f"and {len(versions) - 6} more. If these are of several students: --depth says at "
                          "which level the names are")
    return best


def _name(submissions: list[Submission]) -> None:
    """Names for the table: one per person, with the platform's number where two people share a name."""
    people: dict[str, dict[str, str]] = {}                    # a name's spelling-free form -> {key: name}
    for made in submissions:
        made.student = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in made.student)
        people.setdefault(made.student.casefold(), {}).setdefault(made.person.key, made.student)
    for made in submissions:
        same = people[made.student.casefold()]
        name = same[made.person.key]
        made.student = f"{name} ({made.person.id or 'no number'})" if len(same) > 1 else name


def _match(submissions: list[Submission], roster: Roster) -> None:
    """Give each submission its line of the roster, and add those who have sent nothing."""
    seen = set()
    for made in submissions:
        row = roster.find(made.person)
        if row is None:
            made.notes.append("not on the roster")
            continue
        seen.add(id(row))
        made.row, made.student = row, row["name"] or made.student
        made.person = Person(made.student, row["id"] or f"roster {roster.people.index(row)}")
    for row in roster.people:
        if id(row) not in seen:
            person = Person(row["name"] or row["id"], row["id"] or f"roster {roster.people.index(row)}")
            submissions.append(Submission(person.name, "", "", 0.0, problem="nothing was handed in",
                                          person=person, row=row))


def _without_notebook(folder: Path, handed_in: list[Submission]) -> list[Submission]:
    """The folders and files right in `folder` that gave no submission, where their student has no other."""
    heard = {PurePosixPath(s.file).parts[0] for s in handed_in if s.file}
    students, missed = {s.person.key for s in handed_in}, []
    if _is_results(folder):
        return []
    for entry in sorted(folder.iterdir()):
        sent = entry.is_dir() and not _is_results(entry) or entry.suffix.lower() in INSTEAD
        name = entry.name if entry.is_dir() else entry.stem
        person = from_name(name) or Person(name)
        if (sent and not entry.name.startswith(".") and not {entry.name, name} & heard
            and person.key not in students):
            missed.append(Submission(person.name, chapter_of_name(PurePosixPath(name)), entry.name,
                                     entry.lstat().st_mtime, problem="there is no notebook in it",
                                     person=person))
    return missed


def _is_results(folder: Path) -> bool:
    """Whether a marking writes here: nothing was handed in."""
    return any((folder / name).exists() for name in ("marks.json", ".lock"))


def _moment(when: float) -> str:
    return datetime.datetime.fromtimestamp(when).strftime("%Y-%m-%d %H:%M")


def read(found: Found) -> list[Submission]:
    """A submission from a notebook's bytes, and one for each other chapter that it has exercises of."""
    first = _read(found)
    numbers = {int(id.split(".")[0]) for id in first.cells if not first.problem}
    others = [CHAPTERS[n] for n in sorted(numbers) if n < len(CHAPTERS) and CHAPTERS[n] != first.chapter]
    return [first, *(replace(first, chapter=other, beside=True, notes=[*first.notes], row={})
                     for other in others)]


def _read(found: Found) -> Submission:
    """Of all cells of a notebook, those that begin with an exercise's marker; the chapter is that of most."""
    made = Submission(found.person.name, chapter_of_name(found.path), str(found.path), found.when,
                      found.sent or found.when, problem=found.problem, person=found.person,
                      given=found.person)
    if found.problem:
        return made
    try:
        cells = _cells(found.data)
        texts = [_source(cell) for cell in cells if isinstance(cell, dict) and cell.get("cell_type")
                 == "code"]
        made.answers = _answers(cells)
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError, MemoryError) as error:
        made.problem = f"it is no notebook ({type(error).__name__})"
        return made
    repeated = set()
    for text in texts:
        match = MARKER.match(text[:LONGEST_CELL])
        if match and (match[1] in made.cells or len(made.cells) < MAX_IDS):
            repeated |= {match[1]} & made.cells.keys()
            made.cells[match[1]] = without_magic(text[:LONGEST_CELL])
    made.notes += [f"exercise {id} has more than one cell: the last one is marked" for id in sorted(repeated)]
    numbers = Counter(int(id.split(".")[0]) for id in made.cells)
    if numbers:
        number = max(numbers, key=numbers.get)
        if number < len(CHAPTERS):
            made.chapter = CHAPTERS[number]
    elif not made.chapter:
        made.problem = "it holds no exercise of this course"
    return made


def _cells(data: bytes) -> list:
    """The cells of a notebook, of the old format 3 and in PowerShell's UTF-16 too."""
    wide = data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    read = json.loads(data.decode("utf-16" if wide else "utf-8-sig", "replace"))
    return [cell for sheet in read["worksheets"] for cell in sheet["cells"]] if "worksheets" in read else read["cells"]


def _answers(cells: list) -> dict[str, str]:
    """Text answers: Markdown cells that begin with `Answer 3.a`."""
    found = {}
    for cell in cells:
        if isinstance(cell, dict) and cell.get("cell_type") == "markdown" and len(found) < MAX_IDS:
            text = _source(cell)[:LONGEST_CELL]
            if match := ANSWER.match(text):
                found[match[1]] = text[match.end():].strip()
    return found


def _source(cell: dict) -> str:
    source = cell.get("source", cell.get("input", ""))
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    return source if isinstance(source, str) else ""


def chapter_of_name(path: PurePosixPath) -> str:
    """The chapter that a file's name speaks of: its word, else its number; "" if it names none."""
    for part in (path.stem, *reversed(path.parts[:-1])):
        plain = re.sub(r"[^a-z0-9]+", "_", part[:LONGEST_NAME].lower())
        words = [w for w in CHAPTERS if re.search(rf"(?:^|_)\d*_?{w}(?:_|$)", plain)]
        if words:
            return max(words, key=len)
    number = re.match(r"(?:.*[_\s-])?(\d{2})(?:[_\s-]|$)", path.stem[:LONGEST_NAME])
    return CHAPTERS[int(number[1])] if number and int(number[1]) < len(CHAPTERS) else ""
