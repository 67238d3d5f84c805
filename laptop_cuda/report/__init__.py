"""What a launch did to memory: asked, moved, unique; by launch and by line; as text, HTML, pictures.

Three words, never mixed. **Asked** is what the active lanes asked for, in bytes. **Moved** is 32 bytes for
each sector that a request touched: what is asked of L1, and at most this much goes on to L2. **Unique** is
32 bytes for each sector touched at all, however often: the least to move. Caches are not modelled."""
# over the guide: the counts of a launch, and the tables that show them
import html
from dataclasses import dataclass, field, replace

from .. import packs
from ..arguments.inputs import conflicts, replay, why
from ..errors import KernelError, kernel_error
from ..machine import REAL, Machine
from ..pictures.picture import Picture
from ..pictures.player import play
from ..toolchain.lines import Place
from . import ncu
from .tables import html_table, text_table

__all__ = ["Atomics", "KernelError", "LaunchReport", "LineReport", "Report", "SharedTraffic", "TensorCores", "Traffic",
           "kernel_error"]

LOAD, STORE, SHARED_LOAD, SHARED_STORE, ATOMIC, SHARED_ATOMIC, BARRIER = range(7)
COPY_IN, COPY_OUT, PRODUCT = 9, 10, 11


@dataclass(frozen=True)
class Traffic:
    """Loads or stores of global memory."""
    requests: int = 0            # warp-wide instructions with at least one active lane
    sectors: int = 0             # of 32 bytes, counted once for each request that touches them
    bytes: int = 0               # asked for by the active lanes
    unique_sectors: int = 0      # sectors touched at all
    sector_bytes: int = REAL.sector_bytes

    @property
    def moved(self) -> int:
        """Bytes asked of L1, in whole sectors; at most this much goes on to L2."""
        return self.sector_bytes * self.sectors

    @property
    def unique(self) -> int:
        """Bytes of the sectors touched at all."""
        return self.sector_bytes * self.unique_sectors


@dataclass(frozen=True)
class SharedTraffic:
    """Loads or stores of shared memory."""
    requests: int = 0
    wavefronts: int = 0          # passes over the 32 banks
    excess: int = 0              # of them, because two words of one request are in one bank
    bytes: int = 0


class Atomics(int):
    """How many warp-wide atomic requests; `.operations` counts lanes, `.addresses` distinct global words."""
    operations: int
    addresses: int

    def __new__(cls, requests: int = 0, operations: int = 0, addresses: int = 0):
        made = super().__new__(cls, requests)
        made.operations, made.addresses = operations, addresses
        return made


@dataclass(frozen=True)
class TensorCores:
    """What the tensor cores do: `mma` and `wmma` are instructions of a warp, `wgmma` of four."""
    instructions: int = 0
    flops: int = 0               # 2 m n k for each, of whole numbers too
    wavefronts: int = 0          # of what `wgmma` reads in shared memory: 128 bytes each, never a conflict


def _traffic(sites: list[dict], machine: Machine, unique: int | None = None) -> Traffic:
    if unique is None:
        touched = 0
        for s in sites:
            touched |= s["unique"]
        unique = touched.bit_count()
    requests, sectors, asked = (sum(s[name] for s in sites) for name in ("requests", "sectors", "bytes"))
    return Traffic(requests, sectors, asked, unique, machine.sector_bytes)


def _shared(sites: list[dict]) -> SharedTraffic:
    return SharedTraffic(*(sum(s[name] for s in sites)
                           for name in ("requests", "wavefronts", "excess", "bytes")))


def _atomics(sites: list[dict], addresses: int = 0) -> Atomics:
    return Atomics(sum(s["requests"] for s in sites), sum(s["lanes"] for s in sites), addresses)


def _tensor_cores(sites: list[dict]) -> TensorCores:
    return TensorCores(*(sum(s[name] for s in sites) for name in ("requests", "lanes", "wavefronts")))


@dataclass(frozen=True)
class LineReport:
    """The same counts for one line of the source."""
    file: str                    # the source's name, or that of a file it includes
    line: int
    text: str
    arrays: tuple[str, ...]
    global_load: Traffic
    global_store: Traffic
    shared_load: SharedTraffic
    shared_store: SharedTraffic
    atomics: Atomics
    barriers: int
    copies_in: Traffic           # of bulk and tensor copies, as the launch has them
    copies_out: Traffic
    tensor_cores: TensorCores


