"""Counts of the profiler against counts derived by hand.

The rules used throughout. A warp is 32 consecutive threads, x fastest. One executed load or store of a warp is one
request, however many lanes take part. Global memory moves in sectors of 32 bytes: a request moves the distinct
sectors that its lanes touch. Shared memory has 32 banks of 4 bytes: a request needs as many wavefronts as the
busiest bank has distinct words, 8-byte accesses going by half-warps and 16-byte accesses by quarter-warps, two
of which go together in a load whose lanes share addresses in pairs (test_readings.py).
Arrays begin on a multiple of 256 bytes. Every kernel here is launched with counts worked out in its comment; single
accesses of banks, strides, lanes that share and vectors are held to a card's own counters in
tests/tools/test_gpu_results.py.
"""
from dataclasses import dataclass
from typing import Callable

import pytest
import torch
from engine_kit import COMPILERS, compiled, counted, data_of, line_of, use_compiler

SOURCE = data_of("counts.toml")["source"]


@pytest.fixture(params=COMPILERS)
def mod(request, monkeypatch):
    use_compiler(monkeypatch, request.param)
    return compiled(SOURCE)


def ramp(n: int) -> torch.Tensor:
    return torch.arange(n, dtype=torch.float32)


def check(counts, requests: int, sectors: int, asked: int, unique: int | None = None) -> None:
    got = (counts.requests, counts.sectors, counts.bytes)
    assert got == (requests, sectors, asked), f"requests, sectors, bytes: {got}"
    if unique is not None:
        assert counts.unique_sectors == unique


def check_shared(launch, load: tuple[int, int, int], store: tuple[int, int, int]) -> None:
    """Requests, wavefronts, and those in excess."""
    found = [(c.requests, c.wavefronts, c.excess) for c in (launch.shared_load, launch.shared_store)]
    assert found == [load, store]


@dataclass
class Count:
    """A launch, its global loads and stores: requests, sectors, bytes asked for, different sectors."""
    name: str
    kernel: str
    grid: object
    block: object
    arguments: Callable[[], tuple]
    load: tuple = ()
    store: tuple = ()


