"""What chapter 9 refuses."""
import torch
from torch import Tensor

from course_lib.launching import C_TYPES, HALF
from . import check_choice, check_dtype, check_equal, check_like, check_tensor, described

FORMS = ("direct", "expanded", "augmented", "kernel", "fused")
LARGEST_HEAD, LARGEST_VALUE = 64, 128       # what the kernels are compiled for


def check_gaussians(mu_q, sigma_q, mu_k, sigma_k):
    """mu and sigma of queries and keys, (batch, heads, n, head_dim); sigma is at least 0."""
    named = {"mu_q": mu_q, "sigma_q": sigma_q, "mu_k": mu_k, "sigma_k": sigma_k}
    for name, x in named.items():
        check_tensor(name, x, ("batch", "heads", "n", "head_dim"), "floating-point")
        check_like(name, x, "mu_q", mu_q)
    for letter in "qk":
        mu, sigma = named[f"mu_{letter}"], named[f"sigma_{letter}"]
        check_equal(f"sigma_{letter}", f"have the shape of mu_{letter}", tuple(sigma.shape), tuple(mu.shape))
        _check_widths(f"sigma_{letter}", sigma)
    if mu_k.shape[:2] != mu_q.shape[:2] or mu_k.shape[-1] != mu_q.shape[-1]:
        raise ValueError(f"mu_k must have the batch, heads and head_dim of mu_q, {tuple(mu_q.shape)}; "
                         f"got {tuple(mu_k.shape)}")


def check_w2_attention(mu_q, sigma_q, mu_k, sigma_k, v, mask, form):
    check_choice("form", form, FORMS)
    check_gaussians(mu_q, sigma_q, mu_k, sigma_k)
    _check_values(v, mu_k)
    if form in ("kernel", "fused") and mask is not None:
        raise ValueError(f"mask must be None for a kernel, which takes only causal; got {described(mask)}. "
                         "Use another form")


def check_w2_kernel(mu_q, sigma_q, mu_k, sigma_k, v, tau) -> Tensor:
    """The number types and widths that the kernels are compiled for. Returns tau in float32, (heads,)."""
    check_gaussians(mu_q, sigma_q, mu_k, sigma_k)
    _check_values(v, mu_k)
    check_dtype("mu_q", mu_q, *C_TYPES, where="for the kernels")
    for name, x, largest in (("mu_q", mu_q, LARGEST_HEAD), ("v", v, LARGEST_VALUE)):
        width = x.shape[3]
        if not 1 <= width <= largest:
            raise ValueError(f"{name} must have a width from 1 to {largest} for the kernels; got {width}")
    return check_tau(tau, mu_q.float()).expand(mu_q.shape[1]).contiguous()


def check_w2_rung(rung, mu_q, v):
    check_choice("rung", rung, (1, 2, 3))
    if rung == 3 and (v.dtype not in HALF or mu_q.shape[3] % 4 or v.shape[3] % 8):
        raise ValueError("rung must be 1 or 2 here: 3 takes float16 or bfloat16, a head_dim that is a "
                         f"multiple of 4 and a v_dim of 8; got {v.dtype}, {mu_q.shape[3]} and {v.shape[3]}")


def check_score_form(form):
    check_choice("form", form, FORMS[:2], where="for scores")


def check_tau(tau, q) -> Tensor:
    """tau as a tensor of the dtype and device of q, (1,) or (heads,)."""
    wanted = f"tau must be a number, or ({q.shape[1]},), one per head"
    if tau is None or isinstance(tau, str):
        raise ValueError(f"{wanted}; got {tau!r}")
    tau = torch.as_tensor(tau, dtype=q.dtype, device=q.device)
    if tau.dim() > 1 or (tau.dim() == 1 and len(tau) != q.shape[1]):
        raise ValueError(f"{wanted}; got shape {tuple(tau.shape)}")
    if not bool((tau >= 0).all()):
        raise ValueError(f"tau must be at least 0; got {tau.min().item():.4g}")
    return tau.reshape(-1)


def check_pair(mu_a, sigma_a, mu_b, sigma_b):
    """Two diagonal Gaussians over the last axis; the other axes broadcast."""
    for letter, mu, sigma in (("a", mu_a, sigma_a), ("b", mu_b, sigma_b)):
        for name, x in ((f"mu_{letter}", mu), (f"sigma_{letter}", sigma)):
            check_tensor(name, x)
        if mu.shape[-1:] != sigma.shape[-1:]:
            raise ValueError(f"sigma_{letter} must have one width per entry of mu_{letter}, "
                             f"{tuple(mu.shape)}; got {tuple(sigma.shape)}")
        _check_widths(f"sigma_{letter}", sigma)
    if mu_a.shape[-1:] != mu_b.shape[-1:]:
        raise ValueError(f"mu_b must be as wide as mu_a, {tuple(mu_a.shape)}; got shape {tuple(mu_b.shape)}")


def check_any_gaussians(mean_a, cov_a, mean_b, cov_b):
    """Covariances are square, symmetric, and have no negative eigenvalue."""
    for name, mean, cov in (("cov_a", mean_a, cov_a), ("cov_b", mean_b, cov_b)):
        width = mean.shape[-1]
        if cov.shape[-2:] != (width, width):
            raise ValueError(f"{name} must be (..., {width}, {width}); got shape {tuple(cov.shape)}")
        slack = 1e-4 * cov.abs().amax((-2, -1))[..., None]
        lopsided = (cov - cov.mT).abs() > slack[..., None]
        if bool(lopsided.any() | (torch.linalg.eigvalsh(cov) < -slack).any()):
            raise ValueError(f"{name} must be symmetric, with eigenvalues of at least 0; got {cov.tolist()}")
    check_equal("mean_b", "be as wide as mean_a", mean_b.shape[-1], mean_a.shape[-1])


def _check_widths(name, sigma):
    if not bool((sigma >= 0).all()):
        raise ValueError(f"{name} must be at least 0; got {sigma.min().item():.4g}")


def _check_values(v, mu_k):
    check_tensor("v", v, (*mu_k.shape[:-1], "v_dim"))
    check_like("v", v, "mu_k", mu_k)
