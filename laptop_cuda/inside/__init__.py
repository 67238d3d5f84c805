"""What a GPU's compiler makes of a kernel: registers, occupancy, machine code, beside the engine's counts."""
from collections import Counter

from ..arguments import ArgumentError
from ..kernel import Kernel, Launch
from ..machine import REAL
from ..occupancy import LIMITS, occupancy
from ..report import LaunchReport
from . import machine_code, roofline, toolkit
from .lines import InsideLine, by_line
from .model import CLASSES
from .tables import InsideTables, compared, compared_html
from .toolkit import InspectError

DEFAULT_BLOCK = 256


class Inside(InsideTables, dict):
    """A dict of figures, which a notebook shows as tables; `.lines` is the machine code by source line.

    Keys: kernel, arch, compiler, registers, spill_stores, spill_loads, stack, static_shared, dynamic_shared,
    block, occupancy {blocks, warps, most_warps, share, limited_by, by}; with a disassembler instructions
    {kind: how many}; with a launch as_compiled {kind: (requests, passes or sectors, lost passes)}, None for a
    kind that is not told, and executed {kind: how many warp instructions}; with a card bound."""
    lines: list[InsideLine]
    launch: LaunchReport | None
    missing: str                 # how to get the disassembler, if there is none


class Insides(dict):
    """{architecture: Inside} of one kernel."""

    def __str__(self) -> str:
        return compared(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return compared_html(self)


def inspect(kernel, arch="sm_90", *, block=None, shared_bytes: int = 0, launch: LaunchReport | None = None,
            card: dict | None = None):
    """Compiles a kernel for an architecture, or each of several, and shows the result. No card is needed.

    `kernel` is `mod.name`, `mod["name<64, 32>"]`, or one of them with its `[grid, block, shared_bytes]`.
    `launch` is a launch that `profile()` counted: it brings block, shared memory and counts per line along.
    `card` is the data sheet of a card: then how long each of its pipes is busy is shown."""
    if isinstance(kernel, Launch):
        kernel, block, shared_bytes = kernel.kernel, kernel.block, kernel.shared_bytes
    if not isinstance(kernel, Kernel):
        raise ArgumentError(f"inspect takes a kernel, such as mod.name or mod[\"name<64>\"], got {kernel!r}")
    if kernel.error:
        raise InspectError(f"{kernel.__name__}: its cell does not compile")
    if launch is not None and launch.kernel != kernel.__name__:
        raise ArgumentError(f"launch: it is one of {launch.kernel}, not of {kernel.__name__}")
    if launch is not None and launch.machine.warp_size != REAL.warp_size:
        raise ArgumentError(f"launch: it was counted with warps of {launch.machine.warp_size} lanes; those "
                            f"of a card have {REAL.warp_size}")
    if not isinstance(arch, str):
        same = dict(block=block, shared_bytes=shared_bytes, launch=launch, card=card)
        return Insides({one: inspect(kernel, one, **same) for one in arch})
    made = toolkit.compiled(kernel, arch)
    if launch is not None:
        block, shared_bytes = launch.block, max(launch.shared_bytes - made.static_shared, 0)
    found = _figures(kernel, arch, made, _threads(kernel, block), shared_bytes)
    _look_inside(found, kernel, made, launch)
    if card is not None:
        found["bound"] = roofline.bound(card, found, launch)
    return found


def _threads(kernel: Kernel, block) -> int:
    """Threads per block: as given, else the launch bounds where they are a number, else 256."""
    if block is None:
        bounds = kernel._texts()[0].bounds
        known = kernel.module.constants.get(bounds)
        return int(bounds) if bounds.isdigit() else int(known) if known else DEFAULT_BLOCK
    threads = 1
    for size in block if isinstance(block, (tuple, list)) else (block,):
        threads *= size
    return threads


def _figures(kernel: Kernel, arch: str, made: toolkit.Compiled, threads: int, shared_bytes: int) -> Inside:
    found = Inside(kernel=kernel.__name__, arch=arch, **toolkit.figures(made), dynamic_shared=shared_bytes,
                   block=threads, occupancy=None)
    if arch.rstrip("af") in LIMITS:
        held = occupancy(arch, made.registers, threads, made.static_shared + shared_bytes)
        found["occupancy"] = {"blocks": held.blocks, "warps": held.warps, "most_warps": held.most_warps,
                              "share": held.share, "limited_by": held.limited_by, "by": held.by}
    return found


def _look_inside(found: Inside, kernel: Kernel, made: toolkit.Compiled, launch: LaunchReport | None) -> None:
    found.lines, found.missing, found.launch = [], "", launch
    text = toolkit.disassembled(made)
    if text is None:
        found.missing = f"The machine code is not shown: nvdisasm was not found. `{toolkit.GET}` brings it."
        return
    code = machine_code.read(text, made.symbol)
    module = kernel.module
    files = {module.name: module.source} | {f.path.name: f.text for f in module._files[1:]}
    found.lines = by_line(code, files, launch)
    found["instructions"] = dict(Counter(i.kind for i in code.instructions).most_common())
    if launch is not None:
        total = sum((line.executed for line in found.lines), Counter())
        found["executed"] = {kind: round(n) for kind, n in total.most_common()}
        found["as_compiled"] = {kind: _sum([line.compiled[kind] for line in found.lines if kind in line.compiled])
                                for kind in CLASSES.values()}
        found["tensor_flops"] = round(sum(line.tensor_flops for line in found.lines))


def _sum(asked: list[tuple | None]) -> tuple | None:
    """Of all lines; None if one is not told, or none is known."""
    return None if not asked or None in asked else tuple(map(sum, zip(*asked)))
