"""Which lane touched which element, in which order, drawn as SVG.

A row is a request, the first on top. For global memory a box of eight small cells is a sector of 32 bytes,
the unit that moves: full boxes are what coalescing looks like. For shared memory a column is a bank; a
number in a cell is how many words the request wants of that bank, and so how many passes it takes.
"""
import html

CELL, ROW, LEFT, TOP = 11, 22, 96, 34
MOST_SECTORS = 40
COLOURS = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#bb5566", "#888888")
VERBS = ("load", "store", "load", "store", "atomic", "atomic")


class Picture:
    def __init__(self, memory, requests: list[dict], lines: list[int], warp: int, of: int):
        self.memory, self.requests, self.lines, self.warp, self.of = memory, requests, lines, warp, of

    @property
    def text(self) -> str:
        """The picture in words: what a screen reader reads."""
        if not self.requests:
            return f"block 0, warp {self.warp} does not touch {self.memory.name}"
        said = [
            f"{self.memory.name}, block 0, warp {self.warp}: the first {len(self.requests)} of {self.of} "
            f"requests"
        ]
        for number, (request, line) in enumerate(zip(self.requests, self.lines), 1):
            said.append(
                f"{number}. line {line}, {VERBS[request['operation']]}: {self._elements(request)}; "
                f"{self._cost(request)}"
            )
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
        return sorted(
            {s for o in request["offset"] if o >= 0 for s in range(o // 32, (o + size - 1) // 32 + 1)}
        )

    def _cost(self, request: dict) -> str:
        if self.memory.space == "shared":
            worst = max(self._banks(request).values())
            return "one pass" if worst == 1 else f"{worst} words in one bank"
        count = len(self._sectors(request))
        return f"{count} sector{'s' * (count != 1)}"

    def _banks(self, request: dict) -> dict[int, int]:
        """{bank: distinct words wanted of it}, of the busiest part of the warp (halves for 8 bytes,
        quarters for 16)."""
        part = 32 if request["size"] <= 4 else 16 if request["size"] <= 8 else 8
        worst: dict[int, int] = {}
        for first in range(0, 32, part):
            words = {
                w
                for o in request["offset"][first : first + part]
                if o >= 0
                for w in range(
                    (o + self.memory.offset) // 4, (o + self.memory.offset + request["size"] - 1) // 4 + 1
                )
            }
            for bank in {w % 32 for w in words}:
                worst[bank] = max(worst.get(bank, 0), sum(w % 32 == bank for w in words))
        return worst

    # ---- drawing
    def _svg(self) -> str:
        body = self._bank_cells() if self.memory.space == "shared" else self._sector_cells()
        width = max((x for x, _ in self._extent), default=0) + LEFT + 12
        height = TOP + ROW * len(self.requests) + 8
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'style="max-width:100%" font-family="sans-serif" font-size="9" fill="currentColor" role="img" '
            f'aria-label="{html.escape(self.text, quote=True)}">{body}</svg>'
        )

    def _row_label(self, number: int, line: int, request: dict) -> str:
        y = TOP + ROW * number + 12
        return f'<text x="2" y="{y}">{number + 1}. line {line}, {VERBS[request["operation"]]}</text>'

    def _sector_cells(self) -> str:
        # over the guide: one drawing, its pieces placed in the order in which they are seen
        sectors = sorted({s for r in self.requests for s in self._sectors(r)})[:MOST_SECTORS]
        place, x, parts = {}, LEFT, []
        item = min(max(self.memory.itemsize or 4, 4), 32)
        cells = 32 // item
        width = cells * CELL if len(sectors) <= 12 else 32
        for i, s in enumerate(sectors):
            if i and s != sectors[i - 1] + 1:
                x += 10
            place[s] = x
            if len(sectors) <= 12 or i % 4 == 0:
                parts.append(f'<text x="{x}" y="{TOP - 8}">[{s * 32 // (self.memory.itemsize or 4)}]</text>')
            x += width + 3
        self._extent = [(x - LEFT, 0)]
        for number, (request, line) in enumerate(zip(self.requests, self.lines)):
            y = TOP + ROW * number
            parts.append(self._row_label(number, line, request))
            for s in self._sectors(request):
                if s in place:
                    parts.append(
                        f'<rect x="{place[s]}" y="{y}" width="{width}" height="16" fill="none" '
                        f'stroke="currentColor" '
                        'stroke-opacity="0.5"/>'
                    )
            seen: dict[tuple, list[int]] = {}
            for lane, offset in enumerate(request["offset"]):
                if offset >= 0:
                    seen.setdefault((offset // 32, offset % 32), []).append(lane)
            for (s, byte), lanes in seen.items():
                if s not in place:
                    continue
                wide = width * min(request["size"], 32) / 32
                left = place[s] + width * byte / 32
                who = f"lane {lanes[0]}" if len(lanes) == 1 else f"{len(lanes)} lanes"
                label = str(lanes[0]) if len(lanes) == 1 else f"x{len(lanes)}"
                parts.append(f'<rect x="{left:g}" y="{y}" width="{max(wide - 1, 1):g}" height="16" '
                             f'fill="{COLOURS[lanes[0] // 4]}" fill-opacity="0.75">'
                             f'<title>{who}: {self.memory.name}[{self._index(s * 32 + byte)}]</title></rect>')
                if wide >= CELL:
                    parts.append(f'<text x="{left + wide / 2 - 0.5:g}" y="{y + 11}" font-size="7" '
                                 f'text-anchor="middle">{label}</text>')
        return "".join(parts)

    def _bank_cells(self) -> str:
        parts = [
            f'<text x="{LEFT + 16 * b + 8}" y="{TOP - 8}" font-size="7" text-anchor="middle">{b}</text>'
            for b in range(32)
        ]
        self._extent = [(32 * 16, 0)]
        for number, (request, line) in enumerate(zip(self.requests, self.lines)):
            y = TOP + ROW * number
            parts.append(self._row_label(number, line, request))
            banks = self._banks(request)
            for b in range(32):
                wanted = banks.get(b, 0)
                fill = "none" if not wanted else COLOURS[2] if wanted == 1 else COLOURS[4]
                parts.append(
                    f'<rect x="{LEFT + 16 * b}" y="{y}" width="15" height="16" fill="{fill}" '
                    f'fill-opacity="0.75" '
                    'stroke="currentColor" stroke-opacity="0.3"/>'
                )
                if wanted:
                    parts.append(f'<text x="{LEFT + 16 * b + 7.5}" y="{y + 11}" font-size="8" '
                                 f'text-anchor="middle">{wanted}</text>')
        return "".join(parts)

    def _repr_html_(self) -> str:
        caption = (
            "columns are the 32 banks, a number is how many words the request wants of that bank"
            if self.memory.space == "shared"
            else "a row is a request, a frame a sector of 32 bytes; four lanes share a colour, from lane 0 "
                 "in "
            "blue to lane 31 in grey"
        )
        if not self.requests:
            return f"<p>{html.escape(self.text)}</p>"
        title = html.escape(self.text.splitlines()[0])
        return f"<figure>{self._svg()}<figcaption>{title}: {caption}</figcaption></figure>"

    def __repr__(self) -> str:
        return self.text
