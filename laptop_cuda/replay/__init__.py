"""One launch again, recorded: what each warp did, step by step, and what each lane loaded and stored.

    with cuda.profile() as report:
        mod.kernel[grid, block](x, out, n)
    replay = report.launches[0].replay()              # the first two blocks, at most 20,000 events
    replay = report.launches[0].replay(blocks=[3])    # or these; blocks=4: the first four; or "all"
    except cuda.KernelError as error:
        replay = error.replay()                       # up to the error, with its accesses marked

A run is deterministic, so the replay is the run that was counted: with all blocks its totals are the
profile's counts. It works on a copy of the arrays as they were before the launch, and changes nothing.

`replay.to_dict()` is plain data for JSON. Rows are lists in the order of `columns`; `replay.steps` and
`replay.events` are the same rows as dicts, with names in place of numbers where one is said below.

- `version` 1; `kernel`; `grid`, `block` (three sizes each); `blocks`: the recorded blocks' numbers in the
  grid, x fastest; `cut`: None, or a sentence that says what was left out; `machine`: {"banks" (32),
  "bank_bytes" (4), "sector_bytes" (32), "warp_size" (32)}, those that were counted.
- `source`: {"name", "files": {name: text}}; `source.name` is the file of the kernel.
- `arrays`: a list of {"name", "space": "global" | "shared" | "module", "dtype", "itemsize", "bytes",
  "shape", "offset", "start"}. A byte b of a shared array is in bank (offset + b) // bank_bytes % banks; a
  byte b of a global array is in sector (start + b) // sector_bytes, counted from an aligned address.
- `steps`: what a warp did, in the order of lockstep. In one warp each follows the one before; between two
  warps of a block only the intervals between barriers are ordered, and between blocks nothing. Rows are
  sorted by block, interval, and then as the engine ran the warps. Columns: `block`; `warp`; `interval`,
  the number of barriers that the block had passed; `kind`: "line" (a basic block of the source),
  "load", "store", "atomic" (a request of the warp), "barrier", "exchange" (a shuffle, vote or warp
  synchronisation); `file`, `line`: of the source, line 0 if not known; `lanes`: a 32-bit mask of the lanes
  that took part; `array`: index into `arrays` (the name in the dicts), null without one; `size`: bytes per
  lane; `sectors`: 32-byte sectors of a request to global memory; `wavefronts`: passes over the banks of
  shared memory, of which `excess` are lost to conflicts (of a global atomic: the sectors that L1TEX counts);
  `first_event`, `n_events`: its rows in `events`.
- `events`: one lane's part in a request. Columns: `step`; `block`; `thread` (in the block, x fastest);
  `warp`; `lane`; `interval`; `kind`: "load", "store" or "atomic"; `file`, `line`; `site`: which access of
  that line it is, 0 for the first; `occurrence`: how often this thread was there before, 0 for the first
  time; `array`, `offset` in bytes, `index`: of the element (null between elements); `size` in bytes;
  `value`: loaded or stored, a number or a list of them ("nan", "inf", "-inf" where JSON has no number), null
  where the type is not known or the access was refused; `before`: of a store or an atomic, what it
  replaced; `time`: its place in the order in which this engine ran them, which differs from lockstep, as
  each lane runs on until it must wait.
- `intervals`: a list of {"block", "number", "first_step", "n_steps", "ends": "barrier" | "end" | "cut",
  "line": of the barrier, else 0}.
- `error`: null, or {"kind", "message", "events": [rows of the accesses it speaks of, its own first]}.

Local variables are no events: the compiler announces accesses to memory, not to registers. `replay.registers`
has the scalar ones of a source in one file by name, from a second run (`replay/registers.py`)."""
import functools
import math

from .. import launch, packs
from .recording import Recording, record
from .registers import registers
from .rows import Rows

EVENTS, BLOCKS = 20_000, 2
VERSION = 1
MACHINE = "banks", "bank_bytes", "sector_bytes", "warp_size"


