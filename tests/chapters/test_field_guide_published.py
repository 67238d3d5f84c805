"""Chapter 11's layers and whole models against the library (course_lib[field_guide]), built here."""
import json

import pytest
import torch

pytest.importorskip("transformers", reason='needs transformers: pip install "course_lib[field_guide]"')
pytestmark = pytest.mark.slow

from course_lib.field_guide import BadCheckpoint, FAMILIES, describe, open_model, recorded      # noqa: E402
from course_lib.field_guide.costs import kept_bytes                                            # noqa: E402
from course_lib.field_guide.recorded import EVERY, padding, WHOLE                              # noqa: E402
from course_lib.field_guide.whole.tiny import FILE, tiny                                       # noqa: E402
from course_lib.studies import whole_models                                                    # noqa: E402
from course_lib.studies.field_guide import (                                                   # noqa: E402
    CONFIGS, compare, published_layers, published_model, record, run_published)


@pytest.mark.parametrize("model_type", CONFIGS)
def test_equal_to_the_published_layer(model_type):
    model = published_model(model_type)
    wrong = [case for case in compare(model_type, model) if not case.difference < 1e-5]
    assert not wrong, wrong[0]


@pytest.mark.parametrize("model_type", CONFIGS)
def test_the_published_layer_is_as_recorded(model_type):
    """Red when a new release of the library changes a layer: the names say which."""
    model, family = published_model(model_type), recorded(model_type)
    theirs = run_published(model, model_type, WHOLE, padding())
    for place, want in family.outputs["padded"].items():
        name, module = published_layers(model)[place]
        gap = ((theirs[place][..., ::EVERY] - want).abs() * padding()[..., None]).max()
        assert gap < 1e-5, f"{type(module).__name__} at {name} differs by {gap:.1e} from {family.library}"


def test_a_family_that_the_library_does_not_have(monkeypatch):
    monkeypatch.setitem(CONFIGS, "swirl", {})
    with pytest.raises(ValueError, match=r"^transformers \S+, which is installed, has no model_type 'swirl'"):
        published_model("swirl")


def test_the_cache_of_a_published_model_is_as_large_as_described():
    """Keys and values of a mix of windows and full layers, in numbers."""
    import transformers
    config = transformers.AutoConfig.for_model("gpt_oss", **CONFIGS["gpt_oss"])
    model = transformers.AutoModel.from_config(config).eval()
    with torch.no_grad():
        cache = model(torch.ones(1, 40, dtype=torch.long), use_cache=True).past_key_values
    numbers = [layer.keys.numel() + layer.values.numel() for layer in cache.layers]
    ours = [recipe.kept(40) for (recipe,) in describe(config).recipes]
    # the library keeps one token less of a window: it counts the next one
    row = 2 * 2 * 8
    assert numbers == [ours[0] - row, ours[1], ours[2] - row]


def test_configurations_nobody_wrote_a_family_for_are_described():
    import transformers
    for model_type in ("stablelm", "olmoe", "zaya", "jamba", "gemma3n_text", "exaone4_5_text"):
        try:
            config = transformers.AutoConfig.for_model(model_type)
        except ValueError:
            continue
        table = describe(config)
        assert table.total(kept_bytes, 8192) > 0 and ("not one of the" in table.notes[0]) != table.known


# Their copies leave a key to the class that the published file has.
SHORTENED = ("deepseek_v2_lite (M)",)


def test_published_files_are_read_as_the_library_rewrites_them():
    """Its classes rename, derive and default keys: what they then write is described like the file itself."""
    import transformers
    apart = {}
    for name, entry in json.loads((FILE.parent / "published.json").read_text())["files"].items():
        config = entry["config"]
        if config.get("model_type") in FAMILIES and name not in SHORTENED:
            try:
                ours = transformers.AutoConfig.for_model(**config).get_text_config().to_dict()
            except (ValueError, KeyError):          # unknown to it, or refused
                continue
            apart[name] = describe(ours).recipes == describe(config).recipes
    assert len(apart) > 20 and [name for name, same in apart.items() if not same] == []


def test_a_recording_can_be_made_again(tmp_path, monkeypatch):
    import course_lib.studies.field_guide as study
    monkeypatch.setattr(study, "CONFIGS", {"qwen3": CONFIGS["qwen3"]})
    record(tmp_path / "recorded.safetensors")
    from safetensors.torch import load_file
    again = load_file(tmp_path / "recorded.safetensors")
    for place, want in recorded("qwen3").outputs["padded"].items():
        torch.testing.assert_close(again[f"qwen3/padded/{place[0]}/{place[1]}"], want, atol=1e-6, rtol=0)


@pytest.mark.parametrize("model_type", tiny())
def test_equal_to_the_published_model(model_type, tmp_path):
    """Logits whole, padded, in chunks and from shards; 64 greedy tokens; in bfloat16."""
    row = whole_models.compare(model_type, tmp_path)
    most = 2e-5 if model_type in whole_models.CHUNKED else 1e-5
    assert {way: row[way] for way in ("logits", "padded", "in chunks", "sharded") if not row[way] < most} == {}
    assert row["tokens"] and row["bfloat16"] < 2 * row["bfloat16, theirs"]


@pytest.mark.parametrize("model_type", tiny())
def test_what_a_file_leaves_to_the_class(model_type, tmp_path):
    """Each key for which the class has a value of its own, left out: the library and we take the same."""
    named = whole_models.unsaid(model_type)
    assert named == json.loads((FILE.parent / "unsaid.json").read_text()).get(model_type, {})
    apart = {}
    for name in named:
        family = tiny(model_type)
        inner = family.config.get("rope_parameters") or {}
        if family.config.pop(name, inner.pop(name, None)) is None:
            continue
        folder = family.write(tmp_path / name)
        try:
            theirs = whole_models.their_logits(whole_models.published(folder), family.texts)
            apart[name] = whole_models.gap(open_model(folder).logits(family.texts), theirs)
        except (RuntimeError, BadCheckpoint):       # the class's value does not fit a model as small as this
            continue
    assert {name: one for name, one in apart.items() if not one < 2e-5} == {}


def test_the_recording_is_of_what_the_library_writes(tmp_path):
    row, kept = whole_models.compare("qwen3", tmp_path, draws=1), tiny("qwen3")
    assert row["kept"]["shapes"] == kept.shapes and row["kept"]["config"] == kept.config
    assert (row["kept"]["tokens"] == kept.tokens).all()
