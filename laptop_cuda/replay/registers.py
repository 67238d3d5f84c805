"""The local variables of a replayed launch, by name: what a lane's registers hold.

The hooks of the compiler see accesses to memory only. So a copy of the kernel is built that also stores each
scalar variable after each statement that assigns it, on the same lines, and the launch is recorded once more
with it. Where that run does not go step by step as the replay, nothing is said from there on; the same holds
for sources of several files and for whole arrays, vectors and structures. A variable is known within its scope."""
import ctypes
import dataclasses

import numpy as np

from .. import launch
from ..launch.kernel_library import kernel_library
from ..sources import files_of, split_instance
from ..text import signature
from ..text.diagnostics import CompileError
from ..text.effects import Effect, effects
from ..text.outline import outline
from ..text.statements import CHANGES
from ..text.tokens import Token
from ..text.variables import variables
from .recording import record
from .rows import Rows

STORED = "laptop_registers"
UNKNOWN = {"names": None, "rows": [], "lines": []}


def registers(result, blocks: list[int], steps: list[dict], events: int) -> dict:
    """{"names": of variables (None: not known), "rows": [[first step at which it holds, block, warp, name, lanes,
    values (None: known no more)]], "lines": of the statement of each row (0: of none)}. `steps` are those of a replay of
    these blocks, and `events` how many it has."""
    base, arguments = split_instance(result.kernel)
    source = next(iter(result.files.values()))
    names, text = noted(source, base.split("::")[-1])
    if names is None or len(result.files) > 1:
        return UNKNOWN
    if not names:
        return UNKNOWN | {"names": []}
    try:
        files = files_of(text, None, ())
        files[0].defines = result.defines
        kernel = next(k for k in signature.kernels(files[0]) if base in (k.name, k.function.name))
        wanted = [(kernel, arguments or ("<>" if kernel.template else ""))]
        library = kernel_library(files, next(iter(result.files)), text, wanted, True)
    except (CompileError, StopIteration):
        return UNKNOWN
    entry = ctypes.cast(library.entries[wanted[0]].call, ctypes.c_void_p)
    library.hold()
    library.restore(result.inputs.globals)
    recorded = record(dataclasses.replace(result, library=library.path), launch.PROFILE, blocks=blocks,
                      events=20 * events + 1000, entry=entry)
    rows = Rows(dataclasses.replace(result, library=library.path), recorded)
    known = _known(rows, steps, [m.name for m in recorded.memories], len(names))
    made = _in_scope(known, steps, _scopes(source, base.split("::")[-1], names))
    return {"names": names, "rows": [row for row, _ in made], "lines": [line for _, line in made]}


def _scopes(text: str, kernel: str, names: list[str]) -> dict[int, tuple[set, list]]:
    """{variable: (lines at which it can be out of scope, [(first line, last, no parameter and in no loop's head)])}"""
    whole, lines, found = outline(text), text.split("\n"), {}
    spans = {f.name: {*range(whole.line(f.first), whole.line(f.body[1]) + 1)} for f in whole.functions}
    for f in whole.functions:
        for v in variables(whole, f):
            name = v.name if f.name == kernel else f"{v.name} of {f.name}"
            first, last = (text.count("\n", 0, at) + 1 for at in (v.start, v.end))
            alone = v.start > whole.tokens[f.body[0]].start and "for" not in lines[first - 1]
            if name in names:
                of = found.setdefault(names.index(name), (spans[f.name] | spans.get(kernel, set()), []))
                of[1].append((first, last, alone))
    return found


def _in_scope(known: list, steps: list[dict], scopes: dict) -> list[tuple[list, int]]:
    """The rows, and others by which a variable is not known where its lanes are out of its scope, or back before it."""
    made, own, queues = [], {}, {}
    for n, s in enumerate(steps):
        own.setdefault((s["block"], s["warp"]), []).append(n)
    for row, line in known:
        queues.setdefault((row[1], row[2]), []).append((row, line))
    for warp, numbers in own.items():
        queue, live, before = iter(queues.get(warp, ())), {}, 0
        coming = next(queue, None)
        for n in numbers:
            line, lanes = steps[n]["line"], steps[n]["lanes"]
            for late in (False, True):               # what a loop's end sets is out of scope at once
                while late and coming and coming[0][0] <= n:
                    made.append(coming)
                    live[coming[0][3]] = live.get(coming[0][3], 0) | coming[0][4]
                    coming = next(queue, None)
                for name, (lines, places) in scopes.items():
                    gone = live.get(name, 0) & lanes
                    is_out = (line in lines and not any(a <= line <= b for a, b, _ in places) if late else
                              line != before and any(line == a and alone for a, _, alone in places))
                    if gone and is_out:
                        made.append(([n, *warp, name, gone, [None] * gone.bit_count()], 0))
                        live[name] &= ~gone
            before = line
    return made


