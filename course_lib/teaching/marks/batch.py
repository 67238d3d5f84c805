"""Marking many notebooks at a time, on this machine or on a cluster, so that none can stop the others."""
import atexit
import concurrent.futures
import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from pathlib import Path
from typing import Callable

from course_lib.exercises.declare import load_chapter
from course_lib.exercises.judging.verdict import NOT_RUN, Verdict
from ..hand_ins.submissions import Submission
from . import marking
from .store import Store


def tasks(submissions: list[Submission], chapters: list[str], store: Store, strict: bool, private: str | None,
          hide: list[Path]) -> dict[int, dict]:
    """What `marking.mark_notebook` needs, for each notebook (by its index) that the store lacks."""
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


class Batch:
    """A run over all notebooks that wait; `trouble` says in words what went wrong with the marking itself.
    `student_done` is called each time that nothing of a student's waits any longer."""

    def __init__(self, submissions: list[Submission], waiting: dict[int, dict], store: Store,
                 student_done: Callable[[], None] = lambda: None):
        self.submissions, self.waiting, self.store = submissions, waiting, store
        self.student_done = student_done
        self.trouble: list[str] = []
        self.bar = Bar(len(waiting))

    def mark(self, jobs: int, dask: str | None = None) -> list[str]:
        """Mark what is waiting, `jobs` at a time."""
        waiting = {index: (task,) for index, task in self.waiting.items()}
        each(marking.mark_notebook, waiting, min(max(1, jobs), len(waiting) or 1), dask, self._finish)
        self.bar.end()
        self.store.save()
        return self.trouble

    def _finish(self, index: int, verdicts: dict | str) -> None:
        submission = self.submissions[index]
        if isinstance(verdicts, str):
            self._give_up(index, verdicts)
            return
        for exercise in load_chapter(submission.chapter):
            verdict = verdicts.get(exercise.id)
            if verdict and verdict["status"] != NOT_RUN:
                self.store.put(exercise, submission.cells[exercise.id], verdict)
            elif verdict:
                self.store.failed[submission.student, exercise.id] = verdict
        self.store.save()
        self._step(index)

    def _give_up(self, index: int, why: str) -> None:
        submission = self.submissions[index]
        for id in self.waiting[index]["cells"]:
            told = Verdict(id, "", NOT_RUN, f"The marking itself failed: {why}")
            self.store.failed[submission.student, id] = asdict(told)
        self.trouble.append(f"{submission.file}: {why}")
        self._step(index)

    def _step(self, index: int) -> None:
        self.waiting.pop(index)
        student = self.submissions[index].student
        self.bar.step(f"{student} / {self.submissions[index].chapter}")
        if self.waiting and student not in {self.submissions[other].student for other in self.waiting}:
            self.student_done()


def each(function: Callable, tasks: dict, jobs: int, dask: str | None = None,
         done: Callable = lambda key, answer: None) -> dict:
    """{key: function(*arguments)} of {key: arguments}; in place of an answer that failed, a text says why.
    `done` is told of each answer as it comes.

    A worker that dies takes the others with it, and the pool names none, so what is left is done one by one.
    """
    found, alone = {}, False

    def finish(key, answer):
        found[key] = answer
        done(key, answer)

    while left := [key for key in tasks if key not in found]:
        try:
            with executor_for(1 if alone else jobs, dask) as executor:
                if alone:
                    for key in left:
                        finish(key, _answer(executor.submit(function, *tasks[key])))
                    continue
                futures = {executor.submit(function, *tasks[key]): key for key in left}
                for future in concurrent.futures.as_completed(futures):
                    finish(futures[future], _answer(future))
        except BrokenProcessPool:
            if alone:
                finish(next(key for key in left if key not in found), "the process that marked it died")
            alone = True
    return found


def _answer(future):
    try:
        return future.result()
    except BrokenProcessPool:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@contextlib.contextmanager
def executor_for(jobs: int, dask: str | None = None):
    """Workers that end with this process, here or on a cluster."""
    if dask:
        try:
            from distributed import Client
        except ImportError:
            said = "--dask needs dask.distributed: pip install -e '.[dask]' in the course's folder"
            raise ModuleNotFoundError(said) from None
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
    # SIGTERM: the pool's, to the others when one worker has died
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end_worker)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_worker(*_) -> None:
    """End now: Ctrl-C reaches the workers too, which would otherwise go on with the rest of the queue."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    try:
        marking.close_sandbox()
    finally:
        os._exit(1)


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()      # without its parent a worker would wait for work forever
    os.kill(os.getpid(), signal.SIGINT)


class Bar:
    """Progress on stderr: a bar in a terminal, one line per notebook elsewhere."""

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
