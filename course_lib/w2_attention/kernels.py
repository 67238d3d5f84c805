"""Chapter 9's kernels as functions of tensors: every rung, the backward, both as one differentiable.

Shapes as in scores.py; head_dim up to 64, v_dim up to 128; float32, float16 or bfloat16. Values must be
finite, hidden ones too: within a tile a hidden value is multiplied by 0, and 0 times NaN is NaN."""
import math

import torch
from torch import Tensor

from course_lib import cuda
from course_lib.checks.w2_attention import check_w2_kernel, check_w2_rung
from course_lib.flash_attention import best_rung, flash_attention
from course_lib.flash_attention import forward_kernel as flash_kernel
from course_lib.flash_attention.kernels import TENSOR_CORES, padded, row_sums
from course_lib.launching import C_TYPES, HALF, aligned
from .scores import EPS, product_and_bias, joined

QUERIES_PER_BLOCK = 64


def w2_attention_kernel(mu_q: Tensor, sigma_q: Tensor, mu_k: Tensor, sigma_k: Tensor, v: Tensor, tau,
                        causal: bool = False, rung: int = 2) -> Tensor:
    """One rung of the ladder, without a gradient: 1 builds the scores, 2 is fused, 3 uses tensor cores.

    3 is an instance of chapter 6's rung 7, for scores of width 2 head_dim with a bias per key, and values of
    their own width: float16 or bfloat16, head_dim a multiple of 4, v_dim of 8."""
    tau = check_w2_kernel(mu_q, sigma_q, mu_k, sigma_k, v, tau)
    check_w2_rung(rung, mu_q, v)
    if rung == 3:
        q, k, bias = dot_product_operands(mu_q, sigma_q, mu_k, sigma_k, tau)
        return flash_kernel(q, k, v, causal, 1.0, bias, rung=TENSOR_CORES)[0]
    if rung == 2:
        return forward_kernel(mu_q, sigma_q, mu_k, sigma_k, v, tau, causal)[0]
    return _three_launches(mu_q, sigma_q, mu_k, sigma_k, v, tau, causal)


def w2_flash_attention(mu_q: Tensor, sigma_q: Tensor, mu_k: Tensor, sigma_k: Tensor, v: Tensor, tau,
                       causal: bool = False) -> Tensor:
    """W2 attention in O(n) memory, differentiable in all its tensors and in tau; the same bits in every run.

    On a GPU with tensor cores half precision takes rung 3 and its backward."""
    tau = check_w2_kernel(mu_q, sigma_q, mu_k, sigma_k, v, tau)
    if mu_q.is_cuda and v.dtype in HALF:
        q, k, bias = product_and_bias(*joined(mu_q, sigma_q, mu_k, sigma_k), tau, centred=True)
        if best_rung(q, v, 1.0) == TENSOR_CORES:
            return flash_attention(q, k, v, causal, 1.0, bias)
    return _w2(mu_q, sigma_q, mu_k, sigma_k, v, tau, bool(causal))[0]


def dot_product_operands(mu_q, sigma_q, mu_k, sigma_k, tau):
    """`product_and_bias` of the centred Gaussians, no gradient: by a kernel if rows are whole 16 bytes."""
    (b, h, _, d), n_k = mu_q.shape, mu_k.shape[2]
    if d % 8 or n_k == 0 or mu_q.dtype not in HALF:
        return product_and_bias(*joined(mu_q, sigma_q, mu_k, sigma_k), tau, centred=True)
    inputs = aligned(mu_q, sigma_q, mu_k, sigma_k)
    q, k = (x.new_empty(*x.shape[:3], 2 * d) for x in (inputs[0], inputs[2]))
    bias, temperature = torch.empty(b, h, n_k, device=mu_k.device), tau + EPS
    launch = cuda.load("w2_attention/tensor_core")[f"w2_prepare<{C_TYPES[mu_q.dtype]}>"]
    for out, of_keys, pair in ((q, None, inputs[:2]), (k, bias, inputs[2:])):
        n = out.shape[2]
        if n:
            launch[(math.ceil(n / 8), b * h), 128](*pair, *inputs[2:], temperature, out, of_keys,
                                                   h, n, n_k, d)
    return q, k, bias


