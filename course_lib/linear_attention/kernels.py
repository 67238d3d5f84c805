"""Chapter 4 by kernels/linear_attention.cu. No gradient, but of the delta rule in chunks."""
import math

import torch
from torch import Tensor

from course_lib import cuda
from course_lib.checks.linear_attention import check_delta, check_kernel_memory, check_linear_kernel
from course_lib.linear_attention import tensor_core
from course_lib.linear_attention.delta_chunks import delta_chunks, shared_bytes
from course_lib.linear_attention.linear import read_state

KERNEL_MAPS = {"elu": 0, "relu": 1, "identity": 2}
THREADS = 128


def linear_attention_kernel(q: Tensor, k: Tensor, v: Tensor, feature_map: str = "elu", normalise: bool = True,
                            state=None, return_state: bool = False, rung: int | None = None,
                            chunk_size: int = 32):
    """Causal `linear_attention` by kernels/linear_attention.cu, float32, or on the tensor cores, bfloat16.

    rung: 1 state in global memory, 2 state in shared memory, 3 chunks of chunk_size, in two launches; 4
    chunks of 64 on the tensor cores, for bfloat16 of width 64 or 128. None picks 4 if it fits, otherwise 3.
    """
    check_linear_kernel(q, k, v, feature_map, KERNEL_MAPS, normalise, rung, chunk_size)
    if rung is None:
        rung = 4 if tensor_core.fits(q, v) else 3
    options = KERNEL_MAPS[feature_map], int(normalise)
    d = q.shape[-1]
    if rung == 4:
        s, z = read_state(state, k[:, :, :0].float(), v[:, :, :0].float())
        start = torch.cat([s.flatten(2), z], -1)
        out, after = tensor_core.run(q, k, v, start, *options)
        s, z = after[..., :d * d].view(*q.shape[:2], d, d), after[..., d * d:]
    else:
        s, z = read_state(state, k, v)
        carried = torch.cat([s, z[..., None]], -1).detach()     # z is one more column of the state
        out = _launch(q, k, v, carried, rung, chunk_size, options)
        s, z = carried[..., :-1], carried[..., -1]
    return (out, (s, z)) if return_state else out


def _launch(q, k, v, carried, rung, chunk_size, options):
    """Rungs 1 to 3. carried (b, h, d, d_v + 1) is the state at the start, after the launch at the end."""
    (b, h, n, d), d_v, width = q.shape, v.shape[-1], v.shape[-1] + 1
    per_chunk = d * width + chunk_size * (2 * d + 1 + 2 * width + chunk_size)
    need = 4 * {1: 2 * d + width, 2: d * width + 2 * d + width, 3: per_chunk}[rung]
    check_kernel_memory(q, v, need, "A smaller chunk_size takes less" if rung == 3 else "")
    out = v.new_zeros(b, h, n, d_v)
    if out.numel() == 0 or d == 0:
        return out
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    module, heads = cuda.load("linear_attention"), b * h
    if rung < 3:
        kernel = module.state_in_global if rung == 1 else module.state_in_shared
        kernel[heads, THREADS, need](q, k, v, carried, out, n, d, d_v, *options)
        return out
    n_chunks = math.ceil(n / chunk_size)
    before = q.new_empty(heads, n_chunks, d, width)
    shared = 4 * (d * width + chunk_size * (d + width))
    module.chunk_states[heads, THREADS, shared](k, v, carried, before, n, d, d_v, chunk_size, options[0])
    outputs = module.chunk_outputs[(n_chunks, heads), THREADS, need]
    outputs(q, k, v, before, out, n, d, d_v, chunk_size, *options)
    return out


def delta_rule_kernel(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor | None = None,
                      state: Tensor | None = None, return_state: bool = False, form: str = "recurrent"):
    """`delta_rule` by kernels, float32: the recurrence, its state in shared memory (linear_attention.cu), or
    chunks of 16 tokens (delta_chunks.cu), differentiable in every tensor."""
    check_delta(q, k, v, beta, decay, state, form)
    (b, h, n, d), d_v = q.shape, v.shape[-1]
    decay = torch.ones_like(beta) if decay is None else decay
    gates, in_chunks = 1 if decay.dim() == 3 else d, form == "chunked"
    need = shared_bytes(d) if in_chunks else 4 * (d * d_v + 2 * d + gates + 1)
    check_kernel_memory(q, v, need)
    start = q.new_zeros(b, h, d, d_v) if state is None else state.float()
    if in_chunks:
        decay = decay if decay.dim() == 4 else decay[..., None].expand(b, h, n, d)
        out, last = delta_chunks(*(x.float() for x in (q, k, v, beta, decay)), start)
    else:
        out, last = v.new_zeros(b, h, n, d_v), start.detach().contiguous().clone()
        if out.numel() and d:
            arrays = [x.float().contiguous() for x in (q, k, v, beta, decay)]
            kernel = cuda.load("linear_attention").delta_rule
            kernel[b * h, THREADS, need](*arrays, last, out, n, d, d_v, gates)
    return (out, last) if return_state else out
