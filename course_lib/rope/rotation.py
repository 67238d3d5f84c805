"""Chapter 2: rotary positions. A table of angles, and the rotation of queries and keys by it.

Everywhere in the course `rope` is a pair (cos, sin), each (n, head_dim / 2), or None.
"""
import math

import torch
from einops import rearrange
from torch import nn

from course_lib.attention import C_TYPES, aligned, scaled_dot_product_attention
from course_lib.checks import check_dropout, check_sequence, check_sizes
from course_lib.rope.scaling import rescale


def rope_table(n, head_dim, base=10000.0, scaling=None, device=None, dtype=torch.float32):
    """(cos, sin), each (n, head_dim / 2): position p turns pair i by the angle p * base^(-2i / head_dim).

    scaling changes the frequencies for lengths beyond training, for example {"kind": "linear", "factor": 4}: see
    course_lib/rope_scaling.py.
    """
    if not isinstance(n, int) or n < 0:
        raise ValueError(f"n must be an integer of at least 0; got {n!r}")
    if not isinstance(head_dim, int) or head_dim < 2 or head_dim % 2:
        raise ValueError(f"head_dim must be even and at least 2; got {head_dim!r}")
    if not isinstance(base, (int, float)) or not 0 < base < math.inf:
        raise ValueError(f"base must be a positive, finite number; got {base!r}")
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ValueError(f"dtype must be a floating-point dtype; got {dtype!r}")
    # float64 until the very end: a large position times a rounded frequency is off by whole turns.
    frequencies = base ** -(torch.arange(0, head_dim, 2, dtype=torch.float64, device=device) / head_dim)
    magnitude = 1.0
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


def interleaved_to_half(weight, n_heads):
    """Reorder the rows of a query or key projection (n_heads * head_dim, d_model), or its bias, so that
    layout="half" afterwards gives the scores that layout="interleaved" gave before."""
    check_sizes(n_heads=n_heads)
    if weight.dim() not in (1, 2) or weight.shape[0] % (2 * n_heads):
        raise ValueError(f"weight must have n_heads * head_dim rows with n_heads = {n_heads} and an even head_dim; "
                         f"got shape {tuple(weight.shape)}")
    return rearrange(weight, "(h i two) ... -> (h two i) ...", h=n_heads, two=2)


def alibi_bias(n_heads, n_q, n_k, device=None):
    """(n_heads, n_q, n_k), added to the scores: minus a slope times the distance (arXiv:2108.12409).

    The last query stands at the last key. Slopes are 2^(-8/n), 2^(-16/n), ... for n heads, n a power of two; for other
    numbers of heads every second slope of twice as many fills up, as in the paper's code.
    """
    for name, size, least in (("n_heads", n_heads, 1), ("n_q", n_q, 0), ("n_k", n_k, 0)):
        if not isinstance(size, int) or size < least:
            raise ValueError(f"{name} must be an integer of at least {least}; got {size!r}")
    power = 2 ** int(math.log2(n_heads))
    exponents = [-8 * (i + 1) / power for i in range(power)]
    exponents += [-8 * (i + 0.5) / power for i in range(n_heads - power)]
    slopes = 2.0 ** torch.tensor(exponents, device=device)
    queries = torch.arange(n_q, device=device) + n_k - n_q
    distance = (queries[:, None] - torch.arange(n_k, device=device)).abs()
    return -slopes[:, None, None] * distance


