"""One recorded run of a launch: steps of warps and accesses of lanes as NumPy tables, as C gives them."""
import ctypes
import dataclasses
from dataclasses import dataclass

import numpy as np

from .. import launch
from ..launch.answers import read_memories

RECORD = 4
STEP = np.dtype([("block", "u4"), ("warp", "u4"), ("interval", "u4"), ("pc", "u4"), ("lanes", "u4"),
                 ("operation", "i4"), ("memory", "i4"), ("size", "u4"), ("sectors", "u4"),
                 ("wavefronts", "u4"), ("excess", "u4"), ("first_event", "u8"), ("n_events", "u4")],
                align=True)
EVENT = np.dtype([("time", "u8"), ("address", "u8"), ("offset", "i8"), ("memory", "i4"), ("step", "u4"),
                  ("block", "u4"), ("thread", "u4"), ("interval", "u4"), ("pc", "u4"), ("size", "u4"),
                  ("operation", "i4"), ("before", "V16"), ("after", "V16")], align=True)
SPAN = np.dtype([(name, "u4") for name in ("block", "number", "first_step", "n_steps", "ends", "pc")])
MOMENT = np.dtype([("name", "u8"), ("barrier", "u8"), ("offset", "i8"), ("memory", "i4"), ("what", "i4"), ("thread", "u4"),
                   ("pc", "u4"), ("phase", "i4"), ("bytes", "u4")], align=True)


@dataclass(frozen=True)
class Party:
    """One side of an error: a thread, and the access that it was at."""
    block: int                   # the number in the grid, x fastest, as for the thread in its block
    thread: int
    pc: int
    action: int                  # 0 load, 1 store, 2 atomic, 3 barrier


@dataclass
class Recording:
    steps: np.ndarray            # of STEP
    events: np.ndarray           # of EVENT
    cut: bool                    # there was more
    memories: list
    error: object                # a KernelError or None
    parties: tuple[Party, ...]   # of the error
    place: tuple[int, int, int]  # of the error: memory, offset, size
    moments: np.ndarray          # of MOMENT


def record(result, mode: int, *, blocks=None, events: int, watch: tuple[int, int, int] | None = None,
           entry: ctypes.c_void_p | None = None, order: str = ""):
    """Runs the launch of a LaunchResult again. `blocks` are numbers in the grid (None: all); `watch` is
    (array, first byte, byte after the last): then only accesses to those are recorded, and no steps;
    `entry` is another kernel, of the result's library, to run in place of the one that ran; `order` another order."""
    from ..report import kernel_error
    run, free = launch._runtime(str(result.library))
    with result.inputs.again() as c_launch:
        c_launch.mode = mode | launch.PROFILE | RECORD
        if entry is not None:
            c_launch.entry, c_launch.library = entry, str(result.library).encode()
        c_launch.order = launch.ORDERS.get(order, c_launch.order)
        wanted = sorted(blocks or ())
        c_blocks = (ctypes.c_uint32 * max(len(wanted), 1))(*wanted)
        if blocks is not None:
            c_launch.record_blocks, c_launch.n_record_blocks = c_blocks, len(wanted)
        c_launch.record_events = events
        c_launch.watch_array, c_launch.watch_low, c_launch.watch_high = watch or (-1, 0, 0)
        answer = run(ctypes.byref(c_launch))
        try:
            c = answer.contents
            if c.interrupted:
                raise KeyboardInterrupt
            again = launch.LaunchResult(result.kernel, result.grid, result.block, result.library,
                                        result.files, result.shared_limit, result.machine)
            read_memories(again, c, [])
            for memory, known in zip(again.memories, result.memories):      # known there of arguments
                memory.dtype, memory.shape = known.dtype, known.shape
            error = kernel_error(c.error, again) if c.error.kind else None
            return Recording(_table(c.recorded_steps, c.n_recorded_steps, STEP),
                             _table(c.recorded_events, c.n_recorded_events, EVENT), bool(c.cut),
                             again.memories, error, _parties(c.error, result) if error else (),
                             (c.error.memory, c.error.offset, c.error.size),
                             _table(c.moments, c.n_moments, MOMENT))
        finally:
            free(answer)


class _Side(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("block", "thread", "pc")] + [("action", ctypes.c_int32)]


class _Rows(ctypes.Structure):
    """laptop_in_order of engine.h."""
    _fields_ = ([(name, ctypes.c_void_p) for name in ("steps", "events", "spans")]
                + [(name, ctypes.c_uint64) for name in ("n_steps", "n_events", "n_spans")]
                + [("lines", ctypes.c_void_p), ("most", ctypes.c_uint64), ("broken", ctypes.c_int32),
                   ("n_sides", ctypes.c_int32), ("sides", 2 * _Side), ("offset", ctypes.c_int64), ("memory", ctypes.c_int32),
                   ("size", ctypes.c_uint32), ("in_shared", ctypes.c_int32), ("unset", ctypes.c_int32),
                   ("warp_size", ctypes.c_uint32), ("sector_bytes", ctypes.c_uint32), ("first", ctypes.c_uint64),
                   ("refused", ctypes.c_int32), ("n_marked", ctypes.c_int32), ("marked", 2 * ctypes.c_uint64)])


def in_order(recorded: Recording, result, lines: np.ndarray, most: int) -> tuple:
    """Steps by block and interval, which their events follow; the intervals; the events of which the error
    speaks, and the one that was added, as it was refused before it was recorded (-1: none); where to begin.
    `lines` are those of the steps."""
    (memory, offset, size), kind = recorded.place, getattr(recorded.error, "kind", "")
    tables = [np.append(table, np.zeros(1, table.dtype)) for table in (recorded.steps, recorded.events)]
    tables.append(np.zeros(len(tables[0]), SPAN))
    in_shared = memory >= 0 and recorded.memories[memory].space == "shared"
    c = _Rows(*(table.ctypes.data for table in tables), len(recorded.steps), len(recorded.events), 0,
              lines.ctypes.data, most, bool(recorded.cut or kind or most), len(recorded.parties),
              tuple(map(dataclasses.astuple, recorded.parties)), offset, memory, size, in_shared,
              kind == "uninitialized", result.machine.warp_size, result.machine.sector_bytes)
    ctypes.CDLL(str(result.library)).laptop_order(ctypes.byref(c))
    steps, events, spans = (table[:n] for table, n in zip(tables, (c.n_steps, c.n_events, c.n_spans)))
    recorded = dataclasses.replace(recorded, steps=steps, events=events, cut=bool(recorded.cut or most))
    return recorded, spans, list(c.marked[:c.n_marked]), c.n_events - 1 if c.refused else -1, c.first


def _table(address, count: int, kind: np.dtype) -> np.ndarray:
    return np.frombuffer(ctypes.string_at(address, count * kind.itemsize) if count else b"", kind)


def _parties(error, result) -> tuple[Party, ...]:
    asked = [p for p, known in ((error.who, error.has_thread), (error.other, error.has_other)) if known]
    return tuple(Party(number(p.block, result.grid), number(p.thread, result.block), p.pc, p.action)
                 for p in asked)


def number(index, extent) -> int:
    """Of a block in its grid or a thread in its block, x fastest."""
    return int(index[0] + extent[0] * (index[1] + extent[1] * index[2]))


def position(number: int, extent) -> tuple[int, int, int]:
    return number % extent[0], number // extent[0] % extent[1], number // extent[0] // extent[1]
