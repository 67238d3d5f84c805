"""Chapter 6: the forward's ladder, the backward, the two loop orders, and the tensor cores up close."""
import math
from functools import partial

import torch

from course_lib import cuda
from course_lib.flash_attention import packed as packed_module, sinks as sinks_module
from course_lib.flash_attention.kernels import RUNGS, backward_kernels, forward_kernel
from course_lib.gpu.case import (BF16, F16, F32, GROUPED, GROUPED_LARGE, Case, attention, attention_output,
                                 gradients, qkv)

TENSOR = ({"b": 1, "heads": 2, "kv_heads": 1, "n": 70, "m": 130, "d": 64, "causal": True},)
# Widths of their own for keys and values, one query, and queries that see no key.
UNEVEN = tuple({"b": 1, "heads": 4, "kv_heads": 2, "n": n, "m": m, "d": d, "v_dim": v_dim, "causal": True}
               for n, m, d, v_dim in ((777, 511, 128, 64), (1, 2049, 64, 64), (4097, 129, 72, 40)))


def forward(number, *launched, dtype=F32):
    return Case(chapter="flash_attention", kernels=launched, dtype=dtype, tensor_cores=number == 7,
                inputs=qkv,
                counted=number in (4, 5) or (number, dtype) in ((6, F32), (7, F16)),
                run=partial(forward_kernel, rung=number), oracle=attention,
                small=TENSOR if number == 7 else GROUPED,
                large=GROUPED_LARGE + (UNEVEN if number == 7 else ()))


def with_gradient(draw, b, heads, kv_heads, n, m, d, causal, v_dim=None):
    q, k, v, _ = qkv(draw, b, heads, kv_heads, n, m, d, v_dim=v_dim)
    return q, k, v, draw(b, heads, n, v_dim or d), causal


def backward(number, *launched, dtype=F32, **how):
    def run(q, k, v, grad, causal):
        out, lse = forward_kernel(q, k, v, causal, rung=number)
        return backward_kernels(grad, q, k, v, out, lse, causal, rung=number, **how)
    return Case(chapter="flash_attention", kernels=launched, dtype=dtype, tensor_cores=number == 7,
                inputs=with_gradient, run=run,
                counted=number == 6 and not how,
                oracle=gradients(attention_output),
                small=TENSOR if number == 7 else GROUPED[:1], large=GROUPED_LARGE)


def bias_and_gradient(draw, b, heads, kv_heads, n, m, **more):
    q, k, v, causal = qkv(draw, b, heads, kv_heads, n, m, **more)
    return q, k, v, draw(b, kv_heads, m, dtype=F32), draw(b, heads, n, v.shape[-1]), causal


def biased(number, *launched, dtype=F32):
    """Forward and backward with a bias per key."""
    def run(q, k, v, bias, grad, causal):
        out, lse = forward_kernel(q, k, v, causal, None, bias, number)
        return out, lse, *backward_kernels(grad, q, k, v, out, lse, causal, None, bias, rung=max(6, number))

    def oracle(q, k, v, bias, grad, causal):
        with torch.enable_grad():
            given = [x.detach().requires_grad_() for x in (q, k, v, bias)]
            out, lse = attention(*given[:3], causal, None, given[3])
            return out.detach(), lse.detach(), *torch.autograd.grad(out, given, grad)
    return Case(chapter="flash_attention", kernels=launched, dtype=dtype, note="bias", run=run, oracle=oracle,
                tensor_cores=number == 7, inputs=bias_and_gradient,
                large=GROUPED_LARGE + (UNEVEN if number == 7 else ()),
                small=tuple({"b": 1, "heads": 2, "kv_heads": 1, "n": n, "m": m, "d": 24, "v_dim": 40,
                             "causal": True} for n, m in ((63, 33), (33, 63))))


def with_sinks(draw, heads, causal, **sizes):
    q, k, v, grad, _ = with_gradient(draw, heads=heads, causal=causal, **sizes)
    return q, k, v, draw(heads), grad, causal


def sinks_and_gradients(q, k, v, sinks, grad, causal):
    scale = q.shape[-1] ** -0.5
    out, lse = sinks_module._forward(q, k, v, sinks, causal, scale)
    return out, *sinks_module._backward(grad, None, q, k, v, sinks, causal, scale, out, lse)


def sinks_in_float64(q, k, v, sinks, grad, causal):
    """One more column of scores, whose weight is dropped."""
    with torch.enable_grad():
        given = [x.detach().requires_grad_() for x in (q, k, v, sinks)]
        q, k, v, sinks = given
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if causal:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool,
                                device=q.device).triu(1 + k.shape[2] - q.shape[2])
            scores = scores.masked_fill(hidden, -math.inf)
        column = sinks[:, None, None].expand(*scores.shape[:3], 1)
        out = torch.softmax(torch.cat([scores, column], -1), -1)[..., :-1] @ v
        return out.detach(), *torch.autograd.grad(out, given, grad)


def packed_texts(draw, lengths, heads, kv_heads, d, causal, v_dim=None):
    ends = torch.tensor([0, *lengths]).cumsum(0).int()
    total = sum(lengths)
    q, k, v, grad, _ = with_gradient(draw, 1, heads, kv_heads, total, total, d, causal, v_dim)
    return q, k, v, ends, grad, causal


def packed_and_gradients(q, k, v, ends, grad, causal):
    last = int(ends.diff().max()), causal, q.shape[-1] ** -0.5
    out, lse = packed_module._forward(q, k, v, ends, *last)
    return out, *packed_module._backward(grad, None, q, k, v, ends, *last, out, lse)


