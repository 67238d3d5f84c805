"""Recorded launches, read in time: which thread made each score, of which loads, and what became of it.

What an address holds is carried along. A load of q or k, stored as it was, makes the shared element hold that
load; a thread that stores after it read elements of q and of k has made a score; who reads a score and stores
has made a weight of it. No layout of a kernel is assumed. Events are those of a replay, as dicts; loads of
`SOURCES` also have "sector", "sectors" (for how many the request of the warp asked, as the engine counts
them) and "asked" (which: one set for all lanes of the request)."""
from collections import Counter, defaultdict, namedtuple
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter

EVENTS, SECTOR = 1_000_000, 32
SOURCES = {"q": "q", "k": "k", "keys": "k", "tables": "table"}         # what kernels call them
Launch = namedtuple("Launch", "kernel grid block file text")


@dataclass
class Number:
    """A score, and the weight that was made of it."""
    launch: Launch
    made: dict                   # the event that stored it first: block, thread, warp, lane, interval
    line: int                    # where its products were summed
    loads: dict                  # {(array, index): the load}
    stores: list[dict]           # of the score first, of the weight last
    reads: Counter = field(default_factory=Counter)      # {line: how many lanes read the weight there}
    weight: float = 0

    @property
    def tile(self) -> tuple:
        """What is equal for all that a block makes between two barriers."""
        return self.made["block"], self.made["interval"]

    @property
    def stored(self) -> float:
        """What became the weight, or is it already."""
        return self.stores[-1]["value"]

    @cached_property
    def dot(self) -> float:
        return sum(a["value"] * b["value"] for a, b in zip(self.row("q"), self.row("k")))

    def row(self, array: str) -> list[dict]:
        """The loads of its query or its key, by index."""
        return [self.loads[key] for key in sorted(self.loads) if key[0] == array]


class Followed:
    """Launches of a report. `numbers`: {(row of q, row of k): what was made of them}; a row is `width` wide,
    and stored so many times a number is the weight."""

    def __init__(self, launches: list, width: int, stores: int):
        self.width, self.stores = width, stores
        self.numbers, self.holds = {}, {}                # holds: an address -> the load or the Number in it
        for n, launch in enumerate(launches):
            self.read(n, launch)

    def read(self, n: int, launch) -> None:
        replay, made = launch.replay(blocks="all", events=EVENTS), launch._result.inputs.launch
        file, text = next(iter(replay.source["files"].items()))
        self.launch = Launch(replay.kernel, replay.grid, replay.block, file, text.split("\n"))
        self.steps, self.starts = replay.steps, {a["name"]: a["start"] for a in replay.arrays}
        self.asked = defaultdict(set)                    # a request -> its sectors
        self.pending = defaultdict(list)                 # (block, thread) -> its loads since its last store
        # where a tensor is, the same in all launches; shared memory is a block's own
        host = {shown["name"]: made.storages[a.storage].host + a.offset
                for shown, a in zip(replay.arrays, made.arrays[:made.n_arrays]) if a.storage >= 0}
        for event in sorted(replay.events, key=itemgetter("time")):
            name = event["array"]
            event["shared"] = name not in host
            at = host[name] + event["offset"] if name in host else (n, event["block"], name, event["offset"])
            (self.load if event["kind"] == "load" else self.store)(at, event)

    def load(self, at, event):
        held, array = self.holds.get(at), SOURCES.get(event["array"])
        if array and not event["shared"]:
            sector = (self.starts[event["array"]] + event["offset"]) // SECTOR
            asked = self.asked[event["step"]]
            asked.add(sector)
            held = event | {"array": array, "sector": sector, "asked": asked,
                            "sectors": self.steps[event["step"]]["sectors"]}
        elif isinstance(held, Number) and len(held.stores) == self.stores:
            held.reads[event["line"]] += 1
        self.pending[event["block"], event["thread"]].append((held, event))

    def store(self, at, event):
        mine = self.pending[event["block"], event["thread"]]
        held, last = mine[-1] if mine else (None, None)
        if held and event["shared"] and not last["shared"] and last["value"] == event["value"]:      # a copy
            self.holds[at] = mine.pop()[0]
            return
        self.pending[event["block"], event["thread"]] = []
        if isinstance(held, Number) and len(held.stores) < self.stores:
            held.stores.append(event)
            self.holds[at] = held
            return
        sources = [(x, read["line"]) for x, read in mine if isinstance(x, dict)]
        loads = {(x["array"], x["index"]): x for x, _ in sources}
        rows = {array: index // self.width for array, index in loads}
        self.holds.pop(at, None)
        if {"q", "k"} <= rows.keys():
            number = Number(self.launch, event, sources[-1][1], loads, [event])
            self.holds[at] = self.numbers[rows["q"], rows["k"]] = number
