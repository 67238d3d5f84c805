"""The local variables of a replayed launch, by name: what a lane's registers hold.

The hooks of the compiler see accesses to memory only. So a copy of the kernel is built that also stores each
scalar variable after each statement that assigns it, on the same lines, and the launch is recorded once more
with it. Where that run does not go step by step as the replay, nothing is said from there on; the same holds
for sources of several files and for whole arrays, vectors and structures."""
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
UNKNOWN = {"names": None, "rows": []}


def registers(result, blocks: list[int], steps: list[dict], events: int) -> dict:
    """{"names": of variables (None: not known), "rows": [[first step at which it holds, block, warp, name,
    lanes, values]]}. `steps` are those of a replay of these blocks, and `events` how many it has."""
    base, arguments = split_instance(result.kernel)
    names, text = noted(next(iter(result.files.values())), base.split("::")[-1])
    if names is None or len(result.files) > 1:
        return UNKNOWN
    if not names:
        return {"names": [], "rows": []}
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
    return {"names": names, "rows": _known(rows, steps, [m.name for m in recorded.memories])}


def _known(rows: Rows, steps: list[dict], memories: list[str]) -> list[list]:
    """The stored values, each with the replay's step from which it is known."""
    own: dict[tuple[int, int], list[int]] = {}           # steps of each warp, in order
    for n, s in enumerate(steps):
        own.setdefault((s["block"], s["warp"]), []).append(n)
    reached = dict.fromkeys(own, 0)
    stored, found = rows.recorded.events, []
    values = np.frombuffer(stored["after"].tobytes(), np.float64)[::2]
    at = {name: i for i, name in enumerate(rows.STEP_COLUMNS)}
    for row in rows.steps():
        warp, memory = (row[at["block"]], row[at["warp"]]), row[at["array"]]
        count = reached.get(warp)
        if count is None or count == len(own[warp]):
            continue
        if memory is not None and memories[memory] == STORED:
            first, last = row[at["first_event"]], row[at["first_event"]] + row[at["n_events"]]
            found.append([own[warp][count], *warp, int(stored["offset"][first]) // 8, row[at["lanes"]],
                          values[first:last].tolist()])
        else:
            reached[warp] = _next(row, at, steps, own[warp], count, memories)
    return found


def _next(row: list, at: dict, steps: list[dict], own: list[int], count: int, memories: list) -> int | None:
    """How many of the warp's own steps are reached with a step of the copy; None where it went elsewhere. The
    stores join and part what a warp runs of a line, so only the other steps must be the same."""
    if row[at["kind"]] == "line":
        return count + _same(row, at, steps[own[count]], memories)
    while count < len(own) - 1 and steps[own[count]]["kind"] == "line":
        count += 1
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
