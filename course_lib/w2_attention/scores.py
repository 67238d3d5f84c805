"""Chapter 9: each token is a Gaussian N(mu, diag(sigma^2)), and a score is minus a squared Wasserstein-2 distance.

Shapes: mu_q, sigma_q (batch, heads, n, head_dim), mu_k, sigma_k (batch, heads, m, head_dim), v (batch, heads, m, v_dim);
sigma >= 0. tau is a positive number, or one a head, (heads,). For diagonal Gaussians
W2^2 = |mu_a - mu_b|^2 + |sigma_a - sigma_b|^2.
"""
import math
from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.attention import masked_weights, scaled_dot_product_attention, weighted_sum
from course_lib.rope import apply_rope, rope_table

EPS = 1e-6
FORMS = ("direct", "expanded", "augmented", "kernel", "fused")


def w2_distance(mu_a: Tensor, sigma_a: Tensor, mu_b: Tensor, sigma_b: Tensor) -> Tensor:
    """Wasserstein-2 distance of diagonal Gaussians, over the last axis; the others broadcast."""
    _check_pair(mu_a, sigma_a, mu_b, sigma_b)
    squared = (mu_a - mu_b).square().sum(-1) + (sigma_a - sigma_b).square().sum(-1)
    # The root has an infinite slope at 0: equal Gaussians would give a gradient of NaN.
    apart = squared > 0
    return torch.where(apart, squared, 1.0).sqrt() * apart


def gaussian_w2(mean_a: Tensor, cov_a: Tensor, mean_b: Tensor, cov_b: Tensor) -> Tensor:
    """Wasserstein-2 distance of any two Gaussians: W2^2 = |mean_a - mean_b|^2 + tr(A + B - 2 (A^1/2 B A^1/2)^1/2).

    means (..., d), covariances (..., d, d). To measure with: the gradient through a root is NaN where two eigenvalues agree.
    """
    for name, mean, cov in (("cov_a", mean_a, cov_a), ("cov_b", mean_b, cov_b)):
        if cov.shape[-2:] != (mean.shape[-1],) * 2:
            raise ValueError(f"{name} must be (..., {mean.shape[-1]}, {mean.shape[-1]}); got shape {tuple(cov.shape)}")
        slack, widths = 1e-4 * cov.abs().amax((-2, -1)), torch.linalg.eigvalsh(cov)
        if bool(((cov - cov.mT).abs() > slack[..., None, None]).any() | (widths < -slack[..., None]).any()):
            raise ValueError(f"{name} must be symmetric, its eigenvalues at least 0; got {cov.tolist()}")
    if mean_a.shape[-1] != mean_b.shape[-1]:
        raise ValueError(f"mean_b must be as wide as mean_a, {mean_a.shape[-1]}; got {mean_b.shape[-1]}")
    root_a = _matrix_root(cov_a)
    cross = _matrix_root(root_a @ cov_b @ root_a)
    trace = (cov_a + cov_b - 2 * cross).diagonal(dim1=-2, dim2=-1).sum(-1)
    return ((mean_a - mean_b).square().sum(-1) + trace).clamp_min(0).sqrt()


def gaussian_overlap(mu_a: Tensor, sigma_a: Tensor, mu_b: Tensor, sigma_b: Tensor) -> Tensor:
    """-1/2 (sum (mu_a - mu_b)^2 / (sigma_a + sigma_b) + sum log(sigma_a + sigma_b)), sigma in the place of a variance.

    Up to a constant the logarithm of the integral of the product of two densities. Not a distance: it is what the
    public code that goes by the name of W2 attention scores with.
    """
    _check_pair(mu_a, sigma_a, mu_b, sigma_b)
    total = sigma_a + sigma_b
    return -0.5 * ((mu_a - mu_b).square() / total + total.log()).sum(-1)


