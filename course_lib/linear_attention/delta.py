"""Chapter 4: states that forget and states that are corrected.

    plain          S <- S + k v^T
    gated          S <- a S + k v^T                          a in (0, 1], one number per token
    delta rule     S <- a S;  S <- S + beta k (v - k^T S)    replace the value stored at k by v

The output is o = q^T S, after the update. Every form runs token by token ("recurrent") or chunk by chunk
("chunked"): the same numbers in fewer steps.

Shapes: q, k (b, h, n, d_k), v (b, h, n, d_v), beta and decay (b, h, n), S (b, h, d_k, d_v).
"""
import torch
from einops import rearrange
from torch import Tensor

from course_lib.attention import weighted_sum
from course_lib.checks import check_tensor
from course_lib.checks.linear_attention import check_delta
from course_lib.launching import widened
from course_lib.linear_attention.linear import pad_to_chunks


def gated_linear_attention(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, form: str = "recurrent",
                           chunk_size: int = 64, state: Tensor | None = None, return_state: bool = False):
    """Linear attention whose state is multiplied by `decay` before each update. No normaliser, no scale."""
    return _run(q, k, v, None, decay, form, chunk_size, state, return_state)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor | None = None,
               form: str = "recurrent", chunk_size: int = 64, state: Tensor | None = None,
               return_state: bool = False):
    """The (gated) delta rule: write v at key k with strength beta. Keys are used as given, q is not scaled.

    beta |k|^2 above 2 lets the state grow without bound, so it is an error.
    """
    check_tensor("beta", beta, ("b", "h", "n"))
    return _run(q, k, v, beta, decay, form, chunk_size, state, return_state)


def _run(q, k, v, beta, decay, form, chunk_size, state, return_state):
    check_delta(q, k, v, beta, decay, state, form, chunk_size)
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
    """Inside a chunk, with A_t the product of its decays up to t:

        S_t = A_t S_0 + sum over s <= t of (A_t / A_s) k_s u_s^T

    Plain and gated, u = v. For the delta rule all u of a chunk solve one triangular system:

        u_t = beta_t (v_t - A_t S_0^T k_t - sum over s < t of (A_t / A_s) (k_t . k_s) u_s)
    """
    n = q.shape[2]
    q, k, v = (pad_to_chunks(x, chunk_size) for x in (q, k, v))
    # float64, because the difference of two large logarithms loses digits.
    logs = pad_to_chunks(decay.double().log()[..., None], chunk_size)[..., 0].cumsum(-1)    # log A_t
    lower = torch.ones(chunk_size, chunk_size, dtype=torch.bool, device=q.device).tril()
    ratio = (logs[..., :, None] - logs[..., None, :]).masked_fill(~lower, -torch.inf)
    ratio = ratio.exp().to(k.dtype)                                                         # A_t / A_s, or 0
    within = (q @ k.transpose(-2, -1) * ratio).tril()
    if beta is not None:
        beta = pad_to_chunks(beta[..., None], chunk_size)
        system = (beta * (k @ k.transpose(-2, -1)) * ratio).tril(-1)
        system += torch.eye(chunk_size, dtype=k.dtype, device=k.device)
    outputs = []
    for c in range(q.shape[2]):
        faded = logs[:, :, c].exp().to(k.dtype)[..., None]                                  # A_t
        u = v[:, :, c]
        if beta is not None:
            wanted = beta[:, :, c] * (u - faded * (k[:, :, c] @ s))
            u = torch.linalg.solve_triangular(system[:, :, c], wanted, upper=False, unitriangular=True)
        outputs.append(faded * (q[:, :, c] @ s) + weighted_sum(within[:, :, c], u, lower))
        to_end = (logs[:, :, c, -1:] - logs[:, :, c]).exp().to(k.dtype)[..., None]          # A_end / A_t
        s = faded[:, :, -1:] * s + (to_end * k[:, :, c]).transpose(-2, -1) @ u
    if not outputs:
        return q.flatten(2, 3) @ s, s
    return rearrange(torch.stack(outputs, 2), "b h c l d -> b h (c l) d")[:, :, :n], s
