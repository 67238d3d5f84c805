"""Families that keep one latent vector per token, with or without an indexer."""
from course_lib.field_guide.families.registry import family
from course_lib.field_guide.indexers import TokenIndexing
from course_lib.field_guide.latent import LatentRecipe
from course_lib.field_guide.rotary import yarn_magnitude

NAMES = {"q_a_proj": "q_down", "q_a_layernorm": "q_norm", "q_b_proj": "q_proj", "kv_a_proj_with_mqa": "down",
         "kv_a_layernorm": "latent_norm", "kv_b_proj": "up", "indexer.wq_b": "indexer.q_proj",
         "indexer.wk": "indexer.k_proj"}


def latent(c, layer, layout=None, rope=True, **changes):
    """What all of them share. YaRN's magnitude is taken into the scale."""
    rope_dim, head_dim = c.get("qk_rope_head_dim", 0), c.size("qk_nope_head_dim")
    # follow from the sizes below, or are fixed by the family
    c.used.update(("num_key_value_heads", "head_dim", "qk_head_dim", "rope_interleave",
                   "indexer_rope_interleave"))
    options = c.rope()
    root = (rope_dim + head_dim) ** -0.5
    if options["rope_type"] != "default" and options.get("mscale_all_dim"):
        root *= yarn_magnitude(options["factor"], options["mscale_all_dim"]) ** 2
    layout = layout or ("interleaved" if c.get("rope_interleave", True) else "half")
    facts = dict(
        d_model=c.size("hidden_size"), n_heads=c.size("num_attention_heads"), n_kv_heads=1, head_dim=head_dim,
        v_dim=c.size("v_head_dim"), latent_dim=c.size("kv_lora_rank"), rope_dim=rope_dim, layer=layer,
        q_rank=c.get("q_lora_rank"), scale=root, bias=bool(c.get("attention_bias")),
        rotary=c.rotary(rope_dim, layout=layout, dim=rope_dim) if rope else None)
    facts["out_bias"] = facts["bias"]
    return LatentRecipe(**{**facts, **changes})


def indexing(c, **changes):
    return TokenIndexing(c.size("index_n_heads"), c.size("index_head_dim"), c.size("index_topk"), **changes)


def shared_or_own(c, layer, index):
    """Some layers look where an earlier layer's indexer has looked."""
    if not c.get("indexer_types") or c.per_layer("indexer_types", layer) != "shared":
        return dict(indexer=index)
    own = [i for i in range(layer) if c.per_layer("indexer_types", i) != "shared"]
    if not own:
        raise ValueError(f"config must have an indexer before layer {layer}, which shares one; "
                         f"indexer_types begins with {c['indexer_types'][0]!r}")
    return dict(indexer=index, index_from=own[-1])


@family("deepseek_v3", "deepseek_v2", "kimi_k2", "youtu", "axk1", names=NAMES)
def deepseek_v3(c, layer):
    """A latent of 512 numbers and a rotated key of 64 for 128 heads."""
    return latent(c, layer)


@family("mistral4", names=NAMES)
def mistral4(c, layer):
    """Latent, and queries that grow with the logarithm of the position."""
    options = c.rope()
    return latent(
        c, layer,
        temperature=(options["llama_4_scaling_beta"], options["original_max_position_embeddings"], 0))


@family("deepseek_v32", names=NAMES)
def deepseek_v32(c, layer):
    """A lightning indexer chooses 2,048 tokens; its own keys turn in halves, the layer's by neighbours."""
    return latent(c, layer, layout="interleaved", indexer=indexing(c))


@family("glm_moe_dsa", names=NAMES)
def glm_moe_dsa(c, layer):
    """The same indexer, by neighbours; some layers share what an earlier one has chosen."""
    return latent(
        c, layer, layout="interleaved", **shared_or_own(c, layer, indexing(c, layout="interleaved")))


@family("hy_v4", names=NAMES)
def hy_v4(c, layer):
    """Shared indexer, with sinks and a gate for every feature of the output."""
    index = indexing(c, at="back", eps=c.get("rms_norm_eps", 1e-6))
    return latent(c, layer, layout="half", sinks=True, gate="feature", **shared_or_own(c, layer, index))


@family("mistral_large4_text", "mistral_large4", names=NAMES)
def mistral_large4(c, layer):
    """Layers without positions among rotated ones; latents shared between layers; a learned temperature."""
    rotates, source = c.rotates(layer), c.per_layer("kv_source_layers", layer)
    index = indexing(c, layout="interleaved", own_queries=True, rotates=rotates)
    wide = c["qk_nope_head_dim"] + (0 if rotates else c["qk_rope_head_dim"])
    return latent(
        c, layer, rope=rotates, layout="interleaved", head_dim=wide, q_rank=None, learned_temperature=True,
        latent_eps=c.get("rms_norm_eps", 1e-6), rope_dim=c["qk_rope_head_dim"] if rotates else 0,
        reuses=source if source != layer else None, **shared_or_own(c, layer, index))
