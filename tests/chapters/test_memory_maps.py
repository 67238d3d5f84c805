"""Chapter 8: the trace of requests, and what memory is filled with while it is served."""
import json
import statistics

import pytest

from course_lib.paged_attention.memory_maps import (FREE, LATER, NEVER, RESERVE, USED, contiguous_maps,
                                                    draw_maps, paged_maps, shares)
from course_lib.paged_attention.trace import FILE, Arrival, draw_trace, load_trace, trace_command
from course_lib.paged_attention.batching import continuous_batches


def test_the_committed_trace_is_what_its_command_writes(tmp_path):
    trace_command(["--out", str(tmp_path / "again.json")])
    again = (json.loads((tmp_path / "again.json").read_text())
             | {"command": "python -m course_lib request-trace"})
    assert again == json.loads(FILE.read_text())


def test_lengths_are_like_chat():
    trace = draw_trace(4000, seed=1)
    prompts, outputs = [r.prompt for r in trace], [r.output for r in trace]
    assert 140 < statistics.mean(prompts) < 165 and 300 < statistics.mean(outputs) < 350
    assert statistics.median(prompts) < 0.6 * statistics.mean(prompts)               # a few are very long
    assert all(r.prompt >= 1 and r.output >= 1 and r.prompt + r.output <= 2048 for r in trace)
    assert [r.step for r in trace] == sorted(r.step for r in trace)
    assert statistics.mean(b.step - a.step for a, b in zip(trace, trace[1:])) == pytest.approx(10, abs=0.6)


def test_a_scaled_trace_fits_the_small_model():
    full, small = load_trace(), load_trace(scale=8)
    assert len(full) == 400 and len(load_trace(50)) == 50
    assert all(1 <= s.prompt and 8 * (s.prompt - 1) < f.prompt <= 8 * s.prompt for f, s in zip(full, small))
    assert max(s.prompt + s.output - 1 for s in small) <= 256


def requests(*lengths):
    return [Arrival(0, prompt, output) for prompt, output in lengths]


def test_maps_by_hand():
    # The first sits at 0 to 5, the second at 6 to 9; the third needs 8 in one piece.
    maps = contiguous_maps(requests((3, 3), (2, 2), (4, 4)), 14, "the exact length")
    assert maps[0] == [(4, USED), (2, LATER), (3, USED), (1, LATER), (4, FREE)]
    assert maps[1] == [(5, USED), (1, LATER), (4, USED), (4, FREE)]
    assert len(maps) == 2  # then the second leaves, and 8 slots are free in one piece


def test_free_slots_may_be_too_scattered():
    trace = requests((2, 1), (2, 4), (2, 1), (2, 3), (3, 3))
    maps = contiguous_maps(trace, 20, "the exact length")
    assert maps[0][-1] == (3, FREE) and maps[1].count((3, FREE)) == 3
    # enough for 6, but nowhere in one piece
    assert sum(length for length, kind in maps[1] if kind == FREE) == 9


@pytest.mark.parametrize("reserve", RESERVE)
def test_contiguous_maps_are_whole(reserve):
    trace = draw_trace(60, seed=2)
    maps = contiguous_maps(trace, 4096, reserve)
    for lengths in maps:
        assert sum(length for length, _ in lengths) == 4096 and all(length > 0 for length, _ in lengths)
    kinds = shares(maps)
    assert sum(kinds.values()) == pytest.approx(1)
    assert (kinds[NEVER] == 0) == (reserve == "the exact length")


@pytest.mark.slow
def test_reserving_less_wastes_less():
    trace = draw_trace(100, seed=3)
    used = [shares(contiguous_maps(trace, 8192, reserve))[USED] for reserve in RESERVE]
    used.append(shares(paged_maps(trace, 512, 16))[USED])
    assert used == sorted(used) and used[0] < 0.4 and used[-1] > 0.95


def test_paged_maps_by_hand():
    maps = paged_maps(requests((3, 3), (5, 2), (4, 4)), 4, 4)
    # 4 slots: one block; 6 slots: two blocks; the third (5) would need two and finds one
    assert maps[0] == [(4, USED), (4, USED), (2, USED), (1, LATER), (1, NEVER), (4, FREE)]
    assert maps[1] == [(4, USED), (4, USED), (3, USED), (1, NEVER), (1, USED), (1, LATER), (2, NEVER)]
    assert len(maps) == 2  # then the second leaves, and two blocks are enough


def test_the_youngest_gives_way_and_everybody_is_served():
    trace = requests((4, 8), (4, 8), (4, 8), (1, 1))
    maps = paged_maps(trace, 4, 4)
    # Two start with 5 slots. When they have 8 the younger gives way; it resumes at 9 when the first has all
    # its 12.
    used = [sum(length for length, kind in lengths if kind == USED) for lengths in maps]
    assert used == [10, 12, 14, 16, 9, 10, 11, 12, 9, 10, 11, 12]


def test_a_memory_in_which_a_request_never_fits_is_refused():
    trace = requests((3, 3), (9, 9))
    for argument, call in (("n_slots", lambda: contiguous_maps(trace, 17, "the exact length")),
                           ("n_slots", lambda: contiguous_maps(trace, 1024, "the maximum")),
                           ("n_blocks", lambda: paged_maps(trace, 4, 4)),
                           ("n_blocks", lambda: continuous_batches(trace, 4, 8, n_blocks=4, block_size=4))):
        with pytest.raises(ValueError, match=f"^{argument} must hold the largest request"):
            call()


def test_the_picture_says_what_it_shows(capsys):
    maps = contiguous_maps(requests((3, 3), (2, 2), (4, 4)), 14, "the exact length")
    draw_maps({"exact": maps[0]}, caption="A strip.")
    said = " ".join(capsys.readouterr().out.split())
    assert "A strip." in said
    assert "exact: 50% in use, 21% reserved, used later, 0% reserved, never used, 29% free" in said
