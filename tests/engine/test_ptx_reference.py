"""Inline PTX against the ISA's definitions in Python's integers and NumPy: random operands and edges."""
import itertools

import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import ORDERS, compiled, counted
from laptop_cuda.ptx import Operand, statement

EDGES = [0, 1, 2, 31, 32, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0xFFFF, 0x800000, 0x7FFFFF,
         0x80FF7F01]
EDGES64 = [0, 1, 2**32, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1, 0xFFFFFFFF]
M32, M64 = 2**32 - 1, 2**64 - 1


def signed(x: int, bits: int = 32) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def clamp(x: int, low: int, high: int) -> int:
    return min(max(x, low), high)


def fields(x: int, size: int, signs: bool, n: int) -> list[int]:
    part = [x >> size * i & ((1 << size) - 1) for i in range(n)]
    return [signed(p, size) for p in part] if signs else part


def dot(a, b, c, wide, sa, sb, start=0):
    n = 32 // wide
    return c + sum(x * y for x, y in zip(fields(a, wide, sa, n), fields(b >> start, 8, sb, n)))


def permuted(a, b, selector):
    octets, made = (a | b << 32).to_bytes(8, "little"), 0
    for i in range(4):
        chosen = octets[selector >> 4 * i & 7]
        made |= (0xFF * (chosen >> 7) if selector >> 4 * i & 8 else chosen) << 8 * i
    return made


def mode(name, a, b, c):
    c &= 3
    octets = (a | b << 32).to_bytes(8, "little")
    at = {"f4e": [c, c + 1, c + 2, c + 3], "b4e": [c, c - 1, c - 2, c - 3], "rc8": [c] * 4,
          "ecl": [max(i, c) for i in range(4)], "ecr": [min(i, c) for i in range(4)],
          "rc16": [2 * (c & 1) + i % 2 for i in range(4)]}[name]
    return sum(octets[p % 8] << 8 * i for i, p in enumerate(at))


def extracted(a, start, length, bits, signs):
    start, length = start & 255, length & 255
    value = signed(a, bits) if signs else a
    return signed(value >> start & ((1 << length) - 1), length) if signs and length and length < bits else (
        0 if not length else value >> start if length >= bits else value >> start & ((1 << length) - 1))


def inserted(a, b, start, length):
    start, length = start & 255, length & 255
    mask = ((1 << length) - 1) << start & M32
    return b & ~mask | a << start & mask


def found(a, signs):
    a = ~a & M32 if signs and a >> 31 else a
    return a.bit_length() - 1


def nth_set(mask, base, offset):
    if offset == 0:
        return base if mask >> base & 1 else -1
    way = 1 if offset > 0 else -1
    at, left = base, abs(offset)
    while 0 <= at < 32:
        left -= mask >> at & 1
        if not left:
            return at
        at += way
    return -1


