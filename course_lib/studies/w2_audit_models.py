"""The models of chapter 9's audit: one transformer, three ways to score, all else equal.

Shapes: x (batch, n, width); q, k, v (batch, heads, n, head_dim), for Gaussians q and k 2 head_dim wide."""
import math

import torch
from einops import rearrange
from torch import nn
from torch.nn import functional as F

from course_lib.language_model import RMSNorm, SwiGLU
from course_lib.rope import apply_rope, rope_table

MECHANISMS = ("softmax", "w2", "overlap")


class Overlap(torch.autograd.Function):
    """gaussian_overlap for every query and key, a few heads at a time: autograd would keep every feature.

    All four are (heads, head_dim, n), the scores (heads, n, m). Tested equal to gaussian_overlap."""

    @staticmethod
    def forward(ctx, mu_q, sigma_q, mu_k, sigma_k):
        ctx.save_for_backward(mu_q, sigma_q, mu_k, sigma_k)
        scores = []
        for mq, sq, mk, sk in in_parts(mu_q, sigma_q, mu_k, sigma_k):
            total = sq[..., None] + sk[..., None, :]
            part = (mq[..., None] - mk[..., None, :]).square_().div_(total)
            scores.append(part.add_(total.log_()).sum(1).mul_(-0.5))
        return torch.cat(scores)

    @staticmethod
    def backward(ctx, upstream):
        grads = []
        for mq, sq, mk, sk, g in in_parts(*ctx.saved_tensors, upstream):
            inverse = (sq[..., None] + sk[..., None, :]).reciprocal_()
            ratio = (mq[..., None] - mk[..., None, :]).mul_(inverse)
            by_sigma = torch.addcmul(inverse.neg_(), ratio, ratio).mul_(g[:, None]).mul_(0.5)
            by_mu = ratio.mul_(g[:, None])
            grads.append((-by_mu.sum(-1), by_sigma.sum(-1), by_mu.sum(-2), by_sigma.sum(-2)))
        return tuple(map(torch.cat, zip(*grads)))


