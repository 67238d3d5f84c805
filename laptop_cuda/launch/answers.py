"""What the runtime answers after a launch: counts, errors as exceptions, and its kernels' launches."""
import ctypes
import sys
from ctypes import POINTER, c_void_p

from ..arguments import arrays
from ..arguments.c_types import CLaunch, CParent, CRequest, CResult, CSite
from ..machine import REAL, Machine
from .result import LaunchResult, Memory, Parent

SPACES = ("global", "shared", "module")


def read_memories(result: LaunchResult, c: CResult, values: list) -> None:
    for i in range(c.n_memories):
        m = c.memories[i]
        made = Memory(m.name.decode(), SPACES[m.space], m.itemsize, m.bytes, m.offset)
        if 0 <= m.parameter < len(values) and values[m.parameter] is not None:
            value = values[m.parameter]
            made.dtype, made.shape = arrays.dtype_of(value), tuple(value.shape)
        result.memories.append(made)


def read_result(result: LaunchResult, c: CResult, arrays_of: list) -> None:
    """The runtime's counts; `arrays_of` are the arrays, in the order of the pointers among the parameters."""
    read_memories(result, c, arrays_of)
    for i in range(c.n_sites):
        site = c.sites[i]
        made = {name: getattr(site, name) for name, _ in CSite._fields_}
        bits = ctypes.string_at(site.unique, 8 * c.n_unique) if site.unique and c.n_unique else b""
        made["unique"] = int.from_bytes(bits, "little")
        result.sites.append(made)
    if c.n_requests:
        result.raw_requests = ctypes.string_at(c.requests, c.n_requests * ctypes.sizeof(CRequest))
    result.unique_sectors = list(c.unique_sectors)
    result.atomic_addresses = sum(c.atomic_addresses)
    result.barriers, result.steps, result.divergent_steps = c.barriers, c.steps, c.divergent_steps
    result.longest_thread, result.longest_warp = c.longest_thread, c.longest_warp
    result.stack_bytes = c.stack_bytes
    result.shared_bytes = c.shared_bytes
    result.checked_blocks = c.checked_blocks
    result.shown_blocks = tuple(c.checked[: min(c.checked_blocks, 3)])
    result.executed = [(s.pc, s.warps, s.lanes) for s in c.executed[: c.n_executed]]


def finish(result: LaunchResult, c: CResult, arrays_of: list) -> None:
    """What the runtime answers: into the result, or as an exception."""
    from ..report import kernel_error
    read_result(result, c, arrays_of)
    if c.printed:
        sys.stdout.write(c.printed.decode(errors="replace"))
    if c.interrupted:
        raise KeyboardInterrupt
    if c.error.kind:
        if result.inputs:
            result.inputs.keep_now()         # a launch that fails leaves its arrays as they were
        raise kernel_error(c.error, result)
    result.notes = [kernel_error(c.notes[i], result) for i in range(c.n_notes)]


class Family:
    """The launches that the kernel of one launch makes, and their children's."""

    def __init__(self):
        self.children: list[LaunchResult] = []
        self.error = None

    def listen(self, parent: LaunchResult, arrays_of: list) -> c_void_p:
        """What the runtime calls after each child, as C wants it."""
        from ..report import KernelError

        def done(c_launch, c_result):
            made = result_of(c_launch.contents, parent.library, parent.files, parent.machine)
            try:
                finish(made, c_result.contents, arrays_of)
            except (KernelError, KeyboardInterrupt) as error:        # it cannot pass through C
                self.error = self.error or error
            self.children.append(made)
        self.callback = DONE(done)           # C holds only its address
        return ctypes.cast(self.callback, c_void_p)

    def check(self) -> None:
        if self.error:
            raise self.error


DONE = ctypes.CFUNCTYPE(None, POINTER(CLaunch), POINTER(CResult))


def result_of(launch: CLaunch, library, files: dict[str, str], machine: Machine = REAL) -> LaunchResult:
    """An empty result of a launch that C describes."""
    made = LaunchResult(launch.kernel.decode(), tuple(launch.grid), tuple(launch.block), library, files,
                        launch.shared_limit, machine, dynamic_shared=launch.shared_bytes)
    if launch.parent:
        parent = ctypes.cast(launch.parent, POINTER(CParent)).contents
        place = made.places([parent.who.pc])[parent.who.pc]
        made.launched_by = Parent(
            parent.kernel.decode(), place.file, place.line or parent.line, tuple(parent.grid),
            tuple(parent.block), tuple(parent.who.block), tuple(parent.who.thread), parent.depth)
    return made
