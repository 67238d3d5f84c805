"""Where a wrong result of a student's Python leaves the values of the reference.

Both are run on the failing case with every operation of torch looked at. A value of the student's is known if
the reference has it too, in whatever shape and under whatever name, or as a part of one. Another way to the same
result has unknown values as well: one counts if the first wrong result is made of it through unknown ones only.
All that the first of these is made of is known, so its line is wrong or is given the wrong thing; it is sure
where a value of the reference's, put in the place of one of these, makes the result right."""
import io
import sys
from dataclasses import dataclass, replace

import torch
from torch.utils._pytree import tree_leaves

from ..parts import Case, Exercise
from ..running.limits import TimeIsUp, guarded
from ..running.namespace import driver
from ..running.results import Request, line_of
from ..running.runner import _Cell
from ..running.values import copied
from ..running.watch import OperationMode
from .beside import Beside
from .show import dtype_name, show

MOST, TRIED = 20_000, 60            # operations that are looked at; values of the reference that are put in
MADE_OF_NOTHING = ("arange", "zeros", "ones", "full", "eye", "linspace", "scalar_tensor")
MADE = ("empty", "new_empty", "detach", "clone", "copy", "_to_copy", "alias", "lift")      # a value of elsewhere


@dataclass(eq=False)
class _Made:
    """A result of an operation in the file."""
    number: int                      # of those that operations made
    name: str
    line: int
    value: torch.Tensor
    of: set["_Made"]                 # what the operation was given
    known: bool = False


class _Values(OperationMode):
    """What the file's operations make. `instead` has values to put in the place of some, by their number."""

    def __init__(self, filename: str, instead: dict | None = None):
        super().__init__()
        self.filename, self.instead, self.found = filename, instead or {}, []
        self.makers: dict = {}       # storage, or place of a view: what was written there
        self.kept, self.read = [], set()             # what lives keeps its storage's number; read by Python

    def of(self, values) -> set[_Made]:
        return set().union(*(self.makers.get(key, ()) for t in _tensors(values) for key in _places(t)))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
        frame, line = sys._getframe(1), None
        while frame and line is None:
            line = frame.f_lineno if frame.f_code.co_filename == self.filename else None
            frame = frame.f_back
        made, of, given = _tensors(result), self.of((args, kwargs)), _tensors((args, kwargs))
        if line and len(self.found) < MOST and not name.startswith(MADE) and made:
            other, in_place = self.instead.get(len(self.found)), name[-1] == "_" != name[0]
            if other is not None:
                made = [made[0].copy_(other) if in_place else other.clone()]
                result = made[0]
            of = {_Made(len(self.found) + k, name.strip("_"), line, t.detach().clone(), of)
                  for k, t in enumerate(made)}
            self.found += sorted(of, key=_number)
            view = not in_place and any(_places(made[0])[0] == _places(t)[0] for t in given)
        else:
            view = False
        self.kept += made
        for t in made:
            self.makers.setdefault(_places(t)[view], set()).update(of)
        self.read |= set() if made else of
        return result


def first_value(exercise: Exercise, source: str, asked: Request, case: Case, want) -> Beside:
    mine, leaves = _values(asked, source, case)
    theirs, _ = _values(replace(asked, id=f"reference {asked.id}"), exercise.solution, case)
    if not mine.found:
        return Beside("Only tensors are looked at, and your lines make none here: see the case of the check.", [])
    held, wanted = [m.value for m in theirs.found] + _tensors((case.args, case.kwargs)), tree_leaves(want)
    for m in mine.found:                             # a count of one's own is right or wrong by its use
        m.known = (any(_same(m.value, other) or _is_part(m.value, other) for other in held)
                   or m.name.startswith(MADE_OF_NOTHING) and not any(t.shape == m.value.shape for t in held))
    wrong = next((k for k, pair in enumerate(zip(leaves, wanted)) if not _equal(*pair)), None)
    ends = mine.of(leaves if wrong is None else leaves[wrong]) | mine.read if leaves else {*mine.found}
    first = min(_reached(ends, lambda m: not m.known), key=_number, default=None)

    def is_right(instead: dict) -> bool:
        again = _values(asked, source, case, instead)[1]
        return wrong is not None and len(again) > wrong and _equal(again[wrong], wanted[wrong])
    near = [first] if first else sorted(_reached(ends, lambda m: True), key=_number, reverse=True)
    found = _repaired(near, mine.found, theirs.found, is_right)
    if found and first and found[1].name == first.name:          # the right operation: on what?
        found = _repaired(_given(first), mine.found, theirs.found, is_right) or found
    if found or first:
        return _told(source, first, *(found or (first, None)))
    told = "result" if wrong is None else "first wrong result"
    rows = [] if wrong is None else [(told, show(leaves[wrong], 24), show(wanted[wrong], 24))]
    return Beside(f"Every tensor of which your {told} is made is one that the reference has too: something is left "
                  "out, or comes in another order or shape, or is no tensor.", rows)


