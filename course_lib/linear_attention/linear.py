"""Chapter 4: attention whose cost grows with n, not with n^2.

softmax weighs a key by exp(q . k). With phi(q) . phi(k) instead, a product of m features, the sums over
keys do not depend on the query: S = sum of phi(k) v^T, (m, v_dim), and z = sum of phi(k), which divides.

Shapes: q, k (batch, heads, n, head_dim), v (batch, heads, n, v_dim); a state is the pair (S, z)."""
import math
from collections.abc import Callable

import torch
from einops import einsum, rearrange
from torch import Tensor
from torch.nn import functional as F

from course_lib.attention import causal_mask, weighted_sum
from course_lib.checks.linear_attention import (check_feature_map, check_linear, check_not_negative,
                                                check_state)
from course_lib.launching import widened


def taylor_features(x: Tensor) -> Tensor:
    """1 + d + d^2 features whose product is 1 + s + s^2 / 2, exp(s) to second order; s = q . k / sqrt(d)."""
    x = x * x.shape[-1] ** -0.25
    squares = einsum(x, x, "... i, ... j -> ... i j").flatten(-2) / math.sqrt(2)
    return torch.cat([torch.ones_like(x[..., :1]), x, squares], -1)


FEATURE_MAPS = {"elu": lambda x: F.elu(x) + 1, "relu": F.relu, "identity": lambda x: x,
                "taylor": taylor_features}
# Taylor features may be negative, but 1 + s + s^2 / 2 never is.
POSITIVE_PRODUCTS = [FEATURE_MAPS[name] for name in ("elu", "relu", "taylor")]


def feature_map(name: str | Callable[[Tensor], Tensor],
                normalise: bool = False) -> Callable[[Tensor], Tensor]:
    """phi by name: "elu" (elu(x) + 1), "relu", "taylor", "identity"; or any function (..., d) -> (..., m)."""
    check_feature_map(name, FEATURE_MAPS, normalise)
    return name if callable(name) else FEATURE_MAPS[name]


features_of = feature_map       # linear_attention has a parameter of that name


def linear_attention(q: Tensor, k: Tensor, v: Tensor, feature_map="elu", causal: bool = False,
                     form: str = "parallel", chunk_size: int = 64, state=None, return_state: bool = False,
                     normalise: bool = True):
    """sum_j phi(q_i).phi(k_j) v_j, divided by sum_j phi(q_i).phi(k_j): (batch, heads, n, v_dim).

    The three forms give the same numbers. If causal, "parallel" builds the n x n matrix, "recurrent"
    carries the state from token to token, "chunked" does the first inside chunks and the second between
    them. state is (S, z) of earlier tokens, which all queries see; with return_state the new one is
    returned too. A query whose weights are all 0 gets 0."""
    phi = features_of(feature_map, normalise)
    check_linear(q, k, v, causal, form, FORMS, chunk_size)
    dtype = q.dtype
    q, k, v = widened(phi(widened(q)[0]), phi(widened(k)[0]), v)
    if normalise and phi not in POSITIVE_PRODUCTS:
        check_not_negative(q, k)
    s, z = read_state(state, k, v)
    if causal:
        top, bottom, s, z = FORMS[form](q, k, v, s, z, chunk_size)
    else:
        s, z = s + k.transpose(-2, -1) @ v, z + k.sum(-2)
        top, bottom = q @ s, q @ z[..., None]
    out = top
    if normalise:
        out = torch.where(bottom == 0, 0, top / torch.where(bottom == 0, 1, bottom))
    return (out.to(dtype), (s, z)) if return_state else out.to(dtype)


def read_state(state, k, v):
    """(S, z) in the dtype of the features k; zeros if there is no state."""
    shapes = [(*k.shape[:2], k.shape[-1], v.shape[-1]), (*k.shape[:2], k.shape[-1])]
    if state is None:
        return tuple(k.new_zeros(shape) for shape in shapes)
    check_state(state, shapes)
    return tuple(x.to(k.dtype) for x in state)


def parallel_form(q, k, v, s, z, chunk_size):
    weights = (q @ k.transpose(-2, -1)).tril()
    top = weighted_sum(weights, v, causal_mask(*weights.shape[-2:], v.device)) + q @ s
    bottom = weights.sum(-1, keepdim=True) + q @ z[..., None]
    return top, bottom, s + k.transpose(-2, -1) @ v, z + k.sum(-2)


def recurrent_form(q, k, v, s, z, chunk_size):
    tops, bottoms = [], []
    for q_t, k_t, v_t in zip(q.unbind(2), k.unbind(2), v.unbind(2)):
        s = s + k_t[..., :, None] * v_t[..., None, :]
        z = z + k_t
        tops.append((q_t[..., None, :] @ s)[..., 0, :])
        bottoms.append((q_t * z).sum(-1, keepdim=True))
    if not tops:
        return q @ s, q @ z[..., None], s, z
    return torch.stack(tops, 2), torch.stack(bottoms, 2), s, z


def chunked_form(q, k, v, s, z, chunk_size):
    n = q.shape[2]
    # (b, h, chunks, chunk_size, ...): the last chunk is padded with zeros, which add nothing
    q, k, v = (pad_to_chunks(x, chunk_size) for x in (q, k, v))
    s_after = s[:, :, None] + (k.transpose(-2, -1) @ v).cumsum(2)
    z_after = z[:, :, None] + k.sum(-2).cumsum(2)
    s_before = torch.cat([s[:, :, None], s_after], 2)
    z_before = torch.cat([z[:, :, None], z_after], 2)
    weights = (q @ k.transpose(-2, -1)).tril()
    top = weighted_sum(weights, v, causal_mask(chunk_size, device=v.device)) + q @ s_before[:, :, :-1]
    bottom = weights.sum(-1, keepdim=True) + q @ z_before[:, :, :-1, :, None]
    top, bottom = (rearrange(x, "b h c l d -> b h (c l) d")[:, :, :n] for x in (top, bottom))
    return top, bottom, s_before[:, :, -1], z_before[:, :, -1]


FORMS = {"parallel": parallel_form, "recurrent": recurrent_form, "chunked": chunked_form}


def pad_to_chunks(x: Tensor, chunk_size: int) -> Tensor:
    """(b, h, n, d) -> (b, h, chunks, chunk_size, d), the last chunk padded with zeros."""
    x = F.pad(x, (0, 0, 0, -x.shape[2] % chunk_size))
    return x.unflatten(2, (x.shape[2] // chunk_size, chunk_size))
