"""Chapter 9's kernels as functions of tensors: every rung, the backward, and both as one differentiable function.

Shapes as in course_lib/w2_attention.py; head_dim up to 64, v_dim up to 128; float32, float16 or bfloat16. Values must be
finite, hidden ones too: within a tile a hidden value is multiplied by 0, and 0 times NaN is NaN.
"""
import math

import torch
from torch import Tensor

from course_lib import cuda
from course_lib.flash_attention import flash_attention
from course_lib.flash_attention.kernels import C_TYPES, LARGEST_WIDTH, TENSOR_CORES, aligned, best_rung, fits_tensor_cores, kernels, padded
from course_lib.flash_attention.kernels import forward_kernel as flash_kernel
from .scores import EPS, _as_dot_product, _joined, check_gaussians, check_tau, check_values

LARGEST_HEAD = 64
QUERIES_A_BLOCK = 64


def w2_attention_kernel(mu_q: Tensor, sigma_q: Tensor, mu_k: Tensor, sigma_k: Tensor, v: Tensor, tau,
                        causal: bool = False, rung: int = 2) -> Tensor:
    """One rung of the ladder, without a gradient: 1 builds the matrix of scores, 2 is fused, 3 is on tensor cores.

    3 is an instance of chapter 6's rung 7, for scores of width 2 head_dim with a bias a key and values of their own width:
    float16 or bfloat16, head_dim a multiple of 4, v_dim of 8.
    """
    if rung not in (1, 2, 3):
        raise ValueError(f"rung must be 1, 2 or 3; got {rung!r}")
    tau = check_kernel_inputs(mu_q, sigma_q, mu_k, sigma_k, v, tau)
    if rung == 3:
        q, k, bias = _as_dot_product(*_joined(mu_q, sigma_q, mu_k, sigma_k), tau, centred=True)
        if not fits_tensor_cores(q, v, 1.0):
            raise ValueError("rung must be 1 or 2; 3 takes float16 or bfloat16, a head_dim that is a multiple of 4 and a v_dim "
                             f"of 8; got {v.dtype}, {mu_q.shape[3]} and {v.shape[3]}")
        return flash_kernel(q, k, v, causal, 1.0, bias, rung=TENSOR_CORES)[0]
    if rung == 2:
        return forward_kernel(mu_q, sigma_q, mu_k, sigma_k, v, tau, causal)[0]
    (b, h, n_q, d), n_k, v_dim = mu_q.shape, mu_k.shape[2], v.shape[3]
    out = mu_q.new_empty(b, h, n_q, v_dim)
    if out.numel() == 0 or n_k == 0:
        return out.zero_()
    mu_q, sigma_q, mu_k, sigma_k, v = (x.contiguous() for x in (mu_q, sigma_q, mu_k, sigma_k, v))
    s, lse = torch.empty(b, h, n_q, n_k, device=v.device), torch.empty(b, h, n_q, device=v.device)
    dtype, steps = C_TYPES[v.dtype], kernels("flash_attention")
    to_s, to_out = ((math.ceil(columns / 32), math.ceil(n_q / 4), b * h) for columns in (n_k, v_dim))
    kernels("w2_attention")[f"w2_score_matrix<{dtype}>"][to_s, (32, 4)](
        mu_q, sigma_q, mu_k, sigma_k, 1 / (tau + EPS), s, h, n_q, n_k, d, int(causal))
    steps.softmax_rows[(n_q, b * h), 32](s, lse, n_q, n_k)
    steps[f"weighted_sum<{dtype}>"][to_out, (32, 4)](s, v, out, 1, n_q, n_k, v_dim)
    return out


def forward_kernel(mu_q, sigma_q, mu_k, sigma_k, v, tau, causal):
    """tau (heads,) -> out (batch, heads, n, v_dim), and the largest score and the sum of exponentials of each row."""
    (b, h, n_q, d), n_k, v_dim = mu_q.shape, mu_k.shape[2], v.shape[3]
    out = mu_q.new_empty(b, h, n_q, v_dim)
    row_max, row_sum = (torch.empty(b, h, n_q, device=v.device) for _ in range(2))
    if out.numel() == 0 or n_k == 0:                    # nothing to launch
        return out.zero_(), row_max.fill_(-math.inf), row_sum.zero_()
    inputs = aligned(mu_q, sigma_q, mu_k, sigma_k, v)
    launch = kernels("w2_attention")[f"w2_flash<{C_TYPES[v.dtype]}, {padded(d)}, {padded(v_dim)}>"]
    launch[(math.ceil(n_q / QUERIES_A_BLOCK), b * h), 128](*inputs, 1 / (tau + EPS), out, row_max, row_sum, h, n_q, n_k,
                                                           d, v_dim, int(causal))
    return out, row_max, row_sum


