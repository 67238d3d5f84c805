"""The verdict of a check, as data, as text and as HTML."""
import html
from dataclasses import dataclass, field

MIME = "application/vnd.course.verdict+json"
PASSED, NOT_ATTEMPTED, WRONG, NOT_RUN = "passed", "not attempted", "wrong", "not run"
_LOOK = {PASSED: ("✓", "#2e8b57"), NOT_ATTEMPTED: ("○", "#8a8a8a"), WRONG: ("✗", "#d1495b"),
         NOT_RUN: ("–", "#b8860b")}


@dataclass
class Verdict:
    """One of four answers, and why."""
    id: str
    title: str
    status: str
    headline: str                                    # one sentence
    # (label, text); text may have several lines
    details: list[tuple[str, str]] = field(default_factory=list)
    misconception: str | None = None
    ask: str | None = None
    case: str | None = None                          # label of the smallest failing case
    cases: int = 0
    points: float = 0                                # earned
    of: float = 0                                    # possible
    notes: list[str] = field(default_factory=list)
    picture: str | None = None                       # HTML: the access picture of a kernel

    @property
    def passed(self) -> bool:
        return self.status == PASSED

    def as_dict(self) -> dict:
        """The machine-readable form."""
        return {"id": self.id, "status": self.status, "headline": self.headline,
                "misconception": self.misconception, "case": self.case, "cases": self.cases,
                "points": self.points, "of": self.of}

    def __str__(self) -> str:
        icon, _ = _LOOK[self.status]
        lines = [f"{icon} {self.status} · Exercise {self.id} · {self.title}", f"  {self.headline}"]
        for label, text in self.details:
            rows = text.splitlines() or [""]
            if len(rows) == 1:
                lines.append(f"  {label}: {rows[0]}")
            else:
                lines += [f"  {label}:", *(f"    {row}" for row in rows)]
        if self.ask:
            lines.append(f"  Think: {self.ask}")
        return "\n".join(lines + [f"  {note}" for note in self.notes])

    def _repr_html_(self) -> str:
        icon, colour = _LOOK[self.status]
        rows = "".join('<tr><th scope="row" style="text-align:left;vertical-align:top;padding:2px 12px 2px '
                       f'0;font-weight:normal;opacity:.8;background:transparent">{html.escape(label)}</th><td '
                       'style="text-align:left;vertical-align:top;padding:2px '
                       '0;background:transparent"><pre '
                       f'style="margin:0;background:transparent;color:inherit;white-space:pre-wrap">{html.escape(text)}</pre></td></tr>'
                       for label, text in self.details)
        table = ('<table style="border:none;margin:4px '
                 f'0;color:inherit;background:transparent">{rows}</table>' if rows else "")
        ask = f'<p style="margin:4px 0"><b>Think:</b> {ticks(self.ask)}</p>' if self.ask else ""
        notes = "".join(f'<p style="margin:2px 0;opacity:.8">{ticks(note)}</p>' for note in self.notes)
        return (f'<div role="status" style="border-left:5px solid {colour};padding:4px 12px;margin:4px '
                f'0"><p style="margin:2px 0"><b><span aria-hidden="true">{icon}</span> {self.status}</b> · '
                f'Exercise {self.id} · {html.escape(self.title)}</p><p style="margin:2px '
                f'0">{ticks(self.headline)}</p>{table}{self.picture or ""}{ask}{notes}</div>')

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        return {"text/plain": str(self), "text/html": self._repr_html_(), MIME: self.as_dict()}


def verdict_on(exercise, status: str, headline: str, details=(), **more) -> Verdict:
    """A verdict on an exercise; only a pass earns its points."""
    return Verdict(exercise.id, exercise.title, status, headline, list(details), of=exercise.points,
                   points=exercise.points if status == PASSED else 0, **more)


def ticks(text: str) -> str:
    """Escape for HTML and turn `code` into <code>."""
    parts = html.escape(text).split("`")
    return ("".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(parts)) if len(parts) % 2
            else html.escape(text))
