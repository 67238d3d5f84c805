"""cp.reduce.async.bulk, its tensor form, red.async and st.async: each operation against NumPy, and kernels with one wait,
fence, byte or order taken away."""
import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import EVERY_ORDER, compiled, counted, ramp

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


SOURCE = HEAD + r"""
// Each block adds its tile to y, twice.
__global__ void summed(const float* x, float* y, int fault) {
    __shared__ alignas(16) float tile[64];
    int t = threadIdx.x;
    for (int i = 0; i < 2; ++i) {
        if (fault == 4 && blockIdx.x == 1) y[t] = 1;                            // no atomic
        if (fault == 5 && blockIdx.x == 1 && y[t] > 1e9f) y[t] = 1;             // nor this
        tile[t] = x[t];
        if (fault != 1) ptx::fence_proxy_async(ptx::space_shared);
        __syncthreads();
        if (t == 0) {
            ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_add, y, tile, 256);     // issued
            if (fault == 2 && y[9] > 1e9f) y[0] = 0;                            // before it is there
            ptx::cp_async_bulk_commit_group();
            if (fault != 3) ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
        }
        __syncthreads();
        if (fault == 6) atomicAdd(y + t, 0.f);
        if (fault == 7 && t == 0) ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, y, tile, 256);     // over it
    }
    if (t == 0) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
}
// Round after round rank 1 stores into rank 0's memory, and adds to it; rank 0 says when it has read.
__global__ void __cluster_dims__(2) handed(const int* x, int* y, int n, int fault) {
    __shared__ alignas(16) int tile[64], sum[64], total[64];
    __shared__ uint64_t full, empty;
    int t = threadIdx.x, rank = ptx::get_sreg_cluster_ctarank();
    if (t == 0) ptx::mbarrier_init(&full, 1), ptx::mbarrier_init(&empty, 64);
    sum[t] = total[t] = 0;
    if (rank) tile[t] = x[t];
    if (fault != 8 - rank) ptx::fence_proxy_async(ptx::space_shared);
    meet();
    auto at = [](int* p) { return ptx::mapa(ptx::space_cluster, p, 0); };
    uint64_t *bar = ptx::mapa(ptx::space_cluster, &full, 0), *back = ptx::mapa(ptx::space_cluster, &empty, 1);
    for (int i = 0; i < n; ++i) {
        if (!rank && t == 0) expect(&full, fault == 2 ? 776 : fault == 6 ? 1024 : 768);
        while (rank && i && fault != 3 && !over(&empty, i - 1 & 1)) {}
        if (rank) {
            ptx::st_async(at(tile + t), x[t] + i, bar);                         // stored
            if (fault == 5) ptx::st_async(at(tile + t), i, bar);                // and again
            ptx::red_async(ptx::op_add, at(sum + t), x[t], bar);
            if (fault == 6) ptx::red_async(ptx::op_add, at(sum + 63 - t), 0, bar);
            if (t == 0) ptx::cp_reduce_async_bulk(ptx::space_cluster, ptx::space_shared, ptx::op_add, at(total), tile, 256, bar);
            if (fault == 4) *at(tile + t) = i;                                  // an ordinary store
        } else {
            while (fault != 1 && !over(&full, i & 1)) {}
            y[64 * i + t] = tile[t] + sum[t] - total[t];                        // read
            ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::space_cluster, back);
        }
    }
    meet();
}
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
        ptx::st_async(to + 8, {x[8], x[9]}, end), ptx::st_async(to + 10, {x[10], x[11]}, end);
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];"
                     :: "r"(in_shared(to + 12)), "f"(__uint_as_float(x[12])), "f"(__uint_as_float(x[13])), "r"(in_shared(end)) : "memory");
        ptx::st_async((uint64_t*)(to + 14), (uint64_t)x[15] << 32 | x[14], end);
    }
    while (!rank && !over(&bar, 0)) {}
    if (!rank) y[threadIdx.x] = tile[threadIdx.x];
    meet();
}
// Two blocks add to, or keep the largest of, two boxes of a tensor that overlap.
__global__ void boxes(const __grid_constant__ CUtensorMap to, const unsigned* x, int largest) {
    __shared__ alignas(128) unsigned tile[128];
    for (int i = threadIdx.x; i < 128; i += 32) tile[i] = x[i];
    ptx::fence_proxy_async(), __syncwarp();
    if (threadIdx.x) return;
    int at[] = {8 * (int)blockIdx.x, (int)blockIdx.x};
    if (!largest) ptx::cp_reduce_async_bulk_tensor(ptx::space_global, ptx::space_shared, ptx::op_add, &to, at, tile);
    else asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.max.tile.bulk_group [%0, {%1, %2}], [%3];"       // max
                      :: "l"(&to), "r"(at[0]), "r"(at[1]), "r"(in_shared(tile)) : "memory");
    finish();
}
__global__ void against_rules(int* x, int rule) {
    __shared__ alignas(16) int tile[64];
    __shared__ uint64_t bar;
    ptx::mbarrier_init(&bar, 1), meet();
    int* to = ptx::mapa(ptx::space_cluster, tile, 1);
    uint64_t* end = ptx::mapa(ptx::space_cluster, &bar, 1);
    if (ptx::get_sreg_cluster_ctarank()) return meet();
    if (rule == 1) ptx::st_async(to + 1, {1, 2}, end);
    if (rule == 2) ptx::red_async(ptx::op_add, tile, 1, &bar);
    if (rule == 3) ptx::st_async(to, 1, &bar);
    if (rule == 4) ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_add, x, tile, 24);
    if (rule == 5) ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_inc, x, tile, 32);
    if (rule == 6) ptx::red_async(ptx::op_min, (float*)to, 1, end);
    if (rule == 7) ptx::st_async(x, 1, end);
    if (rule == 8) asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f16 [%0], [%1], 16;" :: "l"(x), "r"(in_shared(tile)));
    meet();
}
__global__ void alone(int* x) {
    __shared__ uint64_t bar;
    ptx::mbarrier_init(&bar, 1), ptx::st_async(x, 1, &bar);
}
"""
RIGHT = [("summed", 0), ("summed", 6), ("handed", 0), ("handed", 6)]
UNDER_WAY = "under way: what is there is not known"
WRONG = [("summed", 1, "race", "no fence.proxy.async", "// issued"), ("summed", 2, "race", UNDER_WAY, "// before"),
         ("summed", 3, "race", "while a bulk copy may still read it", "tile[t] ="), ("summed", 4, "race", "y[0]", "// no atomic"),
         ("summed", 5, "race", "y[0]", "// nor this"), ("summed", 7, "race", "", "// over it"),
         ("handed", 1, "race", "st.async or red.async into it", "// read"), ("handed", 2, "deadlock", "8 bytes still to come", ""),
         ("handed", 3, "race", "", "// stored"), ("handed", 4, "race", "st.async or red.async into it", "// an ordinary"),
         ("handed", 5, "race", "st.async or red.async into it", "// and again"), ("handed", 7, "race", "no fence.proxy.async", "at(total)"),
         ("handed", 8, "race", "total[0]", "at(total)")]
