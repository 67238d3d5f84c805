"""Structs of the source's own: assigned whole, passed and returned by value, their accesses are counted and
checked."""
import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import COMPILERS, compiled, counted, line_of, use_compiler

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


@pytest.mark.parametrize("compiler", COMPILERS)
def test_copies_are_counted_as_the_pieces_that_their_size_allows(compiler, monkeypatch):
    """12 bytes are three accesses of 4, which touch 12 sectors each; 40 bytes are five of 8, one sector per
    lane."""
    use_compiler(monkeypatch, compiler)
    mod = compiled(SOURCE)
    for name, loads, sectors, stores, stored in (("assigned", 6, 72, 6, 72), ("summed", 12, 144, 6, 72),
                                                 ("doubled", 10, 320, 10, 320), ("paired", 2, 16, 2, 16)):
        a, b = arrays(name)
        launch = counted(mod[name], 1, 64, a, b, 0)
        assert (launch.global_load.requests, launch.global_load.sectors) == (loads, sectors), name
        assert (launch.global_store.requests, launch.global_store.sectors) == (stores, stored), name
        assert {line.line for line in launch.lines} == line_of(SOURCE, f"// {name}"), name
        assert (b == (2 if name in ("summed", "doubled") else 1)).all()


@pytest.mark.parametrize("compiler", COMPILERS)
def test_copies_are_checked_and_the_line_is_that_of_the_copy(compiler, monkeypatch):
    use_compiler(monkeypatch, compiler)
    mod = compiled(SOURCE)
    for name in ("assigned", "summed", "doubled", "paired"):
        with pytest.raises(cuda.KernelError) as caught, cuda.sanitize():
            mod[name][1, 64](*arrays(name), 1)
        assert (caught.value.kind, caught.value.thread) == ("out of bounds", (63, 0, 0))
        assert caught.value.line in line_of(SOURCE, f"// {name}")
    with cuda.sanitize():
        mod.turned[1, 64](*arrays("turned"), 1)
    with pytest.raises(cuda.KernelError) as caught, cuda.sanitize():
        mod.turned[1, 64](*arrays("turned"), 0)
    assert caught.value.kind == "race" and caught.value.line in line_of(SOURCE, "// turned")
