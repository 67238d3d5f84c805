"""Chapter 7's kernels as functions: decoding from float or int8 keys, and appending to a cache."""
import math

import torch
from torch import Tensor

from course_lib import cuda
from course_lib.checks.kv_cache import TILE, check_append, check_decode, check_decode_kernel, check_int8_cache
from course_lib.launching import aligned
from . import tensor_core
from .decoding import splits_or_default


def decode_kernel(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None = None,
                  splits: int | None = None) -> Tensor:
    """`decode_attention` by kernels/kv_cache.cu, float32: one warp per part of a key head, for its queries.

    Half precision, 64 or 128 wide, goes to kernels/kv_cache/tensor_core.cu."""
    lengths = check_decode(q, k, v, lengths)
    if tensor_core.fits(q, k.shape[1], v.shape[3]):
        return tensor_core.dense(q, k, v, lengths, splits)
    check_decode_kernel(q, k, v)
    splits = splits_or_default(splits, q, k.shape[1], k.shape[2])
    parts = _Parts(q, k.shape[1], splits)
    parts.add("decode_part", (k, v), lengths, splits)
    return parts.merged()


def decode_quantized_kernel(q: Tensor, cache, splits: int | None = None) -> Tensor:
    """The same from a QuantizedCache(8): the kernel reads bytes and converts them to floats in registers."""
    check_int8_cache(cache)
    k, v = cache.waiting()
    every_waiting = check_decode(q, k, v, None)
    check_decode_kernel(q, k, v)
    n_packed, n_waiting = cache.length - k.shape[2], k.shape[2]
    splits = splits_or_default(splits, q, k.shape[1], n_packed)
    parts = _Parts(q, k.shape[1], (splits if n_packed else 0) + (1 if n_waiting else 0))
    if n_packed:
        # Views: codes (b, h, n, d), steps and lows of keys (b, h, n / 32, d), of values (b, h, n, 1).
        packed = [x.flatten(2, 3) for x in (*cache.keys, *cache.values)]
        parts.add("decode_part_int8", packed, torch.full_like(every_waiting, n_packed), splits)
    if n_waiting:
        parts.add("decode_part", (k, v), every_waiting, 1)
    return parts.merged()


def append_kernel(cache, k: Tensor, v: Tensor, rope) -> None:
    """Append to a StaticCache by one kernel (in kernels/rope.cu) that rotates the keys while it copies them.

    k is not rotated yet; rope is a pair (cos, sin), as from rope_table."""
    check_append(cache, k, v, rope)
    (b, heads, n, d), (cos, sin) = k.shape, rope
    cache.reserve(k, v)
    positions = cache.next_positions(n).to(torch.int32).expand(b, n).contiguous()
    pairs = k.numel() // 2
    if pairs:
        # The slot of a token is its position: a static cache never moves what it holds.
        cuda.load("rope").rope_append[math.ceil(pairs / 128), 128](
            *aligned(k, v), cache.k, cache.v, cos.contiguous(), sin.contiguous(), positions,
            positions, pairs, d // 2, heads, n, cache.capacity)
    cache.length += n


class _Parts:
    """The (max, sum, output) of every part: each launch fills some, and the last kernel merges them."""

    def __init__(self, q, n_kv_heads, n_parts):
        self.module, self.q, self.n_kv_heads = cuda.load("kv_cache"), q.contiguous(), n_kv_heads
        self.n_parts, self.used = n_parts, 0
        b, n_heads, _, d = q.shape
        self.max, self.sum = (q.new_empty(b, n_heads, n_parts) for _ in range(2))
        self.out = q.new_empty(b, n_heads, n_parts, d)

    def add(self, kernel, arrays, lengths, splits):
        b, n_heads, _, d = self.q.shape
        m = arrays[0].shape[2]
        # Parts are whole tiles, so that no group of quantized keys is cut.
        keys_per_part = math.ceil(math.ceil(m / splits) / TILE) * TILE
        if self.q.numel():
            self.module[kernel][(splits, self.n_kv_heads, b), 32](
                self.q, *(x.contiguous() for x in arrays), lengths.to(torch.int32).contiguous(),
                self.max, self.sum, self.out, m, d, n_heads // self.n_kv_heads, keys_per_part, self.used,
                self.n_parts, d**-0.5)
        self.used += splits

    def merged(self):
        out = torch.empty_like(self.q)
        b, n_heads, _, d = out.shape
        if out.numel():
            self.module.merge_parts[(n_heads, b), 32](self.max, self.sum, self.out, out, self.n_parts, d)
        return out
