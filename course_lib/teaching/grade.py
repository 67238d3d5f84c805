"""`python -m course_lib grade FOLDER --out RESULTS`: from a folder of submissions to marks.

Only the exercise cells are taken from a student; everything else is the course's own. docs/marking.md is for instructors.
"""
from __future__ import annotations

import argparse
import atexit
import concurrent.futures
import contextlib
import hashlib
import json
import multiprocessing
import os
import secrets
import signal
import sys
import threading
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from pathlib import Path

from course_lib.teaching import marking, report
from course_lib.exercises.declare import CHAPTERS, NoChapter, chapter_word, load_chapter
from course_lib.exercises.parts import Exercise
from .report import NOT_HANDED_IN, Mark
from .sandbox import Sandbox, missing_walls
from .similarity import skeleton
from .submissions import Submission, collect
from course_lib.exercises.verdict import NOT_ATTEMPTED, NOT_RUN, PASSED, Verdict


def main(argv: list[str]) -> int:
    """The command line. 0: every readable cell was marked; 1: the marking of some failed; 2: nothing was marked."""
    args = _arguments(argv)
    folder, results = Path(args.folder), Path(args.out)
    if not folder.is_dir():
        return _refuse(f"{folder} is not a folder")
    private = str(Path(args.exercises).resolve()) if args.exercises else None
    if private and not Path(private).is_dir():
        return _refuse(f"{private} is not a folder")
    try:
        wanted = [chapter_word(name) for name in args.chapter]
        marking.load_private(private)
        submissions = collect(folder)
    except NoChapter as error:
        return _refuse(str(error))
    except Exception as error:
        return _refuse(f"{type(error).__name__}: {error}")
    if not submissions:
        return _refuse(f"{folder} holds no notebook and no zip file")
    chapters = wanted or [c for c in CHAPTERS if any(s.chapter == c and not s.problem for s in submissions)]
    store = Store(results, args.seed)
    begin = time.monotonic()
    waiting = tasks(submissions, chapters, store, not args.no_sandbox, private, [folder, results])
    if waiting and not args.no_sandbox and not args.dask:
        with Sandbox(hide=[folder, results]) as sandbox:
            gone = missing_walls(sandbox)
        if gone:
            return _refuse("this machine cannot keep a student's code from:\n  " + "\n  ".join(gone) +
                           "\nOn a machine that holds nothing of worth, run it again with --no-sandbox.")
    results.mkdir(parents=True, exist_ok=True)
    print(f"seed {store.seed}", file=sys.stderr)
    fresh, begun = len(waiting), sum(bool(s.cells) and s.chapter in chapters for s in submissions)
    try:
        trouble = mark_all(submissions, waiting, store, args)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped: {fresh - len(waiting)} of {fresh} notebooks are marked and kept; the same command "
                                "goes on from there") from None
    marks = table(submissions, chapters, store)
    flag_copies(marks)
    report.write(results, marks)
    failed = [m for m in marks if m.verdict.status == NOT_RUN]
    passed = sum(m.verdict.status == PASSED for m in marks)
    students = len({m.student for m in marks})
    print(f"{students} student{'s' * (students != 1)}, {len(marks)} marks, {passed} passed, {len(failed)} not run; "
          f"{fresh} notebook{'s' * (fresh != 1)} marked now{', the others were already' * (fresh < begun)}, "
          f"{time.monotonic() - begin:.1f} s: {results / 'grades.csv'}")
    for line in [*trouble, *(f"{m.file}: {m.verdict.headline}" for m in failed if not m.exercise)]:
        print(line, file=sys.stderr)
    return 1 if any(m.exercise for m in failed) else 0


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m course_lib grade", description="Mark a folder of submissions.")
    parser.add_argument("folder", metavar="FOLDER", help="notebooks and zip files, in folders or not, named as you like")
    parser.add_argument("--out", default="results", metavar="RESULTS", help="where grades.csv, junit.xml and the pages go "
                        "(default: %(default)s)")
    parser.add_argument("--chapter", action="append", default=[], metavar="CHAPTER", help="mark this chapter only, by number or "
                        "word; may be repeated (default: every chapter that somebody has handed in)")
    parser.add_argument("--exercises", metavar="DIR", help="your own exercises: a folder of .py files with declarations")
    parser.add_argument("--seed", type=int, metavar="N", help="which cases are drawn; without it they are fresh the "
                        "first time, and the same in every later run into RESULTS")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), metavar="N",
                        help="at a time (default: %(default)s)")
    parser.add_argument("--no-sandbox", action="store_true", help="mark even where a wall around students' code is missing")
    parser.add_argument("--dask", metavar="ADDRESS", help="spread the work over a dask.distributed cluster")
    return parser.parse_args(argv)


