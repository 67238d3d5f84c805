"""Chapter 2: rotary positions. A table of angles, and the rotation of queries and keys by it.

Everywhere in the course `rope` is a pair (cos, sin), each (n, head_dim / 2), or None."""
import torch
from einops import rearrange

from course_lib.checks.rope import check_head_rows, check_rope_table, check_rotation
from course_lib.rope.scaling import rescale


def rope_frequencies(head_dim, base=10000.0, device=None):
    """(head_dim / 2,), radians per position: base^(-2i / head_dim) for pair i, the fastest first."""
    check_rope_table(0, head_dim, base)
    # float64 until the very end: a large position times a rounded frequency is off by whole turns.
    return base ** -(torch.arange(0, head_dim, 2, dtype=torch.float64, device=device) / head_dim)


def rope_table(n, head_dim, base=10000.0, scaling=None, device=None, dtype=torch.float32):
    """(cos, sin), each (n, head_dim / 2): position p turns pair i by the angle p * base^(-2i / head_dim).

    scaling changes the frequencies for texts longer than those of the training, for example
    {"kind": "linear", "factor": 4}: see course_lib/rope/scaling.py."""
    check_rope_table(n, head_dim, base, dtype)
    frequencies, magnitude = rope_frequencies(head_dim, base, device), 1.0
    if scaling is not None:
        frequencies, magnitude = rescale(frequencies, scaling, base)
    angles = torch.arange(n, dtype=torch.float64, device=device)[:, None] * frequencies
    return (magnitude * angles.cos()).to(dtype), (magnitude * angles.sin()).to(dtype)


def apply_rope(x, cos, sin, positions=None, layout="interleaved", rotary_dim=None):
    """Rotate x (batch, heads, n, head_dim) by position.

    positions is (n,) or (batch, n), and 0..n-1 unless given.
    layout says which entries form a pair: "interleaved" (2i, 2i + 1) or "half" (i, i + rotary_dim / 2).
    With rotary_dim, only the first rotary_dim entries are rotated.
    """
    positions = check_rotation(x, cos, sin, positions, layout, rotary_dim)
    rotary_dim = x.shape[-1] if rotary_dim is None else rotary_dim
    cos, sin = _rows(cos, positions, x), _rows(sin, positions, x)
    rotated, rest = x[..., :rotary_dim], x[..., rotary_dim:]
    if layout == "interleaved":
        a, b = rotated[..., 0::2], rotated[..., 1::2]
        turned = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
    else:
        a, b = rotated.chunk(2, -1)
        turned = torch.cat((a * cos - b * sin, a * sin + b * cos), -1)
    return torch.cat((turned.to(x.dtype), rest), -1) if rest.shape[-1] else turned.to(x.dtype)


def _rows(table, positions, x):
    """The rows of the table for these positions, (n, head_dim / 2) or (batch, 1, n, head_dim / 2)."""
    if positions is None:
        return table[:x.shape[-2]]
    rows = table[positions]
    return rows[:, None] if positions.dim() == 2 else rows


def interleaved_to_half(weight, n_heads):
    """Reorder the rows of a query or key projection (n_heads * head_dim, d_model), or its bias, so that
    layout="half" afterwards gives the scores that layout="interleaved" gave before."""
    check_head_rows(weight, n_heads, even=True)
    return rearrange(weight, "(h i two) ... -> (h two i) ...", h=n_heads, two=2)
