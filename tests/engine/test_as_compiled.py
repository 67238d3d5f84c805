"""The machine code's widths joined with the counted addresses: what is merged, kept in registers, and not told."""
from collections import Counter

import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import data_of, ramp, with_disassembler, with_nvcc  # noqa: F401
from laptop_cuda.inside.as_compiled import Access, _Cost, _join
from laptop_cuda.machine import REAL
from laptop_cuda.report import SHARED_LOAD
from test_ncu import EXCESS, PASSES

ONE, LANES = tuple((lane, 0) for lane in range(32)), tuple((lane, 4 * lane) for lane in range(32))
SOURCE = data_of("as_compiled.toml")["source"]


def joined(widths: dict, *warps, in_loop: bool = True):
    """Accesses are (memory, lanes, first byte, interval), of 4 bytes."""
    shapes = [ONE, LANES]
    made = [[Access(interval, memory, shapes.index(lanes), base, 4) for memory, lanes, base, interval in warp]
            for warp in warps]
    return _join(Counter(widths), made, SHARED_LOAD, in_loop, _Cost(REAL, shapes, SHARED_LOAD))


def product(tiles: int) -> list:
    """made += a[row][i] * b[i][column], as a warp runs it in each tile."""
    return [one for tile in range(tiles) for i in range(32)
            for one in ((0, ONE, 4 * i, tile), (1, LANES, 4096 + 128 * i, tile))]


def test_a_row_is_merged_and_a_column_is_not():
    assert joined({4: 2}, product(1)[:2]) == (2, 2, 0)
    # 16 bytes at one address for all lanes take two passes, 8 bytes one
    assert joined({16: 8, 4: 32}, product(3), product(3)) == (6 * (8 + 32), 6 * (2 * 8 + 32), 0)
    assert joined({8: 16, 4: 32}, product(1)) == (48, 48, 0)
    assert joined({16: 7, 4: 32}, product(1)) is None                # no merging gives these


def test_what_a_run_of_the_code_loads_again_is_kept_in_a_register():
    again = [(0, LANES, 128 * (i // 4), 0) for i in range(16)]
    assert joined({4: 4}, again, in_loop=False) == (4, 4, 0)         # 4 of 16: each once
    assert joined({4: 16}, again, in_loop=False) == (16, 16, 0)      # volatile, say
    assert joined({4: 4}, again) is None         # in a loop: 4 of each 4, or each once: not decided
    assert joined({}, again) == (0, 0, 0)


def test_no_repetition_and_the_same_width_is_as_written_however_it_is_unrolled():
    rows = [(1, LANES, 128 * i, 0) for i in range(32)]
    assert joined({4: 5}, rows, rows[:1]) == (33, 33, 0)


@pytest.fixture(scope="module")
def mod():
    return cuda.compile(SOURCE)


@pytest.fixture(scope="module")
def report(mod):
    x, y = ramp(64, 64), np.zeros((64, 64), np.float32)
    with cuda.profile() as counted:
        mod["turn<32>"][(2, 2), (32, 32)](x, y, 64)
        mod.product[(2, 2), (32, 32)](x, x, y, 64)
        mod.tiles[1, 32](x, y)
    return counted


@pytest.mark.slow
def test_tiled_products_as_compiled(mod, report, with_disassembler):
    turn = cuda.inspect(mod["turn<32>"], "sm_80", launch=report.launches[0])
    assert turn["as_compiled"]["shared load"] == (128, 4096, 3968)
    made = cuda.inspect(mod.product, "sm_80", launch=report.launches[1])
    assert report.launches[1].shared_load.wavefronts == 128 * 2 * 64
    assert made["as_compiled"]["shared load"] == (10240, 12288, 0)
    assert "as compiled for sm_80" in str(made) and "12,288 passes" in str(made)
    tiles = cuda.inspect(mod.tiles, "sm_80", launch=report.launches[2])["as_compiled"]["shared load"]
    assert tiles[0] == 32 and report.launches[2].shared_load.requests == 512       # 16 of 16 bytes of each


def test_the_profiler_s_names_have_what_is_compiled(mod, report, with_disassembler):
    made = report.ncu(cuda.inspect(mod.product, "sm_80", launch=report.launches[1]))
    passes, lost = made[PASSES, 1], made[EXCESS, 1]
    assert (passes.value, passes.known, passes.note) == (12800, "as compiled", "for sm_80; 16,896 as written")
    assert (lost.value, lost.known, lost.note) == (0, "exact", "as written, and compiled so for sm_80")
    assert made[PASSES, 0].note == "as written"


def test_without_a_disassembler_or_inputs_there_is_no_column(mod, report, with_nvcc, monkeypatch):
    with cuda.profile(keep=0) as bare:
        mod.product[(1, 1), (32, 32)](ramp(32, 32), ramp(32, 32), np.zeros((32, 32), np.float32), 32)
    assert "as compiled for" not in str(cuda.inspect(mod.product, "sm_80", launch=bare.launches[0]))
    monkeypatch.setattr("laptop_cuda.inside.toolkit.nvdisasm", lambda: None)
    made = cuda.inspect(mod.product, "sm_80", launch=report.launches[1])
    assert "as compiled for" not in str(made) and "as_compiled" not in made
    assert report.ncu(made)[PASSES, 1].note == "as written"
