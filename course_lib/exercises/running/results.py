"""What a run is asked and what it gives back: plain data that two processes can exchange."""
from dataclasses import dataclass, field
from typing import Any

PRINTED = 2000          # characters kept of what a student's code prints
LATE = "did not finish within"


@dataclass
class Request:
    """All that a run needs besides the student's source: tensors, numbers and text only."""
    id: str
    language: str                                   # "python" or "cuda"
    name: str                                       # what the source must define
    value: bool                                     # predict and choose: the name's value is the answer
    is_class: bool
    given: dict[str, tuple[str, ...]]               # see declare.given_spec
    call: str | None                                # source text of `def anything(f, *args, **kwargs)`
    inputs: list[tuple[tuple, dict]]                # one (args, kwargs) per case
    launches: list[list[dict]] = field(default_factory=list)     # kernels: one plan per case, see judge.plan
    arrays: list[list[dict]] = field(default_factory=list)
    # bytes that each case may move; empty: not counted
    budgets: list[float] = field(default_factory=list)
    # of cuda.Machine: what is counted on another machine than the course's
    machine: dict[str, int] = field(default_factory=dict)
    orders: tuple[str, ...] = ("forward",)         # kernels: in which each case is sanitized
    mutates: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()                   # what the source may not call, see watch.py
    limit: float = 5.0                              # seconds for all cases together
    seed: int = 0


@dataclass
class Failure:
    """Why there is no value. `line` counts from the first line of the student's cell."""
    # syntax, command, undefined, not defined, signature, exception, timeout, unwritten, compile,
    # launch, missing, forbidden, or the kind of a cuda.KernelError
    kind: str
    message: str
    line: int | None = None
    text: str = ""
    name: str = ""


@dataclass
class Foreign:
    """A value of a type that an answer may not have."""
    type: str
    text: str = ""


@dataclass
class Outcome:
    """The result of one case."""
    value: Any = None
    failure: Failure | None = None
    printed: str = ""
    changed: list[str] = field(default_factory=list)     # arguments changed in place
    shares: list[str] = field(default_factory=list)      # arguments whose memory the result shares
    nan: dict | None = None                              # first operation that made a NaN: op, line, text
    # kernels: moved, asked and unique bytes, unwritten, picture
    counts: dict | None = None


@dataclass
class Run:
    """`failure` when the source itself could not be run; otherwise one outcome per case."""
    outcomes: list[Outcome] = field(default_factory=list)
    failure: Failure | None = None
    printed: str = ""


class PlainError(Exception):
    """An error of which a notebook shows the sentence alone."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def line_of(source: str, line: int | None) -> str:
    lines = source.splitlines()
    return lines[line - 1].strip() if line and 0 < line <= len(lines) else ""


def with_article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
