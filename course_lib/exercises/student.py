"""What a student calls: check, hint, reveal, progress, reset, show_source."""
from __future__ import annotations

import html
import inspect
import linecache
import os
import re
import textwrap
from typing import Any

from course_lib.exercises import marks
from .compare import type_name
from .judge import evaluate, normal
from .declare import CHAPTERS, Exercise, chapter_of, chapter_word, find, given_spec, load_chapter
from .runner import build_namespace, with_article
from .verdict import NOT_ATTEMPTED, NOT_RUN, PASSED, WRONG, Verdict

# An exercise's cell begins with its marker; blank lines and comments may stand above it.
MARKER = re.compile(r"\A\s*(?:%%cuda[^\n]*\n\s*)?(?:(?:#|//)[^\n]*\n\s*)*?(?:#|//)\s*EXERCISE\s+(\d+\.\d+)\b")
_texts: dict[str, str] = {}              # id -> the last text run in the exercise's cell
_handed: dict[str, Any] = {}             # id -> the reference that a check returned
_references: dict[str, Any] = {}
handed_in: dict[str, Any] = {}           # id -> the student's own work, once it has passed


class NotPassed(Exception):
    """Raised by `check` under COURSE_STRICT; the message is the verdict."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def check(id: str, attempt: Any = None) -> Any:
    """Show the verdict on an exercise. Returns the student's own work if it passed, else the reference.

    With COURSE_STRICT set in the environment, an exercise that has not passed raises `NotPassed`.
    """
    try:
        exercise = find(id)
    except KeyError as error:
        _display(_note(str(id), NOT_RUN, f"{error.args[0]}."))
        return attempt
    verdict = _judge(exercise, attempt)
    marks.update(id, status=verdict.status)
    mine = "answer" if exercise.kind in ("predict", "choose") else "kernel" if exercise.language == "cuda" else "code"
    if verdict.passed:
        handed_in[id] = attempt
        verdict.notes.append(f"The cells below use your {mine}.")
        _display(verdict)
        return attempt
    reference = _reference(exercise)
    if reference is not None:
        verdict.notes.append(f'The cells below use the reference. Stuck? `hint("{id}")`')
        _handed[id] = reference
    _display(verdict)
    result = attempt if reference is None else reference
    if os.environ.get("COURSE_STRICT"):
        if _shell() is not None:                         # the cells below still have something to work with
            _shell().user_ns[exercise.name] = result
        raise NotPassed(str(verdict))
    return result


def hint(id: str) -> None:
    """Show the exercise's hints: one more each time."""
    exercise = _found(id)
    if exercise is None:
        return
    count = min(marks.read().get(id, {}).get("hints", 0) + 1, len(exercise.hints))
    marks.update(id, hints=count)
    lines = [f"**Hint {i} of {len(exercise.hints)}.** {text}" for i, text in enumerate(exercise.hints[:count], 1)]
    if count == len(exercise.hints) and exercise.oracle is None:
        lines.append(f'That was the last one. `reveal("{id}")` shows the solution.')
    _markdown("\n\n".join(lines))


def reveal(id: str) -> None:
    """Show the solution."""
    exercise = _found(id)
    if exercise is None:
        return
    if exercise.oracle is not None:
        _display(_note(id, NOT_RUN, "This edition of the course carries no solutions.", exercise.title))
        return
    marks.update(id, revealed=True)
    language = "cpp" if exercise.language == "cuda" else "python"
    _markdown(f"**Solution of exercise {id} · {exercise.title}**\n\n```{language}\n{exercise.solution.strip()}\n```")


def reset(id: str) -> None:
    """Lay the exercise's stub, as it was shipped, in a new cell below, and forget its mark."""
    exercise = _found(id)
    if exercise is None:
        return
    marks.forget(id)
    _texts.pop(id, None)
    text = exercise.cell(exercise.stub)
    shell = _shell()
    if shell is not None and marks.interactive() and hasattr(shell, "set_next_input"):
        shell.set_next_input(text, replace=False)
        print(f"Exercise {id} is as new: its stub is in the cell below. Delete your old cell, run the new one, then the check.")
    else:
        print(text)


def progress(chapter: int | str | None = None) -> "Progress":
    """A table of where I stand, by chapter, and what to do next."""
    if chapter is not None:
        words = [chapter_word(str(chapter))]
    elif marks.interactive():
        words = CHAPTERS
    else:
        words = [w for w in CHAPTERS if any(chapter_of(id) == w for id in marks.read())]
    return Progress({w: load_chapter(w) for w in words}, marks.read())


def show_source(*things: Any) -> None:
    """Show the source of functions, classes or modules, coloured, as it stands in the package."""
    text = "\n\n".join(textwrap.dedent(inspect.getsource(thing)).strip() for thing in things)
    _markdown(f"```python\n{text}\n```", plain=text)


