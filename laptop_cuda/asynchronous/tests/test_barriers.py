"""cuda::barrier, cuda::pipeline and cuda::atomic; with and without their waits in test_wrong_and_right.py."""
import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import ORDERS, compiled, counted, mod, ramp  # noqa: F401

SOURCE = r"""
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/std/type_traits>
#pragma nv_diag_suppress static_var_with_dynamic_init
namespace cg = cooperative_groups;
using Barrier = cuda::barrier<cuda::thread_scope_block>;

__global__ void mirrored(const float* x, float* y, int waits) {
    __shared__ float tile[128];
    __shared__ Barrier bar;
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    for (int turn = 0; turn < 3; ++turn) {
        tile[threadIdx.x] = x[threadIdx.x] + turn;
        Barrier::arrival_token token = bar.arrive();
        float scale = turn + 1;                                  // work that needs no waiting
        if (waits) bar.wait(std::move(token));
        y[turn * 128 + threadIdx.x] = scale * tile[127 - threadIdx.x];
        bar.arrive_and_wait();
    }
}
__global__ void copied_by_barrier(const float* x, float* y, int waits) {
    __shared__ alignas(16) float tile[128];
    __shared__ Barrier bar;
    auto block = cg::this_thread_block();
    if (block.thread_rank() == 0) init(&bar, block.size());
    block.sync();
    cuda::memcpy_async(block, tile, x, cuda::aligned_size_t<16>(sizeof tile), bar);
    auto token = bar.arrive();
    if (waits) bar.wait(std::move(token));
    y[threadIdx.x] = tile[127 - threadIdx.x];
}
__global__ void pipelined(const float* x, float* y, int n, int waits) {
    extern __shared__ float stage[];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    int size = block.size();
    for (int compute = 0, fetch = 0; compute < n; ++compute) {
        for (; fetch < n && fetch < compute + 2; ++fetch) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, stage + fetch % 2 * size, x + fetch * size, sizeof(float) * size, pipe);
            pipe.producer_commit();
        }
        if (waits) pipe.consumer_wait();
        y[compute * size + threadIdx.x] = stage[compute % 2 * size + size - 1 - threadIdx.x];
        pipe.consumer_release();
    }
}
__global__ void of_one_thread(const float4* x, float4* y, int n, int waits) {
    __shared__ float4 stage[2][64];
    cuda::pipeline<cuda::thread_scope_thread> pipe = cuda::make_pipeline();
    for (int compute = 0, fetch = 0; compute < n; ++compute) {
        for (; fetch < n && fetch < compute + 2; ++fetch) {
            pipe.producer_acquire();
            cuda::memcpy_async(&stage[fetch % 2][threadIdx.x], x + fetch * 64 + threadIdx.x, sizeof(float4), pipe);
            pipe.producer_commit();
        }
        if (waits) pipe.consumer_wait();                         // it releases the stage, too
        __syncthreads();
        y[compute * 64 + threadIdx.x] = stage[compute % 2][63 - threadIdx.x];
        __syncthreads();
        if (waits == 2) pipe.consumer_release();
    }
}
__global__ void dependent(const float* x, float* y, int waits) {
    __shared__ float tile[128];
    tile[threadIdx.x] = x[threadIdx.x];
    if (waits) __syncthreads();
    asm volatile("griddepcontrol.launch_dependents; griddepcontrol.wait;" ::: "memory");     // for grids, not for threads
    cudaTriggerProgrammaticLaunchCompletion(), cudaGridDependencySynchronize();
    y[threadIdx.x] = tile[127 - threadIdx.x];
}
__global__ void too_few(float* y) {
    __shared__ Barrier bar;
    if (threadIdx.x == 0) init(&bar, blockDim.x + 1);
    __syncthreads();
    bar.arrive_and_wait();  // BUG
    y[threadIdx.x] = 1;
}
__global__ void atomics(int* sum, unsigned* most, int* ticket) {
    cuda::atomic_ref<int, cuda::thread_scope_device> total(*sum);
    total.fetch_add(threadIdx.x, cuda::memory_order_relaxed);
    ++total;
    cuda::atomic_ref<unsigned> highest(*most);
    highest.fetch_max(threadIdx.x);
    __shared__ cuda::atomic<int, cuda::thread_scope_block> winner;
    if (threadIdx.x == 0) winner = -1;
    __syncthreads();
    int nobody = -1;
    if (winner.compare_exchange_strong(nobody, (int)threadIdx.x)) ticket[0] = winner.load();
    static_assert(cuda::std::is_same<int, int>::value, "");
}
"""


# threads and shared bytes, what it is given for n, and what it makes of 1,024 numbers
SHAPES = {"mirrored": ((128,), (), lambda x: np.concatenate([(t + 1) * (x[127::-1] + t) for t in range(3)])),
          **dict.fromkeys(("copied_by_barrier", "dependent"), ((128,), (), lambda x: x[127::-1])),
          "pipelined": ((64, 512), (5,), lambda x: x[:320].reshape(5, 64)[:, ::-1].ravel()),
          "of_one_thread": ((64,), (4,), lambda x: x.reshape(4, 64, 4)[:, ::-1].ravel())}


def launched(name, waits):
    """A thread that does not wait arrives twice in a phase, which then ends early: what it reads may not be written yet."""
    x, y = ramp(1024), np.zeros(1024, np.float32)
    if name == "too_few":
        return compiled(SOURCE).too_few[1, 32](y)
    how, n, made = SHAPES[name]
    getattr(compiled(SOURCE), name)[1, *how](x, y, *n, waits)
    return y[:made(x).size], made(x)


def test_a_deadlock_is_one_where_nothing_is_checked():
    with pytest.raises(cuda.KernelError, match="of its 33 arrivals missing"), cuda.profile():
        launched("too_few", 0)


def test_bytes_copied_through_a_pipeline_are_counted(mod):
    launch = counted(mod.pipelined, 1, 64, ramp(320), np.zeros(320, np.float32), 5, 1, shared=512)
    assert launch.global_load.bytes == launch.global_store.bytes == 4 * 320
    assert launch.global_load.sectors == launch.global_load.unique_sectors == 40


@pytest.mark.parametrize("order", ORDERS)
def test_atomics_of_the_standard_library(mod, order):
    total, most, ticket = np.zeros(1, np.int32), np.zeros(1, np.uint32), np.full(1, -1, np.int32)
    with cuda.sanitize(**order):
        mod.atomics[1, 64](total, most, ticket)
    assert total[0] == 63 * 32 + 64 and most[0] == 63 and 0 <= ticket[0] < 64
