"""Tensors that start uninitialised, as memory from `cudaMalloc` does, and which of their bytes have been written.

They hold a poison (NaN, or 0x80 in every byte), so that a forgotten store shows in a plain run too. The sanitizer
asks `initialised` for the byte map of a storage; a write from Python counts as writing all of it.
"""
import weakref

import torch

_maps: dict[int, tuple[weakref.ref, int, torch.Tensor]] = {}      # by address of the storage


def empty(*size, dtype: torch.dtype = torch.float32, device="cpu") -> torch.Tensor:
    """Like `torch.empty`, but poisoned, and known to the sanitizer as not yet written."""
    tensor = torch.empty(*size, dtype=dtype, device=device)
    if dtype.is_floating_point or dtype.is_complex:
        tensor.view(torch.uint8).fill_(0xFF) if tensor.dim() else tensor.fill_(float("nan"))
    else:
        tensor.view(torch.uint8).fill_(0x80 if dtype != torch.bool else 1) if tensor.dim() else tensor.fill_(1)
    storage = tensor.untyped_storage()
    if tensor.device.type == "cpu" and storage.nbytes():
        address = storage.data_ptr()
        gone = weakref.ref(storage, lambda _: _maps.pop(address, None))
        _maps[address] = (gone, tensor._version, torch.zeros(storage.nbytes(), dtype=torch.uint8))
    return tensor


def initialised(tensor: torch.Tensor) -> torch.Tensor | None:
    """One byte for each byte of the tensor's storage, 1 where it was written; None if all of it is."""
    storage = tensor.untyped_storage()
    known = _maps.get(storage.data_ptr())
    if known is None or known[0]() is not storage:
        return None
    if tensor._version != known[1]:
        del _maps[storage.data_ptr()]
        return None
    return known[2]


def mark_written(tensor: torch.Tensor) -> None:
    """A plain or GPU launch may have written anything the tensor's storage holds."""
    _maps.pop(tensor.untyped_storage().data_ptr(), None)
