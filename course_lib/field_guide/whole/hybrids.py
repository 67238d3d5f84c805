"""Families in which some layers keep a state."""
from dataclasses import replace

from course_lib.field_guide.whole.families import AFTER_ATTENTION, dense, experts, granite, mixed, whole
from course_lib.field_guide.whole.mixtures import corrected


@whole("olmo_hybrid")
def olmo_hybrid(c):
    """Before each part where a layer has a state, after it where it has attention."""
    def layer(number):
        if c.layer_type(number) == "linear_attention":
            return {}
        return dict(order="after", names={**AFTER_ATTENTION, "feedforward_layer_norm": "attention_out_norm"})
    return dict(layer=layer)


@whole("granitemoehybrid")
def granite_hybrid(c):
    """Granite's multipliers; a dense layer for every token, beside experts where there are any."""
    def feed_forward(layer):
        wide = c["shared_intermediate_size"]
        return (experts(c, scores="chosen", shared=wide, normalised=False) if c.get("num_local_experts")
                else dense(c, wide))
    return dict(granite(c), feed_forward=feed_forward,
                names={} if c.get("num_local_experts") else {"shared_mlp": "feed_forward"})


@whole("qwen3_next", "qwen3_5_text", "qwen3_5", "qwen3_5_moe_text")
def qwen3_next(c):
    """Norms stored minus one; one more expert for every token, behind a gate."""
    def with_shared(c):
        return experts(c, shared=c.size("shared_expert_intermediate_size"), shared_gate=True)
    makes = {"qwen3_next": mixed(c, with_shared), "qwen3_5_moe_text": lambda layer: with_shared(c)}
    return dict(plus_one=True, feed_forward=makes.get(c.model_type, lambda layer: dense(c)))


@whole("minimax")
def minimax(c):
    """What is kept is the normalised input; both branches are scaled, by the kind of layer."""
    def layer(number):
        kind = "linear" if c.layer_type(number) == "linear_attention" else "full"
        names = (f"{kind}_attn_alpha_factor", f"{kind}_attn_beta_factor", "mlp_alpha_factor",
                 "mlp_beta_factor")
        return dict(residual=tuple(c.get(name, 1.0) for name in names), residual_normed=True)
    return dict(layer=layer, feed_forward=lambda layer: experts(c, c["intermediate_size"], normalised=True))


@whole("nemotron_h")
def nemotron_h(c):
    """A layer is one part alone: a state, attention, a feed-forward layer or experts, without gates."""
    plain = dict(activation=c.get("mlp_hidden_act", "relu2"), gated=False)

    def feed_forward(layer):
        kind = c.layer_type(layer)
        if kind in ("moe", "sparse"):
            latent = c.get("moe_latent_size")
            made = corrected(c, shared=c["moe_shared_expert_intermediate_size"], latent=latent, expert=plain)
            return made if not latent else replace(made, expert=replace(made.expert, d_model=latent))
        return dense(c, **plain) if kind in ("mlp", "dense") else None

    def layer(number):
        part = bool(feed_forward(number))
        names = {"norm": "feed_forward_norm", "mixer": "feed_forward"} if part else {"norm": "attention_norm"}
        return dict(order="feed forward" if part else "mixer", names=names)
    return dict(feed_forward=feed_forward, layer=layer, eps=c.get("layer_norm_epsilon", 1e-5))


@whole("falcon_h1")
def falcon_h1(c):
    """Attention and state side by side, each with fixed multipliers on its way in and out."""
    gate, out = c.get("mlp_multipliers", (1.0, 1.0))
    scales = dict(in_scales=(c.get("attention_in_multiplier", 1.0), 1.0),
                  out_scales=(c.get("attention_out_multiplier", 1.0), c.get("ssm_out_multiplier", 1.0)))
    return dict(embedding_scale=c.get("embedding_multiplier", 1.0),
                logit_scale=c.get("lm_head_multiplier", 1.0),
                feed_forward=lambda layer: dense(c, scales=(gate, out)), layer=lambda layer: scales)


@whole("lfm2")
def lfm2(c):
    """The width of a feed-forward layer is two thirds of what is said, rounded up."""
    width = c.get("block_ff_dim") or c["intermediate_size"]
    if c.get("block_auto_adjust_ff_dim", True):
        width = int(c.get("block_ffn_dim_multiplier", 1.0) * int(2 * width / 3))
        several = c.get("block_multiple_of", 256)
        width = several * ((width + several - 1) // several)
    return dict(feed_forward=lambda layer: dense(c, width, activation="silu"), eps=c.get("norm_eps", 1e-5))


@whole("lfm3")
def lfm3(c):
    """Norms before and after, if it says so."""
    return dict(order="both" if c.get("use_sandwich_norm", True) else "before",
                eps=c.get("norm_eps", 1e-5), feed_forward=lambda layer: dense(c, activation="silu"))
