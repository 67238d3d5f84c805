"""A configuration whose family is not known, read by the names of its keys alone."""
from course_lib.field_guide.families.latent import indexing, latent
from course_lib.field_guide.families.states import delta, kda
from course_lib.field_guide.state import ConvRecipe

SOFTMAX = ("full_attention", "sliding_attention", "chunked_attention", "attention", "hybrid", "global",
           "indexed_attention")
WINDOWS = ("sliding_window", "sliding_window_size", "attention_window", "window_size")
TURN = ("rope_theta", "rope_parameters", "rope_scaling", "rotary_dim", "partial_rotary_factor",
        "qk_rope_head_dim", "rope_ratio", "original_rope")
# Layers with a window may have sizes of their own, by the same names with swa_ before them.
SIZES = {"n_heads": "num_attention_heads", "n_kv_heads": "num_key_value_heads", "head_dim": "head_dim"}


def positions(c, notes: list) -> str:
    """How positions enter, where no key speaks of a rotation: those with `alibi` as false rotate instead."""
    alibi = c.get("alibi") or c.get("offset_alibi") or c.get("position_embedding_type") == "alibi"
    if alibi or c.model_type == "bloom":                # most of Bloom's files do not say it
        c.used.add("alibi_bias_max")
        return "ALiBi"
    if any(c.values.get(name) for name in TURN) or c.values.get("alibi") is False:
        return ""
    notes.append("No key says how positions enter.")
    return "not said"


def by_keys(c, layer: int, notes: list) -> tuple:
    """The recipes of one layer, as far as names tell; what cannot be told goes to `notes`."""
    kind = c.layer_type(layer)
    if kind in ("linear_attention", "recurrent") and c.get("linear_num_value_heads"):
        return (delta(c, layer),)
    if kind == "linear_attention" and c.get("linear_num_heads"):
        return (kda(c, layer),)
    if kind == "conv" and c.get("conv_L_cache"):
        return (ConvRecipe(c.size("hidden_size"), c.size("conv_L_cache"), layer),)
    if layer in (c.get("cross_attention_layers") or ()):
        notes.append(f"{len(c['cross_attention_layers'])} layers attend to something else than the text: they "
                     "are not counted.")
        return ()
    if c.get("num_attention_heads") is None:
        notes.append("It names no attention heads: its layers are not counted.")
        return ()
    if kind in ("linear_attention", "mamba", "recurrent", "conv"):
        notes.append(f"Layers of the kind {kind!r} are not counted: nothing says how large their state is.")
        return ()
    if c.get("kv_lora_rank"):
        index = indexing(c) if c.get("index_topk") else None
        return (latent(c, layer, indexer=index if c.get("q_lora_rank") else None),)
    window = kind == "sliding_attention" or "sliding" in kind or "local" in kind
    if kind not in SOFTMAX and not window:
        notes.append(f"Layers of the kind {kind!r} are counted as full attention.")
    rotates = c.rotates(layer) if c.get("no_rope_layers") or c.get("no_rope_layer_interval") else True
    reach = (next((c.get(name) for name in WINDOWS if c.get(name)), None) if window else None)
    other = positions(c, notes)
    own = {size: c.get(f"swa_{name}") for size, name in SIZES.items() if window and c.get(f"swa_{name}")}
    return (c.plain(layer, rope=rotates and not other, positions=other, sinks=bool(c.get("attention_sinks")),
                    window=reach, chunk=c.get("attention_chunk_size") if "chunk" in kind else None,
                    qk_norm="head" if c.get("use_qk_norm") or c.get("qk_layernorm") else None,
                    softcap=c.get("attn_logit_softcapping"), **own),)