RULES = {1: "no multiple of its size", 2: "of the same block", 3: "than that of its mbarrier", 4: "a size that is no multiple of 16",
         5: "PTX does not have", 6: "PTX does not have", 7: "the shared memory of a cluster", 8: "add.f16"}


def launched(name, fault):
    x = ramp(64).astype(np.int32 if name == "handed" else np.float32)
    y = np.zeros(64 * 3, x.dtype)
    getattr(compiled(SOURCE), name)[2, 64](x, y, *(3,) * (name == "handed"), fault)
    return y.reshape(3, 64), np.array([x + i for i in range(3)] if name == "handed" else [4 * x, 0 * x, 0 * x])


@pytest.mark.parametrize("name, fault", RIGHT)
def test_right_kernels_are_clean_in_every_order(name, fault):
    for how in EVERY_ORDER:
        with how():
            y, right = launched(name, fault)
        assert (y == right).all(), how


@pytest.mark.parametrize("name, fault, kind, words, text", WRONG)
def test_wrong_ones_are_errors_with_their_line_and_in_other_orders_too(name, fault, kind, words, text):
    for order in ("late", *("reverse", "early") * ((name, fault) != ("handed", 5))):      # the last one stays
        with pytest.raises(cuda.KernelError) as caught, cuda.sanitize(order=order):
            launched(name, fault)
        if order == "late":
            assert caught.value.kind == kind and words in str(caught.value), str(caught.value)
            assert text in SOURCE.splitlines()[caught.value.line - 1], str(caught.value)


def test_vectors_of_numbers():
    for how in EVERY_ORDER:
        y = np.zeros(16, np.uint32)
        with how():
            compiled(SOURCE).vectors[2, 16](np.arange(16, dtype=np.uint32), y)
        assert (y == np.arange(16)).all()


@pytest.mark.parametrize("type_, largest", [(np.float32, 0), (np.int32, 0), (np.int32, 1)])
def test_boxes_of_a_tensor(type_, largest):
    for how in EVERY_ORDER:
        a, x = np.full((5, 20), 70, type_), ramp(128).astype(type_)
        right = a.copy()
        for i in range(2):
            into = right[i:i + 8, 8 * i:8 * i + 16]
            into[:] = (np.maximum if largest else np.add)(into, x.reshape(8, 16)[:into.shape[0], :into.shape[1]])
        with how():
            compiled(SOURCE).boxes[2, 32](cuda.tensor_map(a, (8, 16)), x.view(np.uint32), largest)
        assert (a == right).all()


@pytest.mark.parametrize("rule", RULES)
def test_what_the_manual_rules_out(rule):
    with pytest.raises(cuda.KernelError) as caught, cuda.sanitize():
        compiled(SOURCE).against_rules[2, 1, 0, 2](np.zeros(64, np.int32), rule)
    assert RULES[rule] in str(caught.value) and f"rule == {rule}" in SOURCE.splitlines()[caught.value.line - 1]


def test_more_that_it_rules_out():
    with pytest.raises(cuda.KernelError, match="of a cluster"):
        compiled(SOURCE).alone[1, 1](np.zeros(4, np.int32))
    with pytest.raises(cuda.KernelError, match="PTX does not have") as caught:
        compiled(SOURCE).boxes[1, 32](cuda.tensor_map(np.zeros((8, 16), np.float32), (8, 16)), np.zeros(128, np.uint32), 1)
    assert "max.tile" in SOURCE.splitlines()[caught.value.line - 1]


def test_they_are_counted_as_copies_out():
    mod, numbers = compiled(SOURCE), np.zeros(64, np.int32)
    out = counted(mod.summed, 2, 64, ramp(64), np.zeros(64, np.float32), 0).copies_out
    assert (out.requests, out.bytes, out.sectors, out.unique_sectors) == (4, 1024, 32, 8)
    launch = counted(mod.handed, 2, 64, numbers, numbers.copy(), 1, 0)       # 64 stores, 64 sums, and a tile
    assert (launch.copies_out.requests, launch.copies_out.bytes, launch.copies_out.sectors) == (129, 768, 0)
    assert launch.copies_in.requests == 0
