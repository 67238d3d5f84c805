"""The first line of a student's Python whose value the reference never has.

Both are run on the failing case with every operation of torch looked at. A value of the student's is known if
the reference has it too, in whatever shape and under whatever name; inputs are. Of an unknown one it is said
that it is the first: another way to the same result has such values as well, so it names a place to look."""
import io
import sys
from dataclasses import replace

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ..parts import Case, Exercise
from ..running.limits import TimeIsUp, guarded
from ..running.namespace import driver
from ..running.results import Request, line_of
from ..running.runner import _Cell
from ..running.values import copied
from .beside import Beside
from .show import dtype_name, show

MOST = 20_000            # operations that are looked at
MADE_OF_NOTHING = ("arange", "zeros", "ones", "full", "eye", "linspace", "scalar_tensor")
MADE = ("empty", "detach", "clone", "copy", "_to_copy", "alias", "lift")      # a value of elsewhere


class _Values(TorchDispatchMode):
    """(operation, line, value) of every result that an operation of the file's makes."""

    def __init__(self, filename: str):
        super().__init__()
        self.filename, self.found = filename, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        frame, line, name = sys._getframe(1), None, func.overloadpacket.__name__
        while frame and line is None:
            line = frame.f_lineno if frame.f_code.co_filename == self.filename else None
            frame = frame.f_back
        if line and len(self.found) < MOST and not name.startswith(MADE):
            self.found += [(name.strip("_"), line, t.detach().clone()) for t in tree_leaves(result)
                           if isinstance(t, torch.Tensor)]
        return result


def first_value(exercise: Exercise, source: str, asked: Request, case: Case) -> Beside:
    mine = _values(asked, source, case)
    theirs = _values(replace(asked, id=f"reference {asked.id}"), exercise.solution, case)
    held = [t for _, _, t in theirs] + [t for t in tree_leaves((case.args, case.kwargs))
                                        if isinstance(t, torch.Tensor)]
    known: list = []
    for name, line, value in mine:
        if name.startswith(MADE_OF_NOTHING) and not any(other.shape == value.shape for other in held):
            continue                                 # a count of one's own, right or wrong: its use will tell
        if not any(_same(value, other) for other in held):
            return Beside(*_told(source, (name, line, value), known[-1] if known else None, held))
        known.append((name, line, value))
    if not mine:
        return Beside("Only tensors are looked at, and your lines make none here: see the case of the check.", [])
    return Beside("Every tensor of yours is one that the reference has too: something is left out, or comes "
                  "in another order or shape, or is no tensor.", _rows(source, known[-1:]))


def _values(asked, text: str, case) -> list:
    with _Values(""):
        torch.zeros(1) * 1                           # the first use of a dispatch mode loads much of torch
    cell = _Cell(replace(asked, forbid=()), text)
    made, failure = cell.define(io.StringIO())
    if failure:
        return []
    args, kwargs = copied((case.args, case.kwargs))
    call, tracer = driver(asked), _Values(cell.filename)
    try:
        with torch.random.fork_rng(devices=[]), guarded(cell.deadline, io.StringIO()), tracer:
            torch.manual_seed(asked.seed)
            call(made, *args, **kwargs)
    except (Exception, TimeIsUp):                    # what it had made by then counts
        pass
    return tracer.found


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal but for their shapes and the rounding."""
    if a.numel() != b.numel() or a.is_complex() or b.is_complex():
        return False
    return torch.allclose(a.double().flatten(), b.double().flatten(), rtol=1e-4, atol=1e-6, equal_nan=True)


def _told(source: str, first: tuple, before: tuple | None, held: list) -> tuple[str, list]:
    name, line, value = first
    alike = "" if any(t.shape == value.shape for t in held) else " No value of it has this shape."
    made = f"the result of `{name}`, {tuple(value.shape)}, {dtype_name(value)}"
    return (f"Line {line}: {made}, is the first of your values that the reference never has.{alike}",
            _rows(source, [before] if before else [], [first]))


def _rows(source: str, known: list, unknown: list = ()) -> list[tuple[str, str, str]]:
    return [(f"line {line}", f"{line_of(source, line)}\n{name}: {show(value, 24)}", said) for found, said in
            ((known, "has it too"), (unknown, "never has it")) for name, line, value in found]
