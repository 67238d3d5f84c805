"""Chapter 4, continued: states that forget and states that are corrected.

    plain          S <- S + k v^T
    gated          S <- a S + k v^T                          a in (0, 1], a number a token
    delta rule     S <- a S;  S <- S + beta k (v - k^T S)    replace what the state returns for k by v

The output is o = q^T S, after the update. Shapes: q, k (b, h, n, d_k), v (b, h, n, d_v), beta and decay (b, h, n), S (b, h, d_k, d_v).
Every form runs token by token ("recurrent") or chunk by chunk ("chunked"): the same numbers, fewer steps.
"""
import torch
from einops import rearrange
from torch import Tensor
from torch.nn import functional as F

from course_lib.attention import HALF, weighted_sum
from course_lib.checks import check_alike


def gated_linear_attention(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, form: str = "recurrent", chunk_size: int = 64,
                           state: Tensor | None = None, return_state: bool = False):
    """Linear attention whose state fades by `decay` before each update; no normaliser. q is not scaled."""
    return _run(q, k, v, None, decay, form, chunk_size, state, return_state)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor | None = None, form: str = "recurrent",
               chunk_size: int = 64, state: Tensor | None = None, return_state: bool = False):
    """The (gated) delta rule: write v at key k with strength beta. Keys are used as given, q is not scaled.

    beta |k|^2 above 2 makes the state grow without bound, so it is an error.
    """
    if beta is None:
        raise ValueError("beta must be a tensor (b, h, n); got None")
    return _run(q, k, v, beta, decay, form, chunk_size, state, return_state)


def delta_rule_kernel(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor | None = None, state: Tensor | None = None,
                      return_state: bool = False):
    """`delta_rule` by kernels/linear_attention.cu, float32: the recurrence, its state in shared memory. Without a gradient."""
    _check(q, k, v, beta, decay, "recurrent", 1, state)
    (b, h, n, d), d_v = q.shape, v.shape[-1]
    need = 4 * (d * d_v + 2 * d + 2)
    check_for_kernel(q, k, v, need)
    decay = torch.ones_like(beta) if decay is None else decay
    carried = q.new_zeros(b, h, d, d_v) if state is None else state.detach().float().contiguous().clone()
    out = v.new_zeros(b, h, n, d_v)
    if out.numel() and d:
        from course_lib import cuda

        arrays = [x.float().contiguous() for x in (q, k, v, beta, decay)]
        cuda.load("linear_attention").delta_rule[b * h, 128, need](*arrays, carried, out, n, d, d_v)
    return (out, carried) if return_state else out


def _run(q, k, v, beta, decay, form, chunk_size, state, return_state):
    _check(q, k, v, beta, decay, form, chunk_size, state)
    dtype = q.dtype
    q, k, v = widened(q, k, v)
    decay = torch.ones_like(k[..., 0]) if decay is None else decay.to(k.dtype)
    s = k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1]) if state is None else state.to(k.dtype)
    step = _recurrent if form == "recurrent" else _chunked
    out, s = step(q, k, v, None if beta is None else beta.to(k.dtype), decay, s, chunk_size)
    return (out.to(dtype), s) if return_state else out.to(dtype)


def _recurrent(q, k, v, beta, decay, s, chunk_size):
    outputs = []
    for t in range(q.shape[2]):
        s = decay[:, :, t, None, None] * s
        u = v[:, :, t]
        if beta is not None:
            u = beta[:, :, t, None] * (u - (k[:, :, t, None, :] @ s)[:, :, 0])
        s = s + k[:, :, t, :, None] * u[..., None, :]
        outputs.append((q[:, :, t, None, :] @ s)[:, :, 0])
    return torch.stack(outputs, 2) if outputs else q @ s, s


