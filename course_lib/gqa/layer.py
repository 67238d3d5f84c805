"""Chapter 3: grouped-query attention as a layer of a decoder."""
import math

import torch
from einops import rearrange
from torch import Tensor, nn

from course_lib.attention import causal_mask
from course_lib.checks import check_mask
from course_lib.checks.gqa import check_grouped_layer, check_layer_input
from course_lib.gqa.grouped import grouped_query_attention
from course_lib.rope import apply_rope


class GroupedQueryAttention(nn.Module):
    """Self-attention of a decoder, with rotary positions and a cache.

    n_kv_heads = n_heads is multi-head attention, n_kv_heads = 1 multi-query attention. qk_norm normalises
    queries and keys before rotation; a query sees the last `window` keys, its own included."""
    attend = staticmethod(grouped_query_attention)      # (q, k, v, mask, causal); replaceable by a faster one

    def __init__(self, d_model: int, n_heads: int, n_kv_heads: int, head_dim: int | None = None,
                 qk_norm: bool = False, window: int | None = None, bias: bool = False,
                 rope_layout: str = "interleaved"):
        super().__init__()
        check_grouped_layer(d_model, n_heads, n_kv_heads, head_dim, window, rope_layout)
        self.d_model, self.n_heads, self.n_kv_heads = d_model, n_heads, n_kv_heads
        self.head_dim = d_model // n_heads if head_dim is None else head_dim
        self.window, self.rope_layout = window, rope_layout
        self.q_proj = nn.Linear(d_model, n_heads * self.head_dim, bias)
        self.k_proj = nn.Linear(d_model, n_kv_heads * self.head_dim, bias)
        self.v_proj = nn.Linear(d_model, n_kv_heads * self.head_dim, bias)
        self.out_proj = nn.Linear(n_heads * self.head_dim, d_model, bias)
        self.q_norm = nn.RMSNorm(self.head_dim) if qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(self.head_dim) if qk_norm else nn.Identity()

    def forward(self, x: Tensor, rope=None, positions: Tensor | None = None, mask: Tensor | None = None,
                causal: bool = True, cache=None) -> Tensor:
        """x (b, n, d_model) -> (b, n, d_model).

        rope is a pair (cos, sin) or None. With a cache, x holds only the new tokens: their keys and values
        are appended, and the queries attend to all keys in the cache."""
        check_layer_input(x, self.q_proj, rope)
        q = self.q_norm(rearrange(self.q_proj(x), "b n (h d) -> b h n d", h=self.n_heads))
        k = self.k_norm(rearrange(self.k_proj(x), "b n (h d) -> b h n d", h=self.n_kv_heads))
        v = rearrange(self.v_proj(x), "b n (h d) -> b h n d", h=self.n_kv_heads)
        q, k, v, mask = rotate_and_cache(q, k, v, rope, positions, mask, cache, self.rope_layout)
        if self.window is not None:
            mask = narrowed(mask, within_window(q.shape[-2], k.shape[-2], self.window, x.device), q)
        heads = self.attend(q, k, v, mask, causal)
        return self.out_proj(rearrange(heads, "b h n d -> b n (h d)"))


def rotate_and_cache(q: Tensor, k: Tensor, v: Tensor, rope, positions=None, mask=None, cache=None,
                     layout="interleaved"):
    """Rotate queries and keys, append to the cache if there is one: -> q, all keys, all values, mask."""
    if cache is None:
        if rope is not None:
            q, k = (apply_rope(t, *rope, positions=positions, layout=layout) for t in (q, k))
        return q, k, v, mask
    rotated = getattr(cache, "rotated", True)       # False: it holds keys before rotation, see RollingCache
    if rope is not None:
        positions = cache.next_positions(q.shape[-2]) if positions is None else positions
        q = apply_rope(q, *rope, positions=positions, layout=layout)
        k = apply_rope(k, *rope, positions=positions, layout=layout) if rotated else k
    cache.append(k, v)
    k, v = cache.view()
    if rotated:
        return q, k, v, mask
    if rope is not None:
        k = apply_rope(k, *rope, positions=cache.key_positions(), layout=layout)
    return q, k, v, narrowed(mask, cache.mask(q.shape[-2]), q)


def within_window(n_q, n_k, window, device=None):
    """(n_q, n_k), False for keys `window` or more positions before the query; the last two are aligned."""
    return ~causal_mask(n_q, n_k, device).tril(n_k - n_q - window)


def narrowed(mask, inside, q):
    """A mask (boolean, floating or None) for the scores of q, combined with the boolean mask `inside`."""
    if mask is None:
        return inside
    check_mask(mask, (*q.shape[:3], inside.shape[-1]), q.device)
    return mask & inside if mask.dtype == torch.bool else mask.masked_fill(~inside, -math.inf)
