"""Why an access of shared memory loses passes: the lanes that meet, and the layout that ends it, counted again."""
import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import counted, data_of, mod, ramp  # noqa: F401

SOURCE = data_of("conflicts.toml")["source"]


def test_a_column_of_a_tile_meets_in_one_bank_and_one_more_element_ends_it(mod):
    (one,) = counted(mod.turn, 1, (32, 32), ramp(32, 32), np.zeros((32, 32), np.float32)).conflicts()
    assert (one.line, one.kind, one.requests, one.wavefronts, one.excess) == (8, "load", 32, 1024, 31 * 32)
    assert one.lanes == {0: [(32 * lane, [lane]) for lane in range(32)]}
    pad, swap = one.remedies
    assert (pad.change, pad.excess, pad.of, pad.counted, pad.same) == ("s[...][TILE + 1]", 0, 992, 0, True)
    assert (swap.change, swap.excess, swap.counted, swap.same) == ("s[row][column ^ row % 32]", 0, 0, True)
    assert "lane 1 at s[32]" in str(one) and "run and counted again: 0, with the same results" in str(one)
    drawn = one.picture()
    assert "pass 32" in drawn.canvas.svg() and "lane 1 at s[32]" in drawn.words and drawn.canvas.width <= 700


def test_a_layout_that_changes_the_results_is_said_to(mod):
    found = counted(mod["flat<32>"], 1, 32, np.zeros(32, np.float32)).conflicts("s")
    assert [one.line for one in found] == [15] and found[0].excess == 2 * 31
    pad = found[0].remedies[0]
    assert pad.change == "s[...][K + 1]" and pad.counted == 31 and not pad.same    # p goes on as if rows had 32
    assert "BUT WITH OTHER RESULTS" in str(pad)


def test_padding_keeps_wide_accesses_aligned(mod):
    vectors, _ = counted(mod.vectors, 1, 32, np.zeros(32, np.float32)).conflicts()
    assert [(r.change, r.excess, r.counted) for r in vectors.remedies] == [
        ("s[...][9]", 0, 0), ("s[row][column ^ row % 8]", 0, 0)]
    (one,) = counted(mod.wide, 1, 32, np.zeros(32, np.float32)).conflicts()
    assert (one.wavefronts, one.excess) == (32, 28)
    pad, swap = one.remedies
    assert (pad.change, pad.excess, pad.counted, pad.same) == ("s[...][36]", 0, 0, True)
    assert (swap.change, swap.excess, swap.counted, swap.same) == ("s[row][column ^ row * 4 % 32]", 0, 0, True)


def test_an_array_without_rows_is_indexed_anew(mod):
    store, load = counted(mod.comb, 1, 32, np.zeros(32, np.float32), shared=256).conflicts()
    assert {store.kind, load.kind} == {"store", "load"} and store.excess == load.excess == 1
    assert [(r.change, r.excess, r.of, r.counted, r.same) for r in load.remedies] == [
        ("s[i + i / 32] with 4 bytes more of the launch", 0, 2, 0, True), ("s[i ^ i / 32 % 32]", 0, 2, 0, True)]
    x, y = ramp(32, 32), np.zeros((32, 32), np.float32)
    (turn,) = counted(mod.turn_flat, 1, (32, 32), x, y, shared=4096).conflicts()
    assert [(r.change, r.of, r.counted, r.same) for r in turn.remedies][:1] == [
        ("s[i + i / 32] with 124 bytes more of the launch", 992, 0, True)]
    numbers = np.arange(0, 64, 2)
    assert len({(i + i // 32) % 32 for i in numbers}) == len({(i ^ i // 32 % 32) % 32 for i in numbers}) == 32


def test_what_cannot_be_asked_is_one_line(mod):
    y = np.zeros(32, np.float32)
    assert str(counted(mod.calm, 1, 32, y).conflicts()) == "no pass is lost to bank conflicts"
    with pytest.raises(ValueError, match="array: calm has the shared arrays s, got 't'"):
        counted(mod.calm, 1, 32, y).conflicts("t")
    with cuda.profile(keep=0) as report:
        mod.comb[1, 32, 256](y)
    with pytest.raises(ValueError, match=r"profile\(keep=256\) has room"):
        report.launches[0].conflicts()
