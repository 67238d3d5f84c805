"""How often warps executed each basic block of the machine code, modelled from the engine's counts per line.

  - An instruction is executed at most as often as its line. A line of a helper that was inlined in several
    places is dealt to them as often as those lines ran.
  - Loads and stores are executed as often as the bytes that the engine counted ask for: where a line has more
    of them than the source has accesses, the compiler unrolled; where fewer or wider ones, it merged.
  - All instructions of a basic block are executed equally often: as its loads and stores; without any, or
    where many of its lines ran less often than those, as the least of its lines, since what else is in the
    block was moved there out of a loop. A block in no loop runs at most once per warp.
  - The slow paths of divisions, roots and shuffles are taken for never executed.

This alone of what `inspect` shows is a model, and is shown as one ("modelled"): its thresholds (a tenth of a
block's lines may be strays, three tenths may be colder than its loads) are chosen, not measured."""
import math
from collections import defaultdict

from ..report import LOAD, SHARED_LOAD, SHARED_STORE, STORE, LaunchReport
from ..toolchain.lines import NOWHERE, Place
from .machine_code import Code, Instruction

CLASSES = {LOAD: "global load", STORE: "global store",
           SHARED_LOAD: "shared load", SHARED_STORE: "shared store"}
Chain = tuple[Place, ...]        # a line of the source's files, then the lines it was inlined at, outwards


def executions(code: Code, inlined: list[Chain], launch: LaunchReport, times: dict, starts: dict) -> dict:
    """{basic block: how often warps executed it}, modelled."""
    shares = _shares(inlined, times)
    in_loop = {b for first, last in code.loops for b in range(first, last + 1)}
    warps = math.prod(launch.grid) * -(-math.prod(launch.block) // 32)
    asked = _asked(launch, starts)
    by_memory = _by_memory(code, inlined, asked, shares, in_loop, warps)
    calls = {chain[i:] for chain in inlined for i in range(1, len(chain))}      # of helpers that were inlined
    in_block: dict[int, list[float]] = defaultdict(list)
    loads: dict[int, list[float]] = defaultdict(list)
    for instruction, chain in zip(code.instructions, inlined):
        if shares.get(chain) or chain in shares and chain not in calls:
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
        found[block] = last if block in in_loop else min(last, warps)
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

    for chain in set(inlined) - {(NOWHERE,)}:
        for i in range(len(chain)):
            share(chain[i:])
    return known


def _deal(chain: Chain, entered: float, callers: set[Chain], share) -> float:
    """The part of `entered` that is due to the callers of this chain."""
    above = [other for other in callers if other]
    if len(chain) == 1 or not above:
        return entered
    total = sum(map(share, above))
    if not total:                    # a call that was inlined may leave no instruction on its own line
        return entered / len(above)
    return entered * share(chain[1:]) / total


def _asked(launch: LaunchReport, starts: dict[Place, Place]) -> dict[tuple[Place, str], float]:
    """{(line, kind): warp requests times the bytes of one lane}, counted."""
    asked: dict[tuple[Place, str], float] = defaultdict(float)
    found = launch._result.places([s["pc"] for s in launch._result.sites])
    for site in launch._result.sites:
        if site["operation"] in CLASSES and site["lanes"]:
            place = found[site["pc"]]
            key = starts.get(place, place), CLASSES[site["operation"]]
            asked[key] += site["requests"] * site["bytes"] / site["lanes"]
    return asked


def _by_memory(code: Code, inlined: list[Chain], asked: dict, shares: dict, in_loop: set, warps: int) -> dict:
    """{chain: how often one of its loads or stores is executed}, on average over the copies in the code."""
    copies: dict[tuple[Chain, str], list[Instruction]] = defaultdict(list)
    chain_of: dict[tuple[Chain, str], set[Chain]] = defaultdict(set)
    for instruction, chain in zip(code.instructions, inlined):
        if instruction.kind in CLASSES.values() and instruction.block not in code.rare and shares.get(chain):
            counted = _counted_part(chain, instruction.kind, asked)
            copies[counted, instruction.kind].append(instruction)
            chain_of[counted, instruction.kind].add(chain)
    totals: dict[tuple[Place, str], float] = defaultdict(float)
    for chain, kind in copies:
        totals[chain[0], kind] += shares[chain]
    rates: dict[Chain, float] = {}
    for (part, kind), same in copies.items():
        due = asked[part[0], kind] * shares[part] / (totals[part[0], kind] or 1)
        rate = min(_each(due, same, in_loop, warps), shares[part] or due)
        for chain in chain_of[part, kind]:
            rates[chain] = max(rates.get(chain, 0.0), rate)
    return rates


def _counted_part(chain: Chain, kind: str, asked: dict) -> Chain:
    """The chain from the line on that the engine counted: for a helper that it inlined, that of the call."""
    return next((chain[i:] for i in range(len(chain)) if asked.get((chain[i], kind))), chain)


def _each(due: float, copies: list[Instruction], in_loop: set[int], warps: int) -> float:
    """How often each copy must run to bring so many bytes; outside the loops, once per warp at most."""
    outside = sum(i.bytes for i in copies if i.block not in in_loop)
    inside = sum(i.bytes for i in copies) - outside
    average = due / (inside + outside)
    return max(average, (due - outside * warps) / inside) if inside and average > warps else average
