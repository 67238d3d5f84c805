"""Chapter 2: `apply_rope` by the kernels of kernels/rope.cu."""
import math

import torch

from course_lib import cuda
from course_lib.checks.rope import check_rope_kernel, check_rotation
from course_lib.launching import C_TYPES, HALF, aligned

# (layout, rung): the kernel and its pairs per thread. Rung 4 is rope_heads, for both layouts.
RUNGS = {("interleaved", 1): ("rope_interleaved", 1), ("half", 2): ("rope_half", 1),
         ("interleaved", 3): ("rope_interleaved_vec4", 2), ("half", 3): ("rope_half_vec4", 4)}


def rope_kernel(x, cos, sin, positions=None, layout="interleaved", rung=None):
    """`apply_rope` by kernels/rope.cu, without a gradient; x is not changed.

    rung: 1 is for the interleaved layout, 2 for half, 3 and 4 for both. 4 takes float32, float16 and bfloat16,
    the others float32. None picks 4 on a GPU or in half precision, else 3, else 1 or 2."""
    positions = check_rotation(x, cos, sin, positions, layout)
    rungs = {number: kernel for (of, number), kernel in RUNGS.items() if of == layout}
    rungs[4] = "rope_heads", 16 // x.element_size() // (1 if layout == "half" else 2)     # loads of 16 bytes
    rung = _best_rung(x, rungs) if rung is None else rung
    check_rope_kernel(x, cos, layout, rung, rungs, C_TYPES if rung == 4 else (torch.float32,))
    name, pairs_per_thread = rungs[rung]
    (b, heads, n, d), positions = x.shape, _positions_by_batch(x, positions)
    cos, sin = aligned(cos, sin)
    if rung == 4:
        (x,) = aligned(x)
        return rotate_heads(x, torch.empty_like(x), cos, sin, positions, layout)
    # Detach, or autograd would take the result for a plain copy of x.
    out = x.detach().clone(memory_format=torch.contiguous_format)
    threads = b * heads * n * d // 2 // pairs_per_thread
    if threads:
        kernel = cuda.load("rope")[name]
        kernel[math.ceil(threads / 128), 128](out, cos, sin, positions, threads, d // 2, heads, n)
    return out


def rotate_heads(x, out, cos, sin, positions, layout):
    """Rung 4 alone: x contiguous and aligned, positions (b, n) int32; out may be x."""
    (b, heads, n, d), half = x.shape, layout == "half"
    pairs_per_thread = 16 // x.element_size() // (1 if half else 2)
    grid = (math.ceil(n * d // 2 // pairs_per_thread / 128), math.ceil(heads / 4), b)
    if x.numel():
        kernel = cuda.load("rope")[f"rope_heads<{C_TYPES[x.dtype]}, {str(half).lower()}>"]
        kernel[grid, 128](x, out, cos, sin, positions, d // 2, heads, n)
    return out


def _best_rung(x, rungs):
    fits = {rung: x.shape[-1] // 2 % pairs == 0 for rung, (_, pairs) in rungs.items()}
    if x.dtype in HALF or x.is_cuda and fits[4]:
        return 4
    return 3 if fits[3] else min(rungs)


def _positions_by_batch(x, positions):
    """(b, n) int32, contiguous, the form that the kernels read."""
    b, n = x.shape[0], x.shape[2]
    positions = torch.arange(n, device=x.device) if positions is None else positions
    return positions.to(torch.int32).expand(b, n).contiguous()