def _refuse(why: str) -> int:
    print(f"grade: {why}", file=sys.stderr)
    return 2


# --- what is known already ---------------------------------------------------------------------------------------

class Store:
    """Verdicts of earlier runs, by everything they depend on, in RESULTS/marks.json."""

    def __init__(self, results: Path, seed: int | None):
        self.path = results / "marks.json"
        try:
            kept = json.loads(self.path.read_text())
            self.seed, self.verdicts = int(kept["seed"]), dict(kept["verdicts"])
        except (OSError, ValueError, KeyError, TypeError):
            self.seed, self.verdicts = secrets.randbelow(1 << 31), {}
        if seed is not None:
            self.seed = seed
        self.keys: set[str] = set()            # in use: the others are dropped
        self.failed: dict[tuple[str, str], dict] = {}        # (student, exercise): verdicts for the next run to try again

    def key(self, exercise: Exercise, source: str) -> str:
        text = json.dumps([exercise.id, marking.fingerprint(exercise), self.seed, source])
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:24]

    def get(self, exercise: Exercise, source: str) -> Verdict | None:
        key = self.key(exercise, source)
        self.keys.add(key)
        return report.verdict_from(self.verdicts[key]) if key in self.verdicts else None

    def put(self, exercise: Exercise, source: str, verdict: dict) -> None:
        self.verdicts[self.key(exercise, source)] = verdict

    def save(self) -> None:
        kept = {k: v for k, v in self.verdicts.items() if k in self.keys}
        fresh = self.path.with_suffix(".part")
        fresh.write_text(json.dumps({"seed": self.seed, "verdicts": kept}))
        os.replace(fresh, self.path)


# --- marking -----------------------------------------------------------------------------------------------------

def tasks(submissions: list[Submission], chapters: list[str], store: Store, strict: bool, private: str | None,
          hide: list[Path]) -> dict[int, dict]:
    """What `marking.mark_notebook` needs, for each notebook (by its index) that the store does not know all of."""
    waiting = {}
    for index, submission in enumerate(submissions):
        if submission.problem or not submission.chapter:
            continue
        cells = {e.id: submission.cells[e.id] for e in load_chapter(submission.chapter)
                 if e.id in submission.cells and store.get(e, submission.cells[e.id]) is None}
        if cells and submission.chapter in chapters:
            waiting[index] = {"cells": cells, "seed": store.seed, "strict": strict, "exercises": private,
                              "hide": [str(path.resolve()) for path in hide]}
    return waiting


def mark_all(submissions: list[Submission], waiting: dict[int, dict], store: Store, args) -> list[str]:
    """Mark what is waiting. Returns what went wrong with the marking itself, in words."""
    trouble, bar = [], Bar(len(waiting))

    def finished(index: int, verdicts: dict[str, dict]) -> None:
        for exercise in load_chapter(submissions[index].chapter):
            verdict = verdicts.get(exercise.id)
            if verdict and verdict["status"] != NOT_RUN:
                store.put(exercise, submissions[index].cells[exercise.id], verdict)
            elif verdict:
                store.failed[submissions[index].student, exercise.id] = verdict
        store.save()
        waiting.pop(index)
        bar.step(f"{submissions[index].student} / {submissions[index].chapter}")

    alone, jobs = False, min(max(1, args.jobs), len(waiting) or 1)
    while waiting:
        try:
            with _executor(args.dask, 1 if alone else jobs) as executor:
                if alone:
                    pairs = ((index, executor.submit(marking.mark_notebook, task)) for index, task in list(waiting.items()))
                else:
                    futures = {executor.submit(marking.mark_notebook, task): index for index, task in waiting.items()}
                    pairs = ((futures[future], future) for future in concurrent.futures.as_completed(futures))
                for index, future in pairs:
                    try:
                        finished(index, future.result())
                    except BrokenProcessPool:
                        raise
                    except Exception as error:
                        _give_up(submissions, waiting, index, f"{type(error).__name__}: {error}", store, trouble, bar)
        except BrokenProcessPool:        # a worker died, and the pool does not say over which notebook: go one by one
            if alone:
                _give_up(submissions, waiting, next(iter(waiting)), "the process that marked it died", store, trouble, bar)
            alone = True
    bar.end()
    store.save()
    return trouble


def _give_up(submissions, waiting, index: int, why: str, store: Store, trouble: list[str], bar: "Bar") -> None:
    submission = submissions[index]
    for id in waiting.pop(index)["cells"]:
        store.failed[submission.student, id] = asdict(Verdict(id, "", NOT_RUN, f"The marking itself failed: {why}"))
    trouble.append(f"{submission.file}: {why}")
    bar.step(f"{submission.student} / {submission.chapter}")


