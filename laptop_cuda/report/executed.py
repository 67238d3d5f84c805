"""How often warps executed each source line, from the basic blocks that a profiled launch counted.

The runtime counts by program counter. The disassembler of the machine's own toolchain (objdump) tells which
lines the code between two of the counting hooks belongs to."""
import functools
import re
import shutil
import subprocess
from dataclasses import dataclass

from ..toolchain.lines import Place, place_of

HOOK, EXIT = "__sanitizer_cov_trace_pc", "__tsan_func_exit"
FUNCTION = re.compile(r"^([0-9a-f]+) <(.+)>:$")
CODE = re.compile(r"^\s*([0-9a-f]+):\s+(\S.*)$")
LINE = re.compile(r"^;?\s*(\S.*:\d+)(?: \(discriminator \d+\))?$")


@dataclass(frozen=True)
class Executed:
    """Of one source line, summed over the warps: how often it was entered, and by how many lanes in all."""
    warps: int
    lanes: int


@dataclass
class Block:
    """A basic block of the traced build."""
    function: str
    pc: int
    lines: set[Place]
    leaves: bool = False         # it ends the function: g++ gives it the line of the last statement


@functools.lru_cache(maxsize=16)
def _blocks(library: str, names: tuple[str, ...]) -> list[Block]:
    tool = shutil.which("objdump") or shutil.which("llvm-objdump")
    if tool is None:
        return []
    command = [tool, "-d", "-l", "--no-show-raw-insn", library]
    return read_blocks(subprocess.run(command, capture_output=True, text=True).stdout, names)


def read_blocks(text: str, names: tuple[str, ...]) -> list[Block]:
    """The basic blocks of a disassembled library: each begins behind a call of the hook."""
    found: list[Block] = []
    function, place, hooked = "", None, False
    lines: set[Place] = set()        # of the block that is being read, or of what precedes a function's first
    for row in text.splitlines():
        if head := FUNCTION.match(row):
            function, place, hooked, lines = head[2], None, False, set()
        elif code := CODE.match(row):
            if hooked:                       # the instruction behind the call: the address that was counted
                before = found[-1] if found and found[-1].function == function else None
                lines = set() if before else lines
                found.append(Block(function, int(code[1], 16), lines, bool(before and before.leaves)))
            hooked = HOOK in code[2]
            if EXIT in code[2] and found and found[-1].function == function:
                found[-1].leaves = True
            if place is not None and not hooked:
                lines.add(place)
        elif where := LINE.match(row):
            place = place_of(where[1], names)
            place = place if place.line else None
    return found


def by_line(result) -> dict[Place, Executed]:
    """{line: how often} of a LaunchResult. A line of several blocks, a loop's head, counts its busiest."""
    counts = {pc: Executed(warps, lanes) for pc, warps, lanes in result.executed}
    of_line: dict[tuple[str, Place], list[Block]] = {}
    for block in _blocks(str(result.library), tuple(result.files)):
        for place in block.lines:
            of_line.setdefault((block.function, place), []).append(block)
    found: dict[Place, Executed] = {}
    for (_, place), blocks in of_line.items():       # several functions: a helper's instances
        stays = [b for b in blocks if not b.leaves] or blocks
        most = max((counts[b.pc] for b in stays if b.pc in counts), key=lambda e: (e.warps, e.lanes),
                   default=Executed(0, 0))
        before = found.get(place, Executed(0, 0))
        found[place] = Executed(before.warps + most.warps, before.lanes + most.lanes)
    return {place: executed for place, executed in found.items() if executed.warps}
