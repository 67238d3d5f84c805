"""Attention by torch's own kernels, for the course's arguments: make(*arguments) -> a call to be timed."""
import torch
from torch.nn import functional as F


def sdpa(backend: str, causal: bool, backward: bool = False):
    """torch's attention by one named backend; backward: only the gradients, of a forward done before."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def make(q, k, v, *rest):
        def forward():
            with sdpa_kernel(getattr(SDPBackend, backend)):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal,
                                                      enable_gqa=q.shape[1] != k.shape[1])
        if not backward:
            return forward
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        out, grad = forward(), rest[0]
        return lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)
    return make


def every_sdpa(causal: bool, backward: bool = False) -> dict:
    named = {"flash": "FLASH_ATTENTION", "cuDNN": "CUDNN_ATTENTION",
             "efficient": "EFFICIENT_ATTENTION", "math": "MATH"}
    return {f"SDPA {name}": sdpa(backend, causal, backward) for name, backend in named.items()}


def flex(rule):
    """FlexAttention, compiled, with a mask of (b, h, i, j)."""
    def make(q, k, v, *_):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        mask = create_block_mask(rule, None, None, q.shape[2], k.shape[2], device=q.device)
        compiled = torch.compile(flex_attention, dynamic=False)
        return lambda: compiled(q, k, v, block_mask=mask, enable_gqa=q.shape[1] != k.shape[1])
    return make


def causal_rule(b, h, i, j):
    return j <= i