@contextlib.contextmanager
def _executor(dask: str | None, jobs: int):
    if dask:
        try:
            from distributed import Client
        except ImportError:
            raise ModuleNotFoundError("--dask needs dask.distributed: pip install -e '.[dask]' in the course's folder") from None
        with Client(dask) as client:
            yield client.get_executor()
        return
    context = multiprocessing.get_context("spawn")           # a fork would inherit torch's threads
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context, initializer=_worker) as executor:
        try:
            yield executor
        except KeyboardInterrupt:
            executor.shutdown(cancel_futures=True)
            raise


def _worker() -> None:
    os.environ["COURSE_BATCH"] = "1"
    atexit.register(marking.close_sandbox)
    for number in (signal.SIGINT, signal.SIGTERM):           # SIGTERM: the pool's, to the others when one worker has died
        signal.signal(number, _end_worker)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_worker(*_) -> None:
    """Ctrl-C reaches the workers too: end now, whatever is being marked, or the others in the queue would be marked still."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    marking.close_sandbox()
    os._exit(1)


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()      # a worker whose parent is killed would wait for work for ever
    os.kill(os.getpid(), signal.SIGINT)


class Bar:
    """Progress on stderr: a bar in a terminal, a line for each notebook elsewhere."""

    def __init__(self, total: int):
        self.total, self.done, self.live = total, 0, sys.stderr.isatty()

    def step(self, what: str) -> None:
        self.done += 1
        what = "".join(c if c.isprintable() else "?" for c in what)
        if self.live:
            full = 30 * self.done // self.total
            print(f"\r[{'#' * full}{'.' * (30 - full)}] {self.done}/{self.total} {what[:40]:<40}", end="",
                  file=sys.stderr, flush=True)
        else:
            print(f"{self.done}/{self.total} {what}", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.live and self.total:
            print(file=sys.stderr)


# --- the table ---------------------------------------------------------------------------------------------------

def table(submissions: list[Submission], chapters: list[str], store: Store) -> list[Mark]:
    """Every student against every exercise of the chapters."""
    students = list(dict.fromkeys(s.student for s in submissions))
    by = {(s.student, s.chapter): s for s in submissions}
    marks = []
    for student in students:
        for submission in (s for s in submissions if s.student == student and (s.problem or not s.chapter)):
            verdict = Verdict("", "", NOT_RUN, f"The file cannot be marked: {submission.problem}.")
            marks.append(Mark(student, submission.chapter, "", "", "", verdict, file=submission.file,
                              notes=(submission.problem, *submission.notes)))
        for chapter in chapters:
            submission = by.get((student, chapter))
            if submission is None or not submission.problem:
                marks += [_mark(student, chapter, exercise, submission, store) for exercise in load_chapter(chapter)]
    return marks


def _mark(student: str, chapter: str, exercise: Exercise, submission: Submission | None, store: Store) -> Mark:
    mark = Mark(student, chapter, exercise.id, exercise.title, exercise.kind, None, language=exercise.language)
    if submission is None:
        mark.verdict = Verdict(exercise.id, exercise.title, NOT_ATTEMPTED, "No notebook of this chapter was handed in.",
                               of=exercise.points)
        mark.notes = (NOT_HANDED_IN,)
        return mark
    mark.file, mark.notes = submission.file, tuple(submission.notes)
    if exercise.id not in submission.cells:
        mark.verdict = Verdict(exercise.id, exercise.title, NOT_ATTEMPTED, "The notebook has no cell that begins with "
                               f"`{exercise.marker}`.", of=exercise.points)
        return mark
    mark.source = submission.cells[exercise.id]
    mark.verdict = store.get(exercise, mark.source)
    if mark.verdict is None:
        mark.verdict = report.verdict_from(store.failed[student, exercise.id])
        mark.verdict.title, mark.verdict.of = exercise.title, exercise.points
    return mark


def flag_copies(marks: list[Mark]) -> None:
    """Say whose code equals the reference or a classmate's. Only where one writes: a mended line is alike for all."""
    same: dict[tuple[str, str], list[Mark]] = {}
    references = {}
    for mark in marks:
        if mark.kind != "write" or mark.verdict.status == NOT_ATTEMPTED or not 0 < len(mark.source) <= marking.LONGEST:
            continue
        same.setdefault((mark.exercise, skeleton(mark.source, mark.language)), []).append(mark)
        if mark.exercise not in references:
            references[mark.exercise] = skeleton(marking.find(mark.exercise).solution, mark.language)
    for (id, text), alike in same.items():
        for mark in alike:
            others = [m.student for m in alike if m is not mark]
            flags = ["same code as the reference"] if text == references[id] else []
            if others:
                shown = ", ".join(others[:5]) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
                flags.append(f"same code as {shown}")
            mark.flags = tuple(flags)
