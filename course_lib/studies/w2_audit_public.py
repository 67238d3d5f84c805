"""The audited model on four days: github.com/ytfh44/W2Attn, written anew from its formulas.

One transformer, five scores: "softmax", the repository's baseline, and what its W2Attention computed by
commit. Fixed scales, widths of softplus + 1e-4, RoPE on the halves of a head, LayerNorm at the end: nothing
is harmonised."""
import torch
from einops import rearrange
from torch import nn
from torch.nn import functional as F

from course_lib.rope import apply_rope, rope_table
from course_lib.studies.w2_audit_models import AuditBlock, Overlap

LEAST_WIDTH = 1e-4
# The repository's logs, one run each: commit, length, model, loss after 500 steps, seconds, megabytes.
LOGGED = [("1f86662", 128, "standard", 3.6821, 9.99, 192.33), ("1f86662", 128, "W2", 3.4479, 37.73, 1475.04),
          ("48beca8", 128, "standard", 6.9408, 14.53, 192.27), ("48beca8", 128, "W2", 6.8316, 20.43, 197.59),
          ("48beca8", 512, "standard", 6.9443, 15.05, 175.69), ("48beca8", 512, "W2", 6.9401, 19.67, 226.66)]


def exact(mu_q, sigma_q, mu_k, sigma_k, turn=nn.Identity()):
    """Commit 2fec742: minus the squared W2 distance (there over a learned temperature, which starts at 1)."""
    return -(pairs(turn(mu_q), turn(mu_k)) + pairs(sigma_q, sigma_k))


def overlap(mu_q, sigma_q, mu_k, sigma_k, turn=nn.Identity()):
    """Commit 1f86662, behind the published losses: the Gaussians' overlap, sigma taken for a variance."""
    parts = [rearrange(x, "b h n d -> (b h) d n").contiguous()
             for x in (turn(mu_q), sigma_q, turn(mu_k), sigma_k)]
    return Overlap.apply(*parts).unflatten(0, mu_q.shape[:2])


def scalar(mu_q, sigma_q, mu_k, sigma_k, turn=nn.Identity()):
    """Commit 48beca8, behind the published time and memory: the overlap, one width per token, the mean."""
    total = sigma_q.mean(-1)[..., :, None] + sigma_k.mean(-1)[..., None, :]
    return -0.5 * (pairs(turn(mu_q), turn(mu_k)) / total + mu_q.shape[-1] * total.log())


def separable(mu_q, sigma_q, mu_k, sigma_k, turn=nn.Identity()):
    """Commits f62f38f to the newest: each mean is divided by the root of its own width alone.

    RoPE is applied after the division, as it is since commit 6fbcd8d."""
    log_det = sigma_q.log().sum(-1)[..., :, None] + sigma_k.log().sum(-1)[..., None, :]
    return -0.5 * (pairs(turn(mu_q / sigma_q.sqrt()), turn(mu_k / sigma_k.sqrt())) + log_det)


def pairs(a, b):
    """|a_i - b_j|^2 of all pairs: (..., n, m)."""
    return a.square().sum(-1)[..., :, None] + b.square().sum(-1)[..., None, :] - 2 * a @ b.transpose(-2, -1)


SCORES = {"exact": exact, "overlap": overlap, "scalar": scalar, "separable": separable}


class PublicAttention(nn.Module):
    def __init__(self, width, n_heads, score):
        super().__init__()
        self.n_heads, self.score = n_heads, score
        wide = width if score == "softmax" else 2 * width
        self.q_proj, self.k_proj = nn.Linear(width, wide, bias=False), nn.Linear(width, wide, bias=False)
        self.v_proj, self.out_proj = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x, rope):
        v = rearrange(self.v_proj(x), "b n (h d) -> b h n d", h=self.n_heads)
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        weights = self.scores(self.q_proj(x), self.k_proj(x), rope).masked_fill(later, -torch.inf).softmax(-1)
        return self.out_proj(rearrange(weights @ v, "b h n d -> b n (h d)"))

    def scores(self, q, k, rope):
        def turn(x):
            return apply_rope(x, *rope, layout="half")

        q, k = (rearrange(x, "b n (h d) -> b h n d", h=self.n_heads) for x in (q, k))
        if self.score == "softmax":
            return turn(q) @ turn(k).mT / q.shape[-1] ** 0.5
        (mu_q, raw_q), (mu_k, raw_k) = q.chunk(2, -1), k.chunk(2, -1)
        sigma_q, sigma_k = F.softplus(raw_q) + LEAST_WIDTH, F.softplus(raw_k) + LEAST_WIDTH
        return SCORES[self.score](mu_q, sigma_q, mu_k, sigma_k, turn)


class PublicModel(nn.Module):
    """tokens (batch, n) -> logits (batch, n, vocab_size)."""

    def __init__(self, vocab_size, width, hidden, n_heads, score, n_layers=2):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.blocks = nn.ModuleList(
            AuditBlock(PublicAttention(width, n_heads, score), width, hidden) for _ in range(n_layers))
        self.final_norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab_size, bias=False)
        self.head_dim = width // n_heads
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.orthogonal_(module.weight)

    def forward(self, tokens):
        rope = rope_table(tokens.shape[1], self.head_dim)
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, rope)
        return self.head(self.final_norm(x))
