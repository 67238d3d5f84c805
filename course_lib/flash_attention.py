"""FlashAttention: exact attention in tiles, without the n x n matrix, forward and backward.

    merge, finish           the online softmax as an associative operation on (max, sum, output)
    flash_forward_tiles     plain PyTorch, line for line what the kernels in kernels/flash_attention.cu do
    flash_backward_tiles    the same for the gradients
    tile_kinds, traffic     which tiles a causal mask leaves, and the bytes each order of the loops moves
    flash_attention         the kernels as one differentiable function, on a CPU (laptop engine) and on a GPU

Shapes: q (batch, n_heads, n_q, head_dim), k (batch, n_kv_heads, n_k, head_dim),
v (batch, n_kv_heads, n_k, v_dim). Query head h reads key head h // group_size, where
group_size = n_heads / n_kv_heads. `causal` means that the last query sees the last key.
A query that sees no key gives 0.
"""
import math
from typing import NamedTuple

import torch
from einops import rearrange

INFINITY = float("inf")


class State(NamedTuple):
    """What is remembered of the keys seen so far: the largest score and two sums of exp(score - m)."""
    m: torch.Tensor         # (..., n_q)
    l: torch.Tensor         # (..., n_q), the sum of exp(score - m)
    o: torch.Tensor         # (..., n_q, v_dim), the sum of exp(score - m) * v: not yet divided by l


def finite(m: torch.Tensor) -> torch.Tensor:
    """m with -inf replaced by 0, so that exp(-inf - finite(m)) is 0 where exp(-inf - m) would be NaN."""
    return torch.where(m == -INFINITY, torch.zeros_like(m), m)


def state_of(scores: torch.Tensor, v: torch.Tensor) -> State:
    """The state of one set of keys: scores (..., n_q, n_k), v (..., n_k, v_dim)."""
    m = scores.amax(dim=-1)
    p = torch.exp(scores - finite(m)[..., None])
    return State(m, p.sum(dim=-1), p @ v)


def merge(state_a, state_b) -> State:
    """The state of both sets of keys together, from (max, sum, output) of each.

    Associative and commutative; State(-inf, 0, 0) changes nothing. So tiles may come in any order, and
    parts of the keys may be worked on apart and joined at the end.
    """
    (m_a, l_a, o_a), (m_b, l_b, o_b) = state_a, state_b
    m = torch.maximum(m_a, m_b)
    weight_a, weight_b = torch.exp(m_a - finite(m)), torch.exp(m_b - finite(m))
    return State(m, weight_a * l_a + weight_b * l_b, weight_a[..., None] * o_a + weight_b[..., None] * o_b)


def finish(state) -> tuple[torch.Tensor, torch.Tensor]:
    """(max, sum, output) -> the attention output (..., n_q, v_dim) and the log-sum-exp (..., n_q)."""
    m, l, o = state
    seen = l > 0
    l = torch.where(seen, l, torch.ones_like(l))        # a query without keys: 0 / 1, and -inf + log 1
    return o / l[..., None], torch.where(seen, m + torch.log(l), torch.full_like(m, -INFINITY))


