"""Numbers in fewer bits, and a cache of them. Each group shares a step (and, for integers, a lowest value).

    int8, int4   x ~ low + step * code, code in 0 .. 2^bits - 1; the error is at most step / 2
    fp8          x ~ step * code, code a float8_e4m3fn up to 448; the relative error is at most about 1/16

Two int4 codes share a byte, so the last dimension must be even."""
from typing import NamedTuple

import torch
from torch import Tensor

from course_lib.checks.kv_cache import check_bits, check_not_empty
from .caches import KVCache

FP8_LARGEST = 448.0


class Quantized(NamedTuple):
    codes: Tensor           # uint8, or float8_e4m3fn; int4: the last dimension is halved
    step: Tensor            # float32, of size 1 along the dimension whose entries share it
    low: Tensor | None      # the same; None for fp8


def quantize(x: Tensor, bits, dim: int) -> Quantized:
    """All entries along dim share a step. Of (..., n, d), dim=-2 is a step per channel, dim=-1 per token."""
    check_bits(bits, x)
    x = x.float()
    if bits == "fp8":
        step = _not_zero(x.abs().amax(dim, keepdim=True) / FP8_LARGEST)
        # Rounding may push the largest value just above 448, which would become NaN.
        return Quantized((x / step).clamp(-FP8_LARGEST, FP8_LARGEST).to(torch.float8_e4m3fn), step, None)
    codes, step, low = affine_codes(x, bits, dim)
    codes = codes.to(torch.uint8)
    if bits == 4:
        codes = codes[..., 0::2] | codes[..., 1::2] << 4
    return Quantized(codes, step, low)


def affine_codes(x: Tensor, bits: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """x -> codes 0 .. 2^bits - 1, still floating point; step and low, with size 1 along dim"""
    low, high = x.aminmax(dim=dim, keepdim=True)
    top = 2**bits - 1
    step = _not_zero((high - low) / top)
    return ((x - low) / step).round().clamp(0, top), step, low


def dequantize(x: Quantized, bits) -> Tensor:
    """float32, of the shape that was quantized."""
    check_bits(bits)
    if bits == "fp8":
        return x.codes.float() * x.step
    codes = x.codes
    if bits == 4:
        codes = torch.stack((codes & 15, codes >> 4), -1).flatten(-2)
    return x.low + x.step * codes


def _not_zero(step):
    """Avoids 0 / 0 where all entries of a group are equal; any step represents them."""
    return torch.where(step > 0, step, torch.ones_like(step))


class QuantizedCache(KVCache):
    """Whole groups of tokens as int8, int4 or fp8; the newest, up to group - 1, wait in full precision.

    Keys have one step per channel and group (some channels are large in every token), values one step per
    token: a large channel of keys, or a large token of values, does not add to the errors of the others."""

    def __init__(self, bits, group: int = 32):
        super().__init__()
        check_bits(bits, group=group)
        self.bits, self.group = bits, group
        self.keys = self.values = None      # Quantized, (batch, n_kv_heads, groups, group, width)

    def _add(self, k, v):
        if self.k is None:
            self.k, self.v = k[:, :, :0], v[:, :, :0]
            self.keys, self.values = self._pack(0)
        self.k, self.v = torch.cat((self.k, k), 2), torch.cat((self.v, v), 2)
        n_groups = self.k.shape[2] // self.group
        if n_groups:
            self.keys, self.values = (_each(lambda *x: torch.cat(x, 2), old, new)
                                      for old, new in zip((self.keys, self.values), self._pack(n_groups)))
            # A copy: a slice would keep the memory of the packed tokens alive.
            super()._map(lambda x: x[:, :, n_groups * self.group:].clone())

    def _held(self):
        return tuple(torch.cat((dequantize(packed, self.bits).flatten(2, 3).to(waiting.dtype), waiting), 2)
                     for packed, waiting in ((self.keys, self.k), (self.values, self.v)))

    def waiting(self) -> tuple[Tensor, Tensor]:
        """Keys and values in full precision: the newest, fewer than a group."""
        check_not_empty(self)
        return self.k, self.v

    def _cut(self, n):
        """If the cut is inside a group, unpack it: its tokens wait again."""
        if self.k is not None:
            whole, rest = divmod(n, self.group)
            if n < self.length - self.k.shape[2]:
                cut = (_each(lambda x: x[:, :, whole], packed) for packed in (self.keys, self.values))
                self.k, self.v = (dequantize(packed, self.bits).to(self.k.dtype) for packed in cut)
                self.keys, self.values = (_each(lambda x: x[:, :, :whole].clone(), packed)
                                          for packed in (self.keys, self.values))
            super()._map(lambda x: x[:, :, :rest])

    def _pack(self, n_groups):
        n = n_groups * self.group
        groups = (x[:, :, :n].unflatten(2, (n_groups, self.group)) for x in (self.k, self.v))
        return tuple(quantize(x, self.bits, dim) for x, dim in zip(groups, (-2, -1)))

    def _tensors(self):
        return [x for x in (*(self.keys or ()), *(self.values or ()), self.k, self.v) if x is not None]

    def _map(self, change):
        super()._map(change)
        self.keys, self.values = _each(change, self.keys), _each(change, self.values)


def _each(change, *packed):
    """change() on the codes, on the steps, and on the lowest values if present."""
    return Quantized(*(None if fields[0] is None else change(*fields) for fields in zip(*packed)))
