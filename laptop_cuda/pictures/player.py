"""The player: a recorded launch (`replay`) that a person steps through, by pointer or keyboard.

    with cuda.profile() as report:
        mod.kernel[grid, block](x, out, n)
    report.launches[0].play()            # the first blocks; takes what `replay` takes
    except cuda.KernelError as error:
        error.play()                     # opens at the accesses that the error speaks of

Where nobody can move it, it is a still: of the first bank conflict, else of wasted bytes, else of an access."""
from collections import defaultdict

from ..machine import Machine, fullest
from . import front
from .svg import Canvas

KEPT = ("lane", "offset", "size", "value")       # of an event; its step has the rest
SCRIPTS = front.BROWSER / "trace.js", front.BROWSER / "player.js"
STILL_LINES = 3                                  # of the source, on both sides of the step's


def play(replay) -> None:
    """Displays the player of a replay: the widget for a person at the kernel, the still for every page."""
    trace = Trace(replay)
    front.show(trace.picture(trace.first),
               lambda: front.widget_class("PlayerWidget", *SCRIPTS)(data=trace.with_more(replay)),
               {"player": True})


class Trace:
    """A replay as the browser gets it, and the words and the still of one of its steps."""

    def __init__(self, replay):
        self.data = data = packed(replay.to_dict())
        data |= {"registers": {"names": None, "rows": []}, "timelines": {}}     # until `with_more`
        self.steps = [dict(zip(data["steps"]["columns"], row)) for row in data["steps"]["rows"]]
        self.machine = Machine(**data["machine"])        # banks and sectors need not be those of a GPU
        accesses = data["error"]["accesses"] if data["error"] else []
        self.first = data["first"] = max((access["step"] for access in accesses), default=replay.first)

    def events(self, step: dict) -> list[list]:
        return self.data["events"][step["first_event"]:step["first_event"] + step["n_events"]]

    # Words; player.js says the same, and a test holds the two together.
    def words(self, number: int) -> str:
        if not self.steps:
            return "The launch has no recorded step."
        s = self.steps[number]
        file = self.data["files"][s["file"]]
        name = "" if file == self.data["source"] else f" of {file}"
        at = f"line {s['line']}{name}" if s["line"] else "a line that is not known"
        return (f"Step {number + 1} of {len(self.steps)}: block {s['block']}, interval {s['interval']}, "
                f"warp {s['warp']}, {at}. {self._what(s)}")

    def _what(self, s: dict) -> str:
        who = lanes_in_words(s["lanes"], self.machine.warp_size)
        if s["kind"] == "barrier":
            return f"{who} at a barrier."
        if s["kind"] == "exchange":
            return f"{who} in a shuffle, a vote or a warp synchronisation."
        if s["array"] is None:
            return f"{who} active."
        return f"{who}: {s['kind']} {self._where(s)}, {self._cost(s)}."

    def _where(self, s: dict) -> str:
        array = self.data["arrays"][s["array"]]
        item = array["itemsize"] or 1
        places = [e[1] // item for e in self.events(s)] or [0]
        ends = [f"{array['name']}[{i}]" for i in (places[0], places[-1])]
        return ends[0] if len(set(places)) == 1 else f"{ends[0]} to {ends[1]}"

    def _cost(self, s: dict) -> str:
        asked = sum(e[2] for e in self.events(s))
        shared = self.data["arrays"][s["array"]]["space"] == "shared"
        if not s["sectors"] + s["wavefronts"]:
            uncounted = shared and s["kind"] == "atomic"
            return f"{asked} bytes" + ("" if uncounted else ", the access at which the launch was stopped")
        if shared:
            return (f"{asked} bytes in {counted(s['wavefronts'], 'pass', 'passes')}, "
                    f"{s['excess']} lost to conflicts")
        return (f"{asked} bytes in {counted(s['sectors'], 'sector', 'sectors')}, "
                f"{self.machine.sector_bytes * s['sectors']} bytes moved")

    def with_more(self, replay) -> dict:
        """The data with the variables of the lanes, and timelines: each takes another run."""
        found = replay.registers
        rows = [[*row[:-1], [None if value is None else f"{value:.6g}" for value in row[-1]]] for row in found["rows"]]
        self.data |= {"registers": {"names": found["names"], "rows": rows}, "timelines": replay.timelines}
        return self.data

    def variables(self, number: int, lane: int) -> str:
        """What the variables of a lane hold at a step."""
        names, rows = self.data["registers"]["names"], self.data["registers"]["rows"]
        if names is None:
            return "The names of its variables are not known here."
        step, held = self.steps[number], {}
        for first, block, warp, name, lanes, values in rows:
            if first <= number and (block, warp) == (step["block"], step["warp"]) and lanes >> lane & 1:
                held[name] = values[(lanes & (1 << lane) - 1).bit_count()]
        return ", ".join(f"{names[n]} = {held[n]}" for n in sorted(held) if held[n] is not None) or "None is known here."

    def picture(self, number: int) -> front.Picture:
        canvas, data = Canvas(700, 250), self.data
        if self.steps:
            step = self.steps[number]
            draw_lanes(canvas, step, self.machine.warp_size, 36)
            used = self._draw_memory(canvas, step, 84)
            canvas.height = self._draw_source(canvas, step, used + 22)
        at = f"step {number + 1} of {len(self.steps)}" if self.steps else "no recorded step"
        canvas.text(20, 20, f"{data['kernel']}: {at}", bold=True)
        error = f" {data['error']['message']}" if data["error"] else ""
        cut = f" Recorded: {data['cut']}." if data["cut"] else ""
        words = " ".join(f"{self.words(number)}{error}{cut}".split())
        return front.Picture(canvas, words, f"A launch of {data['kernel']}, replayed",
                             "One step of a warp: its lanes, the memory that they touch, the source line.")

    def _draw_memory(self, canvas: Canvas, step: dict, top: float) -> float:
        """The banks or the sectors of one request; returns where the drawing ends."""
        if step["array"] is None:
            return top
        array = self.data["arrays"][step["array"]]
        canvas.text(20, top + 12, f"{step['kind']} {self._where(step)}: {self._cost(step)}", size=12)
        if array["space"] == "shared":
            words = fullest(bank_parts(self.events(step), array, self.machine, step["kind"]))
            self._draw_banks(canvas, words, top + 20, waits=step["excess"] > 0)
        else:
            self._draw_sectors(canvas, sectors(self.events(step), array, self.machine), top + 20)
        return top + 56

    def _draw_banks(self, canvas: Canvas, words: dict[int, int], top: float, waits: bool) -> None:
        width = 640 / self.machine.banks
        for bank in range(self.machine.banks):
            count = words.get(bank, 0)
            canvas.rect(44 + width * bank, top, width, 18, text=count or "",
                        fill="empty" if not count else "warn" if count > 1 and waits else "2",
                        about=f"bank {bank}: {counted(count, 'word', 'words')}")
        said = f"words per bank that are wanted at once; the fullest has {max(words.values())}"
        canvas.text(44, top + 32, said, size=11, fill="faint")

    def _draw_sectors(self, canvas: Canvas, asked: dict[int, set], top: float) -> None:
        size = self.machine.sector_bytes
        for place, (sector, bytes_) in enumerate(list(asked.items())[:32]):
            canvas.rect(44 + 20 * place, top, 18, 18, shade=len(bytes_) / size, fill="accent",
                        text=len(bytes_), about=f"sector {sector}: {len(bytes_)} of {size} bytes")
        canvas.text(44, top + 32, f"a box per sector: bytes of its {size} that were asked for", size=11,
                    fill="faint")

    def _draw_source(self, canvas: Canvas, step: dict, top: float) -> float:
        lines, here = self.data["texts"][self.data["files"][step["file"]]], step["line"]
        shown = range(max(here - STILL_LINES, 1), min(here + STILL_LINES, len(lines)) + 1 if here else 0)
        for n, line in enumerate(shown):
            y = top + 18 * n
            if line == here:
                canvas.rect(20, y - 13, 660, 18, fill="accent", stroke=None, shade=0.5)
            canvas.text(40, y, line, anchor="end", size=11, fill="faint")
            canvas.text(48, y, lines[line - 1][:92].replace(" ", "\u00a0"), size=11.5, code=True)
        return top + 18 * len(shown)


def packed(data: dict) -> dict:
    """`Replay.to_dict()` without what the player does not draw."""
    columns = data["events"]["columns"]
    places, step, lane = [columns.index(name) for name in KEPT], columns.index("step"), columns.index("lane")
    rows, error = data["events"]["rows"], data["error"]
    source, at = data["source"], data["steps"]["columns"].index("file")
    files = list({source["name"]: 0} | dict.fromkeys(row[at] for row in data["steps"]["rows"]))
    steps = [[*row[:at], files.index(row[at]), *row[at + 1:]] for row in data["steps"]["rows"]]
    for n, _ in error.get("at", []) if error and "line" in error else ():     # of a block of lines, that which is meant
        if steps[n][at - 1] == "line":
            steps[n][at + 1] = error["line"]
    return {name: data[name] for name in ("kernel", "grid", "block", "blocks", "cut", "machine",
                                               "arrays")} | {
        "steps": {"columns": data["steps"]["columns"], "rows": steps}, "files": files,
        "intervals": data["intervals"], "events": [[_short(row[p]) for p in places] for row in rows],
        "error": error and {"kind": error["kind"], "message": error["message"],
                            "accesses": [{"step": n, "lane": of} for n, of in [
                                *((rows[e][step], rows[e][lane]) for e in error["events"]),
                                *error.get("at", [])]]},
        "source": source["name"],
        "texts": {name: source["files"].get(name, "").splitlines() for name in files}}


def _short(value):
    """Six digits of a number are enough to recognise it, and a third of the bytes."""
    if isinstance(value, list):
        return [_short(v) for v in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def lanes_in_words(mask: int, warp_size: int) -> str:
    active = [lane for lane in range(warp_size) if mask >> lane & 1]
    if not active:
        return "No lane"
    if len(active) == 1:
        return f"Lane {active[0]}"
    if active[-1] - active[0] + 1 == len(active):
        return f"Lanes {active[0]} to {active[-1]}"
    return f"{len(active)} of {warp_size} lanes"


def counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def sectors(events: list[list], array: dict, machine: Machine) -> dict[int, set]:
    """{sector of the array: its bytes that lanes asked for}"""
    found = defaultdict(set)
    for _, offset, size, _ in events:
        for byte in range(array["start"] + offset, array["start"] + offset + size):
            found[byte // machine.sector_bytes].add(byte)
    return dict(sorted(found.items()))


def bank_parts(events: list[list], array: dict, machine: Machine, kind: str) -> list[dict[int, set]]:
    """{bank: words} for each part of the warp that is served together."""
    places = {lane: array["offset"] + offset for lane, offset, _, _ in events}
    return machine.bank_parts(places, events[0][2], kind == "load")


def draw_lanes(canvas: Canvas, step: dict, warp_size: int, top: float) -> None:
    canvas.text(40, top + 14, f"w{step['warp']}", anchor="end", size=11, fill="faint")
    for lane in range(warp_size):
        active = step["lanes"] >> lane & 1
        canvas.rect(44 + 20 * lane, top, 20, 20, fill="0" if active else "empty", text=lane,
                    about=f"lane {lane}: {'active' if active else 'masked'}")
    canvas.text(44, top + 34, "blue: active lanes; empty: masked", size=11, fill="faint")
