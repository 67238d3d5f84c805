"""The parts of the language model: normalization, feed-forward, and attention in steps.

x is (batch, n, d_model); rope is a pair (cos, sin) or None."""
from functools import partial

import torch
from einops import rearrange
from torch import nn
from torch.nn import functional as F

from course_lib import rope as rotary
from course_lib.gqa import GroupedQueryAttention, grouped_query_attention
from course_lib.kv_cache import GrowingCache
from course_lib.sparse_attention import sliding_window_mask

RMSNorm = partial(nn.RMSNorm, eps=1e-6)


def softmax_attention(q, k, v, scale=None):
    """Causal attention by torch's fastest kernel. Equals ours of chapters 1 and 3 up to rounding (tested)."""
    grouped = k.shape[1] != q.shape[1]
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=grouped)


def apply_rope(x, cos, sin, positions=None):
    """Chapter 2's function. A whole text in float32 is rotated by one complex product, which is faster."""
    if positions is not None or x.dtype not in (torch.float32, torch.float64):
        return rotary.apply_rope(x, cos, sin, positions)
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.complex(cos, sin)
    return torch.view_as_real(turned).flatten(-2)


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)): each hidden feature is scaled by a gate of its own."""

    def __init__(self, d_model, d_hidden):
        super().__init__()
        self.gate = nn.Linear(d_model, d_hidden, bias=False)
        self.up = nn.Linear(d_model, d_hidden, bias=False)
        self.down = nn.Linear(d_hidden, d_model, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class ModelAttention(nn.Module):
    """A layer of the model in steps: project, rotate, attend, finish. Each attention replaces some of them.

    attend is a causal function (q, k, v) -> output; LanguageModel.set_attention replaces it by any other."""
    scale = None        # of the scores; None is 1 / sqrt(width of a key)
    window = None       # how many keys each query sees, its own included; None is all
    attend = staticmethod(softmax_attention)

    def rotate(self, x, rope, positions=None):
        """Queries or keys rotated by their positions, 0, 1, 2, ... if None; unchanged if rope is None."""
        if rope is None:
            return x
        return apply_rope(x, *rope, positions)

    def values(self, k, v):
        return v

    def finish(self, heads):
        return self.out_proj(rearrange(heads, "b h n d -> b n (h d)"))

    def make_cache(self):
        return GrowingCache()

    def forward(self, x, rope, cache=None):
        """x (b, n, d_model) -> (b, n, d_model). With a cache, x holds only the new tokens."""
        q, k, v = self.project(x)
        if cache is None:
            q, k = self.rotate(q, rope), self.rotate(k, rope)
            return self.finish(self.attend(q, k, self.values(k, v)))
        positions = cache.next_positions(x.shape[1])
        cache.append(self.rotate(k, rope, positions) if cache.rotated else k, v)
        k, v = cache.view()
        if not cache.rotated:
            k = self.rotate(k, rope, cache.key_positions())
        mask = cache.mask(x.shape[1])
        if self.window and mask is None:
            i = torch.arange(k.shape[2], device=x.device)
            mask = i > i[-x.shape[1]:, None] - self.window
        q, v = self.rotate(q, rope, positions), self.values(k, v)
        return self.finish(grouped_query_attention(q, k, v, mask, causal=True, scale=self.scale))

    def weights(self, x, rope):
        """(b, n_heads, n, n): the weight that each position gives to each."""
        q, k, v = self.project(x)
        q, k = self.rotate(q, rope), self.rotate(k, rope)
        mask = sliding_window_mask(x.shape[1], self.window).to(x.device) if self.window else None
        v = self.values(k, v)
        return grouped_query_attention(q, k, v, mask, True, self.scale, return_weights=True)[1]


class SelfAttention(ModelAttention, GroupedQueryAttention):
    """Chapter 3's layer: "softmax", and "gqa" with fewer heads of keys and values."""

    def __init__(self, config, n_kv_heads=None, window=None):
        super().__init__(config.d_model, config.n_heads, n_kv_heads or config.n_heads, window=window)
        self.key_width = self.value_width = self.head_dim

    def project(self, x):
        """x (b, n, d_model) -> q (b, n_heads, n, key_width), k, v (b, n_kv_heads, n, width), unrotated."""
        return (rearrange(self.q_proj(x), "b n (h d) -> b h n d", h=self.n_heads),
                rearrange(self.k_proj(x), "b n (h d) -> b h n d", h=self.n_kv_heads),
                rearrange(self.v_proj(x), "b n (h d) -> b h n d", h=self.n_kv_heads))
