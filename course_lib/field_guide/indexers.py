"""Indexers: a small attention whose scores only choose which tokens the layer looks at.

Each is data with `build(recipe)`, and counts for itself: `seen(tokens)` are the keys that are left for a
query, `kept(tokens)` the numbers in the cache that the choice itself needs. Called with the layer's input,
what its queries are made from, positions, what is visible and the cache, it returns (b, 1 or heads, n, m)."""
from dataclasses import dataclass, replace

import torch
from einops import einsum, rearrange, repeat
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.field_guide.rotary import rotate


@dataclass(frozen=True)
class TokenIndexing:
    """DeepSeek's lightning indexer: top_k tokens by sum over heads of w_h relu(q_h . k), one key."""
    n_heads: int
    head_dim: int
    top_k: int
    layout: str = "half"
    at: str = "front"
    eps: float = 1e-6
    rotates: bool = True
    own_queries: bool = False           # its queries come from the layer's input, and grow with the position

    def build(self, recipe):
        return TokenIndexer(self, recipe)

    def seen(self, tokens: int) -> int:
        return min(tokens, self.top_k)

    def kept(self, tokens: int) -> int:
        return tokens * self.head_dim

    def flops(self, tokens: int) -> int:
        """A product per head and key, and the weighted sum over heads."""
        return 2 * tokens * self.n_heads * (self.head_dim + 1)


class TokenIndexer(nn.Module):
    def __init__(self, index: TokenIndexing, recipe):
        super().__init__()
        self.index, self.recipe = i, r = index, recipe
        self.rotary = replace(r.rotary, layout=i.layout, at=i.at) if i.rotates else None
        if i.own_queries:
            self.q_input_norm = nn.LayerNorm(r.d_model, 1e-6)
            self.softmax_scaling = LearnedTemperature(i.n_heads)
        self.q_proj = nn.Linear(r.d_model if i.own_queries else r.q_rank, i.n_heads * i.head_dim, bias=False)
        self.k_proj = nn.Linear(r.d_model, i.head_dim, bias=False)
        self.k_norm = nn.LayerNorm(i.head_dim, i.eps)
        self.weights_proj = nn.Linear(r.d_model, i.n_heads, bias=False)

    def forward(self, x, narrow, positions, seen, cache):
        i = self.index
        q = self.q_proj(self.q_input_norm(x) if i.own_queries else narrow)
        q = rearrange(q, "b n (h d) -> b h n d", h=i.n_heads)
        q = self.softmax_scaling(q, positions) if i.own_queries else q
        k = self.k_norm(self.k_proj(x))[:, None]
        q, k = rotate(q, self.rotary, positions), rotate(k, self.rotary, positions)
        scores = weighted_relu(q, cache.append("index", k)[:, 0], self.weights_proj(x))
        return best(scores, seen[:, 0], i.top_k)[:, None]


class LearnedTemperature(nn.Module):
    """Each head learns how its queries grow with the logarithm of the position."""

    def __init__(self, n_heads: int):
        super().__init__()
        self.scale, self.bias = nn.Parameter(torch.zeros(n_heads)), nn.Parameter(torch.ones(n_heads))

    def forward(self, q: Tensor, positions: Tensor) -> Tensor:
        log = (positions.float() + 1).log().expand(q.shape[0], -1)[:, None, :, None]
        return q * (self.scale[:, None, None] * log + self.bias[:, None, None]).to(q.dtype)


@dataclass(frozen=True)
class BlockIndexing:
    """MiniMax-M3: blocks of the text by their best token; an index head chooses for its group of heads."""
    n_heads: int
    head_dim: int
    block: int
    top_blocks: int
    local_blocks: int = 1               # the newest blocks, which are always chosen

    def build(self, recipe):
        return BlockIndexer(self, recipe)

    def seen(self, tokens: int) -> int:
        """The newest block is as full as the text leaves it."""
        last = tokens - (tokens - 1) // self.block * self.block
        return min(tokens, (self.top_blocks - 1) * self.block + last)

    def kept(self, tokens: int) -> int:
        return tokens * self.head_dim

    def flops(self, tokens: int) -> int:
        return 2 * tokens * self.n_heads * self.head_dim


