"""Whose work a file is: told by the outermost folder, zip or file name that names somebody, or by a roster.

What a student can choose inside a hand-in (folders in a zip, files in a folder) never names anybody else."""
import csv
import datetime
import re
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from course_lib.exercises.declare import CHAPTERS

LONGEST_NAME = 255
# Words in the name of a file or a folder that name no person.
NO_NAMES = set("""
    final finished copy copie kopie version ver v new old draft done solution solutions solved submission
    submissions submitted submit assignment assignments exercise exercises homework hw answer answers task
    tasks lab labs week chapter ch notebook notebooks work attention course src release handin upload
    uploads files of the my part late untitled checkpoint start here onlinetext file assignsubmission macosx
    ipynb checkpoints desktop downloads documents home export autograder code
    """.split()) | {part for word in CHAPTERS for part in word.split("_")}
# Of these, what people are called too: kept beside another name where both begin with a capital.
NAMES_TOO = set("my the of new old field late part home work start here guide".split())
# Words that a number makes a name: student 7, team 12.
ROLES = set("student students team group participant candidate person user learner seat".split())
# The folder of a hand-in, or a file of it where there are no folders. A second `_assignsubmission_` is
# somebody's choice, so then it is neither.
MOODLE = re.compile(r"(?P<name>.{1,200}?)_(?P<id>\d{1,20})_assignsubmission_[a-z]{1,40}(?:_.*)?", re.I | re.S)
CANVAS = re.compile(r"(?P<name>[^_]{1,200}?)_(?P<late>late_)?(?P<id>\d{3,20})_\d{3,20}_.*", re.I)
# Brightspace's folder, Blackboard's file: they say when it was handed in.
BRIGHTSPACE = re.compile(r"(?:\d{1,20}-\d{1,20} - )?(?P<name>.{1,200}?) ?- (?P<moment>[a-z]{3,9} \d{1,2}, \d{4} "
                         r"\d{3,4} [ap]m)", re.I)
BLACKBOARD = re.compile(r".{1,200}_(?P<name>[^_]{1,200})_attempt_(?P<moment>\d{4}(?:-\d\d){5})(?:_.*)?", re.I | re.S)
GRADESCOPE = re.compile(r"submission_(?P<id>\d{3,20})", re.I)


@dataclass(frozen=True)
class Person:
    """Who handed something in. `id` is the number by which a learning platform knows them, or ""."""
    name: str
    id: str = ""

    @property
    def key(self) -> str:
        """Equal for two files exactly if they are the same person's."""
        return f"#{self.id}" if self.id else " ".join(re.split(r"[\s_.-]+", plain(self.name)))


def plain(text: str) -> str:
    """One spelling for names that look alike: composed accents, lower case."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def person_of(path: PurePosixPath, depth: int | None = None) -> Person:
    """The person of a path below the folder of submissions.

    `depth` 1, 2, ... says at which level the names are. Without it the outermost folder that is a name or a
    number is taken (folders 01 to 40), then the file's own name."""
    part = _naming(path, depth)
    return from_name(part) or Person(unicodedata.normalize("NFC", part))


def moment_of(path: PurePosixPath, depth: int | None = None) -> float | None:
    """When a hand-in was made, where the platform's name for it says so."""
    for pattern, form in ((BRIGHTSPACE, "%b %d, %Y %I%M %p"), (BLACKBOARD, "%Y-%m-%d-%H-%M-%S")):
        if match := pattern.fullmatch(_naming(path, depth)[:LONGEST_NAME]):
            words = [word[:3] if word.isalpha() else word for word in match["moment"].split()]
            words[-2:-1] = [word.zfill(4) for word in words[-2:-1]]         # 905 AM
            try:
                return datetime.datetime.strptime(" ".join(words), form).timestamp()
            except (ValueError, OverflowError):
                return None
    return None


def late_by_name(path: PurePosixPath) -> bool | None:
    """Whether Canvas's name for a file says that it came late; None if the name is not Canvas's."""
    match = CANVAS.fullmatch(path.parts[0]) if path.parts else None
    return bool(match["late"]) if match else None