class RoPEAttention(nn.Module):
    """Multi-head attention whose queries and keys are rotated by their positions before they meet."""

    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__()
        check_sizes(d_model=d_model, n_heads=n_heads)
        check_dropout(dropout)
        if d_model % n_heads or d_model // n_heads % 2:
            raise ValueError(f"d_model must be n_heads times an even head_dim; got {d_model} and {n_heads}")
        self.d_model, self.n_heads, self.dropout = d_model, n_heads, dropout
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query, key, value, rope=None, mask=None, return_weights=False, positions=None,
                key_positions=None):
        """query (b, n, d_model), key and value (b, m, d_model) -> (b, n, d_model); rope is (cos, sin) or None.

        Positions count from 0 on both sides unless given: for one new query after m - 1 others, positions=[m - 1].
        """
        for name, x, proj in (("query", query, self.q_proj), ("key", key, self.k_proj), ("value", value, self.v_proj)):
            check_sequence(name, x, proj)
            if len(x) != len(query):
                raise ValueError(f"{name} must have the batch size of query, {len(query)}; got {len(x)}")
        if value.shape[1] != key.shape[1]:
            raise ValueError(f"value must have one row for each of the {key.shape[1]} keys; got {value.shape[1]}")
        q, k, v = (rearrange(proj(x), "b n (h d) -> b h n d", h=self.n_heads)
                   for proj, x in ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value)))
        check_rope(rope)
        if rope is not None:
            q, k = apply_rope(q, *rope, positions), apply_rope(k, *rope, key_positions)
        heads, weights = scaled_dot_product_attention(q, k, v, mask, return_weights=True,
                                                      dropout=self.dropout if self.training else 0.0)
        output = self.out_proj(rearrange(heads, "b h n d -> b n (h d)"))
        return (output, weights) if return_weights else output


RUNGS = {("interleaved", 1): ("rope_interleaved", 1), ("half", 2): ("rope_half", 1),
         ("interleaved", 3): ("rope_interleaved_vec4", 2), ("half", 3): ("rope_half_vec4", 4)}


