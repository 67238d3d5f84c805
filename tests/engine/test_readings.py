"""The engine's counts beside readings of NVIDIA's profiler that others have published.

The kernels behind the readings are not ours. readings.cu has patterns of our own that access memory alike.
"""
from pathlib import Path

import pytest
import torch
from engine_kit import counted

import laptop_cuda as cuda

MODULE = cuda.load(Path(__file__).with_name("readings.cu"))

# Loads of shared memory of 8 and 16 bytes per lane: which vector lane t reads (None: it is inactive), and the
# wavefronts and bank conflicts that were read.
WIDE = {
    "t": (8, lambda t: t, 2, 0),
    "t / 2": (8, lambda t: t // 2, 1, 0),
    "t, half a warp": (8, lambda t: t if t < 16 else None, 1, 0),
    "t, half a warp, whose last lane is lane 16": (8, lambda t: {16: 15}.get(t, t if t < 15 else None), 2, 0),
    "t % 16": (8, lambda t: t % 16, 2, 0),
    "t, of four": (16, lambda t: t, 4, 0),
    "lanes 15 and 16, one address": (16, lambda t: 0 if t in (15, 16) else None, 2, 0),
    "lanes 0 and 15, one address": (16, lambda t: 0 if t in (0, 15) else None, 1, 0),
    "pairs, each quarter its own": (16, lambda t: t // 8 * 2 + t % 8 // 2 % 2, 2, 0),
    "pairs in one half, two apart in the other": (
        16, lambda t: t // 8 * 2 + (t % 8 // 2 % 2 if t < 16 else t % 2), 4, 0),
    "pairs, with a conflict of two": (16, lambda t: t // 16 * 4 + t % 16 // 8 + t % 8 // 4 * 8, 4, 2),
    "every second, twice": (16, lambda t: 2 * (t % 16), 8, 4),
    "one address per half warp": (16, lambda t: t // 16, 2, 0),
    "t % 4": (16, lambda t: t % 4, 4, 0),
    "one address": (16, lambda t: 0, 2, 0),
    "128 bytes apart": (16, lambda t: 8 * t, 32, 28),
    "lane / 8": (16, lambda t: t // 8, 2, 0),
    "lane % 8": (16, lambda t: t % 8, 4, 0),
    "rows of a fragment": (16, lambda t: t // 16 * 2 + t % 2, 2, 0),
    "columns of a fragment": (16, lambda t: t // 2 % 8, 2, 0),
}


@pytest.mark.parametrize("access", WIDE)
def test_wide_loads_of_shared_memory(access):
    size, place, wavefronts, conflicts = WIDE[access]
    at = [-1 if (p := place(t)) is None else p for t in range(32)]
    load = counted(MODULE[f"wide{size}"], 1, 32, torch.tensor(at, dtype=torch.int32),
                   torch.zeros(32, size // 4)).shared_load
    assert (load.requests, load.wavefronts, load.excess) == (1, wavefronts, conflicts)
