"""Attention with a learned sink per head, as in gpt-oss: a score that takes weight and gives no value."""
import torch
from torch import Tensor

from course_lib import cuda
from course_lib.checks import check_tensor
from course_lib.checks.flash_attention import check_flash_kernel
from course_lib.launching import C_TYPES, aligned
from .kernels import backward_kernels, forward_kernel, row_sums


def flash_attention_with_sinks(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor, causal: bool = False,
                               scale: float | None = None) -> Tensor:
    """As `flash_attention`, with sinks (n_heads,) in float32; differentiable in all four."""
    scale = check_flash_kernel(q, k, v, scale, None, causal)
    check_tensor("sinks", sinks, kind="floating-point")
    if sinks.shape != q.shape[1:2] or sinks.dtype != torch.float32 or sinks.device != q.device:
        raise ValueError(f"sinks must be float32 of shape ({q.shape[1]},) on {q.device}; got {sinks.dtype} "
                         f"of shape {tuple(sinks.shape)} on {sinks.device}")
    return _flash(q, k, v, sinks, bool(causal), scale)[0]


def _forward(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor, causal: bool,
             scale: float) -> tuple[Tensor, Tensor]:
    return give_to_sinks(*forward_kernel(q, k, v, causal, scale), sinks)


def give_to_sinks(out: Tensor, lse: Tensor, sinks: Tensor) -> tuple[Tensor, Tensor]:
    """What forward_kernel gave, in place, with each head's sink as one more key; sinks in float32."""
    if out.numel():
        batch, heads, n_q, v_dim = out.shape
        give = cuda.load("flash_attention/sinks")[f"give_to_sinks<{C_TYPES[out.dtype]}>"]
        give[(n_q, batch * heads), 32](out, lse, sinks, heads, n_q, v_dim)
    return out, lse


def _fake(q, k, v, sinks, causal, scale):
    return q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3], dtype=torch.float32)


def _backward(grad_out, grad_lse, q, k, v, sinks, causal, scale, out, lse):
    dq, dk, dv, _ = backward_kernels(grad_out, q, k, v, out, lse, causal, scale)
    grad_sinks = torch.zeros_like(sinks)
    if out.numel():
        grad_out, out, lse = aligned(grad_out, out, lse)
        delta = torch.empty_like(lse)
        row_sums(cuda.load("flash_attention/backward"), grad_out, out, delta)
        sums = cuda.load("flash_attention/sinks").sink_gradients
        sums[q.shape[1], 256](lse, delta, sinks, grad_sinks, q.shape[0], q.shape[2])
    return dq, dk, dv, grad_sinks


_flash = cuda.custom_op("flash_attention_with_sinks", _forward, fake=_fake, backward=_backward)
