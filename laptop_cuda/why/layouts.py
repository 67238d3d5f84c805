"""Layouts of a shared array: what each would cost the recorded accesses of it, and which lanes meet in a bank."""
import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from ..machine import Machine
from ..replay.recording import Recording
from ..report import SHARED_LOAD, SHARED_STORE

MOST_PADDING = 128               # bytes per row
PITCHES = tuple(2 ** n for n in range(3, 11))    # elements, where the declaration has no rows
# bytes per lane; whether a load; (lane, byte of the array), ...
Request = tuple[int, bool, tuple[tuple[int, int], ...]]


@dataclass(frozen=True)
class Layout:
    """Where element number n of an array is kept: rows of `pitch`, longer by `pad`, or exchanged by `swizzle`."""
    pitch: int
    pad: int = 0
    swizzle: tuple[int, int] | None = None       # (rows that share an exchange, elements that stay together)
    rows: bool = False           # whether the declaration has them

    def place(self, n: int) -> int:
        row, column = divmod(n, self.pitch)
        if self.swizzle:
            share, step = self.swizzle
            column ^= row // share * step % self.pitch
        return row * (self.pitch + self.pad) + column

    def words(self, name: str) -> str:
        """How the array is declared, or indexed, with it."""
        if self.pad and self.rows:
            return f"{name}[...][{self.pitch + self.pad}]"
        return name + (self.index("row", "column") if self.rows else self.index("i"))

    def index(self, *at: str) -> str:
        """The brackets of an element: of its row and column, or of its number."""
        row, *column = (i if re.fullmatch(r"\w+", i) else f"({i})" for i in at)
        if self.pad:
            return f"[{row} + {row} / {self.pitch}{f' * {self.pad}' * (self.pad > 1)}]"
        share, step = self.swizzle
        turn = f" / {share}" * (share > 1) + f" * {step}" * (step > 1) + f" % {self.pitch}]"
        return f"[{at[0]}][{column[0]} ^ {row}{turn}" if column else f"[{row} ^ {row} / {self.pitch}{turn}"


def requests(recorded: Recording, name: str, warp: int) -> list[tuple[int, Request]]:
    """(program counter, request) of the recorded loads and stores of a shared array."""
    wanted = [i for i, m in enumerate(recorded.memories) if m.name == name and m.space == "shared"]
    events = recorded.events
    asked = np.isin(events["operation"], (SHARED_LOAD, SHARED_STORE))
    events = events[asked & np.isin(events["memory"], wanted)]
    found: dict[int, tuple[int, int, bool, list]] = {}
    columns = ["step", "pc", "size", "operation", "thread", "offset"]
    for step, pc, size, operation, thread, offset in events[columns].tolist():
        found.setdefault(step, (pc, size, operation == SHARED_LOAD, []))[3].append((thread % warp, offset))
    return [(pc, (size, load, tuple(lanes))) for pc, size, load, lanes in found.values()]


def lost(machine: Machine, memory, request: Request, layout: Layout | None = None, item=1) -> int | None:
    """Lost passes of a request; None if the layout takes a wide access apart or off its alignment."""
    size, load, lanes = request
    places = {}
    for lane, offset in lanes:
        if layout:
            number, rest = divmod(offset, item)
            last = (offset + size - 1) // item
            at = layout.place(number) * item + rest
            if at % size or layout.place(last) - layout.place(number) != last - number:
                return None
            offset = at
        places[lane] = memory.offset + offset
    parts = machine.bank_parts(places, size, load)
    return sum(max(map(len, part.values())) - 1 for part in parts)


def _total(machine: Machine, memory, counted: Counter, layout: Layout, item: int, most: int) -> int | None:
    """Lost passes with a layout; None if it is not possible, or where it loses more than `most`."""
    total = 0
    for request, times in counted.items():
        left = lost(machine, memory, request, layout, item)
        if left is None or (total := total + left * times) > most:
            return None
    return total


def best(machine: Machine, memory, counted: Counter, item: int, rows: int, said: bool) -> tuple[int, list]:
    """(lost passes now, [(layout, lost passes)]): the least padding and the exchange that lose the fewest, where
    that is fewer than now. `rows` is how many elements a row has, 0 if that is not known; `said`: whether the
    declaration has rows."""
    widest = max(1, max(size for size, _, _ in counted) // item)
    pitches = [rows] if rows else [p for p in PITCHES if p * item < memory.bytes]
    now = sum(lost(machine, memory, request) * times for request, times in counted.items())
    pads = [Layout(p, pad, rows=said) for pad in range(widest, MOST_PADDING // item + 1, widest)
            for p in pitches]
    swaps = [Layout(p, swizzle=(share, widest), rows=said) for share in (1, 2, 4, 8) for p in pitches
             if p & (p - 1) == 0 and p > widest]
    found = []
    for layouts in (pads, swaps):
        chosen, most = [], now - 1
        for layout in layouts:
            left = _total(machine, memory, counted, layout, item, most) if most >= 0 else None
            if left is not None:
                chosen, most = [(layout, left)], left - 1
        found += chosen
    return now, found


def meeting(result, memory, request: Request, item: int) -> dict[int, list]:
    """{bank: [(element, lanes that want it)]} in the part of a request that takes most passes."""
    size, load, lanes = request
    machine, wanted = result.machine, {}
    parts = machine.bank_parts({lane: memory.offset + offset for lane, offset in lanes}, size, load)
    part = max(parts, key=lambda p: max(map(len, p.values())))
    for bank, words in part.items():
        for word in sorted(words):
            low = word * machine.bank_bytes - memory.offset
            who = [lane for lane, o in lanes if o < low + machine.bank_bytes and o + size > low]
            wanted.setdefault(bank, []).append((low // item, who))
    return wanted
