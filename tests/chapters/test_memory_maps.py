"""Chapter 8: what fills memory, batching by hand, pages that requests share, slices in processes."""
import json

import pytest
import torch

from course_lib.gpu.cases.paged_attention import prefixed
from course_lib.gqa import grouped_query_attention
from course_lib.paged_attention import paged_attention_kernel, shared_pages, shared_prefix_kernel
from course_lib.paged_attention.batching import Row, continuous_batches, static_batches
from course_lib.paged_attention.memory_maps import (FREE, LATER, NEVER, RESERVE, USED, contiguous_maps,
                                                    paged_maps, shares)
from course_lib.paged_attention.ring import in_processes
from course_lib.paged_attention.trace import FILE, Arrival, draw_trace, load_trace, trace_command
from references import launches_of, rand


def test_the_committed_trace_is_what_its_command_writes(tmp_path):
    trace_command(["--out", str(tmp_path / "again.json")])
    again = (json.loads((tmp_path / "again.json").read_text())
             | {"command": "python -m course_lib request-trace"})
    assert again == json.loads(FILE.read_text())


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


def test_paged_maps_by_hand():
    maps = paged_maps(requests((3, 3), (5, 2), (4, 4)), 4, 4)
    # 4 slots: one block; 6 slots: two blocks; the third (5) would need two and finds one
    assert maps[0] == [(4, USED), (4, USED), (2, USED), (1, LATER), (1, NEVER), (4, FREE)]
    assert maps[1] == [(4, USED), (4, USED), (3, USED), (1, NEVER), (1, USED), (1, LATER), (2, NEVER)]
    assert len(maps) == 2  # then the second leaves, and two blocks are enough


def test_the_youngest_gives_way_and_everybody_is_served():
    trace = requests((4, 8), (4, 8), (4, 8), (1, 1))
    maps = paged_maps(trace, 4, 4)
    # Two start with 5 slots. At 8 the younger gives way; it resumes at 9 when the first has all its 12.
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


HAND = [Arrival(0, 3, 2), Arrival(0, 5, 4), Arrival(1, 2, 1)]


def test_static_by_hand():
    served = static_batches(HAND, batch=2, token_budget=6)
    # 5 positions for two rows, 3 per step: lengths 3, 5; then 6, 7, 8. The third waits until step 5.
    assert served.rows[:2] == [Row(0, 0, 0, 0, 1, 3, 5), Row(1, 1, 0, 0, 1, 5, 5)]
    assert served.rows[2] == Row(2, 0, 1, 5, 5, 6, 6)
    assert (served.steps, served.slots_read, served.tokens) == (6, 2 * (3 + 5 + 6 + 7 + 8) + 2, 7)
    assert served.latency == (3 + 5 + 5) / 3


def test_continuous_by_hand():
    served = continuous_batches(HAND, max_running=2, token_budget=6, n_blocks=8, block_size=4)
    # step 0 reads 3 + 3; step 1: a token and the last 2, step 2: the third's prompt in the first one's place
    assert (sorted(served.rows) == [Row(0, 0, 0, 0, 0, 2, 2), Row(1, 1, 0, 0, 1, 5, 5),
                                    Row(2, 0, 1, 2, 2, 3, 3)])
    assert (served.steps, served.slots_read, served.tokens) == (5, (3 + 3) + (4 + 5) + (6 + 2) + 7 + 8, 7)


def test_one_request_alone_is_served_alike():
    for request in (Arrival(0, 10, 3), Arrival(7, 1, 1), Arrival(2, 16, 20)):
        static = static_batches([request], 4, 8)
        continuous = continuous_batches([request], 4, 8, n_blocks=10, block_size=4)
        assert static == continuous


