"""Families in which some layers keep a state: delta rule, Mamba-2, lightning, short convolutions."""
import torch

from course_lib.field_guide.families.full_and_window import QK_NORMS, split_qkv
from course_lib.field_guide.families.latent import NAMES as LATENT_NAMES, latent
from course_lib.field_guide.families.registry import family
from course_lib.field_guide.state import ConvRecipe, StateRecipe

DELTA_NAMES = {
    "conv1d": "conv", "A_log": "rate", "dt_bias": "decay_bias", "in_proj_z": "gate_proj",
    "a_proj": "decay_proj", "in_proj_b": "beta_proj", "in_proj_a": "decay_proj", "b_proj": "beta_proj",
    "g_proj": "gate_proj", "o_norm": "norm"}
KDA_NAMES = {
    "forget_gate.A_log": "rate", "forget_gate.dt_bias": "decay_bias", "forget_gate.f_a_proj": "decay_proj.0",
    "forget_gate.f_b_proj": "decay_proj.1", "f_a_proj": "decay_proj.0", "f_b_proj": "decay_proj.1",
    "g_a_proj": "gate_proj.0", "g_b_proj": "gate_proj.1"}


def delta(c, layer, **changes):
    """The gated delta net, as Qwen3-Next has it."""
    facts = dict(d_model=c.size("hidden_size"), n_heads=c.size("linear_num_value_heads"), layer=layer,
                 n_key_heads=c.size("linear_num_key_heads"), key_dim=c.size("linear_key_head_dim"),
                 value_dim=c.size("linear_value_head_dim"), conv=c.size("linear_conv_kernel_dim"),
                 eps=c.get("rms_norm_eps", 1e-6))
    return StateRecipe(**{**facts, **changes})


def kda(c, layer, **changes):
    """Kimi Delta Attention: a decay for every channel of a key, through a narrow projection."""
    heads, width = c.size("linear_num_heads"), c.size("linear_head_dim")
    return StateRecipe(
        c.size("hidden_size"), heads, heads, width, width, layer, conv=c.size("linear_conv_kernel_dim"),
        decay="channel", decay_rank=width, gate="sigmoid", gate_rank=width, eps=c.get("rms_norm_eps", 1e-6),
        **changes)


def split_interleaved(weights, recipe):
    """Qwen3-Next stores queries, keys, values and gates head by head in one matrix; and the query's gate."""
    if "in_proj_qkvz.weight" in weights:
        r, group = recipe, recipe.n_heads // recipe.n_key_heads
        sizes = [r.key_dim, r.key_dim, group * r.value_dim, group * r.value_dim]
        by_head = weights.pop("in_proj_qkvz.weight").unflatten(0, (r.n_key_heads, -1)).split(sizes, 1)
        weights.update({f"{name}.weight": x.flatten(0, 1)
                        for name, x in zip(("q_proj", "k_proj", "v_proj", "g_proj"), by_head)})
        b, a = weights.pop("in_proj_ba.weight").unflatten(0, (r.n_key_heads, -1)).chunk(2, 1)
        weights["b_proj.weight"], weights["a_proj.weight"] = b.flatten(0, 1), a.flatten(0, 1)
    if "in_proj_qkv.weight" in weights:
        keys = recipe.n_key_heads * recipe.key_dim
        parts = weights.pop("in_proj_qkv.weight").split([keys, keys, recipe.n_heads * recipe.value_dim])
        weights.update({f"{name}_proj.weight": x for name, x in zip("qkv", parts)})
    elif getattr(recipe, "gate", None) == "feature":
        q, gate = weights["q_proj.weight"].unflatten(0, (recipe.n_heads, -1)).chunk(2, 1)
        weights["q_proj.weight"], weights["gate_proj.weight"] = q.flatten(0, 1), gate.flatten(0, 1)
    return weights


@family("qwen3_next", "qwen3_5_text", "qwen3_5", "qwen3_5_moe_text", names=DELTA_NAMES, plus_one=QK_NORMS,
        split=split_interleaved)
