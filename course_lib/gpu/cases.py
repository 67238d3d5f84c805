"""Every kernel of the course once more, in one table: inputs, launch, the answer in float64, how far off it may be.

`make gpu-check` runs the table on a card, the ordinary tests run it on the CPU engine with the small shapes, and
`make gpu-bench` times only what passes here. A case draws fresh inputs and its outputs start as NaN.
"""
import math
import os
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor

from course_lib import cuda
from course_lib.kv_cache import tensor_core as decode_tensor_core
from course_lib.linear_attention import tensor_core as linear_tensor_core
from course_lib.attention import attention_kernel, softmax_kernel
from course_lib.kv_cache import append_kernel, decode_kernel, decode_quantized_kernel
from course_lib.linear_attention import delta_rule, delta_rule_kernel
from course_lib.flash_attention.kernels import backward_kernels, forward_kernel
from course_lib.gqa import gqa_kernel
from course_lib.kv_cache import QuantizedCache, StaticCache
from course_lib.linear_attention import linear_attention, linear_attention_kernel
from course_lib.paged_attention.kernels import copy_blocks_kernel, paged_attention_kernel, paged_prefill_kernel
from course_lib.rope import apply_rope, rope_kernel, rope_table
from course_lib.sparse_attention import BlockMask
from course_lib.sparse_attention.kernels import block_sparse_kernel, dense_masked_kernel, window_sink_kernel
from course_lib.w2_attention import w2_attention
from course_lib.w2_attention.kernels import w2_attention_kernel, w2_flash_attention

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
# ||answer - float64|| / ||float64||. Half precision rounds inputs of products, weights and outputs.
TOLERANCE = {F32: 1e-4, F16: 3e-3, BF16: 2e-2}


@dataclass(frozen=True)
class Case:
    chapter: str
    kernels: tuple[str, ...]                # what it launches
    make: Callable                          # (draw, dtype, **shape) -> the arguments; draw(*shape) is random
    run: Callable                           # (*arguments) -> the answer, a tensor or a tuple of them
    oracle: Callable                        # the same from arguments in float64 on the CPU
    shapes: tuple[dict, ...]                # small and ragged, for the engine and the card
    large: tuple[dict, ...] = ()            # for the card alone
    dtype: torch.dtype = F32
    note: str = ""                          # what tells cases of one kernel apart

    @property
    def name(self) -> str:
        return ", ".join([*self.kernels, str(self.dtype).removeprefix("torch."), *([self.note] if self.note else [])])

    def arguments(self, shape: dict, device="cpu", seed: int = 0) -> tuple:
        generator = torch.Generator(device).manual_seed(seed)

        def draw(*size, dtype=None):
            return torch.randn(size, generator=generator, device=device).to(dtype or self.dtype)
        return tuple(to_device(x, device) for x in self.make(draw, **shape))

    def error(self, shape: dict, device="cpu", seed: int = 0) -> float:
        """Largest ||answer - float64|| / ||float64|| of the answer's tensors; NaN if something was not written."""
        arguments = self.arguments(shape, device, seed)
        with poisoned():
            got = as_tuple(self.run(*arguments))
        want = as_tuple(self.oracle(*(in_float64(x) for x in arguments)))
        assert len(got) == len(want)
        return max((relative(g, w) for g, w in zip(got, want)), key=lambda e: math.inf if math.isnan(e) else e)

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.dtype]


def as_tuple(x):
    return (x,) if isinstance(x, Tensor) else tuple(t for t in x if t is not None)


def relative(got: Tensor, want: Tensor) -> float:
    got, want = got.double().cpu(), want.double().cpu()
    hidden = want.isinf()                   # a row without keys has a log-sum-exp of -inf
    if got.shape != want.shape or not torch.equal(got[hidden], want[hidden]):
        return math.nan
    got, want = got[~hidden], want[~hidden]
    return ((got - want).norm() / want.norm().clamp(min=1e-30)).item()


