"""What two kernels, or two functions, did side by side: the table beneath a film, and the words in it."""
import html
from dataclasses import dataclass, field
from itertools import zip_longest

from .verdict import ticks

HEAD = ("", "yours", "the reference's")
CELL = 'style="text-align:left;vertical-align:top;white-space:pre-wrap;background:transparent"'


@dataclass
class Beside:
    """Rows of (what, yours, the reference's)."""
    message: str
    rows: list[tuple[str, str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        cells = [parts for row in [HEAD, *self.rows]
                 for parts in zip_longest(*(cell.split("\n") for cell in row), fillvalue="")]
        wide = [max(len(parts[k]) for parts in cells) for k in (0, 1)]
        lines = [f"  {a:{wide[0]}}  {b:{wide[1]}}  {c}".rstrip() for a, b, c in cells]
        return "\n".join([self.message, *(lines if self.rows else ()), *self.notes])

    def _repr_html_(self) -> str:
        def row(cells, *tags):
            return "".join(f"<{t} {CELL}>{html.escape(c)}</{t[:2]}>" for t, c in zip(tags, cells))
        body = "".join(f"<tr>{row(cells, 'th scope=row', 'td', 'td')}</tr>" for cells in self.rows)
        head = row(HEAD, *["th scope=col"] * 3)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if self.rows else ""
        notes = "".join(f"<p>{ticks(note)}</p>" for note in self.notes)
        return f"<p><b>{ticks(self.message)}</b></p>{table}{notes}"


def number(value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "not known" if value is None else str(value)


def threads(numbers: list[int]) -> str:
    found = sorted(set(numbers))
    if len(found) == 1:
        return f"thread {found[0]}"
    some = "threads" if found[-1] - found[0] + 1 == len(found) else f"{len(found)} threads from"
    return f"{some} {found[0]} to {found[-1]}"


def place(step: dict) -> tuple:
    return step["line"], step["array"], step["kind"]


def cost(step: dict) -> int:
    return step["sectors"] + step["wavefronts"] if step["array"] else 0


def by_line(replay) -> dict[tuple, list[int]]:
    """{(line, array, kind): [sectors or passes, requests]}"""
    table: dict = {}
    for step in replay.steps:
        if cost(step):
            entry = table.setdefault(place(step), [0, 0])
            entry[:] = entry[0] + cost(step), entry[1] + 1
    return table


def total(table: dict, kind: tuple) -> int:
    return sum(entry[0] for key, entry in table.items() if key[1:] == kind)


def cost_in_words(table: dict, kind: tuple) -> str:
    requests = sum(entry[1] for key, entry in table.items() if key[1:] == kind)
    return f"{total(table, kind):,} sectors or passes in {requests:,} requests" if requests else "none"
