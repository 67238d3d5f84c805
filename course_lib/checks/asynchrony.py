"""What chapter 12 refuses."""
import torch

from course_lib.launching import runs_hopper
from . import check_choice, check_equal, check_number
from .flash_attention import check_flash_kernel


def check_asynchronous(q, k, v, scale, causal, rung, rungs, stages, groups, key_bias) -> float:
    """Returns the scale to use, 1 / sqrt(head_dim) for None."""
    scale = check_flash_kernel(q, k, v, scale, key_bias, causal)
    check_choice("rung", rung, rungs)
    check_choice("stages", stages, (2, 3, 4))
    check_choice("groups", groups, (2, 3) if rung == 7 else (2,), where=f"in rung {rung}")
    if key_bias is not None:
        check_equal("groups", "be 3 for a key_bias", groups, 3)
    if q.dtype != torch.bfloat16:
        raise ValueError(f"q must be bfloat16 for the kernels of this chapter; got {q.dtype}")
    if q.shape[3] not in ((64,) if rung < 5 else (64, 128)):
        raise ValueError("q must have a width of 64, or of 128 from rung 5 on; "
                         f"got {q.shape[3]} for rung {rung}")
    check_number("scale", scale, above=0)
    if not runs_hopper(q.device):
        raise ValueError("q must be on the CPU or on a GPU of sm_90 (Hopper) for the kernels of this chapter")
    check_equal("v", "have the width of q, or 64 in 3 groups", v.shape[3], q.shape[3] if groups == 2 else 64)
    return scale


def check_mode(mode) -> None:
    check_choice("mode", mode, (0, 32, 64, 128))
