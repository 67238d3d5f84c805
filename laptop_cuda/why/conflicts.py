"""Why does an access of shared memory take more passes than it must, and which layout ends it?

    launch = report.launches[0]
    launch.conflicts()                   # each line that loses passes, those that lose most first
    launch.conflicts("s")[0].lanes       # {bank: [(element, lanes that want it), ...]} of its costliest request

The launch runs again, recorded. Of each line the costliest request is shown: which lanes want which words of
which bank. Then layouts of the array are searched, by counting every recorded access of it, loads and stores,
anew: rows that are longer by some elements, and columns exchanged by an exclusive or with the row's number. The
least padding and the exchange that leave the fewest lost passes are written into the source where its text allows
(`written.py`), and that kernel runs and is counted again; its results are compared with those of the launch."""
import ctypes
import dataclasses
import html
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np

from .. import launch
from ..launch.kernel_library import kernel_library
from ..machine import REAL
from ..pictures import front
from ..pictures.svg import Canvas
from ..replay.recording import Recording, record
from ..report import SHARED_LOAD, SHARED_STORE
from ..sources import files_of
from ..text import signature
from ..text.diagnostics import CompileError
from .layouts import best, lost, meeting, requests
from .trials import outcome
from .written import bodies_of, declared, element_bytes, longer, number, sizes, written

MOST_EVENTS = 200_000            # accesses of lanes


@dataclass
class Remedy:
    change: str                  # of the declaration, or of the index
    excess: int                  # lost passes over the recorded accesses of the array, with it
    of: int                      # and without it
    counted: int | None = None   # lost passes of the changed kernel, run and counted
    same: bool = False           # its results are those of the launch

    def __str__(self) -> str:
        said = f"{self.change}: {self.excess:,} of {self.of:,} lost passes by the recorded addresses"
        results = "with the same results" if self.same else "BUT WITH OTHER RESULTS"
        return said if self.counted is None else f"{said}; run and counted again: {self.counted:,}, {results}"


@dataclass
class Conflict:
    """One line's accesses of one shared array."""
    kernel: str
    array: str
    file: str
    line: int
    text: str
    kind: str
    requests: int
    wavefronts: int
    excess: int
    lanes: dict[int, list[tuple[int, list[int]]]]        # of the costliest request, the part that takes most
    remedies: list[Remedy] = field(default_factory=list)
    banks: int = REAL.banks

    def __str__(self) -> str:
        each = f"{self.requests:,} request{'s' * (self.requests != 1)}"
        bank, words = max(self.lanes.items(), key=lambda item: len(item[1]))
        met = ", ".join(f"lane{'s' * (len(who) > 1)} {_few(who)} at {self.array}[{n}]" for n, who in words[:6])
        more = f" and {len(words) - 6} words more" if len(words) > 6 else ""
        lines = [f"{self.kernel}, line {self.line}, {self.kind}s of {self.array}: {each} take {self.wavefronts:,} "
                 f"passes, {self.excess:,} of them lost to bank conflicts.", f"    {self.text}",
                 f"The costliest wants {len(words)} words of bank {bank} at once: {met}{more}."]
        return "\n".join([*lines, *(f"  ends it: {r}" if not r.excess else f"  helps: {r}" for r in self.remedies),
                          *["  no padding or exchange that was tried has fewer"] * (not self.remedies)])

    __repr__ = __str__

    def picture(self) -> front.Picture:
        """A column is a bank, a row is a pass, a number is the lane (or how many lanes) whose word it serves."""
        most = max(map(len, self.lanes.values()))
        cell, left, top = 640 / self.banks, 52, 28
        drawn = Canvas(left + 640 + 6, top + 17 * most + 6)
        drawn.text(2, 16, "bank", size=10)
        for bank in range(0, self.banks, 2):
            drawn.text(left + cell * (bank + 0.5), 16, bank, size=10, anchor="middle")
        for row in range(most):
            drawn.text(2, top + 17 * row + 12, f"pass {row + 1}", size=10)
            for bank in range(self.banks):
                words = self.lanes.get(bank, [])
                who = words[row][1] if row < len(words) else []
                drawn.rect(left + cell * bank, top + 17 * row, cell - 1, 16, size=9,
                           fill="empty" if not who else "warn" if row else "2",
                           text="" if not who else who[0] if len(who) == 1 else f"x{len(who)}",
                           about=f"bank {bank}: {self.array}[{words[row][0]}], lanes {_few(who)}" if who else "")
        return front.Picture(drawn, str(self), f"Line {self.line}: lanes that meet in a bank of {self.array}",
                             "A column is a bank, a row a pass, a number the lane whose word it serves (x4: four "
                             "lanes). All below the first row is lost.")

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>{self.picture().html()}"


class Conflicts(list):
    """Of one launch; shown one below the other."""

    def __str__(self) -> str:
        return "\n\n".join(map(str, self)) or "no pass is lost to bank conflicts"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return "".join(one._repr_html_() for one in self) or f"<p>{self}</p>"


def _few(lanes: list[int]) -> str:
    return ", ".join(map(str, lanes[:4])) + (", ..." if len(lanes) > 4 else "")


