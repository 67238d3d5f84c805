"""Chapter 4: softmax attention approximated with features (Performer) or with fewer keys (Linformer)."""
import math

import torch
from einops import rearrange
from torch import Tensor, nn

from course_lib.attention import scaled_dot_product_attention
from course_lib.checks import check_sizes
from course_lib.checks.linear_attention import check_linformer_input, check_linformer_layer, check_performer
from course_lib.launching import widened
from course_lib.linear_attention.linear import linear_attention


def performer_features(d: int, n_features: int, orthogonal: bool = True, generator=None) -> Tensor:
    """(n_features, d) random directions, standard normal vectors; if orthogonal, in blocks of d rows."""
    check_sizes(d=d, n_features=n_features)
    rows = torch.randn(n_features, d, generator=generator)
    if not orthogonal:
        return rows
    blocks = []
    for start in range(0, n_features, d):
        turn, r = torch.linalg.qr(torch.randn(d, d, generator=generator))
        blocks.append((turn * r.diagonal().sign()).T[:n_features - start])
    # Give them the lengths of independent normal vectors: only then is the estimate unbiased.
    return torch.cat(blocks) * rows.norm(dim=-1, keepdim=True)


def positive_features(x: Tensor, projection: Tensor, shift: Tensor | float = 0.0) -> Tensor:
    """exp(w . x - |x|^2 / 2 - shift) / sqrt(m), one feature per row w of projection.

    At shift 0 the mean of phi(q) . phi(k) is exp(q . k).
    """
    exponent = x @ projection.T.to(x.dtype) - x.square().sum(-1, keepdim=True) / 2
    return torch.exp(exponent - shift) / math.sqrt(len(projection))


def performer_attention(q: Tensor, k: Tensor, v: Tensor, projection: Tensor, causal: bool = False,
                        form: str = "parallel", chunk_size: int = 64,
                        scale: float | None = None) -> Tensor:
    """Softmax attention estimated with positive random features (Performer, arXiv:2009.14794)."""
    check_performer(q, k, v, projection, scale)
    dtype, root = q.dtype, math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    q, k, v = widened(q, k, v)
    q, k = q * root, k * root

    def in_range(x, dims):
        """Features of x, divided by their maximum over dims."""
        if x.numel() == 0:
            return x.new_zeros(*x.shape[:3], len(projection))
        exponent = x @ projection.T.to(x.dtype) - x.square().sum(-1, keepdim=True) / 2
        return positive_features(x, projection, exponent.amax(dims, keepdim=True).detach())

    # One factor per query and one for all keys of a head cancel in the quotient; they keep exp in range.
    q, k = in_range(q, (-1,)), in_range(k, (-2, -1))
    return linear_attention(q, k, v, "relu", causal, form, chunk_size).to(dtype)


class LinformerAttention(nn.Module):
    """Attention to `rank` mixtures of the keys, the same for every text (Linformer, arXiv:2006.04768).

    A mixture contains the whole sequence, future included: it has no causal form, and the length is limited.
    """

    def __init__(self, d_model: int, n_heads: int, seq_len: int, rank: int, bias: bool = False):
        super().__init__()
        check_linformer_layer(d_model, n_heads, seq_len, rank)
        self.n_heads, self.seq_len = n_heads, seq_len
        projections = (nn.Linear(d_model, d_model, bias) for _ in range(4))
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = projections
        self.mix_keys = nn.Parameter(torch.randn(rank, seq_len) / math.sqrt(seq_len))
        self.mix_values = nn.Parameter(torch.randn(rank, seq_len) / math.sqrt(seq_len))

    def forward(self, x: Tensor, causal: bool = False) -> Tensor:
        """x (batch, n, d_model) with n at most seq_len -> (batch, n, d_model)."""
        check_linformer_input(x, self.q_proj, self.seq_len, causal)
        n = x.shape[1]
        q, k, v = (rearrange(proj(x), "b n (h d) -> b h n d", h=self.n_heads)
                   for proj in (self.q_proj, self.k_proj, self.v_proj))
        heads = scaled_dot_product_attention(q, self.mix_keys[:, :n] @ k, self.mix_values[:, :n] @ v)
        return self.out_proj(rearrange(heads, "b h n d -> b n (h d)"))
