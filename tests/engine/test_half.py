"""half and bfloat16: exact rounding, checked over all 65536 values and against rational arithmetic."""
import math
from fractions import Fraction

import pytest
import torch
from engine_kit import compiled, counted, rounded

SOURCE = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#define I (blockIdx.x * blockDim.x + threadIdx.x)
#define KERNELS(T, T2, suffix)                                                                                    \
__global__ void widen_##suffix(const T* a, float* out) { out[I] = (float)a[I]; }                                  \
__global__ void narrow_##suffix(const float* a, T* out) { out[I] = a[I]; }                                        \
__global__ void narrow_double_##suffix(const double* a, T* out) { out[I] = T(a[I]); }                             \
__global__ void arithmetic_##suffix(const T* a, const T* b, T* sum, T* difference, T* product, T* quotient) {     \
    T x = a[I], y = b[I];                                                                                         \
    sum[I] = x + y; difference[I] = __hsub(x, y); product[I] = x * y; quotient[I] = __hdiv(x, y);                 \
}                                                                                                                 \
__global__ void fused_##suffix(const T* a, const T* b, const T* c, T* out) { out[I] = __hfma(a[I], b[I], c[I]); } \
__global__ void functions_##suffix(const T* a, T* root, T* power, T* whole, T* minus, T* size) {                  \
    T x = a[I];                                                                                                   \
    root[I] = hsqrt(x); power[I] = hexp(x); whole[I] = hrint(x); minus[I] = -x; size[I] = __habs(x);              \
}                                                                                                                 \
__global__ void compare_##suffix(const T* a, const T* b, int* out) {                                              \
    T x = a[I], y = b[I];                                                                                         \
    out[I] = (x < y) | (x <= y) << 1 | (x > y) << 2 | (x >= y) << 3 | (x == y) << 4 | (x != y) << 5 | __hisnan(x) << 6 | \
             __hne(x, y) << 7 | __hltu(x, y) << 8;                                                                \
}                                                                                                                 \
__global__ void extremes_##suffix(const T* a, const T* b, T* larger, T* smaller) {                                \
    larger[I] = __hmax(a[I], b[I]); smaller[I] = __hmin(a[I], b[I]);                                              \
}                                                                                                                 \
__global__ void pairs_##suffix(const T2* a, const T2* b, T2* sum, T2* fused, T2* swapped, float* low) {           \
    T2 x = a[I], y = b[I];                                                                                        \
    sum[I] = x + y; fused[I] = __hfma2(x, y, x); swapped[I] = __lowhigh2highlow(x); low[I] = __low2float(x);      \
    sum[I] *= y;                                                                                                  \
}                                                                                                                 \
__global__ void integers_##suffix(const int* a, T* out, int* back) { out[I] = a[I]; back[I] = (int)(float)out[I]; } \
__global__ void atomics_##suffix(const T* a, T* out, T2* pair) {                                                  \
    atomicAdd(out, a[I]);                                                                                         \
    atomicAdd(pair, T2(a[I], -a[I]));                                                                             \
}
KERNELS(__half, __half2, h)
KERNELS(__nv_bfloat16, __nv_bfloat162, b)

