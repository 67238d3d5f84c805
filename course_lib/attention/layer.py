"""Chapter 1: multi-head attention as a layer."""
from einops import rearrange
from torch import nn

from course_lib.attention.functions import scaled_dot_product_attention
from course_lib.checks import check_head_sizes, check_sequences


class MultiHeadAttention(nn.Module):
    """Attention of n_heads heads side by side, each d_model / n_heads wide.

    The keys and values come from x itself (self-attention) or from a context (cross-attention)."""

    def __init__(self, d_model, n_heads, context_dim=None, dropout=0.0, bias=True):
        super().__init__()
        context_dim = d_model if context_dim is None else context_dim
        check_head_sizes(d_model, n_heads, dropout=dropout, context_dim=context_dim)
        self.d_model, self.n_heads, self.context_dim, self.dropout = d_model, n_heads, context_dim, dropout
        self.q_proj = nn.Linear(d_model, d_model, bias)
        self.k_proj = nn.Linear(context_dim, d_model, bias)
        self.v_proj = nn.Linear(context_dim, d_model, bias)
        self.out_proj = nn.Linear(d_model, d_model, bias)

    def forward(self, x, context=None, mask=None, causal=False, return_weights=False):
        """x (batch, n, d_model), context (batch, m, context_dim) -> (batch, n, d_model).

        With return_weights also the weights, (batch, n_heads, n, m).
        """
        if context is None and self.context_dim == self.d_model:
            context = x
        check_sequences(x=(x, self.q_proj), context=(context, self.k_proj))

        q = rearrange(self.q_proj(x), "b n (h d) -> b h n d", h=self.n_heads)
        k = rearrange(self.k_proj(context), "b m (h d) -> b h m d", h=self.n_heads)
        v = rearrange(self.v_proj(context), "b m (h d) -> b h m d", h=self.n_heads)
        heads, weights = scaled_dot_product_attention(
            q, k, v, mask, causal, dropout=self.dropout if self.training else 0.0, return_weights=True)
        output = self.out_proj(rearrange(heads, "b h n d -> b n (h d)"))
        return (output, weights) if return_weights else output
