"""Chapter 9: Wasserstein-2 attention of Gaussians, forward and backward."""
from functools import partial

import torch

from course_lib.asynchrony import asynchronous_attention
from course_lib.gpu.case import BF16, F16, F32, Case, gradients
from course_lib.w2_attention import w2_attention
from course_lib.flash_attention.kernels import forward_kernel as forward_kernel_6
from course_lib.w2_attention.kernels import (backward_kernels, dot_product_operands, forward_kernel,
                                             w2_attention_kernel)
from course_lib.w2_attention.scores import product_and_bias, joined

SMALL = ({"b": 1, "heads": 2, "n": 33, "m": 50, "d": 32, "causal": True},)
LARGE = ({"b": 1, "heads": 3, "n": 500, "m": 511, "d": 64, "causal": True},)
UNEVEN = tuple({"b": 2, "heads": 2, "n": n, "m": m, "d": d, "v_dim": v_dim, "causal": causal}
               for n, m, d, v_dim in ((1, 1, 4, 4), (33, 63, 31, 20), (100, 31, 32, 7), (64, 64, 16, 32),
                                      (5, 130, 9, 40)) for causal in (False, True))
WIDE = ({"b": 1, "heads": 2, "n": 40, "m": 70, "d": 64, "causal": True},)
WIDE_LARGE = ({"b": 2, "heads": 3, "n": 1001, "m": 777, "d": 64},)


def gaussians(draw, b, heads, n, m, d, causal=False, grad=False, v_dim=None):
    mu_q, mu_k, v = draw(b, heads, n, d), draw(b, heads, m, d), draw(b, heads, m, v_dim or d)
    sigma_q, sigma_k = draw(b, heads, n, d).abs(), draw(b, heads, m, d).abs()
    tau = torch.arange(8.0, 8 + heads, device=v.device)         # one per head
    return mu_q, sigma_q, mu_k, sigma_k, v, tau, *([draw(b, heads, n, v_dim or d)] if grad else []), causal


def exact(*arguments):
    *inputs, causal = arguments
    return w2_attention(*inputs, causal=causal)


def prepared(mu_q, sigma_q, mu_k, sigma_k, v, tau, causal):
    """For timing: queries, keys and bias of the dot product, made before."""
    q, k, bias = dot_product_operands(mu_q, sigma_q, mu_k, sigma_k, tau)
    return q, k, v, bias, causal


def attend_prepared(q, k, v, bias, causal):
    return forward_kernel_6(q, k, v, causal, 1.0, bias, rung=7)[0]


def attend_by_wgmma(q, k, v, bias, causal):
    return asynchronous_attention(q, k, v, causal, 1.0, groups=3, key_bias=bias)[0]


def forward(number, *kernels, dtype=F32, note="", small=SMALL, large=LARGE):
    return Case(chapter="w2_attention", kernels=kernels, dtype=dtype, note=note, tensor_cores=number == 3,
                inputs=gaussians, run=lambda *x: w2_attention_kernel(*x, number),
                oracle=exact, small=small, large=large)


def gradients_by_kernels(*arguments):
    *inputs, grad, causal = arguments
    return backward_kernels(grad, *inputs, causal, *forward_kernel(*inputs, causal))


def operands(mu_q, sigma_q, mu_k, sigma_k, v, tau, causal):
    return dot_product_operands(mu_q, sigma_q, mu_k, sigma_k, tau)


def operands_in_float64(mu_q, sigma_q, mu_k, sigma_k, v, tau, causal):
    return product_and_bias(*joined(mu_q, sigma_q, mu_k, sigma_k), tau, centred=True)


CASES = [
    *(Case(chapter="w2_attention", kernels=("w2_prepare",), dtype=dtype, inputs=gaussians, run=operands,
           oracle=operands_in_float64, small=WIDE, large=WIDE_LARGE) for dtype in (F16, BF16)),
    *(forward(3, "w2_prepare", "flash_tensor_core", dtype=dtype, note="width 2 d",
              small=WIDE, large=WIDE_LARGE)
      for dtype in (F16, BF16)),
    Case(chapter="w2_attention", kernels=("w2_prepare", "flash3_three_groups"), dtype=BF16, hopper=True, note="W2",
         inputs=gaussians, run=lambda *x: attend_by_wgmma(*prepared(*x)), oracle=exact,
         small=(*WIDE, SMALL[0] | {"v_dim": 64}, WIDE[0] | {"n": 200, "m": 389, "causal": False}),
         large=(*LARGE, *WIDE_LARGE)),
    forward(1, "w2_score_matrix", "softmax_rows", "weighted_sum", small=(*SMALL, *UNEVEN)),
    forward(2, "w2_flash", small=(*SMALL, *UNEVEN)),
    *(forward(3, "flash_tensor_core", dtype=dtype, note="W2") for dtype in (F16, BF16)),
    Case(chapter="w2_attention", kernels=("rowsum_do_o", "w2_backward_keys", "w2_backward_queries"),
         inputs=partial(gaussians, grad=True), run=gradients_by_kernels, oracle=gradients(exact),
         small=(*SMALL, SMALL[0] | {"v_dim": 64}, *UNEVEN[2:]), large=LARGE)]     # values wider than keys spill most
