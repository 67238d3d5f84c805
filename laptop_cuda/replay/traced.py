"""A recorded block, read by thread and by element: which thread wrote some bytes last."""
from dataclasses import dataclass, field

import numpy as np

from .recording import Recording, position
from .rows import KINDS, Rows


@dataclass
class Access:
    """One access and what it was made from."""
    kind: str
    array: str
    index: int | None
    value: object
    line: int
    text: str                    # of the line
    block: tuple
    thread: tuple
    occurrence: int
    sources: list["Access"] = field(default_factory=list)
    more: int = 0                # accesses of this line like it that are not shown
    origin: str = ""             # of a load: where its value comes from, unless `sources` says it


class Traced:
    """A recorded block. The rows of a thread are made when they are asked for: most never are."""

    def __init__(self, result, recorded: Recording):
        self.result, self.rows = result, Rows(result, recorded)
        self.cut = recorded.cut
        self.columns = {name: i for i, name in enumerate(Rows.EVENT_COLUMNS)}
        self.names = [m.name for m in recorded.memories]
        self.events = self.rows.recorded.events
        loads = [number for number, kind in KINDS.items() if kind == "load"]
        writes = self.events[~np.isin(self.events["operation"], loads)]
        self.writes = writes[np.argsort(writes["time"], kind="stable")]
        self.threads: dict[tuple[int, int], list[list]] = {}

    def thread(self, block: int, thread: int) -> list[list]:
        """Its rows, in the order of time."""
        if (block, thread) not in self.threads:
            mine = (self.events["block"] == block) & (self.events["thread"] == thread)
            rows = sorted(self.rows.events(mine), key=lambda r: self.of(r, "time"))
            self.threads[block, thread] = rows
        return self.threads[block, thread]

    def row(self, event: np.void) -> list:
        rows = self.thread(int(event["block"]), int(event["thread"]))
        return next(r for r in rows if self.of(r, "time") == event["time"])

    def writes_to(self, array: int, low: int, high: int) -> np.ndarray:
        """The stores and atomics to some bytes of an array, in the order of time."""
        events = self.writes
        return events[(events["memory"] == array) & (events["offset"] < high)
                      & (events["offset"] + events["size"].astype("i8") > low)]

    def of(self, row: list, name: str):
        return row[self.columns[name]]

    def access(self, row: list) -> Access:
        file, line = self.of(row, "file"), self.of(row, "line")
        text = self.result.files.get(file, "").split("\n")
        r = self.result
        return Access(self.of(row, "kind"), self.names[self.of(row, "array")], self.of(row, "index"),
                      self.of(row, "value"), line, text[line - 1].strip() if 0 < line <= len(text) else "",
                      position(self.of(row, "block"), r.grid), position(self.of(row, "thread"), r.block),
                      self.of(row, "occurrence"))

    def last_writer(self, row: list) -> list | None:
        """The store or atomic, before a load, to its bytes."""
        low = self.of(row, "offset")
        writes = self.writes_to(self.of(row, "array"), low, low + self.of(row, "size"))
        writes = writes[writes["time"] < self.of(row, "time")]
        return self.row(writes[-1]) if len(writes) else None
