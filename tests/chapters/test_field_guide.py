"""Chapter 11 against what the published layers gave (recorded), the chapters before it, and bad input."""
import json
import re
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from course_lib.field_guide import (FAMILIES, IDEAS, Cache, Recipe, Rotary, describe, layer_recipes, recorded,
                                    run_layers)
from course_lib.field_guide.costs import LENGTHS, kept_bytes
from course_lib.field_guide.families.registry import Family
from course_lib.field_guide.ideas import BRANCHES
from course_lib.field_guide.recorded import BATCH, EVERY, FILE, LENGTH, STEPS, WHOLE, padding, three_axes
from course_lib.field_guide.show import in_lanes, in_years, published_models, way_is_free

NAMES = recorded()
QWEN3 = dict(model_type="qwen3", hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=8, rms_norm_eps=1e-6, rope_theta=1e4)


def test_at_least_35_families_are_recorded_in_a_small_file():
    assert len(NAMES) >= 35 and set(NAMES) <= set(FAMILIES) and FILE.stat().st_size < 500_000


@pytest.mark.parametrize("model_type", NAMES)
def test_equal_to_the_recorded_outputs(model_type):
    family = recorded(model_type)
    layers = family.layers()
    for way, positions, present in (("padded", None, padding()), ("three axes", three_axes(), None)):
        for place, want in family.outputs.get(way, {}).items():
            for pieces in (WHOLE, STEPS):
                got = run_layers(layers, model_type, pieces, present, positions)[place][..., ::EVERY]
                gap = (got - want).abs()
                gap = gap if present is None else gap * present[..., None]
                assert gap.max() < 1e-5, f"{place}, {way}, {len(pieces)} pieces: {gap.max():.1e}"


@pytest.mark.parametrize("model_type", NAMES)
def test_a_recipe_counts_what_the_cache_holds(model_type):
    layers = recorded(model_type).layers()
    for end in (1, 4, 8, 9, LENGTH):
        caches = {place: Cache() for place in layers}
        pieces = [(0, end // 2), (end // 2, end)] if end > 1 else [(0, 1)]
        run_layers(layers, model_type, pieces, caches=caches)
        for place, layer in layers.items():
            assert caches[place].numbers == BATCH * layer.recipe.kept(end), (place, end)
            assert caches[place].length == end


def counted_step(layers, tokens):
    """What torch counts in products and convolutions while each layer reads the last of so many tokens. A window is
    cut to what the last token sees: the layer would also score the key that leaves, and hide it."""
    caches, shared, counts = {place: Cache() for place in layers}, {}, {}
    with torch.no_grad():
        for place, layer in layers.items():
            cache, reach = caches[place], getattr(layer.recipe, "reach", None)
            layer(torch.randn(1, tokens - 1, layer.recipe.d_model), cache=cache, shared=shared)
            cache.trim(reach and reach - 1, *{"k", "v"} & set(cache.rows))
        for place, layer in layers.items():
            with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):     # else none
                layer(torch.randn(1, 1, layer.recipe.d_model), cache=caches[place], shared=shared)
            counts[place] = counter.get_total_flops()
    return counts


def seeing_all(recipe):
    """Our layers score every key and hide those that the indexer leaves out."""
    if getattr(recipe, "index", None):
        return replace(recipe, index=(*recipe.index[:2], 10**9))
    if getattr(recipe, "indexer", None):
        limit = "top_blocks" if hasattr(recipe.indexer, "top_blocks") else "top_k"
        return replace(recipe, indexer=replace(recipe.indexer, **{limit: 10**9}))
    return recipe


@pytest.mark.slow
@pytest.mark.parametrize("model_type", NAMES)
def test_flops_are_what_torch_counts(model_type):
    """Between two lengths everything that does not depend on the length drops out: the projections."""
    layers = recorded(model_type).layers()
    short, long = counted_step(layers, 24), counted_step(layers, 48)
    for place, layer in layers.items():
        recipe = seeing_all(layer.recipe)
        assert long[place] - short[place] == recipe.flops(48) - recipe.flops(24), place
        if type(recipe) is Recipe and not recipe.values_are_keys and not recipe.indexer:
            projections = sum(2 * m.weight.numel() for m in layer.modules() if isinstance(m, torch.nn.Linear))
            assert long[place] - projections == recipe.flops(48), place


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["kimi_linear", "qwen3_next", "lfm3"])
def test_flops_of_a_state_are_what_torch_counts_and_its_update(model_type):
    """Decay, outer product and sum are no products of matrices: 3 for each number of the state."""
    layers = recorded(model_type).layers()
    for place, count in counted_step(layers, 3).items():
        layer, recipe = layers[place], layers[place].recipe
        if not isinstance(recipe, Recipe):
            projections = sum(2 * m.weight.numel() for m in layer.modules() if isinstance(m, torch.nn.Linear))
            update = (3 * recipe.n_heads * recipe.key_dim * recipe.value_dim if hasattr(recipe, "key_dim")
                      else 0)
            assert recipe.flops(3) == count - projections + update


