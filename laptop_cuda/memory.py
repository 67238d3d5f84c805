"""Arrays that start uninitialised, as memory from `cudaMalloc` does, and which bytes were written.

They hold a poison (NaN, or 0x80 in every byte), so that a forgotten store shows in a plain run too. The
sanitizer asks `initialised` for the byte map of an allocation. A write from Python counts as a write of
the whole tensor; in a NumPy array, which counts no versions, it is found by the poison it replaced."""
import weakref
from dataclasses import dataclass

import numpy as np

from .arguments import arrays


@dataclass
class Poisoned:
    owner: weakref.ref
    written: object              # a byte map, of the same library as the array
    version: int = 0             # of a tensor
    poison: int = 0              # of a NumPy array


_known: dict[int, Poisoned] = {}      # by address of the allocation


def empty(*size, dtype=None, device="cpu"):
    """Like `torch.empty`, but poisoned, and known to the sanitizer as not yet written.

    Without torch, or with a dtype of NumPy's, it is a NumPy array."""
    torch = None if isinstance(dtype, (np.dtype, type)) else arrays.torch_if_installed()
    shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    return _empty_array(shape, dtype) if torch is None else _empty_tensor(torch, tuple(shape), dtype, device)


def _empty_array(shape, dtype) -> np.ndarray:
    made = np.empty(shape, dtype=np.float32 if dtype is None else dtype)
    poison = 0xFF if made.dtype.kind in "fc" else 1 if made.dtype.kind == "b" else 0x80
    _bytes(made)[:] = poison
    if made.nbytes:
        _remember(made, made.ctypes.data, Poisoned(None, np.zeros(made.nbytes, np.uint8), poison=poison))
    return made


def _empty_tensor(torch, shape, dtype, device):
    made = torch.empty(shape, dtype=dtype or torch.float32, device=device)
    if made.numel():
        real = made.dtype.is_floating_point or made.dtype.is_complex
        poison = 0xFF if real else 1 if made.dtype == torch.bool else 0x80
        made.reshape(-1).view(torch.uint8).fill_(poison)
    storage = made.untyped_storage()
    if made.device.type == "cpu" and storage.nbytes():
        written = torch.zeros(storage.nbytes(), dtype=torch.uint8)
        _remember(storage, storage.data_ptr(), Poisoned(None, written, version=made._version))
    return made


def _remember(owner, address: int, made: Poisoned) -> None:
    made.owner = weakref.ref(owner, lambda _: _known.pop(address, None))
    _known[address] = made


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def initialised(value):
    """One byte per byte of the allocation behind an array, 1 where it was written; None if all of it is."""
    owner = arrays.owner(value)
    address = arrays.of(value).low
    known = _known.get(address)
    if known is None or known.owner() is not owner:
        return None
    if arrays.is_tensor(value):
        if value._version != known.version:
            del _known[address]
            return None
        return known.written
    changed = (_bytes(owner) != known.poison).reshape(-1, owner.itemsize).any(1)
    known.written[np.repeat(changed, owner.itemsize)] = 1
    return known.written


def mark_results(parameters: list, values: list) -> None:
    """The arrays that a launch or a host function may have written."""
    for parameter, value in zip(parameters, values):
        if arrays.is_array(value) and not parameter.const:
            # A plain or GPU launch may have written anything in the allocation.
            _known.pop(arrays.of(value).low if arrays.device_of(value) == "cpu" else 0, None)
