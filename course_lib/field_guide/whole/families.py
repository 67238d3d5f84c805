"""What is peculiar to each whole model beside its attention: a function per family, from a configuration to changes
of the plan. Where nothing is said it is Llama's: a norm before each part, a gated feed-forward layer, untied output."""
from dataclasses import replace

from course_lib.field_guide.reading import layer_recipes
from course_lib.field_guide.whole.decoder import LayerPlan, Plan
from course_lib.field_guide.whole.parts import Experts, FeedForward

WHOLE: dict = {}


def whole(*model_types: str):
    """Enter a function under one or more model_types."""
    def enter(function):
        WHOLE.update(dict.fromkeys(model_types, function))
        return function
    return enter


def plan_of(c) -> Plan:
    """The plan of a configuration, a Reading, whose model_type has been entered."""
    changes = dict(WHOLE[c.model_type](c))
    feed_forward, each = changes.pop("feed_forward", lambda n: dense(c)), changes.pop("layer", lambda n: {})
    every = {name: changes.pop(name) for name in ("order", "residual") if name in changes}
    layers = tuple(LayerPlan(layer_recipes(c, n), feed_forward(n), **{**every, **each(n)}) for n in range(c.layers))
    eps = changes.pop("eps", c.get("rms_norm_eps", c.get("norm_eps", 1e-6)))
    return Plan(layers, c.size("vocab_size"), c.size("hidden_size"), eps, tied=c.get("tie_word_embeddings"), **changes)


def dense(c, width=None, **changes) -> FeedForward:
    facts = dict(activation=c.get("hidden_act") or c.get("hidden_activation") or "silu", bias=bool(c.get("mlp_bias")))
    return FeedForward(c.size("hidden_size"), width or c.size("intermediate_size"), **{**facts, **changes})


def first_of(c, *names, default=None):
    return next((c.get(name) for name in names if c.get(name) is not None), default)


def experts(c, width=None, shared=None, expert=None, **changes) -> Experts:
    """`shared` is the width of the expert for every token, `expert` what is peculiar to all of them."""
    width, expert = width or first_of(c, "moe_intermediate_size", "intermediate_size"), expert or {}
    facts = dict(count=first_of(c, "num_experts", "n_routed_experts", "num_local_experts"),
                 top_k=first_of(c, "num_experts_per_tok", "top_k_experts"),
                 normalised=bool(c.get("norm_topk_prob", True)), scale=c.get("routed_scaling_factor", 1.0),
                 expert=dense(c, width, **expert), shared=dense(c, shared, **expert) if shared else None)
    return Experts(**{**facts, **changes})


def sparse(c, layer: int) -> bool:
    """Whether a layer has experts; families say it in five ways."""
    if c.get("mlp_layer_types"):
        return c.per_layer("mlp_layer_types", layer) != "dense"
    first = first_of(c, "first_k_dense_replace", "num_dense_layers")
    if first is not None:
        return layer >= first and layer % (c.get("moe_layer_freq") or 1) == 0
    every = c.get("decoder_sparse_step", 1) or 1
    return layer not in (c.get("mlp_only_layers") or ()) and (layer + 1) % every == 0


def mixed(c, make, make_dense=dense):
    """Experts in the layers that have them, dense layers elsewhere."""
    return lambda layer: make(c) if sparse(c, layer) else make_dense(c)


@whole("llama", "mistral", "ministral3", "qwen2", "qwen3", "seed_oss", "cwm", "hunyuan_v1_dense", "smollm3", "youtu")
def llama(c):
    return {}


@whole("ernie4_5")
def ernie(c):
    """Biases, if any, have a name of their own."""
    return dict(feed_forward=lambda layer: dense(c, bias=bool(c.get("use_bias"))))


@whole("phi3", "glm")
def phi3(c):
    """Gate and up in one matrix, which loading splits."""
    return {}


@whole("arcee")
def arcee(c):
    """No gate: a squared ReLU."""
    return dict(feed_forward=lambda layer: dense(c, activation=c.get("hidden_act", "relu2"), gated=False))


