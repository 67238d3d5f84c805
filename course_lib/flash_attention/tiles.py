"""FlashAttention in plain PyTorch, line for line what kernels/flash_attention.cu does.

Shapes: q (batch, n_heads, n_q, head_dim), k (batch, n_kv_heads, n_k, head_dim), v (batch, n_kv_heads, n_k,
v_dim). Query head h reads key head h // group_size, where group_size = n_heads / n_kv_heads. `causal` means
that the last query sees the last key. A query that sees no key gives 0. Values must be finite, hidden ones
too: within a tile a hidden value is multiplied by 0, and 0 times NaN is NaN."""
import math
from typing import NamedTuple

import torch
from einops import rearrange
from torch import Tensor

from course_lib.checks.flash_attention import check_flash, check_results
from .orders import keys_seen


class State(NamedTuple):
    """The keys seen so far in three numbers per query: the largest score and two sums of exp(score - m)."""
    m: Tensor         # (..., n_q)
    l: Tensor         # (..., n_q), the sum of exp(score - m)
    o: Tensor         # (..., n_q, v_dim), the sum of exp(score - m) * v: not yet divided by l


def finite(m: Tensor) -> Tensor:
    """m with -inf replaced by 0, so that exp(-inf - finite(m)) is 0 where exp(-inf - m) would be NaN."""
    return torch.where(m == -math.inf, torch.zeros_like(m), m)


def state_of(scores: Tensor, v: Tensor) -> State:
    """The state of one set of keys: scores (..., n_q, n_k), v (..., n_k, v_dim)."""
    m = scores.amax(dim=-1)
    p = torch.exp(scores - finite(m)[..., None])
    return State(m, p.sum(dim=-1), p @ v)


def merge(state_a, state_b) -> State:
    """The state of both sets of keys together, from (max, sum, output) of each.

    Associative and commutative, with State(-inf, 0, 0) as its identity. So tiles can be processed in any
    order, and parts of the keys in parallel, to be merged at the end."""
    (m_a, l_a, o_a), (m_b, l_b, o_b) = state_a, state_b
    m = torch.maximum(m_a, m_b)
    weight_a, weight_b = torch.exp(m_a - finite(m)), torch.exp(m_b - finite(m))
    return State(m, weight_a * l_a + weight_b * l_b, weight_a[..., None] * o_a + weight_b[..., None] * o_b)


def finish(state) -> tuple[Tensor, Tensor]:
    """(max, sum, output) -> the attention output (..., n_q, v_dim) and the log-sum-exp (..., n_q)."""
    m, l, o = state
    seen = l > 0
    l = torch.where(seen, l, torch.ones_like(l))        # a query without keys gives 0 / 1 = 0
    return o / l[..., None], torch.where(seen, m + torch.log(l), torch.full_like(m, -math.inf))


def flash_forward_tiles(q, k, v, causal=False, scale=None, key_bias=None, tile_q=32, tile_k=32):
    """Attention one tile at a time: -> out (batch, n_heads, n_q, v_dim), lse (batch, n_heads, n_q).

    Inputs and outputs may be in half precision; everything in between is float32 (or float64), as in the
    kernels."""
    scale = check_flash(q, k, v, scale, key_bias, tile_q=tile_q, tile_k=tile_k)
    n_q, n_k, out_dtype = q.shape[2], k.shape[2], q.dtype
    q, k, v, bias = grouped(q, k, v, key_bias)
    batch_shape, v_dim = q.shape[:3], v.shape[-1]
    outs, lses = [], []
    for q0 in range(0, n_q, tile_q):                    # in the kernel: one block per tile
        q_tile = q[..., q0:q0 + tile_q, :]
        rows = q_tile.shape[-2]
        m = q.new_full((*batch_shape, rows), -math.inf)
        l = q.new_zeros((*batch_shape, rows))
        o = q.new_zeros((*batch_shape, rows, v_dim))
        for k0 in range(0, keys_seen(q0 + rows - 1, n_q, n_k, causal), tile_k):
            s = score_tile(q_tile, k, bias, q0, k0, tile_k, n_q, causal, scale)
            m_new = torch.maximum(m, s.amax(dim=-1))
            p = torch.exp(s - finite(m_new)[..., None])
            shrink = torch.exp(m - finite(m_new))       # rescale the sums made with the old maximum
            l = shrink * l + p.sum(dim=-1)
            o = shrink[..., None] * o + p @ v[..., k0:k0 + tile_k, :]
            m = m_new
        out, lse = finish((m, l, o))
        outs.append(out)
        lses.append(lse)
    if not outs:
        outs, lses = [q.new_zeros((*batch_shape, 0, v_dim))], [q.new_zeros((*batch_shape, 0))]
    return torch.cat(outs, dim=-2).flatten(1, 2).to(out_dtype), torch.cat(lses, dim=-1).flatten(1, 2)


