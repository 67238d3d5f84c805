"""`python -m course_lib grade FOLDER --out RESULTS`: from a folder of submissions to marks.

Only the exercise cells are a student's; all else is the course's own. docs/marking.md is for instructors."""

import argparse
import contextlib
import fcntl
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

from course_lib.exercises.declare import CHAPTERS, NoChapter, chapter_word
from course_lib.exercises.judging.verdict import NOT_RUN, PASSED
from course_lib.files import write_whole
from .arguments import arguments
from .confined.probe import Refused, check_walls
from .hand_ins.identity import Roster
from .hand_ins.late import LateRule, read_rule
from .hand_ins.submissions import Submission, collect
from .marks import by_hand, changes, marking
from .marks.batch import Batch, tasks
from .marks.store import Store
from .marks.table import flag_copies, table
from .reports import report
from .reports.class_page import class_page
from .reports.gradebooks import write_gradebooks


@dataclass
class Job:
    """What is to be marked, and into which folder."""
    submissions: list[Submission]
    chapters: list[str]
    store: Store
    waiting: dict[int, dict]
    results: Path
    late: LateRule
    by_hand: list[by_hand.Line]
    before: dict[tuple[str, str], tuple[str, str]]          # the rows of an earlier run's grades.csv


def main(argv: list[str]) -> int:
    """The command line. 0: every readable cell was marked; 1: some marking failed; 2: nothing was marked."""
    args = arguments(argv)
    begin = time.monotonic()
    try:
        with alone(Path(args.out)):
            job = _prepare(args)
            print(f"seed {job.store.seed}", file=sys.stderr)
            return _mark(job, args, begin)
    except (Refused, NoChapter) as error:
        print(f"grade: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"grade: {error.filename or args.out}: {error.strerror or error}; what is marked already is "
              "kept, and the same command resumes", file=sys.stderr)
        return 2


def _prepare(args: argparse.Namespace) -> Job:
    """Read the submissions and the marks of earlier runs; raise Refused where marking cannot begin."""
    folder, results = Path(args.folder), Path(args.out)
    if not folder.is_dir():
        raise Refused(f"{folder} is not a folder")
    private = str(Path(args.exercises).resolve()) if args.exercises else None
    if private and not Path(private).is_dir():
        raise Refused(f"{private} is not a folder")
    wanted = [chapter_word(name) for name in args.chapter]
    try:
        late = read_rule(args.due, args.late, args.late_days, args.grace)
        given = by_hand.read(results)
        marking.load_private(private)
        roster = Roster.read(Path(args.roster)) if args.roster else None
        submissions = collect(folder, [Path(path) for path in args.class_zip], args.depth, roster)
    except OSError:
        raise
    except Exception as error:
        raise Refused(f"{type(error).__name__}: {error}") from None
    if not any(s.file for s in submissions):
        raise Refused(f"{folder} holds no notebook and no zip file")
    chapters = wanted or [c for c in CHAPTERS if any(s.chapter == c and not s.problem for s in submissions)]
    store = Store(results, args.seed)
    waiting = tasks(submissions, chapters, store, not args.no_sandbox, private, [folder, results])
    if waiting and not args.no_sandbox and not args.dask:
        check_walls([folder, results])
    before = changes.rows_of(results / "grades.csv")
    return Job(submissions, chapters, store, waiting, results, late, given, before)


@contextlib.contextmanager
def alone(results: Path) -> Iterator[None]:
    """The folder of results, the instructor's alone, locked until this process ends; gone if empty."""
    results.parent.mkdir(parents=True, exist_ok=True)
    results.mkdir(mode=0o700, exist_ok=True)
    with open(results / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"another `grade` is writing into {results}: wait for it, or give another --out") from None
        try:
            yield
        finally:
            if [path.name for path in results.iterdir()] == [".lock"]:
                (results / ".lock").unlink()
                results.rmdir()


def _mark(job: Job, args: argparse.Namespace, begin: float) -> int:
    """Mark what is waiting, write everything, say how it went; the exit status."""
    fresh = len(job.waiting)
    begun = sum(bool(s.cells) and s.chapter in job.chapters for s in job.submissions)
    try:
        batch = Batch(job.submissions, job.waiting, job.store, lambda: _write_so_far(job, fresh))
        trouble = batch.mark(args.jobs, args.dask)
    except KeyboardInterrupt:
        _write(job)
        raise KeyboardInterrupt(f"stopped: {fresh - len(job.waiting)} of {fresh} notebooks are marked and "
                                "kept, and the table says which are not; the same command resumes") from None
    marks = _write(job)
    failed = [m for m in marks if m.verdict.status == NOT_RUN]
    passed = sum(m.verdict.status == PASSED for m in marks)
    students = len({m.student for m in marks})
    print(f"{students} student{'s' * (students != 1)}, {len(marks)} marks, {passed} passed, {len(failed)} "
          f"not run; {fresh} notebook{'s' * (fresh != 1)} marked "
          f"now{', the others were already' * (fresh < begun)}, {time.monotonic() - begin:.1f} s: "
          f"{job.results / 'grades.csv'}")
    for line in [*filter(None, [job.late.doubt(job.submissions)]), *trouble,
                 *(f"{m.file or m.student}: {m.verdict.headline}" for m in failed if not m.exercise)]:
        print(report.printable(line), file=sys.stderr)
    return 1 if any(m.exercise for m in failed) else 0


def _write_so_far(job: Job, fresh: int) -> None:
    """The table and the class's page while the run is going on, without what compares students."""
    marks = table(job.submissions, job.chapters, job.store, job.late)
    by_hand.merge(marks, job.submissions, job.by_hand)
    report.write_table(job.results, marks)
    told = f"The marking is going on: {fresh - len(job.waiting)} of {fresh} notebooks are marked."
    write_whole(job.results / "class.html", class_page(marks, told))


def _write(job: Job) -> list[report.Mark]:
    """The table, and all files that are made from it."""
    marks = table(job.submissions, job.chapters, job.store, job.late)
    flag_copies(marks)
    lines = by_hand.merge(marks, job.submissions, job.by_hand)
    report.write(job.results, marks)
    write_whole(job.results / "class.html", class_page(marks))
    write_gradebooks(job.results, marks, job.submissions, job.chapters)
    by_hand.write(job.results, lines)
    if job.before:
        after = changes.rows_of(job.results / "grades.csv")
        write_whole(job.results / "changes.csv", changes.changes(job.before, after))
    return marks
