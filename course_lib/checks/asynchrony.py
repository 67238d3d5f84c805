"""What chapter 12 refuses."""
import torch

from . import check_one_of
from .flash_attention import check_flash_kernel


def check_asynchronous(q, k, v, scale, causal, rung, rungs, stages) -> float:
    """Returns the scale to use, 1 / sqrt(head_dim) for None."""
    scale = check_flash_kernel(q, k, v, scale, None, causal)
    check_one_of("rung", rung, rungs)
    check_one_of("stages", stages, (2, 3, 4))
    if q.dtype != torch.bfloat16:
        raise ValueError(f"q must be bfloat16 for the kernels of this chapter; got {q.dtype}")
    widths = (64,) if rung < 5 else (64, 128)
    check_one_of("q's width", q.shape[3], widths)
    if v.shape[3] != q.shape[3]:
        raise ValueError(f"v must have the width of q, {q.shape[3]}; got {v.shape[3]}")
    return scale


def check_mode(mode) -> None:
    check_one_of("mode", mode, (0, 32, 64, 128))
