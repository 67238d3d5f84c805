"""One new query over a cache: split-K decoding in PyTorch, and the kernels of kernels/kv_cache.cu.

    decode_attention    the keys cut into parts, each worked on apart, joined by chapter 6's merge
    decode_kernel       the same by kernels, from float keys and values or from an int8 QuantizedCache
    append_kernel       rotate new keys and write them, with their values, into a StaticCache (kernels/rope.cu)
"""
import math
from functools import reduce

import torch
from torch import Tensor

from course_lib.kv_cache import tensor_core as decode_tensor_core
from course_lib.checks import check_count
from course_lib.flash_attention import finish, grouped, merge, state_of

TILE = 32           # keys a warp reads at a time: one a lane where there is one number a token
LARGEST_WIDTH, LARGEST_GROUP = 128, 8


def choose_splits(heads: int, n_keys: int, n_multiprocessors: int = 132, least_keys: int = 128) -> int:
    """Into how many parts to cut the keys, so that heads * splits blocks fill a GPU and no part is too short."""
    return max(1, min(-(-n_multiprocessors // max(heads, 1)), n_keys // least_keys))


def decode_attention(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None = None,
                     splits: int | None = None) -> Tensor:
    """One new query a sequence: q (b, n_heads, 1, d), k (b, n_kv_heads, m, d), v (b, n_kv_heads, m,
    v_dim) -> (b, n_heads, 1, v_dim). lengths (b,): how many of the m keys are there; the rest is not
    looked at, NaN or not. The keys are cut into `splits` parts (by `choose_splits` if None); each is
    worked on apart, then chapter 6's merge joins them.
    """
    lengths, splits = check_decode(q, k, v, lengths, splits)
    dtype, m = q.dtype, k.shape[2]
    there = torch.arange(m, device=k.device) < lengths[:, None]             # (b, m)
    k, v = (x.masked_fill(~there[:, None, :, None], 0) for x in (k, v))     # 0 * NaN would be NaN
    q, k, v, _ = grouped(q, k, v, None)
    scores = (q @ k.mT * q.shape[-1]**-0.5).masked_fill(~there[:, None, None, None], -torch.inf)
    if m == 0:
        return q.new_zeros(*q.shape[:-1], v.shape[-1]).flatten(1, 2).to(dtype)
    size = -(-m // splits)
    parts = [state_of(scores[..., i:i + size], v[..., i:i + size, :]) for i in range(0, m, size)]
    return finish(reduce(merge, parts))[0].flatten(1, 2).to(dtype)


def check_decode(q, k, v, lengths, splits):
    """Refuse what does not fit; return lengths as a tensor and the number of splits."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() != 4 or not x.is_floating_point() or x.dtype != q.dtype:
            raise ValueError(f"{name} must be (batch, heads, n, width), of q's floating-point dtype; "
                             f"got {x.dtype} of shape {tuple(x.shape)}")
    b, n_heads, n, d = q.shape
    if n != 1:
        raise ValueError(f"q must be one query a sequence, (batch, heads, 1, width); got shape {tuple(q.shape)}")
    if k.shape[0] != b or k.shape[1] == 0 or n_heads % k.shape[1] or k.shape[3] != d:
        raise ValueError(f"k must have q's batch {b} and width {d}, and heads that divide {n_heads}; "
                         f"got {tuple(k.shape)}")
    if v.shape[:3] != k.shape[:3]:
        raise ValueError(f"v must have the batch, heads and tokens of k, {tuple(k.shape[:3])}; "
                         f"got {tuple(v.shape[:3])}")
    m = k.shape[2]
    lengths = torch.full((b,), m, device=k.device) if lengths is None else torch.as_tensor(lengths, device=k.device)
    if lengths.shape != (b,) or lengths.is_floating_point() or not ((0 <= lengths) & (lengths <= m)).all():
        raise ValueError(f"lengths must be ({b},) integers between 0 and {m}; got {lengths.tolist()}")
    if splits is None:
        splits = choose_splits(b * k.shape[1], m)
    check_count("splits", splits, 1)
    return lengths, splits


def decode_kernel(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None = None,
                  splits: int | None = None) -> Tensor:
    """`decode_attention` by kernels/kv_cache.cu, float32: one warp a part of a key head, which serves all its queries.

    Half precision, 64 or 128 wide, goes to kernels/kv_cache/tensor_core.cu.
    """
    asked = splits
    lengths, splits = check_decode(q, k, v, lengths, splits)
    if decode_tensor_core.fits(q, k.shape[1], v.shape[3]):
        return decode_tensor_core.dense(q, k, v, lengths, asked)
    _check_kernel(q, k, v)
    parts = _Parts(q, k.shape[1], splits)
    parts.add("decode_part", (k, v), lengths, splits)
    return parts.merged()


def decode_quantized_kernel(q: Tensor, cache, splits: int | None = None) -> Tensor:
    """The same from a QuantizedCache(8): bytes are read and turned into numbers in the kernel."""
    bits, group = getattr(cache, "bits", None), getattr(cache, "group", None)
    if bits != 8 or group != TILE:
        raise ValueError(f"cache must be QuantizedCache(8, group={TILE}) for this kernel; "
                         f"got {type(cache).__name__}, bits {bits!r}, group {group}")
    k, v = cache.waiting()
    n_packed = cache.length - k.shape[2]
    if splits is None:
        splits = choose_splits(q.shape[0] * k.shape[1], n_packed)
    check_decode(q, k, v, None, splits)
    _check_kernel(q, k, v)
    parts = _Parts(q, k.shape[1], splits * bool(n_packed) + bool(k.shape[2]))
    if n_packed:
        # Views: codes (b, h, n, d), steps and lows of keys (b, h, n / 32, d), of values (b, h, n, 1).
        packed = [x.flatten(2, 3) for x in (*cache.keys, *cache.values)]
        parts.add("decode_part_int8", packed, torch.full((len(q),), n_packed, device=q.device), splits)
    if k.shape[2]:
        parts.add("decode_part", (k, v), torch.full((len(q),), k.shape[2], device=q.device), 1)
    return parts.merged()


def append_kernel(cache, k: Tensor, v: Tensor, rope) -> None:
    """Append to a StaticCache with one kernel: the keys, not rotated yet, are rotated on their way in."""
    if not hasattr(cache, "reserve"):
        raise ValueError(f"cache must be a StaticCache for this kernel; got {type(cache).__name__}")
    if k.dim() != 4 or k.shape[3] % 2 or v.shape != k.shape or k.dtype != torch.float32:
        raise ValueError(f"k must be float32 (batch, heads, n, width) of an even width, shaped like v; "
                         f"got {k.dtype} {tuple(k.shape)}")
    if not isinstance(rope, (tuple, list)) or len(rope) != 2:
        raise ValueError(f"rope must be a pair (cos, sin), as from rope_table; got {type(rope).__name__}")
    (b, heads, n, d), (cos, sin) = k.shape, rope
    if cos.shape[0] < cache.length + n or cos.shape[1] != d // 2:
        raise ValueError(f"rope must be a table of at least {cache.length + n} rows, {d // 2} wide; "
                         f"got {tuple(cos.shape)}")
    cache.reserve(k, v)
    positions = cache.next_positions(n).to(torch.int32).expand(b, n).contiguous()
    pairs = k.numel() // 2
    if pairs:
        from course_lib import cuda

        # The slot of a token is its position: a static cache never moves what it holds.
        cuda.load("rope").rope_append[math.ceil(pairs / 128), 128](
            k.contiguous(), v.contiguous(), cache.k, cache.v, cos.contiguous(), sin.contiguous(), positions, positions,
            pairs, d // 2, heads, n, cache.capacity)
    cache.length += n


class _Parts:
    """The (max, sum, output) of every part, filled by launches one after the other, then merged by a kernel."""

    def __init__(self, q, n_kv_heads, n_parts):
        from course_lib import cuda

        self.module, self.q, self.n_kv_heads = cuda.load("kv_cache"), q.contiguous(), n_kv_heads
        self.n_parts, self.used = n_parts, 0
        b, n_heads, _, d = q.shape
        self.max, self.sum = (q.new_empty(b, n_heads, n_parts) for _ in range(2))
        self.out = q.new_empty(b, n_heads, n_parts, d)

    def add(self, kernel, arrays, lengths, splits):
        b, n_heads, _, d = self.q.shape
        m = arrays[0].shape[2]
        # Parts are whole tiles, so that no group of quantised keys is cut.
        keys_a_part = math.ceil(math.ceil(m / splits) / TILE) * TILE
        if self.q.numel():
            self.module[kernel][(splits, self.n_kv_heads, b), 32](
                self.q, *(x.contiguous() for x in arrays), lengths.to(torch.int32).contiguous(),
                self.max, self.sum, self.out, m, d, n_heads // self.n_kv_heads, keys_a_part, self.used, self.n_parts, d**-0.5)
        self.used += splits

    def merged(self):
        out = torch.empty_like(self.q)
        b, n_heads, _, d = out.shape
        if out.numel():
            self.module.merge_parts[(n_heads, b), 32](self.max, self.sum, self.out, out, self.n_parts, d)
        return out


def _check_kernel(q, k, v):
    if q.dtype != torch.float32:
        raise ValueError(f"q must be float32 for this kernel; got {q.dtype}")
    if v.shape[3] != q.shape[3] or q.shape[3] > LARGEST_WIDTH:
        raise ValueError(f"v must be as wide as q, at most {LARGEST_WIDTH}, for this kernel; "
                         f"got {v.shape[3]} and {q.shape[3]}")
    if q.shape[1] // k.shape[1] > LARGEST_GROUP:
        raise ValueError(f"q must have at most {LARGEST_GROUP} heads a key head for this kernel; "
                         f"got {q.shape[1] // k.shape[1]}")
