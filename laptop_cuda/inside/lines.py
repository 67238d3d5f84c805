"""The machine code of a kernel by source line: what the compiler made of it, and what the engine counted.

Three sources, never mixed: **counted** (engine), **compiled** (nvcc), **modelled** from both (`model.py`)."""
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from ..report import executed
from ..report import LaunchReport, LineReport
from ..toolchain.lines import NOWHERE, Place
from .as_compiled import as_compiled
from .machine_code import Code
from .model import Chain, executions


@dataclass
class InsideLine:
    """One statement, by its first line. What the engine did not count is None."""
    file: str
    line: int
    text: str
    sass: list[str] = field(default_factory=list)                # compiled
    kinds: Counter = field(default_factory=Counter)              # compiled
    times: int | None = None                                     # counted: how often a warp entered the line
    counted: list[LineReport] = field(default_factory=list)
    executed: Counter = field(default_factory=Counter)           # modelled: by kind
    tensor_flops: float = 0.0                                    # modelled
    compiled: dict[str, tuple | None] = field(default_factory=dict)      # by kind, see `as_compiled`
    notes: list[str] = field(default_factory=list)


def statements(files: dict[str, str]) -> dict[Place, Place]:
    """{line: the first line of its statement}: compilers give a statement of several lines to any of them."""
    found = {}
    for name, text in files.items():
        start, open_ = 1, False
        for number, line in enumerate(text.split("\n"), 1):
            line = line.partition("//")[0].strip()
            start = start if open_ else number
            found[Place(name, number)] = Place(name, start)
            head = line.startswith(("for ", "if ", "while ", "} else", "else", "template"))
            open_ = bool(line) and not line.startswith("#") and not line.endswith((";", "{", "}")) and not (
                head and line.endswith((")", "else", ">")))
    return found


def chains(code: Code, names: tuple[str, ...], starts: dict[Place, Place]) -> list[Chain]:
    """The lines of each instruction, without those of the toolkit's headers."""
    def own(path: str) -> str:
        return names[0] if Path(path).name == "source.cu" else Path(path).name
    found = [tuple(Place(own(path), line) for path, line in i.places if own(path) in names) or (NOWHERE,)
             for i in code.instructions]
    return [tuple(starts.get(place, place) for place in chain) for chain in found]


def by_line(code: Code, files: dict[str, str], launch: LaunchReport | None) -> list[InsideLine]:
    """One entry per line that has machine code or was executed, in the order of the files."""
    starts = statements(files)
    inlined = chains(code, tuple(files), starts)
    where = [chain[0] for chain in inlined]
    found: dict[Place, InsideLine] = {}
    times: dict[Place, executed.Executed] = {}
    for place, one in executed.by_line(launch._result).items() if launch else ():
        start = starts.get(place, place)
        times[start] = max(times.get(start, one), one, key=lambda e: e.warps)
    counted: dict[Place, list[LineReport]] = defaultdict(list)
    for line in launch.lines if launch else ():
        counted[starts.get(Place(line.file, line.line), Place(line.file, line.line))].append(line)
    order = {name: i for i, name in enumerate(files)}
    for place in sorted({*where, *times, *counted}, key=lambda p: (order.get(p.file, -1), p.line)):
        text = files.get(place.file, "").split("\n")
        shown = text[place.line - 1].strip() if 0 < place.line <= len(text) else ""
        times_here = (times[place].warps if place in times else 0) if times else None
        found[place] = InsideLine(place.file, place.line, shown, times=times_here, counted=counted[place])
    per_block = executions(code, inlined, launch, times, starts) if times else {}
    for instruction, place in zip(code.instructions, where):
        line = found[place]
        line.sass.append(instruction.text)
        line.kinds[instruction.kind] += 1
        line.executed[instruction.kind] += per_block.get(instruction.block, 0)
        line.tensor_flops += instruction.flops * per_block.get(instruction.block, 0)
    for (place, kind), asked in (as_compiled(code, inlined, starts, launch) if launch else {}).items():
        found[place].compiled[kind] = asked
    if times:
        _say(code, where, found, per_block)
    return [line for line in found.values()
            if line.sass or line.kinds or line.times and line.text.strip("{}(); ")]


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
