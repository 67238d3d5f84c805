"""Texts of different lengths in one row of tokens, without padding: one launch for all of them."""
import math

import torch
from torch import Tensor

from course_lib import cuda
from course_lib.checks.flash_attention import check_packed
from course_lib.launching import C_TYPES, aligned
from .kernels import padded, row_sums


def flash_attention_packed(q: Tensor, k: Tensor, v: Tensor, cu_seqlens, causal: bool = False,
                           scale: float | None = None) -> Tensor:
    """`flash_attention` of each text with itself -> (1, n_heads, total, v_dim), differentiable.

    q (1, n_heads, total, d), k (1, n_kv_heads, total, d), v (1, n_kv_heads, total, v_dim). Text i is tokens
    cu_seqlens[i] to cu_seqlens[i + 1] - 1: the list begins with 0 and ends with total; a text may be empty.
    """
    scale, ends = check_packed(q, k, v, cu_seqlens, scale, causal)
    longest = int(ends.diff().max())
    return _flash(q, k, v, ends.to(q.device, torch.int32), longest, bool(causal), scale)[0]


def _forward(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, longest: int, causal: bool,
             scale: float) -> tuple[Tensor, Tensor]:
    out, lse = _fake(q, k, v, cu_seqlens, longest, causal, scale)
    if out.numel():
        q, k, v = aligned(q, k, v)
        kernel = cuda.load("flash_attention/packed")[f"flash_packed{_instance(q, v)}"]
        kernel[(math.ceil(longest / 64), q.shape[1], len(cu_seqlens) - 1), 128](
            q, k, v, cu_seqlens, out, lse, *_last(q, k, v, causal, scale))
    return out, lse


def _fake(q, k, v, cu_seqlens, longest, causal, scale):
    return q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3], dtype=torch.float32)


def _backward(grad_out, grad_lse, q, k, v, cu_seqlens, longest, causal, scale, out, lse):
    dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
    if out.numel():
        q, k, v, out, grad_out, lse = aligned(q, k, v, out, grad_out, lse)
        module, instance = cuda.load("flash_attention/backward"), _instance(q, v)
        delta = torch.empty_like(lse)
        row_sums(module, grad_out, out, delta)
        tiles = math.ceil(longest / (32 if max(q.shape[3], v.shape[3]) <= 64 else 16))
        given, last = (q, k, v, cu_seqlens, grad_out, lse, delta), _last(q, k, v, causal, scale)
        texts = len(cu_seqlens) - 1
        module[f"packed_keys{instance}"][(tiles, k.shape[1], texts), 64](*given, dk, dv, *last)
        module[f"packed_queries{instance}"][(tiles, q.shape[1], texts), 64](*given, dq, *last)
    return dq, dk, dv


def _instance(q, v):
    return f"<{C_TYPES[q.dtype]}, {padded(q.shape[3])}, {padded(v.shape[3])}>"


def _last(q, k, v, causal, scale):
    return q.shape[1] // k.shape[1], q.shape[2], q.shape[3], v.shape[3], scale, int(causal)


_flash = cuda.custom_op("flash_attention_packed", _forward, fake=_fake, backward=_backward,
                        gradients=("q", "k", "v"))