__global__ void directions(const float* a, half* down, half* up, half* zero) {
    down[I] = __float2half_rd(a[I]); up[I] = __float2half_ru(a[I]); zero[I] = __float2half_rz(a[I]);
}
__global__ void vectors(const float4* in, uint2* out) {
    float4 v = in[I];
    half2 low = __floats2half2_rn(v.x, v.y), high = __float22half2_rn(make_float2(v.z, v.w));
    uint2 packed;
    packed.x = *reinterpret_cast<unsigned*>(&low);
    packed.y = *reinterpret_cast<unsigned*>(&high);
    out[I] = packed;
}
"""


FORMATS = {"h": (11, -24), "b": (8, -133)}          # binary digits, and the exponent of the smallest number


@pytest.fixture(params=FORMATS)
def suffix(request):
    return request.param


@pytest.fixture
def dtype(suffix):
    return {"h": torch.float16, "b": torch.bfloat16}[suffix]


def every(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(dtype)


def shuffled(dtype: torch.dtype, seed: int) -> torch.Tensor:
    return every(dtype)[torch.randperm(65536, generator=torch.Generator().manual_seed(seed))].contiguous()


def launch(name: str, *arrays: torch.Tensor) -> None:
    n = arrays[0].shape[0]
    compiled(SOURCE)[name][n // 256, 256](*arrays)


def same(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Equal bit for bit, except that every NaN is a NaN."""
    both_nan = got.isnan() & want.isnan()
    whole = {2: torch.int16, 4: torch.int32}[got.element_size()]
    return bool(((got.view(whole) == want.view(whole)) | both_nan).all())


def like(a: torch.Tensor, count: int = 1) -> list[torch.Tensor]:
    return [torch.zeros_like(a) for _ in range(count)]


@pytest.mark.slow
def test_every_value_widens_exactly(suffix, dtype):
    a, out = every(dtype), torch.zeros(65536)
    launch(f"widen_{suffix}", a, out)
    assert same(out, a.float())


def test_narrowing_rounds_to_nearest_even(suffix, dtype):
    """Every value, every midpoint of two neighbours, and the floats just beside them; and random bits."""
    a = every(dtype).float()
    middle = (a.double() + every(dtype).roll(1).float().double()).div(2).float()
    points = torch.cat([a, middle])
    points = torch.cat([points, points.nextafter(torch.tensor(math.inf)),
                        points.nextafter(torch.tensor(-math.inf))])
    noise = torch.randint(-2**31, 2**31, (1 << 18,),
                          generator=torch.Generator().manual_seed(0)).to(torch.int32).view(torch.float32)
    points = torch.cat([points, noise]).contiguous()
    out = torch.zeros(len(points), dtype=dtype)
    launch(f"narrow_{suffix}", points, out)
    assert same(out, points.to(dtype))
    launch(f"narrow_double_{suffix}", points.double(), out)
    assert same(out, points.to(dtype))


def test_a_double_is_rounded_once(suffix, dtype):
    """1 + u/2 + tiny rounds up; by way of float the tiny would be lost and the tie would go to even, down."""
    unit = torch.finfo(dtype).eps
    a = torch.full((256,), 1 + unit / 2 + 2.0**-40, dtype=torch.float64)
    out = torch.zeros(256, dtype=dtype)
    launch(f"narrow_double_{suffix}", a, out)
    assert out[0].item() == 1 + unit


def test_arithmetic(suffix, dtype):
    for seed in range(4):
        a, b = shuffled(dtype, seed), shuffled(dtype, seed + 10)
        total, difference, product, quotient = like(a, 4)
        launch(f"arithmetic_{suffix}", a, b, total, difference, product, quotient)
        assert (same(total, a + b) and same(difference, a - b) and same(product, a * b)
                and same(quotient, a / b))


def test_a_fused_multiply_add_is_rounded_once(suffix, dtype):
    a, b, c = (shuffled(dtype, seed)[:16384].contiguous() for seed in (1, 2, 3))
    a[:4096] = 1 + torch.finfo(dtype).eps * torch.arange(4096).remainder(64).to(dtype)     # near ties
    b[:4096] = a[:4096].flip(0)
    c[:4096] = torch.finfo(dtype).tiny
    out = torch.zeros_like(a)
    launch(f"fused_{suffix}", a, b, c, out)
    for x, y, z, got in zip(a.tolist(), b.tolist(), c.tolist(), out.tolist()):
        if all(map(math.isfinite, (x, y, z))):
            assert got == rounded(Fraction(x) * Fraction(y) + Fraction(z), *FORMATS[suffix]), (x, y, z)


