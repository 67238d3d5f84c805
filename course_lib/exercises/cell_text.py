"""The text of the cell that a student's work was defined in."""
import inspect
import linecache
import os
import re
import textwrap
from typing import Any

from laptop_cuda import magic

from .display import shell
from .running.kernel_runner import without_magic
from .parts import Exercise
from .running.results import with_article
from .judging.screen import normal
from .judging.show import type_name
from .judging.verdict import NOT_ATTEMPTED, WRONG, Verdict, verdict_on

# The first line of an exercise's cell; blank lines, comments and lines such as %%time may precede it.
MARKER = re.compile(
    r"\A\s*(?:%%\w[^\n]*\n\s*)*(?:(?:#|//)[^\n]*\n\s*)*?(?:#|//)\s*EXERCISE\s+(\d{1,3}\.\d{1,3})\b")

magic.name_cells(lambda cell: (found := MARKER.match(cell)) and f"exercise {found[1]}")

texts: dict[str, str] = {}              # id -> the last text run in the exercise's cell
handed: dict[str, Any] = {}             # id -> the reference that a check returned


def remember(info) -> None:
    """Keep the text of every exercise cell that is run, even if it raises. IPython calls it before each."""
    match = MARKER.match(info.raw_cell or "")
    if match:
        texts[match[1]] = info.raw_cell


def source_of(exercise: Exercise, attempt: Any) -> tuple[Verdict | None, str]:
    """(a verdict, "") or (None, the text of the exercise's cell)."""
    text = texts.get(exercise.id)
    reference = is_handed(exercise, attempt)
    if text is None and not reference:
        text = _text_of(exercise, attempt)
        if text is not None and attempt is not None and _file(attempt) is None and shell() is not None:
            return _in_another_cell(exercise), ""  # a number or a kernel; the exercise's cell was not run
    if text is None:
        if reference or attempt is None:
            return (verdict_on(exercise, NOT_ATTEMPTED,
                               f"Run the cell that begins with `{exercise.marker}`, then this one."), "")
        return _form(exercise, attempt), ""
    text = without_magic(text)
    if normal(exercise, text) == normal(exercise, exercise.stub) and not reference:
        other = elsewhere(exercise, attempt)
        if other:
            return other, ""
    return None, text


def is_handed(exercise: Exercise, attempt: Any) -> bool:
    """Whether the attempt is the reference that an earlier check returned."""
    return attempt is not None and attempt is handed.get(exercise.id)


def _text_of(exercise: Exercise, attempt: Any) -> str | None:
    """The text that defines the attempt when no cell was seen: the file's cell, else the function's."""
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
    attempt = inspect.unwrap(attempt) if callable(attempt) else attempt          # below @torch.no_grad()
    code = getattr(attempt, "__code__", None)
    if code is None and inspect.isclass(attempt):
        code = next((v.__code__ for v in vars(attempt).values() if hasattr(v, "__code__")), None)
    return code.co_filename if code is not None else None


def _form(exercise: Exercise, attempt: Any) -> Verdict:
    """An attempt of the wrong kind, in a sentence."""
    if exercise.kind in ("predict", "choose"):
        return verdict_on(exercise, WRONG, f"`{exercise.name}` is {with_article(type_name(attempt))}: type "
                     f"{'a letter in quotes' if exercise.options else 'a number'} in the exercise's cell.")
    what = "`None`" if attempt is None else with_article(type_name(attempt))
    return verdict_on(exercise, WRONG, f"`{exercise.name}` is {what} now. Run the cell that begins with "
                      f"`{exercise.marker}` again, then this one.")


def _in_another_cell(exercise: Exercise) -> Verdict:
    return verdict_on(exercise, WRONG, f"`{exercise.name}` was written in another cell. Only the cell that "
                      f"begins with `{exercise.marker}` is marked: put your work there.")


def elsewhere(exercise: Exercise, attempt: Any) -> Verdict | None:
    """A verdict if the work was defined in another cell. Where a number was typed, the caller knows."""
    if shell() is None:                                 # a script or a test has no cells
        return None
    if exercise.kind in ("predict", "choose"):
        return None if attempt is None else _in_another_cell(exercise)
    text = getattr(attempt, "source", None) if exercise.language == "cuda" else None
    filename = _file(attempt)
    if filename and not os.path.exists(filename):        # a cell, not a module's file
        text = "".join(linecache.getlines(filename))
    match = MARKER.match(text) if isinstance(text, str) else None
    return _in_another_cell(exercise) if text and not (match and match[1] == exercise.id) else None


def stale(exercise: Exercise, attempt: Any) -> Verdict | None:
    """A verdict if the cell's text is right, but the name has been bound to something else since."""
    if is_handed(exercise, attempt):
        return None
    if exercise.kind in ("predict", "choose"):
        return None
    if exercise.language == "python" and not callable(attempt):
        return _form(exercise, attempt)
    return elsewhere(exercise, attempt)
