"""A trained indexer (DeepSeek-V3.2, arXiv:2512.02556): a small attention chooses what the layer reads.

    scores = index_scores(q, k, weights)           every token, by a few narrow heads and one key per token
    chosen = choose(scores, top_k)                 (b, n_q, top_k) token numbers, -1 where there are too few
    out = gather_attention(q, k, v, chosen)        attention over those

The kernels of the first and the last are in kernels/sparse_attention/indexer.cu; float32, no gradient."""
import math

import torch
from einops import einsum, rearrange, repeat
from torch import Tensor, nn

from course_lib import cuda
from course_lib.checks.sparse_attention import (check_choice_of_tokens, check_gather, check_gather_kernel,
                                                 check_index)


def index_scores(q: Tensor, k: Tensor, weights: Tensor, causal: bool = True) -> Tensor:
    """Sum over h of w_h relu(q_h . k), from q (b, h, n_q, d), k (b, n_k, d) and weights (b, n_q, h)."""
    check_index(q, k, weights)
    scores = torch.relu(einsum(q, k, "b h i d, b j d -> b h i j"))
    scores = einsum(scores, weights, "b h i j, b i h -> b i j")
    return scores.masked_fill(_hidden(*scores.shape[1:], scores.device), -math.inf) if causal else scores


def choose(scores: Tensor, top_k: int) -> Tensor:
    """(b, n_q, n_k) -> (b, n_q, top_k) int32: the tokens with the largest scores; -1 for those at -inf."""
    check_choice_of_tokens(scores, top_k)
    best = scores.topk(min(top_k, scores.shape[-1]), -1)
    chosen = best.indices.masked_fill(best.values == -math.inf, -1).int()
    missing = top_k - chosen.shape[-1]
    if missing == 0:
        return chosen
    return torch.cat([chosen, torch.full_like(chosen[..., :1], -1).expand(-1, -1, missing)], -1)


def chosen_mask(chosen: Tensor, n_k: int) -> Tensor:
    """(b, n_q, top_k) -> (b, n_q, n_k): True at the chosen tokens."""
    mask = torch.zeros(*chosen.shape[:2], n_k + 1, dtype=torch.bool, device=chosen.device)
    return mask.scatter(-1, torch.where(chosen < 0, n_k, chosen).long(), True)[..., :n_k]


def gather_attention(q: Tensor, k: Tensor, v: Tensor, chosen: Tensor, scale: float | None = None) -> Tensor:
    """Attention of query i to tokens chosen[:, i] -> (b, heads, n_q, d), 0 for none. k, v may be grouped."""
    check_gather(q, k, v, chosen, scale)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
    groups = q.shape[1] // k.shape[1]
    at = repeat(chosen.clamp(min=0).long(), "b i t -> b h i t d", h=k.shape[1], d=k.shape[-1])
    k, v = (repeat(x, "b h j d -> b h i j d", i=q.shape[2]).gather(3, at) for x in (k, v))
    q = rearrange(q, "b (h g) i d -> b h g i d", g=groups)
    scores = einsum(q, k, "b h g i d, b h i t d -> b h g i t") * scale
    scores = scores.masked_fill(chosen[:, None, None] < 0, -math.inf)
    out = einsum(scores.softmax(-1).nan_to_num(0.0), v, "b h g i t, b h i t d -> b h g i d")
    return rearrange(out, "b h g i d -> b (h g) i d")


def index_scores_kernel(q: Tensor, k: Tensor, weights: Tensor, causal: bool = True) -> Tensor:
    """`index_scores` by a kernel: one thread per pair of tokens."""
    check_index(q, k, weights)
    (b, heads, n_q, d), n_k = q.shape, k.shape[1]
    scores = torch.empty(b, n_q, n_k, device=q.device)
    if scores.numel():
        grid = math.ceil(n_k / 32), math.ceil(n_q / 4), b
        launch = cuda.load("sparse_attention/indexer").index_scores[grid, (32, 4)]
        launch(*(x.contiguous() for x in (q, k, weights)), scores, heads, n_q, n_k, d, int(causal))
    return scores


def gather_attention_kernel(q: Tensor, k: Tensor, v: Tensor, chosen: Tensor,
                            scale: float | None = None) -> Tensor:
    """`gather_attention` by a kernel: a chosen token is fetched once per group of at most 32 query heads."""
    check_gather_kernel(q, k, v, chosen, scale)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
    (b, heads, n_q, d), kv_heads = q.shape, k.shape[1]
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if out.numel():
        width = next(w for w in (32, 64, 128) if d <= w)
        launch = cuda.load("sparse_attention/indexer")[f"gather_tokens<{width}>"]
        q, k, v, chosen = (x.contiguous() for x in (q, k, v, chosen))
        launch[(n_q, kv_heads, b), (32, heads // kv_heads)](
            q, k, v, chosen, out, n_q, k.shape[2], chosen.shape[2], d, scale)
    return out


class Indexer(nn.Module):
    """Index scores from a layer's input x (b, n, d_model): n_heads narrow queries per token, and one key."""

    def __init__(self, d_model: int, n_heads: int = 4, head_dim: int = 16):
        super().__init__()
        self.n_heads = n_heads
        self.q_proj = nn.Linear(d_model, n_heads * head_dim, bias=False)
        self.k_proj = nn.Linear(d_model, head_dim, bias=False)
        self.weights_proj = nn.Linear(d_model, n_heads)

    def forward(self, x: Tensor, rotate=None) -> Tensor:
        """rotate turns queries and key (b, heads, n, head_dim) by their positions, if given."""
        q, k = rearrange(self.q_proj(x), "b n (h d) -> b h n d", h=self.n_heads), self.k_proj(x)[:, None]
        if rotate is not None:
            q, k = rotate(q), rotate(k)
        return index_scores(q, k[:, 0], self.weights_proj(x))


def distillation_loss(scores: Tensor, weights: Tensor) -> Tensor:
    """The mean KL divergence per query, of softmax(scores) from the dense attention, heads averaged.

    scores (b, n, n), -inf where a key is hidden; weights (b, heads, n, n) of the layer that is imitated.
    """
    target = weights.mean(1)
    log_probabilities = scores.log_softmax(-1).masked_fill(scores == -math.inf, 0.0)
    entropy = torch.special.entr(target).sum(-1)
    return -((target * log_probabilities).sum(-1) + entropy).mean()


def _hidden(n_q, n_k, device):
    return torch.ones(n_q, n_k, dtype=torch.bool, device=device).triu(1 + n_k - n_q)