def in_parts(mu_q, *others):
    """As many heads at a time as stay in a core's cache: (heads, head_dim, n, n), about a megabyte."""
    heads = max(1, 2**18 // (mu_q[0].numel() * mu_q.shape[-1]))
    return zip(*(x.split(heads) for x in (mu_q, *others)))


def raw_scores(q, k, mechanism):
    """(batch, heads, n, m): q . k; or minus the squared W2 distance; or the overlap. Not yet scaled."""
    if mechanism == "softmax":
        return q @ k.transpose(-2, -1)
    if mechanism == "w2":
        return 2 * q @ k.transpose(-2, -1) - k.square().sum(-1)[..., None, :] - q.square().sum(-1)[..., None]
    b = q.shape[0]
    parts = [part.contiguous() for x in (q, k)
             for part in rearrange(x, "b h n (two d) -> two (b h) d n", two=2)]
    return Overlap.apply(*parts).unflatten(0, (b, -1))


def attend(q, k, v, scale, mechanism):
    """Causal softmax(scale * raw_scores) v; scale (heads,). All but the overlap use torch's fused one."""
    scale = scale[:, None, None]
    if mechanism == "overlap":
        n = q.shape[-2]
        later = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
        return (raw_scores(q, k, mechanism) * scale).masked_fill(later, -torch.inf).softmax(-1) @ v
    if mechanism == "w2":
        # The W2 score but for a constant per row, as in augment; in float32 the bias needs one column.
        ones = torch.ones_like(q[..., :1])
        q, k = torch.cat([2 * q, ones], -1), torch.cat([k, -k.square().sum(-1, keepdim=True)], -1)
    width = v.shape[-1]
    v = F.pad(v, (0, q.shape[-1] - width))          # the fused form wants one width
    return F.scaled_dot_product_attention(q * scale, k, v, is_causal=True, scale=1.0)[..., :width]


class AuditAttention(nn.Module):
    """Self-attention that scores by `mechanism`. Its scale is learned, one per head, in all of them."""

    def __init__(self, width, n_heads, mechanism):
        super().__init__()
        self.n_heads, self.mechanism, self.head_dim = n_heads, mechanism, width // n_heads
        wide = width if mechanism == "softmax" else 2 * width
        self.q_proj = nn.Linear(width, wide, bias=False)
        self.k_proj = nn.Linear(width, wide, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.out_proj = nn.Linear(width, width, bias=False)
        # Where the dot-product part starts with the scale of chapter 1; the public overlap has none.
        start = {"softmax": self.head_dim ** -0.5, "w2": 0.5 * (2 * self.head_dim) ** -0.5, "overlap": 1.0}
        self.log_scale = nn.Parameter(torch.full((n_heads,), math.log(start[mechanism])))
        self.wanted_std = self.seen_std = None

    def forward(self, x, rope):
        q, k = self._projected(self.q_proj(x), rope), self._projected(self.k_proj(x), rope)
        if self.wanted_std:
            self._measure(q, k)
        v = rearrange(self.v_proj(x), "b n (h d) -> b h n d", h=self.n_heads)
        heads = attend(q, k, v, self.log_scale.exp(), self.mechanism)
        return self.out_proj(rearrange(heads, "b h n d -> b n (h d)"))

    def _projected(self, projected, rope):
        if self.mechanism == "softmax":
            q = rearrange(projected, "b n (h d) -> b h n d", h=self.n_heads)
            return q if rope is None else apply_rope(q, *rope)
        mu, raw = rearrange(projected, "b n (two h d) -> two b h n d", two=2, h=self.n_heads)
        return torch.cat([mu if rope is None else apply_rope(mu, *rope), F.softplus(raw)], -1)

    @torch.no_grad()
    def _measure(self, q, k):
        """What a softmax sees: the spread of a row's scores around their mean, over keys up to the query."""
        scores = raw_scores(q, k, self.mechanism)
        n = scores.shape[-1]
        allowed = torch.ones(n, n, dtype=torch.bool).tril()
        mean = scores.masked_fill(~allowed, 0).sum(-1) / allowed.sum(-1)
        std = ((scores - mean[..., None]).square() * allowed).sum((0, 2, 3)) / (len(scores) * allowed.sum())
        std = std.sqrt()
        if self.wanted_std > 0:
            self.log_scale.copy_((self.wanted_std / std).log())
        self.seen_std = (std * self.log_scale.exp()).mean().item()


class AuditBlock(nn.Module):
    def __init__(self, attention, width, hidden):
        super().__init__()
        self.attention_norm, self.feed_forward_norm = RMSNorm(width), RMSNorm(width)
        self.attention, self.feed_forward = attention, SwiGLU(width, hidden)

    def forward(self, x, rope):
        x = x + self.attention(self.attention_norm(x), rope)
        return x + self.feed_forward(self.feed_forward_norm(x))


class AuditModel(nn.Module):
    """Two blocks between an embedding and a separate read-out. Input: tokens (batch, n), or with `features`
    vectors (batch, n, n_in), which get no positions. With `shift`, also an embedding of the token before."""

    def __init__(self, n_in, n_out, width, hidden, n_heads, mechanism, features=False, shift=False,
                 n_layers=2):
        super().__init__()
        self.embedding = nn.Linear(n_in, width, bias=False) if features else nn.Embedding(n_in, width)
        self.before = nn.Embedding(n_in, width) if shift else None
        self.blocks = nn.ModuleList(
            AuditBlock(AuditAttention(width, n_heads, mechanism), width, hidden) for _ in range(n_layers))
        self.final_norm = RMSNorm(width)
        self.head = nn.Linear(width, n_out, bias=False)
        self.head_dim, self.positions = width // n_heads, not features
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.orthogonal_(module.weight)

    def forward(self, x, at=None):
        """Logits at every place, (batch, n, n_out), or only at `at` (batch, m): (batch, m, n_out)."""
        rope = rope_table(x.shape[1], self.head_dim) if self.positions else None
        before = F.pad(self.before(x)[:, :-1], (0, 0, 1, 0)) if self.before else 0
        x = self.embedding(x) + before
        for block in self.blocks:
            x = block(x, rope)
        if at is not None:
            x = x.gather(1, at[..., None].expand(-1, -1, x.shape[-1]))
        return self.head(self.final_norm(x))

    @torch.no_grad()
    def start_scores(self, x, std=None):
        """Measure the spread of the scores in each layer; with std, first set every head's scale for it."""
        for block in self.blocks:
            block.attention.wanted_std = std or -1.0
        self(x)
        for block in self.blocks:
            block.attention.wanted_std = None
        return [round(block.attention.seen_std, 4) for block in self.blocks]


def equal_hidden(width, hidden, mechanism):
    """The hidden size with which `mechanism` has no more parameters than softmax with `hidden`."""
    extra = 0 if mechanism == "softmax" else 2 * width * width      # q_proj and k_proj are twice as wide
    return hidden - math.ceil(extra / (3 * width))
