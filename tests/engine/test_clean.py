"""Correct kernels, as public teaching code has them: right, and not one false alarm, in three orders.

The kernels of the chapters, sanitized in test_gpu_cases.py, are the rest of them: reductions, products, attention.
"""
import contextlib
from dataclasses import dataclass
from typing import Callable

import pytest
import torch
from engine_kit import COUNTS, ORDERS, checked, compiled

import laptop_cuda as cuda

SOURCE = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_fp16.h>
namespace cg = cooperative_groups;
#define FULL 0xffffffffu
__global__ void scan_groups(const int* in, int* out) {
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    out[threadIdx.x] = cg::exclusive_scan(tile, in[threadIdx.x], cg::plus<int>());
}
__global__ void compact(const int* in, int* out, int* count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    bool keep = i < n && in[i] % 3 == 0;
    unsigned votes = __ballot_sync(FULL, keep);
    int first = 0;
    if (lane == 0) first = atomicAdd(count, __popc(votes));
    first = __shfl_sync(FULL, first, 0);
    if (keep) out[first + __popc(votes & ((1u << lane) - 1))] = in[i];
}
__global__ void aggregated(const int* in, int* count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && in[i] > 0) {
        cg::coalesced_group active = cg::coalesced_threads();
        if (active.thread_rank() == 0) atomicAdd(count, (int)active.size());
    }
}
struct __align__(8) SumMax { float maxval, sum; };
__device__ __forceinline__ SumMax merge(SumMax a, SumMax b) {
    bool a_bigger = a.maxval > b.maxval;
    SumMax bigger = a_bigger ? a : b, smaller = a_bigger ? b : a, result;
    result.maxval = bigger.maxval;
    result.sum = bigger.sum + smaller.sum * expf(smaller.maxval - bigger.maxval);
    return result;
}
__global__ void softmax_online(float* out, const float* inp, int N, int C) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    int idx = blockIdx.x * warp.meta_group_size() + warp.meta_group_rank();
    if (idx >= N) return;
    const float* x = inp + idx * C;
    SumMax own = {-INFINITY, 0.0f};
    for (int i = warp.thread_rank(); i < C; i += warp.size()) own = merge(own, {x[i], 1.0f});
    SumMax all = cg::reduce(warp, own, merge);
    for (int i = warp.thread_rank(); i < C; i += warp.size())
        __stcs(out + idx * C + i, expf(__ldcs(&x[i]) - all.maxval) / all.sum);
}
__global__ void partial_masks(const int* in, int* out) {
    int lane = threadIdx.x & 31;
    if (lane < 16) {
        int v = in[threadIdx.x];
        for (int d = 8; d > 0; d >>= 1) v += __shfl_down_sync(0x0000ffffu, v, d, 16);
        if (lane == 0) out[0] = v;
    } else {
        int v = in[threadIdx.x];
        for (int d = 8; d > 0; d >>= 1) v = max(v, __shfl_down_sync(0xffff0000u, v, d, 16));
        if (lane == 16) out[1] = v;
    }
}
__global__ void exited_lanes(const int* in, int* out, int n) {
    int t = threadIdx.x;
    if (t >= n) return;
    unsigned mask = __ballot_sync(FULL >> (32 - n), in[t] > 2);
    int any = __any_sync(FULL >> (32 - n), in[t] == 5), all = __all_sync(FULL >> (32 - n), in[t] >= 0);
    if (t == 0) out[0] = mask, out[1] = any, out[2] = all;
}
__global__ void return_within_the_loop(const float* in, float* out, int n) {
    __shared__ float tile[128];
    float v = in[threadIdx.x];
    int turn = 0;
    while (true) {                               // a warp that is done ends; the others go on without it
        tile[threadIdx.x] = v;
        __syncthreads();
        v += tile[threadIdx.x / 32 * 32];
        if (threadIdx.x / 32 == turn++) { out[threadIdx.x] = v; return; }
        __syncthreads();
    }
}
__global__ void skips_the_loop_and_ends(const float* in, float* out, int n) {
    __shared__ float tile[128];
    tile[threadIdx.x] = in[threadIdx.x];
    for (int i = threadIdx.x; i < n; i += blockDim.x) {      // warp 3 never enters it, and ends
        __syncthreads();
        out[i] = tile[i + 32];
    }
}
__global__ void tiles_of_eight(const float* in, float* out) {
    __shared__ float s[64];
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    s[threadIdx.x] = in[threadIdx.x];
    tile.sync();
    float v = s[tile.meta_group_rank() * 8 + (tile.thread_rank() + 1) % 8];
    v += tile.shfl_xor(v, 1);
    out[threadIdx.x] = tile.any(v > 100) ? v : tile.shfl(v, 0);
}
__global__ void grid_sync(const float* in, float* scratch, float* out) {
    cg::grid_group grid = cg::this_grid();
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    scratch[i] = in[i] * 2;
    grid.sync();
    out[i] = scratch[n - 1 - i];
}
__device__ float sum_of_16(float v) {
    __shared__ float s[64];
    s[threadIdx.x] = v;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < 16; ++i) sum += s[i];
    return sum;
}
__global__ void leaves_before_a_helper(const float* in, float* out) {
    float v = in[threadIdx.x];
    if (threadIdx.x >= 16) return;
    out[threadIdx.x] = sum_of_16(v);
}
__device__ float sum_of_lanes(float v) {
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffff, v, d);
    return v;
}
__global__ void lanes_leave_before_a_helper(const float* in, float* out, int n) {
    float v = in[threadIdx.x];
    if (threadIdx.x >= n) return;
    v = sum_of_lanes(threadIdx.x < 16 ? v : 0.0f);
    if (threadIdx.x == 0) out[0] = v < 0 ? -1.0f : 1.0f;
}
__global__ void barrier_then_leave(const float* in, float* out, int rounds) {
    __shared__ float s[64];
    int t = threadIdx.x;
    for (int k = 0; k < rounds; ++k) {
        s[t] = in[t] + k;
        __syncthreads();
        if (t > 60 - 20 * k) { out[t] = k; return; }
        out[t] = s[t ^ 1];
        __syncthreads();
    }
}
__global__ void same_value(float* out) {
    __shared__ int found;
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    if (threadIdx.x % 7 == 3) found = 1;
    __syncthreads();
    out[threadIdx.x] = found;
}
#define HALF2(value) (reinterpret_cast<half2*>(&(value))[0])
#define LDST128BITS(value) (reinterpret_cast<float4*>(&(value))[0])