class Progress:
    """The table that `progress()` shows."""

    def __init__(self, chapters: dict[str, list[Exercise]], marks_: dict[str, dict]):
        self.chapters = {word: list_ for word, list_ in chapters.items() if list_}
        self.marks = marks_

    def _status(self, exercise: Exercise) -> str:
        return self.marks.get(exercise.id, {}).get("status", NOT_ATTEMPTED)

    def next(self) -> Exercise | None:
        """The first exercise that has not passed, of the chapter last begun."""
        begun = [w for w, es in self.chapters.items() if any(self._status(e) != NOT_ATTEMPTED for e in es)]
        order = begun[-1:] + list(self.chapters)
        return next((e for w in order for e in self.chapters[w] if self._status(e) != PASSED), None)

    def rows(self) -> list[tuple[str, str, str, str]]:
        """(chapter, passed, points, exercise by exercise)."""
        rows = []
        for word, exercises in self.chapters.items():
            passed = [e for e in exercises if self._status(e) == PASSED]
            each = "  ".join(f"{_ICON[self._status(e)]} {e.id}{'*' if self.marks.get(e.id, {}).get('revealed') else ''}"
                             for e in exercises)
            rows.append((f"{CHAPTERS.index(word)} · {word.replace('_', ' ')}", f"{len(passed)} of {len(exercises)}",
                         f"{sum(e.points for e in passed):g} of {sum(e.points for e in exercises):g}", each))
        return rows

    def _notes(self) -> list[str]:
        shown = [e.id for exercises in self.chapters.values() for e in exercises]
        revealed = any(self.marks.get(id, {}).get("revealed") for id in shown)
        return (["* its solution was revealed"] if revealed else []) + [self._last()]

    def _last(self) -> str:
        todo = self.next()
        if not self.chapters:
            return "No check has been run yet."
        if todo is None:
            return "Everything here has passed."
        return f"Next: exercise {todo.id} · {todo.title} ({todo.kind}, {todo.minutes:g} minutes)."

    def __str__(self) -> str:
        table = [("chapter", "passed", "points", f"{_KEY}"), *self.rows()]
        widths = [max(len(row[i]) for row in table) for i in range(3)]
        lines = ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths)), row[3]]).rstrip() for row in table]
        return "\n".join(lines + self._notes())

    def _repr_html_(self) -> str:
        style = 'style="text-align:left;padding:2px 12px 2px 0"'
        head = "".join(f'<th scope="col" {style}>{html.escape(h)}</th>' for h in ("chapter", "passed", "points", _KEY))
        body = "".join("<tr>" + "".join(f"<td {style}>{html.escape(c)}</td>" for c in row) + "</tr>" for row in self.rows())
        return (f'<table style="margin:4px 0"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
                + "".join(f"<p>{html.escape(note)}</p>" for note in self._notes()))

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        return {"text/plain": str(self), "text/html": self._repr_html_()}

    __repr__ = __str__


_ICON = {PASSED: "✓", NOT_ATTEMPTED: "○", WRONG: "✗", NOT_RUN: "–"}
_KEY = "✓ passed  ✗ wrong  ○ not attempted"


# --- where the student's text comes from -------------------------------------------------------------------------------