COUNTS = [
    # 1024 floats by 4 blocks of 256: 32 warps. A warp asks for 128 bytes in a row, which are 4 sectors.
    Count("coalesced_copy", "copy", 4, 256, lambda: (ramp(1024), torch.zeros(1024), 1024),
          load=(32, 32 * 4, 4096, 128), store=(32, 32 * 4, 4096, 128)),
    # 1000 = 31 * 32 + 8. 31 full warps of 4 sectors, and one with 8 lanes, 32 bytes: a single sector.
    Count("ragged_copy", "copy", 4, 256, lambda: (ramp(1000), torch.zeros(1000), 1000),
          load=(32, 31 * 4 + 1, 4000, 125), store=(32, 125, 4000, 125)),
    # The view starts at byte 4 of its storage, so each 128-byte piece straddles a fifth sector: bytes 4
    # to 4100 are the sectors 0 to 128, 129 of them.
    Count("copy_from_an_offset_of_one_element", "copy", 4, 256,
          lambda: (ramp(1025)[1:], torch.zeros(1024), 1024), load=(32, 32 * 5, 4096, 129),
          store=(32, 32 * 4, 4096, 128)),
    # Thread j walks row j of a 64 x 64 matrix: neighbouring lanes are 256 bytes apart, 32 sectors per
    # request. 2 warps x 64 steps. Each of the 512 sectors of the matrix moves 8 times.
    Count("rows_by_thread_are_columns_by_warp", "by_column", 1, 64, lambda: (ramp(4096), torch.zeros(64), 64),
          load=(128, 128 * 32, 4 * 4096, 512)),
    # A warp is 4 rows of 8 lanes; a row of 8 floats is one sector. 2 warps.
    Count("a_block_of_8_by_8_reads_four_rows_a_warp", "square_block", 1, (8, 8),
          lambda: (ramp(64 * 8), torch.zeros(64 * 8)), load=(2, 8, 256, 8), store=(2, 8, 256, 8)),
    Count("float4_handed_to_a_function_is_one_load", "pass4", 1, 32, lambda: (ramp(128), torch.zeros(32)),
          load=(1, 16, 512, 16), store=(1, 4, 128)),
    # Lane i reads bytes 16 i + 4 to 16 i + 8: two lanes share a sector, 16 sectors for 128 bytes asked.
    Count("one_field_of_a_vector_is_four_bytes_a_lane", "one_field", 1, 32,
          lambda: (ramp(128), torch.zeros(32)), load=(1, 16, 128, 16)),
    # 2 bytes per lane: 64 bytes, 2 sectors.
    Count("halves", "halves", 1, 32, lambda: (ramp(32).half(), torch.zeros(32).half()), load=(1, 2, 64, 2),
          store=(1, 2, 64, 2)),
    # Two loads of 4 bytes per lane, both passed straight into a function, and one store of its result.
    Count("half_pairs", "half_pairs", 1, 32, lambda: (ramp(128).half(), torch.zeros(64).half()),
          load=(2, 8, 256, 8), store=(1, 4, 128, 4)),
    Count("half_widened_by_an_intrinsic", "half_to_float", 1, 32, lambda: (ramp(32).half(), torch.zeros(32)),
          load=(1, 2, 64), store=(1, 4, 128)),
    Count("doubles", "doubles", 1, 32, lambda: (ramp(32).double(), torch.zeros(32).double()),
          load=(1, 8, 256), store=(1, 8, 256)),
    # Odd lanes read a, even lanes b: two requests of 16 lanes. Every second float still touches all 4
    # sectors. After the arms the warp is whole again: one store.
    Count("two_arms", "two_arms", 1, 32, lambda: (ramp(32), ramp(32), torch.zeros(32)), load=(2, 8, 128, 8),
          store=(1, 4, 128)),
    # In each of the 8 rounds one half of the lanes loads: 8 requests, not 4, of 16 lanes and 4 sectors.
    Count("alternating_lanes_in_a_loop", "alternate", 1, 32, lambda: (ramp(256), torch.zeros(32)),
          load=(8, 32, 8 * 64, 32)),
    # Round k has the lanes k + 1 to 31: 31 rounds, 31 + 30 + ... + 1 = 496 loads of 4 bytes. The first active
    # lane is m = k + 1, and lanes m to 31 cover 4 - m // 8 sectors: 7 * 4 + 8 * 3 + 8 * 2 + 8 * 1 = 76.
    Count("triangle", "triangle", 1, 32, lambda: (ramp(1024), torch.zeros(32)), load=(31, 76, 496 * 4, 76)),
    # In each of 8 rounds 24 of 32 lanes load, 6 of the 8 of each sector: 8 requests of 4 sectors.
    Count("continue", "skipping", 1, 32, lambda: (ramp(256), torch.zeros(32)), load=(8, 32, 8 * 24 * 4, 32)),
    # The same load instruction in fetch(), reached from two calls: two requests of 16 lanes, 2 sectors each.
    Count("a_helper_called_from_both_arms", "shared_helper", 1, 32,
          lambda: (ramp(32), ramp(32), torch.zeros(32)), load=(2, 4, 128, 4)),
    # 4 rounds: first 16 alternating lanes (4 sectors), then all 32 (4 sectors).
    Count("a_helper_called_twice_in_a_loop", "helper_in_loop", 1, 32, lambda: (ramp(256), torch.zeros(32)),
          load=(8, 32, 4 * 64 + 4 * 128, 32)),
    # Each case has every fourth lane: 8 lanes, which touch all 4 sectors of their row.
    Count("switch_with_four_cases", "four_cases", 1, 32, lambda: (ramp(128), torch.zeros(32)),
          load=(4, 16, 128, 16), store=(1, 4, 128)),
    # Lanes 0-7 leave in round 0, 8-15 in round 1, ...: 24, 16, 8 and 0 lanes load, in 3, 2 and 1 sectors.
    Count("lanes_leaving_a_loop_by_return", "leaving", 1, 32, lambda: (ramp(128), torch.zeros(128)),
          load=(3, 6, 48 * 4, 6), store=(3, 6, 48 * 4, 6)),
    # 16 lanes (2 sectors), then 8 lanes (1) and 8 lanes (1); the store has 16 lanes again.
    Count("nested_arms", "nested", 1, 32, lambda: (ramp(128), torch.zeros(32)), load=(3, 4, 64 + 32 + 32, 4),
          store=(1, 2, 64)),
    # Lanes 0-15 read a: 2 sectors. Lanes 4-15, where it is above 0, read b and store bytes 16-64: 2 sectors.
    Count("short_circuit", "short_circuit", 1, 32,
          lambda a=torch.tensor([-1.0] * 4 + [1.0] * 28): (a, ramp(32), torch.zeros(32)),
          load=(2, 4, 64 + 48, 4), store=(1, 2, 48)),
    # Row r has r % 4 elements, and starts on a sector of its own (8 floats). The condition reads
    # length[row]: round 0 for 32 lanes, round k for the lanes with r % 4 >= k: 32, 24, 16, 8 lanes,
    # always 4 sectors. Element k is read by 24, 16, 8 lanes, each in its own sector.
    Count("rows_of_different_length", "ragged_rows", 1, 32,
          lambda length=(torch.arange(32) % 4).int(): (length, ramp(256), torch.zeros(32)),
          load=(4 + 3, 4 * 4 + 24 + 16 + 8, (32 + 24 + 16 + 8) * 4 + 48 * 4, 4 + 24)),
    Count("float4_made_in_a_call_is_one_store", "make4", 1, 32, lambda: (torch.zeros(128), 2.0),
          load=(0, 0, 0), store=(1, 16, 512, 16))]


@pytest.mark.parametrize("case", COUNTS, ids=lambda case: case.name)
def test_requests_sectors_and_bytes(mod, case):
    launch = counted(mod[case.kernel], case.grid, case.block, *case.arguments())
    for counts, wanted in ((launch.global_load, case.load), (launch.global_store, case.store)):
        if wanted:
            check(counts, *wanted)


def test_dynamic_shared_memory_and_counts_by_line(mod):   # Words 2 t: two lanes a bank.
    launch = counted(mod.dynamic, 1, 32, ramp(32), torch.zeros(32), shared=256)
    check_shared(launch, (1, 2, 1), (1, 2, 1))
    kinds = "global_load", "shared_store", "shared_load", "global_store"
    by_line = {line.line: [getattr(line, kind).requests for kind in kinds] for line in launch.lines}
    (first,), (second,) = (line_of(SOURCE, text) for text in ("s[threadIdx.x * 2] =", "= s[threadIdx.x *"))
    assert (by_line[first], by_line[second]) == ([1, 1, 0, 0], [0, 0, 1, 1])
