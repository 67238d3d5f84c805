"""Chapter 1: softmax, masks, scaled dot-product attention.

Shapes: q is (batch, heads, n, head_dim), k is (batch, heads, m, head_dim), v is (batch, heads, m, v_dim).
A mask broadcasts to (batch, heads, n, m): boolean (True = may attend) or floating (added to the scores)."""
import math

import torch
from torch.nn import functional as F

from course_lib.checks import check_attention, check_axis, check_lengths, check_mask, check_sizes
from course_lib.launching import widened


def softmax(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """exp(x) / sum(exp(x)) along dim, safe against overflow. A row of -inf gives NaN, as in torch."""
    check_axis(x, dim, scalar=True)
    if x.numel() == 0:
        return x.clone()
    (wide,) = widened(x)
    # Subtract the largest entry: the quotient is the same (shift invariance), and no exponent is above 0.
    numerator = torch.exp(wide - wide.amax(dim, keepdim=True).detach())
    return (numerator / numerator.sum(dim, keepdim=True)).to(x.dtype)


def online_softmax(x: torch.Tensor) -> torch.Tensor:
    """softmax over the last axis that finds maximum and sum in one pass, entry by entry."""
    check_axis(x, -1)
    (wide,) = widened(x)
    largest = wide.new_full(x.shape[:-1], -math.inf)
    total = torch.zeros_like(largest)
    for entry in wide.unbind(-1):
        new_largest = torch.maximum(largest, entry)
        # Before the first finite entry the maximum is -inf, and -inf - -inf would be NaN: subtract 0 instead.
        shift = new_largest.masked_fill(new_largest == -math.inf, 0)
        total = total * torch.exp(largest - shift) + torch.exp(entry - shift)
        largest = new_largest
    return (torch.exp(wide - largest[..., None]) / total[..., None]).to(x.dtype)


def causal_mask(n_q: int, n_k: int | None = None, device=None) -> torch.Tensor:
    """(n_q, n_k), True where query i may see key j. The *last* query sees the last key, always."""
    n_k = n_q if n_k is None else n_k
    check_sizes(0, n_q=n_q, n_k=n_k)
    return torch.ones(n_q, n_k, dtype=torch.bool, device=device).tril(n_k - n_q)


def padding_mask(lengths, n: int) -> torch.Tensor:
    """(batch, 1, 1, n), True for the first lengths[b] keys of sequence b."""
    lengths = check_lengths(lengths, n)
    return (torch.arange(n, device=lengths.device) < lengths[:, None])[:, None, None, :]


def scaled_dot_product_attention(q, k, v, mask=None, causal=False, scale=None, dropout=0.0,
                                 return_weights=False):
    """softmax(q k^T * scale + mask) v: (batch, heads, n, v_dim).

    A query with nothing to attend to gives 0. scale is 1/sqrt(head_dim) unless given.
    A hidden key or value may be NaN without an effect on the outputs; the gradients become NaN.
    With return_weights, returns (output, weights); the weights are those before dropout.
    """
    check_attention(q, k, v, scale, dropout)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    dtype = q.dtype
    q, k, v = widened(q, k, v)     # half precision in and out, float inside

    scores = q @ k.transpose(-2, -1) * scale
    weights, allowed = masked_weights(scores, mask, causal)
    kept = F.dropout(weights, dropout) if dropout else weights
    output = weighted_sum(kept, v, allowed).to(dtype)
    return (output, weights.to(dtype)) if return_weights else output


def masked_weights(scores, mask=None, causal=False):
    """softmax of the scores (batch, heads, n, m) over the keys that a query may see; 0 where it may see none.

    Returns the weights and the boolean mask that was used, or None if nothing is hidden.
    """
    allowed, bias = _read_mask(mask, causal, scores)
    if bias is not None:
        scores = scores + bias
    if allowed is None:
        return softmax(scores), None
    # Fill, never multiply: 0 * -inf is NaN. A row with nothing allowed gets finite scores before softmax
    # and zeros after it, so that neither the value nor the gradient is NaN.
    empty = ~allowed.any(-1, keepdim=True)
    scores = scores.masked_fill(~allowed, -math.inf).masked_fill(empty, 0)
    return softmax(scores).masked_fill(empty, 0), allowed


def weighted_sum(weights, v, allowed):
    """weights @ v. A hidden value has no effect, not even a NaN, although 0 * NaN is NaN."""
    output = weights @ v
    if allowed is None:
        return output
    broken = ~torch.isfinite(v)
    if not broken.any():
        return output
    sees_broken = (allowed.expand(weights.shape).to(v.dtype) @ broken.to(v.dtype)) > 0
    return torch.where(sees_broken, output, weights @ v.masked_fill(broken, 0))


def _read_mask(mask, causal, scores):
    """(allowed, bias): the keys that a query may see, boolean or None; the bias of its scores, or None."""
    allowed = bias = None
    if mask is not None:
        check_mask(mask, scores.shape, scores.device)
        if mask.dtype == torch.bool:
            allowed = mask
        else:
            allowed, bias = mask != -math.inf, mask.to(scores.dtype)
    if causal:
        triangle = causal_mask(*scores.shape[-2:], device=scores.device)
        allowed = triangle if allowed is None else allowed & triangle
    return allowed, bias
