"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): cache one small vector per token.

A token's hidden state is compressed to a latent c of `latent_dim` numbers. Keys and values of every head are
linear in c, so only c has to be cached. RoPE between c and the keys would prevent that, so the position is in a
key of `rope_dim` numbers that all heads share. Cached per token: latent_dim + rope_dim numbers."""
import torch
from einops import einsum, rearrange
from torch import Tensor, nn

from course_lib.attention import scaled_dot_product_attention
from course_lib.checks.gqa import check_latent_layer, check_layer_input, check_rotated_keys
from course_lib.gqa.grouped import grouped_query_attention
from course_lib.rope import apply_rope


class LatentAttention(nn.Module):
    """Causal self-attention whose cache holds latents. `absorbed` chooses the order of the same products.

    False: unfold keys and values of every head from the latents, then attend: cheap if many queries use them.

    True: fold the up-projections into query and output, and attend to the latents, one key and value
    head for all query heads: fewer bytes when decoding, more FLOPs per key."""

    def __init__(self, d_model: int, n_heads: int, head_dim: int, latent_dim: int, rope_dim: int,
                 absorbed: bool = False):
        super().__init__()
        sizes = {"d_model": d_model, "n_heads": n_heads, "head_dim": head_dim, "latent_dim": latent_dim}
        check_latent_layer(rope_dim, **sizes)
        self.n_heads, self.head_dim, self.rope_dim, self.absorbed = n_heads, head_dim, rope_dim, absorbed
        self.scale = (head_dim + rope_dim) ** -0.5
        self.q_proj = nn.Linear(d_model, n_heads * (head_dim + rope_dim), bias=False)
        self.down_proj = nn.Linear(d_model, latent_dim, bias=False)
        self.latent_norm = nn.RMSNorm(latent_dim)
        self.rope_proj = nn.Linear(d_model, rope_dim, bias=False)
        self.k_up = nn.Parameter(torch.empty(n_heads, head_dim, latent_dim))
        self.v_up = nn.Parameter(torch.empty(n_heads, head_dim, latent_dim))
        self.out_proj = nn.Linear(n_heads * head_dim, d_model, bias=False)
        for weight in (self.k_up, self.v_up):
            nn.init.normal_(weight, std=latent_dim**-0.5)

    def forward(self, x: Tensor, rope=None, positions: Tensor | None = None, mask: Tensor | None = None,
                causal: bool = True, cache=None, absorbed: bool | None = None) -> Tensor:
        """x (b, n, d_model) -> (b, n, d_model). rope is a pair (cos, sin) of width rope_dim / 2, or None."""
        check_layer_input(x, self.q_proj, rope)
        check_rotated_keys(cache)
        n = x.shape[1]
        if positions is None:
            positions = cache.next_positions(n) if cache is not None else torch.arange(n, device=x.device)
        q = rearrange(self.q_proj(x), "b n (h d) -> b h n d", h=self.n_heads)
        q, q_rope = q.split([self.head_dim, self.rope_dim], dim=-1)
        latent = rearrange(self.latent_norm(self.down_proj(x)), "b n c -> b 1 n c")
        k_rope = rearrange(self.rope_proj(x), "b n r -> b 1 n r")
        if rope is not None:
            q_rope, k_rope = (apply_rope(t, *rope, positions=positions) for t in (q_rope, k_rope))
        if cache is not None:
            cache.append(latent, k_rope)
            latent, k_rope = cache.view()
        attend = self._absorbed if (self.absorbed if absorbed is None else absorbed) else self._unfolded
        out = attend(q, q_rope, latent, k_rope, mask, causal)
        return self.out_proj(rearrange(out, "b h n d -> b n (h d)"))

    def _unfolded(self, q, q_rope, latent, k_rope, mask, causal):
        k = einsum(latent, self.k_up, "b one n c, h d c -> b h n d")
        v = einsum(latent, self.v_up, "b one n c, h d c -> b h n d")
        k = torch.cat([k, k_rope.expand(-1, self.n_heads, -1, -1)], dim=-1)
        q = torch.cat([q, q_rope], dim=-1)
        return scaled_dot_product_attention(q, k, v, mask=mask, causal=causal, scale=self.scale)

    def _absorbed(self, q, q_rope, latent, k_rope, mask, causal):
        q, k = torch.cat([fold_queries(q, self.k_up), q_rope], dim=-1), torch.cat([latent, k_rope], dim=-1)
        mixed = grouped_query_attention(q, k, latent, mask=mask, causal=causal, scale=self.scale)
        return unfold_values(mixed, self.v_up)


def fold_queries(q: Tensor, k_up: Tensor) -> Tensor:
    """q . (W c) = (W^T q) . c: apply the up-projection to the one query instead of to every key.

    q (b, h, n, head_dim), k_up (h, head_dim, latent_dim) -> (b, h, n, latent_dim), queries of the latents."""
    return einsum(q, k_up, "b h n d, h d c -> b h n c")


def unfold_values(mixed: Tensor, v_up: Tensor) -> Tensor:
    """The weighted sums of latents (b, h, n, latent_dim) -> the heads' outputs (b, h, n, head_dim)."""
    return einsum(mixed, v_up, "b h n c, h d c -> b h n d")
