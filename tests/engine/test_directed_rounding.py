"""Arithmetic rounded down, up and towards zero, against exact fractions: every bit, also zero's sign."""
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from engine_kit import checked, compiled, compiler, rounded  # noqa: F401

KERNEL = """
__global__ void {T}_{mode}(const {T}* x, const {T}* y, const {T}* z, {T}* out, int n) {{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n) return;
    out[i] = __{p}add_{mode}(x[i], y[i]), out[n + i] = __{p}sub_{mode}(x[i], y[i]);
    out[2 * n + i] = __{p}mul_{mode}(x[i], y[i]), out[3 * n + i] = __{p}div_{mode}(x[i], y[i]);
    out[4 * n + i] = __{p}rcp_{mode}(y[i]), out[5 * n + i] = __{p}sqrt_{mode}(fabs(x[i]));
    out[6 * n + i] = __{fma}_{mode}(x[i], y[i], z[i]);
}}
"""
CONVERSIONS = """
__global__ void to_float_{mode}(const double* d, const long long* v, float* out, int n) {{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n) return;
    out[i] = __double2float_{mode}(d[i]), out[n + i] = __ll2float_{mode}(v[i]), out[2 * n + i] = __ull2float_{mode}(v[i]);
    out[3 * n + i] = __int2float_{mode}((int)v[i]), out[4 * n + i] = __uint2float_{mode}((unsigned)v[i]);
}}
__global__ void to_double_{mode}(const long long* v, double* out, int n) {{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n) out[i] = __ll2double_{mode}(v[i]), out[n + i] = __ull2double_{mode}(v[i]);
}}
"""
MODES = ("rd", "ru", "rz")
SOURCE = "".join(
    CONVERSIONS.format(mode=mode) + KERNEL.format(T="float", p="f", fma="fmaf", mode=mode)
    + KERNEL.format(T="double", p="d", fma="fma", mode=mode)
    for mode in MODES
) + """
__global__ void halves(const double* x, int* out, double* back) {
    out[0] = __double2hiint(x[0]), out[1] = __double2loint(x[0]);
    back[0] = __hiloint2double(out[0], out[1]), back[1] = __frsqrt_rn(x[1]);
}
"""
FORMATS = {np.float32: (24, -149), np.float64: (53, -1074)}


def summed(a: Fraction, b: Fraction, form, mode: str, minus: tuple[bool, bool]) -> float:
    """`minus`: the terms' signs, which a 0 has too."""
    if a + b:
        return rounded(a + b, *form, mode)
    return -0.0 if all(minus) or mode == "rd" and any(minus) else 0.0


def root(x: float, form, mode: str) -> float:
    if x == 0:
        return 0.0
    bits = -form[1] + 60
    scaled = Fraction(x) * 4**bits                                  # an integer, far wider than the format
    whole = math.isqrt(int(scaled))
    return rounded(Fraction(2 * whole + (whole * whole != scaled), 2 * 2**bits), *form, mode)


def right(x, y, z, form, mode: str) -> list[float]:
    a, b, c = Fraction(float(x)), Fraction(float(y)), Fraction(float(z))
    minus = [math.copysign(1, v) < 0 for v in (x, y, z)]
    sign = -0.0 if minus[0] != minus[1] else 0.0
    return [
        summed(a, b, form, mode, (minus[0], minus[1])), summed(a, -b, form, mode, (minus[0], not minus[1])),
        rounded(a * b, *form, mode) if a * b else sign, rounded(a / b, *form, mode) if a else sign,
        rounded(1 / b, *form, mode), root(abs(float(x)), form, mode),
        summed(a * b, c, form, mode, (minus[0] != minus[1], minus[2]))]


