"""Latent attention: one narrow vector per token serves every head (DeepSeek-V2, arXiv:2405.04434; chapter 3).

Published code unfolds keys and values of every head from the latents and attends to those. This layer never
does: the up-projection moves from the keys to the query, q . (W c) = (W^T q) . c, and from the values to the
output, so that the latents themselves are keys and values of one head that all query heads share. Equality
with the published layer is therefore also a check of that absorption."""
from dataclasses import dataclass

import torch
from einops import einsum, rearrange
from torch import nn

from course_lib.field_guide.base import Attention, Recipe
from course_lib.field_guide.indexers import LearnedTemperature
from course_lib.field_guide.rotary import rotate
from course_lib.field_guide.softmax import by_rows, masked_softmax


@dataclass(frozen=True)
class LatentRecipe(Recipe):
    """head_dim is the part of a key without position, v_dim the width of an unfolded value."""
    latent_dim: int = 0
    rope_dim: int = 0
    q_rank: int | None = None           # queries pass through a narrow vector of their own
    latent_eps: float = 1e-6
    learned_temperature: bool = False   # queries times a + b log(position + 1), of each head

    def build(self):
        return LatentAttention(self)

    @property
    def softmax_scale(self) -> float:
        return (self.head_dim + self.rope_dim) ** -0.5 if self.scale is None else self.scale

    @property
    def row(self):
        return self.latent_dim + self.rope_dim

    def flops(self, tokens):
        """Absorbed: scores against latent and rotated part, and a weighted sum of latents."""
        per_key = 2 * self.n_heads * (2 * self.latent_dim + self.rope_dim)
        return self.seen(tokens) * per_key + (self.own_indexer.flops(tokens) if self.own_indexer else 0)


class LatentAttention(Attention):
    def __init__(self, recipe: LatentRecipe):
        nn.Module.__init__(self)
        r = self.recipe = recipe
        q_width = r.n_heads * (r.head_dim + r.rope_dim)
        if r.q_rank:
            self.q_down = nn.Linear(r.d_model, r.q_rank, r.bias)
            self.q_norm = nn.RMSNorm(r.q_rank, r.latent_eps)
        self.q_proj = nn.Linear(r.q_rank or r.d_model, q_width, bias=False)
        if r.reuses is None:
            self.down = nn.Linear(r.d_model, r.latent_dim + r.rope_dim, r.bias)
            self.latent_norm = nn.RMSNorm(r.latent_dim, r.latent_eps)
        self.up = nn.Linear(r.latent_dim, r.n_heads * (r.head_dim + r.value_width), bias=False)
        if r.learned_temperature:
            self.softmax_scaling = LearnedTemperature(r.n_heads)
        self.add_ending(r.n_heads * r.value_width)

    def narrow(self, x):
        return self.q_norm(self.q_down(x)) if self.recipe.q_rank else x

    def project(self, x, positions, shared=None):
        r = self.recipe
        q = rearrange(self.q_proj(self.narrow(x)), "b n (h d) -> b h n d", h=r.n_heads)
        q, q_rope = q.split([r.head_dim, r.rope_dim], -1)
        k_up, _ = self.ups()
        q_rope = rotate(q_rope, r.rotary, positions, shared)
        q = torch.cat([einsum(q, k_up, "b h n d, h d c -> b h n c"), q_rope], -1) * self.growth(positions)
        if r.learned_temperature:
            q = self.softmax_scaling(q, positions)
        if r.reuses is not None:
            return [q]
        latent, k_rope = self.down(x).split([r.latent_dim, r.rope_dim], -1)
        k_rope = rotate(k_rope[:, None], r.rotary, positions, shared)
        return [q, torch.cat([self.latent_norm(latent)[:, None], k_rope], -1)]

    def ups(self):
        """The up-projections of keys and values, (heads, width, latent_dim) each."""
        r = self.recipe
        up = rearrange(self.up.weight, "(h d) c -> h d c", h=r.n_heads)
        return up.split([r.head_dim, r.value_width], 1)

    def keep(self, kv, cache, n, shared):
        if self.recipe.reuses is not None:
            return super().keep(kv, cache, n, shared)
        (k,) = cache.extend(k=kv[0])
        shared[self.recipe.layer] = k, k, 0
        return k, k, 0

    @by_rows
    def attend(self, q, k, v, seen):
        r = self.recipe
        scores = einsum(q.to(k.dtype), k[:, 0], "b h n c, b m c -> b h n m") * r.softmax_scale
        weights = masked_softmax(scores, seen, self.sinks)
        mixed = einsum(weights, k[:, 0, :, :r.latent_dim], "b h n m, b m c -> b h n c")
        return einsum(mixed, self.ups()[1], "b h n c, h d c -> b h n d")