def _naming(path: PurePosixPath, depth: int | None) -> str:
    if depth is not None:
        return path.parts[depth - 1] if depth < len(path.parts) else path.stem
    return next((part for part in path.parts[:-1] if from_name(part) or re.fullmatch(r"\d{1,12}", part)), path.stem)


def from_name(text: str) -> Person | None:
    """The person that a file's or a folder's name speaks of, if it does."""
    text = unicodedata.normalize("NFC", text[:LONGEST_NAME])
    if marks := len(re.findall("_assignsubmission_", text, re.I)):
        match = MOODLE.fullmatch(text) if marks == 1 else None
        return Person(match["name"].strip(), match["id"]) if match else Person(text)
    for pattern in (CANVAS, BRIGHTSPACE, BLACKBOARD, GRADESCOPE):
        if match := pattern.fullmatch(text):
            found = match.groupdict()
            return Person((found.get("name") or match[0]).strip(), found.get("id", ""))
    name = _without_common_words(text)
    return Person(name) if name else None


def _without_common_words(text: str) -> str:
    """What is left of a name when the chapter, numbers and words such as 'final' are gone."""
    words = [w for w in re.split(r"[\s_()\[\]-]+", text) if w]
    kept = [w for before, w in zip(["", *words], words) if w.isdigit() and before.lower() in ROLES
            or w.lower() not in NO_NAMES
            and not re.fullmatch(r"(?:v|copy|ch|hw|week|assignment|part)?\d{0,2}|\d+", w, re.I)]
    if kept and all(w[0].isupper() for w in words):
        kept = [w for w in words if w in kept or w.lower() in NAMES_TOO]
    if not kept:
        return ""
    return text.strip() if len(kept) == len(words) else " ".join(kept)


@dataclass
class Roster:
    """The students of a class, from a CSV file: `name`, and perhaps `id`, `email`, `login`, `group`.

    The gradebooks that Canvas and Moodle export will do as they are."""
    people: list[dict[str, str]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> "Roster":
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [_columns(row) for row in csv.DictReader(file)]
        people = [row for row in rows if row["name"] or row["id"]]
        if not people:
            raise ValueError(f"{path}: a roster needs a header with `name` (or `Student`, or `First name` "
                             "and `Last name`)")
        return cls(people)

    def find(self, person: Person) -> dict[str, str] | None:
        """The one row that is this person's: by id, else by name, login or e-mail; None unless just one."""
        if person.id and (found := [p for p in self.people if p["id"] == person.id]):
            return found[0] if len(found) == 1 else None
        wanted = _letters(person.name)
        found = [p for p in self.people if wanted and wanted in map(_letters, (
            p["name"], _turned(p["name"]), p["login"], p["email"].partition("@")[0], p["id"]))]
        return found[0] if len(found) == 1 else None


def _columns(row: dict) -> dict[str, str]:
    """A gradebook's row under the names that are used here."""
    low = {plain(key or ""): (value or "").strip() for key, value in row.items() if isinstance(value, str)}

    def first(*names: str) -> str:
        return next((low[name] for name in names if low.get(name)), "")
    name = (first("name", "student", "full name")
            or " ".join(filter(None, [first("first name"), first("last name", "surname")])))
    return {"name": name, "id": first("id", "id number", "sid", "identifier").removeprefix("Participant "),
            "login": first("login", "sis login id", "username"), "email": first("email", "email address"),
            "section": first("section"), "extension": first("extension"), "group": first("group", "team")}


def _letters(text: str) -> str:
    """A name without spaces, punctuation and accents' spelling: `O'Neil, Ann` and `oneilann` are alike."""
    return "".join(c for c in plain(text) if c.isalnum())


def _turned(name: str) -> str:
    """'Smith, Ann' <-> 'Ann Smith'."""
    last, comma, first = name.partition(",")
    return f"{first} {last}" if comma else " ".join([*name.split()[-1:], *name.split()[:-1]])
