"""Tiles of several warps, barriers of a part of the block; and newer instructions, which are errors
where they are reached and nowhere else."""
import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import ORDERS, line_of, mod, ramp  # noqa: F401

SOURCE = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda/barrier>
namespace cg = cooperative_groups;

__global__ void tiles(const float* x, float* sum, float* scan, float* next, int* votes) {
    __shared__ cg::block_tile_memory<256> scratch;
    auto block = cg::this_thread_block(scratch);
    auto tile = cg::tiled_partition<64>(block);
    int i = block.thread_rank();
    sum[i] = cg::reduce(tile, x[i], cg::plus<float>());
    scan[i] = cg::inclusive_scan(tile, x[i]);
    next[i] = tile.shfl_down(x[i], 1);
    votes[i] = tile.any(x[i] > 199) + 2 * tile.all(x[i] > 63) + 4 * tile.meta_group_rank();
}
__global__ void turned_by_tile(const float* x, float* y, int waits) {
    __shared__ float s[128];
    auto tile = cg::tiled_partition<64>(cg::this_thread_block());
    s[threadIdx.x] = x[threadIdx.x];                                        // written
    if (waits) tile.sync();
    y[threadIdx.x] = s[threadIdx.x ^ 63];
    if (waits == 2 && tile.thread_rank()) tile.sync();                      // short
}
__global__ void turned_by_number(const float* x, float* y) {
    __shared__ float s[128];
    s[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x < 64) asm volatile("bar.sync 1, 64;" ::: "memory");
    else asm volatile("bar.sync 2, 64;" ::: "memory");
    y[threadIdx.x] = s[threadIdx.x ^ 63];
}
__global__ void hopper(float* x, int reached) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    if (reached == 1) cuda::ptx::tcgen05_commit((uint64_t*)&bar);
    if (reached == 2) cg::this_multi_grid().sync();
    if (reached == 3) x[0] = *(float*)malloc(4);
    x[threadIdx.x] = 1;
}
"""


@pytest.mark.parametrize("order", ORDERS)
def test_tiles_of_two_warps(mod, order):
    x, found = ramp(256), np.zeros((3, 256), np.float32)
    votes, of_tile = np.zeros(256, np.int32), x.reshape(4, 64)
    with cuda.sanitize(**order):
        mod.tiles[1, 256](x, *found, votes)
    assert (found[0].reshape(4, 64) == of_tile.sum(1, keepdims=True)).all()
    assert (found[1].reshape(4, 64) == of_tile.cumsum(1)).all()
    assert (found[2].reshape(4, 64) == np.minimum(of_tile + 1, of_tile[:, -1:])).all()
    assert (votes == [(w == 3) + 2 * (w > 0) + 4 * w for w in range(4) for _ in range(64)]).all()


@pytest.mark.parametrize("order", ORDERS)
def test_a_part_of_the_block_waits_for_itself(mod, order):
    for kernel, more in ((mod.turned_by_tile, (1,)), (mod.turned_by_number, ())):
        y = np.zeros(128, np.float32)
        with cuda.sanitize(**order):
            kernel[1, 128](ramp(128), y, *more)
        assert (y == ramp(128)[np.arange(128) ^ 63]).all()
    for waits, kind in ((0, "race"), (2, "deadlock")):
        with pytest.raises(cuda.KernelError) as caught, cuda.sanitize(**order):
            mod.turned_by_tile[1, 128](ramp(128), y, waits)
        assert caught.value.kind == kind
    assert caught.value.line in line_of(SOURCE, "// short")


@pytest.mark.parametrize("reached, name", [*enumerate(("", "tcgen05_commit", "this_multi_grid", "malloc"))])
def test_what_is_not_known_is_an_error_where_it_is_reached(mod, reached, name):
    x = np.zeros(32, np.float32)
    if not reached:
        mod.hopper[1, 32](x, 0)
        assert x.sum() == 32
        return
    for mode in (cuda.profile, cuda.sanitize):
        with pytest.raises(cuda.KernelError) as caught, mode():
            mod.hopper[1, 32](x, reached)
        assert caught.value.kind == "not supported" and name in str(caught.value)
        assert name.split("_")[0].split(".")[0] in SOURCE.splitlines()[caught.value.line - 1]
