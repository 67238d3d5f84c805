"""Marking one notebook: the part that runs on a worker of the grader, here or on a cluster."""
import hashlib
import threading
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

import torch

from course_lib.exercises.judging import judge
from course_lib.exercises.declare import declared, find, load_file
from course_lib.exercises.parts import Exercise
from course_lib.exercises.running.results import Request
from course_lib.exercises.judging.screen import screen
from course_lib.exercises.judging.verdict import NOT_RUN, WRONG, Verdict, verdict_on
from course_lib.exercises.running.wire import LONGEST_TEXT
from ..confined.reach import COURSE, PACKAGE
from ..confined.reply import Reply, SandboxError
from ..confined.sandbox import Sandbox
from .bounded import bounded_memory

JUDGING = 3 << 30                       # bytes that a comparison may take
# characters of a cell; reading a longer one could be made to take minutes
LONGEST = 30_000
_own = threading.local()                # one sandbox per thread
_judging = threading.Lock()  # references run in this process, and torch's generator is one for all threads
KEPT_ORACLES = 200                      # more than the course has exercises; an exam has others per student
_oracles: dict[tuple[str, int], judge.Oracle] = {}        # the latest last


def mark_notebook(task: dict) -> dict:
    """{"cells": {id: source}, "seed", "strict", "exercises": DIR or None, "hide": paths} -> {id: verdict}."""
    sandbox = warm_sandbox(task["strict"], (*task["hide"], *filter(None, [task["exercises"]])))
    load_private(task["exercises"])
    return mark_cells(task["cells"], find, task["seed"], sandbox)


def warm_sandbox(strict: bool, hide: tuple[str, ...]) -> Sandbox:
    """This thread's sandbox, which loads torch while the caller prepares what is to be marked."""
    torch.set_num_threads(1)
    sandbox = _sandbox(strict, hide)
    sandbox.start()
    return sandbox


def mark_cells(cells: dict[str, str], find, seed: int, sandbox: Sandbox) -> dict:
    """{id: verdict as a dict}; `find` gives the exercise of an id."""
    verdicts = {}
    for id, source in cells.items():
        try:
            verdicts[id] = asdict(mark(find(id), source, seed, sandbox))
        except Exception as error:           # ours, not the student's: the others are marked all the same
            said = str(error) if isinstance(error, SandboxError) else f"{type(error).__name__}: {error}"
            verdicts[id] = asdict(Verdict(id, find(id).title, NOT_RUN, f"The marking itself failed: {said}",
                                          of=find(id).points))
    return verdicts


def _sandbox(strict: bool, hide: tuple[str, ...]) -> Sandbox:
    key = (strict, hide)
    if getattr(_own, "key", None) != key:
        if hasattr(_own, "sandbox"):
            _own.sandbox.close()
        _own.sandbox, _own.key = Sandbox(strict, hide), key
    return _own.sandbox


def close_sandbox() -> None:
    """End this thread's warm process."""
    if hasattr(_own, "sandbox"):
        _own.sandbox.close()
        del _own.sandbox, _own.key


def mark(exercise: Exercise, source: str, seed: int, sandbox: Sandbox) -> Verdict:
    """The verdict on one cell; the code runs in the sandbox, everything else here."""
    early = _screened(exercise, source)
    if early:
        return early
    with _judging:
        cases = judge.draw(exercise, seed)
        request = judge.request(exercise, cases, seed)
    reply = _run(exercise, request, source, sandbox)
    if told := _unusable(exercise, reply):
        return told
    with _judging:
        oracle = _oracle(exercise, cases, seed)  # if our reference fails, that is not the student's fault
        try:
            verdict = _judged(exercise, cases, reply.run, source, seed, oracle)
        except Exception as error:
            told = f"What came back has no form that an answer can have ({type(error).__name__})."
            return _wrong(exercise, told)
    if verdict.status == NOT_RUN and not (exercise.language == "cuda" and no_engine()):
        told = "The run says that something is missing on this machine, and nothing is."
        return _wrong(exercise, told)
    return _clipped(verdict)


def _screened(exercise: Exercise, source: str) -> Verdict | None:
    """A verdict that needs no run."""
    if len(source) > LONGEST:
        return _wrong(exercise, f"The cell is longer than {LONGEST:,} characters.")
    try:
        with _judging:
            early = screen(exercise, source)
    except (RecursionError, MemoryError):
        return _wrong(exercise, "The cell is nested too deeply to be read.")
    return early and _clipped(early)


