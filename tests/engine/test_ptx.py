"""Inline PTX of published kernels: each instruction gives what CUDA C++ gives, is counted and checked."""
import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import counted, fault, mod  # noqa: F401
from laptop_cuda.rewrite import rewrite

SOURCE = r"""
#include <cuda_fp16.h>
#include <mma.h>
#include <stdint.h>
using namespace nvcuda;
template <class Layout, class Out>
__global__ void fragments(const half* a, const half* b, Out* d, int by_columns) {
    __shared__ __align__(16) half as[256];
    for (int i = threadIdx.x; i < 256; i += 32) as[i] = a[i];
    __syncthreads();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, Layout> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, Out> fd;
    wmma::fill_fragment(fd, (Out)1.0f);
    wmma::load_matrix_sync(fa, as, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fd, fa, fb, fd);
    for (int i = 0; i < fd.num_elements; i++) fd.x[i] = fd.x[i] * (Out)2.0f;
    wmma::store_matrix_sync(d, fd, 16, by_columns ? wmma::mem_col_major : wmma::mem_row_major);
}
// As in many repositories: the instruction is a macro of the file.
#define LDMATRIX_X4(R0, R1, R2, R3, addr)                                                     \
    asm volatile("ldmatrix.sync.aligned.x4.m8n8.shared.b16 {%0, %1, %2, %3}, [%4];\n"         \
                 : "=r"(R0), "=r"(R1), "=r"(R2), "=r"(R3)                                     \
                 : "r"(addr))
#define HMMA16816(RD0, RD1, RA0, RA1, RA2, RA3, RB0, RB1, RC0, RC1)                           \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %9};\n" \
                 : "=r"(RD0), "=r"(RD1)                                                       \
                 : "r"(RA0), "r"(RA1), "r"(RA2), "r"(RA3), "r"(RB0), "r"(RB1), "r"(RC0), "r"(RC1))
#define CP_ASYNC_CG(dst, src, bytes) asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], %2;\n" ::"r"(dst), "l"(src), "n"(bytes))

__device__ uint32_t smem_of(const void* p) {
    uint32_t a;
    asm("{ .reg .u64 tmp; cvta.to.shared.u64 tmp, %1; cvt.u32.u64 %0, tmp; }" : "=r"(a) : "l"(p));
    return a;
}
// d = a b for one 16 x 8 tile with k = 16, everything in half.
__global__ void half_product(const half* a, const half* b, half* d) {
    __shared__ __align__(16) half as[16][16], bs[8][16];
    int t = threadIdx.x;
    CP_ASYNC_CG(smem_of(&as[t / 2][t % 2 * 8]), a + t * 8, 16);
    if (t < 16) CP_ASYNC_CG(smem_of(&bs[t / 2][t % 2 * 8]), b + t * 8, 16);
    asm volatile("cp.async.commit_group;\n" ::);
    asm volatile("cp.async.wait_group %0;\n" ::"n"(0));
    __syncthreads();
    uint32_t ra[4], rb[4], rd[2] = {0, 0};
    LDMATRIX_X4(ra[0], ra[1], ra[2], ra[3], smem_of(&as[t % 16][t / 16 * 8]));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(rb[0]), "=r"(rb[1])
                 : "r"((uint32_t)__cvta_generic_to_shared(&bs[t % 8][t / 8 % 2 * 8])));
    HMMA16816(rd[0], rd[1], ra[0], ra[1], ra[2], ra[3], rb[0], rb[1], rd[0], rd[1]);
    *(uint32_t*)&d[t / 4 * 8 + t % 4 * 2] = rd[0];
    *(uint32_t*)&d[(t / 4 + 8) * 8 + t % 4 * 2] = rd[1];
}
__global__ void single_product(const float* a, const float* b, float* d) {      // m16n8k8, tf32
    int g = threadIdx.x / 4, t = threadIdx.x % 4;
    uint32_t ra[4], rb[2];
    float rd[4] = {0, 0, 0, 0};
    for (int i = 0; i < 4; ++i)
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(ra[i]) : "f"(a[(g + i % 2 * 8) * 8 + t + i / 2 * 4]));
    for (int i = 0; i < 2; ++i) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rb[i]) : "f"(b[g * 8 + t + i * 4]));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(rd[0]), "+f"(rd[1]), "+f"(rd[2]), "+f"(rd[3])
                 : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
    for (int i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = rd[i];
}
__global__ void byte_product(const int8_t* a, const int8_t* b, int* d) {        // m16n8k32
    int g = threadIdx.x / 4, t = threadIdx.x % 4, rd[4] = {1, 1, 1, 1};
    uint32_t ra[4], rb[2];
    for (int i = 0; i < 4; ++i) ra[i] = *(const uint32_t*)&a[(g + i % 2 * 8) * 32 + t * 4 + i / 2 * 16];
    for (int i = 0; i < 2; ++i) rb[i] = *(const uint32_t*)&b[g * 32 + t * 4 + i * 16];
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(rd[0]), "+r"(rd[1]), "+r"(rd[2]), "+r"(rd[3])
                 : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
    for (int i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = rd[i];
}
__global__ void there_and_back(const half* x, half* y) {     // ldmatrix, then stmatrix
    __shared__ __align__(16) half s[8][8], z[8][8];
    uint32_t r;
    *(uint32_t*)&s[threadIdx.x / 4][threadIdx.x % 4 * 2] = *(const uint32_t*)&x[threadIdx.x * 2];
    __syncthreads();
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(smem_of(s[threadIdx.x % 8])));
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" :: "r"(smem_of(z[threadIdx.x % 8])), "r"(r) : "memory");
    __syncthreads();
    *(uint32_t*)&y[threadIdx.x * 2] = *(uint32_t*)&z[threadIdx.x / 4][threadIdx.x % 4 * 2];
}
__global__ void loads_and_stores(const float* x, float* y) {
    const float* from = x + threadIdx.x * 4;
    float a, b, c, d;
    asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(a), "=f"(b), "=f"(c), "=f"(d) : "l"(from));
    asm volatile("st.global.cs.v2.f32 [%0], {%1, %2};" :: "l"(y + threadIdx.x * 4), "f"(d), "f"(c) : "memory");
    asm volatile("{\n\t.reg .pred p;\n\tsetp.lt.s32 p, %2, 16;\n\t@p st.global.f32 [%0+8], %1;\n\t@!p st.global.f32 [%0+8], 0f00000000;\n\t}"
                 :: "l"(y + threadIdx.x * 4), "f"(b), "r"(threadIdx.x) : "memory");
    asm volatile("red.global.add.f32 [%0], %1;" :: "l"(y + 3), "f"(a) : "memory");
}
__global__ void arithmetic(const int* x, const float* f, int* y, float* g) {
    int i = threadIdx.x, a = x[i], r;
    unsigned lane, u;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm("bfe.u32 %0, %1, 4, 8;" : "=r"(u) : "r"(a));
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(a), "r"(lane), "r"(u));     // (a & b) | c
    y[i * 4] = r;
    asm("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(r) : "r"(a), "r"(u));
    y[i * 4 + 1] = r;
    asm("mad.lo.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"((int)lane), "r"(7));
    y[i * 4 + 2] = r;
    asm("shfl.sync.bfly.b32 %0, %1, 1, 0x1f, 0xffffffff;" : "=r"(r) : "r"(a));
    y[i * 4 + 3] = r;
    asm("vabsdiff4.u32.u32.u32.add %0, %1, %2, %3;" : "=r"(y[128 + i]) : "r"(a), "r"(r), "r"(lane));
    float v = f[i], w;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(w) : "f"(v));
    asm("fma.rn.f32 %0, %0, %1, %2;" : "+f"(w) : "f"(2.f), "f"(v));
    asm volatile("" : "+f"(w) :: "memory");
    g[i] = w;
    uint32_t both, doubled;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(v), "f"(w));
    asm("add.f16x2 %0, %1, %1;" : "=r"(doubled) : "r"(both));
    unsigned short low, high;
    asm("mov.b32 {%0, %1}, %2;" : "=h"(low), "=h"(high) : "r"(doubled));
    g[32 + i] = __half2float(__ushort_as_half(high));
    g[64 + i] = __half2float(__ushort_as_half(low));
}
__global__ void newer(float* x, int reached) {
    if (reached) asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
    asm volatile("" ::: "memory");
    x[threadIdx.x] = 1;
}
__global__ void used_too_early(const float* x, float* y) {
    __shared__ __align__(16) float s[32];
    uint32_t to = (uint32_t)__cvta_generic_to_shared(&s[threadIdx.x]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(x + threadIdx.x));
    y[threadIdx.x] = s[threadIdx.x];                 // early
}
__global__ void beyond(float* y) {
    __shared__ float s[32];
    uint32_t to = (uint32_t)__cvta_generic_to_shared(s) + 4 * threadIdx.x + 4;
    asm volatile("st.shared.f32 [%0], %1;" :: "r"(to), "f"(1.f) : "memory");         // one too far
    asm volatile("bar.sync 0;");
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(to));
    y[threadIdx.x] = v;
}
"""


