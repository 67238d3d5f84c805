"""Chapter 3: grouped-query attention. Several query heads share one head of keys and values.

Shapes: q is (batch, n_heads, n, head_dim); k and v are (batch, n_kv_heads, m, head_dim).
group_size = n_heads / n_kv_heads query heads share a key and value head: query head h reads head h // group_size.
"""
import math

import torch
from einops import rearrange, reduce
from torch import Tensor, nn

from course_lib.attention import HALF, causal_mask, masked_weights, weighted_sum
from course_lib.checks import check_alike, check_mask, check_sequence, check_sizes
from course_lib.rope import apply_rope, check_rope


def repeat_kv(x: Tensor, group_size: int) -> Tensor:
    """(b, n_kv_heads, n, d) -> (b, n_kv_heads * group_size, n, d): [K1 K2] becomes [K1 K1 K2 K2] for groups of 2."""
    _check_heads("x", x)
    if not isinstance(group_size, int) or group_size < 1:
        raise ValueError(f"group_size must be an integer of at least 1; got {group_size!r}")
    b, n_kv_heads, n, d = x.shape
    # expand repeats without copying (stride 0); reshape then has to write the copies out.
    return x[:, :, None].expand(b, n_kv_heads, group_size, n, d).reshape(b, n_kv_heads * group_size, n, d)


def grouped_query_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None,
                            causal: bool = False, scale: float | None = None, return_weights: bool = False):
    """Attention of n_heads queries over n_kv_heads keys and values: (b, n_heads, n, v_dim).

    Nothing is repeated: the queries of a group are laid one under the other, so that a key head meets
    group_size * n rows in one product. mask, causal and scale are those of `scaled_dot_product_attention`;
    masks broadcast to (b, n_heads, n, m).
    """
    group_size = check_grouped(q, k, v, scale)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    dtype, n = q.dtype, q.shape[-2]
    if dtype in HALF:  # half precision in and out, float inside
        q, k, v = q.float(), k.float(), v.float()

    def fold(x):
        return rearrange(x, "b (h_kv g) n d -> b h_kv (g n) d", g=group_size)

    def unfold(x):
        return rearrange(x, "b h_kv (g n) d -> b (h_kv g) n d", n=n, g=group_size)

    scores = unfold(fold(q) @ k.transpose(-2, -1) * scale)
    weights, allowed = masked_weights(scores, mask, causal)
    seen = None if allowed is None else fold(allowed.expand(weights.shape))
    output = unfold(weighted_sum(fold(weights), v, seen)).to(dtype)
    return (output, weights.to(dtype)) if return_weights else output


class GroupedQueryAttention(nn.Module):
    """Self-attention of a decoder: n_heads query heads, n_kv_heads heads of keys and values, rotary positions, a cache.

    n_kv_heads = n_heads is multi-head attention, n_kv_heads = 1 multi-query attention.
    qk_norm normalises queries and keys before they are rotated; window limits a query to the last `window` keys,
    its own included.
    """

    def __init__(self, d_model: int, n_heads: int, n_kv_heads: int, head_dim: int | None = None, qk_norm: bool = False,
                 window: int | None = None, bias: bool = False, rope_layout: str = "interleaved"):
        super().__init__()
        check_sizes(d_model=d_model, n_heads=n_heads, n_kv_heads=n_kv_heads)
        if n_heads % n_kv_heads:
            raise ValueError(f"n_heads must be a multiple of n_kv_heads; got {n_heads} and {n_kv_heads}")
        if head_dim is None and d_model % n_heads:
            raise ValueError("d_model must be a multiple of n_heads unless head_dim is given; "
                             f"got {d_model} and {n_heads}")
        if head_dim is not None and (not isinstance(head_dim, int) or head_dim < 1):
            raise ValueError(f"head_dim must be None or a positive integer; got {head_dim!r}")
        if window is not None and (not isinstance(window, int) or window < 1):
            raise ValueError(f"window must be None or an integer of at least 1; got {window!r}")
        if rope_layout not in ("interleaved", "half"):
            raise ValueError(f'rope_layout must be "interleaved" or "half"; got {rope_layout!r}')
        self.d_model, self.n_heads, self.n_kv_heads = d_model, n_heads, n_kv_heads
        self.head_dim = d_model // n_heads if head_dim is None else head_dim
        self.window, self.rope_layout = window, rope_layout
        self.q_proj = nn.Linear(d_model, n_heads * self.head_dim, bias)
        self.k_proj = nn.Linear(d_model, n_kv_heads * self.head_dim, bias)
        self.v_proj = nn.Linear(d_model, n_kv_heads * self.head_dim, bias)
        self.out_proj = nn.Linear(n_heads * self.head_dim, d_model, bias)
        self.q_norm = nn.RMSNorm(self.head_dim) if qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(self.head_dim) if qk_norm else nn.Identity()

    def forward(self, x: Tensor, rope=None, positions: Tensor | None = None, mask: Tensor | None = None,
                causal: bool = True, cache=None) -> Tensor:
        """x (b, n, d_model) -> (b, n, d_model).

        rope is a pair (cos, sin) or None. With a cache, x holds only the new tokens: their keys and values are
        appended, and the queries attend to everything the cache holds.
        """
        check_sequence("x", x, self.q_proj)
        check_rope(rope)
        n = x.shape[1]
        q = self.q_norm(rearrange(self.q_proj(x), "b n (h d) -> b h n d", h=self.n_heads))
        k = self.k_norm(rearrange(self.k_proj(x), "b n (h d) -> b h n d", h=self.n_kv_heads))
        v = rearrange(self.v_proj(x), "b n (h d) -> b h n d", h=self.n_kv_heads)
        q, k, v, mask = rotate_and_cache(q, k, v, rope, positions, mask, cache, self.rope_layout)
        if self.window is not None:
            if mask is not None:
                check_mask(mask, (*q.shape[:3], k.shape[-2]), x.device)
            mask = _within_window(mask, n, k.shape[-2], self.window, x.device)
        heads = grouped_query_attention(q, k, v, mask, causal)
        return self.out_proj(rearrange(heads, "b h n d -> b n (h d)"))


