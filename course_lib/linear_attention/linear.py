"""Chapter 4: attention whose cost grows with n, not with n^2.

softmax weighs a key by exp(q . k). Replace that by phi(q) . phi(k), a product of m features, and the sums over keys can be
taken before any query comes: S = sum of phi(k) v^T, a matrix (m, v_dim), and z = sum of phi(k), its normaliser.

Shapes: q, k (batch, heads, n, head_dim), v (batch, heads, n, v_dim); a state is the pair (S, z).
"""
import math
from collections.abc import Callable

import torch
from einops import einsum, rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.linear_attention import tensor_core as linear_tensor_core
from course_lib.attention import causal_mask, scaled_dot_product_attention, weighted_sum
from course_lib.checks import check_alike, check_sequence
from course_lib.linear_attention.delta import (check_chunk_size, check_for_kernel, delta_rule, delta_rule_kernel,
                                   gated_linear_attention, pad_to_chunks, widened)

__all__ = ["feature_map", "linear_attention", "performer_features", "positive_features", "performer_attention",
           "LinformerAttention", "delta_rule", "gated_linear_attention", "linear_attention_kernel", "delta_rule_kernel"]


def taylor_features(x: Tensor) -> Tensor:
    """1 + d + d^2 features whose product is 1 + s + s^2 / 2 for s = q . k / sqrt(d): exp(s) to second order."""
    x = x * x.shape[-1] ** -0.25
    squares = einsum(x, x, "... i, ... j -> ... i j").flatten(-2) / math.sqrt(2)
    return torch.cat([torch.ones_like(x[..., :1]), x, squares], -1)


FEATURE_MAPS = {"elu": lambda x: F.elu(x) + 1, "relu": F.relu, "identity": lambda x: x, "taylor": taylor_features}
# Taylor features may be negative, but 1 + s + s^2 / 2 never is.
POSITIVE_PRODUCTS = [FEATURE_MAPS[name] for name in ("elu", "relu", "taylor")]


def feature_map(name: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """phi by name: "elu" (elu(x) + 1), "relu", "taylor" (second order), "identity"; or any function (..., d) -> (..., m)."""
    if callable(name):
        return name
    if name not in FEATURE_MAPS:
        raise ValueError(f"feature_map must be a function or one of {', '.join(FEATURE_MAPS)}; got {name!r}")
    return FEATURE_MAPS[name]


def linear_attention(q: Tensor, k: Tensor, v: Tensor, feature_map="elu", causal: bool = False, form: str = "parallel",
                     chunk_size: int = 64, state=None, return_state: bool = False, normalise: bool = True):
    """sum_j phi(q_i).phi(k_j) v_j, divided by sum_j phi(q_i).phi(k_j): (batch, heads, n, v_dim).

    The three forms give one answer. "parallel" builds the n x n matrix when causal, "recurrent" carries the state from token
    to token, "chunked" does the first inside chunks and the second between them. state is (S, z) of what came before, for all
    queries to see; with return_state the new one is returned too. A query whose weights are all 0 gets 0.
    """
    phi = _checked_map(feature_map, normalise)
    check_alike(q=q, k=k, v=v)
    if form not in ("parallel", "recurrent", "chunked"):
        raise ValueError(f'form must be "parallel", "recurrent" or "chunked"; got {form!r}')
    check_chunk_size(chunk_size)
    if k.shape[:3] != v.shape[:3] or k.shape[:2] != q.shape[:2] or k.shape[-1] != q.shape[-1]:
        raise ValueError(f"k must fit q {tuple(q.shape)} and v {tuple(v.shape)}; got {tuple(k.shape)}")
    if causal and q.shape[2] != k.shape[2]:
        raise ValueError(f"q must have as many rows as k when causal, {k.shape[2]}; got {q.shape[2]}. "
                         "Hand what came before as a state")
    dtype = q.dtype
    q, k, v = widened(phi(widened(q)[0]), phi(widened(k)[0]), v)
    if normalise and phi not in POSITIVE_PRODUCTS and bool((q < 0).any() | (k < 0).any()):
        raise ValueError("feature_map must give features of at least 0 when normalise=True; got a negative one. "
                         "A sum of weights of both signs can be 0")
    s, z = _read_state(state, k, v)
    if not causal:
        s, z = s + k.transpose(-2, -1) @ v, z + k.sum(-2)
        top, bottom = q @ s, q @ z[..., None]
    else:
        top, bottom, s, z = {"parallel": _parallel, "recurrent": _recurrent, "chunked": _chunked}[form](q, k, v, s, z, chunk_size)
    out = top
    if normalise:
        out = torch.where(bottom == 0, 0, top / torch.where(bottom == 0, 1, bottom))
    return (out.to(dtype), (s, z)) if return_state else out.to(dtype)


def _parallel(q, k, v, s, z, chunk_size):
    weights = (q @ k.transpose(-2, -1)).tril()
    top = weighted_sum(weights, v, causal_mask(*weights.shape[-2:], v.device)) + q @ s
    bottom = weights.sum(-1, keepdim=True) + q @ z[..., None]
    return top, bottom, s + k.transpose(-2, -1) @ v, z + k.sum(-2)


def _recurrent(q, k, v, s, z, chunk_size):
    tops, bottoms = [], []
    for q_t, k_t, v_t in zip(q.unbind(2), k.unbind(2), v.unbind(2)):
        s = s + k_t[..., :, None] * v_t[..., None, :]
        z = z + k_t
        tops.append((q_t[..., None, :] @ s)[..., 0, :])
        bottoms.append((q_t * z).sum(-1, keepdim=True))
    if not tops:
        return q @ s, q @ z[..., None], s, z
    return torch.stack(tops, 2), torch.stack(bottoms, 2), s, z


def _chunked(q, k, v, s, z, chunk_size):
    n = q.shape[2]
    # (b, h, chunks, chunk_size, ...): the last chunk is filled up with zeros, which add nothing
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


def performer_features(d: int, n_features: int, orthogonal: bool = True, generator=None) -> Tensor:
    """(n_features, d) random directions, each like a standard normal vector; orthogonal in blocks of d rows if asked."""
    for name, size in (("d", d), ("n_features", n_features)):
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"{name} must be an integer of at least 1; got {size!r}")
    rows = torch.randn(n_features, d, generator=generator)
    if not orthogonal:
        return rows
    blocks = []
    for start in range(0, n_features, d):
        turn, r = torch.linalg.qr(torch.randn(d, d, generator=generator))
        blocks.append((turn * r.diagonal().sign()).T[:n_features - start])
    # Orthogonal directions keep the lengths of independent normal vectors: only then is the estimate unbiased.
    return torch.cat(blocks) * rows.norm(dim=-1, keepdim=True)