def forward_kernel(mu_q, sigma_q, mu_k, sigma_k, v, tau, causal):
    """tau (heads,) -> out (batch, heads, n, v_dim), and per row the largest score and the sum of exps."""
    (b, h, n_q, d), n_k, v_dim = mu_q.shape, mu_k.shape[2], v.shape[3]
    out = mu_q.new_empty(b, h, n_q, v_dim)
    row_max, row_sum = (torch.empty(b, h, n_q, device=v.device) for _ in range(2))
    if out.numel() == 0 or n_k == 0:                    # nothing to launch
        return out.zero_(), row_max.fill_(-math.inf), row_sum.zero_()
    inputs = aligned(mu_q, sigma_q, mu_k, sigma_k, v)
    grid = math.ceil(n_q / QUERIES_PER_BLOCK), b * h
    cuda.load("w2_attention")["w2_flash" + _instance(d, v)][grid, 128](
        *inputs, 1 / (tau + EPS), out, row_max, row_sum, h, n_q, n_k, d, v_dim, int(causal))
    return out, row_max, row_sum


def backward_kernels(grad_out, mu_q, sigma_q, mu_k, sigma_k, v, tau, causal, out, row_max, row_sum):
    """The gradients of the five tensors and of tau, (heads,)."""
    (b, h, n_q, d), n_k, v_dim = mu_q.shape, mu_k.shape[2], v.shape[3]
    inputs = mu_q, sigma_q, mu_k, sigma_k, v
    grads = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in inputs]
    if out.numel() == 0 or n_k == 0:
        return *(x.zero_() for x in grads), torch.zeros_like(tau)
    *inputs, grad_out, out = aligned(*inputs, grad_out, out)
    inverse_tau, delta = 1 / (tau + EPS), torch.empty_like(row_max)
    row_sums(cuda.load("flash_attention/backward"), grad_out, out, delta)
    tile = 16 if padded(d) > 32 or padded(v_dim) > 64 else 32
    tau_part = torch.empty(b, h, math.ceil(n_k / tile), device=v.device)
    given = *inputs, grad_out, inverse_tau, row_max, row_sum, delta
    sizes = h, n_q, n_k, d, v_dim, int(causal)
    module, instance = cuda.load("w2_attention"), _instance(d, v)
    by_keys, by_queries = (math.ceil(n_k / tile), b * h), (math.ceil(n_q / tile), b * h)
    module["w2_backward_keys" + instance][by_keys, 64](*given, *grads[2:], tau_part, *sizes)
    module["w2_backward_queries" + instance][by_queries, 64](*given, *grads[:2], *sizes)
    return *grads, -inverse_tau * tau_part.sum((0, 2))


def _instance(head_dim, v):
    return f"<{C_TYPES[v.dtype]}, {padded(head_dim)}, {padded(v.shape[3])}>"


def _three_launches(mu_q, sigma_q, mu_k, sigma_k, v, tau, causal):
    """Rung 1: scores, softmax, weighted sum, through a matrix of float32 in memory."""
    (b, h, n_q, d), n_k, v_dim = mu_q.shape, mu_k.shape[2], v.shape[3]
    out = mu_q.new_empty(b, h, n_q, v_dim)
    if out.numel() == 0 or n_k == 0:
        return out.zero_()
    gaussians = [x.contiguous() for x in (mu_q, sigma_q, mu_k, sigma_k)]
    s, lse = torch.empty(b, h, n_q, n_k, device=v.device), torch.empty(b, h, n_q, device=v.device)
    dtype, flash = C_TYPES[v.dtype], cuda.load("flash_attention")
    to_s, to_out = ((math.ceil(columns / 32), math.ceil(n_q / 4), b * h) for columns in (n_k, v_dim))
    cuda.load("w2_attention")[f"w2_score_matrix<{dtype}>"][to_s, (32, 4)](
        *gaussians, 1 / (tau + EPS), s, h, n_q, n_k, d, int(causal))
    flash.softmax_rows[(n_q, b * h), 32](s, lse, n_q, n_k)
    flash[f"weighted_sum<{dtype}>"][to_out, (32, 4)](s, v.contiguous(), out, 1, n_q, n_k, v_dim)
    return out


def _forward(mu_q: Tensor, sigma_q: Tensor, mu_k: Tensor, sigma_k: Tensor, v: Tensor, tau: Tensor,
             causal: bool) -> tuple[Tensor, Tensor, Tensor]:
    return forward_kernel(mu_q, sigma_q, mu_k, sigma_k, v, tau, causal)


def _fake(mu_q, sigma_q, mu_k, sigma_k, v, tau, causal):
    rows = mu_q.new_empty(mu_q.shape[:3], dtype=torch.float32)
    return mu_q.new_empty(*mu_q.shape[:3], v.shape[3]), rows, torch.empty_like(rows)


def _backward(grad_out, grad_max, grad_sum, *inputs_and_outputs):
    return backward_kernels(grad_out, *inputs_and_outputs)


_w2 = cuda.custom_op("w2_attention", _forward, fake=_fake, backward=_backward)
