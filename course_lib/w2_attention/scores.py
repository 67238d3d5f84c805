"""W2 scores, minus a squared distance over tau, and the same scores as dot products.

Shapes: mu_q, sigma_q (batch, heads, n, head_dim), mu_k, sigma_k (batch, heads, m, head_dim); sigma >= 0. tau
is a positive number, or (heads,), one per head."""
import torch
from torch import Tensor

from course_lib.checks.w2_attention import check_gaussians, check_score_form, check_tau

EPS = 1e-6      # added to tau


def w2_scores(mu_q: Tensor, sigma_q: Tensor, mu_k: Tensor, sigma_k: Tensor, tau,
              form: str = "direct") -> Tensor:
    """-(|mu_q - mu_k|^2 + |sigma_q - sigma_k|^2) / (tau + eps): (batch, heads, n, m).

    "direct" forms every difference, n x m x 2 head_dim numbers. "expanded" uses |q|^2 + |k|^2 - 2 q.k after
    moving the origin to the first key, and clamps to 0 what rounding leaves below it."""
    check_score_form(form)
    q, k = joined(mu_q, sigma_q, mu_k, sigma_k)
    if form == "direct":
        squared = (q[..., :, None, :] - k[..., None, :, :]).square().sum(-1)
    else:
        q, k = _centred(q, k)
        q_squared, k_squared = q.square().sum(-1), k.square().sum(-1)
        squared = q_squared[..., None] + k_squared[..., None, :] - 2 * q @ k.transpose(-2, -1)
        squared = squared.clamp_min(0)
    # A squared distance that overflows becomes the lowest finite score: a row of -inf has no softmax, and 0
    # times inf no gradient. A NaN in the input stays NaN; the expanded form also makes NaN, inf - inf, where
    # it overflows.
    broken = q.isnan().any(-1)[..., None] | k.isnan().any(-1)[..., None, :]
    far, least = ~(squared.isfinite() | broken), torch.finfo(squared.dtype).min
    scores = -squared.masked_fill(far, 0) * (1 / _temperature(tau, q))
    return scores.clamp_min(least).masked_fill(far, least)


def augment(mu_q: Tensor, sigma_q: Tensor, mu_k: Tensor, sigma_k: Tensor, tau) -> tuple[Tensor, Tensor]:
    """(q, k) whose dot products are the W2 scores plus a constant per row: (b, h, n, 2 head_dim + 2) each.

    |q|^2 is the same for all keys of a row and cancels in softmax, which leaves (2 / tau) q.k - |k|^2 / tau.
    The second term takes two columns: its value rounded to the dtype of q, and the rounding error. A single
    column of bfloat16 would err by up to half a unit. Both must fit the range of that dtype; in float16 a
    small tau overflows it. The origin stays, so a key's row depends on it alone and may be cached."""
    return in_columns(*product_and_bias(*joined(mu_q, sigma_q, mu_k, sigma_k), tau))


def joined(mu_q, sigma_q, mu_k, sigma_k):
    """[mu; sigma] of queries and keys: the distance treats both halves alike."""
    check_gaussians(mu_q, sigma_q, mu_k, sigma_k)
    return torch.cat([mu_q, sigma_q], -1), torch.cat([mu_k, sigma_k], -1)


def product_and_bias(q, k, tau, centred=False):
    """(2 / tau) q and k in their own dtype, and -|k|^2 / tau of the rounded k, (b, h, m), float32 or 64."""
    dtype, wide = q.dtype, torch.promote_types(q.dtype, torch.float32)
    q, k = q.to(wide), k.to(wide)
    if centred:
        q, k = _centred(q, k)
    k, temperature = k.to(dtype), _temperature(tau, q)
    bias = (-k.to(wide).square().sum(-1) / temperature[..., 0]).clamp_min(torch.finfo(wide).min)
    return (q * 2 / temperature).to(dtype), k, bias


def in_columns(q, k, bias):
    """The bias per key as two more columns: ones in q; in k the bias rounded, and the rounding error."""
    least = torch.finfo(k.dtype).min
    high = bias.clamp_min(least).to(k.dtype)
    low = (bias - high.to(bias.dtype)).clamp_min(least).to(k.dtype)
    ones = torch.ones_like(q[..., :1])
    return torch.cat([q, ones, ones], -1), torch.cat([k, high[..., None], low[..., None]], -1)


def _centred(q, k):
    """Both with the origin at the first key. Differences do not change, and the squares of points far from 0
    become small, so that |q|^2 + |k|^2 - 2 q.k does not cancel. (The mean of the keys would serve as well,
    but then later keys would change the rounding of earlier rows.)"""
    centre = k[..., :1, :].detach() if k.shape[-2] else 0
    return q - centre, k - centre


def _temperature(tau, q):
    """tau + eps, shaped to divide (batch, heads, n, m)."""
    return check_tau(tau, q).reshape(-1, 1, 1) + EPS
