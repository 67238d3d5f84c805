"""The structures of `include/engine.h` for ctypes: a launch as C sees it, and the runtime's answer."""
import ctypes
from ctypes import POINTER, c_char_p, c_double, c_int32, c_int64, c_uint32, c_uint64, c_void_p  # noqa: F401

CLASSES = 12                     # LAPTOP_CLASSES


class CStorage(ctypes.Structure):
    _fields_ = [("host", c_void_p), ("bytes", c_uint64), ("initialised", c_void_p)]


class CArray(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_char_p), ("itemsize", c_uint32), ("storage", c_int32),
                ("offset", c_uint64), ("bytes", c_uint64), ("ndim", c_int32), ("shape", c_int64 * 8)]


class CAddress(ctypes.Structure):
    _fields_ = [("argument", c_int32), ("at", c_uint32), ("bytes", c_uint32), ("array", c_int32),
                ("offset", c_uint64)]


class CLimit(ctypes.Structure):
    _fields_ = [("seconds", c_double), ("began", c_double), ("checked", c_double), ("launches", c_uint64)]


class CLaunch(ctypes.Structure):
    _fields_ = [
        ("entry", c_void_p), ("kernel", c_char_p), ("grid", c_uint32 * 3), ("block", c_uint32 * 3),
        ("shared_bytes", c_uint64), ("args", POINTER(c_void_p)), ("n_args", c_int32),
        ("arg_array", POINTER(c_int32)), ("arrays", POINTER(CArray)), ("n_arrays", c_int32),
        ("storages", POINTER(CStorage)), ("n_storages", c_int32), ("mode", c_int32), ("order", c_int32),
        ("seed", c_uint64), ("step_limit", c_uint64), ("max_threads", c_int32), ("shared_limit", c_uint64),
        ("library", c_char_p), ("in_place", c_int32), ("banks", c_uint32), ("bank_bytes", c_uint32),
        ("sector_bytes", c_uint32), ("warp_size", c_uint32), ("record_blocks", POINTER(c_uint32)),
        ("n_record_blocks", c_int32), ("record_events", c_uint64), ("watch_array", c_int32),
        ("watch_low", c_uint64), ("watch_high", c_uint64), ("addresses", POINTER(CAddress)),
        ("n_addresses", c_int32),
        ("parent", c_void_p),            # a CParent
        ("child_done", c_void_p), ("limit", POINTER(CLimit)), ("cluster", c_uint32 * 3), ("cluster_limit", c_uint32),
        ("no_grid_sync", c_uint32),
    ]


class CMemory(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("space", c_int32), ("parameter", c_int32), ("itemsize", c_uint32),
                ("bytes", c_uint64), ("offset", c_uint64)]


class CSite(ctypes.Structure):
    _fields_ = [("pc", c_uint32), ("operation", c_int32), ("memory", c_int32), ("requests", c_uint64),
                ("lanes", c_uint64), ("bytes", c_uint64), ("sectors", c_uint64), ("wavefronts", c_uint64),
                ("excess", c_uint64), ("unique_sectors", c_uint64), ("unique", c_void_p)]


class CRequest(ctypes.Structure):
    _fields_ = [("pc", c_uint32), ("warp", c_uint32), ("lanes", c_uint32), ("size", c_uint32),
                ("operation", c_int32), ("memory", c_int32), ("offset", c_int64 * 32)]


class CStep(ctypes.Structure):
    _fields_ = [("pc", c_uint32), ("warps", c_uint64), ("lanes", c_uint64)]


class CParty(ctypes.Structure):
    _fields_ = [("block", c_uint32 * 3), ("thread", c_uint32 * 3), ("pc", c_uint32), ("action", c_int32)]


class CParent(ctypes.Structure):
    _fields_ = [("kernel", c_char_p), ("grid", c_uint32 * 3), ("block", c_uint32 * 3), ("who", CParty),
                ("line", c_uint32), ("depth", c_uint32)]


class CError(ctypes.Structure):
    _fields_ = [("kind", c_char_p), ("reason", c_char_p), ("detail", c_char_p), ("who", CParty),
                ("other", CParty), ("has_thread", c_int32), ("has_other", c_int32), ("memory", c_int32),
                ("offset", c_int64), ("size", c_uint32), ("file", c_char_p), ("line", c_uint32),
                ("column", c_uint32), ("owner", c_int32)]


class CResult(ctypes.Structure):
    _fields_ = [("error", CError), ("interrupted", c_int32), ("printed", c_char_p),
                ("memories", POINTER(CMemory)), ("n_memories", c_uint64), ("sites", POINTER(CSite)),
                ("n_sites", c_uint64), ("n_unique", c_uint64), ("unique_sectors", c_uint64 * CLASSES),
                ("atomic_addresses", c_uint64 * CLASSES), ("barriers", c_uint64), ("steps", c_uint64),
                ("divergent_steps", c_uint64), ("longest_thread", c_uint64), ("longest_warp", c_uint64),
                ("stack_bytes", c_uint64),
                ("requests", POINTER(CRequest)), ("n_requests", c_uint64),
                ("shared_bytes", c_uint64), ("notes", POINTER(CError)), ("n_notes", c_uint64),
                ("executed", POINTER(CStep)), ("n_executed", c_uint64), ("recorded_steps", c_void_p),
                ("n_recorded_steps", c_uint64), ("recorded_events", c_void_p),
                ("n_recorded_events", c_uint64), ("cut", c_int32),
                ("checked_blocks", c_uint64), ("checked", c_uint32 * 3), ("moments", c_void_p), ("n_moments", c_uint64)]