def qwen3_next(c, layer):
    """Three layers of gated delta rule, then one of softmax with QK norm, a quarter rotated, and a gate."""
    if c.layer_type(layer) == "linear_attention":
        return delta(c, layer)
    c.used.update(("attn_output_gate", "full_attention_interval"))
    return c.plain(layer, qk_norm="head", gate="feature")


@family("olmo_hybrid", names=DELTA_NAMES)
def olmo_hybrid(c, layer):
    """The delta rule with betas up to 2, then attention normalised over its width; where the base is null,
    without positions."""
    if c.layer_type(layer) == "linear_attention":
        return delta(c, layer, strength=2.0 if c.get("linear_allow_neg_eigval", True) else 1.0, eps=1e-5)
    base = (c.get("rope_parameters") or {}).get("rope_theta", 1e4)
    return c.plain(layer, qk_norm="width", rope=base is not None)


@family("kimi_linear", names={**DELTA_NAMES, **KDA_NAMES, **LATENT_NAMES})
def kimi_linear(c, layer):
    """Three layers of channel-wise delta rule, then latent attention without positions."""
    if c.layer_type(layer) == "linear_attention":
        return kda(c, layer)
    c.used.add("mla_use_nope")
    return latent(c, layer, rope=False)


def split_mamba(weights, recipe):
    """Mamba-2 makes gate, values, keys, queries and steps by one matrix; values, keys, queries convolve."""
    weights = split_qkv(weights, recipe) if not isinstance(recipe, StateRecipe) else weights
    if "in_proj.weight" not in weights or not isinstance(recipe, StateRecipe):
        return weights
    values, keys = recipe.n_heads * recipe.value_dim, recipe.n_key_heads * recipe.key_dim
    for kind in ("weight", "bias"):
        if f"in_proj.{kind}" in weights:
            parts = weights.pop(f"in_proj.{kind}").split([values, values, keys, keys, recipe.n_heads])
            parts = [x * times for x, times in zip(parts, recipe.multipliers)]
            weights.update({f"{name}_proj.{kind}": x for name, x in zip(("g", "v", "k", "q", "a"), parts)})
        if f"conv1d.{kind}" in weights:
            v, k, q = weights[f"conv1d.{kind}"].split([values, keys, keys])
            weights[f"conv1d.{kind}"] = torch.cat([q, k, v])
    return weights


def mamba(c, layer, n_heads, head_dim, state, groups, conv, **changes):
    """Mamba-2, by the names under which a configuration has its sizes."""
    facts = dict(d_model=c.size("hidden_size"), n_heads=c.size(n_heads), n_key_heads=c.size(groups),
                 key_dim=c.size(state), value_dim=head_dim, layer=layer, conv=c.size(conv), conv_bias=True,
                 erases=False, unit_keys=False, steps=True, skip=True, norm="group", gate_first=True)
    return StateRecipe(**{**facts, **changes})


MAMBA_NAMES = {**DELTA_NAMES, "D": "skip"}


@family("nemotron_h", names=MAMBA_NAMES, split=split_mamba)
def nemotron_h(c, layer):
    """Mamba-2 layers, and a few of attention without positions."""
    kind = c.layer_type(layer)
    if kind in ("mamba", "linear_attention"):
        return mamba(
            c, layer, "mamba_num_heads", c["mamba_head_dim"], "ssm_state_size", "n_groups", "conv_kernel",
            bias=bool(c.get("use_bias")), conv_bias=bool(c.get("use_conv_bias", True)),
            eps=c.get("layer_norm_epsilon", 1e-5))
    c.used.update(("rope_theta", "partial_rotary_factor"))      # it has them, and its layers turn nothing
    return c.plain(layer, rope=False) if kind in ("attention", "full_attention") else None


