"""Families that choose blocks of the text, or compress it."""
from dataclasses import replace

from course_lib.field_guide.compressed import CompressedRecipe
from course_lib.field_guide.families.full_and_window import QK_NORMS
from course_lib.field_guide.families.latent import NAMES as LATENT_NAMES, latent, shared_or_own
from course_lib.field_guide.families.registry import family
from course_lib.field_guide.families.states import DELTA_NAMES, KDA_NAMES, delta, kda, split_interleaved
from course_lib.field_guide.indexers import BlockIndexing, PoolIndexing
from course_lib.field_guide.rotary import Rotary

V4_NAMES = {"q_a_proj": "q_down",
            "q_a_norm": "q_norm",
            "q_b_proj": "q_proj",
            "o_a_proj.weight": "out_groups",
            "o_b_proj": "out_proj",
            "compressor.kv_norm": "compressor.norm",
            "compressor.indexer.kv_norm": "indexer.compressor.norm",
            "compressor.indexer.q_b_proj": "indexer.q_proj",
            "compressor.indexer.scorer.weights_proj": "indexer.weights_proj",
            **{f"compressor.indexer.{name}": f"indexer.compressor.{name}"
               for name in ("kv_proj", "gate_proj", "position_bias")}}


def v4_rotary(c, window: bool):
    """Layers that compress have a base of their own, and the stretch; those of the window alone do not."""
    head_dim, nested = c.size("head_dim"), "main" in (c.get("rope_parameters") or {})
    dim = None if nested else c.get("qk_rope_head_dim")
    kind, base = ("main", c.get("rope_theta")) if window else ("compress", c.get("compress_rope_theta"))
    if nested:
        return c.rotary(head_dim, kind, "interleaved", "back")
    if window:
        return Rotary(dim, base, "interleaved", "back")
    return replace(c.rotary(head_dim, None, "interleaved", "back", dim, base), magnitude=1.0)


@family("deepseek_v4", names=V4_NAMES)
def deepseek_v4(c, layer):
    """Windows of 128, and behind them the text at 4 : 1 with an indexer, or at 128 : 1 without one."""
    kind, rates = c.layer_type(layer), c.get("compress_rates") or {}
    sparse = kind == "compressed_sparse_attention"
    c.used.update(("num_key_value_heads", "qk_rope_head_dim", "compress_rope_theta"))           # one head
    return CompressedRecipe(
        c.size("hidden_size"), c.size("num_attention_heads"), 1, c.size("head_dim"), layer, sinks=True,
        rotary=v4_rotary(c, kind == "sliding_attention"),
        eps=c.get("rms_norm_eps", 1e-6), window=c.size("sliding_window"), q_rank=c.size("q_lora_rank"),
        ratio=rates.get(kind), overlaps=sparse, out_groups=c.size("o_groups"), out_rank=c.size("o_lora_rank"),
        index=(c.size("index_n_heads"), c.size("index_head_dim"), c.size("index_topk")) if sparse else None)


def index_of_blocks(c):
    return BlockIndexing(c.size("index_n_heads"), c.size("index_head_dim"), c.size("index_block_size"),
                         c.size("index_topk_blocks"), c.get("index_local_blocks", 1))


@family("minimax_m3_vl_text", "minimax_m3_vl",
        plus_one=(*QK_NORMS, *(f"indexer.{name}" for name in QK_NORMS)))
def minimax_m3(c, layer):
    """Blocks of 128 by the score of their best token: an index head for each head of keys chooses 16. Files
    say `rotary_dim` beside the share of a head that turns; the published class reads the share alone."""
    sparse, width = c.layer_type(layer) == "minimax_m3_sparse", c.heads(layer)["head_dim"]
    rotary = c.rotary(width, dim=int(width * c.rope().get("partial_rotary_factor", 1.0)))
    return c.plain(layer, rotary=rotary, qk_norm="head", indexer=index_of_blocks(c) if sparse else None,
                   bias=False, out_bias=False)


def split_index(weights, recipe):
    """The indexer's queries and key are stored as one matrix."""
    if "indexer.index_qk_proj.weight" in weights:
        i = recipe.indexer
        q, k = weights.pop("indexer.index_qk_proj.weight").split([i.n_heads * i.head_dim, i.head_dim])
        weights.update({"indexer.q_proj.weight": q, "indexer.k_proj.weight": k})
    return split_interleaved(weights, recipe)


@family("qwen4_exp_text", "qwen4_exp", split=split_index,
        names={**DELTA_NAMES, "indexer.q_layernorm": "indexer.q_norm",
               "indexer.k_layernorm": "indexer.k_norm"},
        plus_one=(*QK_NORMS, "indexer.q_layernorm.weight", "indexer.k_layernorm.weight"))
def qwen4_exp(c, layer):
    """Qwen3.5's mix, whose softmax layers choose among means of a few neighbouring keys."""
    if c.layer_type(layer) == "linear_attention":
        return delta(c, layer, gate=c.get("output_gate_type") or c.get("hidden_act", "silu"))
    index = PoolIndexing(
        c.size("indexer_n_heads"), c.size("indexer_head_dim"), c.size("indexer_compress_ratio"),
        c.size("indexer_budget"))
    return c.plain(layer, qk_norm="head", gate="feature", indexer=index)


@family("glm5_next_text", "glm5_next",
        names={**DELTA_NAMES, **KDA_NAMES, **LATENT_NAMES,
               "indexer.index_kpool_compress_ape": "indexer.pool_bias",
               "indexer.index_kpool_compress_gate": "indexer.pool_gate"})
def glm5_next(c, layer):
    """Kimi's channel-wise delta rule with a floor under the decay, and unrotated latents behind indexers."""
    if c.layer_type(layer) == "linear_attention":
        return kda(c, layer, decay_floor=c.get("linear_lower_bound"))
    index = PoolIndexing(
        c.size("index_n_heads"), c.size("index_head_dim"), c.size("index_kpool"), c.size("index_topk"),
        learned=True)
    return latent(
        c, layer, rope=False, latent_eps=c.get("rms_norm_eps", 1e-6), **shared_or_own(c, layer, index))
