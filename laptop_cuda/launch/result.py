"""What a launch left behind, free of C."""
import ctypes
from dataclasses import dataclass, field

from ..arguments.c_types import CRequest
from ..arguments.inputs import Inputs
from ..machine import REAL, Machine
from ..toolchain import lines


@dataclass
class Memory:
    """An array, a shared array or a module's variable, as errors and counts name it."""
    name: str
    space: str                   # "global", "shared", "module"
    itemsize: int
    bytes: int
    offset: int
    dtype: str = ""
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class Parent:
    """The thread of a kernel that made a launch, and where."""
    kernel: str
    file: str
    line: int
    grid: tuple[int, int, int]
    size: tuple[int, int, int]   # of a block
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    depth: int                   # of nesting: 1 if the parent was launched by host code or from Python


@dataclass
class LaunchResult(lines.Texts):
    """What a launch left behind, free of C."""
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    library: object
    # {name: text}: the source and what it includes of the student's own, source first
    files: dict[str, str]
    shared_limit: int            # bytes per block
    machine: Machine = REAL
    defines: tuple[str, ...] = ()        # the macros of its build, as with -D
    memories: list[Memory] = field(default_factory=list)
    sites: list[dict] = field(default_factory=list)
    raw_requests: bytes = b""    # raw request records of block 0; decoded only when a picture is drawn
    unique_sectors: list[int] = field(default_factory=list)
    atomic_addresses: int = 0
    barriers: int = 0
    steps: int = 0
    divergent_steps: int = 0
    longest_thread: int = 0
    longest_warp: int = 0
    stack_bytes: int = 0
    shared_bytes: int = 0        # of one block, in all, of which the launch asked for
    dynamic_shared: int = 0
    executed: list[tuple[int, int, int]] = field(default_factory=list)  # pc, how often warps ran it, lanes
    notes: list = field(default_factory=list)
    checked_blocks: int = 0      # from start to end, where there was a limit of time; some of them:
    shown_blocks: tuple[int, ...] = ()
    inputs: Inputs | None = None         # to run it again
    launched_by: Parent | None = None    # a kernel's thread; None: host code, or Python

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def checked(self) -> str:
        """Which blocks were, in words; "" if all."""
        n, shown = self.checked_blocks, self.shown_blocks
        if n == self.blocks:
            return ""
        if not n:
            return f"none of {self.blocks:,} blocks to its end"
        named = ", ".join(f"{b:,}" for b in shown) + (f" and {n - len(shown):,} others" if n > len(shown) else "")
        return f"block{'s' * (n > 1)} {named} of {self.blocks:,}"

    def places(self, offsets) -> dict[int, lines.Place]:
        """{offset in the library: file and line}."""
        return lines.of(self.library, tuple(self.files), offsets)

    @property
    def requests(self) -> list[dict]:
        """The first requests of block 0: pc, warp, size, operation, memory, and each lane's offset."""
        kept = (CRequest
                * (len(self.raw_requests) // ctypes.sizeof(CRequest))).from_buffer_copy(self.raw_requests)
        return [{name: getattr(r, name) for name, _ in CRequest._fields_} | {"offset": list(r.offset)}
                for r in kept]
