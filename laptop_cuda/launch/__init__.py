"""One launch on the CPU: arguments into C structures, the runtime's answer back out.

The structures mirror `include/engine.h`; the runtime is a library built once."""
# over the guide: one launch, both directions
import ctypes
import functools
import threading
from contextlib import contextmanager
from ctypes import POINTER, c_int32, c_void_p
from dataclasses import dataclass

from .. import memory
from ..arguments import arrays
from ..arguments.c_types import CAddress, CArray, CLaunch, CLimit, CResult, CStorage
from ..arguments.inputs import Inputs, Keeper
from ..arguments.pointers import in_values, may_hold, with_reached
from ..machine import REAL, Machine
from .answers import Family, finish
from .library import held
from .result import LaunchResult

PLAIN, PROFILE, SANITIZE = 0, 1, 2             # flags
ORDERS = {"forward": 0, "late": 0, "reverse": 1, "seeded": 2, "early": 3}
STEP_LIMIT = 100_000_000         # basic blocks per thread block under the sanitizer: ten seconds

@dataclass
class Context:
    """An open `profile()` or `sanitize()`; the innermost one decides."""
    mode: str                    # "profile", "sanitize" or "both"
    order: str = "forward"
    seed: int = 0
    step_limit: int = STEP_LIMIT
    machine: Machine = REAL
    limit: CLimit | None = None          # of time, of all launches
    done: object = None          # called with each LaunchResult
    keeper: Keeper | None = None         # of what launches were given; without one they cannot be replayed


_contexts: list[Context] = []


def current() -> Context:
    """What is asked for now."""
    return _contexts[-1] if _contexts else Context("plain")


def mode() -> str:
    """"plain", "profile", "sanitize" or "both": which build a launch needs. All but "plain" are traced."""
    return current().mode


@contextmanager
def context(made: Context):
    if made.order not in ORDERS:
        raise ValueError(f"order is one of {', '.join(ORDERS)}, got {made.order!r}")
    made.seed, made.step_limit = int(made.seed), int(made.step_limit)        # 1e9 is how one writes it
    _contexts.append(made)
    try:
        yield
    finally:
        _contexts.remove(made)


_one_at_a_time = threading.Lock()         # the core's runtime and the whole one each catch signals


@functools.lru_cache(maxsize=None)
def _runtime(library: str):
    """(run, free) of the runtime that a kernel's library was linked with."""
    handle = ctypes.CDLL(library)
    handle.laptop_run.argtypes, handle.laptop_run.restype = [POINTER(CLaunch)], POINTER(CResult)
    handle.laptop_free.argtypes, handle.laptop_free.restype = [POINTER(CResult)], None
    return handle.laptop_run, handle.laptop_free


def run(*, entry, kernel: str, grid, block, shared_bytes: int, params, values, library, source: str,
        source_name: str = "source.cu", launch_bounds: int = 0, shared_limit: int = 48 << 10,
        files: dict[str, str] | None = None, defines: tuple = (), cluster=((0, 0, 0), 0)) -> LaunchResult:
    """Runs one kernel to its end. `values` are arrays, None, or a value's bytes, one for each of `params`.

    `files` are the texts of the source and of the files beside it that it includes, by name, for messages."""
    laptop_run, laptop_free = _runtime(str(library))
    family = Family()
    now = current()
    keep = []                    # what C points at must live until it returns
    n_args = len(params)
    if now.mode != "plain":
        params, values = with_reached(params, values)
    launch = _describe(entry, kernel, grid, block, shared_bytes, params, values, library, launch_bounds,
                       now, keep)
    launch.n_args = n_args
    launch.cluster[:], launch.cluster_limit = cluster
    launch.shared_limit = now.machine.shared_bytes or shared_limit
    result = LaunchResult(kernel, tuple(grid), tuple(block), library, {source_name: source} | (files or {}),
                          launch.shared_limit, now.machine, defines, dynamic_shared=shared_bytes)
    if now.keeper:
        result.inputs = Inputs(launch, keep, now.keeper, held(library))
    arrays_of = [v for p, v in zip(params, values) if p.kind == "pointer"]
    launch.child_done = family.listen(result, arrays_of)
    with _one_at_a_time:
        answer = laptop_run(ctypes.byref(launch))
    launch.child_done = None
    try:
        finish(result, answer.contents, arrays_of)
    finally:
        laptop_free(answer)
    family.check()
    for ended in [result, *family.children] if now.done else ():
        now.done(ended)
    return result


