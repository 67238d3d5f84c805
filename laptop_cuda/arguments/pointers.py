"""Arrays of device pointers, and values that hold some: what they point at takes part in the launch.

A traced launch works on copies. It copies the arrays that are only reached through pointers as well, and
the runtime translates the addresses on the way in and out."""
import bisect
import gc

import numpy as np

from . import arrays
from . import Parameter
from .held import words

MOST = 1 << 16                       # elements of an array that may hold addresses
PLAUSIBLE = (1 << 20, 1 << 48)       # user space; smaller integers are indices and sizes


class Pointers(np.ndarray):
    """Addresses, and the arrays that they are the addresses of."""
    targets: list

    def __array_finalize__(self, made):
        self.targets = getattr(made, "targets", [])


def pointers(*targets):
    """The addresses of arrays, as an array: for a kernel that takes `float**`, or addresses as int64.

    The arrays live as long as what is returned."""
    if len(targets) == 1 and isinstance(targets[0], (list, tuple)):
        targets = targets[0]
    wrong = next((t for t in targets if not arrays.is_array(t)), None)
    if wrong is not None:
        raise TypeError(f"pointers() takes arrays, got {type(wrong).__name__}")
    found = [arrays.of(t).address if arrays.device_of(t) == "cpu" else t.data_ptr() for t in targets]
    if targets and arrays.is_tensor(targets[0]):
        torch = arrays.torch_in_use()
        made = torch.tensor(found, dtype=torch.int64, device=targets[0].device)
    else:
        made = np.array(found, dtype=np.int64).view(Pointers)
    made.targets = list(targets)
    return made


def may_hold(parameter) -> bool:
    """A pointer to pointers, or to integers of their size."""
    return parameter.kind == "pointer" and (
        parameter.category == "p" or parameter.dtype in ("int64", "uint64"))


def with_reached(parameters: list, values: list) -> tuple[list, list]:
    """The arguments of a launch, and behind them the arrays that it reaches through pointers."""
    more = reached(parameters, values)
    made = [Parameter(name, "pointer", arrays.dtype_of(v), arrays.of(v).itemsize, False, "", "")
            for name, v in more]
    return [*parameters, *made], [*values, *(v for _, v in more)]


def in_values(parameters: list, values: list) -> list[tuple[int, int, int, int]]:
    """(argument, place in its bytes, array, place there) of addresses inside values; arrays are pointers."""
    given = [v for p, v in zip(parameters, values) if p.kind == "pointer"]
    placed = [(arrays.of(v), i) for i, v in enumerate(given) if v is not None]
    spans = _Spans((a.address, a.address + a.bytes, i) for a, i in placed)
    found = []
    for argument, (parameter, value) in enumerate(zip(parameters, values)):
        for place, address in words(value) if _holds(parameter, value) else ():
            if (span := spans.at(address)) is not None:
                found.append((argument, place, span[2], address - span[0]))
    return found


def _holds(parameter, value) -> bool:
    return parameter.kind == "value" and parameter.dtype == "struct"


def reached(parameters: list, values: list) -> list[tuple[str, object]]:
    """(name, array) of what a launch reaches through pointers in its arguments, the arguments left out."""
    seen = _Spans((a.low, a.high, None) for a in map(arrays.of, filter(arrays.is_array, values)))
    found, live = [], None
    for parameter, value in zip(parameters, values):
        targets = getattr(value, "targets", None)
        if _holds(parameter, value):
            one = targets is not None and len(targets) == 1
            places = [(parameter.name if one else f"{parameter.name}+{at}", address)
                      for at, address in words(value) if PLAUSIBLE[0] <= address < PLAUSIBLE[1]]
        elif arrays.is_array(value) and may_hold(parameter):
            places = [(f"{parameter.name}[{index}]", address) for index, address in _addresses(value)]
        else:
            continue
        spans = None if targets is None else _elements(targets)
        for name, address in places:
            if seen.at(address):
                continue
            if spans is None:
                spans = live = live or _elements(_live_tensors())
            if (held := spans.at(address)) is not None:
                found.append((name, held[2]))
                array = arrays.of(held[2])
                seen.add((array.low, array.high, None))
    return found


class _Spans:
    """Stretches of memory, each (low, high, what it is), found by an address in them.

    An array of integers can hold 65,536 numbers that look like addresses, and a program many tensors."""

    def __init__(self, spans=()):
        self.spans: list[tuple] = []
        for span in sorted(spans, key=lambda s: (s[0], -s[1])):
            if not self.spans or span[1] > self.spans[-1][1]:        # else inside the one before
                self.spans.append(span)

    def at(self, address: int) -> tuple | None:
        """The span that holds the address, the one that begins last."""
        place = bisect.bisect_right(self.spans, address, key=lambda s: s[0]) - 1
        return self.spans[place] if place >= 0 and address < self.spans[place][1] else None

    def add(self, span: tuple) -> None:
        bisect.insort(self.spans, span, key=lambda s: s[0])


def _elements(targets) -> _Spans:
    return _Spans((a.address, a.address + a.bytes, a.given) for a in map(arrays.of, targets))


def _addresses(value) -> list[tuple[int, int]]:
    """(index, element) where an element looks like an address."""
    flat = value.detach().numpy() if arrays.is_tensor(value) else np.asarray(value)
    flat = flat.reshape(-1)
    if not 0 < flat.size <= MOST:
        return []
    where = np.flatnonzero((flat >= PLAUSIBLE[0]) & (flat < PLAUSIBLE[1]))
    return [(int(i), int(flat[i])) for i in where]


def _live_tensors() -> list:
    """Tensors on the CPU that the program holds; NumPy's arrays are not known to the garbage collector."""
    torch = arrays.torch_in_use()
    if torch is None:
        return []
    return [t for t in gc.get_objects() if type(t) in (torch.Tensor, torch.nn.Parameter)
            and t.layout == torch.strided and t.device.type == "cpu" and t.numel()]
