"""Causal linear attention in bfloat16 by kernels/linear_attention/tensor_core.cu: the rung for a card of chapter 4."""
import math

import torch
from torch import Tensor

from course_lib.attention import aligned

CHUNK, LEAST_TOKENS, MULTIPROCESSORS = 64, 512, 132


def fits(q: Tensor, v: Tensor) -> bool:
    return q.dtype == torch.bfloat16 and q.shape[-1] in (64, 128) and v.shape[-1] == q.shape[-1]


def choose_segments(heads: int, n: int, d: int, device: torch.device) -> int:
    """Into how many parts to cut the tokens, so that every multiprocessor has a block (two of them at d = 64)."""
    on_a_card = device.type == "cuda"
    processors = torch.cuda.get_device_properties(device).multi_processor_count if on_a_card else MULTIPROCESSORS
    return max(1, min(processors * 128 // d // max(heads, 1), n // LEAST_TOKENS))


def run(q: Tensor, k: Tensor, v: Tensor, start: Tensor, map_code: int, normalise: bool,
        segments: int | None = None) -> tuple[Tensor, Tensor]:
    """q, k, v (b, h, n, d); start (b, h, d * d + d) in float32: S row by row, then z -> out, and the state after all."""
    from course_lib import cuda

    b, h, n, d = q.shape
    if not fits(q, v):
        raise ValueError(f"q must be bfloat16, 64 or 128 wide like v, for this kernel; got {q.dtype}, {d} and {v.shape[-1]}")
    segments = choose_segments(b * h, n, d, q.device) if segments is None else segments
    segment = max(CHUNK, math.ceil(math.ceil(n / segments) / CHUNK) * CHUNK)
    segments = max(1, math.ceil(n / segment))                   # rounded to chunks, fewer may do
    out, after = torch.empty_like(q, memory_format=torch.contiguous_format), torch.empty_like(start)
    if q.numel() == 0:
        return out, start
    q, k, v = aligned(q, k, v)
    module, heads, size, states = cuda.load("linear_attention/tensor_core"), b * h, d * d + d, start.contiguous()
    tile = 2 * CHUNK * d                                        # bytes
    sums, walk = module[f"linear_walk<{d}, false>"], module[f"linear_walk<{d}, true>"]
    sums.shared_limit = walk.shared_limit = 160 << 10
    last = n, segment, map_code, int(normalise)
    if segments > 1:
        states = start.new_zeros(heads, segments, size)
        sums[(segments, heads), 2 * d, 4 * tile](q, k, v, None, states, out, *last)
        module.segment_prefix[(math.ceil(size / 256), heads), 256](start.contiguous(), states, segments, size)
    walk[(segments, heads), 2 * d, 7 * tile + 2 * d * d + 4 * d](q, k, v, states, after, out, *last)
    return out, after