def operands(dtype, n: int) -> list[np.ndarray]:
    info = np.finfo(dtype)
    edges = [0.0, -0.0, info.smallest_subnormal, info.tiny, -info.tiny, info.max, -info.max, 1, 1 + info.eps,
             -1 / 3]
    pairs = np.array([(x, y) for x, y in itertools.product(edges, edges) if y], dtype)
    random = np.random.default_rng(0)
    wide = random.standard_normal((2, n)) * 2.0 ** random.integers(info.minexp // 2, info.maxexp // 2, (2, n))
    near = random.standard_normal((2, n)) * 2.0 ** random.integers(-20, 20, (2, n))
    x, y = np.concatenate([pairs.T, wide.astype(dtype), near.astype(dtype)], axis=1)
    z = -(x * y)  # a sum of what rounding the product takes away
    z[::3] = random.standard_normal(z[::3].size) * np.abs(np.where(np.isfinite(z[::3]), z[::3], 1))
    return [x, y, np.where(np.isfinite(z), z, 1).astype(dtype)]


def same(found, expected) -> None:
    expected = np.array(expected, found.dtype)
    wrong = np.flatnonzero((found != expected) | (np.signbit(found) != np.signbit(expected)))
    assert not len(wrong), (wrong[:5], found[wrong[:5]], expected[wrong[:5]])


@pytest.mark.slow
def test_every_direction_is_exact(compiler):
    module = compiled(SOURCE)
    for (dtype, name), mode in itertools.product(((np.float32, "float"), (np.float64, "double")), MODES):
        with np.errstate(all="ignore"):
            x, y, z = operands(dtype, 40)
        out = np.zeros((7, len(x)), dtype)
        module[f"{name}_{mode}"][len(x) // 128 + 1, 128](x, y, z, out, len(x))
        expected = [right(*row, FORMATS[dtype], mode) for row in zip(x, y, z)]
        for operation in range(7):
            same(out[operation], [row[operation] for row in expected])
        last, again = [np.ascontiguousarray(v[-64:]) for v in (x, y, z)], np.zeros((7, 64), dtype)
        checked(module[f"{name}_{mode}"], 1, 64, *last, again, 64)
        for operation in range(7):
            same(again[operation], out[operation, -64:])


@pytest.mark.slow
def test_conversions_are_exact_in_every_direction(compiler):
    module = compiled(SOURCE)
    edges = [0, 1, -1, 2**24 + 1, -(2**24) - 1, 2**31 - 1, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63),
             -(2**63) + 1, -2**11 + 1]
    random = np.random.default_rng(1)
    drawn = zip(random.integers(-2**63, 2**63, 80), random.integers(0, 60, 80))
    v = np.array(edges + [int(k) >> int(s) for k, s in drawn])
    d = random.standard_normal(len(v)) * 2.0 ** random.integers(-160, 140, len(v))
    d[:4] = 0.0, -0.0, 1e300, -1e-300

    def exact(value, dtype, mode):
        return rounded(Fraction(value), *FORMATS[dtype], mode) if value else value
    for mode in MODES:
        out, wide = np.zeros((5, len(v)), np.float32), np.zeros((2, len(v)))
        module[f"to_float_{mode}"][1, 128](d, v, out, len(v))
        module[f"to_double_{mode}"][1, 128](v, wide, len(v))
        kinds = [v.tolist(), v.view(np.uint64).tolist(), v.astype(np.int32).tolist(),
                 v.astype(np.uint32).tolist()]
        same(out[0], [exact(value, np.float32, mode) for value in d.tolist()])
        for row, values in zip(out[1:], kinds):
            same(row, [exact(value, np.float32, mode) for value in values])
        for row, values in zip(wide, kinds):
            same(row, [exact(value, np.float64, mode) for value in values])
    high_low, back = np.zeros(2, np.int32), np.zeros(2)
    module.halves[1, 1](np.array([-1 / 3, 2.0]), high_low, back)
    assert high_low.view(np.uint32).tolist() == [0xBFD55555, 0x55555555]
    assert back.tolist() == [-1 / 3, float(np.float32(2**-0.5))]