def in_float64(x):
    return x.double().cpu() if isinstance(x, Tensor) and x.is_floating_point() else x.cpu() if isinstance(x, Tensor) else x


def to_device(x, device):
    if isinstance(x, SimpleNamespace):
        return SimpleNamespace(**{name: to_device(value, device) for name, value in vars(x).items()})
    return x.to(device) if isinstance(x, Tensor) else x


@contextmanager
def poisoned():
    """Memory that nobody wrote holds NaN: torch fills what `empty` gives where it promises repeatable results."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


# ---- inputs and answers that several chapters share

def attention(q, k, v, causal=False, scale=None, mask=None):
    """(out, log-sum-exp) by the formula, grouped, the last query sees the last key; nothing to see gives 0."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = q @ k.mT * (q.shape[-1]**-0.5 if scale is None else scale)
    visible = torch.ones(s.shape[-2:], dtype=torch.bool)
    visible = visible.tril(s.shape[-1] - s.shape[-2]) if causal else visible
    s = s.masked_fill(~(visible if mask is None else visible & mask), -math.inf)
    return torch.softmax(s, -1).nan_to_num(0.0) @ v, torch.logsumexp(s, -1)


def qkv(draw, b, heads, kv_heads, n, m, d, causal=False, dv=None):
    return draw(b, heads, n, d), draw(b, kv_heads, m, d), draw(b, kv_heads, m, dv or d), causal


def rotated(layout):
    def make(draw, b, heads, n, d):
        positions = draw(2 * n, dtype=F32).argsort()[:n].expand(b, n).contiguous()
        return draw(b, heads, n, d), *rope_table(2 * n, d), positions
    return make, lambda x, cos, sin, positions: apply_rope(x, cos, sin, positions, layout)


def appended(k, v, cos, sin):
    cache, half = StaticCache(k.shape[2] + 3), k.shape[2] // 2
    for part in (slice(None, half), slice(half, None)):
        append_kernel(cache, k[:, :, part], v[:, :, part], (cos, sin))
    return cache.view()


def masked(draw, b, heads, n, m, d):
    mask = draw(n, m, dtype=F32) > 0.5
    mask[-1] = False                        # a query that sees nothing
    mask[:, 32:64] = False                  # and blocks that nobody sees
    return *qkv(draw, b, heads, heads, n, m, d)[:3], mask


def half_masked(draw, b, heads, kv_heads, n, m, d):
    q, k, v, _ = qkv(draw, b, heads, kv_heads, n, m, d)
    mask = draw(n, m, dtype=F32) > 0.5
    mask[-1] = False                        # a query that sees nothing,
    mask[:, 128:256] = False                # blocks that nobody sees,
    mask[:128, 256:] = True                 # and whole ones
    return q, k, v, mask


def windowed(draw, heads, kv_heads, n, d, window, n_sink=0):
    return draw(1, heads, n, d), draw(1, kv_heads, n, d), draw(1, kv_heads, n, d), window, n_sink


def cached(draw, lengths, heads, kv_heads, d):
    b, m = len(lengths), max(lengths)
    return draw(b, heads, 1, d), draw(b, kv_heads, m, d), draw(b, kv_heads, m, d), torch.tensor(lengths)


def decoded(q, k, v, lengths):
    mask = torch.arange(k.shape[2]) < lengths[:, None, None, None]
    return attention(q, k, v, mask=mask)[0]


def quantized(draw, n, heads, kv_heads, d):
    return draw(2, heads, 1, d), draw(2, kv_heads, n, d), draw(2, kv_heads, n, d)


def filled(k, v):
    cache = QuantizedCache(8)
    cache.append(k, v)
    return cache


