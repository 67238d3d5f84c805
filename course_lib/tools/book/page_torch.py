"""Of torch what a verdict on a kernel needs, for a page, which has no torch: numbers in a shape, compared and shown."""
import array
import math
import operator
from itertools import product, repeat


class dtype:
    def __init__(self, name: str, code: str, itemsize: int):
        self.name, self.code, self.itemsize = name, code, itemsize

    def __repr__(self):
        return f"torch.{self.name}"


float64, float32, int32 = dtype("float64", "d", 8), dtype("float32", "f", 4), dtype("int32", "i", 4)
bool, uint8 = dtype("bool", "B", 1), dtype("uint8", "B", 1)
strided = object()


def __getattr__(name: str):
    """Whatever else is named, in a signature or in a table of types: a type without values."""
    if name.startswith("__"):
        raise AttributeError(name)
    return dtype(name, "", 1)


def _each(apply, told=None):
    """An operation on each number, with that of another tensor or with one number; `told` is its result's type."""
    def of(self, other):
        others = other.data if isinstance(other, Tensor) else repeat(other)
        return Tensor(list(map(apply, self.data, others)), self.shape, told or self.dtype)
    return of


class Tensor:
    requires_grad, layout, is_quantized = False, strided, False

    def __init__(self, data, shape, dtype):
        self.data, self.shape, self.dtype = data, tuple(shape), dtype

    __eq__, __ne__, __le__, __and__, __or__ = (_each(getattr(operator, n), bool) for n in ("eq", "ne", "le", "and_", "or_"))
    __add__, __sub__, __mul__ = map(_each, (operator.add, operator.sub, operator.mul))
    __radd__, __rmul__, __hash__ = __add__, __mul__, object.__hash__

    def __invert__(self):
        return Tensor([not x for x in self.data], self.shape, bool)

    def __getitem__(self, index):
        index = index if isinstance(index, tuple) else (index,)
        inner = math.prod(self.shape[len(index):])
        at = sum(i * math.prod(self.shape[n + 1:]) for n, i in enumerate(index))
        return Tensor(self.data[at:at + inner], self.shape[len(index):], self.dtype)

    def nonzero(self):
        return [Tensor(i, (len(i),), int32) for i, x in zip(product(*map(range, self.shape)), self.data) if x]

    def reshape(self, shape):
        return Tensor(self.data, shape, self.dtype)

    def any(self):
        return any(self.data)

    def all(self):
        return all(self.data)

    def sum(self):
        return sum(self.data)

    def abs(self):
        return Tensor(list(map(abs, self.data)), self.shape, self.dtype)

    def to(self, dtype):
        return Tensor(self.data, self.shape, dtype)

    def numel(self):
        return math.prod(self.shape)

    def dim(self):
        return len(self.shape)

    def item(self):
        return self.data[0]

    def flatten(self):
        return Tensor(self.data, (self.numel(),), self.dtype)

    def detach(self):
        return self

    def tolist(self):
        return list(self.data)

    def numpy(self):
        return array.array(self.dtype.code, self.data)

    def is_floating_point(self):
        return self.dtype.code in ("f", "d")

    def is_complex(self):
        return False


def frombuffer(data, dtype):
    made = array.array(dtype.code, data)
    return Tensor(made, (len(made),), dtype)


def empty(shape, dtype):
    return Tensor([], shape, dtype)


def isnan(x):
    return Tensor([n != n for n in x.data], x.shape, bool)


def isfinite(x):
    return Tensor(list(map(math.isfinite, x.data)), x.shape, bool)