def w2_scores(mu_q: Tensor, sigma_q: Tensor, mu_k: Tensor, sigma_k: Tensor, tau, form: str = "direct") -> Tensor:
    """-(|mu_q - mu_k|^2 + |sigma_q - sigma_k|^2) / (tau + eps): (batch, heads, n, m).

    "direct" forms every difference, (n, m, 2 head_dim) numbers. "expanded" uses |q|^2 + |k|^2 - 2 q.k after moving the
    origin to the first key; what rounding leaves below 0 is 0.
    """
    q, k = _joined(mu_q, sigma_q, mu_k, sigma_k)
    if form == "direct":
        squared = (q[..., :, None, :] - k[..., None, :, :]).square().sum(-1)
    elif form == "expanded":
        q, k = _centred(q, k)
        squared = q.square().sum(-1)[..., None] + k.square().sum(-1)[..., None, :] - 2 * q @ k.transpose(-2, -1)
        squared = squared.clamp_min(0)
    else:
        raise ValueError(f'form must be "direct" or "expanded" for scores; got {form!r}')
    # A distance that overflows is very far, not infinitely far: a row of -inf has no softmax, and 0 times inf no gradient.
    # A NaN that came in goes out: only the expanded form makes NaN of its own, inf - inf, where it overflows.
    broken = q.isnan().any(-1)[..., None] | k.isnan().any(-1)[..., None, :]
    far, least = ~(squared.isfinite() | broken), torch.finfo(squared.dtype).min
    return (-squared.masked_fill(far, 0) * (1 / _temperature(tau, q))).clamp_min(least).masked_fill(far, least)


def augment(mu_q: Tensor, sigma_q: Tensor, mu_k: Tensor, sigma_k: Tensor, tau) -> tuple[Tensor, Tensor]:
    """(q, k) whose plain dot products are the W2 scores plus a constant a row: (b, h, n, 2 head_dim + 2) each.

    |q|^2 is the same for all keys of a row and cancels in softmax. What is left is (2 / tau) q.k - |k|^2 / tau. The
    second part takes two columns, its value rounded to the dtype of q and what that rounding left out: one column of
    bfloat16 would err by up to half a unit. All must fit the range of that dtype, which float16 leaves with a small tau.
    The origin stays where it is, so a key's row depends on this key alone and may be turned or cached.
    """
    return _in_columns(*_as_dot_product(*_joined(mu_q, sigma_q, mu_k, sigma_k), tau))


def w2_attention(mu_q: Tensor, sigma_q: Tensor, mu_k: Tensor, sigma_k: Tensor, v: Tensor, tau,
                 mask: Tensor | None = None, causal: bool = False, form: str = "direct") -> Tensor:
    """softmax(w2_scores + mask) v: (batch, heads, n, v_dim). Five forms, one answer.

    "direct" and "expanded" build the scores; "augmented" is dot-product attention of width 2 head_dim + 2; "kernel" is
    chapter 6's flash kernel with a bias a key, and "fused" this chapter's own. The last two never build n x m numbers
    and take no mask but causal.
    """
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}; got {form!r}")
    check_gaussians(mu_q, sigma_q, mu_k, sigma_k)
    check_values(v, mu_k)
    if form in ("kernel", "fused") and mask is not None:
        raise ValueError(f"mask must be None for a kernel, which knows causal only; got a {type(mask).__name__}: use another form")
    if form in ("augmented", "kernel"):
        q, k, bias = _as_dot_product(*_joined(mu_q, sigma_q, mu_k, sigma_k), tau, centred=True)
        if form == "augmented":
            return scaled_dot_product_attention(*_in_columns(q, k, bias), v, mask, causal, scale=1.0)
        from course_lib.flash_attention import flash_attention

        return flash_attention(q, k, v, causal, scale=1.0, key_bias=bias)
    if form == "fused":
        from course_lib.w2_attention.kernels import w2_flash_attention

        return w2_flash_attention(mu_q, sigma_q, mu_k, sigma_k, v, tau, causal)
    dtype = mu_q.dtype
    inputs = [x.float() if x.dtype in (torch.float16, torch.bfloat16) else x for x in (mu_q, sigma_q, mu_k, sigma_k, v)]
    weights, allowed = masked_weights(w2_scores(*inputs[:4], tau, form), mask, causal)
    return weighted_sum(weights, inputs[4], allowed).to(dtype)


