"""Argument checks of the chapters: a bad input gets a ValueError that names the argument and what was wanted."""
import math

import torch


def check_floating(name, x):
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        got = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
        raise ValueError(f"{name} must be a floating-point tensor; got {got}")


def check_like(name, x, like_name, like):
    if x.dtype != like.dtype:
        raise ValueError(f"{name} must have the dtype of {like_name}, {like.dtype}; got {x.dtype}")
    if x.device != like.device:
        raise ValueError(f"{name} must be on the device of {like_name}, {like.device}; got {x.device}")


def check_count(name, value, least=1):
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}; got {value!r}")


def check_sizes(**sizes):
    """Each is a positive integer."""
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"{name} must be a positive integer; got {size!r}")


def check_dropout(dropout):
    if not 0 <= dropout <= 1:
        raise ValueError(f"dropout must be a probability between 0 and 1; got {dropout!r}")


def check_sequence(name, x, projection):
    """x must be (batch, n, width), of the width, dtype and device that this nn.Linear takes."""
    check_floating(name, x)
    if x.dim() != 3 or x.shape[-1] != projection.in_features:
        raise ValueError(f"{name} must be (batch, n, {projection.in_features}); got shape {tuple(x.shape)}")
    weight = projection.weight
    if x.device != weight.device or not torch.is_autocast_enabled(x.device.type):   # autocast converts by itself
        check_like(name, x, "the layer's weights", weight)


def check_alike(**tensors):
    """Each is floating-point, four-dimensional, and of the first one's dtype and device."""
    first_name, first = next(iter(tensors.items()))
    for name, x in tensors.items():
        check_floating(name, x)
        if x.dim() != 4:
            raise ValueError(f"{name} must be (batch, heads, seq, head_dim); got shape {tuple(x.shape)}")
        check_like(name, x, first_name, first)


def check_inputs(q, k, v, scale, dropout):
    check_alike(q=q, k=k, v=v)
    for name, x in (("k", k), ("v", v)):
        if x.shape[:2] != q.shape[:2]:
            raise ValueError(f"{name} must have the batch and heads of q, {tuple(q.shape[:2])}; "
                             f"got {tuple(x.shape[:2])}")
    if q.shape[-1] == 0:
        raise ValueError("q must have a head_dim of at least 1; got 0")
    if k.shape[-1] != q.shape[-1]:
        raise ValueError(f"k must have the head_dim of q, {q.shape[-1]}; got {k.shape[-1]}")
    if v.shape[-2] != k.shape[-2]:
        raise ValueError(f"v must have one row for each of the {k.shape[-2]} keys; got {v.shape[-2]}")
    if scale is not None and not math.isfinite(scale):
        raise ValueError(f"scale must be a finite number; got {scale}")
    check_dropout(dropout)


def check_mask(mask, shape, device):
    """mask must be boolean or floating, and broadcast to the scores' shape (batch, heads, n, m)."""
    if not isinstance(mask, torch.Tensor):
        raise ValueError(f"mask must be a tensor; got {type(mask).__name__}")
    if mask.device != device:
        raise ValueError(f"mask must be on the device of q, {device}; got {mask.device}")
    try:
        fits = torch.broadcast_shapes(mask.shape, shape) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(f"mask must broadcast to (batch, heads, n, m) = {tuple(shape)}; "
                         f"got shape {tuple(mask.shape)}")
    if mask.dtype == torch.bool:
        return
    which = "boolean (True = may attend), or floating and added to the scores (-inf = hidden)"
    if not mask.is_floating_point():
        raise ValueError(f"mask must be {which}; got {mask.dtype}. Which was meant? mask.bool() is boolean")
    if bool((mask == 1).any()) and bool(((mask == 0) | (mask == 1)).all()):
        raise ValueError(f"mask must be {which}; got a floating mask of zeros and ones, "
                         "which would hide nothing. Which was meant? mask.bool() is boolean")
