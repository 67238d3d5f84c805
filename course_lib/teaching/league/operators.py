"""The operations that compute: number by number, sums and maxima along a dimension, products of matrices."""
from __future__ import annotations

import math

import torch

from . import exact
from .rule import Rule, dimension, made, read, wanted

EXPONENTIAL = 32                 # about what the polynomials in exact.py take


# --- number by number ---------------------------------------------------------------------------------------

def _alike(shapes, numbers) -> tuple:
    wanted(len({*shapes}) == 1 and not numbers, f"shapes {shapes} differ")
    return shapes[0]


def _with_a_number(shapes, numbers) -> tuple:
    wanted(len(shapes) == 1 and len(numbers) == 1, "one tensor and one number are wanted")
    return shapes[0]


def _of_two(run, gradient) -> Rule:
    def shape(shapes, numbers):
        wanted(len(shapes) == 2, "two tensors are wanted")
        return _alike(shapes, numbers)

    def parts(program, place, g, reaches):
        a, b = program.nodes[place][1]
        one, other = gradient(program.add, a, b, place, g)
        return [one() if reaches[a] else None, other() if reaches[b] else None]
    return Rule(shape, made, lambda x, _: run(*x), parts)


def _of_one(run, gradient, price=made) -> Rule:
    def shape(shapes, numbers):
        wanted(len(shapes) == 1, "one tensor is wanted")
        return _alike(shapes, numbers)

    def part(program, place, g, reaches):
        return [gradient(program.add, program.nodes[place][1][0], place, g)]
    return Rule(shape, price, lambda x, _: run(x[0]), part)


def _exponential(shapes, shape) -> int:
    return EXPONENTIAL * math.prod(shape)


def _negative(add, x):
    return add("times", (x,), (-1.0,))


NUMBER_BY_NUMBER = {
    "add": _of_two(torch.add, lambda add, a, b, out, g: (lambda: g, lambda: g)),
    "subtract": _of_two(torch.sub, lambda add, a, b, out, g: (lambda: g, lambda: _negative(add, g))),
    "multiply": _of_two(torch.mul, lambda add, a, b, out, g: (lambda: add("multiply", (g, b)),
                                                              lambda: add("multiply", (g, a)))),
    "divide": _of_two(torch.div, lambda add, a, b, out, g: (
        lambda: add("divide", (g, b)),
        lambda: _negative(add, add("divide", (add("multiply", (g, out)), b))))),
    "maximum": _of_two(torch.maximum, lambda add, a, b, out, g: (
        lambda: add("multiply", (g, add("greater", (a, b)))),
        lambda: add("subtract", (g, add("multiply", (g, add("greater", (a, b)))))))),
    "greater": Rule(_alike, made, lambda x, _: (x[0] > x[1]).float()),
    "plus": Rule(_with_a_number, made, lambda x, n: x[0] + n[0],
                 lambda program, place, g, reaches: [g]),
    "times": Rule(_with_a_number, made, lambda x, n: x[0] * n[0],
                  lambda program, place, g, reaches: [program.add("times", (g,), program.nodes[place][2])]),
    "exp": _of_one(exact.exp, lambda add, x, out, g: add("multiply", (g, out)), _exponential),
    "log": _of_one(exact.log, lambda add, x, out, g: add("divide", (g, x)), _exponential),
    "sqrt": _of_one(torch.sqrt, lambda add, x, out, g: add("times", (add("divide", (g, out)),), (0.5,))),
}


# --- along a dimension --------------------------------------------------------------------------------------

def _kept(shapes, numbers) -> tuple:
    wanted(len(shapes) == 1 and len(numbers) == 1, "one tensor and a dimension are wanted")
    dim = dimension(shapes[0], numbers[0])
    return (*shapes[0][:dim], 1, *shapes[0][dim + 1:])


def _back_to(program, place, g):
    """g in the shape of the operation's input."""
    return program.add("expand", (g,), program.shapes[program.nodes[place][1][0]])


def _max_gradient(program, place, g, reaches):
    x = program.nodes[place][1][0]
    below = program.add("greater", (_back_to(program, place, place), x))
    g = _back_to(program, place, g)
    return [program.add("subtract", (g, program.add("multiply", (g, below))))]


def _product_shape(shapes, numbers) -> tuple:
    wanted(len(shapes) == 2 and not numbers, "two tensors are wanted")
    a, b = shapes
    wanted(len(a) == len(b) >= 2 and a[:-2] == b[:-2] and a[-1] == b[-2], f"{a} @ {b} has no meaning")
    return (*a[:-1], b[-1])


def _product_gradient(program, place, g, reaches):
    a, b = program.nodes[place][1]
    last = len(program.shapes[place]) - 1

    def turned(x):
        return program.add("transpose", (x,), (last - 1, last))
    return [program.add("matmul", (g, turned(b))) if reaches[a] else None,
            program.add("matmul", (turned(a), g)) if reaches[b] else None]


ALONG = {
    "sum": Rule(_kept, read, lambda x, n: exact.total(x[0], n[0]),
                lambda program, place, g, reaches: [_back_to(program, place, g)]),
    "max": Rule(_kept, read, lambda x, n: x[0].amax(n[0], keepdim=True), _max_gradient),
    "matmul": Rule(_product_shape, lambda shapes, shape: 2 * math.prod(shape) * shapes[0][-1],
                   lambda x, _: exact.product(*x), _product_gradient),
}
OPERATORS = NUMBER_BY_NUMBER | ALONG
