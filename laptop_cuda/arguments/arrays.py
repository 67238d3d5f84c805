"""Arrays as kernels take them: NumPy's, and torch's tensors where torch is installed.

A tensor can only arrive from a program that has imported torch: nothing here imports it to look."""
import functools
import importlib.util
import sys
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Array:
    """One array: where its elements are, and the allocation that holds them."""
    given: object                # the tensor or the NumPy array
    dtype: str                   # as torch and NumPy name it: float32
    itemsize: int
    shape: tuple[int, ...]
    address: int                 # of the first element
    bytes: int
    low: int                     # the allocation: [low, high)
    high: int


def torch_in_use():
    """The torch module if this program has imported it, else None."""
    return sys.modules.get("torch")


def torch_if_installed():
    """The torch module, imported if need be; None where it is not installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch
    return torch


def is_tensor(value) -> bool:
    torch = torch_in_use()
    return torch is not None and isinstance(value, torch.Tensor)


def is_array(value) -> bool:
    return isinstance(value, np.ndarray) or is_tensor(value)


def noun() -> str:
    """What an error message calls an array: a tensor where torch is in use."""
    return "tensor" if torch_in_use() else "array"


def dtype_of(value) -> str:
    return _spelled(value.dtype)


@functools.cache
def _spelled(dtype) -> str:      # NumPy takes microseconds to spell one
    return str(dtype).removeprefix("torch.")


def device_of(value) -> str:
    """"cpu", "cuda:0", ..."""
    return str(value.device) if is_tensor(value) else "cpu"


def on_gpu(value) -> bool:
    return is_tensor(value) and value.is_cuda


def contiguous(value) -> bool:
    if isinstance(value, np.ndarray):
        return value.flags.c_contiguous
    return value.is_contiguous() and not value.is_conj() and not value.is_neg()


def address(value) -> int | None:
    """Of the first element; None for an array without elements."""
    if isinstance(value, np.ndarray):
        return value.ctypes.data if value.size else None
    return value.data_ptr() if value.numel() else None


def of(value) -> Array:
    """The memory of a tensor on the CPU or of a NumPy array."""
    if isinstance(value, np.ndarray):
        root, start = _root(value), value.ctypes.data
        whole = root is value and value.flags.c_contiguous
        low, high = (start, start + value.nbytes) if whole else _bounds(root)
        return Array(value, dtype_of(value), value.itemsize, value.shape, start, value.nbytes, low, high)
    storage = value.untyped_storage()
    low, size = storage.data_ptr(), value.element_size()
    return Array(value, dtype_of(value), size, tuple(value.shape), low + value.storage_offset() * size,
                 value.numel() * size, low, low + storage.nbytes())


def owner(value):
    """The object whose life is the memory's: a tensor's storage, the array that a NumPy view is of."""
    return _root(value) if isinstance(value, np.ndarray) else value.untyped_storage()


def _root(value: np.ndarray) -> np.ndarray:
    while isinstance(value.base, np.ndarray):
        value = value.base
    return value


def _bounds(value: np.ndarray) -> tuple[int, int]:
    low = high = value.ctypes.data
    if value.size == 0:
        return low, low
    for size, stride in zip(value.shape, value.strides):
        low, high = low + min(stride, 0) * (size - 1), high + max(stride, 0) * (size - 1)
    return low, high + value.itemsize


def from_bytes(raw: bytes, dtype: str):
    """A tensor where torch is installed, else a NumPy array; of bytes if `dtype` is no type of theirs."""
    torch = torch_if_installed()
    if torch is None:
        made = np.frombuffer(bytearray(raw), dtype=np.uint8)
        return made.view(dtype) if hasattr(np, dtype) else made
    made = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    return made.view(getattr(torch, dtype)) if hasattr(torch, dtype) else made


def to_bytes(value, dtype: str) -> bytes:
    """The elements of a tensor, an array, a list or a number, as `dtype` if that is a type of theirs."""
    torch = torch_if_installed() if is_tensor(value) or dtype == "bfloat16" else None
    if torch is not None:
        made = (torch.as_tensor(value, dtype=getattr(torch, dtype, None),
                                device="cpu").contiguous().reshape(-1))
        return made.view(torch.uint8).numpy().tobytes()
    return np.ascontiguousarray(np.asarray(value, dtype=dtype if hasattr(np, dtype) else None)).tobytes()


class CpuCopies:
    """The arguments of a traced launch, CUDA tensors as CPU tensors, aliases kept; the rest as it is."""

    def __init__(self, given: list):
        self.given, self.storages = given, {}
        self.values = [self._here(v) if is_tensor(v) and v.device.type != "cpu" else v for v in given]

    def _here(self, tensor):
        torch, storage = torch_in_use(), tensor.untyped_storage()
        if storage.data_ptr() not in self.storages:
            self.storages[storage.data_ptr()] = torch.UntypedStorage(storage.nbytes()).copy_(storage)
        copy = torch.empty(0, dtype=tensor.dtype)
        return copy.set_(self.storages[storage.data_ptr()], tensor.storage_offset(), tensor.shape,
                         tensor.stride())

    def copy_back(self, parameters: list) -> None:
        for parameter, value in zip(parameters, self.given):
            if is_tensor(value) and not parameter.const:
                copy = self.storages.get(value.untyped_storage().data_ptr())
                if copy is not None:
                    value.untyped_storage().copy_(copy)
