"""Counts against a budget: what is no count is never within one."""
from types import SimpleNamespace

import pytest

from course_lib.exercises.judging.counting import over_counts, used


def told(counts):
    exercise = SimpleNamespace(budget=lambda case: {"sectors": 10, "barriers": 2}, least=None)
    return over_counts(exercise, None, SimpleNamespace(counts=counts))


def test_within_and_above():
    assert told({"sectors": 8, "atomics": 2, "barriers": 2}) is None
    assert told({"sectors": 8, "atomics": 3, "barriers": 2}).startswith("uses 11 sectors where 10 are enough")
    assert used({"barriers": 3, "atomics": 5}, "barriers") == 3


def test_serial_work_and_tiles_that_are_elsewhere_are_named():
    exercise = SimpleNamespace(budget=lambda case: {"longest_thread": 3 * 275, "sectors": 9}, least=lambda case: 4096)

    def told(**counts):
        return over_counts(exercise, None, SimpleNamespace(counts={"sectors": 8, "shared_bytes": 4096} | counts))
    assert told(longest_thread=825) is None
    assert "one thread does 826 steps, the reference's longest does 275" in told(longest_thread=826, sectors=10)
    assert "take 4,095 bytes per block, and that takes 4,096" in told(longest_thread=1, shared_bytes=4095)


@pytest.mark.parametrize("counts",
                         [None, {}, {"sectors": 8}, {"sectors": float("nan"), "barriers": 0},
                          {"sectors": -9, "barriers": 0}, {"sectors": 8, "atomics": -8, "barriers": 0},
                          {"sectors": "8", "barriers": 0}, {"sectors": True, "barriers": 0}])
def test_what_is_no_count_is_not_within(counts):
    assert "was not counted" in told(counts)
