"""Chapter 6's kernels as one differentiable function of PyTorch, on a CPU (the engine) and on a GPU."""
import torch
from torch import Tensor

from course_lib import cuda
from course_lib.checks.flash_attention import check_flash_kernel
from .kernels import backward_kernels, forward_kernel


def flash_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None,
                    key_bias: Tensor | None = None) -> Tensor:
    """Exact attention in O(n) memory -> (batch, n_heads, n_q, v_dim), differentiable, by the kernels.

    q (batch, n_heads, n_q, d), k (batch, n_kv_heads, n_k, d), v (batch, n_kv_heads, n_k, v_dim), all float32,
    float16 or bfloat16, widths 1 to 128. key_bias is added to the scores after the scale, in float32; its
    shape broadcasts to (batch, n_kv_heads, n_k). Gradients have the same bits in every run."""
    scale = check_flash_kernel(q, k, v, scale, key_bias, causal)
    bias = q.new_empty(0, dtype=torch.float32) if key_bias is None else key_bias.float().expand(k.shape[:3])
    return _flash(q, k, v, bias, bool(causal), scale)[0]


def _forward(q: Tensor, k: Tensor, v: Tensor, key_bias: Tensor, causal: bool,
             scale: float) -> tuple[Tensor, Tensor]:
    return forward_kernel(q, k, v, causal, scale, key_bias if key_bias.numel() else None)


def _fake(q, k, v, key_bias, causal, scale):
    return q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3], dtype=torch.float32)


def _backward(grad_out, grad_lse, q, k, v, key_bias, causal, scale, out, lse):
    bias = key_bias if key_bias.numel() else None
    dq, dk, dv, dbias = backward_kernels(grad_out, q, k, v, out, lse, causal, scale, bias)
    return dq, dk, dv, torch.zeros_like(key_bias) if dbias is None else dbias


_flash = cuda.custom_op("flash_attention", _forward, fake=_fake, backward=_backward)
