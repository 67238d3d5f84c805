"""Softmax over what a query sees."""
import torch
from torch import Tensor


def masked_softmax(scores: Tensor, seen: Tensor, sinks: Tensor | None = None) -> Tensor:
    """Softmax over what is seen, at least in float32; a sink is one more key, whose weight is dropped.
    Nothing seen gives 0, and a score that is not a number stays one."""
    dtype, wide = scores.dtype, torch.promote_types(scores.dtype, torch.float32)
    scores = scores.to(wide).masked_fill(~seen, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks.to(wide)[:, None, None].expand(*scores.shape[:3], 1)], -1)
        return scores.softmax(-1)[..., :-1].to(dtype)
    return scores.softmax(-1).masked_fill(~seen.any(-1, keepdim=True), 0.0).to(dtype)