def backward_kernels(grad_out, mu_q, sigma_q, mu_k, sigma_k, v, tau, causal, out, row_max, row_sum):
    """The gradients of the five tensors and of tau, (heads,)."""
    (b, h, n_q, d), n_k, v_dim = mu_q.shape, mu_k.shape[2], v.shape[3]
    grads = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (mu_q, sigma_q, mu_k, sigma_k, v)]
    if out.numel() == 0 or n_k == 0:
        return *(x.zero_() for x in grads), torch.zeros_like(tau)
    *inputs, grad_out, out = aligned(mu_q, sigma_q, mu_k, sigma_k, v, grad_out, out)
    dtype, inverse_tau = C_TYPES[v.dtype], 1 / (tau + EPS)
    delta = torch.empty_like(row_max)
    kernels("flash_attention/backward")[f"rowsum_do_o<{dtype}>"][(n_q, b * h), 32](grad_out, out, delta, n_q, v_dim)
    tile = 16 if padded(d) > 32 or padded(v_dim) > 64 else 32
    tau_part = torch.empty(b, h, math.ceil(n_k / tile), device=v.device)
    given, sizes = (*inputs, grad_out, inverse_tau, row_max, row_sum, delta), (h, n_q, n_k, d, v_dim, int(causal))
    mod, instance = kernels("w2_attention"), f"<{dtype}, {padded(d)}, {padded(v_dim)}>"
    mod[f"w2_backward_keys{instance}"][(tau_part.shape[2], b * h), 64](*given, *grads[2:], tau_part, *sizes)
    mod[f"w2_backward_queries{instance}"][(math.ceil(n_q / tile), b * h), 64](*given, *grads[:2], *sizes)
    return *grads, -inverse_tau * tau_part.sum((0, 2))


def _forward(mu_q: Tensor, sigma_q: Tensor, mu_k: Tensor, sigma_k: Tensor, v: Tensor, tau: Tensor,
             causal: bool) -> tuple[Tensor, Tensor, Tensor]:
    return forward_kernel(mu_q, sigma_q, mu_k, sigma_k, v, tau, causal)


def _fake(mu_q, sigma_q, mu_k, sigma_k, v, tau, causal):
    rows = mu_q.new_empty(mu_q.shape[:3], dtype=torch.float32)
    return mu_q.new_empty(*mu_q.shape[:3], v.shape[3]), rows, torch.empty_like(rows)


def _backward(grad_out, grad_max, grad_sum, mu_q, sigma_q, mu_k, sigma_k, v, tau, causal, out, row_max, row_sum):
    return backward_kernels(grad_out, mu_q, sigma_q, mu_k, sigma_k, v, tau, causal, out, row_max, row_sum)


_w2 = cuda.custom_op("w2_attention", _forward, fake=_fake, backward=_backward)


def w2_flash_attention(mu_q: Tensor, sigma_q: Tensor, mu_k: Tensor, sigma_k: Tensor, v: Tensor, tau,
                       causal: bool = False) -> Tensor:
    """W2 attention in O(n) memory, differentiable in all its tensors and in tau; the same bits in every run.

    On a GPU with tensor cores half precision goes to them, by rung 3 and its backward.
    """
    tau = check_kernel_inputs(mu_q, sigma_q, mu_k, sigma_k, v, tau)
    if mu_q.is_cuda and v.dtype != torch.float32:
        q, k, bias = _as_dot_product(*_joined(mu_q, sigma_q, mu_k, sigma_k), tau, centred=True)
        if best_rung(q, v, 1.0) == TENSOR_CORES:
            return flash_attention(q, k, v, causal, 1.0, bias)
    return _w2(mu_q, sigma_q, mu_k, sigma_k, v, tau, bool(causal))[0]


def check_kernel_inputs(mu_q, sigma_q, mu_k, sigma_k, v, tau) -> Tensor:
    """Raise a ValueError that names what the kernels cannot do, or return tau in float32, one a head."""
    check_gaussians(mu_q, sigma_q, mu_k, sigma_k)
    check_values(v, mu_k)
    if mu_q.dtype not in C_TYPES:
        raise ValueError(f"mu_q must be float32, float16 or bfloat16 for the kernels; got {mu_q.dtype}")
    for name, x, largest in (("mu_q", mu_q, LARGEST_HEAD), ("v", v, LARGEST_WIDTH)):
        if not 1 <= x.shape[3] <= largest:
            raise ValueError(f"{name} must have a width of 1 to {largest} for the kernels; got {x.shape[3]}")
    return check_tau(tau, mu_q.float()).expand(mu_q.shape[1]).contiguous()
