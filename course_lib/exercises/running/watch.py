"""What a student's code calls while it runs, for exercises that are to do without some of torch.

`screen` looks for a forbidden name in the source. This looks at what is called, so that `getattr(F, "soft" +
"max")`, a module that calls it inside, and the same operation under another name are found too. Code that
calls anything while the watch is down is found as well. It works inside the process that runs the code, so it
is no wall: what ends the watch without a call, reaches into it, or leaves torch, is not seen."""

import _thread
import contextlib
import os
import subprocess
import sys
import threading

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

# Forbidden name -> functions of torch that do the same, as the student's code calls them.
FUNCTIONS = {
    "repeat": {"repeat", "repeat_interleave", "tile", "expand", "expand_as", "broadcast_to", "index_select",
               "gather", "take_along_dim", "kron", "indexing with a tensor"},
    "cat": {
        "cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack", "row_stack",
        "pad"},
    "autograd": {"grad", "backward", "vjp", "jvp", "jacrev", "jacfwd", "_make_dual"},
    "float64": {"double", "numpy", "__array__", "tolist", "item", "__float__", "untyped_storage", "data_ptr",
                "__dlpack__", "__index__", "__int__"}}
# Forbidden name -> operations that these end in, wherever they were called from.
OPERATIONS = {
    "softmax": {"softmax", "safe_softmax", "masked_softmax", "softmin"},
    "log_softmax": {"log_softmax"},
    "logsumexp": {"logsumexp", "logaddexp", "logcumsumexp"},
    "scaled_dot_product_attention": {
        "scaled_dot_product_flash_attention", "scaled_dot_product_efficient_attention",
        "scaled_dot_product_cudnn_attention", "scaled_dot_product_attention_math",
        "scaled_dot_product_flash_attention_for_cpu", "scaled_dot_product_fused_attention_overrideable",
        "native_multi_head_attention", "transformer_encoder_layer_fwd", "scaled_dot_product_attention",
        "safe_softmax"},
    "cat": {"cat", "stack", "constant_pad_nd"},
    "diag_embed": {"diag_embed", "diag", "diagonal_scatter"},
    "cumsum": {"cumsum", "logcumsumexp"},
    "cdist": {"cdist_forward", "cdist", "euclidean_dist", "pdist_forward"},
    "norm": {"norm", "linalg_vector_norm", "linalg_norm"}}
SAME = {"repeat": ("repeat_interleave", "tile", "expand", "expand_as"),
        "cat": ("concat", "stack", "hstack", "vstack"),
        "autograd": ("backward",), "diag_embed": ("diag",), "float64": ("double",)}
TORCH = os.path.dirname(torch.__file__) + os.sep
RUNNER = os.path.join(os.path.dirname(__file__), "runner.py")
OURS = ("<driver>", "<given ", "<frozen ")          # code of an exercise and of Python that has no file
THREADS, HIDDEN = "a thread", "out of sight"


class OperationMode(TorchDispatchMode):
    """Without this answer torch loads its compiler with the first such mode: two seconds, and we compile nothing."""
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


@contextlib.contextmanager
def calls(forbidden: tuple[str, ...], filename: str):
    """`with calls(names, filename) as used:` afterwards `used` holds what that file's code has called."""
    used: set[str] = set()
    functions, operations = _wanted(FUNCTIONS, forbidden), _wanted(OPERATIONS, forbidden)
    looked_for, wide = functions | operations, bool({"float64", "double"} & set(forbidden))
    if not functions and not operations and not wide:
        yield used
        return

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            name = _name(func, args)
            if name in looked_for and _from(filename):
                used.add(name)
            return func(*args, **(kwargs or {}))

    class Operations(OperationMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            name = func.overloadpacket.__name__.strip("_")
            if name in operations and _from(filename):
                used.add(name)
            if (wide and isinstance(result, torch.Tensor) and result.dtype == torch.float64
                and _from(filename)):
                used.add("float64")
            return result

    with _threads(used, filename), Functions(), Operations(), _in_sight(used, filename):
        yield used


def _wanted(table: dict[str, set[str]], forbidden: tuple[str, ...]) -> set[str]:
    return {called for name, called_names in table.items() for called in called_names
            if name in forbidden or set(SAME.get(name, ())) & set(forbidden)}


def _name(func, args) -> str:
    name = getattr(func, "__name__", "")
    if name == "__getitem__" and len(args) > 1:
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        if any(isinstance(i, list) or isinstance(i, torch.Tensor) and i.dtype != torch.bool for i in index):
            return "indexing with a tensor"
    return name


def _from(filename: str) -> bool:
    """Whether code of this file is what called, at any distance: an exercise's own driver may do so."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename != RUNNER:
        if _is_cells(frame.f_code.co_filename, filename):
            return True
        frame = frame.f_back
    return False


def _is_cells(place: str, filename: str) -> bool:
    """Whether code is of the cell, or was made of a text by it."""
    return place == filename or place[:1] == "<" and not place.startswith(OURS)


# The watch itself: it is up whenever the file's code, or what that calls outside torch, makes a call.
@contextlib.contextmanager
def _in_sight(used: set[str], filename: str):
    """Note a call that is made while torch's modes are off, by whichever of its many switches."""
    before, up = sys.getprofile(), _modes()

    def look(frame, event, argument):
        if event in ("call", "c_call") and _near(frame, filename) and any(map(int.__lt__, _modes(), up)):
            used.add(HIDDEN)
    sys.setprofile(look)
    try:
        yield
    finally:
        if sys.getprofile() is not look:
            used.add(HIDDEN)
        sys.setprofile(before)


def _modes() -> tuple[int, ...]:
    """How many modes of both kinds there are, and whether torch heeds them; a driver may add one."""
    return (torch._C._len_torch_function_stack(), torch._C._is_torch_function_mode_enabled(),
            torch._C._len_torch_dispatch_stack(),
            not torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.Python))


def _near(frame, filename: str) -> bool:
    """Whether a frame is of the file, or called by it and neither torch's nor the watch's."""
    place = frame.f_code.co_filename
    caller = frame.f_back.f_code.co_filename if frame.f_back else ""
    return place == filename or caller == filename and not place.startswith((TORCH, __file__))


# Threads and processes: torch's modes are per thread, so code in another one is not watched.
STARTERS = [(_thread, "start_new_thread"), (threading, "_start_new_thread"), (subprocess, "_fork_exec"),
            *((os, name) for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system"))]


@contextlib.contextmanager
def _threads(used: set[str], filename: str):
    """Note a thread or a process that the file's code starts."""
    before = {(place, name): getattr(place, name) for place, name in STARTERS if hasattr(place, name)}

    def noted(start):
        def noting(*args, **named):
            if _from(filename):
                used.add(THREADS)
            return start(*args, **named)
        return noting
    for (place, name), start in before.items():
        setattr(place, name, noted(start))
    try:
        yield
    finally:
        for (place, name), start in before.items():
            setattr(place, name, start)
