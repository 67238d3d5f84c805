"""Who waits for whom in one block: issues, landings, arrivals and waits of its warps, in logical steps.

    timeline = report.launches[0].timeline()         # of block 0; `error.timeline()` of a launch that failed
    timeline.rows, timeline.depth, timeline.waits    # print(timeline) is a table, timeline.svg() a picture

A step is no time. What a warp does is one step after what it did before; a wait ends one step after the last
arrival or landing that it waited for; a copy lands one step after its issue, a late one when all else waits."""
from bisect import bisect_left
from collections import Counter, defaultdict
from html import escape
from urllib.parse import quote

from ..arguments.inputs import check_kept
from ..errors.facts import spans
from ..launch import ORDERS, PROFILE, SANITIZE
from ..pictures.svg import Canvas
from ..replay import chosen_blocks
from ..replay.recording import record
from ..report.tables import text_table

ENGINE = "copy engine"
WHAT = ("copy issued", "copy landed", "arrive", "wait begins", "wait ends", "product issued", "products waited",
        "copies waited")
COLUMNS = ("step", "warp", "what", "barrier", "phase", "bytes", "lanes", "by", "line")
LOOKS = dict(zip(WHAT, ("accent", None, "2", None, None, "0", "4", "5")))
TIMELINE = 8                         # LAPTOP_TIMELINE
LEFT, WIDE, HIGH, FOR_EVER = 96, 590, 24, 1 << 30
EACH = 60                            # steps of a picture


def timeline(result, error=None, block=0, order: str = "") -> "Timeline":
    """Runs the launch once more. `order`: "late" or "early", say; else that in which it ran."""
    if order not in ("", *ORDERS):
        raise ValueError(f"order is one of {', '.join(ORDERS)}, got {order!r}")
    check_kept(result)
    mode, blocks = TIMELINE | (SANITIZE if error else PROFILE), chosen_blocks(result.grid, [block])
    no_accesses = (0, 0, 0)
    return Timeline(result, record(result, mode, blocks=blocks, events=32, watch=no_accesses, order=order))


