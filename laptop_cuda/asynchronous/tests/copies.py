"""Kernels of test_wrong_and_right.py: mbarrier, bulk copies and reductions, the fence between the proxies."""
import numpy as np

from engine_kit import compiled, ramp

SOURCE = r"""
#include <cuda/barrier>
#include <cuda/ptx>
namespace ptx = cuda::ptx;
__device__ unsigned in_shared(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void wait(uint64_t* bar, unsigned parity) {
    asm volatile("{\n.reg .pred P1;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n"
                 "@P1 bra DONE;\nbra AGAIN;\nDONE:\n}" :: "r"(in_shared(bar)), "r"(parity));
}
__device__ void expect(uint64_t* bar, unsigned bytes) {
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, bar, bytes);
}
__device__ void fetch(float* to, const float* from, unsigned bytes, uint64_t* bar) {
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, to, from, bytes, bar);
}
__device__ void store(float* to, const float* from, unsigned bytes) {
    ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, to, from, bytes);
    ptx::cp_async_bulk_commit_group();
}
__device__ void add(float* to, const float* from, unsigned bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" :: "l"(to), "r"(in_shared(from)), "r"(bytes));
    ptx::cp_async_bulk_commit_group();
}

// One thread fetches tiles into a ring of two, 64 others double them, and store them in bulk.
__global__ void ring(const float* x, float* y, int n, int fault) {
    __shared__ alignas(128) float tile[2][128], out[128];
    __shared__ uint64_t full[2], empty[2];
    int t = threadIdx.x, consumer = t - 32;
    for (int s = 0; t == 0 && s < 2; ++s) ptx::mbarrier_init(full + s, 1), ptx::mbarrier_init(empty + s, 64);
    if (fault != 1) __syncthreads();
    for (int i = 0; t == 0 && i < n; ++i) {
        if (i >= 2 && fault != 2) wait(&empty[i % 2], (i / 2 - 1) & 1);
        expect(&full[i % 2], fault == 3 ? 528 : 512);
        fetch(tile[i % 2], x + i * 128, 512, &full[i % 2]);
    }
    for (int i = 0; consumer >= 0 && i < n; ++i) {
        if (fault != 4) wait(&full[i % 2], fault == 5 ? 1 - i / 2 % 2 : i / 2 % 2);
        for (int k = consumer; k < 128; k += 64) out[k] = 2 * tile[i % 2][k];
        if (fault == 6 && consumer == 0) ptx::mbarrier_arrive(&empty[i % 2]);
        ptx::mbarrier_arrive(&empty[i % 2]);
        if (fault != 7) ptx::fence_proxy_async(fault == 9 ? ptx::space_global : ptx::space_shared);
        asm volatile("bar.sync 1, 64;");
        if (consumer == 0) {
            store(y + i * 128, out, 512);
            if (fault != 8) ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
        }
        asm volatile("bar.sync 1, 64;");
    }
}
// All arrive, and ask again and again whether the phase of their state is over.
__global__ void by_state(const float* x, float* y, int n, int fault) {
    __shared__ alignas(16) float tile[32];
    __shared__ uint64_t bar;
    if (threadIdx.x == 0) ptx::mbarrier_init(&bar, 32);
    __syncthreads();
    uint64_t first = 0;
    for (int i = 0; i < n; ++i) {
        if (ptx::elect_sync(~0u)) {
            asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" :: "r"(in_shared(&bar)), "r"(128));
            fetch(tile, x + 32 * i, 128, &bar);
        }
        uint64_t state = ptx::mbarrier_arrive(&bar);
        if (i == 0) first = state;
        while (!ptx::mbarrier_test_wait(&bar, fault == 1 ? first : state)) y[0] += 0;
        if (fault == 3 && i == 2) ptx::mbarrier_test_wait(&bar, first);
        y[32 * i + threadIdx.x] = 2 * tile[31 - threadIdx.x];
        if (fault != 4) ptx::fence_proxy_async();
        __syncthreads();
    }
    if (fault == 5 && threadIdx.x == 0) bar = 1;                 // anew
    if (fault != 2 && threadIdx.x == 0) asm volatile("mbarrier.inval.shared::cta.b64 [%0];" :: "r"(in_shared(&bar)));
    __syncthreads();
    if (threadIdx.x == 0) ptx::mbarrier_init(&bar, 1);          // its memory again
}
// Threads fill a tile, one of them stores it in bulk, or adds it (from fault 10 on), and it is filled again.
__global__ void handed_over(const float* x, float* y, int n, int fault) {
    __shared__ alignas(16) float tile[64];
    int t = threadIdx.x;
    if (fault == 15 && blockIdx.x == 1) y[t] = 1;               // no atomic
    if (fault == 16 && blockIdx.x == 1 && y[t] > 1e9f) return;  // nor this
    for (int i = 0; i < n; ++i) {
        if (fault == 1) ptx::fence_proxy_async();
        tile[t] = 2 * x[64 * i + t];
        if (fault != 1 && fault != 2 && fault != 3 && fault != 12) ptx::fence_proxy_async();
        __syncthreads();
        if (t == 0) {
            if (fault == 3) ptx::fence_proxy_async();           // by the one who issues: right, too
            if (fault == 17) store(y + 64 * i, tile, 256);      // nor that
            if (fault < 10) store(y + 64 * i, tile, 256);
            else add(y + 64 * i, tile, 256);
            if (fault % 10 == 4 && y[64 * i] > 1e9f) y[0] = 0;       // before it is there
        }
        if (fault == 11) atomicAdd(y + 64 * i + t, 0.f);
        if (t == (fault == 5 || fault == 13)) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
        __syncthreads();
    }
}
// 32 threads fetch a tile by cp.async, whose end arrives for each of them: among those expected or, from fault 5 on, beyond them.
__global__ void by_threads(const float* x, float* y, int n, int fault) {
    __shared__ alignas(16) float tile[128];
    __shared__ uint64_t full, empty;
    int t = threadIdx.x, consumer = t - 32;
    if (t == 0) ptx::mbarrier_init(&full, fault == 3 ? 33 : 32), ptx::mbarrier_init(&empty, 64);
    __syncthreads();
    for (int i = 0; t < 32 && i < n; ++i) {
        if (i && fault != 2) wait(&empty, (i - 1) & 1);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" :: "r"(in_shared(tile + 4 * t)), "l"(x + 128 * i + 4 * t));
        if (fault < 5) asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(in_shared(&full)));
        if (fault > 4 && fault != 8) ptx::cp_async_mbarrier_arrive(&full);
        if (fault > 4 && fault != 6 || fault == 4) ptx::mbarrier_arrive(&full);
    }
    for (int i = 0; consumer >= 0 && i < n; ++i) {
        if (fault != 1 && fault != 7) wait(&full, i & 1);
        for (int k = consumer; k < 128; k += 64) y[128 * i + k] = 2 * tile[k];
        ptx::mbarrier_arrive(&empty);
    }
}
// A tile of zeros, over which a copy writes what there is.
__global__ void filled(const float* x, float* y, int n, int fault) {
    __shared__ alignas(16) float tile[64];
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    tile[threadIdx.x] = 0;
    if (threadIdx.x == 0) init(&bar, 64);
    if (fault != 1) ptx::fence_proxy_async();
    __syncthreads();
    uint64_t token;
    if (threadIdx.x == 0) {
        cuda::device::memcpy_async_tx(tile, x, cuda::aligned_size_t<16>(4 * n), bar);
        token = cuda::device::barrier_arrive_tx(bar, 1, 4 * n);
    } else {
        token = bar.arrive();
    }
    while (fault == 4 && !ptx::mbarrier_test_wait(cuda::device::barrier_native_handle(bar), token)) asm volatile("nanosleep.u32 20;");
    if (fault == 3) __nanosleep(1000000);                       // which orders nothing
    else if (fault != 2) bar.wait(std::move(token));
    y[threadIdx.x] = 2 * tile[threadIdx.x];
}
__global__ void against_rules(const float* x, float* y, int rule) {
    __shared__ alignas(16) float tile[64];
    __shared__ uint64_t bar[4];
    if (rule == 1) ptx::mbarrier_init(bar, 0);
    if (rule == 2) ptx::mbarrier_init((uint64_t*)((char*)bar + 4), 1);
    if (rule == 3) ptx::mbarrier_arrive(bar + 1);
    ptx::mbarrier_init(bar + 2, 1);
    if (rule == 4) fetch(tile, x + 1, 64, bar + 2);
    if (rule == 5) fetch(tile, x, 40, bar + 2);
    if (rule == 6) fetch(tile, tile + 32, 64, bar + 2);
    if (rule == 7) expect(bar + 2, 1 << 20);
    if (rule == 8) ptx::mbarrier_init(bar + 2, 1);
    if (rule == 9) fetch(tile, x, 64, bar + 3);
    if (rule == 10) fetch(tile, x, 512, bar + 2);
    if (rule == 11) add(y, tile, 40);
    if (rule == 12) ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_inc, (int*)y, (int*)tile, 32);
    if (rule == 13) asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f16 [%0], [%1], 16;" :: "l"(y), "r"(in_shared(tile)));
}
"""
# kernel, its threads, and how many numbers it is given for n
SHAPES = {"ring": (96, 7, 7 * 128), "by_state": (32, 4, 4 * 32), "handed_over": (64, 3, 3 * 64), "filled": (64, 48, 64),
          "by_threads": (96, 5, 5 * 128)}


def launched(name, fault):
    mod = compiled(SOURCE)
    if name == "against_rules":
        return mod.against_rules[1, 1](ramp(64), ramp(64), fault)
    threads, n, size = SHAPES[name]
    x, y = ramp(size), np.zeros(size, np.float32)
    getattr(mod, name)[1 + (fault > 9), threads](x, y, n, fault)
    if name == "by_state":
        x = x.reshape(-1, 32)[:, ::-1].ravel()
    return y, 2 * x * (np.arange(size) < n if name == "filled" else 1 + (fault > 9))
