"""Families whose layers keep keys and values of each head: full attention, windows, and mixes of the two."""
import math
from dataclasses import replace

from course_lib.field_guide.families.registry import family

NORM_NAMES = {
    "q_layernorm": "q_norm", "k_layernorm": "k_norm", "query_layernorm": "q_norm", "key_layernorm": "k_norm"}
QK_NORMS = ("q_norm.weight", "k_norm.weight")


@family("llama", "mistral", "mixtral", "seed_oss", "arcee", "cwm")
def llama(c, layer):
    """Rotary positions, grouped heads. Mistral's first model had a window in every layer."""
    window = c.window() if c.model_type in ("mistral", "mixtral") else None
    out_bias = bool(c.get("attention_out_bias", c.get("attention_bias", False)))
    return c.plain(layer, out_bias=out_bias, **({"window": window} if window else {}))


@family("ministral3")
def ministral3(c, layer):
    """Queries grow with the logarithm of how often the trained length has been passed."""
    options = c.rope()
    every = (options["llama_4_scaling_beta"], options["original_max_position_embeddings"], 0)
    return c.plain(layer, temperature=every, window=c.window())


@family("qwen2")
def qwen2(c, layer):
    """Biases on queries, keys and values."""
    return c.plain(layer, bias=True, out_bias=False)


@family("qwen3", "qwen3_moe", "apertus", "hy_v3", "mellum")
def qwen3(c, layer):
    """Queries and keys normalised head by head before they are rotated."""
    return c.plain(layer, qk_norm="head")


@family("qwen3_vl_text", "qwen3_vl")
def qwen3_vl(c, layer):
    """Positions on three axes, time, height and width, that take turns over the pairs of a head."""
    return c.plain(layer, qk_norm="head")


@family("qwen2_vl_text", "qwen2_vl")
def qwen2_vl(c, layer):
    """Positions on three axes, each with a block of the pairs of a head."""
    return c.plain(layer, bias=True, out_bias=False)


@family("hunyuan_v1_dense", names=NORM_NAMES)
def hunyuan(c, layer):
    """Normalised after the rotation: the norm's factors then no longer turn with the position."""
    return c.plain(layer, qk_norm="head", norm_last=True)


@family("nanochat")
def nanochat(c, layer):
    """Normalised after the rotation, without learned factors; and turned the other way round."""
    rotary = c.rotary(c.heads()["head_dim"])
    backwards = replace(rotary, frequencies=tuple((-rotary.speeds()).tolist()))
    return c.plain(layer, qk_norm="head", norm_last=True, norm_factors=False, rotary=backwards)


@family("gemma2")
def gemma2(c, layer):
    """Scores capped by a tanh; every second layer sees a window; the configuration has the scale."""
    return c.plain(layer, softcap=c.get("attn_logit_softcapping"), scale=c["query_pre_attn_scalar"] ** -0.5)


@family("gemma3_text", "gemma3", plus_one=QK_NORMS)
def gemma3(c, layer):
    """QK norm in the cap's place; five layers of six see a window and turn faster than the sixth."""
    return c.plain(layer, qk_norm="head", scale=c["query_pre_attn_scalar"] ** -0.5)


@family("gemma4_text", "gemma4")
def gemma4(c, layer):
    """No root: normalised queries and keys need no 1 / sqrt(d). Values are normalised too, and in full layers
    may be the keys' own projection; full layers have wider heads; the last layers read the keys and values of
    an earlier one."""
    kinds, full = [c.layer_type(i) for i in range(c.layers)], c.layer_type(layer) == "full_attention"
    names = {"head_dim": "global_head_dim", "n_kv_heads": "num_global_key_value_heads"} if full else {}
    own = c.layers - c.get("num_kv_shared_layers", 0)
    last = max((i for i in range(own) if kinds[i] == kinds[layer]), default=layer)
    return c.plain(
        layer, qk_norm="head", v_norm=True, scale=1.0,
        values_are_keys=bool(c.get("attention_k_eq_v")) and full, reuses=last if layer >= own else None,
        **{size: c[name] for size, name in names.items() if c.get(name)})


@family("gpt_oss")
def gpt_oss(c, layer):
    """A learned sink for each head; every second layer sees a window of 128."""
    return c.plain(layer, sinks=True)


@family("olmo2", "olmo3")
def olmo(c, layer):
    """Queries and keys normalised over all heads at once. OLMo 3 adds windows in three layers of four."""
    return c.plain(layer, qk_norm="width")


@family("minimax_m2")
def minimax_m2(c, layer):
    """Normalised over all heads at once; only a part of each head turns."""
    c.used.update(("use_qk_norm", "qk_norm_type"))
    return c.plain(layer, qk_norm="width", bias=False, out_bias=False, rotary=c.rotary(c["head_dim"]))


@family("smollm3")
def smollm3(c, layer):
    """Every fourth layer has no positions."""
    rotates = c.rotates(layer)
    return c.plain(layer, rope=rotates, window=c.get("sliding_window") if c.get("use_sliding_window")
                   and c.layer_type(layer) == "sliding_attention" else None)


