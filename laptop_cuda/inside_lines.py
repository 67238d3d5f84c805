"""The machine code of a kernel by source line, and how often it was executed.

Three sources, never mixed. **Counted** by the engine: how often warps entered a line, and what it asked of
memory. **Compiled**: the instructions. **Modelled**: how often each was executed, by these rules:

  - An instruction is executed at most as often as its line. A line of a helper that was inlined in several
    places is dealt to them as often as those lines ran.
  - Loads and stores are executed as often as the bytes that the engine counted ask for: where a line has more
    of them than the source has accesses, the compiler unrolled; where fewer or wider ones, it merged.
  - All instructions of a basic block are executed equally often: as its loads and stores; without any, or
    where many of its lines ran less often than those, as the least of its lines, since what else is in the
    block was moved there out of a loop.
  - The slow paths of divisions, roots and shuffles are taken for never executed.
"""
from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from . import executed
from .lines import NOWHERE, Place
from .machine_code import Code, Instruction
from .report import LOAD, SHARED_LOAD, SHARED_STORE, STORE, LaunchReport, LineReport

CLASSES = {LOAD: "global load", STORE: "global store",
           SHARED_LOAD: "shared load", SHARED_STORE: "shared store"}


@dataclass
class InsideLine:
    """One source line. What the engine did not count is None."""
    file: str
    line: int
    text: str
    sass: list[str] = field(default_factory=list)                # compiled
    kinds: Counter = field(default_factory=Counter)              # compiled
    times: int | None = None                                     # counted: how often a warp entered the line
    counted: LineReport | None = None
    executed: Counter = field(default_factory=Counter)           # modelled: by kind
    tensor_flops: float = 0.0                                    # modelled
    notes: list[str] = field(default_factory=list)


Chain = tuple[Place, ...]        # a line of the source's files, then the lines it was inlined at, outwards


def chains(code: Code, names: tuple[str, ...]) -> list[Chain]:
    """The lines of each instruction, without those of the toolkit's headers."""
    def own(path: str) -> str:
        return names[0] if Path(path).name == "source.cu" else Path(path).name
    return [tuple(Place(own(path), line) for path, line in i.places if own(path) in names) or (NOWHERE,)
            for i in code.instructions]


def by_line(code: Code, files: dict[str, str], launch: LaunchReport | None) -> list[InsideLine]:
    """One entry per line that has machine code or was executed, in the order of the files."""
    inlined = chains(code, tuple(files))
    where = [chain[0] for chain in inlined]
    found: dict[Place, InsideLine] = {}
    times = executed.by_line(launch._result) if launch else {}
    counted = {Place(line.file, line.line): line for line in launch.lines} if launch else {}
    order = {name: i for i, name in enumerate(files)}
    for place in sorted({*where, *times, *counted}, key=lambda p: (order.get(p.file, -1), p.line)):
        text = files.get(place.file, "").split("\n")
        shown = text[place.line - 1].strip() if 0 < place.line <= len(text) else ""
        times_here = (times[place].warps if place in times else 0) if times else None
        found[place] = InsideLine(place.file, place.line, shown, times=times_here, counted=counted.get(place))
    per_block = executions(code, inlined, launch, times) if times else {}
    for instruction, place in zip(code.instructions, where):
        line = found[place]
        line.sass.append(instruction.text)
        line.kinds[instruction.kind] += 1
        line.executed[instruction.kind] += per_block.get(instruction.block, 0)
        line.tensor_flops += instruction.flops * per_block.get(instruction.block, 0)
    if times:
        _say(code, where, found, per_block)
    return [line for line in found.values() if line.sass or line.kinds or _is_code(line)]


def _is_code(line: InsideLine) -> bool:
    return bool(line.times) and line.text.strip("{}(); ") != ""


def executions(code: Code, inlined: list[Chain], launch: LaunchReport, times: dict) -> dict[int, float]:
    """{basic block: how often warps executed it}, modelled."""
    shares = _shares(inlined, times)
    by_memory = _by_memory(code, inlined, launch, shares)
    in_block: dict[int, list[float]] = defaultdict(list)
    loads: dict[int, list[float]] = defaultdict(list)
    for instruction, chain in zip(code.instructions, inlined):
        if chain in shares:
            in_block[instruction.block].append(by_memory.get(chain) or shares[chain])
        if instruction.kind in CLASSES.values() and chain in by_memory and "@" not in instruction.text:
            loads[instruction.block].append(by_memory[chain])
    found, last = {}, 0.0
    for block in range(code.instructions[-1].block + 1 if code.instructions else 0):
        if block in code.rare:
            found[block] = 0.0
            continue
        if in_block[block]:
            last = _of_block(in_block[block], sorted(loads[block]))
        found[block] = last
    return found


