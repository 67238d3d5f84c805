"""Why is this number wrong? From an element back to the lines and the elements that it was made from.

    with cuda.profile() as report:
        mod.kernel[grid, block](x, out, n)
    report.why(out, (3, 5))                   # or report.why("out", 17); a tree, as text or in a notebook
    report.why(out, (3, 5)).lines             # the three lines to look at first
    report.why(out, (3, 5), expected=right)   # with small changes of the lines tried against the right values

The launch runs again with the accesses to this element watched, which says who wrote it last, and once more
with that block recorded. What the value was made from is found in three steps, each stated with its limits.

1. The thread that wrote it loaded, before that, what its statement depends on: through the names that the
   statement uses, the statements that assign those names, and the conditions around them
   (`text/effects.py`).
   Names are taken at their word, so this is a superset of the true dependence, never less, except through
   pointers that are stored in memory.
2. Of these lines, the loads that this thread made before the store, the latest first. A line that ran before,
   for an earlier value in a loop, gives only the loads since.
3. A load from an array that the block has written leads on to the thread that wrote those bytes last.

Which lines come first is an estimate from their text (`suspects.py`). With the right values of the whole
array it is an experiment: some hundred small changes of the kernel are run (`edits.py`, `trials.py`), and the
lines whose change makes wrong elements right come first."""
import operator
from dataclasses import dataclass

import numpy as np

from .. import launch
from ..arguments import arrays
from ..replay.recording import record
from ..replay.traced import Access, Traced
from ..text.effects import at_line, effects, reached_from
from .suspects import Suspect, rank
from .text import as_html, as_text
from .trials import shares

MOST_EVENTS, MOST_READERS, MOST_SOURCES, DEEPEST = 1_000_000, 100_000, 6, 3


def why(result, array: int, index: int, expected=None) -> "Why":
    """Of one launch. `array` is a number among its arrays."""
    c_array = result.inputs.launch.arrays[array]
    low, itemsize = index * c_array.itemsize, c_array.itemsize
    sector = low // 32 * 32
    watched = Traced(result, record(result, launch.PROFILE, events=MOST_EVENTS,
                                    watch=(array, sector, sector + 32)))
    writes = watched.writes_to(array, low, low + itemsize)
    found = effects(next(iter(result.files.values())))
    made, cut = None, watched.cut or len(watched.events) > MOST_READERS
    if len(writes):
        last = watched.row(writes[-1])
        traced, writer = _recorded_writer(result, watched, last)
        made = _walk(traced, found, writer, 0) if writer else watched.access(last)
        cut = cut or traced.cut
        reach = reached_from(found, at_line(found, made.line))
    else:
        own = [s for s in found if s.function == result.kernel.split("<")[0].split("::")[-1]]
        makers = [s for s in own if c_array.name.decode() in s.assigns]
        deciding = [c for s in makers for c in s.controls]       # who stores; what is stored does not matter
        reach = reached_from(found, deciding or makers or own) | dict.fromkeys(makers, 1)
    text = next(iter(result.files.values()))
    tried = {} if expected is None else shares(result, array, index, expected, found)
    suspects = rank(text, reach, made and made.value, made is not None, tried)
    shown = np.arange(len(watched.events)) < MOST_READERS
    readers = [watched.access(r) for r in watched.rows.events(shown) if watched.of(r, "kind") == "load"]
    return Why(result.kernel, result.grid, result.block, c_array.name.decode(), index, made,
               len(writes), suspects, readers, cut)


def _recorded_writer(result, watched: Traced, last: list) -> tuple[Traced, list | None]:
    """The writer's block, recorded, and the row in it of this store; None beyond what is recorded."""
    block, thread = watched.of(last, "block"), watched.of(last, "thread")
    traced = Traced(result, record(result, launch.PROFILE, blocks=[block], events=MOST_EVENTS))
    same = ("array", "offset", "line", "kind")
    wanted = [watched.of(last, n) for n in same]
    rows = reversed(traced.thread(block, thread))
    return traced, next((r for r in rows if [traced.of(r, n) for n in same] == wanted), None)