def _describe(entry, kernel, grid, block, shared_bytes, params, values, library, launch_bounds, now,
              keep) -> CLaunch:
    found = _arrays(params, values, now.mode == "plain")
    ranges = allocations(found)
    c_storages = _storages(found, ranges, now.mode != "plain", keep)
    c_arrays, arg_array, pointers = [], [], []
    for parameter, value, array in zip(params, values, found):
        if parameter.kind == "pointer":
            arg_array.append(len(c_arrays))
            c_arrays.append(_array(parameter, array, ranges))
            cell = c_void_p()
        else:
            arg_array.append(-1)
            cell = ctypes.create_string_buffer(value, len(value))
        keep.append(cell)
        pointers.append(ctypes.addressof(cell))
    launch = CLaunch()
    launch.entry, launch.kernel = ctypes.cast(entry, c_void_p), kernel.encode()
    launch.grid[:], launch.block[:] = grid, block
    launch.shared_bytes = shared_bytes
    launch.args = (c_void_p * max(len(pointers), 1))(*pointers)
    launch.n_args = len(pointers)
    launch.arg_array = (c_int32 * max(len(arg_array), 1))(*arg_array)
    launch.arrays = (CArray * max(len(c_arrays), 1))(*c_arrays)
    launch.n_arrays = len(c_arrays)
    launch.storages = (CStorage * max(len(c_storages), 1))(*c_storages)
    launch.n_storages = len(c_storages)
    inside = in_values(params, values) if now.mode != "plain" else []
    launch.addresses = (CAddress * max(len(inside), 1))(
        *(CAddress(argument, at, len(values[argument]), *target) for argument, at, *target in inside))
    launch.n_addresses = len(inside)
    launch.mode = MODES[now.mode]
    launch.order, launch.seed, launch.step_limit = ORDERS[now.order], now.seed, now.step_limit
    for name in ("banks", "bank_bytes", "sector_bytes", "warp_size"):
        setattr(launch, name, getattr(now.machine, name))
    launch.limit = ctypes.pointer(now.limit) if now.limit else None
    launch.max_threads = launch_bounds
    launch.library = str(library).encode()
    return launch


def _arrays(params, values, plain: bool) -> list[arrays.Array | None]:
    """Those of the pointers. Empty ones of a plain launch are null: NumPy's lie beside other memory."""
    found = [arrays.of(v) if p.kind == "pointer" and v is not None else None for p, v in zip(params, values)]
    return [a if a is None or a.high > a.low else None for a in found] if plain else found


def allocations(found: list[arrays.Array | None]) -> list[tuple[int, int]]:
    """The allocations behind the arrays, as (low, high). Those that overlap are one."""
    ranges: list[tuple[int, int]] = []
    for low, high in sorted({(a.low, a.high) for a in found if a is not None}):
        if ranges and low < ranges[-1][1]:
            low, high = ranges[-1][0], max(high, ranges.pop()[1])
        ranges.append((low, high))
    return ranges


def allocation_of(array: arrays.Array, ranges: list[tuple[int, int]]) -> int:
    return next(i for i, (low, high) in enumerate(ranges) if low <= array.low and array.high <= high)


def _storages(found: list[arrays.Array | None], ranges: list[tuple[int, int]], traced: bool,
              keep: list) -> list[CStorage]:
    c_storages = []
    for low, high in ranges:
        inside = [a for a in found if a is not None and low <= a.low and a.high <= high]
        alone = all((a.low, a.high) == (low, high) for a in inside)
        written = memory.initialised(inside[0].given) if traced and alone else None
        keep += [*(a.given for a in inside), written]
        c_storages.append(CStorage(low, high - low, None if written is None else arrays.address(written)))
    return c_storages


def _array(parameter, array: arrays.Array | None, ranges: list[tuple[int, int]]) -> CArray:
    if array is None:
        return CArray(parameter.name.encode(), parameter.dtype.encode(), parameter.itemsize, -1)
    storage = allocation_of(array, ranges)
    dtype = b"pointers" if may_hold(parameter) else array.dtype.encode()
    made = CArray(parameter.name.encode(), dtype, array.itemsize, storage,
                  array.address - ranges[storage][0], array.bytes, min(len(array.shape), 8))
    made.shape[:made.ndim] = array.shape[:8]
    return made


MODES = {"plain": PLAIN, "profile": PROFILE, "sanitize": SANITIZE, "both": PROFILE | SANITIZE}