def test_recordings_are_not_all_alike():
    """The comparison would notice a layer in another's place."""
    family = recorded("gemma3_text")
    layers = family.layers()
    window, full = layers[0, 0], layers[1, 0]
    full.recipe = window.recipe
    got = run_layers(layers, "gemma3_text", WHOLE, padding())[1, 0][..., ::EVERY]
    assert (got - family.outputs["padded"][1, 0]).abs().max() > 1e-3


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_a_family_is_a_difference_of_about_ten_lines(model_type):
    assert (isinstance(FAMILIES[model_type], Family) and FAMILIES[model_type].lines <= 12
            and FAMILIES[model_type].about)


def test_a_row_with_nothing_to_attend_to_gives_zero():
    layer = Recipe(8, 2, 1, 4).build()
    present = torch.tensor([[False, True, True]])
    assert (layer(torch.randn(1, 3, 8), present=present)[0, 0] == 0).all()


def test_gradients_reach_every_weight():
    for model_type in ("gpt_oss", "deepseek_v3", "qwen3_next", "gemma2", "nemotron_h"):
        for place, layer in recorded(model_type).layers().items():
            x = torch.randn(2, 6, layer.recipe.d_model)
            layer(x).square().sum().backward()
            assert all(weight.grad is not None and weight.grad.isfinite().all()
                       for weight in layer.parameters()), place


def test_describe_counts_a_mix_by_hand():
    config = dict(QWEN3, model_type="gpt_oss", num_hidden_layers=4, sliding_window=128,
                  layer_types=["sliding_attention", "full_attention"] * 2)
    table = describe(config)
    assert [row["layers"] for row in table.rows] == [2, 2] and table.known
    # layers, tokens, k and v, heads, width, bytes
    assert table.total(kept_bytes, 8192) == 2 * (128 + 8192) * 2 * 2 * 8 * 2
    assert sum(row["per token"] for row in table.rows) == 2 * 2 * 2 * 8 * 2
    # layers, products, FLOPs of one, heads, width
    assert table.rows[0]["flops"] == {name: 2 * 2 * 2 * 4 * 8 * 128 for name in LENGTHS}
    assert table.rows[1]["flops"] == {name: 2 * 2 * 2 * 4 * 8 * n for name, n in LENGTHS.items()}
    head, (*_, all_layers) = table.table().head, table.table().rows
    assert ([all_layers[head.index(f"FLOPs at {name}")] for name in LENGTHS]
            == ["2.13 MFLOP", "33.6 MFLOP", "268 MFLOP"])
    assert "sink" in table.ideas and "window" in table.ideas


def test_describe_says_what_it_could_not_place():
    table = describe(dict(QWEN3, attention_swirl=3))
    assert (table.unplaced == ["attention_swirl"] and "attention_swirl" in str(table)
            and "attention_swirl" in table._repr_html_())


def test_describe_reads_an_unknown_family_by_its_keys():
    config = dict(QWEN3, model_type="never_heard_of", layer_types=["sliding_attention", "ring_attention"],
                  sliding_window=16, attn_logit_softcapping=30.0)
    table = describe(config)
    assert (not table.known and "never_heard_of" in table.notes[0]
            and any("ring_attention" in note for note in table.notes))
    assert table.total(kept_bytes, 100) == (16 + 100) * 2 * 2 * 8 * 2 and "softcap" in table.ideas


