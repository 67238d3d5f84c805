"""Chapter 4: states that forget and states that are corrected.

    plain          S <- S + k v^T
    gated          S <- a S + k v^T                          a in (0, 1], one number per token, or one per
                                                             token and channel of the key: diag(a) S
    delta rule     S <- a S;  S <- S + beta k (v - k^T S)    replace the value stored at k by v

The output is o = q^T S, after the update. Every form runs token by token ("recurrent") or chunk by chunk
("chunked"): the same numbers in fewer steps.

Shapes: q, k (b, h, n, d_k), v (b, h, n, d_v), beta (b, h, n), decay (b, h, n) or (b, h, n, d_k),
S (b, h, d_k, d_v)."""
import torch
from einops import einsum, rearrange
from torch import Tensor
from torch.nn import functional as F

from course_lib.attention import weighted_sum
from course_lib.checks import check_tensor
from course_lib.checks.linear_attention import check_delta
from course_lib.launching import widened
from course_lib.linear_attention.linear import pad_to_chunks

BLOCK = 16      # rows of a chunk that share the token from which decays per channel are counted


def gated_linear_attention(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, form: str = "recurrent",
                           chunk_size: int = 64, state: Tensor | None = None, return_state: bool = False):
    """Linear attention whose state is multiplied by `decay` before each update. No normaliser, no scale."""
    return _run(q, k, v, None, decay, form, chunk_size, state, return_state)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor | None = None,
               form: str = "recurrent", chunk_size: int = 64, state: Tensor | None = None,
               return_state: bool = False):
    """The (gated) delta rule: write v at key k with strength beta. Keys are used as given, q is not scaled.

    beta |k|^2 above 2 lets the state grow without bound, so it is an error."""
    check_tensor("beta", beta, ("b", "h", "n"))
    return _run(q, k, v, beta, decay, form, chunk_size, state, return_state)


def _run(q, k, v, beta, decay, form, chunk_size, state, return_state):
    check_delta(q, k, v, beta, decay, state, form, chunk_size)
    dtype = q.dtype
    q, k, v = widened(q, k, v)
    decay = torch.ones_like(k[..., 0]) if decay is None else decay.to(k.dtype)
    decay = decay[..., None] if decay.dim() == 3 else decay     # (b, h, n, 1 or d_k)
    s = k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1]) if state is None else state.to(k.dtype)
    step = _recurrent if form == "recurrent" else _chunked
    out, s = step(q, k, v, None if beta is None else beta.to(k.dtype), decay, s, chunk_size)
    return (out.to(dtype), s) if return_state else out.to(dtype)


def _recurrent(q, k, v, beta, decay, s, chunk_size):
    outputs = []
    for t in range(q.shape[2]):
        s = decay[:, :, t, :, None] * s
        u = v[:, :, t]
        if beta is not None:
            u = beta[:, :, t, None] * (u - (k[:, :, t, None, :] @ s)[:, :, 0])
        s = s + k[:, :, t, :, None] * u[..., None, :]
        outputs.append((q[:, :, t, None, :] @ s)[:, :, 0])
    return torch.stack(outputs, 2) if outputs else q @ s, s


def _chunked(q, k, v, beta, decay, s, chunk_size):
    """Inside a chunk, with A_t the product of its decays up to t, per channel or one for all:

        S_t = A_t S_0 + sum over s <= t of (A_t / A_s) k_s u_s^T

    Plain and gated, u = v. For the delta rule all u of a chunk solve one triangular system:

        u_t = beta_t (v_t - S_0^T (A_t k_t) - sum over s < t of (k_t . (A_t / A_s) k_s) u_s)"""
    n = q.shape[2]
    q, k, v = (pad_to_chunks(x, chunk_size) for x in (q, k, v))
    # float64, because the difference of two large logarithms loses digits.
    logs = pad_to_chunks(decay.double().log(), chunk_size).cumsum(-2)                       # log A_t
    lower = torch.ones(chunk_size, chunk_size, dtype=torch.bool, device=q.device).tril()
    within = decayed_products(q, k, logs)
    if beta is not None:
        beta = pad_to_chunks(beta[..., None], chunk_size)
        system = (beta * decayed_products(k, k, logs)).tril(-1)
        system += torch.eye(chunk_size, dtype=k.dtype, device=k.device)
    faded = logs.exp().to(k.dtype)                                                          # A_t
    to_end = (logs[..., -1:, :] - logs).exp().to(k.dtype)                                   # A_end / A_t
    outputs = []
    for c in range(q.shape[2]):
        u = v[:, :, c]
        if beta is not None:
            wanted = beta[:, :, c] * (u - (faded * k)[:, :, c] @ s)
            u = torch.linalg.solve_triangular(system[:, :, c], wanted, upper=False, unitriangular=True)
        outputs.append((faded * q)[:, :, c] @ s + weighted_sum(within[:, :, c], u, lower))
        s = faded[:, :, c, -1, :, None] * s + (to_end * k)[:, :, c].transpose(-2, -1) @ u
    if not outputs:
        return q.flatten(2, 3) @ s, s
    return rearrange(torch.stack(outputs, 2), "b h c l d -> b h (c l) d")[:, :, :n], s


def decayed_products(a: Tensor, b: Tensor, logs: Tensor) -> Tensor:
    """a_t . (A_t / A_s) b_s for s <= t, and 0 for s > t: (..., l, l), from log A of shape (..., l, 1 or d).

    One decay per token is a factor of each product. Decays per channel belong inside the sum, and
    (A_t a_t) . (b_s / A_s) would overflow: A_s may be tiny. So a block of rows counts from its first token p,
    which is after s for the columns before: (A_t / A_p) a_t . (A_p / A_s) b_s, both factors at most 1.
    """
    n = a.shape[-2]
    earlier = torch.ones(n, n, dtype=torch.bool, device=a.device).tril()
    if logs.shape[-1] == 1:
        gaps = (logs - logs.transpose(-2, -1)).masked_fill(~earlier, -torch.inf)
        return (a @ b.transpose(-2, -1) * gaps.exp().to(a.dtype)).tril()
    rows = []
    for start in range(0, n, BLOCK):
        own, before = slice(start, min(start + BLOCK, n)), slice(0, start)
        first = logs[..., start:start + 1, :]
        left = a[..., own, :] * (logs[..., own, :] - first).exp().to(a.dtype)
        right = b[..., before, :] * (first - logs[..., before, :]).exp().to(a.dtype)
        gaps = logs[..., own, None, :] - logs[..., None, own, :]
        gaps = gaps.masked_fill(~earlier[own, own, None], -torch.inf).exp().to(a.dtype)
        diagonal = einsum(a[..., own, :], gaps, b[..., own, :], "... t d, ... t s d, ... s d -> ... t s")
        row = torch.cat([left @ right.transpose(-2, -1), diagonal], -1)
        rows.append(F.pad(row, (0, n - own.stop)))
    return torch.cat(rows, -2)
