"""Checks of chapter 3: the layers with fewer heads of keys and values, and their kernels."""
import torch

from course_lib.launching import SHARED_BYTES

from .attention import check_grouped, check_head_sizes, check_sequence
from .rope import LAYOUTS, check_rope
from .tensors import check_shared_memory, check_tensor
from .values import check_choice, check_count, check_sizes


def check_repeat(x, group_size):
    check_tensor("x", x, ("batch", "heads", "seq", "head_dim"))
    check_count("group_size", group_size)


def check_grouped_layer(d_model, n_heads, n_kv_heads, head_dim, window, rope_layout):
    check_head_sizes(d_model, n_heads, n_kv_heads, head_dim)
    check_count("window", window, optional=True)
    check_choice("rope_layout", rope_layout, LAYOUTS)


def check_layer_input(x, projection, rope):
    """x (batch, n, d_model) for this nn.Linear, and a pair (cos, sin) or None."""
    check_sequence("x", x, projection)
    check_rope(rope)


def check_latent_layer(rope_dim, **sizes):
    check_sizes(**sizes)
    check_count("rope_dim", rope_dim, 2, even=True)


def check_rotated_keys(cache):
    if not getattr(cache, "rotated", True):
        raise ValueError(f"cache must take rotated keys, as a GrowingCache does; got {type(cache).__name__}")


def check_gqa_kernel(q, k, v, scale, rung, shared_bytes) -> int:
    """shared_bytes(heads, d) of a block. Returns the group size."""
    check_choice("rung", rung, (1, 2, 3))
    group_size = check_grouped(q, k, v, scale, (torch.float32,))
    d = q.shape[-1]
    if v.shape[-1] != d:
        raise ValueError(f"v must have the head_dim of q for this kernel, {d}; got {v.shape[-1]}")
    heads = group_size if rung == 3 else 1
    advice = "Rung 2 serves one head per block" if rung == 3 else ""
    check_shared_memory("q", f"{heads} heads of {d}", shared_bytes(heads, d), SHARED_BYTES, advice)
    return group_size