def rng():
    return np.random.default_rng(0)


def both_ways(launch):
    """A launch, plain and sanitized."""
    launch()
    with cuda.sanitize():
        launch()


def test_a_product_in_half(mod):
    a, b = (rng().standard_normal((16, 16)).astype(np.float16),
            rng().standard_normal((8, 16)).astype(np.float16))
    d = np.zeros((16, 8), np.float16)
    both_ways(lambda: mod.half_product[1, 32](a, b, d))
    np.testing.assert_allclose(d, a.astype(np.float64) @ b.T.astype(np.float64), rtol=1e-3, atol=4e-3)


def test_the_matrix_loads_are_counted_by_their_rows(mod):
    a, b, d = np.zeros((16, 16), np.float16), np.zeros((8, 16), np.float16), np.zeros((16, 8), np.float16)
    launch = counted(mod.half_product, 1, 32, a, b, d)
    assert launch.global_load.bytes == a.nbytes + b.nbytes and launch.global_store.bytes == d.nbytes
    assert (launch.shared_load.requests, launch.shared_load.bytes) == (2, 16 * 32 + 16 * 16)
    assert launch.shared_store.bytes == a.nbytes + b.nbytes
    assert (launch.tensor_cores.instructions, launch.tensor_cores.flops) == (1, 2 * 16 * 8 * 16)