def _chunked(q, k, v, beta, decay, s, chunk_size):
    """Inside a chunk, with A_t the product of its decays up to t: S_t = A_t S_0 + sum over s <= t of (A_t / A_s) k_s u_s^T.

    Plain and gated, u = v. Under the delta rule u_t = beta_t (v_t - A_t S_0^T k_t - sum over s < t of (A_t / A_s) (k_t . k_s) u_s):
    a triangular system for all u of the chunk at once.
    """
    n = q.shape[2]
    q, k, v = (pad_to_chunks(x, chunk_size) for x in (q, k, v))
    # In float64: the difference of two large logarithms would lose digits of a strong decay.
    logs = pad_to_chunks(decay.double().log()[..., None], chunk_size)[..., 0].cumsum(-1)     # log A_t
    lower = torch.ones(chunk_size, chunk_size, dtype=torch.bool, device=q.device).tril()
    ratio = (logs[..., :, None] - logs[..., None, :]).masked_fill(~lower, -torch.inf)
    ratio = ratio.exp().to(k.dtype)                                                          # A_t / A_s, 0 for s > t
    within = (q @ k.transpose(-2, -1) * ratio).tril()
    if beta is not None:
        beta = pad_to_chunks(beta[..., None], chunk_size)
        system = torch.eye(chunk_size, dtype=k.dtype, device=k.device) + (beta * (k @ k.transpose(-2, -1)) * ratio).tril(-1)
    outputs = []
    for c in range(q.shape[2]):
        faded = logs[:, :, c].exp().to(k.dtype)[..., None]                                   # A_t
        u = v[:, :, c]
        if beta is not None:
            wanted = beta[:, :, c] * (u - faded * (k[:, :, c] @ s))
            u = torch.linalg.solve_triangular(system[:, :, c], wanted, upper=False, unitriangular=True)
        outputs.append(faded * (q[:, :, c] @ s) + weighted_sum(within[:, :, c], u, lower))
        to_end = (logs[:, :, c, -1:] - logs[:, :, c]).exp().to(k.dtype)[..., None]           # A_end / A_t
        s = faded[:, :, -1:] * s + (to_end * k[:, :, c]).transpose(-2, -1) @ u
    if not outputs:
        return q.flatten(2, 3) @ s, s
    return rearrange(torch.stack(outputs, 2), "b h c l d -> b h (c l) d")[:, :, :n], s


def pad_to_chunks(x: Tensor, chunk_size: int) -> Tensor:
    """(b, h, n, d) -> (b, h, chunks, chunk_size, d), the last chunk filled up with zeros."""
    x = F.pad(x, (0, 0, 0, -x.shape[2] % chunk_size))
    return x.unflatten(2, (x.shape[2] // chunk_size, chunk_size))


def widened(*tensors: Tensor):
    """Half precision becomes float; states and sums are never kept in half."""
    return tuple(x.float() if x.dtype in HALF else x for x in tensors)


def check_chunk_size(chunk_size) -> None:
    if not isinstance(chunk_size, int) or isinstance(chunk_size, bool) or chunk_size < 1:
        raise ValueError(f"chunk_size must be an integer of at least 1; got {chunk_size!r}")


def check_for_kernel(q, k, v, shared_bytes) -> None:
    """What kernels/linear_attention.cu does not handle."""
    if q.dtype != torch.float32:
        raise ValueError(f"q must be float32 for this kernel; got {q.dtype}")
    if shared_bytes > 48 * 1024:
        raise ValueError(f"q must be narrower, or chunk_size smaller, for this kernel: a block would need {shared_bytes} bytes "
                         f"of shared memory and 49152 are there; got head_dim {q.shape[-1]} and {v.shape[-1]}")


def _check(q, k, v, beta, decay, form, chunk_size, state):
    check_alike(q=q, k=k, v=v)
    if form not in ("recurrent", "chunked"):
        raise ValueError(f'form must be "recurrent" or "chunked"; got {form!r}')
    check_chunk_size(chunk_size)
    if k.shape != q.shape:
        raise ValueError(f"k must have the shape of q, {tuple(q.shape)}; got {tuple(k.shape)}")
    if v.shape[:3] != k.shape[:3]:
        raise ValueError(f"v must have the batch, heads and rows of k, {tuple(k.shape[:3])}; got {tuple(v.shape[:3])}")
    per_token, whole = tuple(k.shape[:3]), (*k.shape[:2], k.shape[-1], v.shape[-1])
    for name, x, shape in (("beta", beta, per_token), ("decay", decay, per_token), ("state", state, whole)):
        if x is not None and (not isinstance(x, Tensor) or x.shape != shape):
            got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"{name} must be a tensor of shape {shape}; got {got}")
    if decay is not None and bool(((decay <= 0) | (decay > 1)).any()):
        raise ValueError("decay must lie in (0, 1]; "
                         f"got values from {decay.min().item():.4g} to {decay.max().item():.4g}")
    if beta is not None:
        if bool((beta < 0).any()):
            raise ValueError(f"beta must be at least 0; got {beta.min().item():.4g}")
        strength = beta * k.square().sum(-1)
        if bool((strength > 2 + 1e-3).any()):
            raise ValueError(f"beta must be at most 2 / |k|^2, or the state diverges; got beta |k|^2 = {strength.max().item():.4g}")
