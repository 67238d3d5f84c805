"""Chapter 6's kernels as functions of tensors: every rung of the ladder, the backward, and what they accept.

Shapes as in course_lib/flash_attention.py. Nothing here has a gradient: that is `flash_attention`.
"""
import math
from functools import cache

import torch
from torch import Tensor

from course_lib import cuda
from course_lib.attention import C_TYPES, aligned
from course_lib.gqa import check_grouped

INFINITY = float("inf")
LARGEST_WIDTH = 128
RUNGS = {2: ("flash_thread_per_row", 64, 64), 3: ("flash_shared", 32, 128), 4: ("flash_vectors", 32, 128),
         5: ("flash_registers", 32, 64), 6: ("flash_two_groups", 64, 128)}  # kernel, rows a block, threads
TENSOR_CORES = 7                                        # the rung of kernels/flash_attention/tensor_core.cu


@cache
def kernels(file: str):
    """kernels/<file>.cu, compiled when first asked for, so that importing this needs no compiler."""
    return cuda.load(file)


def padded(width: int) -> int:
    """The width that a kernel is compiled for: the smallest of 32, 64 and 128 that holds `width`."""
    return next(w for w in (32, 64, LARGEST_WIDTH) if width <= w)


def sizes(q, k, v, scale, causal) -> tuple:
    """The last arguments of every kernel."""
    return q.shape[1] // k.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3], float(scale), int(causal)


def forward_kernel(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None,
                   key_bias: Tensor | None = None, rung: int | None = None) -> tuple[Tensor, Tensor]:
    """One rung of the ladder: -> out (batch, n_heads, n_q, v_dim), lse (batch, n_heads, n_q) in float32.

    key_bias, if any, is float32 of shape (batch, n_kv_heads, n_k). Without a rung: 7 on a GPU with tensor cores for
    what `fits_tensor_cores`, else 6. No gradient: that is `flash_attention`.
    """
    scale = check_kernel_inputs(q, k, v, scale, key_bias)
    rung = check_rung(best_rung(q, v, scale) if rung is None else rung, q, v, scale)
    heads, (n_q, n_k) = q.shape[0] * q.shape[1], (q.shape[2], k.shape[2])
    out, lse = q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3], dtype=torch.float32)
    if out.numel() == 0 or n_k == 0:                    # nothing to launch
        return out.zero_(), lse.fill_(-INFINITY)
    q, k, v = aligned(q, k, v)
    if rung == 1:
        return three_launches(q, k, v, key_bias, out, lse, scale, causal)
    if rung == TENSOR_CORES:
        launch, d, dv = tensor_core_kernel("flash_attention/tensor_core", "flash_tensor_core", q, v, key_bias)
        shared = 2 * (128 * d + 2 * 64 * (d + dv)) + (512 if key_bias is not None else 0)
        launch[(math.ceil(n_q / 128), heads), 128, shared](q, k, v, key_bias, out, lse, *sizes(q, k, v, scale, causal))
        return out, lse
    kernel, rows, threads = RUNGS[rung]
    d, dv = padded(q.shape[3]), padded(v.shape[3])
    extra = ""
    if rung in (3, 4):                                  # wide heads: fewer rows, or the tiles would not fit
        rows = 32 if max(d, dv) <= 64 else 16
        extra = f", {rows // 4}"
    launch = kernels("flash_attention")[f"{kernel}<{C_TYPES[q.dtype]}, {d}, {dv}{extra}>"]
    grid = math.ceil(n_q / rows), heads
    launch[grid, threads](q, k, v, key_bias, out, lse, *sizes(q, k, v, scale, causal))
    return out, lse


def fits_tensor_cores(q: Tensor, v: Tensor, scale: float) -> bool:
    """Whether the tensor-core kernels take these: 16-bit numbers, rows of whole 16 bytes, a scale above 0."""
    return q.dtype in (torch.float16, torch.bfloat16) and q.shape[3] % 8 == v.shape[3] % 8 == 0 and scale > 0


def best_rung(q: Tensor, v: Tensor, scale: float) -> int:
    """7 where the GPU has the instructions (sm_80 and later) and they fit; on a CPU 6, which is emulated faster."""
    there = q.is_cuda and torch.cuda.get_device_capability(q.device) >= (8, 0)
    return TENSOR_CORES if there and fits_tensor_cores(q, v, scale) else 6