def rope_kernel(x, cos, sin, positions=None, layout="interleaved", rung=None):
    """`apply_rope` by kernels/rope.cu, without a gradient; x itself is left alone. Rungs 1 and 2 are one layout each.

    Rung 4 takes float32, float16 and bfloat16, the others float32; without a rung it is 4 on a GPU and for half
    precision, else 3, or 1 or 2 where head_dim is too odd for wide accesses.
    """
    _check(x, cos, sin, layout, x.shape[-1])
    _rows(x, cos, sin, positions)
    if rung is None:
        wide = x.is_cuda and x.shape[-1] // 2 % _pairs(x, layout) == 0
        plain, pairs = (2, 4) if layout == "half" else (1, 2)
        rung = 4 if wide or x.dtype in (torch.float16, torch.bfloat16) else plain if x.shape[-1] // 2 % pairs else 3
    if rung != 4 and (layout, rung) not in RUNGS:
        raise ValueError("rung must be 1, 3 or 4 for layout interleaved, 2, 3 or 4 for half; "
                         f"got {rung!r} for {layout}")
    types = C_TYPES if rung == 4 else (torch.float32,)
    if x.dtype not in types:
        raise ValueError(f"x must be {' or '.join(map(str, types))} for rung {rung}; got {x.dtype}")
    if cos.dtype != torch.float32:
        raise ValueError(f"cos and sin must be float32 for the kernels; got {cos.dtype}")
    cos, sin = aligned(cos, sin)
    if rung == 4:
        return _rope_heads(x, cos, sin, _positions_by_batch(x, positions), layout)
    name, pairs_a_thread = RUNGS[layout, rung]
    b, heads, n, d = x.shape
    if d // 2 % pairs_a_thread:
        raise ValueError(f"x must have a head_dim that is a multiple of {2 * pairs_a_thread} for {name}; got {d}")
    out = x.detach().clone(memory_format=torch.contiguous_format)      # autograd would take it for a plain copy
    threads = b * heads * n * d // 2 // pairs_a_thread
    if threads:
        from course_lib import cuda

        block = 128
        kernel = cuda.load("rope")[name]
        positions = _positions_by_batch(x, positions)
        kernel[math.ceil(threads / block), block](out, cos, sin, positions, threads, d // 2, heads, n)
    return out


def _pairs(x, layout):
    """How many pairs of a head a thread of rope_heads turns: 16 bytes of pairs, or twice 16 bytes of halves."""
    return 16 // x.element_size() // (1 if layout == "half" else 2)


def _rope_heads(x, cos, sin, positions, layout):
    (b, heads, n, d), pairs = x.shape, _pairs(x, layout)
    if d // 2 % pairs:
        raise ValueError(f"x must have a head_dim that is a multiple of {2 * pairs} for rope_heads; got {d}")
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if out.numel():
        from course_lib import cuda

        kernel = cuda.load("rope")[f"rope_heads<{C_TYPES[x.dtype]}, {str(layout == 'half').lower()}>"]
        (x,) = aligned(x)
        grid = (math.ceil(n * d // 2 // pairs / 128), math.ceil(heads / 4), b)
        kernel[grid, 128](x, out, cos, sin, positions, d // 2, heads, n)
    return out


def _positions_by_batch(x, positions):
    """(b, n) int32, contiguous, as the kernels want them."""
    b, n = x.shape[0], x.shape[2]
    positions = torch.arange(n, device=x.device) if positions is None else torch.as_tensor(positions)
    return positions.to(x.device, torch.int32).expand(b, n).contiguous()


def _rows(x, cos, sin, positions):
    """The rows of the table that x needs, broadcastable over the heads."""
    n, length = x.shape[-2], len(cos)
    if positions is None:
        if n > length:
            raise ValueError(f"positions must lie in the table of {length} rows; got an x of {n} positions. "
                             f"Ask for a longer table: rope_table({n}, ...)")
        return cos[:n], sin[:n]
    positions = torch.as_tensor(positions, device=x.device)     # a list will do, on whatever device
    if positions.is_floating_point() or positions.dtype == torch.bool or positions.shape not in ((n,), (x.shape[0], n)):
        raise ValueError(f"positions must be integers of shape ({n},) or ({x.shape[0]}, {n}); "
                         f"got {positions.dtype} of shape {tuple(positions.shape)}")
    if positions.numel() and (positions.min() < 0 or positions.max() >= length):
        raise ValueError(f"positions must lie in the table of {length} rows; got {int(positions.min())} to "
                         f"{int(positions.max())}. Ask for a longer table")
    cos, sin = cos[positions], sin[positions]
    return (cos[:, None], sin[:, None]) if positions.dim() == 2 else (cos, sin)


def check_rope(rope):
    """rope must be None or a pair; what is in the pair, apply_rope checks."""
    if rope is not None and not (isinstance(rope, (tuple, list)) and len(rope) == 2):
        raise ValueError(f"rope must be None or a pair (cos, sin), as from rope_table; got {type(rope).__name__}")


def _check(x, cos, sin, layout, rotary_dim):
    if x.dim() != 4 or not x.is_floating_point():
        raise ValueError("x must be floating-point, (batch, heads, n, head_dim); "
                         f"got {x.dtype} of shape {tuple(x.shape)}")
    if layout not in ("interleaved", "half"):
        raise ValueError(f'layout must be "interleaved" or "half"; got {layout!r}')
    if not isinstance(rotary_dim, int) or rotary_dim % 2 or not 0 < rotary_dim <= x.shape[-1]:
        raise ValueError(f"rotary_dim must be even and at most head_dim = {x.shape[-1]}; got {rotary_dim}")
    for name, table in (("cos", cos), ("sin", sin)):
        if not isinstance(table, torch.Tensor) or not table.is_floating_point():
            got = table.dtype if isinstance(table, torch.Tensor) else type(table).__name__
            raise ValueError(f"{name} must be a floating-point tensor; got {got}")
        if table.dim() != 2 or table.shape[-1] != rotary_dim // 2 or table.shape != cos.shape:
            raise ValueError(f"{name} must be (n, {rotary_dim // 2}); got shape {tuple(table.shape)}")
        if table.device != x.device:
            raise ValueError(f"{name} must be on the device of x, {x.device}; got {table.device}")
    if sin.dtype != cos.dtype:
        raise ValueError(f"sin must have the dtype of cos, {cos.dtype}; got {sin.dtype}")
