"""The table that chapters add a row to."""
import json

import pytest

from course_lib.datasets import DATA
from course_lib.exercises import CHAPTERS
from course_lib.growing_table import LENGTHS, ROWS, UNTUNED, growing_table


def rows():
    return json.loads(ROWS.read_text())


def study(name):
    """{row: (mean loss after tuning)} of data/<name>_study.json, and its loss of the untouched model."""
    found = json.loads((DATA / f"{name}_study.json").read_text())["rows"]
    means = {key: sum(row["loss_after"]) / len(row["loss_after"]) for key, row in found.items()}
    return means, next(iter(found.values()))["loss_before"]


def test_rows_are_chapters_in_order_with_a_number_in_each_column():
    assert list(rows()) == sorted(rows(), key=CHAPTERS.index)
    for row in rows().values():
        assert set(row) == {"name", "loss", "control", "cache", "unique"}
        assert len(row["cache"]) == len(LENGTHS) and all(size > 0 for size in row["cache"])


@pytest.mark.parametrize("name", ["attention", "linear", "w2"])
def test_every_study_measured_the_same_untouched_model(name):
    assert study(name)[1] == UNTUNED


@pytest.mark.parametrize("word, name, mechanism, control",
                         [("attention", "attention", "without positions", "with positions"),
                          ("linear_attention", "linear", "elu + 1", "softmax"),
                          ("w2_attention", "w2", "gaussians", "softmax")])
def test_tuned_rows_are_the_means_of_their_studies(word, name, mechanism, control):
    means, _ = study(name)
    assert abs(rows()[word]["loss"] - means[mechanism]) < 1e-3
    assert abs(rows()[word]["control"] - means[control]) < 1e-3


def test_one_rule_for_caches_that_grow_roll_or_stay():
    """Two bytes for each number that 4 layers of 4 heads of width 32 keep, four for those of a state."""
    heads = 2 * 4 * 4
    kept = {"attention": lambda n: n * 64, "gqa": lambda n: n * 16, "linear_attention": lambda n: 2 * 32 * 33,
            "sparse_attention": lambda n: min(n, 33) * 64, "w2_attention": lambda n: n * 98}
    for word, numbers in kept.items():
        assert rows()[word]["cache"] == [heads * numbers(n) for n in LENGTHS]


def test_it_prints_the_rows_so_far_and_refuses_other_numbers(capsys):
    row = rows()["gqa"]
    measured = {"loss": row["loss"], "control": row["control"], "cache": lambda n: 512 * n,
                "unique": row["unique"]}
    growing_table("gqa", **measured)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and lines[3].split()[-5:] == ["1.81", "1.48", "128", "65,536", "40,960"]
    for column, wrong in (("loss", 1.6), ("control", 1.5), ("cache", lambda n: 512), ("unique", None)):
        with pytest.raises(ValueError, match=f"^{column} must be"):
            growing_table("gqa", **measured | {column: wrong})
    with pytest.raises(ValueError, match="^word must be"):
        growing_table("no chapter", **measured)