def _walk(traced: Traced, found: list, writer: list, depth: int) -> Access:
    """The access with its sources: loads of the same thread that its line depends on."""
    made = traced.access(writer)
    time, thread = traced.of(writer, "time"), traced.of(writer, "thread")
    near: dict[int, int] = {}
    for s, distance in reached_from(found, at_line(found, made.line)).items():
        for line in s.lines:
            near.setdefault(line, distance)          # the nearest come first
    # since this thread's store before, from the same line: an earlier turn of the loop
    before = [r for r in traced.thread(traced.of(writer, "block"), thread) if traced.of(r, "time") < time]
    since = max((traced.of(r, "time") for r in before if traced.of(r, "line") == made.line
                 and traced.of(r, "kind") != "load"), default=-1)
    by_line: dict = {}
    for r in reversed(before):
        line = traced.of(r, "line")
        in_turn = line != made.line or traced.of(r, "time") > since
        if traced.of(r, "kind") != "store" and line in near and in_turn:
            by_line.setdefault((near[line], line, traced.of(r, "array")), []).append(r)
    for key in sorted(by_line)[:MOST_SOURCES]:
        rows = by_line[key]
        source = traced.access(rows[0])
        source.more = len(rows) - 1
        origin = traced.last_writer(rows[0])
        if origin is None:
            source.origin = "which its block had not written"
        elif depth + 1 < DEEPEST and traced.of(origin, "time") < time:
            source.sources = [_walk(traced, found, origin, depth + 1)]
        made.sources.append(source)
    return made


@dataclass
class Why:
    """The answer; `lines` are the places to look at first, the likeliest before the others."""
    kernel: str
    grid: tuple
    block_size: tuple
    array: str
    index: int                   # of the element, counted through the array
    access: Access | None        # that wrote it last; None: no thread did
    writes: int                  # to the element, by all threads
    suspects: list[Suspect]
    readers: list[Access]        # of its sector, after and before
    cut: bool

    @property
    def lines(self) -> list[Suspect]:
        return self.suspects[:3]

    def __str__(self) -> str:
        return as_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(self)


def why_of(results: list, out, index, expected=None) -> Why:
    """Of the last of some launches that wrote the element."""
    known = [(r, number_of(r, out)) for r in reversed(results)]
    known = [(r, array) for r, array in known if array >= 0]
    if not known:
        names = dict.fromkeys(a.name.decode() for r in results
                              for a in r.inputs.launch.arrays[:r.inputs.launch.n_arrays])
        what = repr(out) if isinstance(out, str) else "this one"
        raise ValueError(f"out: no launch had the array {what}; they had {', '.join(names) or 'none'}")
    answers = []
    for result, array in known:
        given = result.inputs.launch.arrays[array]
        answers.append(why(result, array, flat(index, tuple(given.shape[:given.ndim])), expected))
        if answers[-1].access is not None:
            return answers[-1]
    return answers[0]


def number_of(result, out) -> int:
    """Which of a launch's arrays is meant: by name, or the array itself. -1: none."""
    inputs = result.inputs
    mine = [inputs.launch.arrays[i] for i in range(inputs.launch.n_arrays)]
    if isinstance(out, str):
        return next((i for i, a in enumerate(mine) if a.name.decode() == out), -1)
    if not any(owner() is arrays.owner(out) for owner in inputs.owners):
        return -1                        # perhaps at the address of one that is gone
    address = arrays.of(out).address
    for i, a in enumerate(mine):
        if a.bytes and a.storage >= 0 and inputs.launch.storages[a.storage].host + a.offset == address:
            return i
    return -1


def flat(index, shape: tuple[int, ...]) -> int:
    """The number of an element; index is one number or one per dimension."""
    count = int(np.prod(shape, dtype=np.int64))
    try:
        if not isinstance(index, (tuple, list)):
            place = operator.index(index)
        elif len(index) == len(shape) and all(0 <= operator.index(i) < n for i, n in zip(index, shape)):
            place = int(np.ravel_multi_index(index, shape)) if shape else 0
        else:
            place = -1
    except TypeError:                    # no whole number
        place = -1
    if 0 <= place < count:
        return place
    raise ValueError(f"index: the array has shape {tuple(shape)}, got {index!r}")
