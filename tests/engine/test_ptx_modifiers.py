"""Inline PTX whose modifiers change the result: each is right, or an error where it is reached; none is left
out."""
import numpy as np
import pytest

import laptop_cuda as cuda
from laptop_cuda.ptx import Operand, statement

pytestmark = pytest.mark.slow
NAN = float("nan")
# (the instruction, the type of its operands, of its result, operands, the result, by the PTX ISA)
KNOWN = [
    ("add.sat.s32 %0, %1, %2", "r", "r", (2**31 - 5, 9), 2**31 - 1),
    ("sub.sat.s32 %0, %1, %2", "r", "r", (-2**31 + 5, 9), -2**31),
    ("cvt.sat.u8.s32 %0, %1", "r", "r", (-3, 0), 0), ("cvt.sat.u8.s32 %0, %1", "r", "r", (300, 0), 255),
    ("cvt.sat.s8.s32 %0, %1", "r", "r", (-300, 0), -128), ("cvt.s8.s32 %0, %1", "r", "r", (0x1ff, 0), -1),
    ("shf.l.wrap.b32 %0, %1, %2, 36", "r", "r", (-2**31, 1), 0x18),
    ("shf.r.clamp.b32 %0, %1, %2, 40", "r", "r", (5, 7), 7),
    ("bfind.s32 %0, %1", "r", "r", (-9, 0), 3), ("sad.s32 %0, %1, %2, 4", "r", "r", (-3, 5), 12),
    ("cvt.rni.f32.f32 %0, %1", "f", "f", (2.5, 0), 2), ("cvt.rmi.f32.f32 %0, %1", "f", "f", (-2.5, 0), -3),
    ("min.NaN.f32 %0, %1, %2", "f", "f", (1, NAN), NAN), ("min.f32 %0, %1, %2", "f", "f", (1, NAN), 1),
    ("add.rz.f32 %0, %1, %2", "f", "f", (1, -2**-30), 1 - 2**-24), ("fma.rp.f32 %0, %1, %1, %2", "f", "f", (1, 2**-30), 1 + 2**-23),
    ("cvt.rz.f32.s32 %0, %1", "r", "f", (2**31 - 1, 0), 2**31 - 128), ("cvt.rn.f32.s32 %0, %1", "r", "f", (2**31 - 1, 0), 2**31),
    ("cvt.rzi.s32.f32 %0, %1", "f", "r", (NAN, 0), 0), ("cvt.rni.s32.f64 %0, %1", "d", "r", (2.5, 0), 2),
    ("cvt.rzi.s32.f64 %0, %1", "d", "r", (1e20, 0), 2**31 - 1), ("cvt.rzi.s32.f64 %0, %1", "d", "r", (NAN, 0), -2**31),
    ("cvt.rp.f32.f64 %0, %1", "d", "f", (1 + 2**-40, 0), 1 + 2**-23), ("sqrt.rn.f64 %0, %1", "d", "d", (2.0, 0), 2**.5),
    ("{ .reg .pred p; setp.lt.s32 p, %1, %2; not.pred p, p; selp.s32 %0, 7, 9, p; }", "r", "r", (1, 2), 9),
]
TRAPS = ["max.xorsign.f64 %0, %1, %2", "add.sat.u32 %0, %1, %2", "cvt.rn.satfinite.tf32.f32 %0, %1",
         "bfind.shiftamt.b32 %0, %1", "fma.rn.relu.f32 %0, %1, %2, %1", "mul.lo.sat.s32 %0, %1, %2"]
C = {"r": "int", "f": "float", "d": "double"}


def test_each_modifier_has_its_effect():
    text = "".join(f'__global__ void k{n}({C[a]} x, {C[a]} z, {C[y]}* out) {{ {C[y]} r; asm '
                   f'volatile("{code};" : "={y}"(r) : "{a}"(x), "{a}"(z)); *out = r; }}\n'
                   for n, (code, a, y, _, _) in enumerate(KNOWN))
    mod = cuda.compile(text)
    for n, (code, _, y, given, want) in enumerate(KNOWN):
        out = np.zeros(1, {"r": np.int32, "f": np.float32, "d": np.float64}[y])
        mod[f"k{n}"][1, 1](*given, out)
        assert np.array_equal(out[0], np.array(want, out.dtype), equal_nan=y != "r"), (code, given, out, want)


def test_what_is_not_known_is_named():
    operands = [Operand("", c, n) for c, n in (("=r", "a"), ("r", "b"), ("r", "c"))]
    for code in TRAPS:
        assert (statement(f"{code};", operands[:1], operands[1:])
                == f'laptop::ptx::unknown("{code.split()[0]}")')
