"""Inline PTX by which threads meet or wait: values, orders of memory, and what the sanitizer says."""
import numpy as np
import pytest

from engine_kit import ORDERS, checked, counted, fault, mod  # noqa: F401

pytestmark = pytest.mark.slow
SOURCE = r"""
#include <stdint.h>
__global__ void handed_on(int* flag, int* data, int* out) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        data[0] = 42;
        asm volatile("st.release.gpu.global.s32 [%0], %1;" :: "l"(flag), "r"(1) : "memory");
        data[1] = 43;
        asm volatile("fence.acq_rel.gpu; red.relaxed.gpu.global.add.s32 [%0], 1;" :: "l"(flag + 1) : "memory");
        data[2] = 44;
        asm volatile("red.release.gpu.global.add.s32 [%0], 1;" :: "l"(flag + 2) : "memory");
    } else {
        int seen;
        do { asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory"); } while (!seen);
        out[0] = data[0];
        asm volatile("{ .reg .pred p; again: ld.global.acquire.gpu.b32 %0, [%1]; setp.eq.s32 p, %0, 0; @p bra again; }" : "=r"(seen) : "l"(flag + 1) : "memory");
        out[1] = data[1];
        while (!seen) asm volatile("ld.volatile.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag + 2) : "memory");
        asm volatile("atom.acquire.gpu.global.add.s32 %0, [%1], 0;" : "=r"(seen) : "l"(flag + 2) : "memory");
        out[2] = data[2];
    }
}
// Two warps fill a buffer and arrive; two others wait, read it, and say that it is free again.
__global__ void producers(int* y, int turns, int forgets) {
    __shared__ int s[64];
    int t = threadIdx.x;
    for (int i = 0; i < turns; i++) {
        if (t < 64) {
            if (i) asm volatile("bar.sync 2, 128;" ::: "memory");
            s[t] = t + i;
            asm volatile("bar.arrive 1, %0;" :: "n"(128) : "memory");
        } else {
            if (!forgets) asm volatile("barrier.sync 1, 128;" ::: "memory");
            y[i * 64 + t - 64] = s[127 - t];
            if (i + 1 < turns) asm volatile("barrier.cta.arrive.aligned 2, 128;" ::: "memory");
        }
    }
}
__global__ void gathered(const int* x, int* y) {
    unsigned count, leader, same, value = x[threadIdx.x];
    int every, some, elected, all;
    asm volatile("{ .reg .pred p, q, r; setp.gt.s32 p, %3, 5; bar.red.popc.u32 %0, 0, p; bar.red.and.pred q, 0, %4, p; barrier.cta.red.or.pred r, 0, !p;"
                 " selp.s32 %1, 1, 0, q; selp.s32 %2, 1, 0, r; }" : "=r"(count), "=r"(every), "=r"(some) : "r"(value), "r"(blockDim.x));
    asm volatile("{ .reg .pred p; elect.sync %0|p, %2; selp.s32 %1, 1, 0, p; }" : "=r"(leader), "=r"(elected) : "r"(0xffffffff));
    asm volatile("{ .reg .pred p; match.all.sync.b32 %0|p, %2, -1; selp.s32 %1, 1, 0, p; }" : "=r"(same), "=r"(all) : "r"(value / 64));
    int* to = y + 7 * threadIdx.x;
    to[0] = count, to[1] = every, to[2] = some, to[3] = leader, to[4] = elected, to[5] = same, to[6] = all;
}
__global__ void turned(const unsigned* x, unsigned* y) {
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y[threadIdx.x]) : "r"(x[threadIdx.x]));
}
__global__ void product8(const uint32_t* a, const uint32_t* b, float* d, int of_half) {          // e4m3, m16n8k32
    int g = threadIdx.x / 4, t = threadIdx.x % 4;
    uint32_t ra[4], rb[2] = {b[g * 8 + t], b[g * 8 + t + 4]};
    for (int i = 0; i < 4; i++) ra[i] = a[(g + i % 2 * 8) * 8 + t + i / 2 * 4];
    float r[4] = {1, 1, 1, 1};
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
    for (int i = 0; i < 4; i++) d[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = r[i];
}
__global__ void rows8(const uint32_t* a, const uint32_t* b, const int* c, int* d, int* bounded) {          // s8, m8n8k16
    int g = threadIdx.x / 4, t = threadIdx.x % 4, at = g * 8 + t * 2, r[2] = {c[at], c[at + 1]};
    asm volatile("mma.sync.aligned.m8n8k16.row.col.satfinite.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%4,%5};"
                 : "=r"(bounded[at]), "=r"(bounded[at + 1]) : "r"(a[threadIdx.x]), "r"(b[threadIdx.x]), "r"(r[0]), "r"(r[1]));
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};" : "+r"(r[0]), "+r"(r[1]) : "r"(a[threadIdx.x]), "r"(b[threadIdx.x]));
    d[at] = r[0], d[at + 1] = r[1];
}
"""


