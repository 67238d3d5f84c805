"""What an operation of the training problem is: its shape, its price in FLOPs, its numbers, its gradient.

The price depends on shapes alone. Whatever makes numbers costs at least one per number, copying and looking
up included; exp and log cost 32; a sum or maximum costs what it reads; a product 2 m k n. Views (reshape,
transpose, slice, expand, hold) make none and are free. Gradients are made of the same operations and cost
the same.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable


class NotAllowed(ValueError):
    """A program that is none."""


@dataclass(frozen=True)
class Rule:
    """`gradient(program, place, g, reaches)` adds operations and gives a place per input, or None."""
    shape: Callable
    price: Callable
    run: Callable
    gradient: Callable = lambda program, place, g, reaches: []


def made(shapes, shape) -> int:
    return math.prod(shape)


def read(shapes, shape) -> int:
    return math.prod(shapes[0])


def free(shapes, shape) -> int:
    return 0


def wanted(condition: bool, told: str):
    if not condition:
        raise NotAllowed(told)


def dimension(shape: tuple, n) -> int:
    wanted(isinstance(n, int) and 0 <= n < len(shape), f"{shape} has no dimension {n}")
    return n
