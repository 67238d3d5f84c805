"""Chapter 2: rotation of queries and keys, alone and while appending to a cache."""
from functools import partial

import torch

from course_lib.gpu.case import BF16, F16, F32, Case
from course_lib.kv_cache import StaticCache, append_kernel
from course_lib.rope import apply_rope, rope_kernel, rope_table
from course_lib.rope.kernels import rotate_heads

SMALL = ({"b": 1, "heads": 2, "n": 33, "d": 32}, {"b": 2, "heads": 5, "n": 7, "d": 64},
         {"b": 1, "heads": 1, "n": 1, "d": 16}, {"b": 1, "heads": 4, "n": 7, "d": 128})
LARGE = ({"b": 2, "heads": 7, "n": 1001, "d": 128},)


def inputs(draw, b, heads, n, d):
    positions = draw(2 * n, dtype=F32).argsort()[:n].expand(b, n).contiguous()
    return draw(b, heads, n, d), *rope_table(2 * n, d), positions


def rotation(kernel, layout, rung, dtype=F32):
    return Case(chapter="rope", kernels=(kernel,), dtype=dtype, note=layout if rung == 4 else "",
                counted=dtype == F32 and (kernel, layout) not in (("rope_half", "half"),
                                                                  ("rope_heads", "half")),
                inputs=inputs,
                run=partial(rope_kernel, layout=layout, rung=rung),
                oracle=partial(apply_rope, layout=layout),
                small=SMALL, large=LARGE)


def prepared(x, cos, sin, positions):
    """For timing: the output's memory and the positions as the kernel reads them, made before."""
    return x, torch.empty_like(x), cos, sin, positions.int().contiguous()


def rotate_prepared(layout, x, out, cos, sin, positions):
    return rotate_heads(x, out, cos, sin, positions, layout)


def appended(k, v, cos, sin):
    cache, half = StaticCache(k.shape[2] + 3), k.shape[2] // 2
    for part in (slice(None, half), slice(half, None)):
        append_kernel(cache, k[:, :, part], v[:, :, part], (cos, sin))
    return cache.view()


CASES = [
    rotation("rope_interleaved", "interleaved", 1),
    rotation("rope_half", "half", 2),
    rotation("rope_interleaved_vec4", "interleaved", 3),
    rotation("rope_half_vec4", "half", 3),
    *(rotation("rope_heads", layout, 4, dtype)
      for layout in ("interleaved", "half") for dtype in (F32, F16, BF16)),
    Case(chapter="rope", kernels=("rope_append",),
         inputs=lambda draw, b, heads, n, d: (draw(b, heads, n, d), draw(b, heads, n, d), *rope_table(n, d)),
         run=appended,
         oracle=lambda k, v, cos, sin: (apply_rope(k, cos, sin), v),
         small=(*SMALL, {"b": 2, "heads": 3, "n": 3, "d": 6}), large=LARGE)]
