"""`python -m course_lib exam out|mark`: one sheet per student from a roster and a secret, and its marks."""
import argparse
import json
import os
import re
import secrets
import sys
from pathlib import Path

from course_lib.files import write_whole
from ..confined.probe import Refused, check_walls
from ..hand_ins.identity import Roster
from ..hand_ins.submissions import collect
from ..reports import report
from .mark import marks_of
from .notebook import notebook
from .sheets import key_of, sheet


def main(argv: list[str]) -> int:
    args = _arguments(argv)
    try:
        roster = Roster.read(Path(args.roster))
        return _out(args, roster) if args.action == "out" else _mark(args, roster)
    except (Refused, ValueError) as error:
        print(f"exam: {error}", file=sys.stderr)
        return 2


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m course_lib exam",
                                     description="An exam on a machine that is drawn for each student.")
    actions = parser.add_subparsers(dest="action", required=True)
    out = actions.add_parser("out", help="write one folder with a notebook per student")
    mark = actions.add_parser("mark", help="mark what was handed in")
    mark.add_argument("folder", metavar="FOLDER", help="notebooks and zip files, as for grade")
    mark.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), metavar="N")
    mark.add_argument("--no-sandbox", action="store_true",
                      help="mark even where a wall around students' code is missing")
    for each in (out, mark):
        each.add_argument("--roster", required=True, metavar="CSV", help="the class, as for grade")
        each.add_argument("--secret", required=True, metavar="FILE",
                          help="what the sheets are drawn from; `out` makes it where there is none. Keep it: "
                          "without it nothing can be marked")
        each.add_argument("--out", required=True, metavar="DIR")
    return parser.parse_args(argv)


def _out(args: argparse.Namespace, roster: Roster) -> int:
    keys = [key_of(row) for row in roster.people]
    folders = [_folder(key).casefold() for key in keys]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    shared = sorted({key for key, folder in zip(keys, folders) if folders.count(folder) > 1})
    if shared and not twice:
        raise Refused(f"{args.roster}: {', '.join(shared)} would get one folder; give ids of other letters")
    if twice:
        raise Refused(f"{args.roster}: {', '.join(twice)} occurs more than once; give ids to tell them apart")
    secret = _secret(Path(args.secret), make=True)
    for row in roster.people:
        name = row["name"] or row["id"]
        folder = Path(args.out) / _folder(key_of(row))
        folder.mkdir(parents=True, exist_ok=True)
        made = notebook(sheet(secret, key_of(row)), name)
        write_whole(folder / "exam.ipynb", json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    print(f"{args.out}: {len(keys)} notebooks; {args.secret} is needed to mark them")
    return 0


def _folder(key: str) -> str:
    """Of one student: the number or the name, by which `mark` finds the student again."""
    return re.sub(r"[^\w -]+", "_", key)


def _secret(path: Path, make: bool = False) -> str:
    if make and not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_hex(32) + "\n")
    if not path.is_file() or len(path.read_text().strip()) < 16:
        raise Refused(f"{path} holds no secret: `exam out` makes one, of at least 16 characters")
    return path.read_text().strip()


def _mark(args: argparse.Namespace, roster: Roster) -> int:
    folder, results = Path(args.folder), Path(args.out)
    if not folder.is_dir():
        raise Refused(f"{folder} is not a folder")
    secret, hide = _secret(Path(args.secret)), [folder, results, Path(args.secret), Path(args.roster)]
    submissions = collect(folder, roster=roster)
    if not args.no_sandbox:
        check_walls(hide)
    results.mkdir(parents=True, exist_ok=True)
    marks = marks_of(submissions, secret, args.jobs, not args.no_sandbox, hide)
    report.write(results, marks)
    passed = sum(bool(m.verdict.points) for m in marks)
    print(f"{len({m.student for m in marks})} students, {len(marks)} marks, {passed} passed: "
          f"{results / 'grades.csv'}")
    return 1 if any(m.exercise and m.verdict.status == "not run" for m in marks) else 0
