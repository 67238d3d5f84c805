"""Chapter 1: softmax, scaled dot-product attention, masks, many heads, kernels.

Shapes: q is (batch, heads, n, head_dim), k is (batch, heads, m, head_dim), v is (batch, heads, m, v_dim).
Masks broadcast to (batch, heads, n, m): boolean (True = may attend) or floating (added to the scores).
"""
import math

import torch
from einops import rearrange
from torch import nn
from torch.nn import functional as F

from course_lib.checks import check_floating, check_sizes, check_dropout, check_sequence, check_attention, check_mask

HALF = (torch.float16, torch.bfloat16)


def softmax(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """exp(x) / sum(exp(x)) along dim, safe against overflow. A row of -inf gives NaN, as in torch."""
    check_floating("x", x)
    if not -max(x.dim(), 1) <= dim < max(x.dim(), 1):
        raise ValueError(f"dim must be an axis of x, which has {x.dim()}; got {dim}")
    if x.numel() == 0:
        return x.clone()
    wide = x.float() if x.dtype in HALF else x
    # Subtracting the largest entry changes nothing (shift invariance), but now no exponent is above 0.
    numerator = torch.exp(wide - wide.amax(dim, keepdim=True).detach())
    return (numerator / numerator.sum(dim, keepdim=True)).to(x.dtype)


def online_softmax(x: torch.Tensor) -> torch.Tensor:
    """softmax over the last axis that finds maximum and sum in one pass, an entry at a time."""
    check_floating("x", x)
    if x.dim() == 0:
        raise ValueError("x must have at least one axis; got a scalar")
    wide = x.float() if x.dtype in HALF else x
    largest = wide.new_full(x.shape[:-1], -math.inf)
    total = torch.zeros_like(largest)
    for entry in wide.unbind(-1):
        new_largest = torch.maximum(largest, entry)
        # Before the first finite entry the maximum is -inf, and -inf - -inf would be NaN: measure from 0.
        shift = new_largest.masked_fill(new_largest == -math.inf, 0)
        total = total * torch.exp(largest - shift) + torch.exp(entry - shift)
        largest = new_largest
    return (torch.exp(wide - largest[..., None]) / total[..., None]).to(x.dtype)


def causal_mask(n_q: int, n_k: int | None = None, device=None) -> torch.Tensor:
    """(n_q, n_k), True where query i may see key j. The *last* query sees the last key, always."""
    n_k = n_q if n_k is None else n_k
    for name, n in (("n_q", n_q), ("n_k", n_k)):
        if not isinstance(n, int) or isinstance(n, bool) or n < 0:
            raise ValueError(f"{name} must be an integer of at least 0; got {n!r}")
    return torch.ones(n_q, n_k, dtype=torch.bool, device=device).tril(n_k - n_q)


def padding_mask(lengths, n: int) -> torch.Tensor:
    """(batch, 1, 1, n), True for the first lengths[b] keys of sequence b."""
    lengths = torch.as_tensor(lengths)
    integers = not lengths.is_floating_point() and lengths.dtype != torch.bool or lengths.numel() == 0
    if lengths.dim() != 1 or not integers:
        raise ValueError("lengths must be one integer a sequence; "
                         f"got {lengths.dtype} of shape {tuple(lengths.shape)}")
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise ValueError(f"n must be an integer of at least 0; got {n!r}")
    if len(lengths) and (lengths.min() < 0 or lengths.max() > n):
        raise ValueError(f"lengths must lie between 0 and n = {n}; got {lengths.tolist()}")
    return (torch.arange(n, device=lengths.device) < lengths[:, None])[:, None, None, :]


def scaled_dot_product_attention(q, k, v, mask=None, causal=False, scale=None, dropout=0.0,
                                 return_weights=False):
    """softmax(q k^T * scale + mask) v: (batch, heads, n, v_dim).

    A query with nothing to attend to gives 0. scale is 1/sqrt(head_dim) unless given.
    A hidden key or value may be NaN: outputs do not feel it, gradients do.
    With return_weights, returns (output, weights); the weights are those before dropout.
    """
    check_attention(q, k, v, scale, dropout)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    dtype = q.dtype
    if dtype in HALF:  # half precision in and out, float inside
        q, k, v = q.float(), k.float(), v.float()

    scores = q @ k.transpose(-2, -1) * scale
    weights, allowed = masked_weights(scores, mask, causal)
    kept = F.dropout(weights, dropout) if dropout else weights
    output = weighted_sum(kept, v, allowed).to(dtype)
    return (output, weights.to(dtype)) if return_weights else output


def masked_weights(scores, mask=None, causal=False):
    """softmax of the scores (batch, heads, n, m) over what each query may see; where that is nothing, 0.

    Returns the weights and the boolean mask that was used, or None where everything may be seen.
    """
    allowed, bias = _read_mask(mask, causal, scores)
    if bias is not None:
        scores = scores + bias
    if allowed is None:
        return softmax(scores), None
    # Fill, never multiply: 0 * -inf is NaN. A row with nothing allowed is made harmless before softmax
    # and set to 0 after it, so that neither the value nor the gradient is NaN.
    empty = ~allowed.any(-1, keepdim=True)
    scores = scores.masked_fill(~allowed, -math.inf).masked_fill(empty, 0)
    return softmax(scores).masked_fill(empty, 0), allowed


def weighted_sum(weights, v, allowed):
    """weights @ v, where a hidden key counts for nothing, even a NaN (0 * NaN would be NaN)."""
    output = weights @ v
    if allowed is None:
        return output
    broken = ~torch.isfinite(v)
    if not broken.any():
        return output
    sees_broken = (allowed.expand(weights.shape).to(v.dtype) @ broken.to(v.dtype)) > 0
    return torch.where(sees_broken, output, weights @ v.masked_fill(broken, 0))


def _read_mask(mask, causal, scores):
    """What the scores may see and what is added to them: (boolean or None, floating or None)."""
    allowed = bias = None
    if mask is not None:
        check_mask(mask, scores.shape, scores.device)
        if mask.dtype == torch.bool:
            allowed = mask
        else:
            allowed, bias = mask != -math.inf, mask.to(scores.dtype)
    if causal:
        triangle = causal_mask(*scores.shape[-2:], device=scores.device)
        allowed = triangle if allowed is None else allowed & triangle
    return allowed, bias


class MultiHeadAttention(nn.Module):
    """Attention of n_heads heads side by side, each d_model / n_heads wide.

    The keys and values come from x itself (self-attention) or from a context (cross-attention).
    """

    def __init__(self, d_model, n_heads, context_dim=None, dropout=0.0, bias=True):
        super().__init__()
        context_dim = d_model if context_dim is None else context_dim
        check_sizes(d_model=d_model, n_heads=n_heads, context_dim=context_dim)
        if d_model % n_heads:
            raise ValueError(f"d_model must be a multiple of n_heads; got {d_model} and {n_heads}")
        check_dropout(dropout)
        self.d_model, self.n_heads, self.context_dim, self.dropout = d_model, n_heads, context_dim, dropout
        self.q_proj = nn.Linear(d_model, d_model, bias)
        self.k_proj = nn.Linear(context_dim, d_model, bias)
        self.v_proj = nn.Linear(context_dim, d_model, bias)
        self.out_proj = nn.Linear(d_model, d_model, bias)

    def forward(self, x, context=None, mask=None, causal=False, return_weights=False):
        """x (batch, n, d_model), context (batch, m, context_dim) -> (batch, n, d_model).

        With return_weights also the weights, (batch, n_heads, n, m).
        """
        check_sequence("x", x, self.q_proj)
        if context is None and self.context_dim != self.d_model:
            raise ValueError(f"context must be given: this layer reads one of width {self.context_dim}")
        context = x if context is None else context
        check_sequence("context", context, self.k_proj)
        if len(context) != len(x):
            raise ValueError(f"context must have the batch size of x, {len(x)}; got {len(context)}")

        q = rearrange(self.q_proj(x), "b n (h d) -> b h n d", h=self.n_heads)
        k = rearrange(self.k_proj(context), "b m (h d) -> b h m d", h=self.n_heads)
        v = rearrange(self.v_proj(context), "b m (h d) -> b h m d", h=self.n_heads)
        heads, weights = scaled_dot_product_attention(
            q, k, v, mask, causal, dropout=self.dropout if self.training else 0.0, return_weights=True)
        output = self.out_proj(rearrange(heads, "b h n d -> b n (h d)"))
        return (output, weights) if return_weights else output


def softmax_kernel(x: torch.Tensor, kernel: str | None = None) -> torch.Tensor:
    """softmax of the rows of x (rows, columns) by one kernel of kernels/attention.cu.

    x is float32, or float16 for "softmax_half". "softmax_on_chip" takes 12,224 columns at most (48 KiB).
    "softmax_registers" takes bfloat16 too, and rows of whole 16 bytes up to 64 KiB; it is what runs on a GPU and in
    half precision where no kernel is named and such rows are there, else "softmax_half", "softmax_on_chip" or, for
    rows that do not fit there, "softmax_block".
    """
    from course_lib import cuda

    if x.dim() != 2:
        raise ValueError(f"x must be (rows, columns); got shape {tuple(x.shape)}")
    if kernel is None:
        if x.dtype == torch.bfloat16 or (x.is_cuda or x.dtype == torch.float16) and _registers_fit(x):
            kernel = "softmax_registers"
        elif x.dtype == torch.float16:
            kernel = "softmax_half"
        else:
            kernel = "softmax_on_chip" if x.shape[1] <= ON_CHIP else "softmax_block"
    if kernel == "softmax_registers":
        return _softmax_registers(x)

    launches = {"softmax_naive": (32, 32), "softmax_stable": (32, 32), "softmax_online": (32, 32),
                "softmax_warp": (4, 128), "softmax_half": (4, 128),
                "softmax_block": (1, 128), "softmax_on_chip": (1, 128)}     # rows of a block, threads of a block
    if kernel not in launches:
        raise ValueError(f"kernel must be one of {', '.join(launches)}, softmax_registers; got {kernel!r}")
    dtype = torch.float16 if kernel == "softmax_half" else torch.float32
    if x.dtype != dtype:
        raise ValueError(f"x must be {dtype} for {kernel}; got {x.dtype}")
    rows, columns = x.shape
    if kernel == "softmax_on_chip" and columns > ON_CHIP:
        raise ValueError(f"x must have at most {ON_CHIP} columns for {kernel}; got {columns}: use softmax_block")
    shared_bytes = 4 * columns if kernel == "softmax_on_chip" else 0
    x = x.contiguous()
    out = torch.empty_like(x)
    if out.numel():
        rows_a_block, threads = launches[kernel]
        launch = cuda.load("attention")[kernel][math.ceil(rows / rows_a_block), threads, shared_bytes]
        launch(x, out, rows, columns)
    return out


C_TYPES = {torch.float32: "float", torch.float16: "__half", torch.bfloat16: "__nv_bfloat16"}
ON_CHIP = (48 * 1024 - 256) // 4     # floats of a row in shared memory, beside what the warps merge
MOST_BYTES = 32 * 32 * 4 * 16        # a row in the registers of 32 warps, 4 x 16 bytes a thread


def aligned(*tensors):
    """Vector loads need addresses that are multiples of 16; a view into a tensor may begin elsewhere."""
    return [x.contiguous() if x.data_ptr() % 16 == 0 else x.clone(memory_format=torch.contiguous_format)
            for x in tensors]


def _registers_fit(x):
    row = x.shape[1] * x.element_size()
    return x.dtype in C_TYPES and row % 16 == 0 and row <= MOST_BYTES


def _softmax_registers(x):
    if not _registers_fit(x):
        raise ValueError(f"x must be {', '.join(map(str, C_TYPES))}, with rows of whole 16 bytes and at most "
                         f"{MOST_BYTES} of them, for softmax_registers; got {x.dtype}, {tuple(x.shape)}")
    from course_lib import cuda

    (x,) = aligned(x)
    out = torch.empty_like(x)
    if out.numel():
        loads = math.ceil(x.shape[1] * x.element_size() / (32 * 16))                # of a whole warp, for one row
        warps = next(w for w in (1, 4, 8, 16, 32) if loads <= 4 * w)
        threads, rows_a_block = (128, 4) if warps == 1 else (32 * warps, 1)
        kernel = cuda.load("attention")[f"softmax_registers<{C_TYPES[x.dtype]}, {warps}, {min(loads, 4)}>"]
        kernel[math.ceil(len(x) / rows_a_block), threads](x, out, *x.shape)
    return out


def attention_kernel(q, k, v, causal=False, scale=None) -> torch.Tensor:
    """scaled_dot_product_attention in float32 as three launches: scores, softmax, output."""
    from course_lib import cuda

    check_attention(q, k, v, scale, 0.0)
    if q.dtype != torch.float32:
        raise ValueError(f"q must be float32 for this kernel; got {q.dtype}")
    (batch, heads, n, d), m, v_dim = q.shape, k.shape[2], v.shape[3]
    out = q.new_zeros(batch, heads, n, v_dim)
    if out.numel() == 0 or m == 0:
        return out
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    scale = 1 / math.sqrt(d) if scale is None else scale
    scores = q.new_empty(batch * heads * n, m)
    module, tile = cuda.load("attention"), 16
    blocks = (math.ceil(m / tile), math.ceil(n / tile), batch * heads)
    module.attention_scores[blocks, (tile, tile)](q, k, scores, n, m, d, scale, int(causal))
    weights = softmax_kernel(scores, "softmax_on_chip" if m <= ON_CHIP else "softmax_block")
    blocks = (math.ceil(v_dim / tile), math.ceil(n / tile), batch * heads)
    module.attention_output[blocks, (tile, tile)](weights, v, out, n, m, v_dim, int(causal))
    return out