def test_functions(suffix, dtype):
    a = every(dtype)
    root, power, whole, minus, size = like(a, 5)
    launch(f"functions_{suffix}", a, root, power, whole, minus, size)
    assert same(root, a.sqrt()) and same(whole, a.round()) and same(minus, -a) and same(size, a.abs())
    torch.testing.assert_close(power.float(), a.float().exp().to(dtype).float(), rtol=torch.finfo(dtype).eps,
                               atol=6e-8, equal_nan=True)


def test_comparisons(suffix, dtype):
    a, b = shuffled(dtype, 1), shuffled(dtype, 2)
    b[::3] = a[::3]
    out = torch.zeros(65536, dtype=torch.int32)
    launch(f"compare_{suffix}", a, b, out)
    x, y = a.float(), b.float()
    unordered = x.isnan() | y.isnan()
    bits = [x < y, x <= y, x > y, x >= y, x == y, x != y, x.isnan(), (x != y) & ~unordered,
            (x < y) | unordered]
    assert torch.equal(out, sum(bit.int() << place for place, bit in enumerate(bits)))


def test_maximum_and_minimum_prefer_a_number_to_a_nan(suffix, dtype):
    a, b = shuffled(dtype, 1), shuffled(dtype, 2)
    larger, smaller = like(a, 2)
    launch(f"extremes_{suffix}", a, b, larger, smaller)
    x, y = a.float(), b.float()
    for got, pick in ((larger, torch.maximum), (smaller, torch.minimum)):
        want = torch.where(x.isnan(), y, torch.where(y.isnan(), x, pick(x, y))).to(dtype)
        assert torch.equal(got.nan_to_num(123), want.nan_to_num(123))


def test_pairs(suffix, dtype):
    a, b = (torch.randn(256, 2, generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in (1, 2))
    total, fused, swapped = like(a, 3)
    low = torch.zeros(256)
    launch(f"pairs_{suffix}", a, b, total, fused, swapped, low)
    assert (torch.equal(total, (a + b) * b) and torch.equal(swapped, a.flip(1))
            and torch.equal(low, a[:, 0].float()))
    assert torch.equal(fused, (a.double() * b.double() + a.double()).to(dtype))


def test_integers(suffix, dtype):
    a = torch.arange(-4096, 4096, dtype=torch.int32)
    out, back = torch.zeros(8192, dtype=dtype), torch.zeros(8192, dtype=torch.int32)
    launch(f"integers_{suffix}", a, out, back)
    assert torch.equal(out, a.to(dtype)) and torch.equal(back, out.int())


def test_atomics(suffix, dtype):
    a = (torch.arange(256) % 4).to(dtype)
    out, pair = torch.zeros(1, dtype=dtype), torch.zeros(2, dtype=dtype)
    compiled(SOURCE)[f"atomics_{suffix}"][1, 32](a, out, pair)
    assert out.item() == 48 and pair.tolist() == [48, -48]


def test_directed_roundings():
    a = torch.randn(4096, generator=torch.Generator().manual_seed(0)) * 100
    down, up, zero = (torch.zeros(4096, dtype=torch.float16) for _ in range(3))
    launch("directions", a, down, up, zero)
    assert (down.float() <= a).all() and (up.float() >= a).all()
    assert torch.equal(zero, torch.where(a > 0, down, up))
    inexact = down.float() != a
    assert torch.equal(up[inexact], torch.nextafter(down[inexact], torch.tensor(math.inf).half()))


def test_vectors_of_four_become_two_pairs():
    x = torch.randn(32, 4)
    out = torch.zeros(32, 2, dtype=torch.uint32)
    loads = counted(compiled(SOURCE).vectors, 1, 32, x, out)
    assert torch.equal(out.view(torch.float16).view(32, 4), x.half())
    assert (loads.global_load.requests, loads.global_load.sectors) == (1, 16)
    assert (loads.global_store.requests, loads.global_store.sectors) == (1, 8)