def _run(exercise: Exercise, request: Request, source: str, sandbox: Sandbox) -> Reply:
    """Run it with more time than in a notebook; a second time where the machine had no processor for it."""
    request.limit = min(2 * request.limit + 3, request.limit + 10)
    reply = sandbox.run(request, source)
    starved = reply.starved > 0.3 * request.limit and reply.cpu < 0.6 * request.limit
    if reply.late and starved and len(reply.output) < LONGEST_TEXT:
        request.limit *= 4
        reply = sandbox.run(request, source)
    return reply


def _unusable(exercise: Exercise, reply: Reply) -> Verdict | None:
    """A verdict where there is no answer to judge, or one that was not come by as the exercise asks."""
    if reply.run is None:
        verdict = _wrong(exercise, f"{reply.trouble[:1].upper()}{reply.trouble[1:]}.")
        if reply.output.strip():
            verdict.details.append(("It printed", reply.output[:2000]))
        return verdict
    if (exercise.traffic or exercise.budget) and any(o.failure is None and "moved" not in (o.counts or {})
                                                     for o in reply.run.outcomes):
        return _wrong(exercise, "What the kernel moves was not counted.")
    return None


def _clipped(verdict: Verdict) -> Verdict:
    """A verdict quotes what came from elsewhere: no more of it than a person reads."""
    verdict.headline = verdict.headline[:2000]
    verdict.details = [(label[:200], text[:4000]) for label, text in verdict.details[:20]]
    verdict.picture = None
    return verdict


def _oracle(exercise: Exercise, cases, seed: int) -> judge.Oracle:
    """The expected values, worked out once for all students."""
    key = (exercise.id, seed)
    known = _oracles.pop(key, None) or judge.Oracle(judge.expected(exercise, cases, seed))
    _oracles[key] = known
    while len(_oracles) > KEPT_ORACLES:
        del _oracles[next(iter(_oracles))]
    return known


def _judged(exercise: Exercise, cases, run, source: str, seed: int, oracle: judge.Oracle) -> Verdict:
    """`judge.judge`, with the misconceptions run once for all students, and only when one of them is wrong.

    Only the comparisons are bounded: the engine, which runs kernels here, reserves more addresses."""
    with bounded_memory(JUDGING):
        known = judge.Oracle(oracle.expected, oracle.misconceptions or [])
        first = judge.judge(exercise, cases, run, source, seed, known)
    if first.status != WRONG or oracle.misconceptions is not None:
        return first
    asked = judge.request(exercise, cases, seed)
    asked.limit *= 4    # so that a mistake's result does not depend on how busy this machine is
    oracle.misconceptions = judge.mistakes(exercise, asked)
    with bounded_memory(JUDGING):
        return judge.judge(exercise, cases, run, source, seed, oracle)


@lru_cache(maxsize=1)
def no_engine() -> bool:
    """Whether kernels cannot be run here, found out by this process and not by the student's."""
    try:
        from course_lib import cuda
        cuda.compile("__global__ void nothing() {}").nothing[1, 1]()
    except Exception:
        return True
    return False


def _wrong(exercise: Exercise, headline: str) -> Verdict:
    return verdict_on(exercise, WRONG, headline)


def load_private(folder: str | None) -> None:
    """Declare the exercises of every Python file in the folder, once."""
    if not folder:
        return
    for path in sorted(Path(folder).glob("*.py")):
        if str(path) not in _loaded:
            before = set(declared)
            load_file(path)
            _loaded[str(path)] = sorted(set(declared) - before)


_loaded: dict[str, list[str]] = {}


def fingerprint(exercise: Exercise) -> str:
    """Changes whenever a mark for this exercise could: with its declaration, the course's code, torch."""
    own = _loaded_from(exercise)
    return hashlib.sha256(f"{_course_state()} {own} {torch.__version__} {exercise.id}".encode()).hexdigest()[
        :16]


def _loaded_from(exercise: Exercise) -> str:
    for path, ids in _loaded.items():
        if exercise.id in ids:
            return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return ""


@lru_cache(maxsize=1)
def _course_state() -> str:
    state = hashlib.sha256()
    for folder in (PACKAGE, COURSE / "laptop_cuda", COURSE / "kernels"):
        for path in sorted(folder.glob("**/*")):
            if path.is_file() and path.suffix != ".pyc":
                state.update(path.name.encode() + b"\0" + path.read_bytes())
    return state.hexdigest()
