"""Of torch what a verdict on a kernel needs, for a page, which has no torch: numbers in a shape, compared and shown."""
import array
import math
import operator
from itertools import product, repeat


class dtype:
    def __init__(self, name: str, code: str = "", itemsize: int = 1):
        self.name, self.code, self.itemsize = name, code, itemsize

    def __repr__(self):
        return f"torch.{self.name}"


float64, float32, int32, bool = dtype("float64", "d", 8), dtype("float32", "f", 4), dtype("int32", "i", 4), dtype("bool")


def __getattr__(name: str):
    """Whatever else is named, in a signature or in a table of types: a type without values."""
    if name.startswith("__"):
        raise AttributeError(name)
    return dtype(name)


def _each(apply, told=None):
    """An operation on each number, with those of other tensors or with a number; `told` is its result's type."""
    def of(self, *others):
        given = [other.data if isinstance(other, Tensor) else repeat(other) for other in others]
        return Tensor(list(map(apply, self.data, *given)), self.shape, told or self.dtype)
    return of


class Tensor:
    def __init__(self, data, shape, dtype):
        self.data, self.shape, self.dtype = data, tuple(shape), dtype

    __eq__, __ne__, __le__, __and__, __or__ = (
        _each(getattr(operator, name), bool) for name in ("eq", "ne", "le", "and_", "or_"))
    __add__, __sub__, __mul__ = map(_each, (operator.add, operator.sub, operator.mul))
    __radd__, __rmul__, __hash__, __invert__ = __add__, __mul__, object.__hash__, _each(operator.not_, bool)
    any, all, sum, item, tolist = (lambda self, apply=apply: apply(self.data)
                                   for apply in (any, all, sum, operator.itemgetter(0), list))
    abs, numel, dim = _each(abs), lambda self: math.prod(self.shape), lambda self: len(self.shape)
    detach, is_complex = lambda self: self, lambda self: False

    def __getitem__(self, index):
        at = 0
        for i, size in zip(index, self.shape):
            at = at * size + i
        return Tensor(self.data[at:at + 1], (), self.dtype)

    def nonzero(self):
        return [Tensor(i, (len(i),), int32) for i, x in zip(product(*map(range, self.shape)), self.data) if x]

    reshape = lambda self, shape: Tensor(self.data, shape, self.dtype)
    flatten = lambda self: self.reshape((self.numel(),))
    to = lambda self, dtype: Tensor(self.data, self.shape, dtype)
    numpy = lambda self: array.array(self.dtype.code, self.data)
    is_floating_point = lambda self: self.dtype.code in ("f", "d")


isnan, isfinite = _each(math.isnan, bool), _each(math.isfinite, bool)


def frombuffer(data, dtype):
    return Tensor(array.array(dtype.code, data), (len(data) // dtype.itemsize,), dtype)


def empty(shape, dtype):
    return Tensor([], shape, dtype)
