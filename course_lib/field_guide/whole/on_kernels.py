"""A decoder whose attention, rotations and norms are launches of the course's own kernels.

`open_model(folder, kernels=True)`: chapter 6's forward, chapter 5's window, chapter 2's rotation, chapter 1's norm
of rows; on a laptop in the engine, which is slow. What no kernel takes is left to torch, counted under its reason."""
from collections import Counter
from functools import partial

import torch
from torch import Tensor, nn

from course_lib.attention import causal_mask
from course_lib.attention.kernels import rms_norm_kernel
from course_lib.checks.flash_attention import LARGEST_WIDTH
from course_lib.field_guide.base import Attention
from course_lib.field_guide.rotary import cos_and_sin, rotate
from course_lib.field_guide.whole.parts import Norm
from course_lib.flash_attention.kernels import forward_kernel
from course_lib.flash_attention.sinks import give_to_sinks
from course_lib.launching import C_TYPES
from course_lib.rope.kernels import rope_kernel
from course_lib.sparse_attention import sliding_window_mask
from course_lib.sparse_attention.kernels import window_sink_kernel


def use_kernels(decoder: nn.Module) -> Counter:
    """From now on. Counted in what is returned: launches by what they do, and what was left to torch, and why."""
    done: Counter = Counter()
    for module in decoder.modules():
        if isinstance(module, Attention):
            module.attend = partial(_attend, module, module.attend, done)
            module.turned = partial(_turned, module, done)
        elif isinstance(module, nn.RMSNorm) or isinstance(module, Norm) and module.kind != "layer":
            module.forward = partial(_normalised, module, module.forward, done)
    return done


def _attend(layer: Attention, plain, done: Counter, q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    r, n, m = layer.recipe, q.shape[2], k.shape[2]
    q, scale = q.to(k.dtype), r.head_dim ** -0.5 if r.scale is None else r.scale
    causal = seen.shape[:2] == (1, 1) and torch.equal(seen[0, 0], causal_mask(n, m, seen.device))
    many = not causal and n > 1             # queries that see different keys, not by chapter 6's rule
    if why := _left_to_torch(layer, q, k, v, seen, many):
        done[f"attention by torch: {why}"] += 1
        return plain(q, k, v, seen)
    if many:
        done["attention in a window"] += 1
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
        return window_sink_kernel(q, k, v, r.window, scale=scale)
    done["attention"] += 1
    hidden = None if causal else torch.where(seen[:, :, 0], 0.0, float("-inf")).expand(k.shape[:3]).contiguous()
    made = forward_kernel(q, k, v, causal, scale, hidden)
    return (made if layer.sinks is None else give_to_sinks(*made, layer.sinks.detach().float()))[0]


def _left_to_torch(layer: Attention, q, k, v, seen, many: bool) -> str | None:
    r, width, v_width = layer.recipe, q.shape[3], v.shape[3]
    n, alike = q.shape[2], seen.shape[:2] == (1, 1) and layer.sinks is None and width == v_width
    in_window = (r.window and alike and n == k.shape[2]
                 and torch.equal(seen[0, 0].cpu(), sliding_window_mask(n, r.window)))
    reasons = {"latents": type(layer).attend is not Attention.attend, "softcap": r.softcap,
               "wide heads": max(width, v_width) > LARGEST_WIDTH, "number type": q.dtype not in C_TYPES,
               "an indexer": r.indexer or r.index_from is not None, "mask": many and not in_window}
    return next((why for why, holds in reasons.items() if holds), None)


def _turned(layer: Attention, done: Counter, x: Tensor, positions: Tensor, shared: dict | None) -> Tensor:
    rotary = layer.recipe.rotary
    if rotary is None or rotary.axes or x.dtype not in C_TYPES or positions.dim() > 2:
        if rotary:
            done["rotation by torch"] += 1
        return rotate(x, rotary, positions, shared)
    done["rotation"] += 1
    cos, sin = cos_and_sin(rotary, torch.arange(int(positions.max()) + 1, device=x.device), x.device)
    rest = x.shape[-1] - rotary.dim
    first, last = x.split([rest, rotary.dim] if rotary.at == "back" else [rotary.dim, rest], -1)
    still, turning = (first, last) if rotary.at == "back" else (last, first)
    turned = rope_kernel(turning.contiguous(), cos, sin, positions, rotary.layout)
    return torch.cat([still, turned] if rotary.at == "back" else [turned, still], -1)


def _normalised(norm: nn.Module, plain, done: Counter, x: Tensor) -> Tensor:
    if x.dtype not in C_TYPES or getattr(norm, "bias", None) is not None or (
            norm.weight is not None and norm.weight.dtype != x.dtype):
        done["norm by torch"] += 1
        return plain(x)
    done["norm"] += 1
    return rms_norm_kernel(x, norm.weight, norm.eps)
