"""What is peculiar to each whole model beside its attention: a function per family, from a configuration to
changes of the plan; else it is Llama's: a norm before each part, a gated feed-forward, untied output."""
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
    layers = tuple(LayerPlan(layer_recipes(c, n), feed_forward(n), **{**every, **each(n)})
                   for n in range(c.layers))
    eps = changes.pop("eps", c.get("rms_norm_eps", c.get("norm_eps", 1e-6)))
    return Plan(layers, c.size("vocab_size"), c.size("hidden_size"), eps, tied=c.get("tie_word_embeddings"),
                **changes)


def dense(c, width=None, **changes) -> FeedForward:
    facts = dict(activation=c.get("hidden_act") or c.get("hidden_activation") or "silu",
                 bias=bool(c.get("mlp_bias")))
    return FeedForward(c.size("hidden_size"), width or c.size("intermediate_size"), **{**facts, **changes})


def first_of(c, *names, default=None):
    return next((c.get(name) for name in names if c.get(name) is not None), default)


def experts(c, width=None, shared=None, expert=None, **changes) -> Experts:
    """`shared` is the width of the expert for every token, `expert` what is peculiar to all of them."""
    width, expert = width or first_of(c, "moe_intermediate_size", "intermediate_size"), expert or {}
    facts = dict(count=first_of(c, "num_experts", "n_routed_experts", "num_local_experts"),
                 top_k=first_of(c, "num_experts_per_tok", "num_experts_per_token", "top_k_experts"),
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


# What these have in another way than Llama is in their attention, or in names that loading knows.
@whole("llama", "mistral", "ministral3", "qwen2", "qwen3", "seed_oss", "cwm", "hunyuan_v1_dense", "smollm3",
       "youtu", "phi3", "glm", "bamba")
def llama(c):
    return {}


@whole("ernie4_5")
def ernie(c):
    """Biases, if any, have a name of their own."""
    return dict(feed_forward=lambda layer: dense(c, bias=bool(c.get("use_bias"))))


@whole("arcee")
def arcee(c):
    """No gate: a squared ReLU."""
    return dict(feed_forward=lambda layer: dense(c, activation=c.get("hidden_act", "relu2"), gated=False))


@whole("apertus")
def apertus(c):
    """No gate: an activation with four learned numbers."""
    return dict(feed_forward=lambda layer: dense(c, activation=c.get("hidden_act", "xielu"), gated=False))


@whole("nanochat")
def nanochat(c):
    """Norms without factors, one right after the embedding; a squared ReLU; capped logits."""
    return dict(norm="bare", embedding_norm=True, logit_cap=c.get("final_logit_softcapping"),
                feed_forward=lambda layer: dense(c, activation=c.get("hidden_act", "relu2"), gated=False))


# Where this norm is not Llama's, which comes before the feed-forward layer.
AFTER_ATTENTION = {"post_attention_layernorm": "attention_out_norm"}


@whole("gemma2", "gemma3_text", "gemma3")
def gemma(c):
    """Norms before and after each part, stored minus one; embeddings times sqrt(d); capped logits; GeGLU."""
    act = c.get("hidden_activation", "gelu_pytorch_tanh")
    return dict(order="both", plus_one=True, embedding_scale=c["hidden_size"] ** 0.5, names=AFTER_ATTENTION,
                logit_cap=c.get("final_logit_softcapping"), activation=act,
                feed_forward=lambda layer: dense(c, activation=act))


@whole("gemma4_text", "gemma4")
def gemma4(c):
    """Gemma's sandwich; each layer is told of each token again, and scaled; what reuses keys may be wider."""
    plan, shared = gemma(c), c.get("num_kv_shared_layers", 0)
    if c.get("enable_moe_block"):
        raise ValueError("enable_moe_block: Gemma 4's experts beside a dense layer are not built here")

    def feed_forward(layer):
        wide = c.get("use_double_wide_mlp") and layer >= c.layers - shared
        return dense(c, c["intermediate_size"] * (2 if wide else 1), activation=plan["activation"])
    return dict(plan, plus_one=False, feed_forward=feed_forward,
                layer=lambda layer: dict(per_layer=c.get("hidden_size_per_layer_input"), scalar=True))


@whole("olmo2", "olmo3", "exaone4")
def olmo(c):
    """Norms after each part, none before."""
    return dict(order="after", names=AFTER_ATTENTION)


@whole("glm4")
def glm4(c):
    """Norms before and after each part."""
    return dict(order="both")


@whole("cohere2")
def cohere2(c):
    """Attention and feed-forward side by side after one LayerNorm; scaled logits."""
    return dict(order="parallel", norm="layer", logit_scale=c.get("logit_scale", 0.0625),
                eps=c["layer_norm_eps"])


@whole("granite", "granite_swa")
def granite(c):
    """Four fixed multipliers: of embeddings, of what each part adds, of scores (in attention), of logits."""
    add = c.get("residual_multiplier", 1.0)
    return dict(embedding_scale=c.get("embedding_multiplier", 1.0),
                logit_scale=1 / c.get("logits_scaling", 1.0), residual=(1.0, add, 1.0, add))
