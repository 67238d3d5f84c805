"""cp.reduce.async.bulk, red.async and st.async: each operation and type against NumPy, vectors, counts. What goes wrong
with them is in test_copies.py and test_clusters.py."""
import numpy as np
import pytest
import test_clusters
import test_copies

import laptop_cuda as cuda
from engine_kit import EVERY_ORDER, compiled

OPERATIONS = {"add": np.add, "min": np.minimum, "max": np.maximum, "inc": lambda old, v: np.where(old >= v, 0, old + 1),
              "dec": lambda old, v: np.where((old == 0) | (old > v), v, old - 1), "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
TYPES = {"u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64, "b32": np.uint32, "b64": np.uint64,
         "f16": np.float16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64}
# as ptxas 13.0 takes them for sm_90a
GLOBAL = {"add": "u32 s32 u64 f32 f64 f16 bf16", **dict.fromkeys(("min", "max"), "u32 s32 u64 s64 f16 bf16"),
          **dict.fromkeys(("inc", "dec"), "u32"), **dict.fromkeys(("and", "or", "xor"), "b32 b64")}
CLUSTER = {"add": "u32 s32 u64", **dict.fromkeys(("min", "max"), "u32 s32"), **dict.fromkeys(("inc", "dec"), "u32"),
           **dict.fromkeys(("and", "or", "xor"), "b32")}
FORMS = [(op, t) for op, types in GLOBAL.items() for t in types.split()]
IN_CLUSTER = [(op, t) for op, types in CLUSTER.items() for t in types.split()]
C = {"f16": "__half", "bf16": "__nv_bfloat16", "f32": "float", "f64": "double", "s32": "int", "s64": "int64_t"}
HEAD = r"""
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
namespace ptx = cuda::ptx;
__device__ unsigned in_shared(const void* p) { return __cvta_generic_to_shared(p); }
__device__ void meet() { ptx::barrier_cluster_arrive(), ptx::barrier_cluster_wait(); }
__device__ void expect(uint64_t* bar, int bytes) { ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, bar, bytes); }
__device__ bool over(uint64_t* bar, int parity) { return ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, bar, parity); }
__global__ void __cluster_dims__(2) vectors(const unsigned* x, unsigned* y) {
    __shared__ alignas(16) unsigned tile[16];
    __shared__ uint64_t bar;
    if (threadIdx.x == 0) ptx::mbarrier_init(&bar, 1), expect(&bar, 64);
    meet();
    unsigned *to = ptx::mapa(ptx::space_cluster, tile, 0), rank = ptx::get_sreg_cluster_ctarank();
    uint64_t* end = ptx::mapa(ptx::space_cluster, &bar, 0);
    if (rank && threadIdx.x == 0) {
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];"
                     :: "r"(in_shared(to)), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(in_shared(end)) : "memory");
        asm volatile("st.async.mbarrier::complete_tx::bytes.v2.u64 [%0], {%1, %2}, [%3];"
                     :: "l"(to + 4), "l"((uint64_t)x[5] << 32 | x[4]), "l"((uint64_t)x[7] << 32 | x[6]), "l"(end) : "memory");
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, 0f00000009}, [%2];"
                     :: "r"(in_shared(to + 8)), "f"(__uint_as_float(x[8])), "r"(in_shared(end)) : "memory");
        ptx::st_async(to + 10, {x[10], x[11]}, end), ptx::st_async(to + 12, {x[12], x[13], x[14], x[15]}, end);
    }
    while (!rank && !over(&bar, 0)) {}
    if (!rank) y[threadIdx.x] = tile[threadIdx.x];
    meet();
}
__device__ void finish() { ptx::cp_async_bulk_commit_group(), ptx::cp_async_bulk_wait_group(ptx::n32_t<0>()); }
"""


def kernels(op, t):
    """Each number of x into that of y, twice, in PTX and as cuda::ptx; then the same in another block's shared memory."""
    type_, tag = C.get(t, f"uint{t[1:]}_t"), op + "_op" * (op in ("and", "or", "xor"))
    held, noftz = f"uint{8 * np.dtype(TYPES[t]).itemsize}_t", ".noftz" * (op == "add" and "f16" in t)
    made = f"""
__global__ void {op}_{t}(const {held}* x, {held}* y) {{
    __shared__ alignas(16) {type_} tile[32];
    tile[threadIdx.x] = (({type_}*)x)[threadIdx.x], ptx::fence_proxy_async(), __syncwarp();
    if (threadIdx.x) return;
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.{op}{noftz}.{t} [%0], [%1], %2, %3;"
                 :: "l"(y), "r"(in_shared(tile)), "r"((int)sizeof tile), "l"(0ull) : "memory");
    finish();
    ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_{tag}, ({type_}*)y, tile, sizeof tile), finish();
}}"""
    letter, form = "l" if "64" in t else "r", "mbarrier::complete_tx::bytes"
    return made if (op, t) not in IN_CLUSTER else made + f"""
__global__ void __cluster_dims__(2) pushed_{op}_{t}(const {type_}* x, {type_}* y) {{
    __shared__ alignas(16) {type_} tile[32];
    __shared__ uint64_t bar;
    int t = threadIdx.x, rank = ptx::get_sreg_cluster_ctarank();
    tile[t] = rank ? x[t] : y[t], ptx::fence_proxy_async();
    if (t == 0) ptx::mbarrier_init(&bar, 1), expect(&bar, 4 * sizeof tile);
    meet();
    auto *to = ptx::mapa(ptx::space_cluster, tile, 0);
    auto *end = ptx::mapa(ptx::space_cluster, &bar, 0);
    if (rank) asm volatile("red.async.relaxed.cluster.shared::cluster.{form}.{op}.{t} [%0], %1, [%2];"
                           :: "r"(in_shared(to + t)), "{letter}"(x[t]), "r"(in_shared(end)) : "memory");
    if (rank) ptx::red_async(ptx::op_{tag}, to + t, x[t], end);
    if (rank && t == 0) {{
        asm volatile("cp.reduce.async.bulk.shared::cluster.shared::cta.{form}.{op}.{t} [%0], [%1], %2, [%3];"
                     :: "r"(in_shared(to)), "r"(in_shared(tile)), "r"((int)sizeof tile), "r"(in_shared(end)) : "memory");
        ptx::cp_reduce_async_bulk(ptx::space_cluster, ptx::space_shared, ptx::op_{tag}, to, tile, sizeof tile, end);
    }}
    while (!rank && !over(&bar, 0)) {{}}
    if (!rank) y[t] = tile[t];
    meet();
}}"""


def numbers(t, seed):
    drawn = np.random.default_rng(seed)
    if t == "bf16":
        return (drawn.integers(-9, 9, 32).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if t[0] == "f":
        return (drawn.integers(-99, 99, 32) * 2.0**-24).astype(TYPES[t])         # of f16 subnormal
    return drawn.choice([0, 1, 5, 7, 2**31 - 1, 2**31], 32).astype(TYPES[t])


def applied(op, t, old, v, times):
    for _ in range(times):
        if t == "bf16":
            wide = [(x.astype(np.uint32) << 16).view(np.float32) for x in (old, v)]
            old = (OPERATIONS[op](*wide).view(np.uint32) >> 16).astype(np.uint16)
        else:
            old = OPERATIONS[op](old, v).astype(old.dtype)
    return old


def module():
    return compiled(HEAD + "".join(kernels(*form) for form in FORMS))


@pytest.mark.parametrize("op, t", FORMS)
def test_each_operation_and_type(op, t):
    for how in EVERY_ORDER:
        x, y = numbers(t, 1), numbers(t, 2)
        bits = np.dtype(f"u{y.itemsize}")
        right = applied(op, t, y, x, 2)
        with how():
            module()[f"{op}_{t}"][1, 32](x.view(bits), y.view(bits))
        assert (y == right).all(), how
        if (op, t) in IN_CLUSTER:
            right = applied(op, t, y, x, 4)
            with how():
                module()[f"pushed_{op}_{t}"][2, 32](x, y)
            assert (y == right).all(), how


def test_vectors_are_stored():
    for how in EVERY_ORDER:
        y = np.zeros(16, np.uint32)
        with how():
            module().vectors[2, 16](np.arange(16, dtype=np.uint32), y)
        assert (y == np.arange(16)).all()


def test_they_are_counted_as_copies_out():
    """In global memory with their sectors; each store of a lane by itself."""
    with cuda.profile() as report:
        test_copies.launched(compiled(test_copies.SOURCE), "handed_over", 10)
        test_clusters.launched(compiled(test_clusters.SOURCE), "later", 0)
    first, second = (launch.copies_out for launch in report.launches)
    assert (first.requests, first.bytes, first.sectors, first.unique_sectors) == (6, 1536, 48, 24)
    assert (second.requests, second.bytes, second.sectors) == (4 * 129, 4 * 768, 0)
    assert report.launches[1].copies_in.requests == 0
