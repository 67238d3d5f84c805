"""Chapter 4: linear attention, its recurrence, its chunks, and the delta rule."""
from functools import partial

import torch
from torch.nn import functional as F

from course_lib.gpu.case import BF16, F32, Case, three
from course_lib.linear_attention import (delta_chunks, delta_rule, delta_rule_kernel, linear_attention,
                                         linear_attention_kernel, tensor_core)

# The second pass of rung 3 keeps a state and three tiles in 48 KiB: head_dim 48 fits, 64 does not.
RUNG_LARGE = {1: {"n": 1001, "d": 64}, 2: {"n": 1001, "d": 64}, 3: {"n": 1001, "d": 48}}


def rung(number, *kernels):
    return Case(chapter="linear_attention", kernels=kernels, counted=number == 3, inputs=three,
                run=partial(linear_attention_kernel, rung=number),
                oracle=partial(linear_attention, causal=True),
                small=({"n": 70, "d": 20},), large=(RUNG_LARGE[number],))


def delta_inputs(draw, n, d):
    q, k, v = three(draw, n, d)
    return q, F.normalize(k, dim=-1), v, draw(1, 2, n).sigmoid()


def decayed(draw, n, d):
    return *delta_inputs(draw, n, d), draw(1, 2, n).sigmoid()


def channel_inputs(draw, n, d):
    return *delta_inputs(draw, n, d), draw(1, 2, n, d).sigmoid()


def with_gradient(draw, n, d):
    return *channel_inputs(draw, n, d), draw(1, 2, n, d), draw(1, 2, d, d)


def gradients_by_kernels(q, k, v, beta, decay, grad, grad_state):
    given = q, k, v, beta, decay, torch.zeros_like(grad_state)
    return delta_chunks.backward(grad, grad_state, *given, None, None)[:5]


def gradients_in_float64(*arguments):
    *inputs, grad, grad_state = arguments
    inputs = [x.requires_grad_() for x in inputs]
    return torch.autograd.grad(delta_rule(*inputs, return_state=True), inputs, (grad, grad_state))


def with_state(draw, n, d, segments, heads=2):
    return *three(draw, n, d, heads), draw(1, heads, d * d + d, dtype=F32).abs(), segments


def walked(q, k, v, start, segments):
    return tensor_core.run(q, k, v, start, 0, True, segments)


def walked_in_float64(q, k, v, start, segments):
    d = q.shape[-1]
    state = start[..., :d * d].unflatten(-1, (d, d)), start[..., d * d:]
    out, (s, z) = linear_attention(q, k, v, causal=True, state=state, return_state=True)
    return out, torch.cat([s.flatten(2), z], -1)


def walk(segments, large_segments, *kernels, note=""):
    return Case(chapter="linear_attention", kernels=kernels, dtype=BF16, note=note, counted=not note,
                tensor_cores=True, shared_bytes=lambda d, **_: tensor_core.shared_bytes(d),
                inputs=with_state, run=walked, oracle=walked_in_float64,
                small=({"n": 100, "d": 64, "segments": segments},),
                large=({"n": 2001, "d": 128, "segments": large_segments},))


CASES = [
    rung(1, "state_in_global"),
    rung(2, "state_in_shared"),
    rung(3, "chunk_states", "chunk_outputs"),
    Case(chapter="linear_attention", kernels=("delta_rule",), inputs=decayed,
         run=delta_rule_kernel, oracle=delta_rule,
         small=({"n": 33, "d": 20},), large=({"n": 1001, "d": 64},)),
    Case(chapter="linear_attention", kernels=("delta_chunks",), inputs=channel_inputs,
         run=partial(delta_rule_kernel, form="chunked"), oracle=delta_rule, counted=True,
         small=({"n": 33, "d": 20},), large=({"n": 1001, "d": 128},)),
    Case(chapter="linear_attention", kernels=("delta_chunks", "delta_backward"), inputs=with_gradient,
         run=gradients_by_kernels, oracle=gradients_in_float64,
         small=({"n": 33, "d": 20},), large=({"n": 1001, "d": 128},)),
    walk(1, 1, "linear_walk"),
    walk(2, 5, "linear_walk", "segment_prefix", note="segments")]