def flash_forward_tiles(q, k, v, causal=False, scale=None, key_bias=None, tile_q=32, tile_k=32):
    """Attention one tile at a time: -> out (batch, n_heads, n_q, v_dim), lse (batch, n_heads, n_q).

    Half precision comes in and goes out; between, everything is float32 (or float64), as in the kernels.
    """
    scale = check_inputs(q, k, v, scale, key_bias)
    n_q, n_k, out_dtype = q.shape[2], k.shape[2], q.dtype
    q, k, v, bias = grouped(q, k, v, key_bias)
    batch_shape, v_dim = q.shape[:3], v.shape[-1]
    outs, lses = [], []
    for q0 in range(0, n_q, tile_q):                    # in the kernel: one block each
        q_tile = q[..., q0:q0 + tile_q, :]
        rows = q_tile.shape[-2]
        m = q.new_full((*batch_shape, rows), -INFINITY)
        l = q.new_zeros((*batch_shape, rows))
        o = q.new_zeros((*batch_shape, rows, v_dim))
        for k0 in range(0, keys_seen(q0 + rows - 1, n_q, n_k, causal), tile_k):
            s = score_tile(q_tile, k, bias, q0, k0, tile_k, n_q, causal, scale)
            m_new = torch.maximum(m, s.amax(dim=-1))
            p = torch.exp(s - finite(m_new)[..., None])
            shrink = torch.exp(m - finite(m_new))       # what was summed with the old max is rescaled
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
    """The gradients from q, k, v, out and lse alone: -> dq, dk, dv, and d key_bias (None without a bias).

    Five products a tile: S = q k^T again, dV = P^T dO, dP = dO v^T, dQ = dS k, dK = dS^T q.
    """
    scale = check_inputs(q, k, v, scale, key_bias)
    n_q, n_k, dtypes = q.shape[2], k.shape[2], (q.dtype, k.dtype, v.dtype)
    group_size = q.shape[1] // k.shape[1]
    q, k, v, bias = grouped(q, k, v, key_bias)
    out, grad_out, lse = (rearrange(x.to(q.dtype), "b (h g) ... -> b h g ...", g=group_size)
                          for x in (out, grad_out, lse))
    delta = (grad_out * out).sum(dim=-1)                # D_i = dO_i . O_i = sum_j P_ij dP_ij
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    dbias = torch.zeros_like(k[..., 0])
    for k0 in range(0, n_k, tile_k):                    # in the kernel: one block each
        k_tile, v_tile = k[..., k0:k0 + tile_k, :], v[..., k0:k0 + tile_k, :]
        for q0 in range(0, n_q, tile_q):
            here = slice(q0, q0 + tile_q)
            q_tile, do_tile = q[..., here, :], grad_out[..., here, :]
            if k0 >= keys_seen(q0 + q_tile.shape[-2] - 1, n_q, n_k, causal):
                continue                                # the whole tile lies in the future
            s = score_tile(q_tile, k, bias, q0, k0, tile_k, n_q, causal, scale)
            p = torch.exp(s - finite(lse[..., here])[..., None])        # recomputed: no max, no sum
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
    return s.masked_fill(j > i + n_k - n_q, -INFINITY)


def keys_seen(i: int, n_q: int, n_k: int, causal: bool = True) -> int:
    """How many keys query i may look at: all, or under a causal mask those up to its own place."""
    return min(n_k, max(0, i + 1 + n_k - n_q)) if causal else n_k


def tile_kinds(n_q: int, n_k: int, tile_q: int, tile_k: int, causal: bool = True) -> torch.Tensor:
    """(query tiles, key tiles) of 0 = skipped, 1 = diagonal (needs the mask), 2 = full."""
    starts_q, starts_k = torch.arange(0, n_q, tile_q), torch.arange(0, n_k, tile_k)
    last_q, ends_k = (starts_q + tile_q - 1).clamp(max=n_q - 1), (starts_k + tile_k).clamp(max=n_k)
    seen_by_first, seen_by_last = (torch.tensor([keys_seen(i, n_q, n_k, causal) for i in rows.tolist()])[:, None]
                                   for rows in (starts_q, last_q))
    return (seen_by_last > starts_k).long() + (seen_by_first >= ends_k).long()


