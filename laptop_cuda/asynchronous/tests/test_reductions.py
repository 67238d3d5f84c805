"""cp.reduce.async.bulk, red.async and st.async: each operation and type against NumPy, forms, counts. What goes wrong with
them is in pairs.toml."""
import copies
import numpy as np
import pytest
import test_clusters

import laptop_cuda as cuda
from engine_kit import EVERY_ORDER, compiled, mod  # noqa: F401
from laptop_cuda.ptx.instructions import translate
from laptop_cuda.ptx.operands import Unknown

OPERATIONS = {"add": np.add, "min": np.minimum, "max": np.maximum, "inc": lambda old, v: np.where(old >= v, 0, old + 1),
              "dec": lambda old, v: np.where((old == 0) | (old > v), v, old - 1),
              "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
TYPES = {"uint32_t": np.uint32, "int": np.int32, "uint64_t": np.uint64, "int64_t": np.int64, "__half": np.float16,
         "__nv_bfloat16": np.float32, "float": np.float32, "double": np.float64}
# as the manual's tables and ptxas 13.0 have them, and cuda::ptx: of b32 and b64 any integer's bits
BITS = dict.fromkeys(("and", "or", "xor"), "uint32_t int uint64_t int64_t")
GLOBAL = BITS | {"add": " ".join(TYPES), **dict.fromkeys(("min", "max"), "uint32_t int uint64_t int64_t __half __nv_bfloat16"),
                 **dict.fromkeys(("inc", "dec"), "uint32_t")}
CLUSTER = dict.fromkeys(OPERATIONS, "uint32_t int") | {"add": BITS["and"], **dict.fromkeys(("inc", "dec"), "uint32_t")}
SOURCE = test_clusters.HEAD + r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
// Each number of x into that of y: of one block in global memory; of two in rank 0's memory, one by one, and then in bulk.
template <class T, class Held = T> __global__ void reduced(const Held* given, Held* made, int op) {
    const T* x = (const T*)given;
    T* y = (T*)made;
    __shared__ alignas(16) T tile[32];
    __shared__ uint64_t bar;
    int t = threadIdx.x, rank = ptx::get_sreg_cluster_ctarank(), pushes = ptx::get_sreg_cluster_nctarank() > 1;
    tile[t] = pushes && !rank ? y[t] : x[t], ptx::fence_proxy_async();
    if (t == 0) ptx::mbarrier_init(&bar, 1);
    if (t == 0 && pushes) expect(&bar, 2 * sizeof tile);
    meet();
    auto each = [&](auto op) {
        if (!pushes && t == 0) ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, op, y, tile, sizeof tile);
        if (!pushes || !rank) return;
        T* to = ptx::mapa(ptx::space_cluster, tile, 0);
        uint64_t* end = ptx::mapa(ptx::space_cluster, &bar, 0);
        ptx::red_async(op, to + t, x[t], end);
        if (t == 0) ptx::cp_reduce_async_bulk(ptx::space_cluster, ptx::space_shared, op, to, tile, sizeof tile, end);
    };
    op == 0 ? each(ptx::op_add) : op == 1 ? each(ptx::op_min) : op == 2 ? each(ptx::op_max) : op == 3 ? each(ptx::op_inc)
        : op == 4 ? each(ptx::op_dec) : op == 5 ? each(ptx::op_and_op) : op == 6 ? each(ptx::op_or_op) : each(ptx::op_xor_op);
    ptx::cp_async_bulk_commit_group(), ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
    while (pushes && !rank && !over(&bar, 0)) {}
    if (pushes && !rank) y[t] = tile[t];
    meet();
}
"""


def numbers(name, seed):
    """Of halves some are subnormal."""
    drawn = np.random.default_rng(seed)
    if TYPES[name]().dtype.kind == "f":
        return (drawn.integers(-99, 99, 32) * 2.0**-24).astype(TYPES[name])
    return drawn.choice([0, 1, 5, 7, 2**31 - 1, 2**31], 32).astype(TYPES[name])


@pytest.mark.parametrize("blocks, table", [(1, GLOBAL), (2, CLUSTER)], ids=["global", "cluster"])
@pytest.mark.parametrize("name", TYPES)
def test_each_operation_and_type(mod, name, blocks, table):
    held = (lambda a: (a.view(np.uint32) >> 16).astype(np.uint16)) if "bf" in name else np.copy
    launch = mod[f"reduced<{name}, uint16_t>" if "bf" in name else f"reduced<{name}>"][blocks, 32, 0, blocks]
    for number, op in enumerate(OPERATIONS):
        for how in EVERY_ORDER if name in ("uint32_t", "__half", "double") else EVERY_ORDER[:2]:    # each width in all
            x, right = numbers(name, 1), numbers(name, 2)
            y = held(right)
            if name not in table[op].split():
                with pytest.raises(cuda.KernelError, match="PTX does not have it for"):
                    launch(held(x), y, number)
                break
            for _ in range(blocks):
                right = OPERATIONS[op](right, x).astype(x.dtype)
            with how():
                launch(held(x), y, number)
            assert (y == held(right)).all(), (op, how)


def test_what_ptxas_takes_and_refuses():
    at, bulk, later = ("address", "a", "0"), "cp.reduce.async.bulk.global.shared::cta.bulk_group.", ".async.mbarrier::complete_tx::bytes."
    assert "{0, 6}" in translate(bulk + "L2::cache_hint.add.noftz.f16", [at, at, "n", "policy"])
    assert "store_later<8>" in translate(f"st{later}v2.f64", [at, ["v"] * 2, at])
    for opcode in ("add.f16", "add.s64", "min.noftz.f16", "and.u32"):
        with pytest.raises(Unknown):
            translate(bulk + opcode, [at, at, "n"])
    for opcode, value in (("st{}v4.b64", ["v"] * 4), ("st{}v2.b32", "v"), ("red{}and.u32", "v"), ("st{}b16", "v")):
        with pytest.raises(Unknown):
            translate(opcode.format(later), [at, value, at])


def test_they_are_counted_as_copies_out():
    """In global memory with their sectors; each store of a lane by itself."""
    with cuda.profile() as report:
        copies.launched("handed_over", 10)
        test_clusters.launched("later", 0)
    first, second = (launch.copies_out for launch in report.launches)
    assert (first.requests, first.bytes, first.sectors, first.unique_sectors) == (6, 1536, 48, 24)
    assert (second.requests, second.bytes, second.sectors) == (4 * 105, 4 * 768, 0)
    assert report.launches[1].copies_in.requests == 0