@whole("apertus")
def apertus(c):
    """No gate: an activation with four learned numbers."""
    return dict(feed_forward=lambda layer: dense(c, activation=c.get("hidden_act", "xielu"), gated=False),
                names={"attention_layernorm": "attention_norm", "feedforward_layernorm": "feed_forward_norm",
                       "mlp.act_fn": "feed_forward.activation"})


@whole("nanochat")
def nanochat(c):
    """Norms without factors, one right after the embedding; a squared ReLU; capped logits."""
    return dict(norm="bare", embedding_norm=True, logit_cap=c.get("final_logit_softcapping"),
                feed_forward=lambda layer: dense(c, activation=c.get("hidden_act", "relu2"), gated=False),
                names={"mlp.fc1": "feed_forward.up_proj", "mlp.fc2": "feed_forward.down_proj"})


SANDWICH = {"post_attention_layernorm": "attention_out_norm", "pre_feedforward_layernorm": "feed_forward_norm",
            "pre_mlp_layernorm": "feed_forward_norm", "post_feedforward_layernorm": "feed_forward_out_norm",
            "post_mlp_layernorm": "feed_forward_out_norm"}


@whole("gemma2", "gemma3_text", "gemma3")
def gemma(c):
    """Norms before and after each part, stored minus one; embeddings times sqrt(d); capped logits; GeGLU."""
    return dict(order="both", plus_one=True, embedding_scale=c["hidden_size"] ** 0.5, names=SANDWICH,
                logit_cap=c.get("final_logit_softcapping"), activation="gelu_pytorch_tanh",
                feed_forward=lambda layer: dense(c, activation=c.get("hidden_activation", "gelu_pytorch_tanh")))


@whole("gemma4_text", "gemma4")
def gemma4(c):
    """Gemma's sandwich, stored as it is; each layer is told of each token once more, and scaled; layers that reuse keys
    may be twice as wide."""
    shared, act = c.get("num_kv_shared_layers", 0), c.get("hidden_activation", "gelu_pytorch_tanh")
    if c.get("enable_moe_block"):
        raise ValueError("enable_moe_block: Gemma 4's experts beside a dense layer are not built here")

    def feed_forward(layer):
        wide = c.get("use_double_wide_mlp") and layer >= c.layers - shared
        return dense(c, c["intermediate_size"] * (2 if wide else 1), activation=act)
    return dict(gemma(c), plus_one=False, feed_forward=feed_forward, activation=act,
                layer=lambda layer: dict(per_layer=c.get("hidden_size_per_layer_input"), scalar=True),
                names={**SANDWICH, "layer_scalar": "scalar", "per_layer_input_gate": "per_layer_gate",
                       "per_layer_projection": "per_layer_proj", "post_per_layer_input_norm": "per_layer_norm"})


@whole("olmo2", "olmo3", "exaone4")
def olmo(c):
    """Norms after each part, none before."""
    return dict(order="after", names=SANDWICH)


@whole("olmo_hybrid")
def olmo_hybrid(c):
    """Before each part where a layer has a state, after it where it has attention."""
    def layer(number):
        if c.layer_type(number) == "linear_attention":
            return dict(names={"attention_layer_norm": "attention_norm", "feedforward_layer_norm": "feed_forward_norm"})
        return dict(order="after", names={**SANDWICH, "feedforward_layer_norm": "attention_out_norm"})
    return dict(layer=layer)


@whole("glm4")
def glm4(c):
    """Norms before and after each part."""
    return dict(order="both", names={"post_self_attn_layernorm": "attention_out_norm",
                                     "post_mlp_layernorm": "feed_forward_out_norm"})


@whole("cohere2")
def cohere2(c):
    """Attention and feed-forward side by side after one LayerNorm; scaled logits."""
    return dict(order="parallel", norm="layer", logit_scale=c.get("logit_scale", 0.0625), eps=c["layer_norm_eps"])


@whole("granite", "granite_swa")
def granite(c):
    """Four fixed multipliers: of embeddings, of what each part adds, of scores (in its attention), of logits."""
    add = c.get("residual_multiplier", 1.0)
    return dict(embedding_scale=c.get("embedding_multiplier", 1.0), logit_scale=1 / c.get("logits_scaling", 1.0),
                residual=(1.0, add, 1.0, add))


