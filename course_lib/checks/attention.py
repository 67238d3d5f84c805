"""Checks of queries, keys, values and masks, and of the layers that make them."""
import torch

from .tensors import broadcasts, check_dtype, check_integers, check_like, check_tensor
from .values import (check_choice, check_count, check_dropout, check_equal, check_multiple, check_scale,
                     check_sizes)


def check_alike(**tensors):
    """Each is floating-point, four-dimensional, and of the first one's dtype and device."""
    first_name, first = next(iter(tensors.items()))
    for name, x in tensors.items():
        check_tensor(name, x, ("batch", "heads", "seq", "head_dim"), "floating-point")
        check_like(name, x, first_name, first)


def check_attention(q, k, v, scale=None, dropout=0.0, dtypes=None):
    """q (batch, heads, n, head_dim), k (batch, heads, m, head_dim), v (batch, heads, m, v_dim)."""
    check_alike(q=q, k=k, v=v)
    if dtypes is not None:
        check_dtype("q", q, *dtypes)
    for name, x in (("k", k), ("v", v)):
        check_equal(name, "have the batch and heads of q", tuple(x.shape[:2]), tuple(q.shape[:2]))
    _check_widths_and_rows(q, k, v)
    check_scale(scale)
    check_dropout(dropout)


def check_grouped(q, k, v, scale=None, dtypes=None) -> int:
    """q (batch, n_heads, n, head_dim), k and v (batch, n_kv_heads, m, ...). Returns the group size."""
    check_alike(q=q, k=k, v=v)
    if dtypes is not None:
        check_dtype("q", q, *dtypes)
    for name, x in (("k", k), ("v", v)):
        check_equal(name, "have the batch size of q", x.shape[0], q.shape[0])
    check_equal("v", "have as many heads as k", v.shape[1], k.shape[1])
    if 0 in (q.shape[1], k.shape[1]) or q.shape[1] % k.shape[1]:
        raise ValueError(f"q must have a multiple of the heads of k, {k.shape[1]}; got {q.shape[1]}")
    _check_widths_and_rows(q, k, v)
    check_scale(scale)
    return q.shape[1] // k.shape[1]


def _check_widths_and_rows(q, k, v):
    if q.shape[-1] == 0:
        raise ValueError("q must have a head_dim of at least 1; got 0")
    check_equal("k", "have the head_dim of q", k.shape[-1], q.shape[-1])
    check_equal("v", "have one row per key", v.shape[-2], k.shape[-2])


def check_mask(mask, shape, device):
    """mask is boolean or floating, broadcasts to shape = (batch, heads, n, m), and has only one reading."""
    check_tensor("mask", mask)
    check_equal("mask", "be on the device of q", mask.device, device)
    _check_mask_shape(mask, tuple(shape))
    if mask.dtype == torch.bool:
        return
    which = "boolean (True = may attend), or floating and added to the scores (-inf = hidden)"
    if not mask.is_floating_point():
        raise ValueError(f"mask must be {which}; got {mask.dtype}. Which was meant? mask.bool() is boolean")
    if bool(mask.isnan().any()):
        raise ValueError(f"mask must be {which}; got NaN in {int(mask.isnan().sum())} of {mask.numel()} "
                         "entries. Which was meant? mask.masked_fill(mask.isnan(), -math.inf) hides them, "
                         "mask.masked_fill(mask.isnan(), 0) does not")
    if bool((mask == 1).any()) and bool(((mask == 0) | (mask == 1)).all()):
        raise ValueError(f"mask must be {which}; got a floating mask of zeros and ones, which would hide "
                         "nothing. Which was meant? mask.bool() is boolean")


def _check_mask_shape(mask, shape):
    batch, heads = shape[:2]
    per_sequence = mask.dim() == 3 and 1 < len(mask) == batch
    if not broadcasts(mask, shape):
        advice = ". One mask per sequence is mask[:, None]" if per_sequence else ""
        raise ValueError(f"mask must broadcast to (batch, heads, n, m) = {shape}; got shape "
                         f"{tuple(mask.shape)}{advice}")
    if per_sequence and batch == heads:
        raise ValueError(f"mask must have only one reading; got shape {tuple(mask.shape)} for {batch} "
                         f"sequences and {heads} heads. Which was meant? mask[:, None] is one mask "
                         "per sequence, mask[None] one per head")


def check_sequence(name, x, projection):
    """x is (batch, n, width), of the width, dtype and device that this nn.Linear takes."""
    check_tensor(name, x, ("batch", "n", projection.in_features), "floating-point")
    weight = projection.weight
    # Autocast converts dtypes by itself.
    if x.device != weight.device or not torch.is_autocast_enabled(x.device.type):
        check_like(name, x, "the layer's weights", weight)


def check_sequences(**pairs):
    """The inputs of a layer, each with the nn.Linear that takes it; all of one batch size."""
    (first_name, (first, _)), *_ = pairs.items()
    for name, (x, projection) in pairs.items():
        check_sequence(name, x, projection)
        check_equal(name, f"have the batch size of {first_name}", len(x), len(first))


def check_head_sizes(d_model, n_heads, n_kv_heads=1, head_dim=None, dropout=0.0, even=False, **sizes):
    """The sizes of a layer. head_dim is d_model / n_heads unless given; even, if RoPE rotates pairs."""
    check_sizes(d_model=d_model, n_heads=n_heads, n_kv_heads=n_kv_heads, **sizes)
    check_count("head_dim", head_dim, optional=True)
    check_multiple("n_heads", n_heads, "n_kv_heads", n_kv_heads)
    if head_dim is None:
        check_multiple("d_model", d_model, "n_heads", n_heads)
    if even and (head_dim or d_model // n_heads) % 2:
        raise ValueError(f"d_model must be n_heads times an even head_dim; got {d_model} and {n_heads}")
    check_dropout(dropout)


def check_lengths(lengths, n):
    """lengths, one integer from 0 to n per sequence, as a tensor."""
    check_count("n", n, 0)
    return check_integers("lengths", lengths, ("batch",), 0, n)


def check_softmax_kernel(x, kernel, kernels, on_chip, in_registers):
    """The limits of one softmax kernel: its number type, and the length of a row in columns or bytes."""
    check_tensor("x", x, ("rows", "columns"))
    check_choice("kernel", kernel, kernels)
    if kernel == "softmax_registers":
        row = x.shape[1] * x.element_size()
        check_dtype("x", x, torch.float32, torch.float16, torch.bfloat16, where=f"for {kernel}")
        if row % 16 or row > in_registers:
            raise ValueError(f"x must have rows of a multiple of 16 bytes, at most {in_registers:,}, "
                             f"for {kernel}; got {row:,}")
        return
    check_dtype("x", x, torch.float16 if kernel == "softmax_half" else torch.float32, where=f"for {kernel}")
    if kernel == "softmax_on_chip" and x.shape[1] > on_chip:
        raise ValueError(f"x must have at most {on_chip:,} columns for {kernel}; got {x.shape[1]:,}. "
                         "softmax_block takes any number")