def _known(rows: Rows, steps: list[dict], memories: list[str], names: int) -> list[tuple[list, int]]:
    """The stored values, each with the replay's step from which it is known, and the line that made it."""
    own: dict[tuple[int, int], list[int]] = {}           # steps of each warp, in order
    for n, s in enumerate(steps):
        own.setdefault((s["block"], s["warp"]), []).append(n)
    reached, alive = dict.fromkeys(own, 0), dict.fromkeys(own, -1)     # in the copy no error stops a lane
    stored, found = rows.recorded.events, []
    values = np.frombuffer(stored["after"].tobytes(), np.float64)[::2]
    at = {name: i for i, name in enumerate(rows.STEP_COLUMNS)}
    for row in rows.steps():
        warp, memory = (row[at["block"]], row[at["warp"]]), row[at["array"]]
        count = reached.get(warp)
        if count is None or count == len(own[warp]):
            continue
        if memory is not None and memories[memory] == STORED:
            first, lanes = row[at["first_event"]], row[at["lanes"]] & alive[warp]
            here = slice(first, first + row[at["n_events"]])
            kept = [value for value, thread in zip(values[here].tolist(), stored["thread"][here].tolist())
                    if lanes >> thread % rows.lanes & 1]
            found.append(([own[warp][count], *warp, int(stored["offset"][first]) // 8, lanes, kept],
                          row[at["line"]]))
            continue
        row[at["lanes"]] &= alive[warp]
        reached[warp] = _next(row, at, steps, own[warp], count, memories)
        if reached[warp] and row[at["kind"]] != "line":
            alive[warp] &= ~(row[at["lanes"]] & ~steps[own[warp][reached[warp] - 1]]["lanes"])
        if reached[warp] is None:
            found += [([own[warp][count], *warp, name, (1 << rows.lanes) - 1, [None] * rows.lanes], 0)
                      for name in range(names)]
    return found


def _next(row: list, at: dict, steps: list[dict], own: list[int], count: int, memories: list) -> int | None:
    """How many of the warp's own steps are reached with a step of the copy; None where it went elsewhere. The
    stores join and part what a warp runs of a line, so only the other steps must be the same."""
    if row[at["kind"]] == "line":
        return count + _same(row, at, steps[own[count]], memories)
    while count < len(own) - 1 and steps[own[count]]["kind"] == "line":
        count += 1
    row = [*row]
    row[at["lanes"]] &= steps[own[count]]["lanes"]
    return count + 1 if _same(row, at, steps[own[count]], memories) else None


def _same(row: list, at: dict, step: dict, memories: list[str]) -> bool:
    array = row[at["array"]]
    return ((row[at["kind"]], row[at["line"]], row[at["lanes"]], None if array is None else memories[array])
            == (step["kind"], step["line"], step["lanes"], step["array"]))


def noted(text: str, kernel: str) -> tuple[list[str] | None, str]:
    """(the variables of a kernel and its helpers, the text with a store after each change); no line moves."""
    whole = outline(text)
    device = [f for f in whole.functions if f.name == kernel or "__device__" in f.qualifiers and not f.member]
    if not device:
        return None, text
    writer = _Writer(whole.tokens, kernel)
    for f in device:
        known = [v for v in variables(whole, f) if v.kind != "row"]
        for s in effects(text):
            if s.function == f.name:
                writer.add(s, [v.name for v in known if v.start <= s.tokens[-1].end < v.end])
    head = next(t.start for t in whole.tokens if t.kind != "directive")
    writer.inserts.append((head, f"__device__ double {STORED}[{max(len(writer.names), 1)}]; "))
    return writer.names, writer.written(text)


class _Writer:
    """Collects what is inserted where."""

    def __init__(self, tokens: list[Token], kernel: str):
        self.tokens, self.kernel = tokens, kernel
        self.place = {t.start: i for i, t in enumerate(tokens)}
        self.names: list[str] = []
        self.inserts: list[tuple[int, str]] = []         # (where, what)

    def stores(self, s: Effect, names: list[str]) -> list[str]:
        """An expression for each variable."""
        found = []
        for name in names:
            shown = name if s.function == self.kernel else f"{name} of {s.function}"
            if shown not in self.names:
                self.names.append(shown)
            found.append(f"{STORED}[{self.names.index(shown)}] = (double)({name})")
        return found

    def add(self, s: Effect, known: list[str]) -> None:
        """After a statement, within braces where it is alone; in a loop's head before its condition."""
        stores = self.stores(s, [n for n in known if n in s.assigns and self.is_set(s, n)])
        first, last = self.place[s.tokens[0].start], self.place[s.tokens[-1].start]
        if not stores or s.words[0] in ("return", "extern", "using") or "__shared__" in s.words:
            return
        end = next(t for t in self.tokens[first if s.is_condition else last:] if t.text == ";").end
        if s.words[0] == "for":
            is_endless = next(t for t in s.tokens if t.start >= end).text == ";"
            self.inserts.append((end, f" {', '.join(stores)}," + " true" * is_endless))
        elif not s.is_condition:
            alone = self.tokens[first - 1].text in (")", "else", "do")
            self.inserts.append((end, "".join(f" {store};" for store in stores) + " }" * alone))
            self.inserts += [(s.tokens[0].start, "{ ")] * alone

    def is_set(self, s: Effect, name: str) -> bool:
        """Not only declared."""
        words = s.words + ["", ""]
        return any(w == name and (words[i + 1] in CHANGES or words[i + 1:i + 3] == [">", ">="]
                                  or words[i - 1] in ("++", "--")) for i, w in enumerate(words[:-2]))

    def written(self, text: str) -> str:
        for at, piece in sorted(self.inserts, reverse=True):
            text = text[:at] + piece + text[at:]
        return text