def _of_block(entered: list[float], loads: list[float]) -> float:
    """Of one basic block: `entered` per instruction, how often its line was; `loads` per load or store."""
    some = sorted(filter(None, entered))
    if 2 * len(some) <= len(entered) or loads and not loads[-1]:     # its lines, or its loads, never ran
        return 0.0
    middle = loads[len(loads) // 2] if loads else 0.0
    colder = sum(times < middle / 1.9 for times in some)
    if middle and colder <= 0.3 * len(some):
        return min(middle, some[-1])
    return some[len(some) // 10]             # not the very least: an address of another loop may stray in


def _shares(inlined: list[Chain], times: dict) -> dict[Chain, float]:
    """How often each chain of lines was entered: a helper's count is dealt to its callers by theirs."""
    callers: dict[Place, set[Chain]] = defaultdict(set)
    for chain in inlined:
        for i in range(len(chain)):
            callers[chain[i]].add(chain[i + 1:])
    known: dict[Chain, float] = {}

    def share(chain: Chain) -> float:
        if chain not in known:
            entered = times[chain[0]].warps if chain[0] in times else 0
            known[chain] = _deal(chain, entered, callers[chain[0]], share)
        return known[chain]

    return {chain: share(chain) for chain in set(inlined) if chain != (NOWHERE,)}


def _deal(chain: Chain, entered: float, callers: set[Chain], share) -> float:
    """The part of `entered` that is due to the callers of this chain."""
    above = [other for other in callers if other]
    if len(chain) == 1 or not above:
        return entered
    total = sum(map(share, above))
    return entered * share(chain[1:]) / total if total else 0.0


def _by_memory(code: Code, inlined: list[Chain], launch: LaunchReport, shares: dict) -> dict[Chain, float]:
    """How often one load or store of a chain of lines is executed, on average over its copies."""
    asked: dict[tuple[Place, str], float] = defaultdict(float)       # warp requests times bytes per lane
    found = launch._result.places([s["pc"] for s in launch._result.sites])
    for site in launch._result.sites:
        if site["operation"] in CLASSES and site["lanes"]:
            key = found[site["pc"]], CLASSES[site["operation"]]
            asked[key] += site["requests"] * site["bytes"] / site["lanes"]
    width: dict[tuple[Chain, str], int] = defaultdict(int)
    for instruction, chain in zip(code.instructions, inlined):
        if instruction.kind in CLASSES.values() and instruction.block not in code.rare and shares.get(chain):
            width[chain, instruction.kind] += instruction.bytes
    totals: dict[tuple[Place, str], float] = defaultdict(float)
    for chain, kind in width:
        totals[chain[0], kind] += shares[chain]
    rates: dict[Chain, float] = {}
    for (chain, kind), bytes_wide in width.items():
        if not asked.get((chain[0], kind)) and _near(chain[0], kind, asked, totals):
            continue
        part = asked[chain[0], kind] * shares[chain] / totals[chain[0], kind]
        rates[chain] = max(rates.get(chain, 0.0), min(part / bytes_wide, shares[chain]))
    return rates


def _near(place: Place, kind: str, asked: dict, totals: dict) -> bool:
    """Whether a line nearby was counted but has no such instruction: the two compilers then give the parts of
    one statement to different lines."""
    lines = [Place(place.file, place.line + by) for by in (-2, -1, 1, 2)]
    return any(asked.get((line, kind)) and (line, kind) not in totals for line in lines)


def _say(code: Code, where: list[Place], found: dict[Place, InsideLine], per_block: dict[int, float]) -> None:
    """What the compiler did to each line, in words."""
    rates: dict[Place, list[float]] = defaultdict(list)
    for instruction, place in zip(code.instructions, where):
        if instruction.block not in code.rare:
            rates[place].append(per_block[instruction.block])
    for place, line in found.items():
        if not line.sass:
            if line.times:
                line.notes.append("merged into other lines or removed")
            continue
        if not place.line:
            line.notes.append("no line of the source")
            continue
        if any(i.block in code.rare for i, p in zip(code.instructions, where) if p == place):
            line.notes.append("slow path not counted")
        line.notes += _unrolled(line, rates[place])
        for kind in ("local load", "local store"):
            if line.kinds[kind]:
                line.notes.append(f"{kind}s: spilled, or an array indexed at run time")


def _unrolled(line: InsideLine, rates: list[float]) -> list[str]:
    notes, most = [], max(rates, default=0)
    if line.times and most and line.times / most >= 1.9:
        notes.append(f"unrolled about {line.times / most:.0f} times")
    early = sum(rate < most / 1.9 for rate in rates)
    if most and early:
        notes.append(f"{early} of {len(rates)} instructions moved out of the loop, or for its remainder")
    return notes
