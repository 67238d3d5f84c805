"""What the machine code asks of memory, by line: the counted addresses joined with the widths of its accesses.

As written, every load and store of the source is a request. nvcc leaves out what a line loads again, merges
neighbours into one wider access, or takes a wide one apart. What it did is not in the machine code, but its result
is: so many accesses of each width on that line. Two rules lead from there to the addresses.

1. The widths are the source's, and no warp asks for the same twice (between two barriers): then nothing was left
   out or merged, and the counts are those as written.
2. Else the line ran so often for each run of its machine code (a number that divides all its requests; all of
   them, outside a loop), with repetitions left out or not, and neighbours of each array merged up to 8 or 16 bytes
   or taken apart to 4 or 8, where the addresses are aligned. Every combination is tried; those count whose widths
   are those of the machine code in every run. If they agree on the requests and passes, that is the answer.

Where they do not, or none does, it is not told, and not guessed."""
import itertools
import math
from collections import Counter, defaultdict
from typing import NamedTuple

from .. import launch as launching
from ..machine import Machine
from ..replay.recording import record
from ..report import LOAD, STORE
from ..toolchain.lines import Place
from .machine_code import Code
from .model import CLASSES, Chain

MOST_EVENTS, MOST_REQUESTS, MOST_TRIED = 200_000, 4096, 2000
OTHERS = set("LD ST LDSM STSM LDGSTS UBLKCP UTMALDG UTMASTG".split())      # of any space, or of fragments
Asked = tuple[int, int, int]     # requests; passes, or sectors of global memory; lost passes


class Access(NamedTuple):
    """One request. Two of one shape differ by a shift."""
    interval: int                # between barriers
    memory: int
    shape: int
    base: int                    # byte of the first lane
    size: int


def as_compiled(code: Code, inlined: list[Chain], starts: dict, launch) -> dict[tuple, Asked | None]:
    """{(line, kind): asked, or None where it is not told}; nothing if the launch's inputs were not kept."""
    result = launch._result
    if not (result.inputs and result.inputs.kept):
        return {}
    whole = sum(s["lanes"] for s in result.sites) <= MOST_EVENTS
    recorded = record(result, launching.PROFILE, blocks=None if whole else [0], events=5 * MOST_EVENTS)
    if recorded.cut:
        return {}
    written, shapes = _accesses(result, recorded, starts)
    in_loop = {b for first, last in code.loops for b in range(first, last + 1)}
    found: dict[tuple[Place, str], Asked | None] = {}
    for (place, operation), warps in written.items():
        kind = CLASSES[operation]
        found[place, kind] = None
        here = [i for i, chain in zip(code.instructions, inlined) if chain[0] == place]
        helpers = [i for i, chain in zip(code.instructions, inlined) if place in chain[1:]]  # inlined
        if any(i.name in OTHERS or i.block in code.rare for i in here) or any(
                i.name in OTHERS or i.kind == kind for i in helpers):
            continue
        here = [i for i in here if i.kind == kind]
        cost = _Cost(launch.machine, shapes, operation)
        widths, looped = Counter(i.bytes for i in here), any(i.block in in_loop for i in here)
        asked = _join(widths, warps, operation, looped, cost)
        share = 1 if whole else _share(result, place, operation, starts, cost.of(itertools.chain(*warps)))
        if asked is not None and share:
            found[place, kind] = tuple(n * share for n in asked)
    return found