def positive_features(x: Tensor, projection: Tensor, shift: Tensor | float = 0.0) -> Tensor:
    """exp(w . x - |x|^2 / 2 - shift) / sqrt(m), a feature for each row w of projection.

    At shift 0 the mean of phi(q) . phi(k) is exp(q . k).
    """
    exponent = x @ projection.T.to(x.dtype) - x.square().sum(-1, keepdim=True) / 2
    return torch.exp(exponent - shift) / math.sqrt(len(projection))


def performer_attention(q: Tensor, k: Tensor, v: Tensor, projection: Tensor, causal: bool = False,
                        form: str = "parallel", chunk_size: int = 64,
                        scale: float | None = None) -> Tensor:
    """Softmax attention estimated with positive random features (Performer, arXiv:2009.14794)."""
    check_alike(q=q, k=k, v=v)
    d, dtype = q.shape[-1], q.dtype
    if scale is not None and not scale >= 0:
        raise ValueError(f"scale must be at least 0, its root goes to q and to k; got {scale}")
    if projection.dim() != 2 or projection.shape[1] != d:
        raise ValueError(f"projection must be (n_features, {d}); got {tuple(projection.shape)}")
    if k.shape[-1] != d:
        raise ValueError(f"k must be as wide as q, {d}; got {k.shape[-1]}")
    root = math.sqrt(1 / math.sqrt(d) if scale is None else scale)
    q, k, v = widened(q, k, v)
    q, k = q * root, k * root

    def in_range(x, dims):
        """Features of x, divided by the largest over dims."""
        if x.numel() == 0:
            return x.new_zeros(*x.shape[:3], len(projection))
        exponent = x @ projection.T.to(x.dtype) - x.square().sum(-1, keepdim=True) / 2
        return positive_features(x, projection, exponent.amax(dims, keepdim=True).detach())

    # One factor a query, and one for all keys of a head, cancel in the quotient and keep exp in range.
    q, k = in_range(q, (-1,)), in_range(k, (-2, -1))
    return linear_attention(q, k, v, "relu", causal, form, chunk_size).to(dtype)


class LinformerAttention(nn.Module):
    """Attention to `rank` mixtures of the keys, the same mixtures for every text (Linformer, arXiv:2006.04768).

    A mixture blends the whole sequence, the future included: there is no causal form, and the length is fixed.
    """

    def __init__(self, d_model: int, n_heads: int, seq_len: int, rank: int, bias: bool = False):
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(f"d_model must be a multiple of n_heads, which is at least 1; got {d_model} and {n_heads}")
        if not 1 <= rank <= seq_len:
            raise ValueError(f"rank must lie between 1 and seq_len = {seq_len}; got {rank}")
        self.n_heads, self.seq_len = n_heads, seq_len
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(d_model, d_model, bias) for _ in range(4))
        self.mix_keys = nn.Parameter(torch.randn(rank, seq_len) / math.sqrt(seq_len))
        self.mix_values = nn.Parameter(torch.randn(rank, seq_len) / math.sqrt(seq_len))

    def forward(self, x: Tensor, causal: bool = False) -> Tensor:
        """x (batch, n, d_model) with n at most seq_len -> (batch, n, d_model)."""
        if causal:
            raise ValueError("causal must be False: each mixture of keys contains the future")
        check_sequence("x", x, self.q_proj)
        n = x.shape[1]
        if n > self.seq_len:
            raise ValueError(f"x must have at most seq_len = {self.seq_len} rows; got {n}")
        q, k, v = (rearrange(proj(x), "b n (h d) -> b h n d", h=self.n_heads) for proj in (self.q_proj, self.k_proj, self.v_proj))
        heads = scaled_dot_product_attention(q, self.mix_keys[:, :n] @ k, self.mix_values[:, :n] @ v)
        return self.out_proj(rearrange(heads, "b h n d -> b n (h d)"))


