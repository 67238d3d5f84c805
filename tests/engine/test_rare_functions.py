"""Functions of CUDA that few kernels call: integers packed in a word, inverses of erf and erfc, others."""
import math
from statistics import NormalDist

import numpy as np
import pytest

import laptop_cuda
from engine_kit import checked, compiled, counted, fault

SOURCE = r"""
__global__ void packed(const unsigned* a, const unsigned* b, unsigned* y) {
    unsigned p = a[threadIdx.x], q = b[threadIdx.x], i = 0, *mine = y + 16 * threadIdx.x;
    mine[i++] = __vadd4(p, q), mine[i++] = __vsubss4(p, q), mine[i++] = __vaddus2(p, q);
    mine[i++] = __vavgs4(p, q), mine[i++] = __vavgu2(p, q), mine[i++] = __vmaxs2(p, q);
    mine[i++] = __vminu4(p, q), mine[i++] = __vabsdiffu4(p, q), mine[i++] = __vsadu4(p, q);
    mine[i++] = __vsads2(p, q), mine[i++] = __vcmpgtu4(p, q), mine[i++] = __vsetles2(p, q);
    mine[i++] = __vabs4(p), mine[i++] = __vnegss2(p), mine[i++] = __vhaddu4(p, q), mine[i++] = __vcmpeq2(p, q);
}
__global__ void others(const unsigned* x, unsigned* y) {
    __builtin_assume(x[0] > 0);
    for (int s = 0; s < 3; ++s) {
        y[s] = __funnelshift_lc(x[0], x[1], 16 * s);
        y[3 + s] = __funnelshift_rc(x[0], x[1], 16 * s);
    }
    y[6] = __rhadd(3, 4), y[7] = __urhadd(0xffffffff, 0xfffffffe), y[8] = __hadd(3, 4);
}
__global__ void inverses(const double* x, double* y, float* f) {
    double v = x[threadIdx.x], *mine = y + 4 * threadIdx.x;
    mine[0] = erf(erfinv(v)), mine[1] = erfc(erfcinv(v)), mine[2] = normcdf(normcdfinv(v));
    mine[3] = erfcx(v) / exp(v * v);
    f[threadIdx.x] = erfcinvf((float)v);
}
__global__ void ends(double* y) {
    y[0] = erfinv(1.), y[1] = erfcinv(2.), y[2] = erfcinv(0.), y[3] = erfinv(1.5), y[4] = normcdfinv(0.975);
    y[5] = erfcx(30.), y[6] = erfcx(-30.), y[7] = cyl_bessel_i0(2.5), y[8] = cyl_bessel_i1(-2.5);
    y[9] = erfcinv(1e-300);
}
"""


def of_lanes(word: int, bits: int, signed: bool) -> np.ndarray:
    kind = {(8, True): "i1", (8, False): "u1", (16, True): "i2", (16, False): "u2"}[bits, signed]
    return np.frombuffer(np.uint32(word).tobytes(), kind).astype(np.int64)


def word_of(lanes, bits: int) -> int:
    return int(sum((int(v) & (1 << bits) - 1) << bits * i for i, v in enumerate(lanes)))


def wanted(a: int, b: int) -> list[int]:
    (u, v), (s, t) = ([of_lanes(w, 8, signed) for w in (a, b)] for signed in (False, True))
    (h, k), (m, n) = ([of_lanes(w, 16, signed) for w in (a, b)] for signed in (False, True))
    average = (s + t + (s + t >= 0)) >> 1
    difference = np.clip(s - t, -128, 127)
    narrow = [u + v, difference, average, np.minimum(u, v), abs(u - v), 255 * (u > v), abs(s), (u + v) >> 1]
    both, minus = np.minimum(h + k, 65535), np.minimum(-m, 32767)
    wide = [both, (h + k + 1) >> 1, np.maximum(m, n), m <= n, minus, 65535 * (h == k)]
    (add, subtract, mean, least, apart, more, size, half) = (word_of(x, 8) for x in narrow)
    (add_wide, mean_wide, most, not_more, minus, same) = (word_of(x, 16) for x in wide)
    sums = [int(abs(u - v).sum()), int(abs(m - n).sum())]
    return [add, subtract, add_wide, mean, mean_wide, most, least, apart, *sums, more, not_more, size, minus,
            half, same]


def test_integers_packed_in_a_word():
    rng = np.random.default_rng(5)
    a, b = (rng.integers(0, 1 << 32, 32, dtype=np.uint32) for _ in range(2))
    a[0], b[0], b[1] = 0x80008000, 0x7fff8000, a[1]
    y = np.zeros((32, 16), np.uint32)
    compiled(SOURCE).packed[1, 32](a, b, y)
    assert y.tolist() == [wanted(int(p), int(q)) for p, q in zip(a, b)]