@family("llama4_text", "llama4")
def llama4(c, layer):
    """Three layers of four turn and see their chunk alone; the fourth sees all, has no positions, and grows
    its queries."""
    rotates = c.rotates(layer)
    rotary = c.rotary(c.heads()["head_dim"], layout="interleaved") if rotates else None
    chunked = c.layer_type(layer) == "chunked_attention" if c.get("layer_types") else rotates
    chunk = c.size("attention_chunk_size") if chunked else None
    grows = c.get("attn_temperature_tuning") and not rotates
    return c.plain(
        layer, rotary=rotary, chunk=chunk, qk_norm="head" if c.get("use_qk_norm") and rotates else None,
        norm_last=True, norm_factors=False,
        temperature=(c["attn_scale"], c["floor_scale"], 1) if grows else None)


@family("cohere2")
def cohere2(c, layer):
    """Windowed layers turn, neighbours as pairs; full layers have no positions."""
    window = c.layer_type(layer) == "sliding_attention"
    return c.plain(layer, rotary=c.rotary(c.heads()["head_dim"], layout="interleaved") if window else None)


@family("exaone4", "exaone_moe", "kolibri1")
def exaone4(c, layer):
    """Cohere's mix with QK norm: windowed layers turn, full layers have no positions."""
    window = c.layer_type(layer) == "sliding_attention"
    return c.plain(
        layer, qk_norm="head", rope=window or c.get("sliding_window") is None, bias=False, out_bias=False)


@family("granite")
def granite(c, layer):
    """The scale is a number of the configuration, for transfer from small models to large ones."""
    return c.plain(layer, scale=c["attention_multiplier"])


def own_rotary(c, layer):
    """A base for each layer; 0 is a layer without positions."""
    base = c.per_layer("layer_rope_theta", layer)
    return c.rotary(c.heads()["head_dim"], base=base) if base else None


@family("granite_swa")
def granite_swa(c, layer):
    """Sinks in every layer, windows in most; each layer may turn at a speed of its own, or not at all."""
    return c.plain(layer, scale=c["attention_multiplier"], sinks=True, rotary=own_rotary(c, layer))


def split_qkv(weights, recipe):
    """One matrix for queries, keys and values becomes three."""
    q, kv = recipe.n_heads * recipe.head_dim, recipe.n_kv_heads * recipe.head_dim
    for name in [name for name in weights if name.startswith("qkv_proj.")]:
        parts = weights.pop(name).split([q, kv, kv])
        weights.update({name.replace("qkv", part): x for part, x in zip("qkv", parts)})
    return weights


@family("phi3", split=split_qkv)
def phi3(c, layer):
    """One matrix makes queries, keys and values; a part of each head turns; frequencies by length."""
    return c.plain(layer, window=c.window())


@family("glm4", "glm")
def glm4(c, layer):
    """Half of each head turns, neighbours as pairs."""
    return c.plain(layer, rotary=c.rotary(c.heads()["head_dim"], layout="interleaved"), out_bias=False)


@family("ernie4_5")
def ernie(c, layer):
    """Neighbours as pairs."""
    bias = bool(c.get("use_bias", False))
    return c.plain(
        layer, rotary=c.rotary(c.heads()["head_dim"], layout="interleaved"), bias=bias, out_bias=bias)


@family("mimo_v2_flash", names={"attention_sink_bias": "sinks"})
def mimo(c, layer):
    """Windows with sinks, twice the key heads of a full layer; values are narrower, and scaled. A
    `sliding_window_size` of 128 means that many tokens before the query, which makes a window of 129."""
    window, kv_heads = c.layer_type(layer) == "sliding_attention", c["num_key_value_heads"]
    c.used.update(("swa_num_attention_heads", "swa_head_dim", "swa_v_head_dim"))
    before = c.get("sliding_window_size")
    reach = {"window": before + 1} if window and before else {}
    return c.plain(
        layer, **reach, n_kv_heads=c.get("swa_num_key_value_heads", 2 * kv_heads) if window else kv_heads,
        v_dim=c["v_head_dim"], sinks=window and c.get("add_swa_attention_sink_bias", True),
        value_scale=c.get("attention_value_scale", 1.0), out_bias=False)


@family("afmoe")
def afmoe(c, layer):
    """A gate for every feature of the output; windowed layers turn, full ones have no positions."""
    window = c.layer_type(layer) == "sliding_attention"
    return c.plain(layer, qk_norm="head", gate="feature", rope=window, bias=False, out_bias=False)


@family("laguna", names={"g_proj": "gate_proj"})
def laguna(c, layer):
    """A gate for each head, and one without an upper end: softplus."""
    heads = "num_attention_heads_per_layer"
    per_head = c.get("gating") in (True, "per-head")
    return c.plain(layer, qk_norm="head", gate="head" if per_head else "feature", gate_activation="softplus",
                   n_heads=c.per_layer(heads, layer) if c.get(heads) else c["num_attention_heads"])


@family("muse_glimmer_text", "muse_glimmer")
def muse_glimmer(c, layer):
    """QK norm without learned factors and one number instead, on the queries; gated by feature."""
    return c.plain(layer, qk_norm="head", norm_factors=False, gate="feature", rotary=own_rotary(c, layer),
                   scale=c["qk_scale_factor"] / math.sqrt(c.heads()["head_dim"]))