def flash_backward_tiles(q, k, v, out, lse, grad_out, causal=False, scale=None, key_bias=None,
                         tile_q=32, tile_k=32):
    """The gradients from q, k, v, out and lse alone: -> dq, dk, dv, d key_bias (None without a bias).

    Five products per tile: S = q k^T again, dV = P^T dO, dP = dO v^T, dQ = dS k, dK = dS^T q.
    """
    scale = check_flash(q, k, v, scale, key_bias, tile_q=tile_q, tile_k=tile_k)
    check_results(q, v, out=out, lse=lse, grad_out=grad_out)
    n_q, n_k, dtypes = q.shape[2], k.shape[2], (q.dtype, k.dtype, v.dtype)
    group_size = q.shape[1] // k.shape[1]
    q, k, v, bias = grouped(q, k, v, key_bias)
    out, grad_out, lse = (rearrange(x.to(q.dtype), "b (h g) ... -> b h g ...", g=group_size)
                          for x in (out, grad_out, lse))
    delta = (grad_out * out).sum(dim=-1)                # D_i = dO_i . O_i = sum_j P_ij dP_ij
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    dbias = torch.zeros_like(k[..., 0])
    for k0 in range(0, n_k, tile_k):                    # in the kernel: one block per tile
        k_tile, v_tile = k[..., k0:k0 + tile_k, :], v[..., k0:k0 + tile_k, :]
        for q0 in range(0, n_q, tile_q):
            here = slice(q0, q0 + tile_q)
            q_tile, do_tile = q[..., here, :], grad_out[..., here, :]
            if k0 >= keys_seen(q0 + q_tile.shape[-2] - 1, n_q, n_k, causal):
                continue                                # every key of the tile is in the future
            s = score_tile(q_tile, k, bias, q0, k0, tile_k, n_q, causal, scale)
            p = torch.exp(s - finite(lse[..., here])[..., None])        # recomputed from lse alone
            dp = do_tile @ v_tile.mT
            ds = p * (dp - delta[..., here, None])
            dq[..., here, :] += scale * ds @ k_tile     # in the kernel: the only sum across blocks
            dk[..., k0:k0 + tile_k, :] += (scale * ds.mT @ q_tile).sum(dim=2, keepdim=True)
            dv[..., k0:k0 + tile_k, :] += (p.mT @ do_tile).sum(dim=2, keepdim=True)
            dbias[..., k0:k0 + tile_k] += ds.sum(dim=(2, 3))[:, :, None]
    dq, dk, dv = dq.flatten(1, 2).to(dtypes[0]), dk.squeeze(2).to(dtypes[1]), dv.squeeze(2).to(dtypes[2])
    if key_bias is None:
        return dq, dk, dv, None
    return dq, dk, dv, dbias.squeeze(2).sum_to_size(key_bias.shape).to(key_bias.dtype)


def grouped(q, k, v, key_bias):
    """Inputs as float32 or float64 with a group axis: q (b, n_kv_heads, group_size, n_q, d), the rest 1."""
    wide = torch.promote_types(q.dtype, torch.float32)
    q = rearrange(q.to(wide), "b (h g) n d -> b h g n d", h=k.shape[1])
    bias = torch.zeros((), dtype=wide, device=k.device) if key_bias is None else key_bias.to(wide)
    return q, k.to(wide)[:, :, None], v.to(wide)[:, :, None], bias.expand(k.shape[:3])[:, :, None]


def score_tile(q_tile, k, bias, q0, k0, tile_k, n_q, causal, scale):
    """scale * q k^T + bias for one tile, -inf where the query may not look."""
    n_k = k.shape[-2]
    s = scale * (q_tile @ k[..., k0:k0 + tile_k, :].mT) + bias[..., None, k0:k0 + tile_k]
    if not causal:
        return s
    i = q0 + torch.arange(s.shape[-2], device=s.device)[:, None]
    j = k0 + torch.arange(s.shape[-1], device=s.device)
    return s.masked_fill(j > i + n_k - n_q, -math.inf)