class Timeline:
    def __init__(self, result, recorded):
        self.kernel, self._memories = result.kernel, recorded.memories
        places = result.places({int(pc) for pc in recorded.moments["pc"]})
        self.rows = [row | {"file": places[pc].file, "line": places[pc].line}
                     for pc, row in self._stepped(recorded.moments, result.machine.warp_size)]
        self.last = max((row["step"] for row in self.rows), default=0)
        self.stages = self._stages()
        free, self._lane = [], {}
        for stage, (begin, *ends) in self.stages.items():        # each in the first free lane
            self._lane[stage] = next((n for n, until in enumerate(free) if until <= begin), len(free))
            free[self._lane[stage]:self._lane[stage] + 1] = [max(ends)]
        warps = sorted({row["warp"] for row in self.rows} - {ENGINE})
        self._y = {who: 20 + HIGH * n for n, who in enumerate([ENGINE, *range(1 - len(free), 0), *warps])}

    def _name(self, barrier: int, memory: int, offset: int) -> str:
        if memory < 0:
            return f"barrier {barrier - 1}" if barrier else ""
        m = self._memories[memory]
        place = f" at byte {offset}" if offset % m.itemsize else f"[{offset // m.itemsize}]"
        return m.name + place * (m.bytes > 8)

    def _stepped(self, moments, warp_size: int) -> list[tuple[int, dict]]:
        """(pc, row), in the order of steps. What lanes of a warp do alike is one row."""
        clock, rows, issued, over, waiting, idle = Counter(), {}, {}, {}, {}, 0
        for n, moment in enumerate(moments.tolist()):
            name, barrier, offset, memory, code, thread, pc, phase, size = moment
            what, turn = WHAT[code], (barrier, phase)
            warp = ENGINE if what == "copy landed" else thread // warp_size
            step, by = clock[thread] + 1, None
            if what == "copy issued":
                issued[name] = n, step
            elif what == "wait begins":
                if waiting.get(thread) == turn:          # it asks again
                    continue
                waiting[thread] = turn
            elif what == "copy landed":
                at, first = issued.get(name, (-2, 0))    # or another block of the cluster has
                step = 1 + (first if n == at + 1 else idle if barrier else clock[thread])
            elif what == "wait ends":
                last, of = over.get(turn, (0, None))
                waiting.pop(thread, None)
                step, by = max(step, last + 1), of if last >= step and of != warp else None
            row = rows.setdefault((warp, what, turn, pc, name), (pc, {
                "step": 0, "warp": warp, "what": what, "barrier": self._name(barrier, memory, offset),
                "phase": phase, "bytes": 0, "lanes": 0, "by": None}))[1]
            row["step"] = step = max(row["step"], step)
            row["bytes"], row["lanes"], row["by"] = row["bytes"] + size, row["lanes"] + 1, row["by"] or by
            if warp != ENGINE:
                clock[thread] = step
                idle = max(idle, step)
            if what in ("arrive", "copy landed") or what == "wait begins" and memory < 0:
                over[turn] = max(over.get(turn, (0, 0)), (step, warp), key=lambda found: found[0])
        return sorted(rows.values(), key=lambda made: made[1]["step"])

    def _stages(self) -> dict[tuple[str, int], list[int]]:
        """{phase of an mbarrier: when its first copy is issued, its last has landed, and its readers have given it
        back: arrived elsewhere, begun to wait for another stage, or let it be filled again}"""
        found, reading = {}, {}
        for row in self.rows:
            what, warp, step, turn = row["what"], row["warp"], row["step"], (row["barrier"], row["phase"])
            is_stage = any(row["barrier"] == name for name, _ in found)
            if what == "copy issued" and row["barrier"]:
                found.setdefault(turn, [step, FOR_EVER, step])
                for reader in [w for w, before in reading.items() if before == (turn[0], turn[1] - 1)]:
                    found[reading.pop(reader)][2] = step
            elif turn in found and what == "copy landed":
                found[turn][1] = step
            elif turn in found and what == "wait ends":
                reading[warp] = turn
            elif warp in reading and what == ("wait begins" if is_stage else "arrive"):
                stage = found[reading.pop(warp)]
                stage[2] = max(stage[2], step)
        for turn in reading.values():
            found[turn][2] = self.last
        return found

    @property
    def depth(self) -> int:
        """How many stages are under way or in use at once, at most."""
        stages = self.stages.values()
        return max((sum(a <= step < max(ends) for a, *ends in stages) for step, *_ in stages), default=0)

    def _waits(self) -> list[tuple[dict, dict]]:
        """(begins, ends) of each; a wait that never ends has its own beginning for an end."""
        def of(row):
            return row["warp"], row["barrier"], row["phase"]
        ends = {of(row): row for row in self.rows if row["what"] == "wait ends"}
        return [(row, ends.get(of(row), row)) for row in self.rows if row["what"] == "wait begins"]

    @property
    def waits(self) -> dict[tuple, int]:
        """{(who waits, for whom): steps}, of waits that had to; for None: those that never end."""
        found = Counter()
        for begins, ends in self._waits():
            if ends is begins or ends["by"] is not None:
                until = self.last + 2 if ends is begins else ends["step"]
                found[begins["warp"], ends["by"]] += until - begins["step"] - 1
        return dict(found)

    def words(self) -> str:
        alike = {}
        for (warp, by), n in self.waits.items():
            alike.setdefault((n, by), []).append(warp)
        whom = {ENGINE: f"the {ENGINE}", None: "what never comes"}
        said = [f"warp {spans(warps)}: {n} steps for {whom.get(by, f'warp {by}')}"
                for (n, by), warps in alike.items()]
        return (f"{self.kernel}, {self.last} steps. Waits: {'; '.join(said) or 'none'}. Stages under way or in use at "
                f"once: at most {self.depth}.")

    def beside(self, steps: list[dict], block: int) -> dict | None:
        """For the player of a replay, if anything here is asynchronous: the pictures, and for each row, found again by warp
        and line, the step of the replay, its own, that in which it ends, where its lane is, and words."""
        if not {"copy issued", "copy landed", "product issued"} & {row["what"] for row in self.rows}:
            return None
        places, at, found = defaultdict(list), Counter(), []
        until = {id(begins): ends["step"] if ends is not begins else self.last for begins, ends in self._waits()}
        for n, step in enumerate(steps):
            if step["block"] == block:
                places[step["warp"], step["file"], step["line"]].append(n)
        for row in self.rows:
            warp, step, what = row["warp"], row["step"], row["what"]
            mine, last = places[warp, row["file"], row["line"]], until.get(id(row), step)
            if what != "wait ends" and (n := bisect_left(mine, at[warp])) < len(mine):
                at[warp] = mine[n]
                said = (f"step {step}: " if last == step else f"steps {step} to {last}: ") + ("waits" if id(row) in until else what)
                of = f", {row['barrier']}, phase {row['phase']}" if row["barrier"] else ""
                found.append((mine[n], step, last, self._y[warp], said + of))
        whole = max(self.last + 1 - EACH, 0)             # the last picture has as many steps as the others
        pages = [self.svg(min(first, whole), EACH, alone=False) for first in range(0, self.last + 1, EACH)]
        return {"pages": pages, "at": sorted(found), "last": self.last, "each": EACH, "left": LEFT, "wide": WIDE, "high": HIGH}

    def svg(self, first: int = 0, steps: int = EACH, alone: bool = True) -> str:
        """Some of its steps: a lane for each stage that is under way or in use, and for each warp."""
        last, lane, y = min(first + steps, self.last + 1), self._lane, self._y
        canvas, unit = Canvas(700, 56 + HIGH * len(y)), WIDE / max(last - first, 1)

        def x(step):
            return LEFT + unit * (min(max(step, first), last) - first)

        def bar(top, begin, end, fill, about):
            if x(begin) < x(end):
                canvas.rect(x(begin), top + 3, x(end) - x(begin), HIGH - 6, fill=fill, about=about)
        for who in (who for who in y if who == ENGINE or who >= 0):
            canvas.text(LEFT - 6, y[who] + 16, who if who == ENGINE else f"warp {who}", anchor="end", size=11)
        for stage, (begin, landed, end) in self.stages.items():
            name, top = "{} {}".format(*stage), 20 + HIGH * lane[stage]
            bar(top, landed, end, "empty", f"{name}, in use")
            bar(top, begin, landed, "accent", f"{name}, copies under way")
            if first <= begin and x(max(landed, end)) - x(begin) > 50:
                canvas.text(x(begin) + 4, top + 16, name, size=10)
        for row, end in self._waits():
            until, fill = (FOR_EVER, "warn") if end is row else (end["step"], "soft")
            bar(y[row["warp"]], row["step"], until, fill, f"waits for {row['barrier']}, phase {row['phase']}")
            if end["by"] is not None and first < until < last:
                top = 20 + HIGH * lane[row["barrier"], row["phase"]] if end["by"] == ENGINE else y[end["by"]]
                canvas.arrow(x(until) - unit / 2, top + 12, x(until), y[row["warp"]] + 12, stroke="faint", head=5)
        for row in self.rows:
            if fill := LOOKS[row["what"]]:
                about = f"{row['what']}, line {row['line']}"
                bar(y[row["warp"]], row["step"], row["step"] + 0.8, fill, about)
        canvas.text(8, canvas.height - 10, f"steps {first} to {last - 1}. Orange: copies issued, and under way, then "
                    "in use; green: arrives; blue: products; grey: waits; red: for ever", size=10.5, fill="faint")
        return canvas.svg(self.words(), alone=alone)

    def __str__(self) -> str:
        rows = [tuple("" if row[c] is None else row[c] for c in COLUMNS) for row in self.rows[:200]]
        return f"{self.words()}\n{text_table(COLUMNS, rows)}" + "\n..." * (len(self.rows) > 200)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """An image: a page that does not trust its outputs takes drawings in HTML apart."""
        return (f'<img style="max-width:100%" src="data:image/svg+xml,{quote(self.svg(steps=100))}" '
                f'alt="{escape(self.words(), quote=True)}">')
