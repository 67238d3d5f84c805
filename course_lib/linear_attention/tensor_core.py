"""Chapter 4: causal linear attention in bfloat16 on tensor cores, by linear_attention/tensor_core.cu."""
import math

import torch
from torch import Tensor

from course_lib import cuda
from course_lib.checks import check_shared_memory, check_tensor_cores
from course_lib.launching import (SHARED_BYTES_A100, aligned, multiprocessors, parts_that_fit,
                                  require_tensor_cores, runs_tensor_cores, shared_limit)

CHUNK, LEAST_TOKENS = 64, 512


def fits(q: Tensor, v: Tensor) -> bool:
    """bfloat16 of width 64 or 128, on a device with the instructions and the shared memory."""
    return _takes(q, v) and shared_bytes(q.shape[-1]) <= shared_limit(q.device)


def _takes(q, v):
    return (q.dtype == torch.bfloat16 and q.shape[-1] in (64, 128) and v.shape[-1] == q.shape[-1]
            and runs_tensor_cores(q.device))


def shared_bytes(d: int) -> int:
    """Of a block: two stages of q, k and v, scores, z and weights, and at d = 64 the state."""
    tile = 2 * CHUNK * d
    return 6 * tile + 2 * CHUNK * CHUNK + 4 * d + 4 * CHUNK + (d == 64) * 2 * d * d


def run(q: Tensor, k: Tensor, v: Tensor, start: Tensor, map_code: int, normalise: bool,
        segments: int | None = None) -> tuple[Tensor, Tensor]:
    """Out (b, h, n, d), and the state at the end, in the layout of start.

    q, k, v (b, h, n, d); start (b, h, d * d + d) in float32: S row by row, then z. The tokens are cut into
    segments that run side by side, with one block per multiprocessor unless given."""
    require_tensor_cores(q)
    check_tensor_cores(_takes(q, v), "bfloat16 of width 64 or 128", q, v)
    b, h, n, d = q.shape
    check_shared_memory("q", f"rows of {d}", shared_bytes(d), shared_limit(q.device))
    if segments is None:
        segments = parts_that_fit(multiprocessors(q.device), b * h, n, LEAST_TOKENS)
    segment = max(CHUNK, math.ceil(math.ceil(n / segments) / CHUNK) * CHUNK)
    segments = max(1, math.ceil(n / segment))                   # whole chunks: there may be fewer segments
    out, after = torch.empty_like(q, memory_format=torch.contiguous_format), torch.empty_like(start)
    if q.numel() == 0:
        return out, start
    q, k, v = aligned(q, k, v)
    module, states = cuda.load("linear_attention/tensor_core"), start.contiguous()
    heads, size, threads = b * h, d * d + d, 32768 // d
    tile = 2 * CHUNK * d                                        # bytes of a chunk of q, k or v
    sums, walk = module[f"linear_walk<{d}, false>"], module[f"linear_walk<{d}, true>"]
    sums.shared_limit = walk.shared_limit = SHARED_BYTES_A100
    last = n, segment, map_code, int(normalise)
    if segments > 1:
        states = start.new_zeros(heads, segments, size)
        sums[(segments, heads), threads, 4 * tile](q, k, v, None, states, out, *last)
        module.segment_prefix[(math.ceil(size / 256), heads), 256](start.contiguous(), states, segments, size)
    walk[(segments, heads), threads, shared_bytes(d)](q, k, v, states, after, out, *last)
    return out, after
