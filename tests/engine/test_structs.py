"""Structs and unions of the source: assigned whole, passed by value, their accesses are counted."""
import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import checked, compiled, compiler, counted, fault, line_of  # noqa: F401

SOURCE = r"""
struct Vec { float x, y, z; };
struct Row { float x[10]; };
struct alignas(8) Pair { float a, b; };
__device__ Vec operator+(Vec a, Vec b) { return {a.x + b.x, a.y + b.y, a.z + b.z}; }
__device__ Row twice(Row a) { for (int k = 0; k < 10; ++k) a.x[k] *= 2; return a; }
__global__ void assigned(const Vec* a, Vec* b, int off) { b[threadIdx.x] = a[threadIdx.x + off]; }          // assigned
__global__ void summed(const Vec* a, Vec* b, int off) { b[threadIdx.x] = a[threadIdx.x + off] + a[threadIdx.x]; } // summed
__global__ void doubled(const Row* a, Row* b, int off) { b[threadIdx.x] = twice(a[threadIdx.x + off]); }    // doubled
__global__ void paired(const Pair* a, Pair* b, int off) { b[threadIdx.x] = a[threadIdx.x + off]; }          // paired
__global__ void turned(const Vec* a, Vec* b, int waits) {
    __shared__ Vec s[64];
    s[threadIdx.x] = a[threadIdx.x] + a[threadIdx.x];                                                       // turned
    if (waits) __syncthreads();
    b[threadIdx.x] = s[63 - threadIdx.x];
}
"""
FLOATS = {"assigned": 3, "summed": 3, "doubled": 10, "paired": 2, "turned": 3}


def arrays(name: str):
    return np.ones((64, FLOATS[name]), np.float32), np.zeros((64, FLOATS[name]), np.float32)


def test_copies_are_counted_as_the_pieces_that_their_size_allows(compiler):
    """12 bytes are three accesses of 4 with 12 sectors each; 40 bytes five of 8, one sector per lane."""
    mod = compiled(SOURCE)
    for name, loads, sectors, stores, stored in (("assigned", 6, 72, 6, 72), ("summed", 12, 144, 6, 72),
                                                 ("doubled", 10, 320, 10, 320), ("paired", 2, 16, 2, 16)):
        a, b = arrays(name)
        launch = counted(mod[name], 1, 64, a, b, 0)
        assert (launch.global_load.requests, launch.global_load.sectors) == (loads, sectors), name
        assert (launch.global_store.requests, launch.global_store.sectors) == (stores, stored), name
        assert {line.line for line in launch.lines} == line_of(SOURCE, f"// {name}"), name
        assert (b == (2 if name in ("summed", "doubled") else 1)).all()


def test_copies_are_checked_and_the_line_is_that_of_the_copy(compiler):
    mod = compiled(SOURCE)
    for name in ("assigned", "summed", "doubled", "paired"):
        error = fault(mod[name], 1, 64, *arrays(name), 1)
        assert (error.kind, error.thread) == ("out of bounds", (63, 0, 0))
        assert error.line in line_of(SOURCE, f"// {name}")
    checked(mod.turned, 1, 64, *arrays("turned"), 1)
    error = fault(mod.turned, 1, 64, *arrays("turned"), 0)
    assert error.kind == "race" and error.line in line_of(SOURCE, "// turned")


# of vectors and 16-bit numbers with their elements: copied by the compiler, counted as everywhere
UNIONS = r"""
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
__global__ void turned(const float4* x, float4* y) {
    __shared__ float4 s[64];
    s[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = s[63 - threadIdx.x];
}
__device__ half sum(half a, half b) { return a + b; }
__global__ void halves(const half* x, half* y) { y[threadIdx.x] = sum(x[threadIdx.x], x[0]); }
__global__ void pairs(const Bits* x, Bits* y) { Bits b = x[threadIdx.x]; b.word ^= 1u << 31; y[threadIdx.x] = b; }
"""


def test_unions_are_copied_and_counted(compiler):
    """Requests of the widest pieces that the alignment allows; bytes as asked for."""
    mod = compiled(UNIONS)
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
    x = np.ones((64, 4), np.float32)
    assert fault(compiled(UNIONS).turned, 1, 64, x, np.zeros_like(x)).kind == "race"


def test_an_asynchronous_copy_is_aligned_and_reads_what_it_does_not_fill():
    mod = cuda.compile("""
#include <cuda_pipeline.h>
__global__ void copy(const float* x, float* y, int from, int to, int n) {
    __shared__ __align__(16) float s[12];
    __pipeline_memcpy_async(&s[to], &x[from], 16, 16 - 4 * n);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    for (int i = 0; i < 4; ++i) y[i] = s[to + i];
}""")
    x, y = np.arange(1, 11, dtype=np.float32), np.ones(4, np.float32)
    checked(mod.copy, 1, 1, x, y, 8, 4, 2)       # the last two of x, and zeros
    assert y.tolist() == [9, 10, 0, 0]
    for at, side in (((1, 4), "reads 16 bytes at x"), ((4, 2), "writes 16 bytes at s")):
        with pytest.raises(cuda.KernelError, match=side) as caught, cuda.sanitize():
            mod.copy[1, 1](x, y, *at, 4)
        assert caught.value.kind == "misaligned"
