"""Weights of 8 or 4 bits: a model in a half or a quarter of bfloat16's memory, and what is lost.

int8: every row of a matrix has a scale. int4: every `group` neighbours in a row have a scale and a zero. The
product reads the small numbers and makes them bfloat16 as it goes, so bfloat16 is what it computes in. A torch
or a processor that has no such product makes the whole matrix each time, which is slow, and keeps a number of 4 bits in a byte."""
import torch
from torch import Tensor, nn

from course_lib.field_guide.whole.parts import Product

aten = torch.ops.aten
GROUPS = (32, 64, 128, 256)
# Of attention, feed-forward layers and experts. Routers, embeddings and states stay as they are.
MATRICES = ("q_proj", "k_proj", "v_proj", "out_proj", "gate_proj", "up_proj", "down_proj")


class Quantised(nn.Module):
    def __init__(self, linear: nn.Linear, kind: str, group: int):
        super().__init__()
        self.group, self.bias = group if kind == "int4" else None, linear.bias
        numbers, scales = quantise(linear.weight, kind, group)
        packed, self.fast = numbers, True
        try:
            if kind == "int4":
                packed = aten._convert_weight_to_int4pack_for_cpu(numbers, 1)
            self.product(torch.ones(1, numbers.shape[1], dtype=torch.bfloat16), packed, scales)
        except (AttributeError, RuntimeError):          # not in this torch, or not for this processor
            packed, self.fast = numbers.to(torch.int8), False
        self.register_buffer("numbers", packed)
        self.register_buffer("scales", scales)

    def product(self, rows: Tensor, numbers: Tensor, scales: Tensor) -> Tensor:
        if self.group is None:
            return aten._weight_int8pack_mm(rows, numbers, scales)
        return aten._weight_int4pack_mm_for_cpu(rows, numbers, self.group, scales)

    def forward(self, x: Tensor) -> Tensor:
        if not self.fast:
            return nn.functional.linear(x, dequantised(self.numbers, self.scales).to(x.dtype), self.bias)
        y = self.product(x.flatten(0, -2).bfloat16(), self.numbers, self.scales)
        y = y.to(x.dtype).unflatten(0, x.shape[:-1])
        return y if self.bias is None else y + self.bias


def quantise(weight: Tensor, kind: str, group: int) -> tuple[Tensor, Tensor]:
    """int8: numbers (n, m), scales (n). int4: numbers 0 to 15 (n, m), scales and zeros (m / group, n, 2)."""
    weight = weight.float()
    if kind == "int8":
        scale = (weight.abs().amax(1) / 127).clamp(min=1e-20).bfloat16()
        return (weight / scale[:, None].float()).round().clamp(-127, 127).to(torch.int8), scale
    parts = weight.unflatten(1, (-1, group))
    low, high = parts.amin(-1, keepdim=True), parts.amax(-1, keepdim=True)
    scale = ((high - low) / 15).clamp(min=1e-20).bfloat16().float()
    zero = (low + 8 * scale).bfloat16().float()         # what the number 8 means
    numbers = ((parts - zero) / scale + 8).round().clamp(0, 15).int().flatten(1)
    return numbers, torch.stack([scale[..., 0], zero[..., 0]], -1).transpose(0, 1).contiguous().bfloat16()


def dequantised(numbers: Tensor, scales: Tensor) -> Tensor:
    """The matrix that such numbers stand for, in float32."""
    if scales.dim() == 1:
        return numbers.float() * scales.float()[:, None]
    scale, zero = scales.float().transpose(0, 1).unbind(-1)
    parts = numbers.float().unflatten(1, (scale.shape[1], -1)) - 8
    return (parts * scale[..., None] + zero[..., None]).flatten(1)


def use_quantised(decoder: nn.Module, kind: str, group: int = 64) -> str:
    """Replace the matrices of a decoder; a line on what was."""
    if kind not in ("int8", "int4") or group not in GROUPS:
        raise ValueError(f"weights must be 'int8' or 'int4', and group one of {GROUPS}; got {kind!r} and {group!r}")
    if decoder.device.type != "cpu":
        raise ValueError("weights of 8 or 4 bits are for the CPU: leave device out")
    before, after, left, fast = 0, 0, 0, True
    for module in list(decoder.modules()):
        for name, linear in list(module.named_children()):
            if name not in MATRICES or not isinstance(linear, Product):
                continue
            n, m = linear.weight.shape
            if kind == "int4" and (m % group or n % 16):
                left += 1
                continue
            small = Quantised(linear, kind, group)
            fast = small.fast
            before, after = before + linear.weight.nbytes, after + small.numbers.nbytes + small.scales.nbytes
            setattr(module, name, small)
    return (f"{kind}: matrices of {before / 1e6:,.1f} MB take {after / 1e6:,.1f} MB"
            + (f"; {left}, whose sizes are no multiples of {group} and 16, stay as they are." if left else ".")
            + ("" if fast else " Slow: this torch has no product of such numbers here."))
