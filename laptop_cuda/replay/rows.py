"""The rows of a replay, from the tables of a recording."""
import functools

import numpy as np

from ..report import ATOMIC, BARRIER, LOAD, SHARED_ATOMIC, SHARED_LOAD, SHARED_STORE, STORE
from .element_values import item_size, shared_type, value
from .recording import Recording, in_order

LINE, EXCHANGE = BARRIER + 1, BARRIER + 2
KINDS = {LOAD: "load", STORE: "store", SHARED_LOAD: "load", SHARED_STORE: "store", ATOMIC: "atomic",
         SHARED_ATOMIC: "atomic", BARRIER: "barrier", LINE: "line", EXCHANGE: "exchange"}
GLOBAL = (LOAD, STORE, ATOMIC)


class Rows:
    STEP_COLUMNS = ("block", "warp", "interval", "kind", "file", "line", "lanes", "array", "size", "sectors",
                    "wavefronts", "excess", "first_event", "n_events")
    EVENT_COLUMNS = ("step", "block", "thread", "warp", "lane", "interval", "kind", "file", "line", "site",
                     "occurrence", "array", "offset", "index", "size", "value", "before", "time")

    def __init__(self, result, recorded: Recording, most: int = 0):
        """`most`: only the last accesses."""
        self.result, self.lanes = result, result.machine.warp_size
        pcs = {p.pc for p in recorded.parties}.union(
            *(np.unique(table["pc"]).tolist() for table in (recorded.steps, recorded.events)))
        self.places = result.places(pcs)
        lines = np.array([self.places[pc].line for pc in recorded.steps["pc"].tolist()], np.uint32)
        found = in_order(recorded, result, lines, most)
        self.recorded, self.spans, self.marked, self.refused, self.first = found
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
        return [{"block": block, "number": number, "first_step": first, "n_steps": steps,
                 "ends": ("end", "barrier", "cut")[ends], "line": self.places[pc].line if ends == 1 else 0}
                for block, number, first, steps, ends, pc in self.spans.tolist()]

    def requests(self, kind: str, space: str | None) -> np.ndarray:
        wanted = [o for o, k in KINDS.items()
                  if k == kind and (space is None or (o in GLOBAL) == (space == "global"))]
        return self.recorded.steps[np.isin(self.recorded.steps["operation"], wanted)]

    def error(self) -> dict | None:
        error = self.recorded.error
        return error and {"kind": error.kind, "message": error.message, "events": self.marked}
