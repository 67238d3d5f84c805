"""What a student calls: check, hint, reveal, progress, reset, show_source."""
import inspect
import os
import textwrap
from pathlib import Path
from typing import Any

from . import marks, page
from .cell_text import elsewhere, handed, is_handed, source_of, stale, texts
from .declare import CHAPTERS, chapter_of, chapter_word, find, load_chapter
from .display import display, markdown, shell
from .given import given_spec
from .judging.every_size import for_every_size
from .judging.judge import evaluate
from .running.namespace import build_namespace
from .parts import Exercise
from .progress_table import Progress
from .running.results import PlainError
from .shipped import as_shipped
from .judging.film import film, offer as offer_film
from .judging.trace_back import offer, why
from .judging.verdict import NOT_ATTEMPTED, NOT_RUN, Verdict, verdict_on

_references: dict[str, Any] = {}
handed_in: dict[str, Any] = {}           # id -> the student's own work, once it has passed


class NotPassed(PlainError):
    """Raised by `check` under COURSE_STRICT; the message is the verdict."""


def check(id: str, attempt: Any = None) -> Any:
    """Show the verdict on an exercise. Returns the student's own work if it passed, else the reference.

    With COURSE_STRICT set in the environment, an exercise that has not passed raises `NotPassed`."""
    page.offer(hint=hint, reveal=reveal, reset=reset, why=why, film=film)
    try:
        exercise = find(id)
    except KeyError as error:
        _display_unknown(id, error)
        return attempt
    verdict = _judge(exercise, attempt)
    marks.update(id, status=verdict.status)
    mine = ("answer" if exercise.kind in ("predict", "choose") else "kernel" if exercise.language == "cuda"
            else "code")
    if verdict.passed:
        handed_in[id] = attempt
        verdict.notes.append(f"The cells below use your {mine}.")
        display(verdict)
        return attempt
    reference = _reference(exercise)
    if reference is not None:
        verdict.notes.append(f'The cells below use the reference. Stuck? `hint("{id}")`')
        handed[id] = reference
    display(verdict)
    result = attempt if reference is None else reference
    if os.environ.get("COURSE_STRICT"):
        if shell() is not None:                         # so that the cells below can run
            shell().user_ns[exercise.name] = result
        raise NotPassed(str(verdict))
    return result


def hint(id: str) -> None:
    """Show the exercise's hints: one more each time."""
    exercise = _found(id)
    if exercise is None:
        return
    count = min(marks.read().get(id, {}).get("hints", 0) + 1, len(exercise.hints))
    marks.update(id, hints=count)
    lines = [f"**Hint {i} of {len(exercise.hints)}.** {text}"
             for i, text in enumerate(exercise.hints[:count], 1)]
    if count == len(exercise.hints) and exercise.oracle is None:
        lines.append(f'That was the last one. `reveal("{id}")` shows the solution.')
    markdown("\n\n".join(lines))


def reveal(id: str) -> None:
    """Show the solution."""
    exercise = _found(id)
    if exercise is None:
        return
    if exercise.oracle is not None:
        display(verdict_on(exercise, NOT_RUN, "This edition of the course carries no solutions."))
        return
    if marks.read().get(id, {}).get("status") != marks.PASSED:      # comparing afterwards is no peeking
        marks.update(id, revealed=True)
    language = "cpp" if exercise.language == "cuda" else "python"
    markdown(f"**Solution of exercise {id} · {exercise.title}**\n\n"
             f"```{language}\n{exercise.solution.strip()}\n```")


def reset(id: str) -> None:
    """Put the exercise's stub, as it was shipped, into a new cell below, and forget its mark."""
    exercise = _found(id)
    if exercise is None:
        return
    marks.forget(id)
    texts.pop(id, None)
    text = exercise.cell(exercise.stub)
    here = shell()
    if here is not None and marks.interactive() and hasattr(here, "set_next_input"):
        here.set_next_input(text, replace=False)
        print(f"Exercise {id} is as new: its stub is in the cell below. Delete your old cell, run the new "
              "one, then the check.")
    else:
        print(text)


def progress(chapter: int | str | None = None, marks_of: str | None = None) -> Progress:
    """A table of where I stand, by chapter, and what to do next. `marks_of`: a file of marks that a page of the book
    has saved, which are added to those here."""
    for id, mark in marks.load(Path(marks_of)).items() if marks_of else ():
        marks.update(find(id).id, status=mark["status"], **{"revealed": True} if mark["revealed"] else {})
    if chapter is not None:
        words = [chapter_word(str(chapter))]
    elif marks.interactive():
        words = CHAPTERS
    else:
        words = [w for w in CHAPTERS if any(chapter_of(id) == w for id in marks.read())]
    return Progress({w: load_chapter(w) for w in words}, marks.read())


def show_source(*things: Any) -> None:
    """Show the source of functions, classes or modules, coloured, as it is in the package."""
    text = "\n\n".join(textwrap.dedent(inspect.getsource(thing)).strip() for thing in things)
    markdown(f"```python\n{text}\n```", plain=text)


def _judge(exercise: Exercise, attempt: Any) -> Verdict:
    try:
        problem, source = source_of(exercise, attempt)
        verdict = problem or evaluate(exercise, source)
        if verdict.passed:
            verdict = stale(exercise, attempt) or verdict
            if verdict.passed and marks.interactive():
                verdict.notes += for_every_size(exercise, source, verdict.cases)
        elif not problem and not is_handed(exercise, attempt) and exercise.kind not in ("predict", "choose"):
            other = elsewhere(exercise, attempt)
            verdict.notes += [other.headline] if other else []
        if exercise.language == "cuda" and not problem:
            offer(exercise, source, verdict)
        if not problem:
            offer_film(exercise, source, verdict)
        if verdict.status == NOT_ATTEMPTED and not problem:
            verdict.details += as_shipped(exercise)
        return verdict
    except KeyboardInterrupt:
        return verdict_on(exercise, NOT_RUN, "You stopped the check.")
    except Exception as error:
        said = str(error).splitlines()[0] if str(error) else ""
        return verdict_on(exercise, NOT_RUN, "The check itself failed, which is our mistake and not yours: "
                          f"{type(error).__name__}: {said}")


def _reference(exercise: Exercise) -> Any:
    """The solution, ready to use; None where there is none (no compiler, an edition without solutions)."""
    if exercise.id not in _references:
        try:
            if exercise.language == "cuda":
                from course_lib import cuda
                made = getattr(cuda.compile(exercise.solution), exercise.name)
            else:
                namespace = build_namespace(given_spec(exercise.given))
                exec(compile(exercise.solution, f"<reference {exercise.id}>", "exec", dont_inherit=True),
                     namespace)
                made = namespace[exercise.name]
        except Exception:
            made = None
        _references[exercise.id] = made
    return _references[exercise.id]


def _found(id: str) -> Exercise | None:
    try:
        return find(id)
    except KeyError as error:
        _display_unknown(id, error)
        return None


def _display_unknown(id: str, error: KeyError) -> None:
    display(Verdict(str(id), "", NOT_RUN, f"{error.args[0]}."))


page.register()