@pytest.mark.parametrize("places", [1, 4, 8])
def test_everybody_gets_everything(places):
    trace = draw_trace(40, seed=places)
    for served in (static_batches(trace, places, 64), continuous_batches(trace, places, 64, n_blocks=1024)):
        assert sorted(row.request for row in served.rows) == list(range(40))
        for row in served.rows:
            assert trace[row.request].step == row.arrival <= row.start <= row.first < row.end <= row.held
            assert row.end - row.first == trace[row.request].output
        lanes = {}
        for row in sorted(served.rows, key=lambda row: row.start):
            assert lanes.get(row.lane, 0) <= row.start and row.lane < places
            lanes[row.lane] = row.held


@pytest.mark.parametrize("causal, lengths", [(True, [5, 8]), (False, [9, 4]), *(
    pytest.param(causal, lengths, marks=pytest.mark.slow) for causal in (False, True)
    for lengths in ([13], [1, 11, 1], [2, 3, 5, 3]))])
def test_processes_make_one_attention(causal, lengths):
    seeded = lambda n: torch.Generator().manual_seed(n)
    drawn = lambda h, d: torch.randn(2, h, 13, d, dtype=torch.float64, generator=seeded(h))
    q, k, v = (drawn(heads, d) for heads, d in ((4, 8), (2, 8), (2, 6)))
    torch.testing.assert_close(in_processes(q, k, v, lengths, causal),
                               grouped_query_attention(q, k, v, causal=causal))


@pytest.mark.parametrize("lengths", [[5, 9], [13, 0], [6.5, 6.5]])
def test_the_slices_must_make_the_whole(lengths):
    q = torch.ones(1, 1, 13, 4)
    with pytest.raises(ValueError, match="^lengths must be positive and sum to the 13 tokens"):
        in_processes(q, q, q, lengths)


def test_an_error_in_a_process_is_raised_here():
    q = torch.ones(1, 1, 4, 4)
    with pytest.raises(torch.multiprocessing.ProcessRaisedException):
        in_processes(q, q, torch.ones(1, 1, 3, 4), [2, 2])


def sharing(pages, lengths, heads=4, kv_heads=2, d=16):
    sizes = {"lengths": lengths, "heads": heads, "kv_heads": kv_heads, "d": d, "block_size": 4}
    return prefixed(lambda *size, dtype=None: rand(*size), pages, **sizes)[:4]


def test_the_pages_that_all_begin_with():
    tables = torch.tensor([[3, 1, 4, 1, 5], [3, 1, 4, 2, 5]])
    assert [shared_pages(tables, most) for most in (0, 2, 5)] == [0, 2, 3]
    assert shared_pages(tables[:1], 5) == 5 and shared_pages(torch.tensor([[1, 2], [2, 2]]), 2) == 0


def moved(kernel, given, **named):
    launches = launches_of(lambda: kernel(*given, **named))
    assert len(launches) == 1
    return launches[0].global_load


def test_the_prefix_is_read_once_for_all():
    """Eight requests of 64 shared tokens and 8 of their own, 4 heads on 1: one tile of rows."""
    given = sharing(16, (72,) * 8, heads=4, kv_heads=1, d=32)
    row, once, own = 2 * 32 * 4, 64, 8 * 8
    queries, table = 2 * 8 * 4 * 32 * 4, 4 * (64 + 8 * 8)             # in the prefix's block and in their own
    lengths, merging = 8 * 128 * 4, 8 * 4 * 2 * (32 + 2 * 32) * 4  # each thread of a column reads both sums
    counted = moved(shared_prefix_kernel, given)
    assert counted.bytes == row * (once + own) + queries + table + lengths + merging
    alone = moved(paged_attention_kernel, given)
    assert alone.sectors > 8 * 72 * row // 32 and counted.sectors < alone.sectors / 2


def test_groups_wider_than_a_tile_are_refused():
    given = sharing(1, (9,), heads=34, kv_heads=1, d=8)
    with pytest.raises(ValueError, match="q must have at most 32 heads per key head for this kernel; got 34"):
        shared_prefix_kernel(*given)
    with pytest.raises(ValueError, match="n_splits must be"):
        shared_prefix_kernel(*sharing(1, (9,)), n_splits=0)
