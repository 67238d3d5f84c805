"""Counts on another machine: other banks, other sectors, less shared memory."""
import random

import pytest
import torch

import laptop_cuda as cuda

GATHER = """
__global__ void gather(const float* __restrict__ in, const int* __restrict__ at, float* __restrict__ out, int n) {
    __shared__ float tile[2048];
    __shared__ float behind[64];
    for (int i = threadIdx.x; i < 2048; i += blockDim.x) tile[i] = in[i];
    behind[threadIdx.x] = 1.0f;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        int k = at[i];
        out[i] = tile[k] + in[k] * behind[i % 64 ^ 3];
    }
}
__global__ void wide(const float4* __restrict__ in, const int* __restrict__ at, float4* __restrict__ out) {
    __shared__ float4 tile[512];
    for (int i = threadIdx.x; i < 512; i += blockDim.x) tile[i] = in[i];
    __syncthreads();
    out[threadIdx.x] = tile[at[threadIdx.x]];
}
"""
MACHINES = [cuda.Machine(b, w, s) for b, w, s in
            ((24, 4, 16), (40, 4, 64), (48, 4, 128), (32, 8, 32), (40, 8, 128), (24, 8, 64))]


def passes(places: list[int], size: int, machine: cuda.Machine) -> int:
    """By the definition: each part of the warp takes as many passes as its busiest bank has words. Where
    neighbours share each address, or lanes two apart do, the parts of a wide load have twice the lanes."""
    part = 32 if size <= 4 else 16 if size <= 8 else 8
    if part < 32 and any(all(places[i] == places[i ^ bit] for i in range(len(places))) for bit in (1, 2)):
        part *= 2
    total = 0
    for first in range(0, len(places), part):
        words = {(p + k) // machine.bank_bytes for p in places[first:first + part] for k in range(size)}
        banks = [w % machine.banks for w in words]
        total += max(banks.count(b) for b in banks)
    return total


def sectors(places: list[int], size: int, machine: cuda.Machine) -> int:
    return len({(p + k) // machine.sector_bytes for p in places for k in range(size)})


def gathered(machine, seed=0):
    rng = random.Random(seed)
    at = [rng.randrange(2048) for _ in range(256)]
    arrays = torch.arange(2048.0), torch.tensor(at, dtype=torch.int32), cuda.empty(256)
    with cuda.profile(machine=machine) as report:
        cuda.compile(GATHER).gather[1, 64](*arrays, 256)
    return at, report.launches[0]


@pytest.mark.parametrize("machine", [cuda.Machine(), *MACHINES], ids=str)
def test_the_counts_follow_the_definition(machine):
    at, launch = gathered(machine)
    warps = [at[i:i + 32] for i in range(0, 256, 32)]
    behind = [[8192 + 4 * (i % 64 ^ 3) for i in range(first, first + 32)] for first in range(0, 256, 32)]
    assert launch.shared_load.wavefronts == sum(passes([4 * a for a in w], 4, machine) for w in warps) \
        + sum(passes(b, 4, machine) for b in behind)
    rows = [range(4 * i, 4 * i + 128, 4) for i in range(0, 2048, 32)]
    indices = [range(4 * i, 4 * i + 128, 4) for i in range(0, 256, 32)]
    assert launch.global_load.sectors == sum(sectors(list(r), 4, machine) for r in [*rows, *indices]) \
        + sum(sectors([4 * a for a in w], 4, machine) for w in warps)
    assert launch.global_load.moved == machine.sector_bytes * launch.global_load.sectors


@pytest.mark.parametrize("machine", [cuda.Machine(), *MACHINES], ids=str)
def test_wide_accesses_go_in_parts(machine):
    rng = random.Random(1)
    apart = [rng.randrange(512) for _ in range(32)]
    for at in (apart, [apart[i | 1] for i in range(32)], [apart[i & ~2] for i in range(32)], [7] * 32):
        arrays = torch.arange(2048.0), torch.tensor(at, dtype=torch.int32), cuda.empty(128)
        with cuda.profile(machine=machine) as report:
            cuda.compile(GATHER).wide[1, 32](*arrays)
        assert report.launches[0].shared_load.wavefronts == passes([16 * a for a in at], 16, machine)


def test_another_machine_changes_no_result():
    source = cuda.compile(GATHER)
    results = []
    for machine in (cuda.Machine(), *MACHINES):
        out = cuda.empty(256)
        with cuda.sanitize(machine=machine):
            source.gather[1, 64](torch.arange(2048.0), torch.arange(0, 512, 2, dtype=torch.int32), out, 256)
        results.append(out.clone())
    assert all(torch.equal(results[0], r) for r in results)


def test_a_block_has_no_more_shared_memory_than_the_machine():
    arrays = torch.arange(2048.0), torch.zeros(256, dtype=torch.int32), cuda.empty(256)
    for shared, fits in ((8448, True), (8447, False)):
        with cuda.sanitize(machine=cuda.Machine(shared_bytes=shared)):
            if fits:
                cuda.compile(GATHER).gather[1, 64](*arrays, 256)
            else:
                with pytest.raises(cuda.KernelError, match="shared"):
                    cuda.compile(GATHER).gather[1, 64](*arrays, 256)


def test_the_report_says_which_sectors():
    _, launch = gathered(cuda.Machine(sector_bytes=64))
    with cuda.profile(machine=cuda.Machine(sector_bytes=64)) as report:
        cuda.compile(GATHER).gather[1, 64](torch.arange(2048.0), torch.zeros(256, dtype=torch.int32),
                                           cuda.empty(256), 256)
    assert "moved: 64 bytes" in str(report)
    with pytest.raises(ValueError, match="sectors of 32"):
        launch.picture("in")


@pytest.mark.parametrize("wrong", [dict(banks=0), dict(banks=65), dict(bank_bytes=2), dict(sector_bytes=48),
                                   dict(shared_bytes=-1)])
def test_a_machine_that_cannot_exist(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        cuda.Machine(**wrong)
