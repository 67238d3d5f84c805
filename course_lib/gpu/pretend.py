"""A pretend card: tensors that say cuda:0 and refuse to mix with others, and launches that are recorded.

With it every wrapper, benchmark and refusal takes the paths of a card on a machine without one. The numbers
of a pretend tensor are in a CPU tensor; a launch runs on the CPU engine, or, with run=False, nowhere: only
its instance is noted. Nothing that is timed here says anything of a GPU."""
# over the guide: one tensor class, and every call that it answers
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from unittest import mock

import torch
from torch import Tensor
from torch._library.custom_ops import OPDEFS
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

import laptop_cuda
from laptop_cuda import gpu
from laptop_cuda.asynchronous import tensor_map

DEVICE = torch.device("cuda", 0)
aten = torch.ops.aten
# A card, too, takes CPU tensors in these: copies between devices, and indices.
MAY_MIX = {aten.copy_.default, aten._to_copy.default, aten.index.Tensor, aten.index_put_.default,
           aten._index_put_impl_.default, aten.index_put.default, aten.set_.source_Tensor}


@dataclass(frozen=True)
class Model:
    """What the wrappers ask a card."""
    name: str = "Pretend H100"
    capability: tuple[int, int] = (9, 0)
    multi_processor_count: int = 132
    shared_memory_per_block_optin: int = 227 << 10
    L2_cache_size: int = 50 << 20
    total_memory: int = 80 << 30


H100 = Model()
A100 = Model("Pretend A100", (8, 0), 108, 163 << 10, 40 << 20)
RTX_4090 = Model("Pretend RTX 4090", (8, 9), 128, 99 << 10, 72 << 20, 24 << 30)
T4 = Model("Pretend T4", (7, 5), 40, 64 << 10, 4 << 20, 16 << 30)


@dataclass
class Launch:
    module: object
    text: object                # the kernel in its source
    instance: str               # "<64, true>", or nothing
    name: str
    grid: tuple
    block: tuple
    shared_bytes: int


@dataclass
class Card:
    """A running pretence: what was launched, and the time of its one stream."""
    model: Model
    run: bool = True
    kernel_ms: float = 0.01                 # every launch takes so long
    launches: list[Launch] = field(default_factory=list)
    now: Callable[[], float] = time.perf_counter     # the host's clock, in seconds
    busy_until: float = 0.0

    def take(self, milliseconds: float) -> None:
        self.busy_until = max(self.busy_until, self.now()) + milliseconds / 1e3

    def kernels(self) -> set[str]:
        return {launch.name.partition("<")[0] for launch in self.launches}


class PretendTensor(Tensor):
    """A CPU tensor inside, cuda:0 outside."""
    inner: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor):
        made = Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(),
                                             storage_offset=inner.storage_offset(), dtype=inner.dtype,
                                             device=DEVICE, requires_grad=inner.requires_grad)
        made.inner = inner.detach()
        return made

    def __repr__(self):
        return f"pretend({self.inner!r})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func.namespace == "course":          # the course's operator: its Python runs with pretend tensors
            return OPDEFS[f"course::{func.__name__.partition('.')[0]}"]._init_fn(*args, **(kwargs or {}))
        flat, form = tree_flatten((args, dict(kwargs or {})))
        if func not in MAY_MIX and any(type(x) is Tensor and x.ndim for x in flat):
            raise RuntimeError("Expected all tensors to be on the same device, but found at least two "
                               f"devices, cuda:0 and cpu! ({func})")
        wrappers = {id(x.inner): x for x in flat if isinstance(x, PretendTensor)}
        args, kwargs = tree_unflatten([inside(x) for x in flat], form)
        to_cpu = kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cpu"
        if "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        if func is aten._to_copy.default and to_cpu:
            return func(*args, **kwargs)
        plain = any(type(x) is Tensor for x in flat[:1]) and func is aten.copy_.default   # cpu.copy_(pretend)
        made = func(*args, **kwargs)
        if plain:
            return flat[0]
        return tree_map(lambda x: wrappers.get(id(x)) if id(x) in wrappers else outside(x), made)


def inside(x):
    return x.inner if isinstance(x, PretendTensor) else torch.device("cpu") if is_card(x) else x


def outside(x):
    return PretendTensor(x) if type(x) is Tensor else x


def is_card(x) -> bool:
    return isinstance(x, torch.device) and x.type == "cuda"


def names_card(x) -> bool:
    return is_card(x) or isinstance(x, str) and x.partition(":")[0] == "cuda"


def item(x, index):
    """x[index] by operators: Python's brackets would look for the card's library."""
    index = index if isinstance(index, tuple) else (index,)
    dims = sum(1 for i in index if i is not None and i is not Ellipsis)
    place = next((p for p, i in enumerate(index) if i is Ellipsis), len(index))
    index = (*index[:place], *[slice(None)] * (x.ndim - dims), *index[place + 1:])
    tensors, dim = [], 0
    for i in index:
        if i is None:
            x = x.unsqueeze(dim)
        elif isinstance(i, slice):
            x = aten.slice.Tensor(x, dim, i.start, i.stop, 1 if i.step is None else i.step)
        elif isinstance(i, Tensor) and i.ndim or isinstance(i, list):
            tensors += [None] * (dim - len(tensors)) + [i if isinstance(i, Tensor) else torch.tensor(i)]
        else:
            x, dim = aten.select.int(x, dim, int(i)), dim - 1
        dim += 1
    return aten.index.Tensor(x, tensors) if tensors else x


def set_item(x, index, value):
    x.inner[tree_map(inside, index)] = inside(value)


def dense(x, memory_format=torch.contiguous_format):
    return x if x.inner.is_contiguous() else aten.clone.default(x, memory_format=memory_format)


