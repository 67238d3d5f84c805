"""`python -m course_lib gqa-study`: fewer key and value heads in the small model, and training on.

Writes data/gqa_study.json. The heads of data/tiny_lm.safetensors are merged in groups, by their mean or by
keeping the first of each group; then every model trains on for the same number of steps on the same batches.
"""
from torch.nn.functional import scaled_dot_product_attention

from course_lib import language_model
from course_lib.gqa import GroupedQueryAttention, kv_bytes_per_token, pool_heads
from .study import plays, study
from .tuning import tuned


def first_heads(weight, n_heads, n_kv_heads):
    """Keep the first head of each group: the alternative to mean pooling."""
    group_size, head_dim = n_heads // n_kv_heads, weight.shape[0] // n_heads
    return weight.view(n_kv_heads, group_size, head_dim, -1)[:, 0].reshape(n_kv_heads * head_dim, -1)


def with_groups(model, n_kv_heads, merge=pool_heads):
    """The same model, in place, with grouped-query attention; its key and value heads merged by `merge`."""
    config = model.config
    for block in model.blocks:
        old = block.attention
        new = GroupedQueryAttention(config.d_model, config.n_heads, n_kv_heads)
        new.load_state_dict({"q_proj.weight": old.q_proj.weight, "out_proj.weight": old.out_proj.weight,
                             "k_proj.weight": merge(old.k_proj.weight, config.n_heads, n_kv_heads),
                             "v_proj.weight": merge(old.v_proj.weight, config.n_heads, n_kv_heads)})
        new.attend = as_torch
        block.attention = new
    return model


def as_torch(q, k, v, mask, causal):
    """grouped_query_attention by torch's fastest kernel: the same up to rounding (tested)."""
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=True)


def measure(args):
    data, validation = plays()
    rows = []
    for n_kv_heads, how in [(4, "mean"), (2, "mean"), (2, "first"), (1, "mean"), (1, "first")]:
        merge = {"mean": pool_heads, "first": first_heads}[how]
        losses, model = tuned(lambda seed: with_groups(language_model.pretrained()[0], n_kv_heads, merge),
                              args.seeds, validation, data, args.steps, peak=5e-4, warmup=20)
        config = model.config
        per_token = kv_bytes_per_token(config.n_layers, n_kv_heads, config.head_dim)
        rows.append({"n_kv_heads": n_kv_heads, "merge": how, **losses, "cache_bytes_per_token": per_token})
        print(rows[-1], flush=True)
    return {"steps": args.steps, "seeds": list(range(args.seeds)),
            "loss": "nats per character, 200 blocks spread over the validation plays", "rows": rows}


def study_command(argv):
    """python -m course_lib gqa-study: merge the heads of the small model and train on."""
    return study(argv, "gqa-study", study_command.__doc__, measure, steps=150, seeds=3)
