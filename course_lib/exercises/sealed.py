"""Exercises of a handout: the cases and what is expected of them are stored, solutions are not.

    seal(exercise, into)                  # by `handout`, from the full edition
    open_sealed(path, {"1.1": {...}})     # in the handout's exercises/chapters/<word>.py

What is stored is data: inputs, results, the results of the usual mistakes. Whoever unpacks the file finds
numbers, among them the answers of *predict* exercises: a check that works without an instructor needs them.
"""

import inspect
import sys
import zlib
from pathlib import Path
from typing import Any, Callable

import torch

from .judging import judge
from . import student
from .running import wire
from .running.answers import plain_run, read_run
from .declare import register
from .given import given_spec
from .parts import Array, Case, Exercise, Launch, Misconception, TensorMap
from .running.results import PlainError

PLAIN = ("id", "title", "kind", "language", "name", "points", "minutes", "difficulty", "card", "stub", "hints",
         "call", "forbid", "mutates", "limit", "wavefronts", "options", "orders")


class Given:
    """A given name by its description alone."""

    def __init__(self, spec: tuple):
        self.given_spec = tuple(spec)


def seal(exercise: Exercise) -> dict:
    """All that a check needs, as plain data, without a solution."""
    cases = judge.draw(exercise)
    asked = judge.request(exercise, cases)
    asked.limit *= 4  # so that a mistake's result does not depend on how busy this machine is
    runs = [run for _, _, run in judge.mistakes(exercise, asked)]
    sealed = {name: getattr(exercise, name) for name in PLAIN} | {
        "given": given_spec(exercise.given), "cases": [(c.args, c.kwargs, c.label) for c in cases],
        "expected": judge.expected(exercise, cases),
        "misconceptions": [(m.name, m.ask, plain_run(run)) for m, run in zip(exercise.misconceptions, runs)]}
    if exercise.launch:
        sealed["arguments"] = list(inspect.signature(exercise.launch).parameters)
        sealed["plans"] = [judge.plan(exercise, case) for case in cases]
    if exercise.traffic:
        sealed["traffic"] = [exercise.traffic(*case.args, **case.kwargs) for case in cases]
    if exercise.stored:
        sealed["stored"] = [exercise.stored(*case.args, **case.kwargs) for case in cases]
    return sealed


def write_sealed(path: Path, exercises: list[Exercise], tables: dict[str, list]) -> None:
    """`tables`: for each function that a notebook imports from the declarations, its results for 0, 1 ..."""
    path.write_bytes(zlib.compress(wire.pack({"exercises": [seal(e) for e in exercises], "tables": tables})))


def read_stored(path: Path) -> dict:
    return wire.unpack(zlib.decompress(Path(path).read_bytes()))


def table(path: Path, name: str) -> Callable[[int], Any]:
    """The stored function `name`. For a solution's text it returns the student's own, once it passed."""
    answers = read_stored(path)["tables"][name]

    def look_up(number: int):
        if number not in range(len(answers)):
            raise ValueError(f"{name}: number is {number!r}; this edition has 0 to {len(answers) - 1}")
        answer = answers[number]
        if not isinstance(answer, dict):
            return answer
        passed = [id for id in answer["exercises"] if id in student.handed_in]
        return yours((passed or answer["exercises"])[0], name).source
    look_up.__name__ = name
    return look_up


def open_sealed(path: Path, code: dict[str, dict[str, Any]]) -> None:
    """Declare the exercises of a file that `write_sealed` wrote. `code`: id -> compare= and properties=."""
    for data in read_stored(path)["exercises"]:
        cases = [Case(*args, label=label, **kwargs) for args, kwargs, label in data["cases"]]
        stored = [(name, ask, read_run(run)) for name, ask, run in data["misconceptions"]]
        made = Exercise(**{name: data[name] for name in PLAIN}, solution_text=None, answer=None,
                        misconceptions=[Misconception(name, ask, value=None) for name, ask, _ in stored],
                        given={name: Given(spec) for name, spec in data["given"].items()},
                        cases=None if data["kind"] in ("predict", "choose")
                        else lambda rng, cases=cases: cases, oracle=judge.Oracle(data["expected"], stored),
                        **code[data["id"]])
        if "plans" in data:
            made.launch = _lookup(cases, [_launches(plan) for plan in data["plans"]], data["arguments"])
        if "traffic" in data:
            made.traffic = _lookup(cases, data["traffic"], data["arguments"])
        if "stored" in data:
            made.stored = _lookup(cases, data["stored"], data["arguments"])
        register(made, sys._getframe(1).f_globals.get("__name__", ""))


def _lookup(cases: list[Case], answers: list, names: list[str]) -> Callable:
    """A function of a case's values, which it recognises by identity: it is only called with these."""
    known = {_key(case.args, case.kwargs): answer for case, answer in zip(cases, answers)}

    def look_up(*args, **kwargs):
        return known[_key(args, kwargs)]
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    look_up.__signature__ = inspect.Signature([inspect.Parameter(name, either) for name in names])
    return look_up


def _key(args: tuple, kwargs: dict) -> tuple:
    return (*map(id, args), *((name, id(value)) for name, value in kwargs.items()))


def _launches(plan) -> list[Launch]:
    arrays, steps = plan
    made = [Array(a["role"], tuple(a["shape"]), getattr(torch, a["dtype"]), a["tensor"]) for a in arrays]
    read = {"array": made.__getitem__, "value": lambda value: value,
            "map": lambda of: TensorMap(made[of[0]], *of[1:])}
    return [Launch(grid=step["grid"], block=step["block"], shared=step["shared"], kernel=step["kernel"],
                   args=[read[kind](value) for kind, value in step["args"]]) for step in steps]


class NotYours(PlainError, NotImplementedError):
    """Raised where a handout's package would need a solution."""


def yours(id: str, name: str, arguments: dict[str, Any] | None = None) -> Any:
    """The student's own `name`, once exercise `id` has passed; called with the arguments that it takes.

    Where the student's function has as many parameters under other names, the order decides."""
    if id not in student.handed_in:
        raise NotYours(f"`{name}` is exercise {id}. This edition holds no solution: it works here once your "
                       "cell has passed its check.")
    own = student.handed_in[id]
    if arguments is None:
        return own
    taken = inspect.signature(own).parameters
    if len(taken) == len(arguments) and taken.keys() != arguments.keys():
        return own(*arguments.values())
    extra = [key for key, value in arguments.items() if key not in taken
             and not (value is None or value is False)]
    if extra:
        named = ", ".join(f"`{e}`" for e in extra)
        raise NotYours(f"Your `{name}` of exercise {id} takes no {named}, which is needed here.")
    return own(**{key: value for key, value in arguments.items() if key in taken})
