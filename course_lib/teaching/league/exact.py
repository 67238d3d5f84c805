"""Float32 arithmetic with the same bits on every machine.

IEEE fixes addition, multiplication, division and the square root; it fixes neither the order in which a
library sums nor its exponential. So a sum is taken over whole numbers that are small enough for every partial
sum to be exact in float64, in whatever order, and exp and log are polynomials, evaluated one rounded
operation at a time.
"""
from __future__ import annotations

import math

import torch
from torch import Tensor

DIGITS = 53                      # bits of a float64's whole numbers


def product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b. Both are first rounded to about 21 bits below their largest entry."""
    bits = (DIGITS - math.ceil(math.log2(a.shape[-1]))) // 2
    (left, up), (right, more) = whole(a, bits), whole(b, bits)
    return (left @ right * (up * more)).float()


def total(x: Tensor, dim: int) -> Tensor:
    """The sum along a dimension, which is kept."""
    numbers, unit = whole(x, DIGITS - 1 - math.ceil(math.log2(x.shape[dim])))
    return (numbers.sum(dim, keepdim=True) * unit).float()


def add_rows(x: Tensor, index: Tensor, count: int) -> Tensor:
    """(count, d): row r is the sum of the rows of x whose index is r."""
    flat = x.reshape(-1, x.shape[-1])
    numbers, unit = whole(flat, DIGITS - 1 - math.ceil(math.log2(len(flat))))
    sums = torch.zeros(count, x.shape[-1], dtype=torch.float64)
    return (sums.index_add_(0, places(index, count).reshape(-1), numbers) * unit).float()


def whole(x: Tensor, bits: int) -> tuple[Tensor, float]:
    """(n, unit): n unit is x, rounded so that n has whole numbers of at most 2^bits. Not finite: NaN."""
    wide = x.double()
    top = float(wide.abs().max())
    if not math.isfinite(top):
        return torch.full_like(wide, math.nan), 1.0
    unit = 2.0 ** (math.frexp(top)[1] - bits)
    return (wide / unit).round(), unit


def places(index: Tensor, count: int) -> Tensor:
    """Rows 0 to count - 1: the nearest one to each number."""
    return index.nan_to_num(0.0).round().clamp(0, count - 1).long()


LN2_HIGH, LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10     # the first has 33 bits
EXP = [1 / math.factorial(n) for n in range(14)]
LOG = [2 / n for n in range(1, 24, 2)]


def exp(x: Tensor) -> Tensor:
    wide = x.double().clamp(-110.0, 90.0)
    power = (wide * (1 / math.log(2))).round().nan_to_num(0.0)
    rest = wide - power * LN2_HIGH
    rest = rest - power * LN2_LOW
    two_to_it = ((power.long() + 1023) << 52).view(torch.float64)
    return (_polynomial(EXP, rest) * two_to_it).float()


def log(x: Tensor) -> Tensor:
    part, power = torch.frexp(x.double())
    small = part < math.sqrt(0.5)
    part, power = torch.where(small, part * 2, part), power.double() - small.double()
    ratio = (part - 1) / (part + 1)
    made = ratio * _polynomial(LOG, ratio * ratio)
    made = made + power * LN2_LOW
    made = made + power * LN2_HIGH
    made = torch.where(x > 0, made, torch.where(x == 0, -math.inf, math.nan))
    return torch.where(x == math.inf, math.inf, made).float()


def _polynomial(coefficients: list[float], x: Tensor) -> Tensor:
    made = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        made = made * x
        made = made + coefficient
    return made