@pytest.mark.parametrize("layout, out",
                         [pytest.param("row_major", "float", marks=pytest.mark.slow), ("col_major", "float"),
                          pytest.param("row_major", "half", marks=pytest.mark.slow)])
def test_fragments(mod, layout, out):
    a, b = rng().standard_normal((2, 16, 16)).astype(np.float16)
    d = np.zeros((16, 16), np.float32 if out == "float" else np.float16)
    kernel = mod[f"fragments<nvcuda::wmma::{layout}, {out}>"]
    both_ways(lambda: kernel[1, 32](a, b, d, 0))
    want = 2 * (a.astype(float) @ (b.astype(float) if layout == "row_major" else b.astype(float).T) + 1)
    np.testing.assert_allclose(d, want, rtol=2e-3, atol=2e-2)
    launch = counted(kernel, 1, 32, a, b, d, 1)
    np.testing.assert_allclose(d, want.T, rtol=2e-3, atol=2e-2)
    assert launch.global_load.bytes == 2 * 512 and launch.global_store.bytes == d.nbytes
    assert (launch.shared_load.requests, launch.shared_load.bytes) == (1, 512)
    assert (launch.tensor_cores.instructions, launch.tensor_cores.flops) == (1, 2 * 16 ** 3)


def test_products_in_tf32_and_in_bytes(mod):
    a, b = rng().integers(-8, 8, (16, 8)).astype(np.float32), rng().integers(-8, 8, (8, 8)).astype(np.float32)
    d = np.zeros((16, 8), np.float32)
    both_ways(lambda: mod.single_product[1, 32](a, b, d))
    assert (d == a @ b.T).all()
    a, b = rng().integers(-128, 128,
                          (16, 32)).astype(np.int8), rng().integers(-128, 128, (8, 32)).astype(np.int8)
    d = np.zeros((16, 8), np.int32)
    both_ways(lambda: mod.byte_product[1, 32](a, b, d))
    assert (d == a.astype(int) @ b.T.astype(int) + 1).all()
    assert counted(mod.byte_product, 1, 32, a, b, d).tensor_cores.flops == 2 * 16 * 8 * 32