KERNEL_MAPS = {"elu": 0, "relu": 1, "identity": 2}


def linear_attention_kernel(q: Tensor, k: Tensor, v: Tensor, feature_map: str = "elu", normalise: bool = True, state=None,
                            return_state: bool = False, rung: int | None = None, chunk_size: int = 32):
    """Causal `linear_attention` by kernels/linear_attention.cu, float32, or linear_tensor_core.cu, bfloat16.

    rung: 1 state in global memory, 2 state in shared memory, 3 chunks of chunk_size, in two launches; 4 chunks of 64 on the
    tensor cores, for bfloat16 of width 64 or 128. None takes 4 where it fits, else 3. Without a gradient.
    """
    check_alike(q=q, k=k, v=v)
    if feature_map not in KERNEL_MAPS:
        raise ValueError(f"feature_map must be one of {', '.join(KERNEL_MAPS)} for this kernel; got {feature_map!r}")
    _checked_map(feature_map, normalise)
    if rung not in (None, 1, 2, 3, 4):
        raise ValueError(f"rung must be None or from 1 to 4; got {rung!r}")
    if k.shape != q.shape or v.shape[:3] != q.shape[:3]:
        raise ValueError(f"k must fit q {tuple(q.shape)} and v {tuple(v.shape)}; got {tuple(k.shape)}")
    check_chunk_size(chunk_size)
    b, h, n, d = q.shape
    d_v, map_code = v.shape[-1], KERNEL_MAPS[feature_map]
    if rung is None:
        rung = 4 if linear_tensor_core.fits(q, v) else 3
    if rung == 4:
        start = torch.cat([s.flatten(2) for s in _read_state(state, k[:, :, :0].float(), v[:, :, :0].float())], -1)
        out, after = linear_tensor_core.run(q, k, v, start, map_code, normalise)
        return (out, (after[..., :d * d].view(b, h, d, d), after[..., d * d:])) if return_state else out
    width = d_v + 1                                                     # the normaliser is one more column of the state
    need = {1: 2 * d + width, 2: d * width + 2 * d + width,
            3: d * width + chunk_size * (2 * d + 1 + 2 * width + chunk_size)}[rung]
    check_for_kernel(q, k, v, 4 * need)
    start = torch.cat([s[..., None] if s.dim() == 3 else s for s in _read_state(state, k, v)], -1).contiguous()
    carried, out = start.detach().clone(), v.new_empty(b, h, n, d_v)
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    if out.numel() and d:
        from course_lib import cuda

        module, block, heads = cuda.load("linear_attention"), 128, b * h
        if rung < 3:
            kernel = module.state_in_global if rung == 1 else module.state_in_shared
            kernel[heads, block, 4 * need](q, k, v, carried, out, n, d, d_v, map_code, int(normalise))
        else:
            n_chunks = -(-n // chunk_size)
            before = q.new_empty(heads, n_chunks, d, width)
            shared = 4 * (d * width + chunk_size * (d + width))
            module.chunk_states[heads, block, shared](k, v, carried, before, n, d, d_v, chunk_size, map_code)
            module.chunk_outputs[(n_chunks, heads), block, 4 * need](q, k, v, before, out, n, d, d_v, chunk_size, map_code,
                                                                   int(normalise))
    else:
        out.zero_()
    return (out, (carried[..., :-1], carried[..., -1])) if return_state else out


def _checked_map(name, normalise):
    phi = feature_map(name)
    if normalise and name == "identity":
        raise ValueError('feature_map must give features of at least 0 when normalise=True; got "identity"')
    return phi


def _read_state(state, k, v):
    b, h, _, m = k.shape
    if state is None:
        return k.new_zeros(b, h, m, v.shape[-1]), k.new_zeros(b, h, m)
    if not isinstance(state, (tuple, list)) or len(state) != 2 or not all(isinstance(x, Tensor) for x in state):
        got = [type(x).__name__ for x in state] if isinstance(state, (tuple, list)) else type(state).__name__
        raise ValueError(f"state must be the pair of tensors (S, z) that return_state gives; got {got}")
    s, z = state
    if s.shape != (b, h, m, v.shape[-1]) or z.shape != (b, h, m):
        raise ValueError(f"state must be tensors of shapes {(b, h, m, v.shape[-1])} and {(b, h, m)}; "
                         f"got {tuple(s.shape)} and {tuple(z.shape)}")
    return s.to(k.dtype), z.to(k.dtype)