class W2Attention(nn.Module):
    """Self-attention by W2 distance. One stream of hidden states: queries and keys are projected to means and raw
    widths, widths pass through softplus, RoPE turns the means (and only them: a width has no direction). tau is learned,
    one a head."""

    def __init__(self, d_model: int, n_heads: int, tau: float | None = None, form: str = "expanded"):
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(f"d_model must be a multiple of n_heads; got {d_model} and {n_heads}")
        self.d_model, self.n_heads, self.form = d_model, n_heads, form
        self.q_proj = nn.Linear(d_model, 2 * d_model, bias=False)
        self.k_proj = nn.Linear(d_model, 2 * d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)
        # With this tau the dot-product part has the scale 1 / sqrt(width), as in chapter 1.
        start = 2 * math.sqrt(2 * d_model / n_heads) if tau is None else tau
        if not start > 0:
            raise ValueError(f"tau must be positive; got {tau!r}")
        self.log_tau = nn.Parameter(torch.full((n_heads,), math.log(start)))

    @property
    def tau(self) -> Tensor:
        return self.log_tau.exp()

    def forward(self, x: Tensor, rope=None, mask: Tensor | None = None, causal: bool = True) -> Tensor:
        """x (batch, n, d_model) -> (batch, n, d_model); rope is a pair (cos, sin) or None."""
        if x.dim() != 3 or x.shape[-1] != self.d_model:
            raise ValueError(f"x must be (batch, n, {self.d_model}); got shape {tuple(x.shape)}")
        mu_q, sigma_q = self._gaussians(self.q_proj(x), rope)
        mu_k, sigma_k = self._gaussians(self.k_proj(x), rope)
        v = rearrange(self.v_proj(x), "b n (h d) -> b h n d", h=self.n_heads)
        heads = w2_attention(mu_q, sigma_q, mu_k, sigma_k, v, self.tau, mask, causal, self.form)
        return self.out_proj(rearrange(heads, "b h n d -> b n (h d)"))

    def _gaussians(self, projected, rope):
        mu, raw = rearrange(projected, "b n (two h d) -> two b h n d", two=2, h=self.n_heads)
        return (mu if rope is None else apply_rope(mu, *rope)), F.softplus(raw)


class RotaryEmbedding(nn.Module):
    """The table of angles as a module: rotary(x, seq_len=n) -> (cos, sin), each (n, head_dim / 2)."""

    def __init__(self, head_dim: int, base: float = 10000.0):
        super().__init__()
        self.head_dim, self.base = head_dim, base

    def forward(self, x: Tensor, seq_len: int) -> tuple[Tensor, Tensor]:
        return rope_table(seq_len, self.head_dim, self.base, device=x.device, dtype=x.dtype)


@dataclass
class W2Config:
    hidden_size: int = 64
    num_attention_heads: int = 4
    intermediate_size: int = 256
    rms_norm_eps: float = 1e-6


class W2TransformerBlock(nn.Module):
    """W2 attention and a gated feed-forward, each behind an RMSNorm and added to the stream. config needs the fields
    of W2Config."""

    def __init__(self, config):
        super().__init__()
        size, hidden = config.hidden_size, config.intermediate_size
        self.attention_norm = nn.RMSNorm(size, eps=config.rms_norm_eps)
        self.attention = W2Attention(size, config.num_attention_heads)
        self.feed_forward_norm = nn.RMSNorm(size, eps=config.rms_norm_eps)
        self.gate, self.up = nn.Linear(size, hidden, bias=False), nn.Linear(size, hidden, bias=False)
        self.down = nn.Linear(hidden, size, bias=False)

    def forward(self, hidden_states: Tensor, rotary_emb_outputs=None, attention_mask: Tensor | None = None) -> Tensor:
        """(batch, n, hidden_size) -> the same. Causal unless attention_mask, as of chapter 1, says otherwise."""
        x = hidden_states
        causal = attention_mask is None
        x = x + self.attention(self.attention_norm(x), rotary_emb_outputs, attention_mask, causal)
        y = self.feed_forward_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def _matrix_root(matrix: Tensor) -> Tensor:
    """The symmetric root of a symmetric positive semi-definite matrix."""
    values, vectors = torch.linalg.eigh((matrix + matrix.transpose(-2, -1)) / 2)
    return vectors * values.clamp_min(0).sqrt()[..., None, :] @ vectors.transpose(-2, -1)


def _joined(mu_q, sigma_q, mu_k, sigma_k):
    """[mu; sigma] of queries and keys: the distance does not care which half is which."""
    check_gaussians(mu_q, sigma_q, mu_k, sigma_k)
    return torch.cat([mu_q, sigma_q], -1), torch.cat([mu_k, sigma_k], -1)


def _centred(q, k):
    """Both with the origin at the first key. No difference changes, and where all lie far out the squares stay small,
    so that |q|^2 + |k|^2 - 2 q.k does not cancel. (The mean of the keys would do as well, but would let later keys touch
    the rounding of earlier rows.)"""
    centre = k[..., :1, :].detach() if k.shape[-2] else 0
    return q - centre, k - centre


