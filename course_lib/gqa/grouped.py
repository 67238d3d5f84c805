"""Chapter 3: grouped-query attention. Several query heads share one head of keys and values.

Shapes: q is (batch, n_heads, n, head_dim); k and v are (batch, n_kv_heads, m, head_dim).
group_size = n_heads / n_kv_heads query heads share one: query head h reads head h // group_size."""
import math

from einops import rearrange, reduce
from torch import Tensor

from course_lib.attention import masked_weights, weighted_sum
from course_lib.checks import check_grouped
from course_lib.checks.gqa import check_repeat
from course_lib.checks.rope import check_head_rows
from course_lib.launching import widened


def repeat_kv(x: Tensor, group_size: int) -> Tensor:
    """(b, n_kv_heads, n, d) -> (b, n_kv_heads * group_size, n, d): K0 K1 -> K0 K0 K1 K1 in groups of 2."""
    check_repeat(x, group_size)
    b, n_kv_heads, n, d = x.shape
    # expand repeats without copying (stride 0); reshape then writes the copies.
    return x[:, :, None].expand(b, n_kv_heads, group_size, n, d).reshape(b, n_kv_heads * group_size, n, d)


def grouped_query_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None,
                            causal: bool = False, scale: float | None = None, return_weights: bool = False):
    """Attention of n_heads queries over n_kv_heads keys and values: (b, n_heads, n, v_dim).

    Nothing is repeated: the queries of a group are stacked, so that one product multiplies a key head by the
    group_size * n rows that read it. mask, causal and scale are those of `scaled_dot_product_attention`;
    a mask broadcasts to (b, n_heads, n, m).
    """
    group_size = check_grouped(q, k, v, scale)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    dtype, n = q.dtype, q.shape[-2]
    q, k, v = widened(q, k, v)     # half precision in and out, float inside

    def fold(x):
        return rearrange(x, "b (h_kv g) n d -> b h_kv (g n) d", g=group_size)

    def unfold(x):
        return rearrange(x, "b h_kv (g n) d -> b (h_kv g) n d", n=n, g=group_size)

    scores = unfold(fold(q) @ k.transpose(-2, -1) * scale)
    weights, allowed = masked_weights(scores, mask, causal)
    seen = None if allowed is None else fold(allowed.expand(weights.shape))
    output = unfold(weighted_sum(fold(weights), v, seen)).to(dtype)
    return (output, weights.to(dtype)) if return_weights else output


def pool_heads(weight: Tensor, n_heads: int, n_kv_heads: int) -> Tensor:
    """Average the key or value heads of a trained layer in groups.

    weight (n_heads * d, d_model) -> (n_kv_heads * d, d_model); a bias, (n_heads * d), works too. From here
    "GQA: Training Generalized Multi-Query Transformer Models" (arXiv:2305.13245) continues the training."""
    check_head_rows(weight, n_heads, n_kv_heads)
    return reduce(weight, "(h_kv g d) ... -> (h_kv d) ...", "mean", h_kv=n_kv_heads, g=n_heads // n_kv_heads)