@whole("granitemoehybrid")
def granite_hybrid(c):
    """Granite's multipliers; a dense layer for every token, beside experts where there are any."""
    def feed_forward(layer):
        wide = c["shared_intermediate_size"]
        return (experts(c, scores="chosen", shared=wide, normalised=False) if c.get("num_local_experts")
                else dense(c, wide))
    names = {} if c.get("num_local_experts") else {"shared_mlp": "feed_forward"}
    return dict(granite(c), feed_forward=feed_forward, names={**names, "shared_mlp": names.get(
        "shared_mlp", "feed_forward.shared")})


@whole("qwen3_moe", "mellum", "mixtral")
def qwen3_moe(c):
    """A softmax over all experts, then the best."""
    return dict(feed_forward=mixed(c, experts))


@whole("qwen3_next", "qwen3_5_text", "qwen3_5", "qwen3_5_moe_text")
def qwen3_next(c):
    """Norms stored minus one; one more expert for every token, behind a gate."""
    def with_shared(c):
        return experts(c, shared=c.size("shared_expert_intermediate_size"), shared_gate=True)
    makes = {"qwen3_next": mixed(c, with_shared), "qwen3_5_moe_text": lambda layer: with_shared(c)}
    return dict(plus_one=True, feed_forward=makes.get(c.model_type, lambda layer: dense(c)))


@whole("gpt_oss")
def gpt_oss(c):
    """Softmax over the chosen; biases everywhere; clipped gates whose sigmoid is steeper, and up + 1."""
    clipped = dict(bias=True, limit=c.get("swiglu_limit", 7.0), alpha=c.get("swiglu_alpha", 1.702))
    return dict(feed_forward=lambda layer: experts(c, c["intermediate_size"], scores="chosen", normalised=False,
                                                   router_bias=True, expert=clipped), packed="columns in turn")


@whole("llama4_text", "llama4")
def llama4(c):
    """A sigmoid of the best logit weighs the expert's input; one more expert for every token."""
    step = c.get("interleave_moe_layer_step", 1)
    moe = first_of(c, "moe_layers", default=None) or list(range(step - 1, c.layers, step))

    def feed_forward(layer):
        wide = c["intermediate_size"]
        return (experts(c, wide, scores="sigmoid", normalised=False, weighs_input=True, shared=wide) if layer in moe
                else dense(c, c["intermediate_size_mlp"]))
    return dict(feed_forward=feed_forward, packed="columns")


def corrected(c, **changes):
    """DeepSeek-V3's choice: sigmoids, a learned bias in the choice alone, groups of experts."""
    shared = first_of(c, "n_shared_experts", "num_shared_experts")
    facts = dict(scores="sigmoid", corrected=True, groups=c.get("n_group") or 1, top_groups=c.get("topk_group") or 1,
                 shared=shared * c["moe_intermediate_size"] if shared else None)
    return experts(c, **{**facts, **changes})


@whole("deepseek_v3", "deepseek_v32", "glm_moe_dsa", "kimi_k2", "mimo_v2_flash", "kimi_linear", "exaone_moe")
def deepseek_v3(c):
    return dict(feed_forward=mixed(c, corrected))


@whole("axk1")
def axk1(c):
    """One more norm, after the experts."""
    return dict(deepseek_v3(c), layer=lambda n: dict(order="before and last") if sparse(c, n) else {},
                names={"mlp.post_mlp_layernorm": "feed_forward_out_norm"})


@whole("deepseek_v2")
def deepseek_v2(c):
    """A softmax over all; a group counts by its one best expert."""
    groups = (c.get("n_group") or 1) if c.get("topk_method") == "group_limited_greedy" else 1
    return dict(feed_forward=mixed(c, lambda c: corrected(c, scores="softmax", corrected=False, normalised=False,
                                                          groups=groups, group_best=1)))


@whole("minimax_m2")
def minimax_m2(c):
    return dict(feed_forward=lambda layer: corrected(c, groups=1, width=c["intermediate_size"], shared=None))


@whole("hy_v3")
def hy_v3(c):
    """DeepSeek's choice without groups."""
    return dict(feed_forward=mixed(c, lambda c: corrected(c, groups=1, normalised=True,
                                                          scale=c.get("router_scaling_factor", 1.0))))