def _as_dot_product(q, k, tau, centred=False):
    """(2 / tau) q and k in their own dtype, and -|k|^2 / tau of the rounded k, (b, h, m) in float32 or float64."""
    dtype, wide = q.dtype, torch.promote_types(q.dtype, torch.float32)
    q, k = q.to(wide), k.to(wide)
    if centred:
        q, k = _centred(q, k)
    k, temperature = k.to(dtype), _temperature(tau, q)
    bias = (-k.to(wide).square().sum(-1) / temperature[..., 0]).clamp_min(torch.finfo(wide).min)
    return (q * 2 / temperature).to(dtype), k, bias


def _in_columns(q, k, bias):
    least = torch.finfo(k.dtype).min
    high = bias.clamp_min(least).to(k.dtype)
    low = (bias - high.to(bias.dtype)).clamp_min(least).to(k.dtype)
    ones = torch.ones_like(q[..., :1])
    return torch.cat([q, ones, ones], -1), torch.cat([k, high[..., None], low[..., None]], -1)


def _temperature(tau, q):
    """tau + eps, shaped to divide (batch, heads, n, m)."""
    return check_tau(tau, q).reshape(-1, 1, 1) + EPS


def check_tau(tau, q):
    """tau as a tensor of the dtype and device of q, (1,) or (heads,)."""
    if tau is None or isinstance(tau, str):
        raise ValueError(f"tau must be a number or one a head, ({q.shape[1]},); got {tau!r}")
    tau = torch.as_tensor(tau, dtype=q.dtype, device=q.device)
    if tau.dim() > 1 or (tau.dim() == 1 and len(tau) != q.shape[1]):
        raise ValueError(f"tau must be a number or one a head, ({q.shape[1]},); got shape {tuple(tau.shape)}")
    if not bool((tau >= 0).all()):
        raise ValueError(f"tau must be at least 0; got {tau.min().item():.4g}")
    return tau.reshape(-1)


def check_gaussians(mu_q, sigma_q, mu_k, sigma_k):
    named = {"mu_q": mu_q, "sigma_q": sigma_q, "mu_k": mu_k, "sigma_k": sigma_k}
    for name, x in named.items():
        if not isinstance(x, Tensor) or x.dim() != 4 or not x.is_floating_point():
            got = f"{x.dtype} of shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"{name} must be floating-point, (batch, heads, n, head_dim); got {got}")
        if x.dtype != mu_q.dtype or x.device != mu_q.device:
            raise ValueError(f"{name} must have the dtype and device of mu_q, {mu_q.dtype} on {mu_q.device}; "
                             f"got {x.dtype} on {x.device}")
    for mu, sigma in (("mu_q", "sigma_q"), ("mu_k", "sigma_k")):
        if named[mu].shape != named[sigma].shape:
            raise ValueError(f"{sigma} must have the shape of {mu}, {tuple(named[mu].shape)}; "
                             f"got {tuple(named[sigma].shape)}")
        _check_widths(sigma, named[sigma])
    if mu_k.shape[:2] != mu_q.shape[:2] or mu_k.shape[-1] != mu_q.shape[-1]:
        raise ValueError(f"mu_k must have the batch, heads and head_dim of mu_q, {tuple(mu_q.shape)}; "
                         f"got {tuple(mu_k.shape)}")


def _check_pair(mu_a, sigma_a, mu_b, sigma_b):
    for letter, mu, sigma in (("a", mu_a, sigma_a), ("b", mu_b, sigma_b)):
        if not isinstance(mu, Tensor) or not isinstance(sigma, Tensor) or mu.shape[-1:] != sigma.shape[-1:]:
            got = [tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__ for x in (mu, sigma)]
            raise ValueError(f"sigma_{letter} must be a width for each entry of mu_{letter}; got {got[1]} and {got[0]}")
        _check_widths(f"sigma_{letter}", sigma)
    if mu_a.shape[-1:] != mu_b.shape[-1:]:
        raise ValueError(f"mu_b must be as wide as mu_a, {tuple(mu_a.shape)}; got shape {tuple(mu_b.shape)}")


def _check_widths(name, sigma):
    if not bool((sigma >= 0).all()):
        raise ValueError(f"{name} must be at least 0; got {sigma.min().item():.4g}")


def check_values(v, mu_k):
    if not isinstance(v, Tensor) or v.shape[:-1] != mu_k.shape[:-1] or v.dtype != mu_k.dtype or v.device != mu_k.device:
        got = f"{v.dtype} on {v.device}, {tuple(v.shape)}" if isinstance(v, Tensor) else type(v).__name__
        raise ValueError(f"v must be (batch, heads, m, v_dim) with {tuple(mu_k.shape[:-1])}, {mu_k.dtype} on "
                         f"{mu_k.device}; got {got}")
