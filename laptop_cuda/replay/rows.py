"""The rows of a replay, from the tables of a recording."""
import dataclasses
import functools

import numpy as np

from ..report import ATOMIC, BARRIER, LOAD, SHARED_ATOMIC, SHARED_LOAD, SHARED_STORE, STORE
from .element_values import item_size, shared_type, value
from .recording import Recording

LINE, EXCHANGE = BARRIER + 1, BARRIER + 2
KINDS = {LOAD: "load", STORE: "store", SHARED_LOAD: "load", SHARED_STORE: "store", ATOMIC: "atomic",
         SHARED_ATOMIC: "atomic", BARRIER: "barrier", LINE: "line", EXCHANGE: "exchange"}
GLOBAL = (LOAD, STORE, ATOMIC)


class Rows:
    STEP_COLUMNS = ("block", "warp", "interval", "kind", "file", "line", "lanes", "array", "size", "sectors",
                    "wavefronts", "excess", "first_event", "n_events")
    EVENT_COLUMNS = ("step", "block", "thread", "warp", "lane", "interval", "kind", "file", "line", "site",
                     "occurrence", "array", "offset", "index", "size", "value", "before", "time")

    def __init__(self, result, recorded: Recording):
        self.result, self.lanes = result, result.machine.warp_size
        pcs = {p.pc for p in recorded.parties}.union(
            *(np.unique(table["pc"]).tolist() for table in (recorded.steps, recorded.events)))
        self.places = result.places(pcs)
        lines = np.array([self.places[pc].line for pc in recorded.steps["pc"].tolist()], np.int64)
        self.recorded = _sorted(recorded, lines)
        self.refused = -1                # the row of an access that the error came before
        self.marked = self._mark_error()
        texts = result.files.values()
        self.types = [m.dtype if m.space != "shared" else shared_type(m.name, m.itemsize, texts)
                      for m in self.recorded.memories]

    def steps(self) -> list[list]:
        rows = []
        for s in self.recorded.steps.tolist():
            block, warp, interval, pc, lanes, operation, memory, *counts = s
            place = self.places[pc]
            rows.append([block, warp, interval, KINDS[operation], place.file, place.line, lanes,
                         None if memory < 0 else memory, *counts])
        return rows

    def events(self, chosen: np.ndarray | None = None) -> list[list]:
        """All of them, or those of a mask, which has all of a thread or none of them."""
        table = self.recorded.events
        rows, been, sites = [], {}, self._sites
        for e in (table if chosen is None else table[chosen]).tolist():
            time, _, offset, memory, step, block, thread, interval, pc, size, operation, before, after = e
            place, kind = self.places[pc], KINDS[operation]
            # the pieces of a wide access are one occurrence
            key = (block, thread, pc)
            last, count = been.get(key, (None, -1))
            if last != step:
                count += 1
            been[key] = (step, count)
            dtype = self.types[memory] if memory >= 0 else ""
            rows.append([step, block, thread, *divmod(thread, self.lanes), interval, kind, place.file,
                         place.line, sites[pc], count, None if memory < 0 else memory, offset,
                         self._index(memory, offset), size, value(after, size, dtype),
                         value(before, size, dtype) if kind != "load" else None, time])
        if self.refused >= 0 and chosen is None:
            rows[self.refused][-3:-1] = None, None
        return rows

    def _index(self, memory: int, offset: int) -> int | None:
        itemsize = self._itemsize(memory)
        return None if not itemsize or offset % itemsize else offset // itemsize

    def _itemsize(self, memory: int) -> int:
        if memory < 0:
            return 0
        try:
            return item_size(self.types[memory])
        except TypeError:
            return self.recorded.memories[memory].itemsize

    @functools.cached_property
    def _sites(self) -> dict[int, int]:
        """{place in the code of an access: its number among those of its line}."""
        of_line: dict = {}
        for pc in sorted(int(pc) for pc in np.unique(self.recorded.events["pc"])):
            of_line.setdefault(self.places[pc], []).append(pc)
        return {pc: i for pcs in of_line.values() for i, pc in enumerate(pcs)}

    def arrays(self) -> list[dict]:
        events = self.recorded.events[self.recorded.events["address"] > 0]       # one that was refused has none
        low = events["address"].astype("i8") - events["offset"]
        starts = dict(zip(events["memory"].tolist(), low.tolist()))
        return [{"name": m.name, "space": m.space, "dtype": self.types[i], "itemsize": self._itemsize(i),
                 "bytes": m.bytes, "shape": list(m.shape), "offset": m.offset,
                 "start": starts.get(i, 0) % 128 if m.space != "shared" else 0}
                for i, m in enumerate(self.recorded.memories)]

    def intervals(self) -> list[dict]:
        steps = self.recorded.steps
        found: dict = {}
        for i, (block, interval) in enumerate(zip(steps["block"].tolist(), steps["interval"].tolist())):
            found.setdefault((block, interval), []).append(i)
        last = {block: interval for block, interval in found}
        rows = []
        for (block, number), mine in found.items():
            barriers = steps[mine][steps["operation"][mine] == BARRIER]
            line = self.places[int(barriers["pc"][0])].line if len(barriers) else 0
            broken = self.recorded.cut or self.recorded.error is not None
            ends = "barrier" if len(barriers) else "cut" if broken and number == last[block] else "end"
            rows.append({"block": block, "number": number, "first_step": mine[0], "n_steps": len(mine),
                         "ends": ends, "line": line})
        return rows

    def requests(self, kind: str, space: str | None) -> np.ndarray:
        wanted = [o for o, k in KINDS.items()
                  if k == kind and (space is None or (o in GLOBAL) == (space == "global"))]
        return self.recorded.steps[np.isin(self.recorded.steps["operation"], wanted)]

    def error(self) -> dict | None:
        error = self.recorded.error
        return error and {"kind": error.kind, "message": error.message, "events": self.marked}

    def _mark_error(self) -> list[int]:
        """The rows of the accesses of which the error speaks. One that was refused is not recorded yet."""
        r, found = self.recorded, []
        memory, offset, size = r.place
        for i, party in enumerate(r.parties):
            if party.action > 2:
                continue
            mine = ((r.events["block"] == party.block) & (r.events["thread"] == party.thread)
                    & (r.events["pc"] == party.pc) & (r.events["memory"] == memory)
                    & (r.events["offset"] < offset + size)
                    & (r.events["offset"].astype("i8") + r.events["size"] > offset))
            if mine.any():
                # an unwritten read is refused at the interval's end; what is refused at once is the last
                found.append(int(np.flatnonzero(mine)[0 if r.error.kind == "uninitialized" else -1]))
            elif i == 0 and memory >= 0:
                self.recorded = r = _with_refused(r, party, self.lanes)
                self.refused = len(r.events) - 1
                found.append(self.refused)
        return found

    @staticmethod
    def last(recorded: Recording, most: int) -> Recording:
        """The last steps with at most that many events."""
        starts = np.flatnonzero(len(recorded.events) - recorded.steps["first_event"].astype("i8") <= most)
        first = int(starts[0]) if len(starts) else len(recorded.steps)
        return _part(recorded, first)


