"""What a launch was given, to run it again: its arguments, its arrays and its module's variables before it.

A launch inside `profile()` changes its arrays, so they are copied before it, as long as the `profile()` has
bytes left for that; an array that did not change since the launch before is kept once. A launch that fails
leaves its arrays as they were, so they are copied after it."""
import ctypes
import weakref
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from . import arrays
from .c_types import CLaunch, CStorage

KEPT_BYTES = 256 << 20


def replay(result, error, blocks, events: int | None):
    """Runs a LaunchResult again, recorded; `error` is the KernelError that it ended in, or None."""
    check_kept(result)
    keeper = result.inputs.keeper
    return (keeper.replay_error if error else keeper.replay_launch)(result, blocks, events)


def why(results: list, out, index, expected=None):
    """Where an element's value comes from, over the launches of one `profile()`."""
    for result in results or [None]:
        check_kept(result)
    return results[0].inputs.keeper.why(results, out, index, expected)


def conflicts(result, array: str | None):
    """Why a launch's accesses of shared memory lose passes."""
    check_kept(result)
    return result.inputs.keeper.conflicts(result, array)


def check_kept(result) -> None:
    """The launch can run again, or the error says what to do."""
    inputs = result and result.inputs
    if not inputs:
        raise ValueError("the inputs of this launch were not kept, so it cannot be replayed; launch the "
                         "kernel from Python, inside `profile()` or `sanitize()`")
    if not inputs.kept:
        raise ValueError(f"{result.kernel} cannot be replayed: its arrays have {inputs.needed:,} bytes, more "
                         f"than was left for copies; profile(keep={2 * inputs.needed:_}) has room for them")


@dataclass
class Keeper:
    """How many bytes a `profile()` or `sanitize()` may copy, what it has copied, and who replays."""
    bytes_left: int
    at_once: bool
    replay_launch: Callable      # of a LaunchResult, with the blocks and the number of events asked for
    replay_error: Callable
    why: Callable                # of some LaunchResults, with what `report.why` was given
    conflicts: Callable          # of a LaunchResult, with the name of a shared array or None
    # the latest, by (address, size)
    copies: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)

    def copy(self, address: int, size: int) -> np.ndarray | None:
        """The bytes there; None if that is more than may be kept."""
        if not size:
            return np.zeros(0, np.uint8)
        now = np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)
        known = self.copies.get((address, size))
        if known is not None and np.array_equal(known, now):
            return known
        if size > self.bytes_left:
            return None
        self.bytes_left -= size
        self.copies[address, size] = now.copy()
        return self.copies[address, size]


class Inputs:
    """The inputs of one launch."""

    def __init__(self, launch: CLaunch, keep: list, keeper: Keeper, library):
        self.launch, self.keeper = launch, keeper
        self.library = library           # the Library whose variables are in memory, None if it has none
        self.globals = self.library.snapshot() if self.library else {}
        self.owners = [weakref.ref(arrays.owner(k)) for k in keep if arrays.is_array(k)]
        self.storages: list[tuple] | None = None
        self.needed = sum(launch.storages[i].bytes for i in range(launch.n_storages))
        # the values of arguments, at which the launch points; until its arrays are copied, those too
        self.held, self.cells = keep, [k for k in keep if isinstance(k, (ctypes._SimpleCData, ctypes.Array))]
        if keeper.at_once:
            self.keep_now()

    def keep_now(self) -> None:
        """Copies the arrays, if there is room."""
        self.held, copies = [], []
        for i in range(self.launch.n_storages):
            storage = self.launch.storages[i]
            data = self.keeper.copy(storage.host or 0, storage.bytes)
            flags = self.keeper.copy(storage.initialised, storage.bytes) if storage.initialised else None
            if data is None or (storage.initialised and flags is None):
                return
            copies.append((data, flags))
        self.storages = copies

    @property
    def kept(self) -> bool:
        return self.storages is not None

    @contextmanager
    def again(self):
        """A description of the same launch on the copies; afterwards the module's variables are as before."""
        made = CLaunch.from_buffer_copy(self.launch)
        copies = self._with_addresses_of_copies()
        storages = [CStorage(data.ctypes.data, len(data), None if flags is None else flags.ctypes.data)
                    for data, (_, flags) in zip(copies, self.storages)]
        c_storages = (CStorage * max(len(storages), 1))(*storages)
        made.storages = c_storages
        if not self.library:
            yield made
            return
        now = self.library.in_memory()
        after = now.snapshot()
        now.restore(self.globals)
        try:
            yield made
        finally:
            now.restore(after)

    def _with_addresses_of_copies(self) -> list[np.ndarray]:
        """The copies of the arrays; where they hold addresses of others, those of the others' copies."""
        launch, copies = self.launch, [data for data, _ in self.storages]
        hosts = [(launch.storages[i].host or 0, launch.storages[i].bytes) for i in range(len(copies))]
        for array in launch.arrays[:launch.n_arrays]:
            if array.dtype != b"pointers" or array.storage < 0:
                continue
            copies[array.storage] = made = copies[array.storage].copy()
            held = made[array.offset:array.offset + array.bytes // 8 * 8].view(np.uint64)
            before = held.copy()
            for (host, size), (data, _) in zip(hosts, self.storages):
                inside = (before >= host) & (before < host + size)
                held[inside] = before[inside] - np.uint64(host) + np.uint64(data.ctypes.data)
        return copies
