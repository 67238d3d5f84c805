"""Clusters: their barrier, each other's shared memory, remote mbarriers and multicast copies, each right, and with one wait,
fence, scope or arrival taken away."""
import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import EVERY_ORDER, compiled, mod, ramp  # noqa: F401

HEAD = r"""
#include <cooperative_groups.h>
#include <cuda/ptx>
namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;
__device__ unsigned in_shared(const void* p) { return __cvta_generic_to_shared(p); }
__device__ bool over(uint64_t* bar, int parity) { return ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, bar, parity); }
__device__ void expect(uint64_t* bar, int bytes) { ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, bar, bytes); }
__device__ void meet() { ptx::barrier_cluster_arrive(), ptx::barrier_cluster_wait(); }
"""
SOURCE = HEAD + r"""
// Each block gives its tile to the other, and takes part of a sum of both.
__global__ void __cluster_dims__(2, 1, 1) exchanged(const float* x, float* y, int fault) {
    __shared__ float tile[64], sum;
    auto cluster = cg::this_cluster();
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    float *other = cluster.map_shared_rank(tile, cluster.block_rank() ^ 1), v = 0;
    if (t == 0) sum = 0;
    if (fault != 1) cluster.sync();
    if (fault == 3 ? t != 5 : fault != 2) tile[t] = x[i];
    if (fault == 5) asm volatile("fence.acq_rel.cluster;" ::: "memory");
    if (fault == 4 || fault == 5) asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    else if (fault != 1) asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    if (fault == 2) tile[t] = x[i];                                             // after the arrival
    if (fault == 6) v = other[63 - t];                                          // before the wait
    if (fault == 7) cluster.barrier_arrive();                                   // twice
    if (fault != 1) asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
    if (fault == 8) cluster.barrier_wait();                                     // once more
    if (fault != 6) v = other[63 - t + (fault == 9)];
    float* all = cluster.map_shared_rank(&sum, 0);
    if (fault == 10) *all += 1;                                                 // a read and a write
    else atomicAdd(all, 1.f);
    if (fault != 11) cluster.sync();                                            // nobody leaves before
    y[i] = v + (cluster.block_rank() == 0 && t == 0 && fault != 11 ? sum : 0);
}

// Rank 0 stores into the other's memory and arrives at the other's mbarrier.
__global__ void __cluster_dims__(2) handed(const float* x, float* y, int fault) {
    __shared__ float tile[64];
    __shared__ uint64_t bar;
    int t = threadIdx.x, rank = ptx::get_sreg_cluster_ctarank();
    if (t == 0) ptx::mbarrier_init(&bar, fault == 1 ? 65 : 64);
    if (fault == 3) ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    if (fault == 2 || fault == 3) ptx::barrier_cluster_arrive(ptx::sem_relaxed), ptx::barrier_cluster_wait();
    else if (fault != 4) meet();
    unsigned to, at, value = __float_as_uint(x[t]);
    asm volatile("mapa.shared::cluster.u32 %0, %1, 1;" : "=r"(to) : "r"(in_shared(tile + t)));
    asm volatile("mapa.shared::cluster.u32 %0, %1, 1;" : "=r"(at) : "r"(in_shared(&bar)));
    if (rank == 0) {
        asm volatile("st.shared::cluster.b32 [%0], %1;" :: "r"(to), "r"(value) : "memory");
        if (fault == 5) asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" :: "r"(at) : "memory");      // of the block's scope
        else asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(at) : "memory");
        if (fault == 6) ptx::mbarrier_test_wait_parity(ptx::mapa(ptx::space_cluster, &bar, 1), 0);                // of another block
    } else {
        while (fault == 7 ? !ptx::mbarrier_try_wait_parity(&bar, 0) : fault != 8 && !over(&bar, 0)) {}            // 7: of the block's scope
        y[t] = 2 * tile[63 - t];
    }
    if (fault == 9 && (meet(), !rank && t == 3)) *ptx::mapa(ptx::space_cluster, &bar, 1) = 0;      // an mbarrier still
    meet();
}

// Round after round rank 1 stores into rank 0's memory, and adds to it; rank 0 says when it has read.
__global__ void __cluster_dims__(2) later(const int* x, int* y, int n, int fault) {
    __shared__ alignas(16) int tile[64], sum[64], total[64];
    __shared__ uint64_t full, empty;
    int t = threadIdx.x, rank = ptx::get_sreg_cluster_ctarank();
    if (t == 0) ptx::mbarrier_init(&full, 1), ptx::mbarrier_init(&empty, 64);
    tile[t] = x[t], sum[t] = total[t] = 0;
    if (fault != 8 - rank) ptx::fence_proxy_async(ptx::space_shared);
    meet();
    auto at = [](int* p) { return ptx::mapa(ptx::space_cluster, p, 0); };
    uint64_t *bar = ptx::mapa(ptx::space_cluster, &full, 0), *back = ptx::mapa(ptx::space_cluster, &empty, 1);
    if (rank && fault == 9) ptx::st_async(at(tile + 1), {1, 2}, bar);
    if (fault == 10) ptx::red_async(ptx::op_add, at(sum), 1, bar);              // to its own block
    if (rank && fault == 11) ptx::st_async(at(tile), 1, &full);                 // another's mbarrier
    if (rank && fault == 12) ptx::red_async(ptx::op_min, (float*)at(sum), 1, bar);
    if (rank && fault == 13) ptx::st_async(y, 1, bar);
    for (int i = 0; i < n; ++i) {
        if (!rank && t == 0) expect(&full, fault == 2 ? 776 : fault == 6 ? 1024 : 768);
        while (rank && i && fault != 3 && !over(&empty, i - 1 & 1)) {}
        if (rank) {
            if (t < 32) ptx::st_async(at(tile + t), x[t] + i, bar);             // stored
            else if (t % 4 == 0) asm volatile("st.async.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];"
                :: "l"(at(tile + t)), "r"(x[t] + i), "r"(x[t + 1] + i), "r"(x[t + 2] + i), "r"(x[t + 3] + i), "l"(bar) : "memory");
            asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.s32 [%0], %1, [%2];"
                         :: "r"(in_shared(at(sum + t))), "r"(x[t]), "r"(in_shared(bar)) : "memory");
            if (fault == 6) ptx::red_async(ptx::op_add, at(sum + 63 - t), 0, bar);
            if (t == 0) ptx::cp_reduce_async_bulk(ptx::space_cluster, ptx::space_shared, ptx::op_add, at(total), tile, 256, bar);
            if (fault == 4) *at(tile + t) = i;                                  // an ordinary store
        } else {
            while (fault != 1 && !over(&full, i & 1)) {}
            y[64 * i + t] = tile[t] + sum[t] - total[t] - i;                    // read
            ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::space_cluster, back);
        }
    }
    meet();
}

// Rank 0 copies tile after tile to both; whoever has read it says so to rank 0.
__global__ void __cluster_dims__(2) multicast(const float* x, float* y, int n, int fault) {
    __shared__ alignas(128) float tile[64];
    __shared__ uint64_t full, empty;
    int t = threadIdx.x, rank = ptx::get_sreg_cluster_ctarank();
    if (t == 0) ptx::mbarrier_init(&full, 1), ptx::mbarrier_init(&empty, 128);
    meet();
    uint16_t mask = fault == 1 ? 1 : fault == 2 ? 5 : 3;
    for (int i = 0; i < n; ++i) {
        if (t == 0) expect(&full, rank && fault == 3 ? 128 : 256);
        if (t == 0 && rank == 0) {
            while (i && fault != 4 && !over(&empty, i - 1 & 1)) {}
            ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile, x + 64 * i, 256, &full, mask);        // issued
        }
        while (!(fault == 5 && rank) && !ptx::mbarrier_try_wait_parity(&full, i & 1)) {}
        y[n * 64 * rank + 64 * i + t] = 2 * tile[t];
        uint64_t* to = ptx::mapa(ptx::space_cluster, &empty, 0);
        if (fault == 6) ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, ptx::space_cluster, to);
        else if (fault != 7 || t) ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::space_cluster, to);
        __syncthreads();
    }
    if (fault != 8) meet();
}

// From one's shared memory into another's, whose mbarrier counts the bytes; rank 0 waits in a loop for a word of its own.
__global__ void __cluster_dims__(2) pushed(const float* x, float* y, int fault) {
    __shared__ alignas(16) float tile[64], got[64];
    __shared__ uint64_t full;
    __shared__ int ready;
    int t = threadIdx.x, rank = cg::this_cluster().block_rank();
    if (t == 0) ptx::mbarrier_init(&full, 1), ready = 0, expect(&full, 256);
    tile[t] = x[t];
    if (fault != 1) ptx::fence_proxy_async(ptx::space_shared);
    meet();
    if (rank == 0 && t == 0) {
        uint64_t* bar = fault == 2 ? &full : ptx::mapa(ptx::space_cluster, &full, 1);
        asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];"    // issued
                     :: "r"(in_shared(ptx::mapa(ptx::space_cluster, got, 1))), "r"(in_shared(tile)), "r"(in_shared(bar)) : "memory");
        while (atomicAdd(&ready, 0) < 64) {}
    }
    while (rank && fault != 4 && !ptx::mbarrier_try_wait_parity(&full, 0)) {}
    if (rank) y[t] = 2 * got[t], atomicAdd(ptx::mapa(ptx::space_cluster, &ready, 0), 1);
    meet();
}

__global__ void registers(unsigned* out) {
    unsigned r[7] = {0, 0, 0, 0, 0, 0, cg::this_cluster().block_index().x};
    asm("{ mov.u32 %0, %clusterid.x; mov.u32 %1, %nclusterid.y; }" : "=r"(r[0]), "=r"(r[1]));
    asm("{ mov.u32 %0, %cluster_ctaid.y; mov.u32 %1, %cluster_nctaid.x; }" : "=r"(r[2]), "=r"(r[3]));
    asm("{ mov.u32 %0, %cluster_ctarank; mov.u32 %1, %cluster_nctarank; }" : "=r"(r[4]), "=r"(r[5]));
    cg::this_cluster().sync();
    for (int i = 0; i < 7; ++i) out[7 * (blockIdx.x + gridDim.x * blockIdx.y) + i] = r[i];
}
"""
SHAPES = {"exchanged": (4, 256), "handed": (2, 64), "multicast": (2, 256), "pushed": (2, 64), "later": (2, 256)}