class LaunchReport:
    """The counts of one launch."""

    def __init__(self, result):
        self._result = result
        self.kernel, self.grid, self.block = result.kernel, result.grid, result.block
        self.machine = result.machine
        self.launched_by = result.launched_by        # the thread of a kernel; None: Python
        unique = result.unique_sectors
        self.global_load = _traffic(self._of(LOAD), self.machine, unique[LOAD])
        self.global_store = _traffic(self._of(STORE), self.machine, unique[STORE])
        self.shared_load, self.shared_store = _shared(self._of(SHARED_LOAD)), _shared(self._of(SHARED_STORE))
        self.atomics = _atomics(self._of(ATOMIC, SHARED_ATOMIC), result.atomic_addresses)
        # `.sectors` as L1TEX counts them: each as often as most lanes meet at an address in it.
        self.global_atomic = replace(_traffic(self._of(ATOMIC), self.machine, unique[ATOMIC]),
                                     sectors=sum(s["wavefronts"] for s in self._of(ATOMIC)))
        # Bulk and tensor copies: `.requests` is their number; of a tensor's box each row asks for its sectors
        # by itself, up to the tensor's edge.
        self.copies_in = _traffic(self._of(COPY_IN), self.machine, unique[COPY_IN])
        self.copies_out = _traffic(self._of(COPY_OUT), self.machine, unique[COPY_OUT])
        self.tensor_cores = _tensor_cores(self._of(PRODUCT))
        self.barriers = result.barriers              # completed by a block, summed over the blocks
        self.shared_bytes = result.shared_bytes      # of one block, static and dynamic
        # The span: steps of the thread and of the warp that did most, see `legend`.
        self.longest_thread, self.longest_warp = result.longest_thread, result.longest_warp
        self.stack_bytes = result.stack_bytes        # of a thread's variables, unoptimised: do not compare
        # Basic blocks that warps ran, and of them those that not all unfinished lanes ran: they depend on the
        # compiler, so show them, but do not compare them.
        self.steps, self.divergent_steps = result.steps, result.divergent_steps

    def _of(self, *operations: int) -> list[dict]:
        return [s for s in self._result.sites if s["operation"] in operations]

    @property
    def wide_loads(self) -> bool:
        """Whether a lane loads more than 4 bytes of shared memory at once."""
        return any(s["bytes"] > 4 * s["lanes"] for s in self._of(SHARED_LOAD))

    @property
    def lines(self) -> list[LineReport]:
        """One entry for each source line that touched memory or waited, from the top of the file."""
        r = self._result
        found = r.places([s["pc"] for s in r.sites])
        by_place: dict[Place, list[dict]] = {}
        for site in r.sites:
            by_place.setdefault(found[site["pc"]], []).append(site)
        order = {name: i for i, name in enumerate(r.files)}
        return [self._line(p, by_place[p])
                for p in sorted(by_place, key=lambda p: (order.get(p.file, -1), p.line))]

    def _line(self, place: Place, sites: list[dict]) -> LineReport:
        def of(*operations):
            return [s for s in sites if s["operation"] in operations]
        names = dict.fromkeys(self._result.memories[s["memory"]].name for s in sites if s["memory"] >= 0)
        return LineReport(place.file, place.line, self._result.text(place).strip(), tuple(names),
                          _traffic(of(LOAD), self.machine), _traffic(of(STORE), self.machine),
                          _shared(of(SHARED_LOAD)), _shared(of(SHARED_STORE)),
                          _atomics(of(ATOMIC, SHARED_ATOMIC)), sum(s["requests"] for s in of(BARRIER)),
                          _traffic(of(COPY_IN), self.machine), _traffic(of(COPY_OUT), self.machine),
                          _tensor_cores(of(PRODUCT)))

    @property
    def arrays(self) -> dict[str, tuple[Traffic, Traffic]]:
        """{array: (its loads, its stores)} of global memory."""
        return self._by_array(LOAD, STORE)

    @property
    def copied(self) -> dict[str, tuple[Traffic, Traffic]]:
        """{array: (its bulk copies into shared memory, those out of it)}."""
        return self._by_array(COPY_IN, COPY_OUT)

    def _by_array(self, *operations: int) -> dict[str, tuple[Traffic, Traffic]]:
        return {memory.name: tuple(_traffic([s for s in self._of(operation) if s["memory"] == i], self.machine)
                                   for operation in operations)
                for i, memory in enumerate(self._result.memories) if memory.space == "global"}

    def picture(self, name: str, *, warp: int = 0, requests: int = 8) -> Picture:
        """Which lane of block 0 touched which element of an array, in which order."""
        r = self._result
        if r.machine.sector_bytes != REAL.sector_bytes or r.machine.banks != REAL.banks:
            raise ValueError(f"a picture shows {REAL.banks} banks and sectors of {REAL.sector_bytes} bytes")
        found = [i for i, m in enumerate(r.memories) if m.name == name]
        if not found:
            names = ", ".join(dict.fromkeys(m.name for m in r.memories))
            raise ValueError(f"name: {self.kernel} has no array {name!r}; it has {names}")
        kept = [q for q in r.requests if q["memory"] in found and q["warp"] == warp]
        where = r.places([q["pc"] for q in kept[:requests]])
        return Picture(r.memories[found[0]], kept[:requests], [where[q["pc"]].line for q in kept[:requests]],
                       warp, len(kept))

    def conflicts(self, array: str | None = None) -> list:
        """Why its accesses of shared memory lose passes: which lanes meet in which bank, and the padding or
        the exchange that ends it. See `laptop_cuda.why.conflicts`."""
        return conflicts(self._result, array)

    def replay(self, *, blocks=None, events: int | None = None):
        """The launch once more, recorded: its first blocks, some thousand events; `laptop_cuda.replay`."""
        return replay(self._result, None, blocks, events)

    def play(self, *, blocks=None, events: int | None = None) -> None:
        """The replay as a picture that a person steps through; see `laptop_cuda.pictures.player`."""
        play(self.replay(blocks=blocks, events=events))

    def timeline(self, block=0, order: str = ""):
        """Who waits for whom in one block, in logical steps. See `laptop_cuda.asynchronous.timeline`."""
        return packs.part("asynchronous.timeline").timeline(self._result, None, block, order)

    def _rows(self) -> list[tuple[str, str, str, str, str, str]]:
        rows = []
        for name, t in (("global loads", self.global_load), ("global stores", self.global_store),
                        ("copies in", self.copies_in), ("copies out", self.copies_out)):
            if t.requests:
                rows.append((name, f"{t.requests:,}", f"{t.bytes:,}", f"{t.moved:,}", f"{t.unique:,}",
                             _waste(t)))
        for name, s in (("shared loads", self.shared_load), ("shared stores", self.shared_store)):
            if s.requests:
                rows.append((name, f"{s.requests:,}", f"{s.bytes:,}", _passes(s.wavefronts), "",
                             f"{_passes(s.excess)} lost to bank conflicts" if s.excess else "no bank conflicts"))
        if self.atomics:
            rows.append(("atomics", f"{int(self.atomics):,}", f"{self.atomics.operations:,} operations", "",
                         "", ""))
        if self.tensor_cores.instructions:
            passes = self.tensor_cores.wavefronts
            rows.append(("tensor cores", f"{self.tensor_cores.instructions:,}", "", _passes(passes) if passes else "", "",
                         f"{self.tensor_cores.flops:,} FLOPs"))
        if self.barriers:
            rows.append(("barriers", f"{self.barriers:,}", "", "", "", ""))
        if self.longest_thread:
            rows.append(("longest thread", _steps(self.longest_thread), "", "", "",
                         f"{_steps(self.longest_warp)} of the longest warp"))
        return rows

    def _line_rows(self) -> list[tuple[str, str, str, str, str, str]]:
        rows = []
        for line in self.lines:
            traffic = (line.global_load, line.global_store, line.copies_in, line.copies_out)
            asked, moved = sum(t.bytes for t in traffic), sum(t.moved for t in traffic)
            excess = line.shared_load.excess + line.shared_store.excess
            passes = line.shared_load.wavefronts + line.shared_store.wavefronts
            shared = f"{passes:,}" + (f" ({excess:,} from conflicts)" if excess else "") if passes else ""
            place = str(line.line) if line.line else "?"
            if self._result.in_included_file(Place(line.file, line.line)):
                place = f"{line.file}:{line.line}"
            more = [f"{line.tensor_cores.flops:,}" if line.tensor_cores.flops else ""] * bool(self.tensor_cores.flops)
            rows.append((place, f"{asked:,}" if asked else "", f"{moved:,}" if moved else "",
                         shared, f"{int(line.atomics):,}" if line.atomics else "", *more, line.text))
        return rows

    HEAD = ("", "requests", "asked (bytes)", "moved (bytes)", "unique (bytes)", "in words")

    @property
    def _line_head(self) -> tuple[str, ...]:
        return ("line", "asked", "moved", "shared passes", "atomics", *["FLOPs"] * bool(self.tensor_cores.flops),
                "source")

    def _configuration(self) -> str:
        by = self.launched_by
        of = f", launched by {by.kernel}, line {by.line}" if by else ""
        return f"grid {_size(self.grid)}, block {_size(self.block)}{of}"

    def __str__(self) -> str:
        return "\n".join([f"{self.kernel}, {self._configuration()}", text_table(self.HEAD, self._rows()), "",
                          text_table(self._line_head, self._line_rows())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return (f"<p><b>{html.escape(self.kernel)}</b>, {html.escape(self._configuration())}</p>"
                + html_table(self.HEAD, self._rows())
                + html_table(self._line_head, self._line_rows(), code=True))


@dataclass
class Report:
    """The launches inside one `with cuda.profile()`."""
    launches: list[LaunchReport] = field(default_factory=list)
    uncounted: list[str] = field(default_factory=list)       # kernels of launches for which there was no time

    def add(self, result) -> None:
        if result.checked:
            self.uncounted.append(result.kernel)
        else:
            self.launches.append(LaunchReport(result))

    def why(self, out, index, expected=None):
        """Where the value of an element of `out` (the array, or its name) comes from: which thread stored it,
        from what, and the lines to look at. `expected` are the right values of all of `out`: with them small
        changes of the lines are tried. See `laptop_cuda.why`."""
        return why([launch._result for launch in self.launches], out, index, expected)

    def timeline(self, block=0, order: str = ""):
        """Of the first launch."""
        return self.launches[0].timeline(block, order)

    def ncu(self, *insides) -> ncu.NcuReport:
        """The same under the names of NVIDIA's profiler, as text, CSV and HTML; `insides` are what `inspect`
        returned for the kernels. See `laptop_cuda.report.ncu`."""
        return ncu.of_report(self.launches, insides)

    def __str__(self) -> str:
        return ("\n\n".join(map(str, self.launches)) + "\n\n" + self._legend() if self.launches
                else "no launch on the CPU was counted") + self._without()

    __repr__ = __str__

    def _without(self) -> str:
        names = ", ".join(dict.fromkeys(self.uncounted))
        return f"\nnot counted in time: {len(self.uncounted):,} of {names}; a higher limit would" if names else ""

    def _legend(self) -> str:
        return legend(self.launches[0].machine.sector_bytes)

    def _repr_html_(self) -> str:
        if not self.launches:
            return f"<p>no launch on the CPU was counted{html.escape(self._without())}</p>"
        return ("".join(launch._repr_html_() for launch in self.launches)
                + f"<p><small>{html.escape(self._legend() + self._without())}</small></p>")


def legend(sector_bytes: int = REAL.sector_bytes) -> str:
    return (f"asked: what the lanes asked for; moved: {sector_bytes} bytes for each sector of each request, "
            "asked of L1 (at most this much goes on to L2); unique: each sector once, the least that "
            "memory could move; step: one load, store or atomic operation, one barrier, or one shuffle, vote "
            "or other meeting of lanes.")


def _waste(t: Traffic) -> str:
    said = []
    if t.moved > t.bytes:
        said.append(f"{t.bytes / t.moved:.0%} of what was moved was asked for")
    elif t.moved < t.bytes:
        said.append("lanes shared sectors")
    if t.unique_sectors and t.sectors > t.unique_sectors:
        said.append(f"each sector moved {t.sectors / t.unique_sectors:.3g} times")
    return "; ".join(said) or "nothing wasted"


def _passes(n: int) -> str:
    return f"{n:,} pass{'es' * (n != 1)}"


def _steps(n: int) -> str:
    return f"{n:,} step{'s' * (n != 1)}"


def _size(size: tuple[int, int, int]) -> str:
    used = 3 if size[2] > 1 else 2 if size[1] > 1 else 1
    return " x ".join(map(str, size[:used]))
