"""Chapter 2: multi-head attention with rotary positions, as a layer."""
from einops import rearrange
from torch import nn

from course_lib.attention import scaled_dot_product_attention
from course_lib.checks import check_head_sizes
from course_lib.checks.rope import check_rope_inputs
from course_lib.rope.rotation import apply_rope


class RoPEAttention(nn.Module):
    """Multi-head attention that rotates queries and keys by their positions before it takes the scores."""

    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__()
        check_head_sizes(d_model, n_heads, dropout=dropout, even=True)
        self.d_model, self.n_heads, self.dropout = d_model, n_heads, dropout
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query, key, value, rope=None, mask=None, return_weights=False, positions=None,
                key_positions=None):
        """query (b, n, d_model), key and value (b, m, d_model) -> (b, n, d_model).

        rope is (cos, sin) or None. Positions count from 0 unless given: one new query has positions=[m - 1].
        """
        pairs = {"query": (query, self.q_proj), "key": (key, self.k_proj), "value": (value, self.v_proj)}
        check_rope_inputs(rope, **pairs)
        q, k, v = (rearrange(proj(x), "b n (h d) -> b h n d", h=self.n_heads) for x, proj in pairs.values())
        if rope is not None:
            q, k = apply_rope(q, *rope, positions), apply_rope(k, *rope, key_positions)
        heads, weights = scaled_dot_product_attention(q, k, v, mask, return_weights=True,
                                                      dropout=self.dropout if self.training else 0.0)
        output = self.out_proj(rearrange(heads, "b h n d -> b n (h d)"))
        return (output, weights) if return_weights else output
