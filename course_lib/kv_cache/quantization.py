"""Numbers in fewer bits: each group shares a scale (and, for integers, a lowest value).

    int8, int4   x ~ low + step * code, code in 0 .. 2^bits - 1; the error is at most step / 2
    fp8          x ~ step * code, code a float8_e4m3fn of at most 448; the error is relative, about 1/16 at most

Two int4 codes share a byte, so the last dimension must be even.
"""
from typing import NamedTuple

import torch
from torch import Tensor

FP8_LARGEST = 448.0
BITS = (8, 4, "fp8")


class Quantized(NamedTuple):
    codes: Tensor           # uint8, or float8_e4m3fn; int4: the last dimension is halved
    step: Tensor            # float32, 1 along the dimension whose entries share it
    low: Tensor | None      # the same; None for fp8


def check_bits(bits):
    if bits not in BITS:
        raise ValueError(f'bits must be 8, 4 or "fp8"; got {bits!r}')


def quantize(x: Tensor, bits, dim: int) -> Quantized:
    """All entries along dim share a step: dim=-2 of (..., n, d) is a step a channel, dim=-1 a step a token."""
    check_bits(bits)
    if bits == 4 and x.shape[-1] % 2:
        raise ValueError(f"x must have an even last dimension for int4; got {x.shape[-1]}")
    x = x.float()
    if bits == "fp8":
        step = _not_zero(x.abs().amax(dim, keepdim=True) / FP8_LARGEST)
        # Rounding may carry the largest a hair above 448, which would become NaN.
        return Quantized((x / step).clamp(-FP8_LARGEST, FP8_LARGEST).to(torch.float8_e4m3fn), step, None)
    low, high = x.aminmax(dim=dim, keepdim=True)
    top = 2**bits - 1
    step = _not_zero((high - low) / top)
    codes = ((x - low) / step).round().clamp(0, top).to(torch.uint8)
    if bits == 4:
        codes = codes[..., 0::2] | codes[..., 1::2] << 4
    return Quantized(codes, step, low)


def dequantize(x: Quantized, bits) -> Tensor:
    """float32, of the shape that was quantised."""
    check_bits(bits)
    if bits == "fp8":
        return x.codes.float() * x.step
    codes = x.codes
    if bits == 4:
        codes = torch.stack((codes & 15, codes >> 4), -1).flatten(-2)
    return x.low + x.step * codes


def _not_zero(step):
    """A group whose entries are all alike would divide by 0; any step does for it."""
    return torch.where(step > 0, step, torch.ones_like(step))
