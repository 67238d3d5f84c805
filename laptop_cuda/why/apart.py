"""Where a wrong kernel comes apart from a right one, matched by element: the two may be built as they like.

    apart(mine, theirs, launch, array, index)      # Sides of the same launches, and an element that is wrong

The last store to the element was made by some thread of each kernel. What these had loaded before it is
compared, element by element, in the order of the wrong kernel: one that only this one loads, one with another
value (then the threads that made that are compared in turn), one that is missing; or all is the same, and the
values come apart in the arithmetic. Where the warp exchanged values, all of its lanes count. A shared array
that only one kernel has is looked through to what its makers had loaded."""
import math
from collections import Counter
from dataclasses import dataclass, field, replace

from .. import launch
from ..replay.recording import record
from ..replay.rows import EXCHANGE
from ..replay.traced import Traced

MOST_EVENTS, DEEPEST = 1_000_000, 6


@dataclass
class Touch:
    """One element in an access of a lane."""
    launch: int
    row: list                    # of Traced
    array: tuple | str           # (launch, position) of the argument, the name of another array
    index: int
    value: object
    through: "Touch | None" = None       # the load of an own array by which it came to the element


@dataclass
class Apart:
    what: str                    # "never", "extra", "value", "missing", "arithmetic"
    store: Touch | None          # of the wrong kernel, to the element in question; None: no thread made one
    right: Touch | None          # the right kernel's store to it
    mine: Touch | None = None    # the access at which they come apart; None: the store
    theirs: Touch | None = None
    missing: list[Touch] = field(default_factory=list)
    extra: Touch | None = None


