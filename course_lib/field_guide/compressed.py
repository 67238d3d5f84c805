"""DeepSeek-V4: the text is compressed. A window of recent tokens; beyond it an entry for every few.

One vector per token is key and value of one head that all query heads share. It is rotated as a key, so the
weighted sum of values is rotated too, and is turned back by the query's position. Entries are means of `ratio`
tokens (or twice as many that overlap), weighted by a softmax per channel; an indexer may choose."""
from dataclasses import dataclass

import torch
from einops import einsum, rearrange
from torch import Tensor, nn

from course_lib.field_guide.base import Attention, Recipe
from course_lib.field_guide.cache import Cache
from course_lib.field_guide.indexers import best, weighted_relu
from course_lib.field_guide.rotary import Rotary, rotate
from course_lib.field_guide.softmax import masked_softmax


@dataclass(frozen=True)
class CompressedRecipe(Recipe):
    q_rank: int = 0
    ratio: int | None = None            # tokens per entry; None: the window is all
    overlaps: bool = False              # an entry also sees the tokens of the one before it
    index: tuple | None = None          # heads, width and number of entries of the indexer
    out_groups: int = 1
    # the output projection is cut in groups and passes through a narrow vector
    out_rank: int = 0

    def build(self):
        return CompressedAttention(self)

    @property
    def row(self):
        return self.head_dim

    def entries(self, tokens: int) -> int:
        return tokens // self.ratio if self.ratio else 0

    def seen(self, tokens):
        entries = self.entries(tokens)
        return min(tokens, self.window) + (min(entries, self.index[2]) if self.index else entries)

    def kept(self, tokens):
        """The window, the entries, and what the next entry will be made from."""
        widths = [self.head_dim] + ([self.index[1]] if self.index else [])
        entries = (sum(compressor_keeps(tokens, self.ratio, width, self.overlaps) for width in widths)
                   if self.ratio else 0)
        return min(tokens, self.window) * self.head_dim + entries

    def read(self, tokens):
        return self.seen(tokens) * self.head_dim + (self.entries(tokens) * self.index[1] if self.index else 0)

    def flops(self, tokens):
        choice = 2 * self.entries(tokens) * self.index[0] * (self.index[1] + 1) if self.index else 0
        return 4 * self.seen(tokens) * self.n_heads * self.head_dim + choice


def compressor_keeps(tokens: int, ratio: int, width: int, overlaps: bool) -> int:
    pending = tokens % ratio * 2 * width * (2 if overlaps else 1)
    before = 2 * ratio * width if overlaps and tokens >= ratio else 0
    return tokens // ratio * width + pending + before


