"""The 8-bit floats against torch's, every half and every code; loads and stores are counted as bytes."""
import numpy as np
import pytest

from engine_kit import checked, compiled, counted

torch = pytest.importorskip("torch")

SOURCE = r"""
#include <cuda_fp8.h>
#define ALL(name, Type, kind)                                                                    \
    __global__ void narrow_##name(const float* x, Type* y, unsigned char* free, int n) {          \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                            \
        if (i < n) y[i] = Type(x[i]), free[i] = __nv_cvt_float_to_fp8(x[i], __NV_NOSAT, kind);    \
    }                                                                                             \
    __global__ void widen_##name(const Type* x, float* y, half* h, int n) {                       \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                            \
        if (i < n) { Type v = x[i]; y[i] = float(v); h[i] = half(v); }                            \
    }
ALL(e4m3, __nv_fp8_e4m3, __NV_E4M3)
ALL(e5m2, __nv_fp8_e5m2, __NV_E5M2)
__global__ void vectors(const float4* x, __nv_fp8x4_e4m3* four, float4* back, __nv_fp8x2_e5m2* two,
                        __nv_fp8x4_e4m3* of_halves) {
    float4 v = x[threadIdx.x];
    __nv_fp8x4_e4m3 q(v);
    four[threadIdx.x] = q;
    half2 xy = __floats2half2_rn(v.x, v.y), zw = __floats2half2_rn(v.z, v.w);
    of_halves[threadIdx.x] = __nv_fp8x4_e4m3(xy, zw);
    back[threadIdx.x] = float4(q);
    two[threadIdx.x] = __nv_fp8x2_e5m2(make_float2(v.x, v.y));
}
__global__ void copy(const __nv_fp8_e4m3* x, __nv_fp8_e4m3* y) { y[threadIdx.x] = x[threadIdx.x]; }
"""
TYPES = {"e4m3": (torch.float8_e4m3fn, 448.0), "e5m2": (torch.float8_e5m2, 57344.0)}


def every_half():
    halves = torch.arange(-2**15, 2**15, dtype=torch.int16).view(torch.float16).float()
    between = halves * (1 + 2**-12)          # not halves: rounding twice would show
    return torch.cat([halves, between, torch.tensor([1e9, -1e9, 463.99997, 464.0, 464.00003])])


@pytest.mark.parametrize("name", TYPES)
def test_conversion_from_float_rounds_to_nearest_even_and_saturates(name):
    dtype, largest = TYPES[name]
    x = every_half()
    y, free = torch.zeros(len(x), dtype=dtype), torch.zeros(len(x), dtype=torch.uint8)
    getattr(compiled(SOURCE), f"narrow_{name}")[(len(x) + 255) // 256, 256](x, y, free, len(x))
    number = ~x.isnan()
    wanted = x.clamp(-largest, largest).to(dtype).float()
    assert torch.equal(y.float()[number], wanted[number])
    assert torch.equal(torch.signbit(y.float()[number]), torch.signbit(x[number]))
    assert y.float()[~number].isnan().all()
    fits = number & (wanted.abs() < largest)
    assert torch.equal(free.view(dtype).float()[fits], wanted[fits])
    beyond = free.view(dtype).float()[x == 1e9]
    assert beyond.isnan().all() if name == "e4m3" else beyond.isinf().all()


@pytest.mark.parametrize("name", TYPES)
def test_every_code_widens_as_in_torch(name):
    dtype = TYPES[name][0]
    x = torch.arange(256, dtype=torch.uint8).view(dtype)
    y, h = torch.zeros(256), torch.zeros(256, dtype=torch.float16)
    checked(getattr(compiled(SOURCE), f"widen_{name}"), 2, 128, x, y, h, 256)
    assert torch.equal(y.isnan(), x.float().isnan())
    assert torch.equal(y.nan_to_num(9), x.float().nan_to_num(9))
    assert torch.equal(h.float().nan_to_num(9), x.to(torch.float16).float().nan_to_num(9))


def test_pairs_and_fours_are_their_elements():
    x = torch.randn(32, 4) * 100
    four, back = torch.zeros(32, 4, dtype=torch.uint8), torch.zeros(32, 4)
    two, of_halves = torch.zeros(32, 2, dtype=torch.uint8), torch.zeros(32, 4, dtype=torch.uint8)
    checked(compiled(SOURCE).vectors, 1, 32, x, four, back, two, of_halves)
    wanted = x.clamp(-448, 448).to(torch.float8_e4m3fn)
    assert torch.equal(four, wanted.view(torch.uint8)) and torch.equal(back, wanted.float())
    assert torch.equal(two, x[:, :2].contiguous().to(torch.float8_e5m2).view(torch.uint8))
    wanted = x.half().float().clamp(-448, 448).to(torch.float8_e4m3fn)
    assert torch.equal(of_halves, wanted.view(torch.uint8))


def test_an_element_is_a_byte_of_traffic():
    x = np.zeros(32, np.uint8)
    count = counted(compiled(SOURCE).copy, 1, 32, torch.from_numpy(x).view(torch.float8_e4m3fn),
                    torch.zeros(32, dtype=torch.float8_e4m3fn))
    assert (count.global_load.requests, count.global_load.bytes, count.global_load.sectors) == (1, 32, 1)
    assert (count.global_store.requests, count.global_store.bytes, count.global_store.sectors) == (1, 32, 1)


def test_four_bits_round_to_even_and_saturate():
    """The values as NVIDIA's header rounds them: 4,016 conversions were compared."""
    module = compiled(r"""
#include <cuda_fp4.h>
__global__ void k(const float* x, int* code, float* back) {
    int i = threadIdx.x;
    code[i] = __nv_cvt_float_to_fp4(x[i], __NV_E2M1, cudaRoundNearest) | __nv_fp4x2_e2m1(float2{0, x[i]}).__x << 4;
    back[i] = float4(__nv_fp4x4_e2m1(float4{0, 1, 2, x[i]})).w;
}""")
    x = torch.tensor([0, .24, .25, .26, .75, 1.25, -1.75, 2.5, 3.5, -5, 5.1, 7e9, float("nan")])
    code, back = torch.zeros(13, dtype=torch.int32), torch.zeros(13)
    checked(module.k, 1, 13, x, code, back)
    assert back.tolist() == [0, 0, 0, .5, 1, 1, -2, 2, 4, -4, 6, 6, 6]
    assert code.tolist() == [c | c << 8 for c in (0, 0, 0, 1, 2, 2, 12, 4, 6, 14, 7, 7, 7)]