def check_rung(rung: int, q: Tensor, v: Tensor, scale: float, lowest: int = 1) -> int:
    if rung not in range(lowest, 8) or rung == TENSOR_CORES and not fits_tensor_cores(q, v, scale):
        others = "6" if lowest == 6 else f"{lowest} to 6"
        raise ValueError(f"rung must be {others}, or 7 for float16 or bfloat16, widths that are multiples of 8 and "
                         f"a scale above 0; got {rung} for {q.dtype}, widths {q.shape[3]} and {v.shape[3]}, "
                         f"scale {scale:g}")
    return rung


def tensor_core_kernel(file: str, name: str, q: Tensor, v: Tensor, key_bias: Tensor | None, *extra: str):
    """The instance for these tensors, with its two widths. It may have more shared memory than 48 KiB."""
    d, dv = (max(64, padded(x.shape[3])) for x in (q, v))
    given = ", ".join([C_TYPES[q.dtype], str(d), str(dv), "false" if key_bias is None else "true", *extra])
    launch = kernels(file)[f"{name}<{given}>"]
    launch.shared_limit = 99 << 10                      # the least of all cards from sm_80 on: 163 or 227 KiB with some
    return launch, d, dv


def three_launches(q, k, v, key_bias, out, lse, scale, causal):
    """Rung 1: scores, softmax, weighted sum, through a matrix of float32 in memory."""
    heads = q.shape[0] * q.shape[1]
    group_size, n_q, n_k, d, v_dim, scale, causal = sizes(q, k, v, scale, causal)
    s = torch.empty(heads, n_q, n_k, device=q.device)
    mod, dtype = kernels("flash_attention"), C_TYPES[q.dtype]
    to_s, to_out = ((math.ceil(columns / 32), math.ceil(n_q / 4), heads) for columns in (n_k, v_dim))
    mod[f"scores<{dtype}>"][to_s, (32, 4)](q, k, key_bias, s, group_size, n_q, n_k, d, scale, causal)
    mod.softmax_rows[(n_q, heads), 32](s, lse, n_q, n_k)
    mod[f"weighted_sum<{dtype}>"][to_out, (32, 4)](s, v, out, group_size, n_q, n_k, v_dim)
    return out, lse


def backward_kernels(grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
                     causal: bool = False, scale: float | None = None, key_bias: Tensor | None = None,
                     atomic: bool = False, rung: int | None = None):
    """dq, dk, dv and d key_bias (None without one), by two repeatable kernels or one with atomics.

    rung 7 is kernels/flash_attention/tensor_core_backward.cu, 6 those of kernels/flash_attention/backward.cu; without it as in the forward.
    """
    scale = check_kernel_inputs(q, k, v, scale, key_bias)
    check_results(q, v, out, lse, grad_out)
    rung = check_rung(best_rung(q, v, scale) if rung is None else rung, q, v, scale, lowest=6)
    heads, kv_heads, (n_q, n_k) = q.shape[0] * q.shape[1], k.shape[0] * k.shape[1], (q.shape[2], k.shape[2])
    dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    dbias = None if key_bias is None else torch.empty(k.shape[:3], device=k.device)
    if out.numel() == 0 or n_k == 0:
        return *(x.zero_() for x in (dq, dk, dv)), None if dbias is None else dbias.zero_()
    q, k, v, out, grad_out, lse = aligned(q, k, v, out, grad_out, lse)
    delta = torch.empty_like(lse)
    if rung == TENSOR_CORES and not atomic:
        tensor_core_backward(grad_out, q, k, v, out, lse, delta, dq, dk, dv, key_bias, dbias, scale, causal)
        return dq, dk, dv, dbias
    mod, dtype = kernels("flash_attention/backward"), C_TYPES[q.dtype]
    mod[f"rowsum_do_o<{dtype}>"][(n_q, heads), 32](grad_out, out, delta, n_q, v.shape[3])
    d, width = padded(q.shape[3]), padded(v.shape[3])
    tile, instance = 32 if max(d, width) <= 64 else 16, f"<{dtype}, {d}, {width}>"
    given, last = (q, k, v, key_bias, grad_out, lse, delta), sizes(q, k, v, scale, causal)
    by_keys, by_queries = (math.ceil(n_k / tile), kv_heads), (math.ceil(n_q / tile), heads)
    if atomic:
        sums = torch.zeros(dq.shape, device=dq.device)
        mod[f"backward_atomic{instance}"][by_keys, 64](*given, sums, dk, dv, dbias, *last)
        return sums.to(dq.dtype), dk, dv, dbias
    mod[f"backward_keys{instance}"][by_keys, 64](*given, dk, dv, dbias, *last)
    mod[f"backward_queries{instance}"][by_queries, 64](*given, dq, *last)
    return dq, dk, dv, dbias