def test_shifts_of_two_words_that_stop_at_32_and_averages():
    y = np.zeros(9, np.uint32)
    compiled(SOURCE).others[1, 1](np.array([0x11223344, 0x55667788], np.uint32), y)
    assert [hex(v) for v in y[:6]] == [
        "0x55667788", "0x77881122", "0x11223344", "0x11223344", "0x77881122", "0x55667788"]
    assert y[6:].tolist() == [4, 0xffffffff, 3]


def test_inverses_of_the_error_functions():
    x = np.concatenate([np.logspace(-12, -1, 16), np.linspace(0.2, 0.98, 16)])
    y, f, ends = np.zeros((32, 4)), np.zeros(32, np.float32), np.zeros(10)
    module = compiled(SOURCE)
    module.inverses[1, 32](x, y, f)
    assert np.allclose(y[:, :3], x[:, None], rtol=4e-14, atol=0)
    assert np.allclose(y[:, 3], [math.erfc(v) for v in x], rtol=1e-14, atol=0)
    module.ends[1, 1](ends)
    assert ends[[0, 1, 2, 6]].tolist() == [np.inf, -np.inf, np.inf, np.inf] and np.isnan(ends[3])
    fraction = 30.0
    for k in range(40, 0, -1):
        fraction = 30 + k / 2 / fraction
    known = [NormalDist().inv_cdf(0.975), 1 / fraction / math.sqrt(math.pi), np.i0(2.5), -2.516716245288698]
    assert np.allclose(ends[[4, 5, 7, 8]], known, rtol=1e-14, atol=0)
    assert math.isclose(math.erfc(ends[9]), 1e-300, rel_tol=1e-12)
    assert np.allclose([math.erfc(v) for v in f[16:]], x[16:], rtol=1e-6, atol=0)


ORDERED = r"""
__global__ void ordered(unsigned* y, int* flag, int* data) {
    __nv_atomic_fetch_add(y, 1, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_DEVICE);
    __nv_atomic_max(y + 1, threadIdx.x, __NV_ATOMIC_RELAXED);
    unsigned expected = 0;
    if (__nv_atomic_compare_exchange_n(y + 2, &expected, threadIdx.x + 1, false, __NV_ATOMIC_ACQ_REL, __NV_ATOMIC_RELAXED))
        y[3] = __nv_atomic_load_n(y + 2, __NV_ATOMIC_RELAXED) == threadIdx.x + 1;
    if (threadIdx.x == 64) {
        data[0] = 5;
        __nv_atomic_store_n(flag, 1, __NV_ATOMIC_RELEASE);
    } else if (threadIdx.x == 0) {
        while (!__nv_atomic_load_n(flag, __NV_ATOMIC_ACQUIRE)) ;
        data[1] = data[0];
    }
}
"""


def test_atomics_that_take_an_order_and_a_scope():
    y, flag, data = np.zeros(4, np.uint32), np.zeros(1, np.int32), np.zeros(2, np.int32)
    checked(compiled(ORDERED).ordered, 1, 96, y, flag, data)
    assert [*y[:2], y[3], *data] == [96, 95, 1, 5, 5] and 1 <= y[2] <= 96


# mathematics, and printf, that write through a pointer
CALLS = {"sincosf": "float c; sincosf(x[0], {}, &c);", "sincospif": "float c; sincospif(x[0], &c, {});",
         "__sincosf": "float c; __sincosf(x[0], {}, &c);", "modff": "modff(x[0], {});",
         "std::modf": "float part = std::modf(x[0], {}); if (part > 2) return;",
         "frexpf": "frexpf(x[0], (int*){});", "remquof": "remquof(x[0], 0.3f, (int*){});"}
WRITERS = "#include <cmath>\n" + "".join(
    f"__global__ void inside{n}(const float* x, float* out) {{ {call.format('out')} }}\n"
    f"__global__ void outside{n}(const float* x, float* out) {{ {call.format('out + 1000')} }}\n"
    for n, call in enumerate(CALLS.values())) + """
__global__ void percent(const float* x, float* out) { printf("%5d%%\\n%*d%n", 1, 3, 1, (int*)out); }
"""


def test_what_mathematics_writes_is_counted_and_checked():
    x = np.array([1.25], np.float32)
    with laptop_cuda.sanitize():
        module = laptop_cuda.compile(WRITERS)
    for number, name in enumerate(CALLS):
        launch = counted(module[f"inside{number}"], 1, 1, x, out := np.zeros(4, np.float32))
        assert launch.global_store.bytes == 4, name
        assert "out of bounds" in str(fault(module[f"outside{number}"], 1, 1, x, np.zeros(4, np.float32)))
    module["inside0"][1, 1](x, out)
    assert out[0].item() == pytest.approx(math.sin(1.25))
    module["inside3"][1, 1](x, out)
    assert out[0].item() == 1
    assert "%n" in str(fault(module["percent"], 1, 1, x, np.zeros(4, np.float32)))
