"""The operations that move numbers: views, which are free, and copies and look-ups, which are not."""
from __future__ import annotations

import math

import torch

from . import exact
from .rule import Rule, dimension, free, made, read, wanted


def _reshaped(shapes, numbers) -> tuple:
    wanted(len(shapes) == 1 and math.prod(shapes[0]) == math.prod(numbers),
           f"{shapes} has no shape {numbers}")
    return numbers


def _transposed(shapes, numbers) -> tuple:
    wanted(len(shapes) == 1 and len(numbers) == 2, "one tensor and two dimensions are wanted")
    one, other = (dimension(shapes[0], n) for n in numbers)
    shape = list(shapes[0])
    shape[one], shape[other] = shape[other], shape[one]
    return tuple(shape)


def _expanded(shapes, numbers) -> tuple:
    wanted(len(shapes) == 1 and len(shapes[0]) == len(numbers)
            and all(a in (1, b) for a, b in zip(shapes[0], numbers)),
            f"{shapes} does not expand to {numbers}")
    return numbers


def _expand_gradient(program, place, g, reaches):
    wanted = program.shapes[program.nodes[place][1][0]]
    for dim, (small, large) in enumerate(zip(wanted, program.shapes[place])):
        g = program.add("sum", (g,), (dim,)) if small != large else g
    return [g]


def _held(shapes, numbers) -> tuple:
    wanted(len(shapes) == 1 and not numbers, "one tensor is wanted")
    return shapes[0]


def _sliced(shapes, numbers) -> tuple:
    wanted(len(shapes) == 1 and len(numbers) == 3 and all(type(n) is int for n in numbers),
            "a dimension, a start and a stop are wanted")
    dim, start, stop = numbers
    wanted(0 <= start < stop <= shapes[0][dimension(shapes[0], dim)], f"{shapes[0]} has no slice {numbers}")
    return (*shapes[0][:dim], stop - start, *shapes[0][dim + 1:])


def _slice_gradient(program, place, g, reaches):
    (x,), (dim, start, stop) = program.nodes[place][1:]
    return [program.add("pad", (g,), (dim, start, program.shapes[x][dim] - stop))]


def _padded(x, numbers):
    dim, before, after = numbers
    sides = [0, 0] * (x[0].ndim - 1 - dim) + [before, after]
    return torch.nn.functional.pad(x[0], sides)


def _joined(shapes, numbers) -> tuple:
    wanted(len(shapes) >= 1 and len(numbers) == 1, "tensors and a dimension are wanted")
    dim = dimension(shapes[0], numbers[0])
    wanted(len({(*s[:dim], *s[dim + 1:]) for s in shapes}) == 1 and len({len(s) for s in shapes}) == 1,
            f"{shapes} cannot be joined along {dim}")
    return (*shapes[0][:dim], sum(s[dim] for s in shapes), *shapes[0][dim + 1:])


def _join_gradient(program, place, g, reaches):
    _, inputs, (dim,) = program.nodes[place]
    made, start = [], 0
    for i in inputs:
        stop = start + program.shapes[i][dim]
        made.append(program.add("slice", (g,), (dim, start, stop)) if reaches[i] else None)
        start = stop
    return made


def _looked_up(shapes, numbers) -> tuple:
    wanted(len(shapes) == 2 and len(shapes[0]) == 2 and not numbers,
           "a table (rows, d) and an index are wanted")
    return (*shapes[1], shapes[0][1])


def _rows_gradient(program, place, g, reaches):
    table, index = program.nodes[place][1]
    if not reaches[table]:
        return [None, None]
    return [program.add("add_rows", (g, index), (program.shapes[table][0],)), None]


def _turned_back(program, place, g, reaches):
    return [program.add("transpose", (g,), program.nodes[place][2])]


def _shaped_back(program, place, g, reaches):
    return [program.add("reshape", (g,), program.shapes[program.nodes[place][1][0]])]


def _filled(shapes, numbers) -> tuple:
    wanted(not shapes and len(numbers) >= 1 and isinstance(numbers[0], (int, float)), "a number is wanted")
    return numbers[1:]


def _counted(shapes, numbers) -> tuple:
    wanted(not shapes and len(numbers) == 1, "how many is wanted")
    return numbers


COPIES = {
    "reshape": Rule(_reshaped, free, lambda x, n: x[0].reshape(n), _shaped_back),
    "transpose": Rule(_transposed, free, lambda x, n: x[0].transpose(*n), _turned_back),
    "expand": Rule(_expanded, free, lambda x, n: x[0].expand(n), _expand_gradient),
    "slice": Rule(_sliced, free, lambda x, n: x[0].narrow(n[0], n[1], n[2] - n[1]), _slice_gradient),
    "hold": Rule(_held, free, lambda x, _: x[0]),
    "join": Rule(_joined, made, lambda x, n: torch.cat(x, n[0]), _join_gradient),
    "rows": Rule(_looked_up, made, lambda x, _: x[0][exact.places(x[1], len(x[0]))], _rows_gradient),
    "full": Rule(_filled, made, lambda x, n: torch.full(n[1:], float(n[0]))),
    "count": Rule(_counted, made, lambda x, n: torch.arange(n[0]).float()),
}
OURS = {                                             # of gradients alone
    "pad": Rule(lambda shapes, n: (*shapes[0][:n[0]], shapes[0][n[0]] + n[1] + n[2], *shapes[0][n[0] + 1:]),
                made, _padded),
    "add_rows": Rule(lambda shapes, n: (n[0], shapes[0][-1]), read,
                     lambda x, n: exact.add_rows(x[0], x[1], n[0])),
}