class Side:
    """The launches of one kernel, recorded when they are asked for."""

    def __init__(self, results: list):
        self.results, self.recordings, self.first = results, {}, {}
        for n, result in enumerate(results):
            for i in range(result.inputs.launch.n_arrays):
                self.first.setdefault(self._address(n, i), (n, i))

    def _address(self, n: int, i: int):
        made = self.results[n].inputs.launch
        a = made.arrays[i]
        return made.storages[a.storage].host + a.offset if a.bytes and a.storage >= 0 else (n, i)

    def traced(self, n: int) -> Traced:
        if n not in self.recordings:
            result = self.results[n]
            made = Traced(result, record(result, launch.PROFILE, events=MOST_EVENTS))
            self.recordings[n] = made, made.rows.arrays()
        return self.recordings[n][0]

    def arrays(self, n: int) -> list[dict]:
        self.traced(n)
        return self.recordings[n][1]

    def key(self, n: int, memory: int) -> tuple | str:
        inside = memory < self.results[n].inputs.launch.n_arrays
        return self.first[self._address(n, memory)] if inside else self.arrays(n)[memory]["name"]

    def own(self, n: int) -> dict[str, int]:
        """Its arrays that are no arguments, with their bytes."""
        return {a["name"]: a["bytes"] for m, a in enumerate(self.arrays(n))
                if isinstance(self.key(n, m), str)}

    def of(self, touch: Touch, name: str):
        return self.traced(touch.launch).of(touch.row, name)

    def name(self, touch: Touch) -> str:
        return f"{self.arrays(touch.launch)[self.of(touch, 'array')]['name']}[{touch.index}]"

    def who(self, touch: Touch) -> str:
        thread, block, warp, lane = (self.of(touch, name) for name in ("thread", "block", "warp", "lane"))
        return f"thread {thread} of block {block} (warp {warp}, lane {lane})"

    def lanes(self, touch: Touch) -> dict[int, list[Touch]]:
        """What each lane of the warp did in the same step."""
        traced, found = self.traced(touch.launch), {}
        for row in traced.rows.events(traced.events["step"] == self.of(touch, "step")):
            found.setdefault(traced.of(row, "lane"), []).extend(self.touches(touch.launch, row))
        return found

    def thread(self, touch: Touch, other: "Side") -> list[Touch]:
        """All that the thread did, on this side, which made an access on another."""
        rows = self.traced(touch.launch).thread(other.of(touch, "block"), other.of(touch, "thread"))
        return [t for row in rows for t in self.touches(touch.launch, row)]

    def touches(self, n: int, row: list) -> list[Touch]:
        """Of each element; a wide access has several."""
        traced = self.traced(n)
        memory, value = traced.of(row, "array"), traced.of(row, "value")
        if memory is None:
            return []
        item = self.arrays(n)[memory]["itemsize"] or 1
        values = value if isinstance(value, list) else [value]
        return [Touch(n, row, self.key(n, memory), traced.of(row, "offset") // item + k, v)
                for k, v in enumerate(values)]

    def writes(self, n: int, array, index: int, block=None, before=math.inf) -> list[Touch]:
        """The stores and atomics to an element, in time; those of an earlier launch if this one has none."""
        for m in range(n, -1 if isinstance(array, tuple) else n - 1, -1):
            traced, found = self.traced(m), []
            for memory, about in enumerate(self.arrays(m)):
                if self.key(m, memory) == array:
                    item = about["itemsize"] or 1
                    events = traced.writes_to(memory, index * item, index * item + item)
                    events = events[events["time"] < before] if m == n else events
                    found += [e for e in events if isinstance(array, tuple) or e["block"] == block]
            if found:
                return [t for e in found[-1024:] for t in self.touches(m, traced.row(e)) if t.index == index]
        return []

    def loads(self, writes: list[Touch], common: set, seen: set) -> list[Touch]:
        """What the threads that made an element had loaded before."""
        last, found = writes[-1], []
        traced = self.traced(last.launch)
        makers = writes if self.of(last, "kind") == "atomic" else [last]
        for store in {(self.of(w, "block"), self.of(w, "thread")): w for w in makers}.values():
            time, block = self.of(store, "time"), self.of(store, "block")
            if (store.launch, time) in seen:
                continue
            seen.add((store.launch, time))
            for thread in self._together(store):
                for row in traced.thread(block, thread):
                    if traced.of(row, "time") >= time or traced.of(row, "kind") != "load":
                        continue
                    for t in self.touches(store.launch, row):
                        if isinstance(t.array, tuple) or t.array in common:
                            found.append(t)
                        elif made := self.writes(t.launch, t.array, t.index, block, traced.of(row, "time")):
                            found += [replace(x, through=t) for x in self.loads(made, common, seen)]
        return sorted(found, key=lambda t: (t.launch, self.of(t, "time")))

    def _together(self, store: Touch) -> list[int]:
        """The threads whose loads can be in a store: its own, or the warp's where that exchanges values."""
        steps, thread = self.traced(store.launch).rows.recorded.steps, self.of(store, "thread")
        warp, size = self.of(store, "warp"), self.results[store.launch].machine.warp_size
        mine = (steps["block"] == self.of(store, "block")) & (steps["warp"] == warp)
        exchanged = (steps["operation"][mine] == EXCHANGE).any()
        return list(range(warp * size, warp * size + size)) if exchanged else [thread]

    def since(self, writes: list[Touch], loads: list[Touch]) -> list[Touch]:
        """Of the loads, those since the maker's store before to the array: the others can be for that."""
        last = writes[-1]
        times = [self.of(t, "time") for t in self.thread(last, self)
                 if t.array == last.array and self.of(t, "kind") != "load"]
        before = max((t for t in times if t < self.of(last, "time")), default=-1)
        return [t for t in loads if t.launch == last.launch and self.of(t, "time") > before] or loads


def apart(mine: Side, theirs: Side, n: int, array, index: int, at=(), to=(), depth: int = DEEPEST) -> Apart:
    """`at` and `to` are (block, before) of the load, on each side, that found the element wrong."""
    stores, rights = mine.writes(n, array, index, *at), theirs.writes(n, array, index, *to)
    if not stores or not rights:
        return Apart("never", stores[-1] if stores else None, rights[-1] if rights else None)
    own, other = mine.own(stores[-1].launch), theirs.own(rights[-1].launch)
    common = {name for name in own if own[name] == other.get(name)}
    loads, wanted = mine.loads(stores, common, set()), theirs.loads(rights, common, set())
    held: dict = {}
    for t in wanted:
        held.setdefault((t.array, t.index), []).append(t)
    have = {(t.array, t.index) for t in loads}
    missing = list({(t.array, t.index): t for t in reversed(theirs.since(rights, wanted))
                    if (t.array, t.index) not in have}.values())[::-1]
    fresh, turn = {id(t) for t in mine.since(stores, loads)}, Counter()
    found = Apart("missing" if missing else "arithmetic", stores[-1], rights[-1], missing=missing)
    for t in loads:
        same = held.get((t.array, t.index), [])
        turn[t.array, t.index] += 1
        if not same and id(t) in fresh:
            loaded = theirs.thread(t, mine)      # rightly loaded, and wrongly read from where it was put
            right = t.through and any((s.array, s.index) == (t.array, t.index) for s in loaded)
            found.what, found.mine, found.extra = "extra", t.through if right else t, t
            return found
        if same and not any(close(t.value, s.value) for s in same):
            other = same[min(turn[t.array, t.index], len(same)) - 1]
            found.what, found.mine, found.theirs = "value", t, other
            places = [[side.of(x, name) for name in ("block", "time")]
                      for side, x in ((mine, t), (theirs, other))]
            inner = depth and apart(mine, theirs, t.launch, t.array, t.index, *places, depth - 1)
            return inner if inner and inner.store and inner.right else found
    return found


def close(a, b) -> bool:
    if not isinstance(a, (int, float)) or not isinstance(b, (int, float)):
        return a == b
    return math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-5) or (math.isnan(a) and math.isnan(b))
