"""Checks of chapter 3: the layers with fewer heads of keys and values, and their kernels."""
import torch

from course_lib.launching import C_TYPES, SHARED_BYTES

from .attention import check_grouped, check_head_sizes, check_sequence
from .rope import LAYOUTS, check_rope
from .tensors import check_dtype, check_integers, check_like, check_shared_memory, check_tensor
from .values import check_choice, check_count, check_equal, check_sizes


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
    check_equal("v", "have the head_dim of q for this kernel", v.shape[-1], d)
    heads = group_size if rung == 3 else 1
    advice = "Rung 2 serves one head per block" if rung == 3 else ""
    check_shared_memory("q", f"{heads} heads of {d}", shared_bytes(heads, d), SHARED_BYTES, advice)
    return group_size


LARGEST_LATENT, LARGEST_ROPE = 512, 128     # of kernels/gqa/latent_decode.cu


def check_latent_decode(q, q_rope, latent, k_rope, k_up, v_up, lengths, heads_per_block):
    """Returns lengths, all tokens for None."""
    check_tensor("q", q, ("b", "heads", 1, "head_dim"))
    check_dtype("q", q, *C_TYPES)
    b, heads, _, head_dim = q.shape
    check_tensor("q_rope", q_rope, (b, heads, 1, "rope_dim"))
    check_tensor("latent", latent, (b, 1, "n", "latent_dim"))
    _, _, n, latent_dim = latent.shape
    check_tensor("k_rope", k_rope, (b, 1, n, q_rope.shape[3]))
    for name, x in (("k_up", k_up), ("v_up", v_up)):
        check_tensor(name, x, (heads, head_dim, latent_dim))
    alike = {"q_rope": q_rope, "latent": latent, "k_rope": k_rope, "k_up": k_up, "v_up": v_up}
    for name, x in alike.items():
        check_like(name, x, "q", q)
    widths = ("latent", latent_dim, LARGEST_LATENT), ("q_rope", q_rope.shape[3], LARGEST_ROPE)
    for name, size, most in widths:
        if not 0 < size <= most:
            raise ValueError(f"{name} must be 1 to {most} wide for this kernel; got {size}")
    check_choice("heads_per_block", heads_per_block, (None, 1, 4, 16))
    if lengths is None:
        return torch.full((b,), n, device=q.device)
    return check_integers("lengths", lengths, (b,), most=n, device=q.device)
