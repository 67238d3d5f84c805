"""Families whose feed-forward layers are mixtures of experts: how each chooses, and how it weighs."""
from course_lib.field_guide.whole.families import (
    AFTER_ATTENTION, dense, experts, first_of, mixed, sparse, whole)


@whole("qwen3_moe", "mellum")
def qwen3_moe(c):
    """A softmax over all experts, then the best."""
    return dict(feed_forward=mixed(c, experts))


@whole("mixtral")
def mixtral(c):
    return dict(feed_forward=lambda layer: experts(c, c["intermediate_size"]))


@whole("gpt_oss")
def gpt_oss(c):
    """Softmax over the chosen; biases everywhere; clipped gates whose sigmoid is steeper, and up + 1."""
    clipped = dict(bias=True, limit=c.get("swiglu_limit", 7.0), alpha=c.get("swiglu_alpha", 1.702))
    return dict(feed_forward=lambda layer: experts(c, c["intermediate_size"], scores="chosen",
                                                   normalised=False, router_bias=True, expert=clipped),
                packed="columns in turn")


@whole("llama4_text", "llama4")
def llama4(c):
    """A sigmoid of the best logit weighs the expert's input; one more expert for every token."""
    step = c.get("interleave_moe_layer_step", 1)
    moe = first_of(c, "moe_layers", default=None) or list(range(step - 1, c.layers, step))

    def feed_forward(layer):
        wide = c["intermediate_size"]
        return (experts(c, wide, scores="sigmoid", normalised=False, weighs_input=True, shared=wide)
                if layer in moe else dense(c, c["intermediate_size_mlp"]))
    return dict(feed_forward=feed_forward, packed="columns")


def corrected(c, **changes):
    """DeepSeek-V3's choice: sigmoids, a learned bias in the choice alone, groups of experts."""
    shared = first_of(c, "n_shared_experts", "num_shared_experts")
    facts = dict(scores="sigmoid", corrected=True, groups=c.get("n_group") or 1,
                 top_groups=c.get("topk_group") or 1, shared=shared * c["moe_intermediate_size"] if shared
                 else None)
    return experts(c, **{**facts, **changes})


@whole("deepseek_v3", "deepseek_v32", "glm_moe_dsa", "kimi_k2", "mimo_v2_flash", "kimi_linear", "exaone_moe")
def deepseek_v3(c):
    return dict(feed_forward=mixed(c, corrected))


@whole("axk1")
def axk1(c):
    """One more norm, after the experts."""
    return dict(deepseek_v3(c), layer=lambda n: dict(order="before and last") if sparse(c, n) else {})


@whole("deepseek_v2")
def deepseek_v2(c):
    """A softmax over all; a group counts by its one best expert."""
    groups = (c.get("n_group") or 1) if c.get("topk_method") == "group_limited_greedy" else 1
    return dict(feed_forward=mixed(c, lambda c: corrected(c, scores="softmax", corrected=False,
                                                          normalised=False, groups=groups, group_best=1)))


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
    return dict(order="both", names=AFTER_ATTENTION, feed_forward=make,
                embedding_scale=c["hidden_size"] ** 0.5 if c.get("mup_enabled") else 1.0)


@whole("laguna")
def laguna(c):
    """A cap on the router's logits."""
    make = mixed(c, lambda c: corrected(c, groups=1, normalised=True,
                                        shared=c["shared_expert_intermediate_size"],
                                        scale=c.get("moe_routed_scaling_factor", 1.0),
                                        cap=c.get("moe_router_logit_softcapping", 0.0)))
    return dict(feed_forward=make)


@whole("kolibri1")
def kolibri1(c):
    """Norms before and after; the choice is by logits, the weights are sigmoids."""
    return dict(order="both", feed_forward=lambda layer: corrected(
        c, groups=1, ranks_logits=True, scale=1.0, shared=c["shared_expert_intermediate_size"]))


@whole("minimax_m3_vl_text", "minimax_m3_vl")
def minimax_m3(c):
    """Norms stored minus one; clipped gates; DeepSeek's choice without groups."""
    clipped = dict(limit=c.get("swiglu_limit", 7.0), alpha=c.get("swiglu_alpha", 1.702))
    return dict(plus_one=True, feed_forward=mixed(
        c, lambda c: corrected(c, groups=1, normalised=True, expert=clipped, width=c["intermediate_size"],
                               shared=c["shared_intermediate_size"]),
        lambda c: dense(c, c["dense_intermediate_size"], **clipped)))
