"""A launch as the metrics of NVIDIA's profiler, by their names: each by definition, or not known."""
import math
import re
from dataclasses import astuple, dataclass, replace
from itertools import product

from ..machine import REAL
from ..occupancy import LIMITS, occupancy

EXACT, COMPILED, UNKNOWN = "exact", "as compiled", "not known here"
WRITTEN = "as written"
# The card counts these copies and fragments elsewhere, or in a layout that NVIDIA does not publish.
ELSEWHERE = re.compile(r"cp\.async|memcpy_async|\bwmma\b|cp_async|wgmma")
LAUNCH, OCCUPANCY, TABLES, LINES = ("Launch Statistics", "Occupancy", "Memory Workload Analysis Tables",
                                    "Source Counters")
LIMITED = {"blocks": "blocks", "registers": "registers", "shared_mem": "shared memory", "warps": "warps"}
SECTORS = ("memory_l2_theoretical_sectors_global", "memory_l1_wavefronts_shared",
           "memory_l1_wavefronts_shared_ideal", "derived__memory_l1_wavefronts_shared_excessive")
# section: (name on the details page, metric, unit) of what only a card can tell
ON_A_CARD = {
    "GPU Speed Of Light Throughput": [
        ("Duration", "gpu__time_duration.sum", "ns"), ("Elapsed Cycles", "sm__cycles_elapsed.max", "cycle"),
        ("Memory Throughput", "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "%"),
        ("Compute (SM) Throughput", "sm__throughput.avg.pct_of_peak_sustained_elapsed", "%")],
    "Memory Workload Analysis": [
        ("L1/TEX Hit Rate", "l1tex__t_sector_hit_rate.pct", "%"),
        ("L2 Hit Rate", "lts__t_sector_hit_rate.pct", "%"),
        ("DRAM Read", "dram__bytes_read.sum", "byte"), ("DRAM Write", "dram__bytes_write.sum", "byte")],
    "Instruction Statistics": [
        ("Executed Instructions", "smsp__inst_executed.sum", "inst"),
        *((f"{op.upper()} Thread Instructions", f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum", "inst")
          for op in ("fadd", "fmul", "ffma"))],
    "Warp State Statistics": [(f"Stall {why.title().replace('_', ' ')}",
                               f"smsp__average_warps_issue_stalled_{why}_per_issue_active.ratio", "inst")
                              for why in ("long_scoreboard", "short_scoreboard", "barrier", "mio_throttle")]}


@dataclass(frozen=True)
class Metric:
    section: str
    label: str                   # its name on the details page
    name: str
    unit: str
    value: int | float | None
    known: str
    note: str = ""

    @property
    def shown(self) -> str:
        return "n/a" if self.value is None else f"{self.value:,.6g}" if self.value % 1 else f"{self.value:,.0f}"


def counted(launch, inside: dict | None = None) -> dict:
    """One launch as plain data; `inside` is what `inspect` found in its kernel."""
    if (launch.machine.banks, launch.machine.bank_bytes, launch.machine.sector_bytes,
            launch.machine.warp_size) != (REAL.banks, REAL.bank_bytes, REAL.sector_bytes, REAL.warp_size):
        raise ValueError(f"ncu: {launch.kernel} was counted on {launch.machine}; a card has {REAL}")
    rows = [[line.file, line.line, line.global_load.sectors + line.global_store.sectors,
             line.shared_load.wavefronts + line.shared_store.wavefronts,
             line.shared_load.excess + line.shared_store.excess, line.text] for line in launch.lines]
    made = {"kernel": launch.kernel, "grid": launch.grid, "block": launch.block, "cc": "n/a",
            "dynamic_shared": launch._result.dynamic_shared, "lines": [r for r in rows if r[2] or r[3]],
            "metrics": [astuple(m) for m in [*_launched(launch), *_joined(launch, inside)]]}
    return with_inside(made, inside)


def with_inside(made: dict, inside: dict | None) -> dict:
    """With registers and occupancy as compiled, or by name as not known."""
    block = math.prod(made["block"])
    arch = inside["arch"].rstrip("af") if inside else ""
    held = inside and arch in LIMITS and occupancy(arch, inside["registers"], block,
                                                   inside["static_shared"] + made["dynamic_shared"])
    def one(section, label, name, unit, value):
        return Metric(section, label, name, unit, None if value is None else value,
                      UNKNOWN if value is None else COMPILED, f"for {arch}" if value is not None else "")
    found = [one(LAUNCH, "Registers Per Thread", "launch__registers_per_thread", "register/thread",
                 inside["registers"] if inside else None),
             one(LAUNCH, "Static Shared Memory Per Block", "launch__shared_mem_per_block_static", "byte/block",
                 inside["static_shared"] if inside else None),
             one(LAUNCH, "Driver Shared Memory Per Block", "launch__shared_mem_per_block_driver", "byte/block",
                 LIMITS[arch].shared_reserved if held else None)]
    found += [one(LAUNCH, label, name, unit, None) for label, name, unit in (
        ("Shared Memory Configuration Size", "launch__shared_mem_config_size", "byte"),
        ("Waves Per SM", "launch__waves_per_multiprocessor", ""))]
    found += [one(OCCUPANCY, f"Block Limit {key.title().replace('_', ' ')}", f"launch__occupancy_limit_{key}",
                  "block", held.by[name] if held else None) for key, name in LIMITED.items()]
    found += [one(OCCUPANCY, "Theoretical Active Warps per SM", "sm__maximum_warps_avg_per_active_cycle", "warp",
                  held.warps if held else None),
              one(OCCUPANCY, "Theoretical Occupancy", "sm__maximum_warps_per_active_cycle_pct", "%",
                  100 * held.share if held else None),
              one(OCCUPANCY, "Achieved Occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active", "%", None)]
    kept = [Metric(*m) for m in made["metrics"]]
    new = {m.name: m for m in found}
    metrics = [m for m in kept if m.name not in new] + found
    order = [LAUNCH, OCCUPANCY, TABLES, LINES, *ON_A_CARD]
    cc = re.sub(r"sm_(\d+)(\d)$", r"\1.\2", arch) or "n/a"
    return made | {"cc": cc, "metrics": [astuple(m) for m in sorted(metrics, key=lambda m: order.index(m.section))]}


def _launched(launch):
    for label, name, unit, value in (
            ("Block Size", "launch__block_size", "", math.prod(launch.block)),
            ("Grid Size", "launch__grid_size", "", math.prod(launch.grid)),
            *((f"{of.title()} Dimension {axis.upper()}", f"launch__{of}_dim_{axis}", "", size[i])
              for of, size in (("grid", launch.grid), ("block", launch.block)) for i, axis in enumerate("xyz")),
            ("Threads", "launch__thread_count", "thread", math.prod(launch.block) * math.prod(launch.grid)),
            ("Dynamic Shared Memory Per Block", "launch__shared_mem_per_block_dynamic", "byte/block",
             launch._result.dynamic_shared)):
        yield Metric(LAUNCH, label, name, unit, value, EXACT)


def _joined(launch, inside: dict | None) -> list[Metric]:
    """The memory's metrics, as compiled where `inside` was joined with the counts of this launch."""
    found = list(_memory(launch))
    asked = getattr(inside, "launch", None) is launch and inside.get("as_compiled") or {}
    written = {"global load": launch.global_load.requests, "global store": launch.global_store.requests,
               "shared load": launch.shared_load.requests, "shared store": launch.shared_store.requests}
    known = {kind: asked.get(kind) or (None if n else (0, 0, 0)) for kind, n in written.items()}
    if not asked:
        return found
    compiled = {}
    for kind in written:
        space, op = kind.replace("load", "ld").replace("store", "st").split()
        base = f"pipe_lsu_mem_global_op_{op}"
        if one := known[kind]:
            compiled[f"smsp__inst_executed_op_{space}_{op}.sum"] = one[0]
            if space == "global":
                compiled |= {f"l1tex__t_requests_{base}.sum": one[0], f"l1tex__t_sectors_{base}.sum": one[1],
                             f"l1tex__average_t_sectors_per_request_{base}.ratio": one[1] / max(one[0], 1)}
    for space, names in (("global", SECTORS[:1]), ("shared", SECTORS[1:])):
        both = [known[f"{space} {op}"] for op in ("load", "store")]
        if None not in both:
            _, units, lost = map(sum, zip(*both))
            compiled |= dict(zip(names, (units,) if space == "global" else (units, units - lost, lost)))
    return [m if m.known != EXACT else
            replace(m, note=f"{WRITTEN}; not told for {inside['arch']}") if m.name not in compiled else
            replace(m, note=f"{WRITTEN}, and compiled so for {inside['arch']}") if compiled[m.name] == m.value else
            replace(m, value=compiled[m.name], known=COMPILED, note=f"for {inside['arch']}; {m.shown} {WRITTEN}")
            for m in found]


def _updates(launch):
    """Global atomics: nvcc makes reductions of those whose value is not used."""
    for op, what in product(("red", "atom"), ("request", "sector")):
        value, name = getattr(launch.global_atomic, f"{what}s"), f"l1tex__t_{what}s_pipe_lsu_mem_global_op_{op}.sum"
        why = f"{value:,} by the addresses, red and atom together; nvcc decides which"
        yield Metric(TABLES, f"Global {op.title()} {what.title()}s", name, what, None if value else 0,
                     UNKNOWN if value else EXACT, why if value else WRITTEN)


def _memory(launch):
    texts = "\n".join(launch._result.files.values())
    apart = "copies and fragments that the card counts elsewhere" if ELSEWHERE.search(texts) else ""
    atomic = "atomics are among its instructions" if launch.atomics else ""
    def one(section, label, name, unit, value, why=""):
        why = why or apart
        return Metric(section, label, name, unit, None if why else value, UNKNOWN if why else EXACT,
                      why or WRITTEN)
    for said, op, of in (("Load", "ld", launch.global_load), ("Store", "st", launch.global_store)):
        base = f"pipe_lsu_mem_global_op_{op}"
        yield one(TABLES, f"Global {said} Instructions", f"smsp__inst_executed_op_global_{op}.sum", "inst",
                  of.requests)
        yield one(TABLES, f"Global {said} Requests", f"l1tex__t_requests_{base}.sum", "request", of.requests)
        yield one(TABLES, f"Global {said} Sectors", f"l1tex__t_sectors_{base}.sum", "sector", of.sectors)
        yield one(TABLES, f"Global {said} Sectors/Req", f"l1tex__average_t_sectors_per_request_{base}.ratio",
                  "sector/request", of.sectors / of.requests if of.requests else 0)
    yield from _updates(launch)
    for said, op, of in (("Load", "ld", launch.shared_load), ("Store", "st", launch.shared_store)):
        matrix = "ldmatrix has a counter of its own" if re.search(r"\b(ld|st)matrix\b", texts) else ""
        yield one(TABLES, f"Shared {said} Instructions", f"smsp__inst_executed_op_shared_{op}.sum", "inst",
                  of.requests, matrix)
        for what, name, count in (("Wavefronts", "data_pipe_lsu_wavefronts", of.wavefronts),
                                  ("Bank Conflicts", "data_bank_conflicts_pipe_lsu", of.excess)):
            yield one(TABLES, f"Shared {said} {what}", f"l1tex__{name}_mem_shared_op_{op}.sum", "", count,
                      f"{count:,} by the addresses; the card adds what it loses to arbitration")
    passes, excess = (sum(getattr(s, n) for s in (launch.shared_load, launch.shared_store))
                      for n in ("wavefronts", "excess"))
    yield one(LINES, "L2 Theoretical Sectors Global", "memory_l2_theoretical_sectors_global", "sector",
              launch.global_load.sectors + launch.global_store.sectors, atomic)
    for label, name, value in (("L1 Wavefronts Shared", "memory_l1_wavefronts_shared", passes),
                               ("L1 Wavefronts Shared Ideal", "memory_l1_wavefronts_shared_ideal", passes - excess),
                               ("L1 Wavefronts Shared Excessive", "derived__memory_l1_wavefronts_shared_excessive",
                                excess)):
        own = f"{value:,} by the addresses; of loads wider than 4 bytes per lane ncu computes it by a rule of its own"
        yield one(LINES, label, name, "", value, atomic or own * launch.wide_loads)
    for section, metrics in ON_A_CARD.items():
        for label, name, unit in metrics:
            yield Metric(section, label, name, unit, None, UNKNOWN)