def rotate_and_cache(q: Tensor, k: Tensor, v: Tensor, rope, positions=None, mask=None, cache=None,
                     layout="interleaved"):
    """Queries and keys rotated, the new keys and values in the cache: -> q, all keys, all values, mask."""
    if cache is None:
        if rope is not None:
            q, k = (apply_rope(t, *rope, positions=positions, layout=layout) for t in (q, k))
        return q, k, v, mask
    rotated = getattr(cache, "rotated", True)       # False: the cache wants keys as they are, see RollingCache
    if rope is not None:
        positions = cache.next_positions(q.shape[-2]) if positions is None else positions
        q = apply_rope(q, *rope, positions=positions, layout=layout)
        k = apply_rope(k, *rope, positions=positions, layout=layout) if rotated else k
    cache.append(k, v)
    k, v = cache.view()
    if rotated:
        return q, k, v, mask
    if rope is not None:
        k = apply_rope(k, *rope, positions=cache.key_positions(), layout=layout)
    return q, k, v, _both(mask, cache.mask(q.shape[-2]))


def pool_heads(weight: Tensor, n_heads: int, n_kv_heads: int) -> Tensor:
    """Average the key or value heads of a trained layer in groups: (n_heads * d, d_model) -> (n_kv_heads * d, d_model).

    The bias of such a layer, (n_heads * d), will do too.
    The start from which "GQA: Training Generalized Multi-Query Transformer Models" (arXiv:2305.13245) trains on.
    """
    check_sizes(n_heads=n_heads, n_kv_heads=n_kv_heads)
    if n_heads % n_kv_heads:
        raise ValueError(f"n_heads must be a multiple of n_kv_heads; got {n_heads} and {n_kv_heads}")
    if weight.dim() not in (1, 2) or weight.shape[0] % n_heads:
        raise ValueError(f"weight must be (n_heads * head_dim, d_model) with {n_heads} heads; "
                         f"got {tuple(weight.shape)}")
    return reduce(weight, "(h_kv g d) ... -> (h_kv d) ...", "mean", h_kv=n_kv_heads, g=n_heads // n_kv_heads)


def kv_bytes_per_token(layers: int, n_kv_heads: int, head_dim: int, bytes: int = 2) -> int:
    """Bytes that one token adds to the cache: a key and a value a layer. For layers that attend to everything."""
    check_sizes(layers=layers, n_kv_heads=n_kv_heads, head_dim=head_dim, bytes=bytes)
    return 2 * layers * n_kv_heads * head_dim * bytes


def cache_bytes(model: dict, tokens: int, bytes: int = 2) -> int:
    """Bytes of one sequence's cache for a model of data/models.json, each layer counted by its own kind."""
    per_token = kv_bytes_per_token(1, model["n_kv_heads"], model["head_dim"], bytes)
    total = 0
    for group in model["layers"]:
        if group["kind"] == "full":
            one = tokens * per_token
        elif group["kind"] == "window":      # a windowed layer forgets what has left its window
            one = min(tokens, group["window"]) * per_token
        elif group["kind"] == "latent":
            one = tokens * (group["latent_dim"] + group["rope_dim"]) * bytes
        elif group["kind"] == "linear":      # a state of fixed size, kept in float32
            one = group["n_heads"] * group["key_dim"] * group["value_dim"] * 4
        else:
            raise ValueError(f"model {model['name']}: unknown kind of layer {group['kind']!r}")
        total += group["count"] * one
    return total


def shared_bytes(heads: int, d: int) -> int:
    """Dynamic shared memory of a block of kernels/gqa.cu that serves `heads` query heads."""
    tile = 32
    return 4 * (2 * heads * d + tile * (d + 1) + tile * d + heads * tile + 3 * heads)


def gqa_kernel(q: Tensor, k: Tensor, v: Tensor, causal: bool = True, scale: float | None = None,
               rung: int = 3) -> Tensor:
    """`grouped_query_attention` by kernels/gqa.cu, float32. rung: 1 repeat, 2 index arithmetic, 3 one block a group."""
    group_size = check_grouped(q, k, v, scale)
    if rung not in (1, 2, 3):
        raise ValueError(f"rung must be 1, 2 or 3; got {rung!r}")
    if q.dtype != torch.float32:
        raise ValueError(f"q must be float32 for this kernel; got {q.dtype}")
    b, n_heads, n_q, d = q.shape
    if v.shape[-1] != d:
        raise ValueError(f"v must be as wide as q, {d}, for this kernel; got {v.shape[-1]}")
    heads_a_block = group_size if rung == 3 else 1
    need = shared_bytes(heads_a_block, d)
    if need > 48 * 1024:
        raise ValueError(f"q must need at most 49152 bytes of shared memory a block; got {heads_a_block} heads of {d}, "
                         f"{need} bytes" + ". Use rung 2, which serves one head a block" * (rung == 3))
    scale = 1 / math.sqrt(d) if scale is None else scale
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    out = torch.empty_like(q)
    if out.numel() == 0:
        return out
    from course_lib import cuda

    module, block = cuda.load("gqa"), 128
    if rung == 1 and k.numel():
        k, v = (_repeat_by_kernel(module, x, group_size, block) for x in (k, v))
        group_size = 1
    grid = (n_q, n_heads // heads_a_block, b)
    kernel = module.attend_by_group if rung == 3 else module.attend_by_head
    kernel[grid, block, need](q, k, v, out, n_q, k.shape[-2], d, group_size, int(causal), scale)
    return out


def _repeat_by_kernel(module, x, group_size, block):
    b, n_kv_heads, n, d = x.shape
    out = x.new_empty(b, n_kv_heads * group_size, n, d)
    grid = (math.ceil(n * d / block), n_kv_heads * group_size, b)
    module.repeat_kv[grid, block](x, out, n_kv_heads, group_size, n * d)
    return out


def _within_window(mask, n_q, n_k, window, device):
    """`mask`, further limited to the last `window` keys of each query."""
    return _both(mask, ~causal_mask(n_q, n_k, device).tril(n_k - n_q - window))


def _both(mask, inside):
    """A mask, boolean, floating or None, and a boolean one in one."""
    if mask is None:
        return inside
    return mask & inside if mask.dtype == torch.bool else mask.masked_fill(~inside, -math.inf)


def _check_heads(name, x):
    if not isinstance(x, Tensor) or x.dim() != 4:
        got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"{name} must be (batch, heads, seq, head_dim); got {got}")


def check_grouped(q, k, v, scale):
    """Refuse what does not fit; return the group size."""
    check_alike(q=q, k=k, v=v)
    for name, x in (("k", k), ("v", v)):
        if x.shape[0] != q.shape[0]:
            raise ValueError(f"{name} must have the batch of q, {q.shape[0]}; got {x.shape[0]}")
    if 0 in (q.shape[1], k.shape[1]) or q.shape[1] % k.shape[1]:
        raise ValueError(f"q must have a multiple of k's {k.shape[1]} heads; got {q.shape[1]}")
    if v.shape[1:3] != k.shape[1:3]:
        raise ValueError(f"v must have the heads and rows of k, {tuple(k.shape[1:3])}; got {tuple(v.shape[1:3])}")
    if k.shape[-1] != q.shape[-1] or q.shape[-1] == 0:
        raise ValueError(f"k must have the head_dim of q, {q.shape[-1]}, at least 1; got {k.shape[-1]}")
    if scale is not None and not math.isfinite(scale):
        raise ValueError(f"scale must be a finite number; got {scale}")
    return q.shape[1] // k.shape[1]