class Replay:
    """What a launch did; see the module's docstring for the rows and their columns."""

    def __init__(self, result, recorded: Recording, blocks: list[int], cut: str | None, most: int = 0):
        rows = Rows(result, recorded, most)
        self.kernel, self.grid, self.block = result.kernel, result.grid, result.block
        self.blocks, self.cut = blocks, cut
        self.arrays, self.intervals = rows.arrays(), rows.intervals()
        self.source = {"name": next(iter(result.files)), "files": dict(result.files)}
        self.machine = {n: getattr(result.machine, n) for n in MACHINE}
        self.error, self.first = rows.error(), rows.first
        self._rows, self._result = rows, result

    @functools.cached_property
    def steps(self) -> list[dict]:
        return self._named(self._rows.STEP_COLUMNS, self._rows.steps())

    @functools.cached_property
    def events(self) -> list[dict]:
        return self._named(self._rows.EVENT_COLUMNS, self._rows.events())

    def _named(self, columns: tuple[str, ...], rows: list[list]) -> list[dict]:
        names = [a["name"] for a in self.arrays]
        at = columns.index("array")
        return [dict(zip(columns, r)) | {"array": None if r[at] is None else names[r[at]]} for r in rows]

    @functools.cached_property
    def registers(self) -> dict:
        """What local variables hold, from which step on; see `laptop_cuda.replay.registers`."""
        return registers(self._result, self.blocks, self.steps, len(self._rows.recorded.events))

    @functools.cached_property
    def timelines(self) -> dict:
        """{block: its timeline's lanes, beside these steps}, of blocks that copy or multiply asynchronously."""
        if not any("async" in text for text in self.source["files"].values()):
            return {}
        try:
            timeline = packs.part("asynchronous.timeline").timeline
        except packs.NoPack:
            return {}
        found = {b: timeline(self._result, self.error, b).beside(self.steps, b) for b in self.blocks[:BLOCKS]}
        return {b: lanes for b, lanes in found.items() if lanes}

    @property
    def totals(self) -> dict[str, int]:
        """Sums over the requests of the recorded steps, named as in the profile's report."""
        sums = {}
        for kind, of, counts in (("load", "global", ("sectors",)), ("store", "global", ("sectors",)),
                                 ("load", "shared", ("wavefronts", "excess")),
                                 ("store", "shared", ("wavefronts", "excess")), ("atomic", None, ())):
            mine = self._rows.requests(kind, of)
            name = f"{of}_{kind}" if of else "atomics"
            sums[name] = {"requests": len(mine), "bytes": int((mine["n_events"] * mine["size"]).sum()),
                          **{count: int(mine[count].sum()) for count in counts}}
        return sums

    def to_dict(self) -> dict:
        rows = self._rows
        return {"version": VERSION, "kernel": self.kernel, "grid": list(self.grid), "block": list(self.block),
                "blocks": self.blocks, "cut": self.cut, "machine": self.machine, "source": self.source,
                "arrays": self.arrays, "intervals": self.intervals, "error": self.error,
                "steps": {"columns": list(rows.STEP_COLUMNS), "rows": rows.steps()},
                "events": {"columns": list(rows.EVENT_COLUMNS), "rows": _for_json(rows.events())}}

    def __repr__(self) -> str:
        of = ", ".join(map(str, self.blocks[:8])) + (", ..." if len(self.blocks) > 8 else "")
        return (f"<replay of {self.kernel}, block{'s' * (len(self.blocks) != 1)} {of}: "
                f"{len(self._rows.recorded.steps):,} steps, {len(self._rows.recorded.events):,} events"
                + (f"; {self.cut}" if self.cut else "") + ">")


def _for_json(row):
    """JSON has no number for these."""
    if isinstance(row, list):
        return [_for_json(v) for v in row]
    return str(row) if isinstance(row, float) and not math.isfinite(row) else row


def replay_launch(result, blocks=None, events: int | None = None) -> Replay:
    """Of a launch inside `profile()`."""
    chosen = chosen_blocks(result.grid, blocks)
    most = _most(events)
    recorded = record(result, launch.PROFILE, blocks=chosen, events=most)
    return Replay(result, recorded, chosen, _left_out(result.grid, chosen, recorded.cut, most))


def replay_error(result, blocks=None, events: int | None = None) -> Replay:
    """Of a launch inside `sanitize()` that failed: by default the blocks of which the error speaks."""
    most = _most(events)
    if blocks is None:
        known = record(result, launch.SANITIZE, blocks=[], events=0)
        chosen = sorted({p.block for p in known.parties}) or chosen_blocks(result.grid, None)
    else:
        chosen = chosen_blocks(result.grid, blocks)
    recorded = record(result, launch.SANITIZE, blocks=chosen, events=4 * most)          # the last ones
    cut = recorded.cut or len(recorded.events) > most
    return Replay(result, recorded, chosen, _left_out(result.grid, chosen, cut, most), most if cut else 0)


def _most(events: int | None) -> int:
    events = EVENTS if events is None else events
    if not isinstance(events, int) or events < 32:
        raise ValueError(f"events must be at least 32, one request of a warp; got {events!r}")
    return events


def chosen_blocks(grid, blocks) -> list[int]:
    """The blocks' numbers, ascending, of None (the first ones), a count, "all", or numbers and (x, y, z)."""
    count = grid[0] * grid[1] * grid[2]
    if blocks is None:
        blocks = BLOCKS
    if blocks == "all":
        return list(range(count))
    if isinstance(blocks, int) and blocks >= 1:
        return list(range(min(blocks, count)))
    try:
        chosen = sorted({_block_number(b, grid) for b in blocks})
    except TypeError:
        raise ValueError(f'blocks is a count from 1 on, a list of blocks, or "all"; got {blocks!r}') from None
    if not chosen or chosen[0] < 0 or chosen[-1] >= count:
        raise ValueError(f"blocks: the grid has blocks 0 to {count - 1}, got {blocks!r}")
    return chosen


def _block_number(block, grid) -> int:
    if isinstance(block, int):
        return block
    x, y, z = (*block, 0, 0)[:3]
    if not (0 <= x < grid[0] and 0 <= y < grid[1] and 0 <= z < grid[2]):
        return -1
    return x + grid[0] * (y + grid[1] * z)


def _left_out(grid, chosen: list[int], cut: bool, most: int) -> str | None:
    count, said = grid[0] * grid[1] * grid[2], []
    if cut:
        said.append(f"cut at {most:,} events; events={2 * most:_} shows more")
    if len(chosen) < count:
        said.append(f"{len(chosen)} of {count:,} blocks; blocks=[...] chooses others")
    return "; ".join(said) or None