# (instruction with d, a, b, c as %0 to %3; the result by the ISA, modulo 2^32)
WORDS = [
    ("dp4a.u32.u32 %0, %1, %2, %3", lambda a, b, c: dot(a, b, c, 8, 0, 0)),
    ("dp4a.s32.s32 %0, %1, %2, %3", lambda a, b, c: dot(a, b, c, 8, 1, 1)),
    ("dp4a.s32.u32 %0, %1, %2, %3", lambda a, b, c: dot(a, b, c, 8, 1, 0)),
    ("dp4a.u32.s32 %0, %1, %2, %3", lambda a, b, c: dot(a, b, c, 8, 0, 1)),
    ("dp2a.lo.u32.u32 %0, %1, %2, %3", lambda a, b, c: dot(a, b, c, 16, 0, 0)),
    ("dp2a.hi.s32.u32 %0, %1, %2, %3", lambda a, b, c: dot(a, b, c, 16, 1, 0, 16)),
    ("dp2a.hi.u32.s32 %0, %1, %2, %3", lambda a, b, c: dot(a, b, c, 16, 0, 1, 16)),
    ("bfind.u32 %0, %1", lambda a, b, c: found(a, 0)), ("bfind.s32 %0, %1", lambda a, b, c: found(a, 1)),
    ("bfind.shiftamt.u32 %0, %1", lambda a, b, c: 31 - found(a, 0) if a else -1),
    ("bfind.shiftamt.s32 %0, %1", lambda a, b, c: -1 if a in (0, M32) else 31 - found(a, 1)),
    ("clz.b32 %0, %1", lambda a, b, c: 32 - a.bit_length()), ("popc.b32 %0, %1", lambda a, b, c: a.bit_count()),
    ("brev.b32 %0, %1", lambda a, b, c: int(f"{a:032b}"[::-1], 2)),
    ("bfe.u32 %0, %1, %2, %3", lambda a, b, c: extracted(a, b, c, 32, 0)),
    ("bfe.s32 %0, %1, %2, %3", lambda a, b, c: extracted(a, b, c, 32, 1)),
    ("bfi.b32 %0, %1, %2, %3, 7", lambda a, b, c: inserted(a, b, c, 7)),
    ("fns.b32 %0, %1, 9, 3", lambda a, b, c: nth_set(a, 9, 3)), ("fns.b32 %0, %1, 20, -2", lambda a, b, c: nth_set(a, 20, -2)),
    ("fns.b32 %0, %1, 5, 0", lambda a, b, c: nth_set(a, 5, 0)),
    ("prmt.b32 %0, %1, %2, %3", lambda a, b, c: permuted(a, b, c)),
    *((f"prmt.b32.{name} %0, %1, %2, %3", lambda a, b, c, name=name: mode(name, a, b, c)) for name in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")),
    ("sad.s32 %0, %1, %2, %3", lambda a, b, c: abs(signed(a) - signed(b)) + c),
    ("sad.u32 %0, %1, %2, %3", lambda a, b, c: abs(a - b) + c),
    ("shf.l.wrap.b32 %0, %1, %2, %3", lambda a, b, c: (b << 32 | a) << (c & 31) >> 32),
    ("shf.r.wrap.b32 %0, %1, %2, 32-2", lambda a, b, c: (b << 32 | a) >> 30),
    ("shf.l.clamp.b32 %0, %1, %2, %3", lambda a, b, c: (b << 32 | a) << min(c, 32) >> 32),
    ("shf.r.clamp.b32 %0, %1, %2, %3", lambda a, b, c: (b << 32 | a) >> min(c, 32)),
    ("set.ge.u32.s32 %0, %1, %2", lambda a, b, c: -(signed(a) >= signed(b))), ("set.lo.s32.u32 %0, %1, %2", lambda a, b, c: -(a < b)),
    ("set.lt.f32.u32 %0, %1, %2", lambda a, b, c: 0x3F800000 * (a < b)),
    ("{.reg .pred p; setp.gt.u32 p, %3, 99; set.ne.and.u32.u32 %0, %1, %2, p;}", lambda a, b, c: -(a != b and c > 99)),
    ("{.reg .pred p, q, r; setp.gt.u32 r, %3, 99; setp.lt.or.s32 p|q, %1, %2, r; selp.u32 %0, 1, 0, p; @q add.u32 %0, %0, 2;}",
     lambda a, b, c: (signed(a) < signed(b) or c > 99) + 2 * (signed(a) >= signed(b) or c > 99)),
    ("mad.hi.u32 %0, %1, %2, %3", lambda a, b, c: (a * b >> 32) + c), ("mul.hi.s32 %0, %1, %2", lambda a, b, c: signed(a) * signed(b) >> 32),
    ("abs.s32 %0, %1", lambda a, b, c: abs(signed(a))), ("neg.s32 %0, %1", lambda a, b, c: -a), ("cnot.b32 %0, %1", lambda a, b, c: not a),
    ("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3", lambda a, b, c: clamp(signed(b), -128, 127) & 255 | (clamp(signed(a), -128, 127) & 255) << 8 | c << 16),
    ("cvt.pack.sat.u16.s32 %0, %1, %2", lambda a, b, c: clamp(signed(b), 0, 65535) | clamp(signed(a), 0, 65535) << 16),
    ("{.reg .u32 n; mov.u32 n, 0; again: add.u32 n, n, 3; setp.lt.u32 P, n, 100; @P bra again; add.u32 %0, n, %1;}".replace("n;", "n; .reg .pred P;", 1),
     lambda a, b, c: 102 + a),
    ("{.reg .pred P; setp.eq.u32 P, %1, 1; @!P bra.uni $out; mov.u32 %0, 7; bra end_%=; $out: mov.u32 %0, %2; end_%=: }",
     lambda a, b, c: 7 if a == 1 else b),
    *((f"lop3.b32 %0, %1, %2, %3, {t}", lambda a, b, c, t=t: sum(
        ((a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)) * (t >> i & 1)
        for i in range(8))) for t in (0x96, 0xE8, 0xCA, 1))]
LONG = [
    ("mul.hi.u64 %0, %1, %2", lambda a, b, c: a * b >> 64), ("mul.hi.s64 %0, %1, %2", lambda a, b, c: signed(a, 64) * signed(b, 64) >> 64),
    ("mad.lo.u64 %0, %1, %2, %3", lambda a, b, c: a * b + c), ("bfe.s64 %0, %1, 60, 3", lambda a, b, c: extracted(a, 60, 3, 64, 1)),
    ("bfe.u64 %0, %1, 3, 59", lambda a, b, c: extracted(a, 3, 59, 64, 0)), ("brev.b64 %0, %1", lambda a, b, c: int(f"{a:064b}"[::-1], 2)),
    ("sad.u64 %0, %1, %2, %3", lambda a, b, c: abs(a - b) + c),
    # the carry outlives its statement, and each word of a chain takes and gives one
    ("add.cc.u64 %0, %1, %2; addc.u64 %0, 0, 0", lambda a, b, c: a + b >> 64),
    ("add.cc.u64 %0, %1, %2; addc.cc.u64 %0, %3, %3; addc.u64 %0, %0, 0", lambda a, b, c: (s := 2 * c + (a + b >> 64)) + (s >> 64)),
    ("sub.cc.u64 %0, %1, %2; subc.u64 %0, %3, 0", lambda a, b, c: c - (a < b)),
    ("sub.cc.s64 %0, %1, %2; subc.cc.s64 %0, %3, %1; subc.u64 %0, %0, 0", lambda a, b, c: (r := c - a - (a < b)) - (r < 0)),
    ("mad.lo.cc.u64 %0, %1, %2, %3; madc.hi.u64 %0, %1, %2, 0", lambda a, b, c: a * b + c >> 64),
    ("mad.hi.cc.u64 %0, %1, %2, %3; addc.u64 %0, 5, 0", lambda a, b, c: 5 + ((a * b >> 64) + c >> 64)),
    ("mad.lo.cc.u64 %0, %1, %2, %3; madc.hi.cc.s64 %0, %1, %2, %3; addc.u64 %0, %0, 0",
     lambda a, b, c: (h := (signed(a, 64) * signed(b, 64) >> 64 & M64) + c + ((a * b & M64) + c >> 64))
     + (h >> 64))]


def kernels(table, type_, constraint):
    return "".join(f'__global__ void {constraint}{n}(const {type_}* a, const {type_}* b, const {type_}* c, '
                   f'{type_}* out, int n) {{\n'
                   f'    int i = blockIdx.x * blockDim.x + threadIdx.x; {type_} r = 0; if (i >= n) return;\n'
                   f'    asm volatile("{text};" : "+{constraint}"(r) : "{constraint}"(a[i]), '
                   f'"{constraint}"(b[i]), "{constraint}"(c[i]));\n'
                   '    out[i] = r;\n'
                   f'}}\n' for n, (text, _) in enumerate(table))


@pytest.mark.slow
def test_whole_numbers_of_32_bits_and_of_64():
    mod = cuda.compile(kernels(WORDS, "unsigned", "r") + kernels(LONG, "unsigned long long", "l"))
    rng = np.random.default_rng(0)
    for table, name, edges, dtype, mask in ((WORDS, "r", EDGES, np.uint32, M32),
                                            (LONG, "l", EDGES64, np.uint64, M64)):
        of_edges = np.array(list(itertools.product(edges[:9], edges, edges)), dtype).T
        small = rng.integers(0, 40, (3, 400), dtype)
        a, b, c = np.concatenate([of_edges, rng.integers(0, mask, (3, 1000), dtype, endpoint=True), small],
                                 axis=1)
        for n, (text, meant) in enumerate(table):
            out = np.zeros_like(a)
            mod[f"{name}{n}"][len(a) // 128 + 1, 128](a, b, c, out, len(a))
            want = np.array([int(meant(int(x), int(y), int(z))) & mask for x, y, z in zip(a, b, c)], dtype)
            wrong = np.flatnonzero(out != want)
            assert not len(wrong), (text, [hex(v[wrong[0]]) for v in (a, b, c, out, want)])


# as in libraries of big numbers: each word is a statement of its own, in a function of its own
BIG = r"""
__device__ __forceinline__ unsigned add_cc(unsigned a, unsigned b) { unsigned r; asm volatile("add.cc.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); return r; }
__device__ __forceinline__ unsigned addc_cc(unsigned a, unsigned b) { unsigned r; asm volatile("addc.cc.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); return r; }
__device__ __forceinline__ unsigned addc(unsigned a, unsigned b) { unsigned r; asm volatile("addc.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); return r; }
__global__ void product(const unsigned* a, const unsigned* b, unsigned* out) {          // 8 words by 8
    unsigned t[16] = {0}, *mine = out + threadIdx.x * 16;
    for (int i = 0; i < 8; i++) {
        unsigned y = b[threadIdx.x * 8 + i];
        asm("mad.lo.cc.u32 %0, %1, %2, %0;" : "+r"(t[i]) : "r"(a[threadIdx.x * 8]), "r"(y));
        for (int j = 1; j < 8; j++) asm volatile("madc.lo.cc.u32 %0, %1, %2, %0;" : "+r"(t[i + j]) : "r"(a[threadIdx.x * 8 + j]), "r"(y));
        t[i + 8] = addc(t[i + 8], 0);
        asm("mad.hi.cc.u32 %0, %1, %2, %0;" : "+r"(t[i + 1]) : "r"(a[threadIdx.x * 8]), "r"(y));
        for (int j = 1; j < 7; j++) asm volatile("madc.hi.cc.u32 %0, %1, %2, %0;" : "+r"(t[i + j + 1]) : "r"(a[threadIdx.x * 8 + j]), "r"(y));
        asm volatile("madc.hi.u32 %0, %1, %2, %0;" : "+r"(t[i + 8]) : "r"(a[threadIdx.x * 8 + 7]), "r"(y));
    }
    for (int i = 0; i < 16; i++) mine[i] = t[i];
}
__global__ void sum(const unsigned* a, const unsigned* b, unsigned* out) {
    int at = threadIdx.x * 8;
    out[at] = add_cc(a[at], b[at]);
    for (int i = 1; i < 7; i++) out[at + i] = addc_cc(a[at + i], b[at + i]);
    out[at + 7] = addc(a[at + 7], b[at + 7]);
}
"""


def numbers(words: np.ndarray) -> list[int]:
    return [int.from_bytes(row.tobytes(), "little") for row in words]


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
def test_a_carry_belongs_to_its_thread(order):
    mod, rng = compiled(BIG), np.random.default_rng(1)
    a, b = rng.choice(np.array([0, 1, M32, M32 - 1, 2**31], np.uint32), (2, 64, 8))
    out, wide = np.zeros_like(a), np.zeros((64, 16), np.uint32)
    with cuda.sanitize(**order):
        mod.sum[1, 64](a, b, out)
        mod.product[1, 64](a, b, wide)
    assert numbers(out) == [(x + y) % 2**256 for x, y in zip(numbers(a), numbers(b))]
    assert numbers(wide) == [x * y for x, y in zip(numbers(a), numbers(b))]
    assert counted(mod.sum, 1, 64, a, b, out).global_load.bytes == 2 * a.nbytes


# (instruction, the result in NumPy) of floats; halves are pairs in a word
def with_signs(made, a, b):
    return np.copysign(made, np.where(np.signbit(a) != np.signbit(b), -1, 1)).astype(a.dtype)


def flush(x):
    x = np.asarray(x)
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.copysign(x.dtype.type(0), x), x)


def no_nan(f):                                      # the result of min and max where one operand is NaN
    return lambda a, b, c=0: np.where(np.isnan(a), b, np.where(np.isnan(b), a, f(a, b)))


def least(a, b):                                     # -0 is less than 0
    return np.where((b < a) | (a == b) & np.signbit(b), b, a)


def greatest(a, b):
    return np.where((b > a) | (a == b) & ~np.signbit(b), b, a)


SINGLE = [
    ("add.ftz.f32 %0, %1, %2", lambda a, b, c: flush(flush(a) + flush(b))), ("mul.rn.ftz.f32 %0, %1, %2", lambda a, b, c: flush(flush(a) * flush(b))),
    ("mul.f32 %0, %1, %2", lambda a, b, c: a * b), ("min.xorsign.abs.f32 %0, %1, %2", lambda a, b, c: with_signs(no_nan(least)(abs(a), abs(b)), a, b)),
    ("max.NaN.f32 %0, %1, %2", lambda a, b, c: np.where(np.isnan(a) | np.isnan(b), np.float32("nan"), greatest(a, b))),
    ("max.f32 %0, %1, %2, %3", lambda a, b, c: no_nan(greatest)(no_nan(greatest)(a, b), c)),
    ("min.NaN.f32 %0, %1, %2, %3", lambda a, b, c: np.where(np.isnan(a) | np.isnan(b) | np.isnan(c), np.float32("nan"), least(least(a, b), c))),
    ("max.f32 %0, %1, %2", no_nan(greatest)), ("min.f32 %0, %1, %2", no_nan(least)),
    ("set.gtu.f32.f32 %0, %1, %2", lambda a, b, c: (~(a <= b)).astype(np.float32)), ("set.num.f32.f32 %0, %1, %2", lambda a, b, c: (~np.isnan(a) & ~np.isnan(b)).astype(np.float32)),
    ("{.reg .b32 t; cvt.rn.tf32.f32 t, %1; mov.b32 %0, t;}", lambda a, b, c: tf32(a, "n")), ("{.reg .b32 t; cvt.rz.relu.tf32.f32 t, %1; mov.b32 %0, t;}", lambda a, b, c: tf32(relu(a), "z")),
    ("{.reg .b32 t; cvt.rna.tf32.f32 t, %1; mov.b32 %0, t;}", lambda a, b, c: tf32(a, "a")),
    ("{.reg .b16 h; cvt.rn.f16.f32 h, %1; add.rn.f32.f16 %0, h, %2;}", lambda a, b, c: half(a).astype(np.float32) + b),
    ("{.reg .b16 h, g; cvt.rn.f16.f32 h, %1; cvt.rn.f16.f32 g, %2; sub.f32.f16 %0, h, %3;}", lambda a, b, c: half(a).astype(np.float32) - c),
    ("{.reg .b64 p, q; mov.b64 p, {%1, %2}; mov.b64 q, {%3, %1}; fma.rn.ftz.f32x2 p, p, q, q; mov.b64 {_, %0}, p;}", lambda a, b, c: flush(fused(flush(b), flush(a), flush(a)))),
    ("{.reg .b64 p, q; mov.b64 p, {%1, %2}; mov.b64 q, {%3, %1}; sub.rn.f32x2 p, p, q; mul.f32x2 p, p, q; mov.b64 {%0, _}, p;}", lambda a, b, c: (a - c) * c),
]


def tf32(a, how):
    bits = a.view(np.uint32).astype(np.uint64)
    more = {"a": 0x1000, "n": 0xFFF + (bits >> 13 & 1), "z": 0}[how]
    made = ((bits + more) & 0xFFFFE000).astype(np.uint32)
    return np.where(np.isfinite(a), made, bits.astype(np.uint32)).astype(np.uint32).view(np.float32)


def half(a):
    return a.astype(np.float16)


def fused(a, b, c):  # in double the product is exact, and the sum nearly: see the operands
    return (a.astype(float) * b.astype(float) + c.astype(float)).astype(np.float32)


def one_of(a, b, how):
    return np.where(how(a, b), 1, 0).astype(np.float16)


def relu(x):
    return np.where(x <= 0, x.dtype.type(0), x)


HALVES = [
    ("fma.rn.relu.f16x2 %0, %1, %2, %3", lambda a, b, c: relu(half(a.astype(float) * b.astype(float) + c.astype(float)))),
    ("fma.rn.f16x2.relu %0, %1, %2, %3", lambda a, b, c: relu(half(a.astype(float) * b.astype(float) + c.astype(float)))),
    ("add.sat.f16x2 %0, %1, %2", lambda a, b, c: np.where(np.isnan(a + b), 0, np.clip(a + b, 0, 1)).astype(np.float16)),
    ("mul.ftz.f16x2 %0, %1, %2", lambda a, b, c: flush(flush(a) * flush(b))), ("neg.f16x2 %0, %1", lambda a, b, c: -a), ("min.f16x2 %0, %1, %2", no_nan(least)),
    ("max.xorsign.abs.f16x2 %0, %1, %2", lambda a, b, c: with_signs(no_nan(greatest)(abs(a), abs(b)), a, b)),
    ("set.gtu.f16x2.f16x2 %0, %1, %2", lambda a, b, c: one_of(a, b, lambda x, y: ~(x <= y))),
    ("set.le.u32.f16x2 %0, %1, %2", lambda a, b, c: np.where(a <= b, -1, 0).astype(np.int16).view(np.float16)),
    ("{.reg .pred p, q; setp.lt.f16x2 p|q, %1, %2; selp.b32 %0, 0x3C00, 0, p; @q add.u32 %0, %0, 0x3C000000;}", lambda a, b, c: one_of(a, b, np.less)),
    ("{.reg .b16 t; cvt.rn.satfinite.e4m3x2.f16x2 t, %1; cvt.rn.f16x2.e4m3x2 %0, t;}", lambda a, b, c: small_float(a, 3, 7, 448)),
    ("{.reg .b16 t; cvt.rn.satfinite.relu.e5m2x2.f16x2 t, %1; cvt.rn.f16x2.e5m2x2 %0, t;}", lambda a, b, c: relu(small_float(a, 2, 15, 57344))),
]


def small_float(a, mantissa, bias, largest):
    """To a format of 8 bits and back: the nearest of all its numbers, ties to the even one."""
    finest = 2.0**(1 - bias - mantissa)
    x = np.where(np.isfinite(a), a, 0).astype(float)
    unit = np.maximum(2.0**(np.floor(np.log2(np.maximum(np.abs(x), finest))) - mantissa), finest)
    made = np.clip(np.round(x / unit) * unit, -largest, largest)
    return np.where(np.isnan(a), a,
                    np.where(np.isinf(a), np.sign(a) * largest, np.copysign(made, a))).astype(np.float16)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_floats():
    mod = cuda.compile(kernels(SINGLE, "float", "f") + kernels(HALVES, "unsigned", "r"))
    rng = np.random.default_rng(2)
    edges = np.array([0, -0., 1, -1, 1.5, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 2**-126, 3e38, 0.1, 65504,
                      2**-24])
    numbers = np.concatenate([np.array(list(itertools.product(edges, edges, edges[:8]))).T,
                              rng.integers(-4096, 4096, (3, 800)) / 64], axis=1)
    a, b, c = numbers.astype(np.float32)
    for n, (text, meant) in enumerate(SINGLE):
        out = np.zeros_like(a)
        mod[f"f{n}"][len(a) // 128 + 1, 128](a, b, c, out, len(a))
        same(text, out, meant(a, b, c), a, b, c)
    a, b, c = numbers.astype(np.float16)
    pairs = [np.ascontiguousarray(np.stack([v, v[::-1]], axis=1)).view(np.uint32).ravel() for v in (a, b, c)]
    for n, (text, meant) in enumerate(HALVES):
        out = np.zeros_like(pairs[0])
        mod[f"r{n}"][len(a) // 128 + 1, 128](*pairs, out, len(a))
        want = meant(a, b, c)
        same(text, out.view(np.float16)[::2], want, a, b, c)
        same(text, out.view(np.float16)[1::2][::-1], want, a, b, c)


def same(text, out, want, *given):
    """Equal bit for bit, but for the bits of a NaN."""
    bits = {4: np.uint32, 2: np.uint16}[out.itemsize]
    want = np.asarray(want, out.dtype) if want.dtype != out.dtype else want
    masks = "set." in text and ".u32." in text
    equal = ((np.ascontiguousarray(out).view(bits) == np.ascontiguousarray(want).view(bits)) | np.isnan(out)
             & np.isnan(want) & (not masks))
    wrong = np.flatnonzero(~equal)
    assert not len(wrong), (text, [v[wrong[0]] for v in (*given, out, want)])


NAN = float("nan")
# (the instruction, the type of its operands, of its result, operands, the result, by the PTX ISA)
KNOWN = [
    ("add.sat.s32 %0, %1, %2", "r", "r", (2**31 - 5, 9), 2**31 - 1),
    ("sub.sat.s32 %0, %1, %2", "r", "r", (-2**31 + 5, 9), -2**31),
    ("cvt.sat.u8.s32 %0, %1", "r", "r", (-3, 0), 0), ("cvt.sat.u8.s32 %0, %1", "r", "r", (300, 0), 255),
    ("cvt.sat.s8.s32 %0, %1", "r", "r", (-300, 0), -128), ("cvt.s8.s32 %0, %1", "r", "r", (0x1ff, 0), -1),
    ("shf.l.wrap.b32 %0, %1, %2, 36", "r", "r", (-2**31, 1), 0x18),
    ("shf.r.clamp.b32 %0, %1, %2, 40", "r", "r", (5, 7), 7),
    ("cvt.rni.f32.f32 %0, %1", "f", "f", (2.5, 0), 2), ("cvt.rmi.f32.f32 %0, %1", "f", "f", (-2.5, 0), -3),
    ("min.NaN.f32 %0, %1, %2", "f", "f", (1, NAN), NAN), ("min.f32 %0, %1, %2", "f", "f", (1, NAN), 1),
    ("add.rz.f32 %0, %1, %2", "f", "f", (1, -2**-30), 1 - 2**-24), ("fma.rp.f32 %0, %1, %1, %2", "f", "f", (1, 2**-30), 1 + 2**-23),
    ("cvt.rz.f32.s32 %0, %1", "r", "f", (2**31 - 1, 0), 2**31 - 128), ("cvt.rn.f32.s32 %0, %1", "r", "f", (2**31 - 1, 0), 2**31),
    ("cvt.rzi.s32.f32 %0, %1", "f", "r", (NAN, 0), 0), ("cvt.rni.s32.f64 %0, %1", "d", "r", (2.5, 0), 2),
    ("cvt.rzi.s32.f64 %0, %1", "d", "r", (1e20, 0), 2**31 - 1), ("cvt.rzi.s32.f64 %0, %1", "d", "r", (NAN, 0), -2**31),
    ("cvt.rp.f32.f64 %0, %1", "d", "f", (1 + 2**-40, 0), 1 + 2**-23), ("sqrt.rn.f64 %0, %1", "d", "d", (2.0, 0), 2**.5),
    ("{ .reg .pred p; setp.lt.s32 p, %1, %2; not.pred p, p; selp.s32 %0, 7, 9, p; }", "r", "r", (1, 2), 9)]
C = {"r": "int", "f": "float", "d": "double"}


@pytest.mark.slow
def test_each_modifier_has_its_effect():
    text = "".join(f'__global__ void k{n}({C[a]} x, {C[a]} z, {C[y]}* out) {{ {C[y]} r; asm '
                   f'volatile("{code};" : "={y}"(r) : "{a}"(x), "{a}"(z)); *out = r; }}\n'
                   for n, (code, a, y, _, _) in enumerate(KNOWN))
    mod = cuda.compile(text)
    for n, (code, _, y, given, want) in enumerate(KNOWN):
        out = np.zeros(1, {"r": np.int32, "f": np.float32, "d": np.float64}[y])
        mod[f"k{n}"][1, 1](*given, out)
        assert np.array_equal(out[0], np.array(want, out.dtype), equal_nan=y != "r"), (code, given, out, want)


ATOMS = [Operand("", c, n) for c, n in (("=r", "a"), ("r", "b"), ("r", "c"), ("l", "p"))]


@pytest.mark.parametrize("text", [
    "st.async.global.b32 [%3], %1", "red.async.relaxed.cluster.global.add.u32 [%3], %1", "ld.global.f32.unknown %0, [%3]",
    "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32 {%0,%0,%0,%0}, {%1,%1,%1,%1}, {%1,%1}, {%1,%1,%1,%1}",
    "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 {%0,%0,%0,%0}, {%1,%1,%1,%1}, {%1,%1}, {%1,%1,%1,%1}",
    "mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32 {%0,%0,%0,%0}, {%1,%1,%1,%1}, {%1,%1}, {%1,%1,%1,%1}",
    "max.f64 %0, %1, %2, %1", "redux.sync.min.f32 %0, %1, %2", "cvt.rn.tf32x.f32 %0, %1", "ldmatrix.sync.aligned.m8n8.x4.shared.b8 {%0,%0,%0,%0}, [%1]",
    "add.cc.f32 %0, %1, %2", "mad.cc.u32 %0, %1, %2, %1", "prmt.b32.f5e %0, %1, %2, 1", "atom.global.inc.s32 %0, [%3], %1", "bra nowhere",
    "cvt.rn.e4m3x2.f32 %0, %1, %2", "cp.async.cg.shared.global.mbarrier [%1], [%3], 16", "fma.rn.sat.relu.f16x2 %0, %1, %2, %1", "bar.sync.unknown 0",
    "vadd2.s32.s32.s32 %0, %1, %2, %1", "vmin.s32.s32.s32.add %0, %1.b2, %2.h1, %1", "mul24.lo.u32 %0, %1, %2",
    "testp.finite.f32 %0, %1", ".reg .b128 t", "shfl.sync.idx.b64 %0, %1, 0, 31, -1",
    "max.xorsign.f64 %0, %1, %2", "add.sat.u32 %0, %1, %2", "cvt.rn.satfinite.tf32.f32 %0, %1", "bfind.shiftamt.b32 %0, %1",
    "fma.rn.relu.f32 %0, %1, %2, %1", "mul.lo.sat.s32 %0, %1, %2", "shfl.sync.b32 %0, %0, 1",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0}, {%0}, {%0}, {%0}", "atom.global.exch128.b128 %0, [%0], %0"])
def test_a_modifier_that_is_not_known_is_a_trap(text):
    assert f'unknown("{text.split()[0]}' in statement(text + ";", ATOMS[:1], ATOMS[1:])