def text_by_text(q, k, v, ends, grad, causal):
    with torch.enable_grad():
        given = [x.detach().requires_grad_() for x in (q, k, v)]
        texts = zip(*(x.tensor_split(ends[1:-1].tolist(), 2) for x in given))
        out = torch.cat([attention_output(*text, causal=causal) for text in texts], 2)
        return out.detach(), *torch.autograd.grad(out, given, grad)


# lengths, heads, kv_heads, d, v_dim, causal
TEXTS = (((1, 2), 1, 1, 4, 4, False), ((31, 1, 33), 2, 1, 8, 5, True), ((0, 63, 0, 2), 4, 2, 31, 16, False),
         ((100, 7), 1, 1, 16, 16, True), ((5, 70), 2, 2, 128, 128, True))


def packed(dtype):
    return Case(chapter="flash_attention", kernels=("flash_packed", "packed_keys", "packed_queries"),
                dtype=dtype, inputs=packed_texts, run=packed_and_gradients, oracle=text_by_text,
                small=({"lengths": (7, 0, 33, 1), "heads": 2, "kv_heads": 1, "d": 32, "causal": True}, *(
                    dict(zip(("lengths", "heads", "kv_heads", "d", "v_dim", "causal"), sizes)) for sizes in TEXTS
                    if dtype == F32)),
                large=({"lengths": (1000, 31, 0, 517), "heads": 8, "kv_heads": 2, "d": 128, "causal": True},))


def in_order(order, tile=16):
    def run(q, k, v):
        (n, d), out = q.shape, torch.zeros_like(q)
        statistics = (torch.full((n,), -math.inf, device=q.device), torch.zeros(n, device=q.device))
        grid, arrays = (1, statistics) if order == "key_outer" else (math.ceil(n / tile), ())
        kernel = getattr(cuda.load("flash_attention/orders"), order)
        kernel[grid, tile, 16 * tile * (d + 1)](q, k, v, out, *arrays, n, d, tile, 0.3)
        return out
    return Case(chapter="flash_attention", kernels=(order,),
                inputs=lambda draw, n, d: tuple(draw(n, d) for _ in "qkv"), run=run,
                oracle=lambda *x: attention(*(a[None, None] for a in x), scale=0.3)[0][0, 0],
                small=({"n": 100, "d": 64}, {"n": 33, "d": 32}))


def product_of_lanes(a, b):
    sums = torch.empty(32, 4, device=a.device)
    cuda.load("flash_attention/fragments").one_product[1, 32](a, b, sums)
    return sums


def product_in_float64(a, b):
    """Registers to matrices by kernels/common/tensor_core.cuh, multiplied, the sums back to their lanes."""
    a = a.view(8, 4, 2, 2, 2).permute(3, 0, 2, 1, 4).reshape(16, 16)
    b = b.view(8, 4, 2, 2).permute(2, 1, 3, 0).reshape(16, 8)
    return (a @ b).view(2, 8, 4, 2).permute(1, 2, 0, 3).reshape(32, 4)


def dealt_out(x, swizzle):
    registers = torch.empty(4, 32, 4, 2, dtype=x.dtype, device=x.device)
    cuda.load("flash_attention/fragments").read_tile[1, 32](x, registers, swizzle)
    return registers


CASES = [
    forward(1, "scores", "softmax_rows", "weighted_sum"),
    forward(1, "scores", "softmax_rows", "weighted_sum", dtype=BF16),
    *(forward(number, kernel) for number, (kernel, *_) in RUNGS.items()),
    forward(6, "flash_two_groups", dtype=BF16),
    *(forward(7, "flash_tensor_core", dtype=dtype) for dtype in (F16, BF16)),
    *(backward(7, "row_deltas", "backward_tensor_core", dtype=dtype) for dtype in (F16, BF16)),
    backward(6, "rowsum_do_o", "backward_keys", "backward_queries"),
    backward(6, "rowsum_do_o", "backward_atomic", atomic=True),
    biased(6, "flash_two_groups", "rowsum_do_o", "backward_keys", "backward_queries"),
    biased(7, "flash_tensor_core", "row_deltas", "backward_tensor_core", dtype=BF16),
    Case(chapter="flash_attention", kernels=("give_to_sinks", "sink_gradients"), inputs=with_sinks,
         run=sinks_and_gradients, oracle=sinks_in_float64, large=GROUPED_LARGE, small=(*GROUPED[:1], *(
             {"b": 2, "heads": 2, "kv_heads": kv_heads, "n": n, "m": m, "d": d, "v_dim": v_dim, "causal": causal}
             for n, m, d, v_dim, kv_heads, causal in (
                 (1, 1, 4, 4, 2, False), (31, 31, 8, 8, 1, True), (33, 63, 16, 5, 2, True),
                 (40, 7, 31, 16, 1, True), (5, 100, 128, 128, 2, False))))),
    packed(F32),
    packed(BF16),
    in_order("query_outer"),
    in_order("key_outer"),
    Case(chapter="flash_attention", kernels=("one_product",), dtype=BF16, tensor_cores=True,
         inputs=lambda draw: (draw(32, 4, 2), draw(32, 2, 2)),
         run=product_of_lanes, oracle=product_in_float64, small=({},)),
    Case(chapter="flash_attention", kernels=("read_tile",), dtype=BF16, tensor_cores=True,
         inputs=lambda draw, swizzle: (draw(16, 64), swizzle), run=dealt_out,
         oracle=lambda x, _: x.view(2, 8, 4, 2, 4, 2).permute(2, 1, 4, 3, 0, 5).reshape(4, 32, 4, 2),
         small=({"swizzle": 0}, {"swizzle": 1}))]
