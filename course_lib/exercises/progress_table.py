"""The table that `progress()` shows: where a student is, chapter by chapter."""
import html

from .declare import CHAPTERS
from .parts import Exercise
from .judging.verdict import NOT_ATTEMPTED, NOT_RUN, PASSED, WRONG

ICON = {PASSED: "✓", NOT_ATTEMPTED: "○", WRONG: "✗", NOT_RUN: "–"}
KEY = "✓ passed  ✗ wrong  ○ not attempted"


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
            each = "  ".join(f"{ICON[self._status(e)]} "
                             f"{e.id}{'*' if self.marks.get(e.id, {}).get('revealed') else ''}"
                             for e in exercises)
            rows.append((f"{CHAPTERS.index(word)} · {word.replace('_', ' ')}",
                         f"{len(passed)} of {len(exercises)}",
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
        table = [("chapter", "passed", "points", f"{KEY}"), *self.rows()]
        widths = [max(len(row[i]) for row in table) for i in range(3)]
        lines = ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths)), row[3]]).rstrip()
                 for row in table]
        return "\n".join(lines + self._notes())

    def _repr_html_(self) -> str:
        style = 'style="text-align:left;padding:2px 12px 2px 0"'
        head = "".join(f'<th scope="col" {style}>{html.escape(h)}</th>'
                       for h in ("chapter", "passed", "points", KEY))
        body = "".join("<tr>" + "".join(f"<td {style}>{html.escape(c)}</td>" for c in row) + "</tr>"
                       for row in self.rows())
        return (f'<table style="margin:4px 0"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
                + "".join(f"<p>{html.escape(note)}</p>" for note in self._notes()))

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        return {"text/plain": str(self), "text/html": self._repr_html_()}

    __repr__ = __str__
