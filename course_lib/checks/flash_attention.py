"""What chapter 6 refuses."""
import math

import torch
from torch import Tensor

from course_lib.launching import C_TYPES
from . import broadcasts, check_count, check_equal, check_grouped, check_integers, check_tensor, described

LARGEST_WIDTH = 128


def check_flash(q, k, v, scale, key_bias, **tiles) -> float:
    """Returns the scale to use, 1 / sqrt(head_dim) for None. tiles: tile_q and tile_k, if there are."""
    check_grouped(q, k, v, scale)
    if v.shape[3] == 0:
        raise ValueError("v must have a width of at least 1; got 0")
    if key_bias is not None:
        _check_bias(key_bias, k)
    for name, size in tiles.items():
        check_count(name, size)
    return 1 / math.sqrt(q.shape[3]) if scale is None else float(scale)


def _check_bias(key_bias, k):
    check_tensor("key_bias", key_bias, kind="floating-point")
    check_equal("key_bias", "be on the device of k", key_bias.device, k.device)
    if not broadcasts(key_bias, k.shape[:3]):
        raise ValueError(f"key_bias must broadcast to (batch, n_kv_heads, n_k) = {tuple(k.shape[:3])}; "
                         f"got shape {tuple(key_bias.shape)}")


def check_flash_kernel(q, k, v, scale, key_bias, causal=False) -> float:
    """The number types and widths that the kernels are compiled for, beyond check_flash. -> the scale."""
    scale = check_flash(q, k, v, scale, key_bias)
    if q.dtype not in C_TYPES:
        raise ValueError("q must be float32, float16 or bfloat16 for the kernels (flash_forward_tiles takes "
                         f"float64 too); got {q.dtype}")
    for name, x in (("q", q), ("v", v)):
        if x.shape[3] > LARGEST_WIDTH:
            raise ValueError(f"{name} must have a width of at most {LARGEST_WIDTH} for the kernels; "
                             f"got {x.shape[3]}")
    if isinstance(causal, Tensor):
        raise ValueError(f"causal must be True or False: the kernels take no mask; got {described(causal)}")
    return scale


def check_packed(q, k, v, cu_seqlens, scale, causal) -> tuple[float, Tensor]:
    """One row of tokens, and where its texts begin. Returns the scale, and cu_seqlens as a tensor."""
    scale = check_flash_kernel(q, k, v, scale, None, causal)
    total = q.shape[2]
    if len(q) != 1 or k.shape[2] != total:
        raise ValueError(f"q and k must be one row of the same tokens, batch 1; got {tuple(q.shape)} and "
                         f"{tuple(k.shape)}")
    ends = check_integers("cu_seqlens", cu_seqlens, ("texts + 1",), most=total)
    if len(ends) < 2 or ends[0] != 0 or ends[-1] != total or (ends.diff() < 0).any():
        raise ValueError(f"cu_seqlens must begin with 0, never fall, and end with the {total} tokens of q; "
                         f"got {ends.tolist()}")
    return scale, ends


def check_results(q, v, **results):
    """out, grad_out and lse of a backward pass have the shapes of what the forward pass returned."""
    for name, x in results.items():
        shape = q.shape[:3] if name == "lse" else (*q.shape[:3], v.shape[3])
        if x.shape != shape:
            raise ValueError(f"{name} must have shape {tuple(shape)}; got {tuple(x.shape)}")


def check_rung(rung, lowest, fits_tensor_cores, q, v, scale):
    if rung not in range(lowest, 8) or rung == 7 and not fits_tensor_cores:
        others, widths = "6" if lowest == 6 else f"{lowest} to 6", f"{q.shape[3]} and {v.shape[3]}"
        raise ValueError(f"rung must be {others}, or 7 for float16 or bfloat16, widths that are multiples "
                         f"of 8 and a scale above 0; got {rung} for {q.dtype}, widths {widths}, "
                         f"scale {scale:g}")
