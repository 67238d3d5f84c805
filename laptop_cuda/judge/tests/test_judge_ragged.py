"""Ragged shapes of a judge: what its given tests have in common is kept."""
import numpy as np
from laptop_cuda.judge.ragged import ragged, sizes_of

def changed(given: list[dict]) -> list[dict]:
    found = ragged(given)
    return [{n: v for n, v in sizes_of(values).items() if v != given[source][n]}
            for source, values, _ in found]


def rows(count: int, d: int) -> dict:
    return {"x": np.random.default_rng(0).random((count, d)) + 1, "rows": count, "D": d}


def test_each_size_is_once_less_by_one():
    assert changed([rows(3, 12), rows(5, 24)]) == [{"rows": 4}, {"D": 23}]


def test_a_shape_keeps_the_order_of_sizes_and_what_is_equal_in_all_given_tests():
    def top(n, k):
        return {"x": np.ones(n), "y": np.zeros(k), "n": n, "k": k}
    assert changed([top(9, 2), top(4, 4)]) == [{"n": 8}]              # k = 1 is no size to try
    assert changed([top(3, 2), top(5, 5)]) == [{"k": 4}]
    square = [{"x": np.ones((n, n)), "m": n, "n": n} for n in (4, 7)]
    assert changed(square) == [{"m": 6, "n": 6}]


def test_arrays_follow_from_sizes_by_the_same_term_in_all_given_tests():
    def convolved(n, k):
        return {"x": np.ones(n), "y": np.zeros(n - k + 1), "pixels": np.zeros(3 * n * k), "n": n, "k": k}
    ((_, shorter, _),) = ragged([convolved(5, 3), convolved(8, 2)])
    assert [len(shorter[name]) for name in ("x", "y", "pixels")] == [7, 6, 42]
    unknown = [{"x": np.ones(n), "y": np.zeros(n * n + 5), "n": n} for n in (3, 6)]
    assert changed(unknown) == []


def test_a_shape_leaves_indices_inside_their_array():
    values = {"x": np.array([0, 4, 2, 4, 1, 3, 0]), "counts": np.zeros(5), "n": 7, "bins": 5}
    assert changed([values]) == [{"n": 6}]
    assert changed([values | {"x": values["x"] // 2}]) == [{"n": 6}, {"bins": 4}]


def test_what_belongs_together_is_not_cut():
    half = np.random.default_rng(0).random((3, 4))
    assert changed([{"table": np.hstack([half, half]), "rows": 3, "D": 8}]) == [{"rows": 2}]
    parts = half / half.sum(1, keepdims=True)
    assert changed([{"p": parts, "rows": 3, "D": 4}]) == [{"rows": 2}]


def test_a_note_says_what_the_given_tests_have_in_common():
    notes = {tuple(n for n in ("rows", "D") if v[n] != (7, 12)[n == "D"]): note
             for _, v, note in ragged([rows(5, 6), rows(7, 12)])}
    assert notes["rows",] == ""
    assert notes["D",].startswith("In every given test D is a multiple of 6: if the task promises that")
