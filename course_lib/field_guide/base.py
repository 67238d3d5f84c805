"""The base layer of the field guide: softmax attention of a decoder, and what models change in it, as data.

A `Recipe` is the whole difference between two families. `Attention(recipe)` is the layer; its forward pass:

    project   queries, keys, values: normalised, rotated, scaled          (b, heads, n, head_dim)
    keep      append them to the cache, take back all that it holds
    attend    scores, cap, mask, sink, softmax, weighted sum
    finish    gate, output projection

A family that projects or keeps tokens in another way overrides that step: see `latent`, `compressed`, `state`.
"""
from dataclasses import dataclass

import torch
from einops import einsum, rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.field_guide.cache import Cache
from course_lib.field_guide.rotary import Rotary, rotate
from course_lib.field_guide.softmax import by_rows, masked_softmax, times

GATES = {"sigmoid": torch.sigmoid, "softplus": F.softplus}
SAME, SHORT = nn.Identity(), 64 * 64        # so many scores of a head are computed as in published code


@dataclass(frozen=True)
class Recipe:
    d_model: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    layer: int = 0                      # its place in the model
    v_dim: int | None = None            # width of a value; None: head_dim
    scale: float | None = None          # None: 1 / sqrt(head_dim)
    bias: bool = False                  # of the projections to queries, keys and values
    out_bias: bool = False
    eps: float = 1e-6                   # of every normalisation
    rotary: Rotary | None = None        # None: no positions (NoPE), or those named in the next line
    positions: str = ""                 # "ALiBi", or "not said": what a description found, not built here
    qk_norm: str | None = None          # "head": each head; "width": all heads as one vector
    norm_last: bool = False             # normalise after the rotation, not before it
    norm_factors: bool = True           # a learned factor for each entry that is normalised
    v_norm: bool = False                # values too, without a learned factor
    window: int | None = None           # keys that a query sees, its own included
    chunk: int | None = None            # the text is cut into chunks; a query sees its own
    sinks: bool = False                 # a learned score for each head that takes weight and gives no value
    softcap: float | None = None        # scores are cap * tanh(scores / cap)
    gate: str | None = None             # "feature" or "head": the output times an activation of x, projected
    gate_activation: str = "sigmoid"
    temperature: tuple | None = None    # (strength, every, shift) of `growth`
    key_scale: float = 1.0
    value_scale: float = 1.0
    values_are_keys: bool = False       # one projection serves both
    reuses: int | None = None           # the layer whose keys and values are read instead of its own
    indexer: object = None              # chooses the tokens that a query looks at, see `indexers`
    index_from: int | None = None       # the layer whose indexer has chosen already

    def build(self) -> "Attention":
        return Attention(self)

    @property
    def value_width(self) -> int:
        return self.head_dim if self.v_dim is None else self.v_dim

    @property
    def reach(self) -> int | None:
        """Tokens that a query can see at most; None: all."""
        return self.window or self.chunk

    def seen(self, tokens: int) -> int:
        """Keys that a query's softmax runs over."""
        tokens = min(tokens, self.reach or tokens)
        return self.indexer.seen(tokens) if self.indexer else tokens

    @property
    def own_indexer(self):
        return self.indexer if self.index_from is None else None

    @property
    def row(self) -> int:
        """Numbers that the cache keeps of one token, the indexer's aside."""
        return self.n_kv_heads * (self.head_dim + self.value_width)

    def kept(self, tokens: int) -> int:
        """Numbers in the cache of one sequence after so many tokens."""
        rows = 0 if self.reuses is not None else min(tokens, self.reach or tokens) * self.row
        return rows + (self.own_indexer.kept(tokens) if self.own_indexer else 0)

    def read(self, tokens: int) -> int:
        """Numbers of the cache that the last of so many tokens reads."""
        return self.seen(tokens) * self.row + (self.own_indexer.kept(tokens) if self.own_indexer else 0)

    def flops(self, tokens: int) -> int:
        """FLOPs of one token's scores and weighted sum against so many; the projections are not counted."""
        per_key = 2 * self.n_heads * (self.head_dim + self.value_width)
        return self.seen(tokens) * per_key + (self.own_indexer.flops(tokens) if self.own_indexer else 0)