@family("granitemoehybrid", "bamba", names=MAMBA_NAMES, split=split_mamba)
def granite_hybrid(c, layer):
    """Mamba-2 layers, and a few of attention, without positions unless the configuration asks for them."""
    if c.layer_type(layer) in ("mamba", "linear_attention"):
        width = int(c.get("mamba_expand", 2) * c["hidden_size"]) // c["mamba_n_heads"]
        return mamba(c, layer, "mamba_n_heads", width, "mamba_d_state", "mamba_n_groups", "mamba_d_conv",
                     bias=bool(c.get("mamba_proj_bias")), conv_bias=bool(c.get("mamba_conv_bias", True)),
                     eps=c.get("rms_norm_eps", 1e-6))
    rotates = c.model_type == "bamba" or c.get("position_embedding_type") == "rope"
    return c.plain(layer, rope=rotates, scale=c.get("attention_multiplier"))


@family("falcon_h1", names=MAMBA_NAMES, split=split_mamba)
def falcon_h1(c, layer):
    """Attention and Mamba-2 side by side in every layer; keys and Mamba's input have fixed multipliers."""
    width = c.get("mamba_d_ssm") or int(c.get("mamba_expand", 2) * c["hidden_size"])
    every = c.get("ssm_in_multiplier", 1.0)
    gate, values, keys, queries, steps = (every * times for times in c.get("ssm_multipliers", [1.0] * 5))
    state = mamba(
        c, layer, "mamba_n_heads", width // c["mamba_n_heads"], "mamba_d_state", "mamba_n_groups",
        "mamba_d_conv", bias=bool(c.get("mamba_proj_bias")), conv_bias=bool(c.get("mamba_conv_bias", True)),
        norm="group" if c.get("mamba_rms_norm") else None,
        gate_first=not c.get("mamba_norm_before_gate", True), eps=c.get("rms_norm_eps", 1e-5),
        multipliers=(gate, values, keys, queries, steps))
    return c.plain(layer, key_scale=c.get("key_multiplier", 1.0)), state


def split_lightning(weights, recipe):
    """Queries, keys and values of each head side by side."""
    if "qkv_proj.weight" in weights:
        parts = weights.pop("qkv_proj.weight").unflatten(0, (recipe.n_heads, -1)).chunk(3, 1)
        weights.update({f"{name}_proj.weight": x.flatten(0, 1) for name, x in zip("qkv", parts)})
    return {name: x for name, x in weights.items() if not name.endswith(("decay", "slope_rate"))}


@family("minimax", "minimax_text_01", names={"output_gate": "gate_proj"}, split=split_lightning)
def minimax(c, layer):
    """Lightning attention: a sum that each head forgets at a fixed rate; every eighth layer is softmax."""
    if c.layer_type(layer) == "full_attention":
        return c.plain(layer, bias=False, out_bias=False)
    heads = c.heads()
    return StateRecipe(
        heads["d_model"], heads["n_heads"], heads["n_heads"], heads["head_dim"], heads["head_dim"], layer,
        layers=c.layers, erases=False, unit_keys=False, decay="fixed", norm="width", gate="sigmoid")


@family("lfm2", names={"q_layernorm": "q_norm", "k_layernorm": "k_norm"})
def lfm2(c, layer):
    """Gated convolutions over three tokens, and a few layers of attention with QK norm."""
    if c.layer_type(layer) == "conv":
        return ConvRecipe(c.size("hidden_size"), c.size("conv_L_cache"), layer, bool(c.get("conv_bias")))
    return c.plain(layer, qk_norm="head", bias=False, out_bias=False)


@family("lfm3", names={"g_proj": "gate_proj"})
def lfm3(c, layer):
    """Convolutions, windows and full attention; attention has a gate for each head."""
    if c.layer_type(layer) == "conv":
        return ConvRecipe(c.size("hidden_size"), c.size("conv_L_cache"), layer, bool(c.get("conv_bias")))
    return c.plain(layer, qk_norm="head", gate="head" if c.get("use_attention_gate") else None)
