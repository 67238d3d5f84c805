"""Chapter 2: rotary positions. A table of angles, and the rotation of queries and keys by it.

Everywhere in the course `rope` is a pair (cos, sin), each (n, head_dim / 2), or None.
"""
import torch


def rope_table(n, head_dim, base=10000.0, scaling=None, device=None, dtype=torch.float32):
    """(cos, sin), each (n, head_dim / 2): position p turns pair i by the angle p * base^(-2i / head_dim)."""
    if not isinstance(n, int) or n < 0:
        raise ValueError(f"n must be an integer of at least 0; got {n!r}")
    if not isinstance(head_dim, int) or head_dim < 2 or head_dim % 2:
        raise ValueError(f"head_dim must be even and at least 2; got {head_dim!r}")
    if not base > 0:
        raise ValueError(f"base must be positive; got {base!r}")
    if scaling is not None:
        raise ValueError(f"scaling must be None; got {scaling!r}")
    # float64 until the very end: a large position times a rounded frequency is off by whole turns.
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64, device=device) / head_dim
    angles = torch.arange(n, dtype=torch.float64, device=device)[:, None] * base ** -exponents
    return angles.cos().to(dtype), angles.sin().to(dtype)


def apply_rope(x, cos, sin, positions=None, layout="interleaved", rotary_dim=None):
    """Rotate x (batch, heads, n, head_dim) by position; positions is (n,) or (batch, n), 0..n-1 unless given.

    layout says which entries form a pair: "interleaved" (2i, 2i + 1) or "half" (i, i + rotary_dim / 2).
    With rotary_dim, only the first rotary_dim entries are rotated.
    """
    rotary_dim = x.shape[-1] if rotary_dim is None else rotary_dim
    _check(x, cos, sin, layout, rotary_dim)
    cos, sin = _rows(x, cos, sin, positions)
    rotated, rest = x[..., :rotary_dim], x[..., rotary_dim:]
    if layout == "interleaved":
        a, b = rotated[..., 0::2], rotated[..., 1::2]
        turned = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
    else:
        a, b = rotated.chunk(2, -1)
        turned = torch.cat((a * cos - b * sin, a * sin + b * cos), -1)
    return torch.cat((turned.to(x.dtype), rest), -1) if rest.shape[-1] else turned.to(x.dtype)


def _rows(x, cos, sin, positions):
    """The rows of the table that x needs, broadcastable over the heads."""
    n, length = x.shape[-2], len(cos)
    if positions is None:
        if n > length:
            raise ValueError(f"positions must lie in the table of {length} rows; x has {n} positions. "
                             f"Ask for a longer table: rope_table({n}, ...)")
        return cos[:n], sin[:n]
    if positions.is_floating_point() or positions.shape not in ((n,), (x.shape[0], n)):
        raise ValueError(f"positions must be integers of shape ({n},) or ({x.shape[0]}, {n}); "
                         f"got {positions.dtype} of shape {tuple(positions.shape)}")
    if positions.numel() and (positions.min() < 0 or positions.max() >= length):
        raise ValueError(f"positions must lie in the table of {length} rows; got {int(positions.min())} to "
                         f"{int(positions.max())}. Ask for a longer table")
    cos, sin = cos[positions], sin[positions]
    return (cos[:, None], sin[:, None]) if positions.dim() == 2 else (cos, sin)


def _check(x, cos, sin, layout, rotary_dim):
    if x.dim() != 4 or not x.is_floating_point():
        raise ValueError("x must be floating-point, (batch, heads, n, head_dim); "
                         f"got {x.dtype} of shape {tuple(x.shape)}")
    if layout not in ("interleaved", "half"):
        raise ValueError(f'layout must be "interleaved" or "half"; got {layout!r}')
    if rotary_dim % 2 or not 0 < rotary_dim <= x.shape[-1]:
        raise ValueError(f"rotary_dim must be even and at most head_dim = {x.shape[-1]}; got {rotary_dim}")
    for name, table in (("cos", cos), ("sin", sin)):
        if table.dim() != 2 or table.shape[-1] != rotary_dim // 2 or table.shape != cos.shape:
            raise ValueError(f"{name} must be (n, {rotary_dim // 2}); got shape {tuple(table.shape)}")
        if table.device != x.device:
            raise ValueError(f"{name} must be on the device of x, {x.device}; got {table.device}")