class CompressedAttention(Attention):
    def __init__(self, recipe: CompressedRecipe):
        nn.Module.__init__(self)
        r = self.recipe = recipe
        self.q_down, self.q_norm = nn.Linear(r.d_model, r.q_rank, bias=False), nn.RMSNorm(r.q_rank, r.eps)
        self.q_proj = nn.Linear(r.q_rank, r.n_heads * r.head_dim, bias=False)
        self.kv_proj, self.kv_norm = nn.Linear(r.d_model, r.head_dim, bias=False), nn.RMSNorm(
            r.head_dim, r.eps)
        self.sinks = nn.Parameter(torch.zeros(r.n_heads))
        if r.ratio:
            self.compressor = Compressor(r.d_model, r.head_dim, r.ratio, r.overlaps, r.rotary, r.eps)
        if r.index:
            self.indexer = EntryIndexer(r)
        self.out_groups = nn.Parameter(
            torch.empty(r.out_groups, r.out_rank, r.n_heads * r.head_dim // r.out_groups))
        self.out_proj = nn.Linear(r.out_groups * r.out_rank, r.d_model, bias=False)

    def narrow(self, x):
        return self.q_norm(self.q_down(x))

    def project(self, x, positions):
        r = self.recipe
        q = rearrange(self.q_proj(self.narrow(x)), "b n (h d) -> b h n d", h=r.n_heads)
        q = nn.functional.rms_norm(q, q.shape[-1:], eps=r.eps)
        return [rotate(q, r.rotary, positions),
                rotate(self.kv_norm(self.kv_proj(x))[:, None], r.rotary, positions)]

    def forward(self, x, positions=None, present=None, cache=None, shared=None):
        r, cache = self.recipe, Cache() if cache is None else cache
        slots = torch.arange(cache.length, cache.length + x.shape[1], device=x.device)
        positions = slots if positions is None else positions
        q, kv = self.project(x, positions)
        (kv,) = cache.extend(k=kv)
        seen = self.visible(
            slots, torch.arange(cache.length - kv.shape[2], cache.length, device=x.device), present)
        cache.trim(r.window, "k")
        if r.ratio:
            entries = self.compressor("entries", x, cache)
            complete = torch.arange(entries.shape[1], device=x.device) < ((slots + 1) // r.ratio)[:, None]
            complete = complete.expand(len(x), -1, -1)
            if r.index:
                complete = self.indexer(x, self.narrow(x), positions, complete, cache)
            kv = torch.cat([kv, entries[:, None]], 2)
            seen = torch.cat([seen.expand(len(x), -1, -1, -1), complete[:, None]], -1)
        weights = masked_softmax(
            einsum(q, kv[:, 0], "b h n d, b m d -> b h n m") * r.head_dim**-0.5, seen, self.sinks)
        heads = einsum(weights, kv[:, 0], "b h n m, b m d -> b h n d")
        heads = rearrange(
            rotate(heads, r.rotary, positions, backwards=True), "b (g h) n d -> b n g (h d)", g=r.out_groups)
        return self.out_proj(
            rearrange(einsum(heads, self.out_groups, "b n g i, g o i -> b n g o"), "b n g o -> b n (g o)"))


class Compressor(nn.Module):
    """Tokens to entries: a softmax over an entry's tokens, per channel, weighs them; norm and rotation."""

    def __init__(self, d_model: int, width: int, ratio: int, overlaps: bool, rotary: Rotary, eps: float):
        super().__init__()
        self.width, self.ratio, self.overlaps, self.rotary = width, ratio, overlaps, rotary
        wide = width * (2 if overlaps else 1)
        self.kv_proj, self.gate_proj = nn.Linear(d_model, wide, bias=False), nn.Linear(
            d_model, wide, bias=False)
        self.position_bias = nn.Parameter(torch.zeros(ratio, wide))
        self.norm = nn.RMSNorm(width, eps)

    def forward(self, name: str, x: Tensor, cache: Cache) -> Tensor:
        """All entries so far, (b, entries, width)."""
        pending = cache.append(f"{name} pending", torch.cat([self.kv_proj(x), self.gate_proj(x)], -1))
        whole = pending.shape[1] // self.ratio * self.ratio
        cache.rows[f"{name} pending"] = pending[:, whole:]
        first = cache.rows[name].shape[1] if name in cache.rows else 0
        blocks = rearrange(pending[:, :whole], "b (e r) d -> b e r d", r=self.ratio)
        value, gate = blocks.chunk(2, -1)
        gate = gate + self.position_bias
        if self.overlaps:
            value, gate = self.with_the_one_before(name, value, gate, cache)
        entries = self.norm((value * gate.softmax(2)).sum(2))
        positions = self.ratio * torch.arange(first, first + entries.shape[1], device=x.device)
        return cache.append(name, rotate(entries[:, None], self.rotary, positions)[:, 0])

    def with_the_one_before(self, name, value, gate, cache):
        """The first half of the channels belongs to the entry after, the second to a block's own."""
        (ahead, value), (gate_ahead, gate) = value.chunk(2, -1), gate.chunk(2, -1)
        ahead = torch.cat([ahead, gate_ahead], -1)
        before = cache.state.get(name)
        if before is None:                                      # no entry before the first: weight 0
            before = torch.cat(
                [torch.zeros_like(value[:, :1]), torch.full_like(gate[:, :1], float("-inf"))], -1)
        if ahead.shape[1]:
            cache.state[name] = ahead[:, -1:]
        earlier, earlier_gate = torch.cat([before, ahead], 1)[:, :ahead.shape[1]].chunk(2, -1)
        return torch.cat([earlier, value], 2), torch.cat([earlier_gate, gate], 2)


class EntryIndexer(nn.Module):
    """Narrower entries of its own, and the choice among them."""

    def __init__(self, recipe: CompressedRecipe):
        super().__init__()
        r, (heads, width, self.top_k) = recipe, recipe.index
        self.heads, self.rotary = heads, r.rotary
        self.compressor = Compressor(r.d_model, width, r.ratio, r.overlaps, r.rotary, r.eps)
        self.q_proj = nn.Linear(r.q_rank, heads * width, bias=False)
        self.weights_proj = nn.Linear(r.d_model, heads, bias=False)

    def forward(self, x, narrow, positions, complete, cache):
        q = rearrange(self.q_proj(narrow), "b n (h d) -> b h n d", h=self.heads)
        entries = self.compressor("index", x, cache)
        scores = weighted_relu(rotate(q, self.rotary, positions), entries, self.weights_proj(x))
        return best(scores, complete, self.top_k)
