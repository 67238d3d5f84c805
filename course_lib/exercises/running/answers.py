"""What a run gave, as plain data and back: for the grader's wire, and for the stored answers of a handout."""
from dataclasses import asdict
from typing import Any

from .results import Failure, Foreign, Outcome, Run
from .wire import Opaque, text_of


def plain_run(run: Run) -> dict:
    """A Run as dicts and lists, ready for `wire.pack`. (`dataclasses.asdict` would copy tensors.)"""
    return {"outcomes": [_plain_outcome(o) for o in run.outcomes], "failure": run.failure
            and asdict(run.failure), "printed": run.printed}


def _plain_outcome(outcome: Outcome) -> dict:
    return {key: _plain(value) for key, value in vars(outcome).items() if key != "failure"} | {
        "failure": outcome.failure and asdict(outcome.failure)}


def _plain(value: Any, depth: int = 0) -> Any:
    if isinstance(value, Foreign):
        return Opaque(value.type, value.text)
    if depth < 8 and isinstance(value, (tuple, list)):
        return (tuple if isinstance(value, tuple) else list)(_plain(v, depth + 1) for v in value)
    if depth < 8 and isinstance(value, dict):
        return {k: _plain(v, depth + 1) for k, v in value.items()}
    return value


def read_run(answer: Any) -> Run:
    """A Run from plain data, every field checked: the process that sent it is not to be trusted."""
    outcomes = [_outcome(o) for o in _list(answer["outcomes"])[:10_000]]
    return Run(outcomes, _failure(answer["failure"]), _text(answer["printed"]))


def _outcome(data: dict) -> Outcome:
    return Outcome(value=_thawed(data["value"]), failure=_failure(data["failure"]),
                   printed=_text(data["printed"]), changed=[_text(c) for c in _list(data["changed"])],
                   shares=[_text(s) for s in _list(data["shares"])], nan=_plain_dict(data["nan"]),
                   counts=_counts(data["counts"]))


def _failure(data: dict | None) -> Failure | None:
    if data is None:
        return None
    line = data["line"]
    if line is not None and type(line) is not int:
        raise TypeError("a line is a number")
    return Failure(_text(data["kind"]), _text(data["message"]), line, _text(data["text"]),
                   _text(data["name"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is no text")
    return text_of(value, 8000)


def _list(value: Any) -> list:
    if not isinstance(value, list):
        raise TypeError("a list is no list")
    return value


def _plain_dict(value: Any) -> dict | None:
    if value is not None and not isinstance(value, dict):
        raise TypeError("a dict is no dict")
    return value


def _counts(value: Any) -> dict | None:
    """The numbers, and which elements were never written. No picture: its data are not checked."""
    counts = _plain_dict(value)
    if counts is None:
        return None
    numbers = {k: v for k, v in counts.items() if type(k) is str and type(v) in (int, float)}
    return numbers | ({"unwritten": _text(counts["unwritten"])} if counts.get("unwritten") else {})


def _thawed(value: Any) -> Any:
    if isinstance(value, Opaque):
        return Foreign(value.type, value.text)
    if isinstance(value, (tuple, list)):
        return type(value)(map(_thawed, value))
    if isinstance(value, dict):
        return {k: _thawed(v) for k, v in value.items()}
    return value