class NormedProjections(nn.Module):
    def __init__(self, index: "BlockIndexing | PoolIndexing", recipe):
        super().__init__()
        self.index, self.recipe = i, r = index, recipe
        self.q_proj = nn.Linear(r.d_model, i.n_heads * i.head_dim, bias=False)
        self.k_proj = nn.Linear(r.d_model, i.head_dim, bias=False)
        self.q_norm, self.k_norm = nn.RMSNorm(i.head_dim, r.eps), nn.RMSNorm(i.head_dim, r.eps)


class BlockIndexer(NormedProjections):
    def forward(self, x, narrow, positions, seen, cache):
        i, r = self.index, self.recipe
        q = self.q_norm(rearrange(self.q_proj(x), "b n (h d) -> b h n d", h=i.n_heads))
        k = self.k_norm(self.k_proj(x))[:, None]
        q, k = rotate(q, r.rotary, positions), rotate(k, r.rotary, positions)
        k = cache.append("index", k)
        n, m = x.shape[1], k.shape[2]
        slots = torch.arange(m - n, m, device=x.device)
        past = torch.arange(m, device=x.device) <= slots[:, None]
        scores = (q @ k.mT).masked_fill(~past, float("-inf"))
        scores = F.pad(scores, (0, -m % i.block), value=float("-inf")).unflatten(-1, (-1, i.block)).amax(-1)
        for back in range(i.local_blocks):
            own = (slots // i.block - back).clamp(min=0)
            scores.scatter_(-1, own[:, None].expand(*scores.shape[:3], 1), float("inf"))
        chosen = best(scores, scores > float("-inf"), i.top_blocks)
        chosen = chosen.repeat_interleave(i.block, -1)[..., :m]
        return repeat(chosen, "b h n m -> b (h g) n m", g=r.n_heads // i.n_heads)


@dataclass(frozen=True)
class PoolIndexing:
    """Complete blocks of the text, each by one pooled key; the newest, in no block yet, are always seen.
    Qwen4-Exp pools by the mean, then normalises and rotates; GLM-5-Next by a learned softmax per channel."""
    n_heads: int
    head_dim: int
    block: int
    top_k: int                          # tokens, a multiple of block
    learned: bool = False
    eps: float = 1e-6

    def build(self, recipe):
        return (LearnedPoolIndexer if self.learned else MeanPoolIndexer)(self, recipe)

    def seen(self, tokens: int) -> int:
        return min(tokens // self.block * self.block, self.top_k) + tokens % self.block

    def kept(self, tokens: int) -> int:
        """As the published code has it: a key for every token, and the learned pooling's gate."""
        return tokens * self.head_dim * (2 if self.learned else 1)

    def flops(self, tokens: int) -> int:
        """Learned pooling comes with a weight for each head, as DeepSeek's indexer has it."""
        return 2 * (tokens // self.block) * self.n_heads * (self.head_dim + self.learned)


class MeanPoolIndexer(NormedProjections):
    def forward(self, x, narrow, positions, seen, cache):
        i, r = self.index, self.recipe
        q = self.q_norm(rearrange(self.q_proj(x), "b n (h d) -> b h n d", h=i.n_heads))
        q = rotate(q, r.rotary, positions)
        k = cache.append("index", self.k_proj(x)[:, None])[:, 0]
        seen = seen.expand(len(x), -1, -1, -1)
        start, ends = block_places(seen, i.block)
        k = self.k_norm(gather_blocks(k, start, i.block).mean(-2))
        k = rotate(
            k[:, None], r.rotary, start[:, None] + i.block * torch.arange(k.shape[1], device=x.device))[:, 0]
        scores = torch.relu(einsum(q, k, "b h n d, b m d -> b h n m")).sum(1)
        return choose_blocks(scores, seen, start, ends, i)


class LearnedPoolIndexer(nn.Module):
    def __init__(self, index: PoolIndexing, recipe):
        super().__init__()
        self.index, self.recipe = i, r = index, recipe
        self.q_proj = nn.Linear(r.q_rank, i.n_heads * i.head_dim, bias=False)
        self.k_proj = nn.Linear(r.d_model, i.head_dim, bias=False)
        self.k_norm = nn.LayerNorm(i.head_dim, i.eps)
        self.weights_proj = nn.Linear(r.d_model, i.n_heads, bias=False)
        self.pool_bias = nn.Parameter(torch.zeros(i.block, i.head_dim))
        self.pool_gate = nn.Parameter(torch.zeros(i.head_dim, r.d_model))

    def forward(self, x, narrow, positions, seen, cache):
        i = self.index
        q = rearrange(self.q_proj(narrow), "b n (h d) -> b h n d", h=i.n_heads)
        k = cache.append("index", self.k_norm(self.k_proj(x))[:, None])[:, 0]
        gate = cache.append("pool", (x @ self.pool_gate.T)[:, None])[:, 0]
        seen = seen.expand(len(x), -1, -1, -1)
        start, ends = block_places(seen, i.block)
        share = (gather_blocks(gate, start, i.block) + self.pool_bias).softmax(-2)
        pooled = (share * gather_blocks(k, start, i.block)).sum(-2)
        return choose_blocks(weighted_relu(q, pooled, self.weights_proj(x)), seen, start, ends, i)


def block_places(seen: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """Where each text begins, (b,), and the last slot of each block, (b, blocks); padding comes first."""
    seen = seen[:, 0].any(1)
    start = seen.int().argmax(-1)
    blocks = seen.shape[-1] // block
    return start, start[:, None] + block * torch.arange(1, blocks + 1, device=seen.device) - 1


def gather_blocks(x: Tensor, start: Tensor, block: int) -> Tensor:
    """(b, m, d) -> (b, blocks, block, d), counted from each text's beginning; its last row is repeated."""
    places = start[:, None] + torch.arange(x.shape[1] // block * block, device=x.device)
    places = places.clamp(max=x.shape[1] - 1)[..., None].expand(-1, -1, x.shape[-1])
    return x.gather(1, places).unflatten(1, (-1, block))


def choose_blocks(scores: Tensor, seen: Tensor, start: Tensor, ends: Tensor, index: PoolIndexing) -> Tensor:
    """The best complete blocks of each query and the tokens after its last complete one, (b, 1, n, m)."""
    n, m = scores.shape[1], seen.shape[-1]
    slots = torch.arange(m - n, m, device=scores.device)
    complete = (ends[:, None] <= slots[:, None]) & (ends < m)[:, None]
    chosen = best(scores, complete, index.top_k // index.block)
    place = torch.arange(m, device=scores.device) - start[:, None]                # of each slot in its text
    number = (place // index.block).clamp(0, max(scores.shape[-1] - 1, 0))
    tail = (number.new_tensor(0) if scores.shape[-1] == 0
            else chosen.gather(-1, number[:, None].expand(-1, n, -1)))
    # the first token of no complete block
    last = (slots - start[:, None] + 1) // index.block * index.block
    return ((tail.bool() | (place[:, None] >= last[..., None])) & seen[:, 0])[:, None]


def weighted_relu(q: Tensor, k: Tensor, weights: Tensor) -> Tensor:
    """(b, n, m): sum over heads of w_h relu(q_h . k)."""
    scores = torch.relu(einsum(q, k, "b h n d, b m d -> b h n m"))
    return einsum(scores, weights, "b h n m, b n h -> b n m")


def best(scores: Tensor, seen: Tensor, top_k: int) -> Tensor:
    """True at the top_k largest scores of each row among what is seen."""
    scores = scores.masked_fill(~seen, float("-inf"))
    chosen = scores.topk(min(top_k, scores.shape[-1]), -1).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, chosen, True) & seen