__global__ void packed_halves(half* a, half* b, half* c, int N) {
    int idx = 8 * (blockIdx.x * blockDim.x + threadIdx.x);
    half pack_a[8], pack_b[8], pack_c[8];
    if (idx + 7 < N) {
        LDST128BITS(pack_a[0]) = LDST128BITS(a[idx]);
        LDST128BITS(pack_b[0]) = LDST128BITS(b[idx]);
#pragma unroll
        for (int i = 0; i < 8; i += 2) HALF2(pack_c[i]) = __hadd2(HALF2(pack_a[i]), HALF2(pack_b[i]));
        LDST128BITS(c[idx]) = LDST128BITS(pack_c[0]);
    } else { for (int i = 0; idx + i < N; i++) c[idx + i] = __hadd(a[idx + i], b[idx + i]); }
}
template <class T> struct Dynamic { __device__ operator T*() { extern __shared__ int bytes[]; return (T*)bytes; } };
template <class T>
__global__ void turned(const T* x, T* y) {
    T* s = Dynamic<T>();
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
__global__ void early_continue(const int* mask, const float* x, float* y, int rows, int cols) {
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        if (!mask[row]) continue;
        __shared__ float total;
        if (threadIdx.x == 0) total = 0;
        __syncthreads();
        float sum = 0;
        for (int c = threadIdx.x; c < cols; c += blockDim.x) sum += x[row * cols + c];
        atomicAdd(&total, sum);
        __syncthreads();
        if (threadIdx.x == 0) y[row] = total;
        __syncthreads();
    }
}
"""


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def integers(n: int, high: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, high, (n,), generator=torch.Generator().manual_seed(seed), dtype=torch.int32)


@dataclass
class Run:
    """One launch: arguments, and what an argument must hold afterwards."""

    kernel: str
    grid: object
    block: object
    args: tuple
    want: dict[int, torch.Tensor]
    shared: int = 0


def listing(cases: dict[str, Callable[[], Run]]) -> tuple[Callable, Callable]:
    """Two ways to add to some cases: a decorator, and a row of a table, whose `make` gives `args` and `want`."""
    def case(make: Callable[[], Run]) -> Callable[[], Run]:
        return cases.setdefault(make.__name__, make)

    def launch(kernel: str, grid, block, make: Callable[[], tuple], shared: int = 0) -> None:
        cases[kernel] = lambda: Run(kernel, grid, block, *make(), shared)
    return case, launch


CASES: dict[str, Callable[[], Run]] = {}
case, launch = listing(CASES)


def blank(*shape: int, like: torch.dtype = torch.float32) -> torch.Tensor:
    """An output that must be written: uninitialised to the sanitizer."""
    return cuda.empty(*shape, dtype=like)


launch("scan_groups", 1, 64, lambda x=integers(64, 10).view(4, 16): ((x, blank(4, 16, like=torch.int32)),
       {1: (x.cumsum(1) - x).int()}))
launch("aggregated", 2, 160, lambda x=integers(300, 5) - 2: ((x, torch.zeros(1, dtype=torch.int32), 300),
       {1: (x > 0).sum()[None].int()}))
launch("softmax_online", 2, 128, lambda x=randn(7, 70): ((blank(7, 70), x, 7, 70), {0: x.softmax(-1)}))
launch("partial_masks", 1, 32, lambda x=integers(32, 50): ((x, blank(2, like=torch.int32)),
       {1: torch.stack([x[:16].sum(), x[16:].max()]).int()}))


@case
def exited_lanes():
    x = (torch.arange(20) % 6).int()
    votes = sum(1 << i for i in range(20) if x[i] > 2)
    return Run("exited_lanes", 1, 32, (x, blank(3, like=torch.int32), 20),
               {1: torch.tensor([votes, 1, 1]).int()})


@case
def return_within_the_loop():
    x = randn(128)
    of_warp = x.view(4, 32)
    turns = (2 ** torch.arange(1, 5) - 1).view(4, 1)
    return Run("return_within_the_loop", 1, 128, (x, blank(128), 128),
               {1: (of_warp + of_warp[:, :1] * turns).reshape(128)})


launch("skips_the_loop_and_ends", 1, 128, lambda x=randn(128): ((x, blank(96), 96), {1: x[32:]}))


@case
def tiles_of_eight():
    x = randn(64)
    v = x.view(8, 8).roll(-1, 1)
    v = v + v[:, torch.arange(8) ^ 1]
    return Run("tiles_of_eight", 1, 64, (x, blank(64)), {1: v[:, :1].expand(8, 8).reshape(64)})


launch("grid_sync", 4, 64, lambda x=randn(256): ((x, blank(256), blank(256)), {2: 2 * x.flip(0)}))


@case
def leaves_before_a_helper():
    x = randn(64)
    want = torch.zeros(64)
    want[:16] = x[:16].sum()
    return Run("leaves_before_a_helper", 1, 64, (x, torch.zeros(64)), {1: want})


launch("lanes_leave_before_a_helper", 1, 32, lambda: ((torch.rand(32) + 1, blank(1), 32), {1: torch.ones(1)}))


@case
def barrier_then_leave():
    x, t = randn(64), torch.arange(64)
    left = torch.full((64,), 3)
    for k in (2, 1, 0):
        left[t > 60 - 20 * k] = k
    return Run("barrier_then_leave", 1, 64, (x, blank(64), 3),
               {1: torch.where(left < 3, left.float(), x[t ^ 1] + 2)})


launch("same_value", 1, 64, lambda: ((blank(64),), {0: torch.ones(64)}))
launch("packed_halves", 1, 64, lambda a=randn(500).half(), b=randn(500, seed=1).half():
       ((a, b, blank(500, like=torch.float16), 500), {2: a + b}))
launch("turned<float>", 1, 64, lambda x=randn(64): ((x, blank(64)), {1: x.flip(0)}), shared=256)
launch("early_continue", 2, 64, lambda x=randn(6, 50),
       mask=torch.tensor([1, 0, 1, 1, 0, 1], dtype=torch.int32): ((mask, x, torch.zeros(6), 6, 50),
       {2: x.sum(1) * mask}))


def launched(name: str) -> None:
    run = CASES[name]()
    compiled(SOURCE)[run.kernel][run.grid, run.block, run.shared](*run.args)
    check(run)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("order", [*ORDERS, pytest.param(None, id="plain")])
def test_right_and_without_a_false_alarm(name, order):
    with cuda.sanitize(**order) if order else contextlib.nullcontext():
        launched(name)


@pytest.mark.parametrize("name", CASES)
def test_counts_do_not_depend_on_the_order(name):
    counts = []
    for order in ({"order": "forward"}, {"order": "reverse"}, {"order": "seeded", "seed": 7}):
        with cuda.profile(**order) as report:
            launched(name)
        counts.append([getattr(report.launches[0], what) for what in COUNTS])
    assert counts[0] == counts[1] == counts[2]


def check(run: Run, atol: float = 2e-5, rtol: float = 1e-3) -> None:
    for position, want in run.want.items():
        got = run.args[position]
        assert got.shape == want.shape
        if want.is_floating_point():
            atol = 2e-3 if got.dtype == torch.float16 else atol
            torch.testing.assert_close(got, want.to(got.dtype), atol=atol, rtol=rtol)
        else:
            assert got.tolist() == want.tolist()


@pytest.mark.parametrize("order", ORDERS)
def test_compaction_keeps_every_element(order):
    """The order of warps is not defined, so the result is compared as a set."""
    x = integers(200, 30)
    out, count = torch.full((200,), -1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    checked(compiled(SOURCE).compact, 2, 128, x, out, count, 200, **order)
    want = x[x % 3 == 0]
    assert count.item() == len(want)
    assert torch.equal(out[:len(want)].sort().values, want.sort().values)


def test_three_orders_are_three_orders():
    """The same compaction shows that the orders differ: warps reach the counter in another sequence."""
    results = []
    for order in ({"order": "forward"}, {"order": "reverse"}):
        out = torch.full((256,), -1, dtype=torch.int32)
        with cuda.sanitize(**order):
            compiled(SOURCE).compact[2, 128](torch.arange(256).int() * 3, out,
                                             torch.zeros(1, dtype=torch.int32), 256)
        results.append(out)
    assert not torch.equal(*results)
