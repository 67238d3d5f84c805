"""Which lane touched which element, in which order, drawn as SVG.

A row is a request, the first on top. For global memory a box of eight small cells is a sector of 32 bytes,
the unit that moves: full boxes are what coalescing looks like. For shared memory a column is a bank; a
number in a cell is how many words the request wants of that bank, and so how many passes it takes."""
import html

from ..machine import REAL, fullest
from . import front
from .svg import Canvas

CELL, ROW, LEFT, TOP = 11, 22, 96, 34
MOST_SECTORS = 40
VERBS = ("load", "store", "load", "store", "atomic", "atomic")


class Picture:
    def __init__(self, memory, requests: list[dict], lines: list[int], warp: int, of: int):
        self.memory, self.requests, self.lines, self.warp, self.of = memory, requests, lines, warp, of

    @property
    def text(self) -> str:
        """The picture in words: what a screen reader reads."""
        if not self.requests:
            return f"block 0, warp {self.warp} does not touch {self.memory.name}"
        said = [f"{self.memory.name}, block 0, warp {self.warp}: the first {len(self.requests)} of "
                f"{self.of} requests"]
        for number, (request, line) in enumerate(zip(self.requests, self.lines), 1):
            said.append(f"{number}. line {line}, {VERBS[request['operation']]}: {self._elements(request)}; "
                        f"{self._cost(request)}")
        return "\n".join(said)

    def _index(self, offset: int) -> str:
        item = self.memory.itemsize or 4
        return str(offset // item)

    def _elements(self, request: dict) -> str:
        active = [(lane, o) for lane, o in enumerate(request["offset"]) if o >= 0]
        lanes, offsets = [a[0] for a in active], [a[1] for a in active]
        steps = {(b - a) // (n - m) for a, b, m, n in zip(offsets, offsets[1:], lanes, lanes[1:])}
        name, item = self.memory.name, self.memory.itemsize or 4
        whole = lanes == list(range(lanes[0], lanes[-1] + 1))
        who = (f"lane {lanes[0]}" if len(lanes) == 1 else f"lanes {lanes[0]}-{lanes[-1]}" if whole else
               f"{len(lanes)} lanes from {lanes[0]} to {lanes[-1]}")
        if len(lanes) > 1 and len(steps) == 1:
            (step,) = steps
            if step == 0:
                return f"{who} all at {name}[{offsets[0] // item}]"
            if step % item == 0:
                first, second, last = (f"[{offsets[n] // item}]" for n in (0, 1, -1))
                return f"{who} at {name}{first}, {second}, ... {last} (step {step // item})"
        shown = ", ".join(f"[{o // item}]" for o in offsets[:6])
        return f"{who} at {name}{shown}" + (", ..." if len(offsets) > 6 else "")

    def _sectors(self, request: dict) -> list[int]:
        size = request["size"]
        return sorted({s for o in request["offset"] if o >= 0
                       for s in range(o // 32, (o + size - 1) // 32 + 1)})

    def _cost(self, request: dict) -> str:
        if self.memory.space == "shared":
            worst = max(self._banks(request).values())
            return "one pass" if worst == 1 else f"{worst} words in one bank"
        count = len(self._sectors(request))
        return f"{count} sector{'s' * (count != 1)}"

    def _banks(self, request: dict) -> dict[int, int]:
        """{bank: words wanted of it at once}"""
        places = {lane: o + self.memory.offset for lane, o in enumerate(request["offset"]) if o >= 0}
        return fullest(REAL.bank_parts(places, request["size"], load=VERBS[request["operation"]] == "load"))

    def canvas(self) -> Canvas:
        drawn = Canvas(0, TOP + ROW * len(self.requests) + 8)
        for number, (request, line) in enumerate(zip(self.requests, self.lines)):
            label = f"{number + 1}. line {line}, {VERBS[request['operation']]}"
            drawn.text(2, TOP + ROW * number + 12, label, size=9)
        right = self._bank_cells(drawn) if self.memory.space == "shared" else self._sector_cells(drawn)
        drawn.width = right + 12
        return drawn

    def _sector_cells(self, drawn: Canvas) -> float:
        sectors = sorted({s for r in self.requests for s in self._sectors(r)})[:MOST_SECTORS]
        item, few = self.memory.itemsize or 4, len(sectors) <= 12
        width = 32 // min(max(item, 4), 32) * CELL if few else 32
        place, x = {}, LEFT
        for i, s in enumerate(sectors):
            x += 10 if i and s != sectors[i - 1] + 1 else 0
            place[s] = x
            if few or i % 4 == 0:
                drawn.text(x, TOP - 8, f"[{s * 32 // item}]", size=9)
            x += width + 3
        for number, request in enumerate(self.requests):
            y = TOP + ROW * number
            drawn.frames([(place[s], y) for s in self._sectors(request) if s in place], width, 16)
            self._lane_marks(drawn, request, place, width, y)
        return x

    def _lane_marks(self, drawn: Canvas, request: dict, place: dict[int, float], width: float, y: float):
        """The bytes that lanes ask for, inside the frames of their sectors."""
        seen: dict[int, list[int]] = {}
        for lane, offset in enumerate(request["offset"]):
            if offset >= 0 and offset // 32 in place:
                seen.setdefault(offset, []).append(lane)
        wide = width * min(request["size"], 32) / 32
        for offset, lanes in seen.items():
            one = len(lanes) == 1
            who, label = (f"lane {lanes[0]}", lanes[0]) if one else (f"{len(lanes)} lanes", f"x{len(lanes)}")
            drawn.rect(place[offset // 32] + width * (offset % 32) / 32, y, max(wide - 1, 1), 16,
                       fill=str(lanes[0] // 4), stroke=None, text=label if wide >= CELL else "", size=7,
                       about=f"{who}: {self.memory.name}[{self._index(offset)}]")

    def _bank_cells(self, drawn: Canvas) -> float:
        for bank in range(REAL.banks):
            drawn.text(LEFT + 16 * bank + 8, TOP - 8, bank, size=7, anchor="middle")
        for number, request in enumerate(self.requests):
            wanted = self._banks(request)
            for bank in range(REAL.banks):
                count = wanted.get(bank, 0)
                drawn.rect(LEFT + 16 * bank, TOP + ROW * number, 15, 16, text=count or "", size=8,
                           fill="empty" if not count else "2" if count == 1 else "warn",
                           about=f"bank {bank}: {count} word{'s' * (count != 1)}")
        return LEFT + 16 * REAL.banks

    def _repr_html_(self) -> str:
        if not self.requests:
            return f"<p>{html.escape(self.text)}</p>"
        caption = ("columns are the 32 banks, a number is how many words the request wants of that bank "
                   "at once" if self.memory.space == "shared" else
                   "a row is a request, a frame a sector of 32 bytes; four lanes share a colour")
        title = self.text.splitlines()[0]
        return front.Picture(self.canvas(), self.text, title, f"{title}: {caption}").html()

    def __repr__(self) -> str:
        return self.text
