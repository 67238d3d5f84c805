"""What a submission of the training problem computes with: tensors that hold no numbers and write down what
is done with them. The list of operations is all that leaves the student's process.

This file imports the standard library alone: the child loads it by its path.
"""
from __future__ import annotations

import math

VOCAB = 28                       # symbols of the language


class Traced:
    """A float32 tensor. `+ - * / @ >`, negation and slices as in torch, and the methods below."""

    def __init__(self, program: list, shape: tuple, operation: str = "input", inputs=(), numbers=()):
        self.program, self.shape, self.place = program, tuple(shape), len(program)
        program.append([operation, [i.place for i in inputs], list(numbers)])

    def _new(self, operation: str, shape, inputs=(), numbers=()) -> Traced:
        return Traced(self.program, shape, operation, (self, *inputs), numbers)

    def _two(self, operation: str, other: Traced) -> Traced:
        shape = _common(self.shape, other.shape)
        left, right = self.expand(shape), other.expand(shape)
        return left._new(operation, shape, [right])

    def __add__(self, other):
        return (self._two("add", other) if isinstance(other, Traced)
                else self._new("plus", self.shape, (), [other]))

    def __sub__(self, other):
        return self._two("subtract", other) if isinstance(other, Traced) else self + -other

    def __mul__(self, other):
        return (self._two("multiply", other) if isinstance(other, Traced)
                else self._new("times", self.shape, (), [other]))

    def __truediv__(self, other):
        return self._two("divide", other) if isinstance(other, Traced) else self * (1 / other)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self):
        return self * -1.0

    def __rsub__(self, other):
        return -self + other

    def __rtruediv__(self, other):
        return self.full((1,), other) / self

    def __gt__(self, other):
        """1 where it is greater, else 0."""
        return self._two("greater", other if isinstance(other, Traced) else self.full((1,), other))

    def maximum(self, other):
        return self._two("maximum", other if isinstance(other, Traced) else self.full((1,), other))

    def exp(self):
        return self._new("exp", self.shape)

    def log(self):
        return self._new("log", self.shape)

    def sqrt(self):
        return self._new("sqrt", self.shape)

    def sum(self, dim: int = -1):
        """Along a dimension, which is kept with length 1."""
        return self._along("sum", dim)

    def max(self, dim: int = -1):
        """Along a dimension, which is kept with length 1."""
        return self._along("max", dim)

    def _along(self, operation: str, dim: int) -> Traced:
        dim %= len(self.shape)
        return self._new(operation, (*self.shape[:dim], 1, *self.shape[dim + 1:]), (), [dim])

    def __matmul__(self, other):
        """(..., m, k) @ (..., k, n). A matrix on the right may meet any leading dimensions on the left."""
        if len(other.shape) == 2 and len(self.shape) > 2:
            flat = self.reshape(-1, self.shape[-1]) @ other
            return flat.reshape(*self.shape[:-1], other.shape[-1])
        return self._new("matmul", (*self.shape[:-1], other.shape[-1]), [other])

    def reshape(self, *shape):
        known = -math.prod(shape)
        shape = [math.prod(self.shape) // known if n == -1 else n for n in shape]
        return self._new("reshape", shape, (), shape)

    def transpose(self, one: int, other: int):
        shape, one, other = list(self.shape), one % len(self.shape), other % len(self.shape)
        shape[one], shape[other] = shape[other], shape[one]
        return self._new("transpose", shape, (), [one, other])

    def expand(self, shape):
        """A view of a larger shape, by the rules of broadcasting."""
        made = self
        if len(shape) > len(self.shape):
            made = made.reshape(*[1] * (len(shape) - len(self.shape)), *self.shape)
        return made if made.shape == tuple(shape) else made._new("expand", shape, (), shape)

    def slice(self, dim: int, start: int, stop: int):
        dim %= len(self.shape)
        start, stop, _ = slice(start, stop).indices(self.shape[dim])
        shape = (*self.shape[:dim], stop - start, *self.shape[dim + 1:])
        return self._new("slice", shape, (), [dim, start, stop])

    def rows(self, index):
        """Of a table (rows, d): those that the numbers of `index` name. No gradient goes to the index."""
        return self._new("rows", (*index.shape, self.shape[1]), [index])

    def join(self, others, dim: int = -1):
        """This and the others, one behind the other along a dimension."""
        dim, parts = dim % len(self.shape), [self, *others]
        shape = (*self.shape[:dim], sum(p.shape[dim] for p in parts), *self.shape[dim + 1:])
        return self._new("join", shape, others, [dim])

    def hold(self):
        """The same numbers, with no gradient."""
        return self._new("hold", self.shape)

    def full(self, shape, number: float):
        """A new tensor with one number everywhere."""
        return Traced(self.program, shape, "full", (), [number, *shape])

    def count(self, n: int):
        """A new tensor of 0, 1, ..., n - 1."""
        return Traced(self.program, (n,), "count", (), [n])


def _common(one: tuple, other: tuple) -> tuple:
    longest = max(len(one), len(other))
    pairs = zip((1,) * (longest - len(one)) + one, (1,) * (longest - len(other)) + other)
    return tuple(max(a, b) if 1 in (a, b) else a for a, b in pairs)


def uniform(shape, spread: float, middle: float = 0.0) -> tuple:
    """The start of a parameter: drawn evenly from middle - spread to middle + spread."""
    return tuple(shape), middle, spread


def trace(batch: int, length: int, states: int, parameters, logits, update) -> dict:
    """A submission as plain data: sizes, the parameters' starts, and lists of operations."""
    made = parameters()
    names, starts = list(made), [list(made[name]) for name in made]
    program: list = []
    given = {name: Traced(program, start[0]) for name, start in zip(names, starts)}
    result = logits(given, Traced(program, (batch, length)))
    updates = []
    for shape, _, _ in starts:
        steps: list = []
        p, g, t, share = (Traced(steps, s) for s in (shape, shape, (), ()))
        kept = [Traced(steps, shape) for _ in range(states)]
        after, kept = update(p, g, kept, t, share)
        updates.append([steps, [x.place for x in (after, *kept)]])
    return {"batch": batch, "length": length, "states": states, "starts": starts, "program": program,
            "logits": result.place, "updates": updates}