def cast(x, dtype):
    return x if x.dtype == dtype else aten._to_copy.default(x, dtype=dtype)


TYPES = {"float": torch.float32, "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16,
         "int": torch.int32, "long": torch.int64, "bool": torch.bool}
# Methods that look for the card's library before they reach an operator.
METHODS = {"__getitem__": item, "__setitem__": set_item, "tolist": lambda x: x.inner.tolist(),
           "contiguous": dense,
           **{name: lambda x, name=name: getattr(x.inner, name)()
              for name in ("__int__", "__float__", "__bool__", "__index__", "item")},
           "cpu": lambda x: x.inner.clone(),
           "max": lambda x, *dim: aten.max.dim(x, *dim) if dim else aten.max.default(x),
           "min": lambda x, *dim: aten.min.dim(x, *dim) if dim else aten.min.default(x),
           **{name: lambda x, dtype=dtype: cast(x, dtype) for name, dtype in TYPES.items()}}


def moved(x, *args, device=None, dtype=None, non_blocking=False, copy=False, memory_format=None):
    """x.to(...), which takes a device, a dtype, both, or another tensor."""
    for value in args:
        if isinstance(value, Tensor):
            device, dtype = value.device, value.dtype
        elif isinstance(value, torch.dtype):
            dtype = value
        elif isinstance(value, (str, torch.device)):
            device = value
    x = (cast(x, dtype) if isinstance(x, PretendTensor) else x.to(dtype)) if dtype else x
    if device is None or names_card(device) == isinstance(x, PretendTensor):
        return x
    return PretendTensor(x.clone()) if names_card(device) else x.inner.clone()


class Factories(TorchFunctionMode):
    """`torch.empty(..., device="cuda")`, `x.to("cuda")` and the like, which torch refuses without a card."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name == "cuda" and isinstance(args[0], Tensor):
            return args[0] if isinstance(args[0], PretendTensor) else PretendTensor(args[0].clone())
        if name in METHODS and isinstance(args[0], PretendTensor):
            return METHODS[name](*args, **kwargs)
        if name == "to" or name in ("as_tensor", "asarray") and isinstance(args[0], PretendTensor):
            return moved(*args, **kwargs)
        if not names_card(kwargs.get("device")):
            return func(*args, **kwargs)
        kwargs.pop("device")
        if any(isinstance(x, PretendTensor) for x in tree_flatten((args, kwargs))[0]):
            return func(*args, **kwargs)
        made = func(*args, **kwargs)
        requires_grad = made.requires_grad
        return PretendTensor(made.detach()).requires_grad_(requires_grad)


class CpuGenerator(torch.Generator):
    def __new__(cls, device=None):
        return super().__new__(cls)


class Event:
    def __init__(self, card: Card, **_):
        self.card, self.at = card, 0.0

    def record(self, *_):
        self.card.take(0)
        self.at = self.card.busy_until

    def elapsed_time(self, end) -> float:
        return 1e3 * (end.at - self.at)


def _launched(card: Card, original):
    def run(self, given, named, device):
        if device is None:
            return original(self, given, named, None)
        if any(type(x) is Tensor and x.ndim for x in (*given, *named.values())):
            raise laptop_cuda.ArgumentError(f"{self.kernel.__name__}: a tensor is on the CPU, "
                                            "others are on cuda:0")
        if gpu._limit(self.grid) or self.shared_bytes > card.model.shared_memory_per_block_optin:
            raise laptop_cuda.KernelError("bad launch", kernel=self.kernel.__name__, message=(
                f"{self.kernel.__name__} was not launched with grid {self.grid}, block {self.block} and "
                f"{self.shared_bytes} bytes of shared memory: invalid argument{gpu._limit(self.grid)}"))
        for text in self.kernel._texts():
            instance = (self.kernel.instance or "<>") if text.template else ""
            card.launches.append(Launch(self.kernel.module, text, instance, self.kernel.__name__,
                                        self.grid, self.block, self.shared_bytes))
        card.take(card.kernel_ms)
        if card.run:
            original(self, tuple(map(inside, given)), {name: inside(x) for name, x in named.items()}, None)
        return None
    return run


def _map_of_inner(x, shape, strides, steps, box, corners, swizzle, nan):
    fill, corners = float("nan") if nan else None, [c[::-1] for c in corners] if corners[0] else None
    return tensor_map.tensor_map(x.inner, box[::-1], swizzle[0], fill, steps=steps[::-1], atom=swizzle[1],
                                 corners=corners)


@contextmanager
def card(model: Model = H100, run: bool = True, kernel_ms: float = 0.01, now=time.perf_counter):
    """Within it there is a card. Gives a Card, which lists the launches."""
    made = Card(model, run, kernel_ms, now=now)
    launch = sys.modules[laptop_cuda.Kernel.__module__].Launch
    properties = SimpleNamespace(**vars(model), major=model.capability[0], minor=model.capability[1])
    cuda = {"is_available": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0,
            "get_device_properties": lambda *_: properties,
            "get_device_capability": lambda *_: model.capability,
            "get_device_name": lambda *_: model.name, "synchronize": lambda *_: None,
            "current_stream": lambda *_: SimpleNamespace(cuda_stream=0), "device": lambda *_: ExitStack(),
            "Event": lambda **how: Event(made, **how), "_sleep": lambda cycles: made.take(cycles / 1.98e6)}
    with mock.patch.multiple(torch.cuda, create=True, **cuda), \
            mock.patch.object(torch, "Generator", CpuGenerator), \
            mock.patch.object(launch, "_run", _launched(made, launch._run)), \
            mock.patch.object(tensor_map, "_of_driver", _map_of_inner), \
            Factories():
        yield made