def test_describe_takes_a_file_and_the_text_part_of_several(tmp_path):
    path = tmp_path / "config.json"
    text = dict(QWEN3, model_type="gemma3_text", query_pre_attn_scalar=8, sliding_window=4,
                layer_types=["sliding_attention", "full_attention"])
    path.write_text(json.dumps({"model_type": "gemma3", "vision_config": {}, "text_config": text}))
    assert describe(path).model_type == "gemma3_text"


def test_deepseek_v4_keeps_a_tenth_of_v32():
    """The headline of its report, at one million tokens: from sizes alone."""
    v4 = describe(recorded("deepseek_v4").config | dict(
        hidden_size=7168, num_hidden_layers=61, num_attention_heads=128, head_dim=512, sliding_window=128,
        q_lora_rank=1536, o_groups=16, o_lora_rank=1024, index_n_heads=64, index_head_dim=128,
        index_topk=1024, compress_rates=dict(compressed_sparse_attention=4, heavily_compressed_attention=128),
        layer_types=["heavily_compressed_attention"] * 31 + ["compressed_sparse_attention"] * 30))
    v32 = describe(recorded("deepseek_v32").config | dict(
        hidden_size=7168, num_hidden_layers=61, num_attention_heads=128, kv_lora_rank=512,
        qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, q_lora_rank=1536, index_n_heads=64,
        index_head_dim=128, index_topk=2048))
    share = v4.total(kept_bytes, 2**20) / v32.total(kept_bytes, 2**20)
    assert 0.05 < share < 0.15


def test_every_idea_is_used_by_a_recorded_family():
    used = {idea for model_type in NAMES for idea in describe(recorded(model_type).config).ideas}
    assert {idea.name for idea in IDEAS} - used == set()


def test_no_line_of_the_tree_runs_through_a_dot_and_no_idea_is_younger_than_its_first_model():
    for branch in BRANCHES:
        spots = {idea.name: (in_years(idea.date), lane)
                 for idea, lane in in_lanes([idea for idea in IDEAS if idea.branch == branch])}
        for idea in IDEAS:
            if idea.name in spots:
                assert way_is_free(spots, idea.grew_from, *spots[idea.name]), idea.name
    for entry in published_models().values():
        for name in describe(entry["config"]).ideas:
            assert next(idea.date for idea in IDEAS if idea.name == name) <= entry["date"], (name, entry["name"])


@pytest.mark.parametrize("change, said", [
    (dict(num_key_value_heads=3), "num_attention_heads that num_key_value_heads divides; got 4 and 3"),
    (dict(num_attention_heads=0), "a positive integer as num_attention_heads; got 0"),
    (dict(hidden_size="32"), "a positive integer as hidden_size; got '32'"),
    (dict(num_hidden_layers=None), "config must have num_hidden_layers"),
    (dict(layer_types=["full_attention"]), "one entry for each of its 2 layers in layer_types; got 1"),
    (dict(head_dim=None, hidden_size=30), "a hidden_size that num_attention_heads divides; got 30 and 4"),
    (dict(rope_parameters={"rope_type": "spiral"}), "rope_type 'spiral' is not one the field guide knows")])
def test_a_wrong_configuration_is_one_line(change, said):
    with pytest.raises(ValueError, match=None) as error:
        describe(dict(QWEN3, **change))
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("config", [None, 3, [], "no such file"])
def test_what_is_no_configuration_is_refused(config):
    with pytest.raises((ValueError, FileNotFoundError)):
        describe(config)


def test_an_unknown_family_names_those_that_are_known():
    with pytest.raises(ValueError, match="'swirl' is not one the field guide knows: afmoe, apertus"):
        layer_recipes(dict(QWEN3, model_type="swirl"), 0)
    with pytest.raises(ValueError, match="layer must be in 0 to 1; got 2"):
        layer_recipes(QWEN3, 2)
    with pytest.raises(ValueError, match="'swirl' has not been recorded"):
        recorded("swirl")


def test_weights_of_another_family_do_not_fit():
    from course_lib.field_guide import copy_weights
    layer = layer_recipes(QWEN3, 0)[0].build()
    weights = {name: x for name, x in layer.state_dict().items() if "norm" not in name}
    with pytest.raises(ValueError, match="qwen3, layer 0: no published weight for k_norm.weight.*place for "
                       "none"):
        copy_weights(layer, weights, "qwen3")