def _accesses(result, recorded, starts) -> tuple[dict, list]:
    """({(line, operation): [requests of a warp, in order]}, the lanes' bytes of each shape from its base)."""
    rows: dict[int, list] = {}
    columns = ["step", "block", "thread", "interval", "pc", "size", "operation", "memory", "address", "offset"]
    for step, *row in recorded.events[columns].tolist():
        if row[5] in CLASSES:
            rows.setdefault(step, []).append(row)
    places = result.places({lanes[0][3] for lanes in rows.values()})
    written, numbers = defaultdict(lambda: defaultdict(list)), {}
    for step in sorted(rows):
        block, thread, interval, pc, size, operation, memory, *_ = rows[step][0]
        outside = operation in (LOAD, STORE)
        low = 0 if outside else recorded.memories[memory].offset
        at = [(row[1] % 32, row[7] if outside else low + row[8]) for row in rows[step]]
        base = at[0][1]
        shape = numbers.setdefault(tuple((lane, byte - base) for lane, byte in at), len(numbers))
        place = starts.get(places[pc], places[pc])
        written[place, operation][block, thread // 32].append(Access(interval, memory, shape, base, size))
    return {key: list(warps.values()) for key, warps in written.items()}, list(numbers)


class _Cost:
    """What requests cost, by their shape."""

    def __init__(self, machine: Machine, shapes: list, operation: int):
        self.machine, self.shapes, self.operation, self.known = machine, shapes, operation, {}

    def of(self, accesses) -> Asked:
        found = [self._one(a.shape, a.base % 128, a.size) for a in accesses]
        return len(found), sum(f[0] for f in found), sum(f[1] for f in found)

    def _one(self, shape: int, base: int, size: int) -> tuple[int, int]:
        if (shape, base, size) not in self.known:
            places = {lane: base + byte for lane, byte in self.shapes[shape]}
            if self.operation in (LOAD, STORE):
                each = self.machine.sector_bytes
                sectors = {s for b in places.values() for s in range(b // each, (b + size - 1) // each + 1)}
                self.known[shape, base, size] = len(sectors), 0
            else:
                parts = self.machine.bank_parts(places, size, CLASSES[self.operation].endswith("load"))
                most = [max(map(len, part.values())) for part in parts]
                self.known[shape, base, size] = sum(most), sum(most) - len(most)
        return self.known[shape, base, size]


def _join(widths: Counter, warps: list, operation: int, in_loop: bool, cost: _Cost) -> Asked | None:
    every = list(itertools.chain(*warps))
    if not widths:                   # merged into other lines, or kept in registers
        return 0, 0, 0
    alike = len({a.size for a in every} | set(widths)) == 1
    if alike and not any(_repeats(warp, operation) for warp in warps):
        return cost.of(every)
    lengths = {len(warp) for warp in warps}
    common = math.gcd(*lengths)
    runs = [n for n in range(1, min(common, MOST_REQUESTS) + 1) if common % n == 0] if in_loop else (
        [common] if len(lengths) == 1 else [])
    memories = sorted({a.memory for a in every})
    answers, tried = set(), 0
    widest = itertools.product((4, 8, 16), repeat=len(memories))
    for n, once, tops in itertools.product(runs, (False, True), widest):
        if (tried := tried + 1) > MOST_TRIED:
            return None
        made = _if_it_were(widths, warps, n, once, dict(zip(memories, tops)), cost)
        if made is not None:
            answers.add(made)
            if len(answers) > 1:
                return None
    return answers.pop() if answers else None


def _repeats(warp: list[Access], operation: int) -> bool:
    seen = [a[1:] if operation == LOAD else a for a in warp]
    return len(set(seen)) < len(seen)


def _if_it_were(widths: Counter, warps: list, n: int, once: bool, tops: dict, cost: _Cost) -> Asked | None:
    """What is asked if n requests are one run of the machine code; None if its widths are others."""
    made = []
    for warp in warps:
        for first in range(0, len(warp), n):
            run = _run(warp[first:first + n], once, tops, cost.shapes)
            if Counter(a.size for a in run) != widths:
                return None
            made += run
    return cost.of(made)


def _run(run: list[Access], once: bool, tops: dict[int, int], shapes: list) -> list[Access]:
    """The accesses of one run of the machine code: repetitions left out, neighbours merged, wide ones split."""
    left = list(dict.fromkeys(run)) if once else list(run)
    made = []
    for a in sorted(left, key=lambda a: (a.interval, a.memory, a.shape, a.base)):
        top = tops[a.memory]
        if a.size > top:
            made += [a._replace(base=a.base + k, size=top) for k in range(0, a.size, top)]
            continue
        made.append(a)
        while len(made) > 1 and _neighbours(made[-2], made[-1], tops[a.memory], shapes):
            last = made.pop()
            made[-1] = made[-1]._replace(size=2 * last.size)
    return made


def _neighbours(low: Access, high: Access, top: int, shapes: list) -> bool:
    """Whether two accesses of one size could be one of twice that, in all lanes."""
    wide = 2 * low.size
    return (low.size == high.size and wide <= top and low[:3] == high[:3] and high.base == low.base + low.size
            and all((low.base + byte) % wide == 0 for _, byte in shapes[low.shape]))


def _share(result, place: Place, operation: int, starts: dict, recorded: Asked) -> int:
    """Blocks of the launch, if each asked for what the recorded one did on this line; 0 if not."""
    sites = [s for s in result.sites if s["operation"] == operation]
    places = result.places([s["pc"] for s in sites])
    here = [s for s in sites if starts.get(places[s["pc"]], places[s["pc"]]) == place]
    name = "sectors" if operation in (LOAD, STORE) else "wavefronts"
    counted = tuple(sum(s[n] for s in here) for n in ("requests", name, "excess"))
    return result.blocks if counted == tuple(n * result.blocks for n in recorded) else 0