def test_what_was_released_is_seen_by_who_acquires(mod):
    flag, data, out = (np.zeros(3, np.int32) for _ in range(3))
    checked(mod.handed_on, 2, 32, flag, data, out)
    assert out.tolist() == [42, 43, 44]
    flag[:], out[:] = 0, 0
    mod.handed_on[2, 32](flag, data, out)
    assert out.tolist() == [42, 43, 44]
    flag[:] = 0
    launch = counted(mod.handed_on, 2, 32, flag, data, out)
    assert launch.atomics == 3 and launch.global_load.requests == 5 and launch.global_store.requests == 7


@pytest.mark.parametrize("order", ORDERS)
def test_who_arrives_goes_on(mod, order):
    y = np.zeros((5, 64), np.int32)
    checked(mod.producers, 2, 128, y, 5, 0, **order)
    assert (y == np.arange(64)[::-1] + np.arange(5)[:, None]).all()
    y[:] = 0
    mod.producers[1, 128](y, 5, 0)
    assert (y == np.arange(64)[::-1] + np.arange(5)[:, None]).all()
    assert fault(mod.producers, 1, 128, y, 1, 1, **order).kind in ("race", "uninitialized")


def test_votes_of_a_block_and_the_elected_lane(mod):
    x, y = np.arange(96, dtype=np.int32), np.zeros((96, 7), np.int32)
    checked(mod.gathered, 1, 96, x, y)
    assert (y[:, 0] == 90).all() and (y[:, 1] == 0).all() and (y[:, 2] == 1).all()
    assert (y[:, 3] == 0).all() and (y[:, 4] == (np.arange(96) % 32 == 0)).all()
    assert (y[:, 5] == -1).all() and (y[:, 6] == 1).all()


def test_movmatrix(mod):
    x = np.arange(64, dtype=np.uint16).reshape(8, 8)
    y = np.zeros_like(x)
    mod.turned[1, 32](x.view(np.uint32).ravel(), y.view(np.uint32).reshape(-1))
    assert (y == x.T).all()


def test_products_of_small_numbers(mod):
    rng = np.random.default_rng(0)
    whole = np.array([0, 1, 2, 3, 4, -1, -2, -3], np.int8)                # as e4m3, and as e5m2
    e4m3 = dict(zip(whole, (0, 0x38, 0x40, 0x44, 0x48, 0xB8, 0xC0, 0xC4)))
    e5m2 = dict(zip(whole, (0, 0x3C, 0x40, 0x42, 0x44, 0xBC, 0xC0, 0xC2)))
    a, b = rng.choice(whole, (16, 32)), rng.choice(whole, (8, 32))
    d = np.zeros((16, 8), np.float32)
    bytes_of = [np.vectorize(table.get)(v).astype(np.uint8).view(np.uint32).ravel()
                for table, v in ((e4m3, a), (e5m2, b))]
    mod.product8[1, 32](*bytes_of, d, 0)
    assert (d == a.astype(int) @ b.T.astype(int) + 1).all()
    a, b = rng.integers(-128, 128, (2, 8, 16)).astype(np.int8)
    c = rng.choice(np.array([0, 2**31 - 1, -2**31, 5], np.int32), (8, 8))
    d, bounded = np.zeros((8, 8), np.int32), np.zeros((8, 8), np.int32)
    mod.rows8[1, 32](a.view(np.uint32).ravel(), b.view(np.uint32).ravel(), c, d, bounded)
    right = a.astype(np.int64) @ b.T.astype(np.int64) + c
    assert (d == right.astype(np.int32)).all() and (bounded == right.clip(-2**31, 2**31 - 1)).all()
