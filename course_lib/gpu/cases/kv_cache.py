"""Chapter 7: one new query over a cache, in float, in 8 bits, and in half precision."""
import math
from functools import partial

import torch

from course_lib.gpu.case import BF16, CACHES, CACHES_LARGE, F16, F32, HALF_CACHES, Case, attention
from course_lib.kv_cache import QuantizedCache, decode_kernel, decode_quantized_kernel, tensor_core


def cached(draw, lengths, heads, kv_heads, d):
    """NaN in the places after the end of a sequence."""
    b, m = len(lengths), max(lengths)
    q, k, v = draw(b, heads, 1, d), draw(b, kv_heads, m, d), draw(b, kv_heads, m, d)
    for i, length in enumerate(lengths):
        k[i, :, length:] = v[i, :, length:] = math.nan
    return q, k, v, torch.tensor(lengths)


def decoded(q, k, v, lengths):
    mask = torch.arange(k.shape[2]) < lengths[:, None, None, None]
    return attention(q, k.nan_to_num(), v.nan_to_num(), mask=mask)[0]


# (lengths, heads, kv_heads, d)
RAGGED = (((1, 0), 2, 2, 1), ((33, 11), 6, 2, 8), ((63, 21), 2, 2, 40), ((70, 23), 4, 2, 128),
          ((0, 0), 2, 2, 8))


def decoding(run, *kernels, dtype=F32, note=""):
    return Case(chapter="kv_cache", kernels=kernels, dtype=dtype, note=note,
                counted=note == "1 splits" or dtype == F16, tensor_cores=dtype != F32,
                inputs=cached, run=run, oracle=decoded,
                small=HALF_CACHES if dtype != F32 else (*CACHES, *(
                    dict(zip(("lengths", "heads", "kv_heads", "d"), sizes)) for sizes in RAGGED)),
                large=CACHES_LARGE)


def quantized(draw, n, heads, kv_heads, d):
    return draw(2, heads, 1, d), draw(2, kv_heads, n, d), draw(2, kv_heads, n, d)


def filled(k, v):
    cache = QuantizedCache(8)
    cache.append(k, v)
    return cache


CASES = [
    *(decoding(partial(decode_kernel, splits=splits), "decode_part", "merge_parts", note=f"{splits} splits")
      for splits in (1, 2, 5)),
    Case(chapter="kv_cache", kernels=("decode_part_int8", "decode_part", "merge_parts"),
         inputs=quantized,
         run=lambda q, k, v: decode_quantized_kernel(q, filled(k, v)),
         oracle=lambda q, k, v: attention(q, *(x.double() for x in filled(k.float(), v.float()).view()))[0],
         small=({"n": 70, "heads": 4, "kv_heads": 2, "d": 64},),
         large=({"n": 3001, "heads": 8, "kv_heads": 2, "d": 128},)),
    *(decoding(partial(tensor_core.dense, splits=2), "decode_tensor_core", "merge_splits", dtype=dtype)
      for dtype in (F16, BF16))]