def paged(draw, lengths, heads, kv_heads, d, block_size=16):
    """A query each, pools of blocks in random order with NaN where nothing lies, tables and lengths."""
    b, pages = len(lengths), max(-(-length // block_size) for length in lengths)
    tables = draw(b * pages, dtype=F32).argsort().view(b, pages).int()
    pools = [draw(b * pages, kv_heads, block_size, d) for _ in "kv"]
    for i, length in enumerate(lengths):
        for place in range(length, pages * block_size):
            for pool in pools:
                pool[tables[i, place // block_size], :, place % block_size] = math.nan
    cache = SimpleNamespace(keys=pools[0][None], values=pools[1][None], block_size=block_size,
                            allocator=SimpleNamespace(references=[1] * (b * pages)))
    return draw(b, heads, 1, d), cache, tables, torch.tensor(lengths, dtype=torch.int32)


def gathered(cache, tables, i, length):
    """Keys and values of sequence i, (1, kv_heads, length, d), in float64."""
    return (pool[0][tables[i].long().to(pool.device)].transpose(0, 1).flatten(1, 2)[None, :, :length].double().cpu()
            for pool in (cache.keys, cache.values))


def from_pages(q, cache, tables, lengths):
    return torch.cat([attention(q[i:i + 1], *gathered(cache, tables, i, length))[0] for i, length in enumerate(lengths.tolist())])


def chunked(draw, lengths, counts, heads, kv_heads, d):
    _, cache, tables, lengths = paged(draw, lengths, heads, kv_heads, d)
    return draw(sum(counts), heads, d), cache, tables, lengths, counts


def chunks_from_pages(q, cache, tables, lengths, counts):
    parts = [attention(rows.transpose(0, 1)[None], *gathered(cache, tables, i, length), causal=True)[0][0].transpose(0, 1)
             for i, (rows, length) in enumerate(zip(q.split(counts), lengths.tolist()))]
    return torch.cat(parts)


def copied(cache, pairs, by_kernel=copy_blocks_kernel):
    cache = SimpleNamespace(keys=cache.keys.clone(), values=cache.values.clone())
    by_kernel(cache, pairs)
    return cache.keys, cache.values


def copied_by_torch(cache, pairs):
    for pool in (cache.keys, cache.values):
        for source, target in pairs:
            pool[:, target] = pool[:, source]


def with_state(draw, n, d, segments, heads=2):
    return *(draw(1, heads, n, d) for _ in "qkv"), draw(1, heads, d * d + d, dtype=F32).abs(), segments


def walked(q, k, v, start, segments):
    return linear_tensor_core.run(q, k, v, start, 0, True, segments)


def walked_in_float64(q, k, v, start, segments):
    d = q.shape[-1]
    state = start[..., :d * d].unflatten(-1, (d, d)), start[..., d * d:]
    out, (s, z) = linear_attention(q, k, v, causal=True, state=state, return_state=True)
    return out, torch.cat([s.flatten(2), z], -1)


def gradients(forward):
    """Of the tensors before the incoming gradient, which is the last argument but `causal`."""
    def oracle(*arguments):
        *inputs, grad, causal = arguments
        inputs = [x.requires_grad_() for x in inputs]
        return torch.autograd.grad(forward(*inputs, causal), inputs, grad)
    return oracle


def flash_gradients(rung, **how):
    def run(q, k, v, grad, causal):
        out, lse = forward_kernel(q, k, v, causal, rung=rung)
        return backward_kernels(grad, q, k, v, out, lse, causal, rung=rung, **how)
    return run


def product_of_lanes(a, b):
    sums = torch.empty(32, 4, device=a.device)
    cuda.load("flash_attention/fragments").one_product[1, 32](a, b, sums)
    return sums


def product_in_float64(a, b):
    """Registers to matrices by the maps of kernels/common/tensor_core.cuh, multiplied, and the sums back to their lanes."""
    a = a.view(8, 4, 2, 2, 2).permute(3, 0, 2, 1, 4).reshape(16, 16)
    b = b.view(8, 4, 2, 2).permute(2, 1, 3, 0).reshape(16, 8)
    return (a @ b).view(2, 8, 4, 2).permute(1, 2, 0, 3).reshape(32, 4)


def dealt_out(x, swizzle):
    registers = torch.empty(4, 32, 4, 2, dtype=x.dtype, device=x.device)
    cuda.load("flash_attention/fragments").read_tile[1, 32](x, registers, swizzle)
    return registers


def with_gradient(draw, b, heads, kv_heads, n, m, d, causal):
    q, k, v, _ = qkv(draw, b, heads, kv_heads, n, m, d)
    return q, k, v, draw(b, heads, n, d), causal


def in_order(order, tile=16):
    def run(q, k, v):
        (n, d), out = q.shape, torch.zeros_like(q)
        statistics = (torch.full((n,), -math.inf, device=q.device), torch.zeros(n, device=q.device))
        grid, arrays = (1, statistics) if order == "key_outer" else (math.ceil(n / tile), ())
        getattr(cuda.load("flash_attention/orders"), order)[grid, tile, 16 * tile * (d + 1)](q, k, v, out, *arrays, n, d, tile, 0.3)
        return out
    return run


def gaussians(draw, b, heads, n, m, d, causal=False, grad=False):
    mu_q, mu_k, v = draw(b, heads, n, d), draw(b, heads, m, d), draw(b, heads, m, d)
    sigma_q, sigma_k = draw(b, heads, n, d).abs(), draw(b, heads, m, d).abs()
    return mu_q, sigma_q, mu_k, sigma_k, v, *([draw(b, heads, n, d)] if grad else []), causal


def w2_gradients(*arguments):
    return gradients(lambda *inputs: w2_flash_attention(*inputs[:5], 8.0, causal=inputs[5]))(
        *(x.detach().clone() if isinstance(x, Tensor) else x for x in arguments))


# ---- the table

ROWS = ({"rows": 5, "columns": 264}, {"rows": 33, "columns": 72})
HEADS = ({"b": 1, "heads": 2, "n": 33, "d": 32}, {"b": 2, "heads": 5, "n": 7, "d": 64})
GROUPED = ({"b": 1, "heads": 4, "kv_heads": 2, "n": 33, "m": 50, "d": 32, "causal": True},
           {"b": 2, "heads": 1, "kv_heads": 1, "n": 20, "m": 31, "d": 64})
MANY = ({"b": 2, "heads": 8, "kv_heads": 2, "n": 1000, "m": 1031, "d": 128, "causal": True},)
CACHES = ({"lengths": (33, 64), "heads": 4, "kv_heads": 2, "d": 64}, {"lengths": (5,), "heads": 8, "kv_heads": 1, "d": 128})
LONG = ({"lengths": (4001, 1, 2500), "heads": 16, "kv_heads": 4, "d": 128},)
ALONE = ({"n": 100, "d": 64}, {"n": 33, "d": 32})
TENSOR = ({"b": 1, "heads": 2, "kv_heads": 1, "n": 70, "m": 130, "d": 64, "causal": True},)


def cases():
    def softmax(kernel, dtype=F32):
        return Case("attention", (kernel,), lambda draw, rows, columns: (3 * draw(rows, columns),),
                    lambda x: softmax_kernel(x, kernel), lambda x: torch.softmax(x, -1), ROWS, ({"rows": 4099, "columns": 4096},), dtype)
    for kernel in ("softmax_naive", "softmax_stable", "softmax_online", "softmax_warp", "softmax_block", "softmax_on_chip"):
        yield softmax(kernel)
    yield softmax("softmax_half", F16)
    yield from (softmax("softmax_registers", dtype) for dtype in (F32, F16, BF16))
    yield Case("attention", ("attention_scores", "softmax_on_chip", "attention_output"), qkv, attention_kernel,
               lambda *x: attention(*x)[0], ({"b": 1, "heads": 2, "kv_heads": 2, "n": 33, "m": 50, "d": 20, "causal": True},),
               ({"b": 2, "heads": 4, "kv_heads": 4, "n": 500, "m": 511, "d": 64},))

    for kernel, layout, rung, dtype in [("rope_interleaved", "interleaved", 1, F32), ("rope_half", "half", 2, F32),
                                        ("rope_interleaved_vec4", "interleaved", 3, F32), ("rope_half_vec4", "half", 3, F32),
                                        *(("rope_heads", layout, 4, dtype) for layout in ("interleaved", "half") for dtype in (F32, F16, BF16))]:
        make, oracle = rotated(layout)
        yield Case("rope", (kernel,), make, lambda *x, layout=layout, rung=rung: rope_kernel(*x, layout, rung), oracle, HEADS,
                   ({"b": 2, "heads": 7, "n": 1001, "d": 128},), dtype, layout if rung == 4 else "")
    yield Case("rope", ("rope_append",), lambda draw, b, heads, n, d: (draw(b, heads, n, d), draw(b, heads, n, d), *rope_table(n, d)),
               appended, lambda k, v, cos, sin: (apply_rope(k, cos, sin), v), HEADS, ({"b": 2, "heads": 7, "n": 1001, "d": 128},))

    for rung, launched in ((1, ("repeat_kv", "attend_by_head")), (2, ("attend_by_head",)), (3, ("attend_by_group",))):
        yield Case("gqa", launched, qkv, lambda *x, rung=rung: gqa_kernel(*x, rung=rung), lambda *x: attention(*x)[0],
                   GROUPED[:1], ({"b": 1, "heads": 8, "kv_heads": 2, "n": 100, "m": 700, "d": 64, "causal": True},))

    for rung, launched in ((1, ("state_in_global",)), (2, ("state_in_shared",)), (3, ("chunk_states", "chunk_outputs"))):
        yield Case("linear_attention", launched, lambda draw, n, d: tuple(draw(1, 2, n, d) for _ in "qkv"),
                   lambda *x, rung=rung: linear_attention_kernel(*x, rung=rung), lambda *x: linear_attention(*x, causal=True),
                   ({"n": 70, "d": 20},), ({"n": 1001, "d": 64},))
    yield Case("linear_attention", ("delta_rule",),
               lambda draw, n, d: (draw(1, 2, n, d), torch.nn.functional.normalize(draw(1, 2, n, d), dim=-1), draw(1, 2, n, d), draw(1, 2, n).sigmoid()),
               delta_rule_kernel, delta_rule, ({"n": 33, "d": 20},), ({"n": 1001, "d": 64},))
    yield Case("linear_attention", ("linear_walk",), with_state, walked, walked_in_float64, ({"n": 100, "d": 64, "segments": 1},),
               ({"n": 2001, "d": 128, "segments": 1},), BF16)
    yield Case("linear_attention", ("linear_walk", "segment_prefix"), with_state, walked, walked_in_float64,
               ({"n": 100, "d": 64, "segments": 2},), ({"n": 2001, "d": 128, "segments": 5},), BF16, "segments")

    sparse = ({"b": 1, "heads": 2, "n": 70, "m": 100, "d": 20},), ({"b": 2, "heads": 3, "n": 1000, "m": 1031, "d": 128},)
    yield Case("sparse_attention", ("dense_masked",), masked, dense_masked_kernel,
               lambda q, k, v, mask: attention(q, k, v, mask=mask)[0], *sparse)
    yield Case("sparse_attention", ("block_sparse",), masked,
               lambda q, k, v, mask: block_sparse_kernel(q, k, v, BlockMask.from_mask(mask.cpu(), 32)),
               lambda q, k, v, mask: attention(q, k, v, mask=mask)[0], *sparse)
    yield Case("sparse_attention", ("window_sink",), lambda draw, n, d: tuple(draw(1, 2, n, d) for _ in "qkv"),
               lambda *x: window_sink_kernel(*x, window=20, n_sink=3),
               lambda q, k, v: attention(q, k, v, True, mask=window_mask(len(q[0, 0]), 20, 3))[0],
               ({"n": 100, "d": 20},), ({"n": 1001, "d": 128},))

    for dtype in (F16, BF16):
        yield Case("sparse_attention", ("block_sparse_tensor_core",), half_masked,
                   lambda q, k, v, mask: block_sparse_kernel(q, k, v, BlockMask.from_mask(mask.cpu(), 128)),
                   lambda q, k, v, mask: attention(q, k, v, mask=mask)[0],
                   ({"b": 1, "heads": 2, "kv_heads": 1, "n": 130, "m": 300, "d": 24},), ({"b": 2, "heads": 4, "kv_heads": 2, "n": 1000, "m": 1031, "d": 128},), dtype)
        yield Case("sparse_attention", ("window_tensor_core",), windowed, window_sink_kernel,
                   lambda q, k, v, window, n_sink: attention(q, k, v, True, mask=window_mask(q.shape[2], window, n_sink))[0],
                   ({"heads": 2, "kv_heads": 1, "n": 300, "d": 64, "window": 40, "n_sink": 3},),
                   ({"heads": 4, "kv_heads": 2, "n": 2001, "d": 128, "window": 500, "n_sink": 70},), dtype)

    for rung, launched in enumerate((("scores", "softmax_rows", "weighted_sum"), ("flash_thread_per_row",), ("flash_shared",),
                                     ("flash_vectors",), ("flash_registers",), ("flash_two_groups",)), 1):
        for dtype in (F32, BF16) if rung in (1, 6) else (F32,):
            yield Case("flash_attention", launched, qkv, lambda *x, rung=rung: forward_kernel(*x, rung=rung), attention, GROUPED, MANY, dtype)
    for dtype in (F16, BF16):
        yield Case("flash_attention", ("flash_tensor_core",), qkv, lambda *x: forward_kernel(*x, rung=7), attention, TENSOR, MANY, dtype)
        yield Case("flash_attention", ("row_deltas", "backward_tensor_core"), with_gradient, flash_gradients(7),
                   gradients(lambda *x: attention(*x)[0]), TENSOR, MANY, dtype)
    yield Case("flash_attention", ("rowsum_do_o", "backward_keys", "backward_queries"), with_gradient, flash_gradients(6),
               gradients(lambda *x: attention(*x)[0]), ({**GROUPED[0]},), MANY)
    yield Case("flash_attention", ("rowsum_do_o", "backward_atomic"), with_gradient, flash_gradients(6, atomic=True),
               gradients(lambda *x: attention(*x)[0]), ({**GROUPED[0]},), MANY)
    for order in ("query_outer", "key_outer"):
        yield Case("flash_attention", (order,), lambda draw, n, d: tuple(draw(n, d) for _ in "qkv"), in_order(order),
                   lambda q, k, v: attention(q[None, None], k[None, None], v[None, None], scale=0.3)[0][0, 0], ALONE)

    for splits in (1, 2):
        yield Case("kv_cache", ("decode_part", "merge_parts"), cached, lambda *x, splits=splits: decode_kernel(*x, splits=splits),
                   decoded, CACHES, LONG, note=f"{splits} splits")
    yield Case("kv_cache", ("decode_part_int8", "decode_part", "merge_parts"), quantized,
               lambda q, k, v: decode_quantized_kernel(q, filled(k, v)),
               lambda q, k, v: attention(q, *(x.double() for x in filled(k.float(), v.float()).view()))[0],
               ({"n": 70, "heads": 4, "kv_heads": 2, "d": 64},), ({"n": 3001, "heads": 8, "kv_heads": 2, "d": 128},))
    for dtype in (F16, BF16):
        yield Case("kv_cache", ("decode_tensor_core", "merge_splits"), cached, lambda *x: decode_tensor_core.dense(*x, splits=2),
                   decoded, CACHES, LONG, dtype)

    for kernel, splits, launched in (("naive", 1, ("paged_decode_naive",)), ("warp", 1, ("paged_decode_warps",)),
                                     ("grouped", 1, ("paged_decode_warps",)), ("grouped", 3, ("paged_decode_warps", "paged_merge"))):
        yield Case("paged_attention", launched, paged,
                   lambda *x, kernel=kernel, splits=splits: paged_attention_kernel(*x, kernel=kernel, n_splits=splits),
                   from_pages, CACHES[:1], LONG, note=f"{kernel}, {splits} splits")
    yield Case("paged_attention", ("paged_prefill",), chunked, paged_prefill_kernel, chunks_from_pages,
               ({"lengths": (33, 20), "counts": (12, 20), "heads": 4, "kv_heads": 2, "d": 64},),
               ({"lengths": (1001, 500), "counts": (301, 500), "heads": 8, "kv_heads": 2, "d": 128},))
    yield Case("paged_attention", ("copy_blocks",), lambda draw, d: (paged(draw, (112,), 2, 2, d)[1], ((0, 3), (5, 1))), copied,
               lambda cache, pairs: copied(cache, pairs, copied_by_torch), ({"d": 32},), ({"d": 128},))
    for dtype in (F16, BF16):
        yield Case("paged_attention", ("paged_tensor_core", "merge_splits"), paged,
                   lambda q, cache, tables, lengths: decode_tensor_core.paged(q, cache.keys[0], cache.values[0], tables, lengths, 2),
                   from_pages, CACHES, LONG, dtype)

    w2 = ({"b": 1, "heads": 2, "n": 33, "m": 50, "d": 32, "causal": True},), ({"b": 1, "heads": 3, "n": 500, "m": 511, "d": 64, "causal": True},)
    yield Case("flash_attention", ("one_product",), lambda draw: (draw(32, 4, 2), draw(32, 2, 2)), product_of_lanes, product_in_float64,
               ({},), (), BF16)
    yield Case("flash_attention", ("read_tile",), lambda draw, swizzle: (draw(16, 64), swizzle), dealt_out,
               lambda x, _: x.view(2, 8, 4, 2, 4, 2).permute(2, 1, 4, 3, 0, 5).reshape(4, 32, 4, 2), ({"swizzle": 0}, {"swizzle": 1}), (), BF16)
    for dtype in (F16, BF16):
        yield Case("w2_attention", ("flash_tensor_core",), gaussians, lambda *x: w2_attention_kernel(*x[:5], 8.0, x[5], 3),
                   lambda *x: w2_attention(*x[:5], 8.0, causal=x[5]), ({"b": 1, "heads": 2, "n": 40, "m": 70, "d": 64, "causal": True},),
                   ({"b": 2, "heads": 3, "n": 1001, "m": 777, "d": 64},), dtype, "width 2 d")
    for rung, launched in ((1, ("w2_score_matrix", "softmax_rows", "weighted_sum")), (2, ("w2_flash",))):
        yield Case("w2_attention", launched, gaussians, lambda *x, rung=rung: w2_attention_kernel(*x[:5], 8.0, x[5], rung),
                   lambda *x: w2_attention(*x[:5], 8.0, causal=x[5]), *w2)
    for dtype in (F16, BF16):
        yield Case("w2_attention", ("flash_tensor_core",), gaussians, lambda *x: w2_attention_kernel(*x[:5], 8.0, x[5], 3),
                   lambda *x: w2_attention(*x[:5], 8.0, causal=x[5]), *w2, dtype, "W2")
    yield Case("w2_attention", ("rowsum_do_o", "w2_backward_keys", "w2_backward_queries"), lambda draw, **shape: gaussians(draw, **shape, grad=True),
               w2_gradients, gradients(lambda *x: w2_attention(*x[:5], 8.0, causal=x[5])), *w2)


def window_mask(n, window, n_sink):
    i, j = torch.arange(n)[:, None], torch.arange(n)
    return (j <= i) & ((i - j < window) | (j < n_sink))


CASES = tuple(cases())


def build_all(cases, device="cuda") -> None:
    """Launches every case in every shape, as many at once as there are cores: a first run on a card is mostly nvcc.

    What fails here fails again where it is checked, and is named there.
    """
    def launch(case):
        for shape in (*case.shapes, *case.large):
            with suppress(Exception):
                case.run(*case.arguments(shape, device))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(launch, cases))


if __name__ == "__main__":
    build_all([case for case in CASES if not sys.argv[1:] or set(sys.argv[1:]) & set(case.kernels)])
