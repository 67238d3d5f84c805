"""Chapter 5: masks, lists of blocks, and windows with sinks."""
import torch

from course_lib.gpu.case import BF16, F16, F32, Case, attention, masked_attention, qkv
from course_lib.sparse_attention import (BlockMask, choose, chosen_mask, gather_attention_kernel,
                                         index_scores_kernel)
from course_lib.sparse_attention.kernels import block_sparse_kernel, dense_masked_kernel, window_sink_kernel


def masked(draw, b, heads, n, m, d):
    mask = draw(n, m, dtype=F32) > 0.5
    mask[-1] = False                        # a query that sees no key
    mask[:, 32:64] = False                  # and blocks that no query sees
    return *qkv(draw, b, heads, heads, n, m, d)[:3], mask


def half_masked(draw, b, heads, kv_heads, n, m, d):
    mask = draw(n, m, dtype=F32) > 0.5
    mask[-1] = False                        # a query that sees no key,
    mask[:, 128:256] = False                # blocks that no query sees,
    mask[:128, 256:] = True                 # and full ones
    return *qkv(draw, b, heads, kv_heads, n, m, d)[:3], mask


def windowed(draw, heads, kv_heads, n, d, window, n_sink=0):
    return draw(1, heads, n, d), draw(1, kv_heads, n, d), draw(1, kv_heads, n, d), window, n_sink


def by_blocks(size):
    return lambda q, k, v, mask: block_sparse_kernel(q, k, v, BlockMask.from_mask(mask.cpu(), size))


def window_mask(n, window, n_sink):
    i, j = torch.arange(n)[:, None], torch.arange(n)
    return (j <= i) & ((i - j < window) | (j < n_sink))


def window_in_float64(q, k, v, window, n_sink):
    return attention(q, k, v, mask=window_mask(q.shape[2], window, n_sink))[0]


def float_case(kernel, run):
    return Case(chapter="sparse_attention", kernels=(kernel,), counted=kernel == "block_sparse",
                inputs=masked, run=run, oracle=masked_attention,
                small=tuple({"b": 1, "heads": 2, "n": n, "m": m, "d": d} for n, m, d in (
                    (70, 100, 20), (1, 1, 4), (31, 31, 8), (33, 33, 33), (100, 100, 64), (70, 70, 128))),
                large=({"b": 2, "heads": 3, "n": 1000, "m": 1031, "d": 128},))


def half_cases(dtype):
    yield Case(chapter="sparse_attention", kernels=("block_sparse_tensor_core",), dtype=dtype,
               tensor_cores=True, inputs=half_masked, run=by_blocks(128), oracle=masked_attention,
               small=({"b": 1, "heads": 2, "kv_heads": 1, "n": 130, "m": 300, "d": 24},
                      {"b": 1, "heads": 2, "kv_heads": 2, "n": 200, "m": 300, "d": 128}),
               large=({"b": 2, "heads": 4, "kv_heads": 2, "n": 1000, "m": 1031, "d": 128},))
    yield Case(chapter="sparse_attention", kernels=("window_tensor_core",), dtype=dtype, tensor_cores=True,
               inputs=windowed, run=window_sink_kernel, oracle=window_in_float64,
               small=tuple({"heads": 2, "kv_heads": 1, "n": n, "d": 64, "window": window, "n_sink": n_sink}
                           for n, window, n_sink in ((300, 40, 3), (1, 1, 0), (130, 1, 0), (300, 200, 100))),
               large=({"heads": 4, "kv_heads": 2, "n": 2001, "d": 128, "window": 500, "n_sink": 70},))


def indexed(draw, b, heads, n, m, d, causal=True):
    return draw(b, heads, n, d), draw(b, m, d), draw(b, n, heads), causal


def index_in_float64(q, k, weights, causal):
    scores = (torch.relu(q @ k[:, None].mT) * weights.mT[..., None]).sum(1)
    n, m = scores.shape[1:]
    hidden = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(1 + m - n)
    return scores.masked_fill(hidden, -1e4) if causal else scores


def gathered(draw, b, heads, kv_heads, n, m, d, top_k):
    chosen = choose(draw(b, n, m, dtype=F32), top_k)
    chosen[:, 0] = -1                       # a query that looks nowhere
    return *qkv(draw, b, heads, kv_heads, n, m, d)[:3], chosen


def gathered_in_float64(q, k, v, chosen):
    return masked_attention(q, k, v, chosen_mask(chosen, k.shape[2])[:, None])


CASES = [
    float_case("dense_masked", dense_masked_kernel),
    float_case("block_sparse", by_blocks(32)),
    Case(chapter="sparse_attention", kernels=("window_sink",), inputs=windowed, run=window_sink_kernel,
         oracle=window_in_float64,
         small=tuple({"heads": 2, "kv_heads": 2, "n": n, "d": 20, "window": window, "n_sink": n_sink}
                     for n, window, n_sink in ((100, 20, 3), (1, 1, 0), (33, 5, 0), (100, 40, 2),
                                               (100, 7, 40), (97, 200, 3), (64, 32, 1))),
         large=({"heads": 2, "kv_heads": 2, "n": 1001, "d": 128, "window": 20, "n_sink": 3},)),
    Case(chapter="sparse_attention", kernels=("index_scores",), inputs=indexed,
         run=lambda *x: index_scores_kernel(*x).clamp(min=-1e4), oracle=index_in_float64,
         small=({"b": 2, "heads": 4, "n": 33, "m": 50, "d": 16}, *(
             {"b": b, "heads": heads, "n": n, "m": m, "d": d, "causal": causal} for causal in (True, False)
             for b, heads, n, m, d in ((1, 1, 1, 1, 1), (2, 4, 31, 31, 16), (1, 3, 33, 63, 5)))),
         large=({"b": 2, "heads": 16, "n": 500, "m": 1031, "d": 64},)),
    Case(chapter="sparse_attention", kernels=("gather_tokens",), inputs=gathered, run=gather_attention_kernel,
         oracle=gathered_in_float64, counted=True,
         small=tuple({"b": b, "heads": heads, "kv_heads": kv_heads, "n": n, "m": m, "d": d, "top_k": top_k}
                     for b, heads, kv_heads, n, m, d, top_k in (
                         (1, 4, 2, 9, 50, 20, 40), (2, 4, 2, 31, 31, 16, 5), (1, 4, 1, 33, 63, 33, 40),
                         (1, 2, 2, 7, 100, 100, 64), (1, 8, 1, 5, 9, 128, 20))),
         large=({"b": 2, "heads": 8, "kv_heads": 2, "n": 200, "m": 4031, "d": 128, "top_k": 512},)),
    *half_cases(F16), *half_cases(BF16)]
