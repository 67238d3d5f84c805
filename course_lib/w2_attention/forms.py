"""W2 attention in five equal forms: two build the scores, one is dot-product attention, two are kernels."""
from torch import Tensor

from course_lib.attention import masked_weights, scaled_dot_product_attention, weighted_sum
from course_lib.checks.w2_attention import check_w2_attention
from course_lib.flash_attention import flash_attention
from course_lib.launching import widened
from .kernels import w2_flash_attention
from .scores import product_and_bias, in_columns, joined, w2_scores


def w2_attention(mu_q: Tensor, sigma_q: Tensor, mu_k: Tensor, sigma_k: Tensor, v: Tensor, tau,
                 mask: Tensor | None = None, causal: bool = False, form: str = "direct") -> Tensor:
    """softmax(w2_scores + mask) v: (batch, heads, n, v_dim), v (batch, heads, m, v_dim).

    "direct" and "expanded" build the scores; "augmented" is dot-product attention of width 2 head_dim + 2;
    "kernel" is chapter 6's flash kernel with a bias per key, and "fused" this chapter's own. The last two
    never build n x m numbers, and of masks they take only causal."""
    check_w2_attention(mu_q, sigma_q, mu_k, sigma_k, v, mask, form)
    if form == "fused":
        return w2_flash_attention(mu_q, sigma_q, mu_k, sigma_k, v, tau, causal)
    if form in ("augmented", "kernel"):
        q, k, bias = product_and_bias(*joined(mu_q, sigma_q, mu_k, sigma_k), tau, centred=True)
        if form == "kernel":
            return flash_attention(q, k, v, causal, scale=1.0, key_bias=bias)
        return scaled_dot_product_attention(*in_columns(q, k, bias), v, mask, causal, scale=1.0)
    *gaussians, wide_v = widened(mu_q, sigma_q, mu_k, sigma_k, v)
    weights, allowed = masked_weights(w2_scores(*gaussians, tau, form), mask, causal)
    return weighted_sum(weights, wide_v, allowed).to(mu_q.dtype)
