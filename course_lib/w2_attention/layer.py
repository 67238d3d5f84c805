"""W2 attention as a layer."""
import math

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.checks import check_head_sizes, check_number, check_sequence
from course_lib.rope import apply_rope
from .forms import w2_attention


class W2Attention(nn.Module):
    """Self-attention by W2 distance. One stream of hidden states: queries and keys are projected to means and
    raw widths, widths pass through softplus, RoPE rotates the means only, a design
    choice. tau is learned, one per head."""

    def __init__(self, d_model: int, n_heads: int, tau: float | None = None, form: str = "expanded"):
        super().__init__()
        check_head_sizes(d_model, n_heads)
        self.d_model, self.n_heads, self.form = d_model, n_heads, form
        self.q_proj = nn.Linear(d_model, 2 * d_model, bias=False)
        self.k_proj = nn.Linear(d_model, 2 * d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)
        # This tau gives the dot-product part the scale 1 / sqrt(width), as in chapter 1.
        tau = 2 * math.sqrt(2 * d_model / n_heads) if tau is None else tau
        check_number("tau", tau, above=0)
        self.log_tau = nn.Parameter(torch.full((n_heads,), math.log(tau)))

    @property
    def tau(self) -> Tensor:
        return self.log_tau.exp()

    def forward(self, x: Tensor, rope=None, mask: Tensor | None = None, causal: bool = True) -> Tensor:
        """x (batch, n, d_model) -> (batch, n, d_model); rope is a pair (cos, sin) or None."""
        check_sequence("x", x, self.q_proj)
        (mu_q, sigma_q), (mu_k, sigma_k), v = self.gaussians(x)
        if rope is not None:
            mu_q, mu_k = apply_rope(mu_q, *rope), apply_rope(mu_k, *rope)
        heads = w2_attention(mu_q, sigma_q, mu_k, sigma_k, v, self.tau, mask, causal, self.form)
        return self.out_proj(rearrange(heads, "b h n d -> b n (h d)"))

    def gaussians(self, x: Tensor):
        """x -> (mu_q, sigma_q), (mu_k, sigma_k), v, each (batch, n_heads, n, head_dim)."""
        queries, keys = (self._gaussian(projection(x)) for projection in (self.q_proj, self.k_proj))
        return queries, keys, rearrange(self.v_proj(x), "b n (h d) -> b h n d", h=self.n_heads)

    def _gaussian(self, projected):
        mu, raw = rearrange(projected, "b n (two h d) -> two b h n d", two=2, h=self.n_heads)
        return mu, F.softplus(raw).to(mu.dtype)          # a GPU's autocast leaves float32
