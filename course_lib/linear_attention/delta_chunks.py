"""Chapter 4: the delta rule in chunks of 16 tokens as a differentiable operator, by
kernels/linear_attention/delta_chunks.cu and delta_backward.cu."""
import math

import torch
from torch import Tensor

from course_lib import cuda

CHUNK, THREADS = 16, 128
COLUMNS, BACKWARD_COLUMNS = 32, 16          # of the state, per block


def shared_bytes(d: int) -> int:
    """Of the forward; the backward needs less wherever this fits."""
    return 4 * (d * COLUMNS + 3 * CHUNK * (d + 1) + d + CHUNK * (1 + 2 * CHUNK + 2 * COLUMNS))


def backward_shared_bytes(d: int) -> int:
    tiles = 2 * d * (BACKWARD_COLUMNS + 1) + 3 * CHUNK * (d + 1)
    return 4 * (tiles + CHUNK * (1 + 2 * CHUNK + 3 * BACKWARD_COLUMNS))


def _launch(q, k, v, beta, decay, state, before=None, errors=None):
    (b, h, n, d), d_v = q.shape, v.shape[-1]
    out, state = torch.empty_like(v), state.clone()
    if out.numel() and d:
        kernel = cuda.load("linear_attention/delta_chunks").delta_chunks
        kernel[(math.ceil(d_v / COLUMNS), b * h), THREADS, shared_bytes(d)](
            q, k, v, beta, decay, state, out, before, errors, n, d, d_v)
    return out if d else out.zero_(), state


def _forward(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor,
             state: Tensor) -> tuple[Tensor, Tensor]:
    return _launch(q, k, v, beta, decay, state)


def _fake(q, k, v, beta, decay, state):
    return torch.empty_like(v), torch.empty_like(state)


def backward(grad_out, grad_state, q, k, v, beta, decay, state, out, last):
    """The forward once more, for the state before every chunk; then the chunks from the last to the first."""
    (b, h, n, d), d_v = q.shape, v.shape[-1]
    grad_state, dv = grad_state.clone(), torch.zeros_like(v)
    if not v.numel() or not d:
        return *(torch.zeros_like(x) for x in (q, k, v, beta, decay)), grad_state
    before, errors = q.new_empty(b, h, math.ceil(n / CHUNK), d, d_v), torch.empty_like(v)
    _launch(q, k, v, beta, decay, state, before, errors)
    blocks = math.ceil(d_v / BACKWARD_COLUMNS)
    dq, dk, dbeta, ddecay = (x.new_empty(blocks, *x.shape) for x in (q, k, beta, decay))
    kernel = cuda.load("linear_attention/delta_backward").delta_backward
    kernel[(blocks, b * h), THREADS, backward_shared_bytes(d)](
        q, k, beta, decay, before, errors, grad_out, grad_state, dq, dk, dv, dbeta, ddecay, n, d, d_v)
    return dq.sum(0), dk.sum(0), dv, dbeta.sum(0), ddecay.sum(0), grad_state


delta_chunks = cuda.custom_op("delta_chunks", _forward, fake=_fake, backward=backward)