def _told(source: str, first: _Made | None, m: _Made, instead: _Made | None) -> Beside:
    is_right = "with the reference's value in its place, your result is right."
    told = f"the result of `{m.name}`, {_about(m.value)}"
    if first and m is not first:
        message = f"Line {first.line} is given {told}, from line {m.line}; {is_right}"
    else:
        message = f"Line {m.line}: {told}" + (f"; {is_right}" if instead else (
            ", is the first on the way to your result that the reference never has."))
    given = _given(m)
    if m.known:
        message += " Yours is one of the reference's too: a step after it is missing, or it is the wrong one."
    else:
        lines = ", ".join(map(str, sorted({x.line for x in given})))
        of = f", from line{'s' * (',' in lines)} {lines}" if lines else ""
        message += (f" The reference has all that it is made of{of}: this line is wrong, or it is given the wrong "
                    "thing.")
    rows = [(x, "has it too") for x in given[1::-1]] * (not m.known)
    return Beside(message, _rows(source, [*rows, (m, show(instead.value, 24) if instead else "never has it")]))


def _given(m: _Made) -> list[_Made]:
    """What the line of a value is given by others, the last first."""
    inner = _reached(m.of, lambda x: x.line == m.line)
    return sorted({x for y in {m, *inner} for x in y.of} - inner, key=_number, reverse=True)


def _repaired(near: list, mine: list, theirs: list, is_right) -> tuple[_Made, _Made] | None:
    """The first of some values in whose place one of the reference's makes the result right, and that one. All
    runs of an operation are exchanged at once."""
    sites: dict = {}
    for m in theirs:
        sites.setdefault((m.line, m.name), []).append(m)
    tried = 0
    for m in near:
        own = [x for x in mine if (x.line, x.name) == (m.line, m.name)]
        for others in sites.values():
            fits = [_about(x.value) for x in own] == [_about(x.value) for x in others]
            if not fits or tried == TRIED or all(_same(x.value, y.value) for x, y in zip(own, others)):
                continue
            tried += 1
            if is_right({x.number: y.value for x, y in zip(own, others)}):
                return m, others[own.index(m)]
    return None


def _reached(ends: set[_Made], passes) -> set[_Made]:
    """What some values are made of, as far as all on the way pass."""
    found, front = set(), ends
    while front := {m for m in front if passes(m)} - found:
        found |= front
        front = set().union(*(m.of for m in front))
    return found


def _values(asked, text: str, case, instead: dict | None = None) -> tuple[_Values, list]:
    """(what its operations made, what it returned)"""
    cell = _Cell(replace(asked, forbid=()), text)
    made, failure = cell.define(io.StringIO())
    args, kwargs = copied((case.args, case.kwargs))
    call, tracer, returned = driver(asked), _Values(cell.filename, instead), ()
    try:
        with torch.random.fork_rng(devices=[]), guarded(cell.deadline, io.StringIO()), tracer:
            torch.default_generator.manual_seed(asked.seed)
            returned = () if failure else call(made, *args, **kwargs)
    except (Exception, TimeIsUp):                    # what it had made by then counts
        pass
    return tracer, tree_leaves(returned)


def _tensors(values) -> list[torch.Tensor]:
    return [t for t in tree_leaves(values) if isinstance(t, torch.Tensor) and t.layout == torch.strided]


def _places(t: torch.Tensor) -> tuple:
    """Its storage, and where it is in that."""
    storage = t.untyped_storage()._cdata
    return storage, (storage, t.storage_offset(), t.shape, t.stride())


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal but for their shapes and the rounding."""
    if a.numel() != b.numel() or a.is_complex() or b.is_complex():
        return False
    return torch.allclose(a.double().flatten(), b.double().flatten(), rtol=1e-4, atol=1e-6, equal_nan=True)


def _is_part(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether it is a stretch of the other along one axis."""
    axes = [k for k in range(b.dim()) if a.dim() == b.dim() and a.shape[k] != b.shape[k]]
    if not a.is_floating_point() or a.numel() < 2 or len(axes) != 1:
        return False
    axis, size = axes[0], a.shape[axes[0]]
    return any(_same(a, b.narrow(axis, k, size)) for k in range(b.shape[axis] - size + 1))


def _equal(a, b) -> bool:
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and _same(a.detach(), b)
    return type(a) is type(b) and (a == b or isinstance(a, float) and abs(a - b) <= 1e-6 + 1e-4 * abs(b))


def _number(m: _Made) -> int:
    return m.number


def _about(value: torch.Tensor) -> str:
    return f"{tuple(value.shape)}, {dtype_name(value)}"


def _rows(source: str, made: list[tuple[_Made, str]]) -> list[tuple[str, str, str]]:
    return [(f"line {m.line}", f"{line_of(source, m.line)}\n{m.name}: {show(m.value, 24)}", said)
            for m, said in made]