def traffic(n: int, d: int, tile_q: int, tile_k: int, order: str = "query-outer", *, n_k: int | None = None,
            v_dim: int | None = None, causal: bool = False, lse: bool = False, itemsize: int = 4) -> int:
    """Bytes that one head's forward pass moves between slow memory and the tiles.

    "standard"     three passes: read q, k, write S; read S, write P; read P, v, write out
    "query-outer"  a query tile stays, keys and values come past it (lse=True adds the saved log-sum-exp)
    "key-outer"    a key tile stays, queries come past it, and out, max and sum are read and written each time
    Statistics (max, sum, lse) count as elements of `itemsize` bytes. Without `causal`, "standard" does not
    depend on the tiles; with it, only the other two skip tiles.
    """
    n_k, v_dim = n if n_k is None else n_k, d if v_dim is None else v_dim
    sizes = dict(n=n, d=d, tile_q=tile_q, tile_k=tile_k, n_k=n_k, v_dim=v_dim, itemsize=itemsize)
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1; got {value}")
    order = order.replace("_", "-")
    if order == "standard":
        return itemsize * (n * d + n_k * d + 4 * n * n_k + n_k * v_dim + n * v_dim)
    if order not in ("query-outer", "key-outer"):
        raise ValueError(f"order must be 'query-outer', 'key-outer' or 'standard'; got {order!r}")
    visited = tile_kinds(n, n_k, tile_q, tile_k, causal) > 0
    query_rows = torch.tensor([min(tile_q, n - q0) for q0 in range(0, n, tile_q)])
    key_rows = torch.tensor([min(tile_k, n_k - k0) for k0 in range(0, n_k, tile_k)])
    if order == "query-outer":
        once = n * (d + v_dim + int(lse))
        again = int((visited * key_rows).sum()) * (d + v_dim)
    else:
        once = n_k * (d + v_dim)
        again = int((visited * query_rows[:, None]).sum()) * (d + 2 * v_dim + 4)
    return itemsize * (once + again)


def check_inputs(q, k, v, scale, key_bias) -> float:
    """Raise a ValueError that names what is wrong, or return the scale to use."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, torch.Tensor):
            raise ValueError(f"{name} must be a tensor; got {type(x).__name__}")
        if x.dim() != 4:
            raise ValueError(f"{name} must have shape (batch, heads, n, width); got {tuple(x.shape)}")
        if not x.is_floating_point():
            raise ValueError(f"{name} must be a floating-point tensor; got {x.dtype}")
        if x.dtype != q.dtype or x.device != q.device:
            raise ValueError(f"q, k and v must agree in dtype and device; q is {q.dtype} on {q.device}, "
                             f"{name} is {x.dtype} on {x.device}")
    if k.shape[0] != q.shape[0] or v.shape[0] != q.shape[0]:
        raise ValueError("q, k and v must have one batch size; "
                         f"got {q.shape[0]}, {k.shape[0]} and {v.shape[0]}")
    if k.shape[1:3] != v.shape[1:3]:
        raise ValueError("k and v must agree in heads and length; "
                         f"got {tuple(k.shape[1:3])} and {tuple(v.shape[1:3])}")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError("the heads of q must be a multiple of those of k; "
                         f"got {q.shape[1]} and {k.shape[1]}")
    if q.shape[3] != k.shape[3] or q.shape[3] == 0:
        raise ValueError(f"q and k must have one width, at least 1; got {q.shape[3]} and {k.shape[3]}")
    if v.shape[3] == 0:
        raise ValueError("v must have a width of at least 1; got 0")
    if key_bias is not None:
        is_float = isinstance(key_bias, torch.Tensor) and key_bias.is_floating_point()
        if not is_float or key_bias.device != k.device:
            raise ValueError("key_bias must be a floating-point tensor on the device of k")
        try:
            fits = torch.broadcast_shapes(key_bias.shape, k.shape[:3]) == k.shape[:3]
        except RuntimeError:
            fits = False
        if not fits:
            raise ValueError(f"key_bias must broadcast to (batch, n_kv_heads, n_k) = {tuple(k.shape[:3])}; "
                             f"got {tuple(key_bias.shape)}")
    if scale is None:
        return 1 / math.sqrt(q.shape[3])
    if not math.isfinite(scale):
        raise ValueError(f"scale must be a finite number; got {scale}")
    return float(scale)