def test_a_transposed_load_and_a_matrix_store(mod):
    x, y = np.arange(64, dtype=np.float16), np.zeros(64, np.float16)
    both_ways(lambda: mod.there_and_back[1, 32](x, y))
    assert (y.reshape(8, 8) == x.reshape(8, 8).T).all()


def test_loads_stores_predicates_and_reductions(mod):
    x, y = np.arange(1, 129, dtype=np.float32), np.zeros(128, np.float32)
    mod.loads_and_stores[1, 32](x, y)
    x, got = x.reshape(32, 4), y.reshape(32, 4)
    assert (got[:, 0] == x[:, 3]).all() and (got[:, 1] == x[:, 2]).all() and got[0, 3] == x[:, 0].sum()
    assert (got[:16, 2] == x[:16, 1]).all() and (got[16:, 2] == 0).all()
    launch = counted(mod.loads_and_stores, 1, 32, x.ravel(), y)
    assert (launch.global_load.requests, launch.global_load.bytes, launch.global_load.sectors) == (1, 512, 16)
    assert launch.global_store.bytes == 32 * 8 + 32 * 4 and launch.atomics == 1


def test_registers_bits_and_functions(mod):
    x, f = rng().integers(0, 2**31, 32).astype(np.int32), rng().standard_normal(32).astype(np.float32)
    y, g = np.zeros(160, np.int32), np.zeros(96, np.float32)
    both_ways(lambda: mod.arithmetic[1, 32](x, f, y, g))
    a, lane, wanted = x.astype(np.int64), np.arange(32), y[:128].reshape(32, 4).astype(np.int64) & 0xFFFFFFFF
    octets = x.view(np.uint8).reshape(32, 4).astype(int)
    assert (y[128:] == np.abs(octets - octets[lane ^ 1]).sum(1) + lane).all()
    u = a >> 4 & 0xFF
    assert ((wanted[:, 0] == (a & lane | u)).all()
            and (wanted[:, 1] == (a & 0xFFFF | (u & 0xFFFF) << 16)).all())
    assert (wanted[:, 2] == (a * lane + 7 & 0xFFFFFFFF)).all() and (wanted[:, 3] == a[lane ^ 1]).all()
    w = np.exp2(f) * 2 + f
    np.testing.assert_allclose(g[:32], w, rtol=1e-6)
    np.testing.assert_allclose(g[32:64], 2 * f, rtol=2e-3)
    np.testing.assert_allclose(g[64:], 2 * w, rtol=2e-3)


def test_an_unknown_instruction_is_an_error_where_it_is_reached(mod):
    x = np.zeros(32, np.float32)
    both_ways(lambda: mod.newer[1, 32](x, 0))
    assert x.sum() == 32
    for mode in (cuda.profile, cuda.sanitize):
        with pytest.raises(cuda.KernelError) as caught, mode():
            mod.newer[1, 32](x, 1)
        assert caught.value.kind == "not supported" and "tcgen05.wait" in str(caught.value)
        assert "tcgen05" in SOURCE.splitlines()[caught.value.line - 1]


def test_a_copy_that_is_used_before_its_wait(mod):
    error = fault(mod.used_too_early, 1, 32, np.zeros(32, np.float32), np.zeros(32, np.float32))
    assert error.kind == "race" and "// early" in SOURCE.splitlines()[error.line - 1]


def test_an_access_beyond_shared_memory(mod):
    error = fault(mod.beyond, 1, 32, np.zeros(32, np.float32))
    assert error.kind == "out of bounds" and "s[32]" in str(error)
    assert "// one too far" in SOURCE.splitlines()[error.line - 1]


def test_the_rewriter_keeps_every_line():
    assert rewrite(SOURCE).count("\n") == SOURCE.count("\n")