class Attention(nn.Module):
    """x (b, n, d_model) -> (b, n, d_model), causal. With a cache x holds only the new tokens."""

    def __init__(self, recipe: Recipe):
        super().__init__()
        r = self.recipe = recipe
        self.q_proj = nn.Linear(r.d_model, r.n_heads * r.head_dim, r.bias)
        if r.reuses is None:
            self.k_proj = nn.Linear(r.d_model, r.n_kv_heads * r.head_dim, r.bias)
            if not r.values_are_keys:
                self.v_proj = nn.Linear(r.d_model, r.n_kv_heads * r.value_width, r.bias)
        self.add_norms()
        self.add_ending(r.n_heads * r.value_width)

    def add_norms(self):
        r = self.recipe
        for name, heads in (("q_norm", r.n_heads), ("k_norm", r.n_kv_heads)):
            if r.qk_norm and (name == "q_norm" or r.reuses is None):
                width = r.head_dim * (heads if r.qk_norm == "width" else 1)
                setattr(self, name, nn.RMSNorm(width, r.eps, elementwise_affine=r.norm_factors))

    def add_ending(self, width: int):
        """The indexer, sinks, the gate and the output projection, for heads `width` wide together."""
        r = self.recipe
        if r.own_indexer:
            self.indexer = r.indexer.build(r)
        self.sinks = nn.Parameter(torch.zeros(r.n_heads)) if r.sinks else None
        if r.gate:
            self.gate_proj = nn.Linear(r.d_model, width if r.gate == "feature" else r.n_heads, bias=False)
        self.out_proj = nn.Linear(width, r.d_model, r.out_bias)

    def forward(self, x: Tensor, positions: Tensor | None = None, present: Tensor | None = None,
                cache: Cache | None = None, shared: dict | None = None) -> Tensor:
        """positions are 0, 1, ... unless given. present (b, all tokens so far): False is padding, which
        nothing sees. shared: keys, choices, masks, cosines that a layer leaves for later ones in a pass."""
        if cache is not None and cache.counts:          # x holds the tokens of several sequences side by side
            return self.several(x, positions, cache, shared)
        cache, shared = Cache() if cache is None else cache, {} if shared is None else shared
        start, end = cache.length, cache.length + x.shape[1]
        positions = torch.arange(start, end, device=x.device) if positions is None else positions
        q, *kv = self.project(x, positions, shared)
        k, v, first = self.keep(kv, cache, x.shape[1], shared)
        same = self.recipe.window, self.recipe.chunk, start, first, end
        if same not in shared or shared[same][0] is not present:
            queries, keys = (torch.arange(at, end, device=x.device) for at in (start, first))
            shared[same] = present, self.visible(queries, keys, present)
        return self.finish(x, self.attend(q, k, v, self.chosen(x, positions, shared[same][1], cache, shared)))

    def several(self, x: Tensor, positions: Tensor, cache, shared: dict) -> Tensor:
        """All tokens are projected together; each sequence attends to its own keys. Without an indexer."""
        q, k, v = self.project(x, positions, shared)
        each = zip(q.split(cache.counts, 2), *cache.extend(k, v), cache.visible(self))
        return self.finish(x, torch.cat([self.attend(*one) for one in each], 2))

    def project(self, x: Tensor, positions: Tensor, shared: dict | None = None) -> list[Tensor]:
        r = self.recipe
        q = times(self.shaped(x, "q", r.n_heads, positions, shared), self.growth(positions))
        if r.reuses is not None:
            return [q]
        k = times(self.shaped(x, "k", r.n_kv_heads, positions, shared), r.key_scale)
        v = (self.k_proj if r.values_are_keys else self.v_proj)(x)
        v = times(rearrange(v, "b n (h d) -> b h n d", h=r.n_kv_heads), r.value_scale)
        return [q, k, F.rms_norm(v, v.shape[-1:], eps=r.eps) if r.v_norm else v]

    def shaped(self, x: Tensor, name: str, heads: int, positions: Tensor, shared: dict | None) -> Tensor:
        """Queries or keys: projected, cut into heads, normalised and rotated in the recipe's order."""
        r, y = self.recipe, getattr(self, f"{name}_proj")(x)
        norm = getattr(self, f"{name}_norm", SAME)
        if r.qk_norm == "width":
            y, norm = norm(y), SAME
        y = rearrange(y, "b n (h d) -> b h n d", h=heads)
        if r.norm_last:
            return norm(self.turned(y, positions, shared)).to(x.dtype)
        return self.turned(norm(y).to(x.dtype), positions, shared)

    def turned(self, y: Tensor, positions: Tensor, shared: dict | None) -> Tensor:
        return rotate(y, self.recipe.rotary, positions, shared)

    def growth(self, positions: Tensor) -> Tensor | float:
        """How much longer a query gets far into the text, so that its softmax stays sharp over more keys."""
        if self.recipe.temperature is None:
            return 1.0
        strength, every, shift = self.recipe.temperature
        growth = 1 + strength * torch.log1p(torch.floor((positions.float() + shift) / every))
        return growth[..., None] if positions.dim() == 1 else growth[:, None, :, None]

    def keep(self, kv: list[Tensor], cache: Cache, n: int, shared: dict) -> tuple[Tensor, Tensor, int]:
        """All keys and values that may be needed, and the slot of the first."""
        r = self.recipe
        if r.reuses is not None:
            if r.reuses not in shared:
                raise ValueError(f"shared must hold the keys and values of layer {r.reuses}, which layer {r.layer} "
                                 "reads; give every layer of a pass the same dict, in order")
            cache.length += n
            return shared[r.reuses]
        k, v = cache.extend(k=kv[0], v=kv[1])
        shared[r.layer] = kept = k, v, cache.length - k.shape[2]
        cache.trim(r.reach)
        return kept

    def visible(self, queries: Tensor, keys: Tensor, present: Tensor | None) -> Tensor:
        """(b or 1, 1, n, m): True where the query of one slot may see the key of another."""
        r, back = self.recipe, queries[:, None] - keys
        seen = (back >= 0)[None]
        if r.window:
            seen = seen & (back < r.window)
        if r.chunk:
            start = 0 if present is None else present.int().argmax(-1)[:, None, None]    # after padding
            seen = seen & ((queries[:, None] - start) // r.chunk == (keys - start) // r.chunk)
        if present is not None:
            seen = seen & present[:, None, keys]
        return seen[:, None]

    def narrow(self, x: Tensor) -> Tensor:
        """What queries are made from."""
        return x

    def chosen(self, x: Tensor, positions: Tensor, seen: Tensor, cache: Cache, shared: dict) -> Tensor:
        """Where a query looks, (b, 1 or heads, n, m): everywhere, or where an indexer lets it."""
        r = self.recipe
        if r.index_from is not None:
            return seen & shared["index", r.index_from]
        if r.indexer is None:
            return seen
        shared["index", r.layer] = chosen = self.indexer(x, self.narrow(x), positions, seen, cache)
        return seen & chosen

    @by_rows
    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
        r, q = self.recipe, q.to(k.dtype)
        scale = r.head_dim ** -0.5 if r.scale is None else r.scale
        plain, n = not r.softcap and self.sinks is None and r.head_dim == r.value_width, q.shape[2]
        if plain and n == seen.shape[1] == 1:
            rows = q.view(len(q), k.shape[1], -1, r.head_dim)       # heads that share keys, as if queries
            return F.scaled_dot_product_attention(rows, k, v, seen, scale=scale).reshape(q.shape)
        if plain and n * k.shape[2] > SHORT:                        # torch's own: faster, of other rounding
            return F.scaled_dot_product_attention(q, k, v, seen, scale=scale, enable_gqa=True)
        q = rearrange(q, "b (h g) n d -> b h g n d", h=k.shape[1])
        scores = rearrange(einsum(q, k, "b h g n d, b h m d -> b h g n m"), "b h g n m -> b (h g) n m") * scale
        if r.softcap:
            scores = r.softcap * torch.tanh(scores / r.softcap)
        weights = masked_softmax(scores, seen, self.sinks)
        weights = rearrange(weights, "b (h g) n m -> b h g n m", h=v.shape[1])
        return rearrange(einsum(weights, v, "b h g n m, b h m d -> b h g n d"), "b h g n d -> b (h g) n d")

    def finish(self, x: Tensor, heads: Tensor) -> Tensor:
        r = self.recipe
        if r.gate:
            gate = GATES[r.gate_activation](self.gate_proj(x))
            heads = heads * rearrange(gate, "b n (h d) -> b h n d", h=r.n_heads)
        return self.out_proj(rearrange(heads, "b h n d -> b n (h d)"))