@whole("afmoe")
def afmoe(c):
    """Norms before and after; embeddings times sqrt(d) where the configuration says so."""
    make = mixed(c, lambda c: corrected(c, groups=1, normalised=True, scale=c.get("route_scale", 1.0)))
    return dict(order="both", names=SANDWICH, feed_forward=make,
                embedding_scale=c["hidden_size"] ** 0.5 if c.get("mup_enabled") else 1.0)


@whole("laguna")
def laguna(c):
    """A cap on the router's logits."""
    make = mixed(c, lambda c: corrected(c, groups=1, normalised=True, shared=c["shared_expert_intermediate_size"],
                                        scale=c.get("moe_routed_scaling_factor", 1.0),
                                        cap=c.get("moe_router_logit_softcapping", 0.0)))
    return dict(feed_forward=make)


@whole("kolibri1")
def kolibri1(c):
    """Norms before and after; the choice is by logits, the weights are sigmoids."""
    names = {"post_attn_norm": "attention_out_norm", "post_ffn_norm": "feed_forward_out_norm",
             "moe.router.expert_bias": "feed_forward.correction"}
    return dict(order="both", names=names, feed_forward=lambda layer: corrected(
        c, groups=1, ranks_logits=True, scale=1.0, shared=c["shared_expert_intermediate_size"]))


@whole("minimax")
def minimax(c):
    """What is kept is the normalised input; both branches are scaled, by the kind of layer."""
    def layer(number):
        kind = "linear" if c.layer_type(number) == "linear_attention" else "full"
        names = (f"{kind}_attn_alpha_factor", f"{kind}_attn_beta_factor", "mlp_alpha_factor", "mlp_beta_factor")
        return dict(residual=tuple(c.get(name, 1.0) for name in names), residual_normed=True)
    return dict(layer=layer, feed_forward=lambda layer: experts(c, c["intermediate_size"], normalised=True))


@whole("minimax_m3_vl_text", "minimax_m3_vl")
def minimax_m3(c):
    """Norms stored minus one; clipped gates; DeepSeek's choice without groups."""
    clipped = dict(limit=c.get("swiglu_limit", 7.0), alpha=c.get("swiglu_alpha", 1.702))
    make = mixed(c, lambda c: corrected(c, groups=1, normalised=True, expert=clipped, width=c["intermediate_size"],
                                        shared=c["shared_intermediate_size"]),
                 lambda c: dense(c, c["dense_intermediate_size"], **clipped))
    return dict(plus_one=True, feed_forward=make)


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
    return dict(embedding_scale=c.get("embedding_multiplier", 1.0), logit_scale=c.get("lm_head_multiplier", 1.0),
                feed_forward=lambda layer: dense(c, scales=(gate, out)), layer=lambda layer: scales,
                names={"pre_ff_layernorm": "feed_forward_norm"})


@whole("bamba")
def bamba(c):
    return dict(names={"pre_ff_layernorm": "feed_forward_norm"})


LFM = {"operator_norm": "attention_norm", "ffn_norm": "feed_forward_norm", "post_operator_norm": "attention_out_norm",
       "post_ffn_norm": "feed_forward_out_norm"}


@whole("lfm2")
def lfm2(c):
    """The width of a feed-forward layer is two thirds of what is said, rounded up."""
    width = c.get("block_ff_dim") or c["intermediate_size"]
    if c.get("block_auto_adjust_ff_dim", True):
        width = int(c.get("block_ffn_dim_multiplier", 1.0) * int(2 * width / 3))
        several = c.get("block_multiple_of", 256)
        width = several * ((width + several - 1) // several)
    return dict(feed_forward=lambda layer: dense(c, width, activation="silu"), names=LFM, eps=c.get("norm_eps", 1e-5))


@whole("lfm3")
def lfm3(c):
    """Norms before and after, if it says so."""
    return dict(order="both" if c.get("use_sandwich_norm", True) else "before", names=LFM, eps=c.get("norm_eps", 1e-5),
                feed_forward=lambda layer: dense(c, activation="silu"))