def tensor_core_backward(grad_out, q, k, v, out, lse, delta, dq, dk, dv, key_bias, dbias, scale, causal):
    """Into dq, dk, dv, dbias: a launch for rows of grad_out * out, one where keys stay, one where queries do."""
    file, last = "flash_attention/tensor_core_backward", sizes(q, k, v, scale, causal)
    width = max(64, padded(v.shape[3]))
    launch = kernels(file)[f"row_deltas<{C_TYPES[q.dtype]}, {width}>"]
    launch[math.ceil(lse.numel() * width / 8 / 128), 128](grad_out, out, delta, lse.numel(), v.shape[3])
    for x, keys_stay, results in ((k, "true", (dk, dv, dbias)), (q, "false", (dq, None, None))):
        launch, d, dv_width = tensor_core_kernel(file, "backward_tensor_core", q, v, key_bias, keys_stay)
        m = 1 if keys_stay == "true" and d + dv_width > 128 else 2      # tiles of 16 rows a warp has
        rows, columns = 64 * m, 64 // m
        shared = 2 * (rows + 2 * columns) * (d + dv_width) + 16 * columns
        launch[(math.ceil(x.shape[2] / rows), x.shape[0] * x.shape[1]), 128, shared](
            q, k, v, key_bias, grad_out, lse, delta, *results, *last)


def check_inputs(q, k, v, scale, key_bias) -> float:
    """Raise a ValueError that names what is wrong, or return the scale to use."""
    check_grouped(q, k, v, scale)
    if v.shape[3] == 0:
        raise ValueError("v must have a width of at least 1; got 0")
    if key_bias is not None:
        is_float = isinstance(key_bias, Tensor) and key_bias.is_floating_point()
        if not is_float or key_bias.device != k.device:
            got = f"{key_bias.dtype} on {key_bias.device}" if isinstance(key_bias, Tensor) else type(key_bias).__name__
            raise ValueError(f"key_bias must be a floating-point tensor on the device of k, {k.device}; got {got}")
        try:
            fits = torch.broadcast_shapes(key_bias.shape, k.shape[:3]) == k.shape[:3]
        except RuntimeError:
            fits = False
        if not fits:
            raise ValueError(f"key_bias must broadcast to (batch, n_kv_heads, n_k) = {tuple(k.shape[:3])}; "
                             f"got {tuple(key_bias.shape)}")
    return 1 / math.sqrt(q.shape[3]) if scale is None else float(scale)


def check_results(q, v, out, lse, grad_out) -> None:
    """What a backward pass is given has the shapes of what the forward returned."""
    for name, x, shape in (("out", out, (*q.shape[:3], v.shape[3])), ("lse", lse, q.shape[:3]),
                           ("grad_out", grad_out, (*q.shape[:3], v.shape[3]))):
        if x.shape != shape:
            raise ValueError(f"{name} must have shape {tuple(shape)}; got {tuple(x.shape)}")


def check_kernel_inputs(q, k, v, scale, key_bias) -> float:
    """What the kernels ask for beyond `check_inputs`: their number types, and widths up to 128."""
    scale = check_inputs(q, k, v, scale, key_bias)
    if q.dtype not in C_TYPES:
        raise ValueError("q must be float32, float16 or bfloat16 (flash_forward_tiles takes float64 too); "
                         f"got {q.dtype}")
    for name, x in (("q", q), ("v", v)):
        if x.shape[3] > LARGEST_WIDTH:
            raise ValueError(f"{name} must have a width of at most {LARGEST_WIDTH}; got {x.shape[3]}")
    return scale