def _sorted(recorded: Recording, lines: np.ndarray) -> Recording:
    """Steps by block and interval; events follow their steps. Basic blocks of generated code are left out,
    and those of one line that follow each other are one step."""
    steps, events = recorded.steps, recorded.events.copy()
    order = np.lexsort((np.arange(len(steps)), steps["interval"], steps["block"]))
    steps, lines = steps[order], lines[order]
    wanted = (steps["operation"] != LINE) | (lines > 0)
    again = (steps["operation"] == LINE) & (lines > 0)
    for name in ("operation", "block", "warp", "interval", "lanes"):
        again[1:] &= steps[name][1:] == steps[name][:-1]
    wanted[1:] &= ~(again[1:] & (lines[1:] == lines[:-1]))
    order, steps = order[wanted], steps[wanted].copy()
    place = np.zeros(len(recorded.steps), np.int64)
    place[order] = np.arange(len(order))
    events["step"] = place[events["step"]]
    events = events[np.argsort(events["step"], kind="stable")]
    steps["first_event"] = np.concatenate([[0], np.cumsum(steps["n_events"])])[:len(steps)]
    return dataclasses.replace(recorded, steps=steps, events=events)


def _part(recorded: Recording, first: int) -> Recording:
    steps = recorded.steps[first:].copy()
    gone = int(steps["first_event"][0]) if len(steps) else len(recorded.events)
    events = recorded.events[gone:].copy()
    steps["first_event"] -= gone
    events["step"] -= first
    return dataclasses.replace(recorded, steps=steps, events=events, cut=True)


def _with_refused(recorded: Recording, party, lanes: int) -> Recording:
    """With a step and an event for the access that was refused, at the end of its block's."""
    memory, offset, size = recorded.place
    shared = recorded.memories[memory].space == "shared"
    operation = (SHARED_LOAD, SHARED_STORE, SHARED_ATOMIC)[party.action] if shared else party.action and (
        STORE, ATOMIC)[party.action - 1]
    event, step = np.zeros(1, recorded.events.dtype), np.zeros(1, recorded.steps.dtype)
    earlier = recorded.events[recorded.events["block"] == party.block]
    interval = earlier["interval"].max() if len(earlier) else 0
    for name, given in (("offset", offset), ("memory", memory), ("step", len(recorded.steps)),
                        ("block", party.block), ("thread", party.thread), ("interval", interval),
                        ("pc", party.pc), ("size", size), ("operation", operation),
                        ("time", recorded.events["time"].max() + 1 if len(recorded.events) else 0)):
        event[name] = given
    for name, given in (("block", party.block), ("warp", party.thread // lanes), ("interval", interval),
                        ("pc", party.pc), ("lanes", 1 << party.thread % lanes), ("operation", operation),
                        ("memory", memory), ("size", size), ("n_events", 1),
                        ("first_event", len(recorded.events))):
        step[name] = given
    return dataclasses.replace(recorded, steps=np.concatenate([recorded.steps, step]),
                               events=np.concatenate([recorded.events, event]))