def _judge(exercise: Exercise, attempt: Any) -> Verdict:
    try:
        problem, source = _source(exercise, attempt)
        verdict = problem or evaluate(exercise, source)
        if verdict.passed:
            verdict = _stale(exercise, attempt) or verdict
        elif not problem and not _is_handed(exercise, attempt) and exercise.kind not in ("predict", "choose"):
            elsewhere = _elsewhere(exercise, attempt)
            verdict.notes += [elsewhere.headline] if elsewhere else []
        return verdict
    except KeyboardInterrupt:
        return _note(exercise.id, NOT_RUN, "You stopped the check.", exercise.title)
    except Exception as error:
        return _note(exercise.id, NOT_RUN, f"The check itself failed, which is our mistake and not yours: "
                     f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", exercise.title)


def _source(exercise: Exercise, attempt: Any) -> tuple[Verdict | None, str]:
    """(a verdict, "") or (None, the text of the exercise's cell)."""
    text = _texts.get(exercise.id)
    reference = _is_handed(exercise, attempt)
    if text is None and not reference:
        text = _text_of(exercise, attempt)
        if text is not None and attempt is not None and _file(attempt) is None and _shell() is not None:
            return _in_another_cell(exercise), ""        # a number or a kernel, and the exercise's cell was not run
    if text is None:
        if reference or attempt is None:
            return _note(exercise.id, NOT_ATTEMPTED, f"Run the cell that begins with `{exercise.marker}`, then this one.",
                         exercise.title), ""
        return _form(exercise, attempt), ""
    text = without_magic(text)
    if normal(exercise, text) == normal(exercise, exercise.stub) and not reference:
        elsewhere = _elsewhere(exercise, attempt)
        if elsewhere:
            return elsewhere, ""
    return None, text


def _is_handed(exercise: Exercise, attempt: Any) -> bool:
    """Whether the attempt is the reference that an earlier check returned."""
    return attempt is not None and attempt is _handed.get(exercise.id)


def without_magic(text: str) -> str:
    """A cell's text without its %%cuda line."""
    return re.sub(r"\A\s*%%cuda[^\n]*\n", "", text)


def _text_of(exercise: Exercise, attempt: Any) -> str | None:
    """The text that defines the attempt when no cell was seen: the file's cell, or the function's own source."""
    if isinstance(getattr(attempt, "source", None), str):
        return attempt.source
    if exercise.kind in ("predict", "choose"):
        plain = isinstance(attempt, (bool, int, float, str, tuple, list)) or attempt is None
        return f"{exercise.name} = {attempt!r}\n" if plain else None
    filename = _file(attempt)
    if filename:
        cell = "".join(linecache.getlines(filename))
        match = MARKER.match(cell)
        if match and match[1] == exercise.id:
            return cell
    if inspect.isfunction(attempt) or inspect.isclass(attempt):
        try:
            return textwrap.dedent(inspect.getsource(attempt))
        except (OSError, TypeError):
            return None
    return None


def _file(attempt: Any) -> str | None:
    attempt = inspect.unwrap(attempt) if callable(attempt) else attempt          # what stands under @torch.no_grad()
    code = getattr(attempt, "__code__", None)
    if code is None and inspect.isclass(attempt):
        code = next((v.__code__ for v in vars(attempt).values() if hasattr(v, "__code__")), None)
    return code.co_filename if code is not None else None


def _form(exercise: Exercise, attempt: Any) -> Verdict:
    """An attempt of the wrong kind, in a sentence."""
    if exercise.kind in ("predict", "choose"):
        return _note(exercise.id, WRONG, f"`{exercise.name}` is {with_article(type_name(attempt))}: type "
                     f"{'a letter in quotes' if exercise.options else 'a number'} in the exercise's cell.", exercise.title)
    what = "`None`" if attempt is None else with_article(type_name(attempt))
    return _note(exercise.id, WRONG, f"`{exercise.name}` is {what} now. Run the cell that begins with `{exercise.marker}` "
                 "again, then this one.", exercise.title)


def _in_another_cell(exercise: Exercise) -> Verdict:
    return _note(exercise.id, WRONG, f"`{exercise.name}` was written in another cell. Only the cell that begins with "
                 f"`{exercise.marker}` is marked: put your work there.", exercise.title)


def _elsewhere(exercise: Exercise, attempt: Any) -> Verdict | None:
    """The work stands in another cell; of a number, which tells nothing of where it comes from, the caller knows."""
    if _shell() is None:                                 # a script or a test has no cells
        return None
    if exercise.kind in ("predict", "choose"):
        return None if attempt is None else _in_another_cell(exercise)
    text = getattr(attempt, "source", None) if exercise.language == "cuda" else None
    filename = _file(attempt)
    if filename and not os.path.exists(filename):        # a cell, and not a module of Python's
        text = "".join(linecache.getlines(filename))
    match = MARKER.match(text) if isinstance(text, str) else None
    return _in_another_cell(exercise) if text and not (match and match[1] == exercise.id) else None


def _stale(exercise: Exercise, attempt: Any) -> Verdict | None:
    """The cell's text is right, but the name means something else by now."""
    if _is_handed(exercise, attempt):
        return None
    if exercise.kind in ("predict", "choose"):
        return None
    if exercise.language == "python" and not callable(attempt):
        return _form(exercise, attempt)
    return _elsewhere(exercise, attempt)


def _reference(exercise: Exercise) -> Any:
    """The solution, ready to use; None where it cannot be had (no compiler, an edition without solutions)."""
    if exercise.id not in _references:
        try:
            if exercise.language == "cuda":
                from course_lib import cuda
                made = getattr(cuda.compile(exercise.solution), exercise.name)
            else:
                namespace = build_namespace(given_spec(exercise.given))
                exec(compile(exercise.solution, f"<reference {exercise.id}>", "exec", dont_inherit=True), namespace)
                made = namespace[exercise.name]
        except Exception:
            made = None
        _references[exercise.id] = made
    return _references[exercise.id]


def _remember(info) -> None:
    """Keep the text of every exercise cell that is run, faulty ones included."""
    match = MARKER.match(info.raw_cell or "")
    if match:
        _texts[match[1]] = info.raw_cell


# --- showing -------------------------------------------------------------------------------------------------------------

def _shell():
    try:
        from IPython import get_ipython
    except ImportError:
        return None
    return get_ipython()


def _display(thing: Any) -> None:
    if _shell() is None:
        print(thing)
    else:
        from IPython.display import display
        display(thing)


def _markdown(text: str, plain: str | None = None) -> None:
    if _shell() is None:
        print(plain or text)
    else:
        from IPython.display import display
        display({"text/markdown": text, "text/plain": plain or text}, raw=True)


def _note(id: str, status: str, headline: str, title: str = "") -> Verdict:
    return Verdict(id, title, status, headline)


def _found(id: str) -> Exercise | None:
    try:
        return find(id)
    except KeyError as error:
        _display(_note(str(id), NOT_RUN, f"{error.args[0]}."))
        return None


if _shell() is not None:
    _shell().events.register("pre_run_cell", _remember)