def launched(name, fault):
    blocks, size = SHAPES[name]
    x, y = (made.astype(np.int32 if name == "later" else np.float32) for made in (ramp(size), np.zeros(2 * size)))
    getattr(compiled(SOURCE), name)[blocks, 64](x, y, *(4,) * (name in ("multicast", "later")), fault)
    if name == "exchanged":
        right = x.reshape(2, 2, 64)[:, ::-1, ::-1].ravel()
        right[::128] += 128
    elif name == "later":
        right = np.tile(x[:64], 4)
    else:
        right = np.tile(2 * x[::-1] if name == "handed" else 2 * x, 2 if name == "multicast" else 1)
    return y[:len(right)], right


@pytest.mark.parametrize("cluster", [(1, 1), (2, 2), (4, 1)])
def test_registers(mod, cluster):
    for how in EVERY_ORDER:
        out = np.zeros((4, 4, 7), np.uint32)
        with how():
            mod.registers[(4, 4), 32, 0, cluster](out)
        (w, h), (y, x) = cluster, np.mgrid[:4, :4]
        ones = np.ones_like(x)
        expected = [x // w, ones * 4 // h, y % h, ones * w, x % w + w * (y % h), ones * w * h, x % w]
        assert (out == np.stack(expected, -1)).all()


@pytest.mark.parametrize("grid, cluster, limit, words", [
    (16, 16, 8, "every card allows 1 to 8"), (18, 18, 16, "clusters of 18 blocks"),
    (6, 4, 8, "along x the grid is no multiple of the cluster's size")])
def test_what_is_no_cluster(mod, grid, cluster, limit, words):
    kernel = mod.registers
    kernel.cluster_limit = limit
    with pytest.raises(cuda.KernelError, match=words) as caught:
        kernel[grid, 32, 0, cluster](np.zeros(7 * grid, np.uint32))
    assert caught.value.kind == "bad launch"
    kernel.cluster_limit = 16
    kernel[16, 32, 0, 16](np.zeros(7 * 16, np.uint32))
