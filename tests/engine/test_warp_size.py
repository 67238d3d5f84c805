"""Warps of 8 and 16 lanes: shuffles, votes, masks, warpSize, counts and the sanitizer follow."""
import pytest
import torch

import laptop_cuda as cuda
from engine_kit import checked, mod as kernels  # noqa: F401

SIZES = [8, 16, 32]
SOURCE = """
__global__ void seen(const float* __restrict__ x, float* __restrict__ sums, int* __restrict__ votes,
                     int* __restrict__ lanes, int* __restrict__ up) {
    int t = threadIdx.x, lane = t % warpSize;
    unsigned everyone = 0xffffffffu >> (32 - warpSize);
    float sum = x[t];
    for (int d = warpSize / 2; d > 0; d /= 2) sum += __shfl_xor_sync(everyone, sum, d);
    sums[t] = sum;
    votes[t] = __ballot_sync(everyone, lane % 3 == 0);
    lanes[t] = __popc(__activemask());
    up[t] = __shfl_up_sync(everyone, t, 1);
}
__global__ void sum_of_32(const float* __restrict__ x, float* __restrict__ sums) {
    float sum = x[threadIdx.x];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffff, sum, d);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
}
__global__ void neighbours(float* __restrict__ out) {
    __shared__ float kept[64];
    kept[threadIdx.x] = 1;
    __syncwarp();
    out[threadIdx.x] = kept[threadIdx.x ^ 8];
}
__global__ void columns(float* __restrict__ out) {
    __shared__ float kept[64 * 32];
    kept[threadIdx.x * 32] = 1;
    out[threadIdx.x] = kept[threadIdx.x * 32];
}
"""


@pytest.mark.parametrize("order", ["forward", "reverse", "seeded"])
@pytest.mark.parametrize("size", SIZES)
def test_what_lanes_tell_each_other(kernels, size, order):
    x = torch.arange(64.0)
    sums, votes, lanes, up = cuda.empty(64), *(cuda.empty(64, dtype=torch.int32) for _ in range(3))
    checked(kernels.seen, 1, 64, x, sums, votes, lanes, up, machine=cuda.Machine(warp_size=size), order=order)
    assert torch.equal(sums, x.view(-1, size).sum(1).repeat_interleave(size))
    assert (votes.long() & 0xffffffff == sum(1 << lane for lane in range(0, size, 3))).all()
    assert (lanes == size).all()
    t = torch.arange(64)
    assert torch.equal(up.long(), torch.where(t % size == 0, t, t - 1))


@pytest.mark.parametrize("size", SIZES)
def test_requests_are_counted_per_warp(kernels, size):
    with cuda.profile(machine=cuda.Machine(warp_size=size, sector_bytes=64)) as report:
        kernels.columns[1, 64](cuda.empty(64))
    launch = report.launches[0]
    assert launch.shared_store.requests == launch.global_store.requests == 64 // size
    assert launch.shared_store.wavefronts == 64                  # all lanes meet in one bank
    assert launch.global_store.sectors == max(64 // size, 4)     # 8 lanes use half of a sector


@pytest.mark.parametrize("size", SIZES)
def test_a_kernel_that_takes_32_lanes_for_granted_is_wrong(kernels, size):
    x, sums = torch.arange(64.0), torch.zeros(2)
    checked(kernels.sum_of_32, 1, 64, x, sums, machine=cuda.Machine(warp_size=size))
    assert torch.equal(sums, x.view(2, 32).sum(1)) == (size == 32)


@pytest.mark.parametrize("size", SIZES)
def test_syncwarp_orders_the_lanes_of_one_warp_alone(kernels, size):
    """Thread t reads what t ^ 8 wrote: of another warp where these have 8 lanes."""
    def run():
        checked(kernels.neighbours, 1, 64, cuda.empty(64), machine=cuda.Machine(warp_size=size))
    if size > 8:
        run()
    else:
        with pytest.raises(cuda.KernelError) as caught:
            run()
        assert caught.value.kind == "race"


def test_matrices_and_tiles_of_32_lanes_are_refused():
    groups = cuda.compile("""
        #include <cooperative_groups.h>
        namespace cg = cooperative_groups;
        __global__ void tiles(int* out) {
            auto tile = cg::tiled_partition<16>(cg::this_thread_block());
            out[threadIdx.x] = tile.shfl(int(threadIdx.x), 3);
        }
    """)
    out = torch.zeros(32, dtype=torch.int32)
    checked(groups.tiles, 1, 32, out, machine=cuda.Machine(warp_size=16))
    assert out.tolist() == [3] * 16 + [19] * 16
    with pytest.raises(cuda.KernelError, match="more threads than a warp has"):
        checked(groups.tiles, 1, 32, out, machine=cuda.Machine(warp_size=8))


@pytest.mark.parametrize("size", [0, 4, 24, 64])
def test_no_other_sizes(size):
    with pytest.raises(ValueError, match="8, 16 or 32"):
        cuda.Machine(warp_size=size)