def conflicts_of(result, array: str | None = None) -> Conflicts:
    """Of a LaunchResult."""
    names = dict.fromkeys(m.name for m in result.memories if m.space == "shared")
    if array is not None and array not in names:
        raise ValueError(f"array: {result.kernel} has the shared arrays {', '.join(names) or 'none'}, got {array!r}")
    sites = [s for s in result.sites if s["operation"] in (SHARED_LOAD, SHARED_STORE) and s["excess"]
             and array in (None, result.memories[s["memory"]].name)]
    if not sites:
        return Conflicts()
    blocks = None if sum(s["lanes"] for s in result.sites) <= MOST_EVENTS else [0]
    recorded = record(result, launch.PROFILE, blocks=blocks, events=5 * MOST_EVENTS)
    places, bodies = result.places([s["pc"] for s in sites]), bodies_of(result)
    of_line, arrays = {}, {}
    for site in sites:
        of_line.setdefault((places[site["pc"]], site["memory"], site["operation"]), []).append(site)
    for place, n, _ in of_line:
        if (name := result.memories[n].name) not in arrays:
            at = declared(result, bodies, name, place.line)
            arrays[name] = _array(result, recorded, result.memories[n], at, blocks)
    made = [_conflict(result, key, same, *arrays[result.memories[key[1]].name])
            for key, same in of_line.items()]
    return Conflicts(sorted(made, key=lambda c: -c.excess))


def _array(result, recorded: Recording, memory, at, blocks) -> tuple:
    """(requests, bytes of an element, remedies) of a shared array, which is declared at `at`."""
    own, item = requests(recorded, memory.name, result.machine.warp_size), element_bytes(result, memory, at)
    return own, item, _remedies(result, memory, Counter(r for _, r in own), at, item, blocks)


def _conflict(result, key: tuple, sites: list, own: list, item: int, remedies: list[Remedy]) -> Conflict:
    place, number, operation = key
    memory, machine = result.memories[number], result.machine
    pcs = {s["pc"] for s in sites}
    here = dict.fromkeys(r for pc, r in own if pc in pcs) or dict.fromkeys(r for _, r in own)
    worst = max(here, key=lambda request: lost(machine, memory, request))
    sums = (sum(s[name] for s in sites) for name in ("requests", "wavefronts", "excess"))
    return Conflict(result.kernel, memory.name, place.file, place.line, result.text(place).strip(),
                    "load" if operation == SHARED_LOAD else "store", *sums, meeting(result, memory, worst, item),
                    remedies, machine.banks)


def _remedies(result, memory, counted: Counter, place, item: int, blocks) -> list[Remedy]:
    many = sizes(place)[1:]
    rows = number(result, many[-1]) if many else 0
    now, layouts = best(result.machine, memory, counted, item, rows, bool(many))
    found = [Remedy(layout.words(memory.name), left, now) for layout, left in layouts]
    for remedy, (layout, _) in zip(found, layouts):
        if layout.pad and many:
            remedy.change = f"{memory.name}[...][{longer(many[-1], layout.pad)}]"
        more = (memory.bytes // item - 1) // layout.pitch * layout.pad * item * (sizes(place) == [""])
        if more:
            remedy.change += f" with {more:,} bytes more of the launch"
        if place and (text := written(memory.name, layout, place)):
            result.inputs.launch.shared_bytes += more        # of a dynamic array
            try:
                _run(result, memory.name, remedy, text, blocks)
            finally:
                result.inputs.launch.shared_bytes -= more
    return found


def _run(result, name: str, remedy: Remedy, text: str, blocks) -> None:
    """The kernel with that layout: its lost passes, and whether its results are the same."""
    kernel, _, arguments = result.kernel.partition("<")
    if len(result.files) > 1 or result.inputs.globals:
        return
    try:
        files = files_of(text, None, ())
        files[0].defines = result.defines
        wanted = [(k, f"<{arguments}" if arguments else "") for k in signature.kernels(files[0])
                  if k.name == kernel.split("::")[-1]]
        library = kernel_library(files, "padded.cu", text, wanted, True)
    except CompileError:
        return
    entry = next(iter(library.entries.values()))
    again = record(dataclasses.replace(result, library=library.path), launch.PROFILE, blocks=blocks,
                   events=5 * MOST_EVENTS, entry=ctypes.cast(entry.call, ctypes.c_void_p))
    if again.error:              # more than a block may have
        return
    of = [i for i, m in enumerate(again.memories) if m.name == name]
    remedy.counted = int(again.steps["excess"][np.isin(again.steps["memory"], of)].sum())
    own = ctypes.c_void_p(result.inputs.launch.entry)
    now = SimpleNamespace(path=result.library), SimpleNamespace(call=own)
    for i in range(result.inputs.launch.n_arrays):
        if result.inputs.launch.arrays[i].storage >= 0:
            mine, theirs = outcome(result, library, entry, i), outcome(result, *now, i)
            if mine is None or theirs is None or not np.array_equal(mine, theirs, equal_nan=True):
                return
    remedy.same = True
