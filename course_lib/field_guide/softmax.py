"""Softmax over what a query sees, and what saves time and memory in every layer."""
from functools import wraps

import torch
from torch import Tensor

SCORES = 1 << 21        # as many at a time


def by_rows(attend):
    """attend(layer, q, k, v, seen) for some queries at a time: scores grow with the square of a text's length."""
    @wraps(attend)
    def some(layer, q, k, v, seen):
        n = max(1, SCORES // (q.shape[0] * q.shape[1] * k.shape[2]))
        if n >= q.shape[2]:
            return attend(layer, q, k, v, seen)
        pieces = zip(q.split(n, 2), seen.split(n, 2))
        return torch.cat([attend(layer, rows, k, v, what) for rows, what in pieces], 2)
    return some


def times(x: Tensor, factor: float | Tensor) -> Tensor:
    """Most factors are 1, and a product with 1 takes as long as any."""
    return x if isinstance(factor, (int, float)) and factor == 1 else x * factor


def masked_softmax(scores: Tensor, seen: Tensor, sinks: Tensor | None = None) -> Tensor:
    """Softmax over what is seen, at least in float32; a sink is one more key, whose weight is dropped.
    Nothing seen gives 0, and a score that is not a number stays one."""
    dtype, wide = scores.dtype, torch.promote_types(scores.dtype, torch.float32)
    scores = scores.to(wide).masked_fill(~seen, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks.to(wide)[:, None, None].expand(*scores.shape[:3], 1)], -1)
        return scores.softmax(-1)[..., :-1].to(dtype)
    return scores.softmax(-1).masked_fill(~seen.any(-1, keepdim=True), 0.0).to(dtype)
