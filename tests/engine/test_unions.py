"""Unions of vectors and 16-bit numbers with their elements: copied by the compiler, counted as everywhere."""
import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import COMPILERS, compiled, counted, use_compiler

SOURCE = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
template <typename T, int n> struct Pack { __device__ Pack() {} union { float4 whole; T part[n]; }; };
union Bits { __nv_bfloat162 pair; unsigned word; __nv_fp8_e4m3 bytes[4]; };
__global__ void packs(const Pack<half, 8>* x, Pack<half, 8>* y) {
    Pack<half, 8> p = x[threadIdx.x], q;
    for (int k = 0; k < 8; ++k) q.part[k] = p.part[7 - k] + half(1);
    y[threadIdx.x] = q;
}
__global__ void vectors(const float4* x, float4* y) { y[threadIdx.x] = x[threadIdx.x]; }
__device__ half sum(half a, half b) { return a + b; }
__global__ void halves(const half* x, half* y) { y[threadIdx.x] = sum(x[threadIdx.x], x[0]); }
__global__ void pairs(const Bits* x, Bits* y) { Bits b = x[threadIdx.x]; b.word ^= 1u << 31; y[threadIdx.x] = b; }
"""


@pytest.mark.parametrize("compiler", COMPILERS)
def test_unions_are_copied_and_counted(compiler, monkeypatch):
    """Requests of the widest pieces that the alignment allows; bytes as asked for."""
    use_compiler(monkeypatch, compiler)
    mod = compiled(SOURCE)
    x = np.arange(256, dtype=np.float16)
    launch = counted(mod.packs, 1, 32, x, y := np.zeros_like(x))
    assert (y.reshape(32, 8) == x.reshape(32, 8)[:, ::-1] + 1).all()
    assert (launch.global_load.bytes, launch.global_store.bytes, launch.global_load.sectors) == (512, 512, 16)
    f = np.arange(128, dtype=np.float32)
    launch = counted(mod.vectors, 1, 32, f, g := np.zeros_like(f))
    assert (f == g).all() and (launch.global_load.requests, launch.global_store.requests) == (1, 1)
    launch = counted(mod.halves, 1, 32, x, y := np.zeros(32, np.float16))
    assert (y == x[:32]).all() and (launch.global_load.requests, launch.global_load.bytes) == (2, 128)
    launch = counted(mod.pairs, 1, 32, w := np.arange(32, dtype=np.uint32), v := np.zeros(32, np.uint32))
    assert (v == w + 2**31).all() and (launch.global_load.bytes, launch.global_store.bytes) == (128, 128)


def test_a_race_through_a_copied_vector_is_found():
    source = SOURCE + ("__global__ void turned(const float4* x, float4* y) { __shared__ float4 s[32];\n"
                       "s[threadIdx.x] = x[threadIdx.x];\ny[threadIdx.x] = s[31 - threadIdx.x]; }")
    x = np.ones((64, 4), np.float32)
    with pytest.raises(cuda.KernelError) as caught, cuda.sanitize():
        compiled(source.replace("[32]", "[64]").replace("31 -", "63 -")).turned[1, 64](x, np.zeros_like(x))
    assert caught.value.kind == "race"
