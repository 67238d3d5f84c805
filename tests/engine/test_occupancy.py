"""Occupancy against NVIDIA's published rules: by hand, and against the header that publishes them."""
import itertools
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from laptop_cuda import gpu
from laptop_cuda.occupancy import LIMITS, limits, occupancy

BY_HAND = tomllib.loads(Path(__file__).with_name("occupancy.toml").read_text(encoding="utf-8"))["rows"]


@pytest.mark.parametrize("arch, registers, threads, shared, blocks, limited_by", BY_HAND)
def test_by_hand(arch, registers, threads, shared, blocks, limited_by):
    found = occupancy(arch, registers, threads, shared)
    assert (found.blocks, found.limited_by) == (blocks, limited_by)
    assert found.warps == blocks * -(-threads // 32) <= limits(arch).warps
    assert found.share == found.warps / limits(arch).warps


def test_an_architecture_s_own_variant_is_the_same_card():
    assert occupancy("sm_90a", 100, 128) == occupancy("sm_90", 100, 128)


@pytest.mark.parametrize("wrong, said", [(("sm_61", 32, 128), "arch: the limits of sm_75"),
                          (("sm_80", 256, 128), "registers: a thread has at most 255"),
                          (("sm_80", 32, 0), "threads: a block has 1 to 1024"),
                          (("sm_80", 32, 1025), "threads: a block has 1 to 1024"),
                          (("sm_80", 32, 32, -1), "shared_bytes: cannot be negative")])
def test_bad_input_is_named(wrong, said):
    with pytest.raises(ValueError, match=said):
        occupancy(*wrong)


CASES = list(itertools.product((8, 31, 32, 33, 63, 64, 97, 128, 168, 255), (32, 96, 100, 128, 256, 384, 1024),
                               (0, 1, 1024, 22016, 49153, 98304, 166912, 232448)))
PROGRAM = r"""
#include <cstdio>
#include <cuda_occupancy.h>
int main() {
    int major, minor, warps, registers, threads; size_t shared, most, optin;
    while (scanf("%d %d %d %zu %zu %d %d %zu", &major, &minor, &warps, &most, &optin, &registers, &threads, &shared) == 8) {
        cudaOccDeviceProp card;
        card.computeMajor = major, card.computeMinor = minor, card.maxThreadsPerBlock = 1024;
        card.maxThreadsPerMultiprocessor = 32 * warps, card.regsPerBlock = card.regsPerMultiprocessor = 65536;
        card.warpSize = 32, card.sharedMemPerBlock = 49152, card.sharedMemPerMultiprocessor = most;
        card.numSms = 1, card.sharedMemPerBlockOptin = optin, card.reservedSharedMemPerBlock = 1024;
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = 1024, kernel.numRegs = registers, kernel.sharedSizeBytes = 0;
        kernel.partitionedGCConfig = PARTITIONED_GC_OFF, kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = optin, kernel.numBlockBarriers = 1;
        cudaOccDeviceState state;
        state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
        cudaOccResult result;
        auto status = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &card, &kernel, &state, threads, shared);
        printf("%d\n", status ? -(int)status : result.activeBlocksPerMultiprocessor);
    }
}
"""


def published_header() -> Path | None:
    compiler = gpu.nvcc()
    homes = [Path(compiler).resolve().parent.parent] if compiler else []
    homes += [Path(f).parent.parent for f in gpu.in_wheels("nvcc")] + [Path("/usr/local/cuda")]
    return next((h / "include" for h in homes if (h / "include/cuda_occupancy.h").exists()), None)


@pytest.mark.parametrize("arch", [a for a in LIMITS if a != "sm_75"])
def test_against_the_header_that_publishes_the_rules(arch, tmp_path):
    """560 cases per architecture, answered by NVIDIA's own code."""
    include = published_header()
    if include is None or shutil.which("g++") is None:
        pytest.skip("not run: cuda_occupancy.h is missing (NVIDIA's CUDA toolkit, or pip install "
                    "\".[inside]\")")
    (tmp_path / "ask.cpp").write_text(PROGRAM)
    subprocess.run(["g++", "-w", f"-I{include}", "-o", tmp_path / "ask", tmp_path / "ask.cpp"], check=True)
    of, number = limits(arch), arch[3:]
    asked = "".join(f"{number[:-1]} {number[-1]} {of.warps} {of.shared} {of.shared_per_block} {r} {t} {s}\n"
                    for r, t, s in CASES)
    answers = subprocess.run([tmp_path / "ask"], input=asked, capture_output=True, text=True,
                             check=True).stdout.split()
    ours = [str(occupancy(arch, *case).blocks) for case in CASES]
    assert len(answers) == len(CASES) and [(c, a, o) for c, a, o in zip(CASES, answers, ours) if a != o] == []