def test_a_layer_that_reuses_another_asks_for_it():
    layer = Recipe(8, 2, 1, 4, layer=1, reuses=0).build()
    with pytest.raises(ValueError, match="shared must hold the keys and values of layer 0"):
        layer(torch.randn(1, 3, 8))


def test_older_names_are_read_and_an_encoder_is_mentioned():
    old = describe({"model_type": "older", "n_layer": 3, "n_head": 4, "n_embd": 32, "n_positions": 64})
    assert (old.rows[0]["layers"], old.rows[0]["kind"]) == (3, "full, 4 of 4 heads of 8")
    both = describe({"model_type": "both", "is_encoder_decoder": True, "encoder_layers": 9,
                     "decoder_layers": 2, "decoder_attention_heads": 2, "d_model": 16})
    assert both.rows[0]["layers"] == 2 and "encoder_layers" in both.unplaced
    assert any("encoder and a decoder" in note for note in both.notes)


def test_kinds_and_sizes_of_families_that_nobody_wrote():
    """As configurations outside the list have them: Zamba 2, Inkling, Jamba, Falcon, Mamba."""
    sizes = {"num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 4}
    mixed = describe({**sizes, "attention_head_dim": 16, "mamba_d_state": 8,
                      "layers_block_type": ["linear_attention"] * 3 + ["hybrid"]})
    assert [(row["layers"], row["kind"]) for row in mixed.rows] == [(1, "full, 4 of 4 heads of 16")]
    assert any("'linear_attention' are not counted" in note for note in mixed.notes)
    assert any(note.endswith("of which nothing is counted: mamba_d_state.") for note in mixed.notes)
    own = describe({**sizes, "num_key_value_heads": 1, "swa_num_key_value_heads": 2, "sliding_window_size": 6,
                    "layer_types": ["hybrid_sliding", "hybrid"] * 2})
    assert [row["kind"] for row in own.rows] == ["window of 6, 2 of 4 heads of 8", "full, 1 of 4 heads of 8"]
    periodic = describe({**sizes, "attn_layer_period": 4, "attn_layer_offset": 2})
    assert [row["layers"] for row in periodic.rows] == [1]
    assert describe({**sizes, "multi_query": True}).rows[0]["kind"] == "full, 1 of 4 heads of 8"
    stateful = describe({"num_hidden_layers": 2, "hidden_size": 8, "state_size": 4})
    assert stateful.rows == [] and "names no attention heads" in " ".join(stateful.notes)


COPIES = json.loads((FILE.parent / "published.json").read_text())["files"]


@pytest.mark.parametrize("name", COPIES)
def test_published_files_are_read_as_they_are(name):
    about, told, found = describe(COPIES[name]["config"]), COPIES[name], Counter()
    for row in about.rows:
        found[row["kind"]] += row["layers"]
    assert found == told["kinds"] and about.unplaced == told["unplaced"]
    if "gib" in told:
        assert about.total(kept_bytes, 131072) / 2**30 == pytest.approx(told["gib"], rel=0.01)


def test_how_published_files_turn():
    def recipes(name, key="window"):
        return {getattr(r, key): r for layer in describe(COPIES[name]["config"]).recipes for r in layer}

    def ideas(name):
        return describe(COPIES[name]["config"]).ideas

    for window, base, slower in ((1024, 1e4, 1), (None, 1e6, 8)):
        rotary = recipes("gemma-3-27b-it (copy)")[window].rotary
        torch.testing.assert_close(rotary.speeds() * slower, Rotary(128, base).speeds())
    mimo = recipes("MiMo-V2-Flash (A)")
    assert (mimo[129].rotary.base, mimo[None].rotary.base, mimo[129].rotary.dim) == (1e4, 5e6, 64)
    assert mimo[129].sinks and not mimo[None].sinks     # 128 tokens before the query, and its own
    flash = {ratio: r.rotary for ratio, r in recipes("DeepSeek-V4-Flash (A)", "ratio").items()}
    assert (flash[None].base, flash[None].frequencies) == (1e4, None)
    assert (flash[4].base, flash[4].magnitude) == (16e4, 1)
    assert flash[4].dim == flash[None].dim == 64 and flash[4].frequencies is not None
    minimax = [name for name in COPIES if name.startswith("MiniMax")]
    assert len(minimax) >= 2 and all("part of a head turns" in ideas(name) for name in minimax)
    alone = dict(COPIES["MiniMax-M3 (A)"]["config"], model_type="minimax_m3_vl_text", partial_rotary_factor=None)
    assert alone["rotary_dim"] and "part of a head turns" not in describe(alone).ideas     # as the class has it
    assert all("no positions" not in ideas(name) for name in ("bloom-560m (copy)", "gpt2 (M)"))
    assert "No key says how positions enter." in describe(COPIES["gpt2 (M)"]["config"]).notes


@pytest.mark.parametrize("key", [{"num_sink_tokens": 4}, {"attention_chunk_size": 8192}, {"kv_residual": 2},
                                 {"qk_scale_factor": 3.0}, {"window_block_size": 64}])
def test_a_key_that_may_concern_attention_is_not_set_aside(key):
    assert describe(dict(QWEN3, model_type="llama", **key)).unplaced == [*key]


def test_layers_of_their_own_sizes_are_found_by_padded_numbers():
    own = {"05": {"head_dim": 64}, "11": {"head_dim": 64}}
    about = describe(dict(QWEN3, num_hidden_layers=12, per_layer_config=own))
    assert [layer for layer, (recipe,) in enumerate(about.recipes) if recipe.head_dim == 64] == [5, 11]


def test_what_is_set_aside_is_printed_and_what_is_not_in_the_file():
    about = describe(COPIES["gemma-3-27b-it (copy)"]["config"] | dict(vocab_size=7, eos_token_id=1))
    assert about.remarks() == [
        "Not in the file, so taken from the library's class: layer_types, rope_theta, rope_local_base_freq.",
        "Set aside, by their names: eos_token_id, vocab_size.",
        "Every other key was placed."]


def test_every_model_says_where_its_fields_were_seen():
    seen = [entry["values"]["seen"] for entry in published_models().values()]
    assert set(seen) == {"copy", "quoted", "paper", "library"} and seen.count("library") == 2
    for entry in published_models().values():
        assert entry["values"]["where"] and re.fullmatch(r"2026-\d\d-\d\d", entry["values"]["on"]), entry["name"]
        about = describe(entry["config"])
        assert about.known and not about.unplaced, (entry["name"], about.unplaced)


@pytest.mark.parametrize("entry", [e for e in published_models().values() if "layers" in e],
                         ids=lambda entry: entry["name"])
def test_layers_by_kind_and_heads_are_those_of_the_configuration(entry):
    found, first = {}, None
    for (recipe,) in describe(entry["config"]).recipes:
        if not isinstance(recipe, Recipe):
            key = ("linear", recipe.n_heads, recipe.key_dim, recipe.value_dim)
        elif hasattr(recipe, "latent_dim"):
            key, first = ("latent", recipe.latent_dim, recipe.rope_dim), recipe
        else:
            key, first = (("window", recipe.window) if recipe.window else ("full",)), recipe
        found[key] = found.get(key, 0) + 1
    told = {(kind["kind"], *(kind[name] for name in kind if name not in ("kind", "count"))): kind["count"]
            for kind in entry["layers"]}
    assert found == told and first.n_heads == entry["n_heads"] and first.head_dim == entry["head_dim"]
    assert first.n_kv_heads == entry["n_kv_heads"] or hasattr(first, "latent_dim")


def test_which_models_stretch_and_which_turn_a_part_of_a_head():
    uses = {name: describe(entry["config"]).ideas for name, entry in published_models().items()}
    stretched = {name for name, ideas in uses.items() if "stretched positions" in ideas}
    assert stretched >= {"DeepSeek-V2", "DeepSeek-V3", "DeepSeek-V3.2", "DeepSeek-V4 Pro", "DeepSeek-V4 Flash",
                         "Kimi K2", "Gemma 3 27B", "Olmo 3 7B", "Llama 4 Scout"}
    assert all("part of a head turns" in uses[name] for name in ("MiniMax-M2", "MiniMax-01"))
