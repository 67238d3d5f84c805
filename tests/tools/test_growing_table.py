"""The table that chapters add a row to."""
import json

import pytest

from course_lib.exercises import CHAPTERS
from course_lib.growing_table import ROWS, growing_table


def test_rows_are_chapters_in_order():
    rows = json.loads(ROWS.read_text())
    assert list(rows) == sorted(rows, key=CHAPTERS.index)
    assert all(set(row) == {"name", "loss", "cache_bytes", "moved_bytes"} for row in rows.values())


def test_it_prints_the_rows_so_far_and_refuses_other_numbers(capsys):
    row = json.loads(ROWS.read_text())["attention"]
    measured = {column: row[column] for column in ("loss", "cache_bytes", "moved_bytes")}
    growing_table("attention", **measured)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and "2,048" in lines[1] and "1.49" in lines[1]
    for column, wrong in (("loss", 1.6), ("cache_bytes", 2047), ("moved_bytes", None)):
        with pytest.raises(ValueError, match=f"^{column} must be"):
            growing_table("attention", **measured | {column: wrong})
    with pytest.raises(ValueError, match="^word must be"):
        growing_table("no chapter")
