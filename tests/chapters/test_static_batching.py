"""Chapter 8: static against continuous batching, by hand and against each other."""
import pytest

from course_lib.paged_attention.trace import Arrival, draw_trace
from course_lib.paged_attention.batching import Row, chart, continuous_batches, static_batches

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


def test_continuous_needs_fewer_steps_and_reads_less():
    trace = draw_trace(60, seed=5)
    static, continuous = static_batches(trace, 8, 512), continuous_batches(trace, 8, 512, n_blocks=1024)
    assert continuous.steps < static.steps / 1.8 and continuous.slots_read < static.slots_read / 2.5
    assert continuous.latency < static.latency / 1.8


def test_short_of_blocks_it_still_serves_everybody():
    trace = draw_trace(12, seed=6)
    served = continuous_batches(trace, 8, 256, n_blocks=130)
    assert len(served.rows) == 12 and served.slots_read > sum(r.output for r in trace)


def test_the_chart_says_what_it_shows(capsys):
    chart({"static": static_batches(HAND, 2, 6)}, caption="Two at a time.")
    said = " ".join(capsys.readouterr().out.split())
    assert "Two at a time." in said and "static: request 0 in steps 0 to 2, place kept until 4" in said
