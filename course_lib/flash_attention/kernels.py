"""Chapter 6's kernels as functions of tensors: every rung of the ladder, and the backward.

Shapes as in tiles.py. Nothing here has a gradient: the differentiable function is `flash_attention`."""
import math

import torch
from torch import Tensor

from course_lib import cuda
from course_lib.checks.flash_attention import check_flash_kernel, check_results, check_rung
from course_lib.launching import C_TYPES, aligned
from .tensor_core import fits_tensor_cores, has_tensor_cores, tensor_core_backward, tensor_core_forward

# rung: (kernel, rows of q per block, threads per block)
RUNGS = {2: ("flash_thread_per_row", 64, 64), 3: ("flash_shared", 32, 128), 4: ("flash_vectors", 32, 128),
         5: ("flash_registers", 32, 64), 6: ("flash_two_groups", 64, 128)}
TENSOR_CORES = 7


def forward_kernel(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None,
                   key_bias: Tensor | None = None, rung: int | None = None) -> tuple[Tensor, Tensor]:
    """One rung of the ladder: -> out (batch, n_heads, n_q, v_dim), lse (batch, n_heads, n_q) in float32.

    key_bias: float32 (batch, n_kv_heads, n_k). rung=None: 7 where tensor cores take the inputs, else 6."""
    scale, key_bias = check_flash_kernel(q, k, v, scale, key_bias), _whole(key_bias, k)
    rung = _rung(rung, q, v, scale)
    heads, n_q, n_k = q.shape[0] * q.shape[1], q.shape[2], k.shape[2]
    out, lse = q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3], dtype=torch.float32)
    if out.numel() == 0 or n_k == 0:                    # nothing to launch
        return out.zero_(), lse.fill_(-math.inf)
    q, k, v = aligned(q, k, v)
    last = last_arguments(q, k, v, scale, causal)
    if rung == 1:
        _three_launches(q, k, v, key_bias, out, lse, last)
    elif rung == TENSOR_CORES:
        tensor_core_forward(q, k, v, key_bias, out, lse, last)
    else:
        kernel, rows, threads = RUNGS[rung]
        widths = padded(q.shape[3]), padded(v.shape[3])
        instance = [C_TYPES[q.dtype], *widths]
        if rung in (3, 4):                              # wide heads: fewer rows, or the tiles would not fit
            rows = 32 if max(widths) <= 64 else 16
            instance.append(rows // 4)
        launch = cuda.load("flash_attention")[f"{kernel}<{', '.join(map(str, instance))}>"]
        launch[(math.ceil(n_q / rows), heads), threads](q, k, v, key_bias, out, lse, *last)
    return out, lse


def _whole(key_bias, k):
    """One number per key of each head, as the kernels read it."""
    return None if key_bias is None else key_bias.float().expand(k.shape[:3]).contiguous()


def backward_kernels(grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
                     causal: bool = False, scale: float | None = None, key_bias: Tensor | None = None,
                     atomic: bool = False, rung: int | None = None):
    """dq, dk, dv and d key_bias of its whole shape (None without one), by two repeatable kernels or one with atomics.

    rung 7 is kernels/flash_attention/tensor_core_backward.cu, 6 is backward.cu; None: as the forward."""
    scale, key_bias = check_flash_kernel(q, k, v, scale, key_bias), _whole(key_bias, k)
    check_results(q, v, out=out, lse=lse, grad_out=grad_out)
    rung = _rung(rung, q, v, scale, lowest=6)
    dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    dbias = None if key_bias is None else torch.empty(k.shape[:3], device=k.device)
    if out.numel() == 0 or k.shape[2] == 0:
        return *(x.zero_() for x in (dq, dk, dv)), None if dbias is None else dbias.zero_()
    q, k, v, out, grad_out, lse = aligned(q, k, v, out, grad_out, lse)
    delta, last = torch.empty_like(lse), last_arguments(q, k, v, scale, causal)
    if rung == TENSOR_CORES and not atomic:
        tensor_core_backward(grad_out, q, k, v, out, lse, delta, dq, dk, dv, key_bias, dbias, last)
        return dq, dk, dv, dbias
    module = cuda.load("flash_attention/backward")
    row_sums(module, grad_out, out, delta)
    width, v_width = padded(q.shape[3]), padded(v.shape[3])
    tile, instance = 32 if max(width, v_width) <= 64 else 16, f"<{C_TYPES[q.dtype]}, {width}, {v_width}>"
    by_keys = math.ceil(k.shape[2] / tile), k.shape[0] * k.shape[1]
    by_queries = math.ceil(q.shape[2] / tile), q.shape[0] * q.shape[1]
    given = q, k, v, key_bias, grad_out, lse, delta
    if atomic:
        sums = torch.zeros(dq.shape, device=dq.device)
        module[f"backward_atomic{instance}"][by_keys, 64](*given, sums, dk, dv, dbias, *last)
        return sums.to(dq.dtype), dk, dv, dbias
    module[f"backward_keys{instance}"][by_keys, 64](*given, dk, dv, dbias, *last)
    module[f"backward_queries{instance}"][by_queries, 64](*given, dq, *last)
    return dq, dk, dv, dbias


def best_rung(q: Tensor, v: Tensor, scale: float) -> int:
    """7 on a GPU with tensor cores, if the inputs fit them; on a CPU 6, which is emulated faster."""
    return TENSOR_CORES if has_tensor_cores(q) and fits_tensor_cores(q, v, scale) else 6


def padded(width: int) -> int:
    """The width that a kernel is compiled for: the smallest of 32, 64 and 128 that holds `width`."""
    return next(w for w in (32, 64, 128) if width <= w)


def last_arguments(q, k, v, scale, causal) -> tuple:
    """What every kernel takes last: group_size, n_q, n_k, head_dim, v_dim, scale, causal."""
    return q.shape[1] // k.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3], float(scale), int(causal)


def row_sums(module, grad_out, out, delta) -> None:
    """Writes D_i = dO_i . O_i into delta, one warp per row; module is flash_attention/backward."""
    batch, heads, n_q, v_dim = out.shape
    module[f"rowsum_do_o<{C_TYPES[out.dtype]}>"][(n_q, batch * heads), 32](grad_out, out, delta, n_q, v_dim)


def _rung(rung, q, v, scale, lowest=1):
    rung = best_rung(q, v, scale) if rung is None else rung
    check_rung(rung, lowest, fits_tensor_cores(q, v, scale), q, v, scale)
    return rung


def _three_launches(q, k, v, key_bias, out, lse, last):
    """Rung 1: scores, softmax, weighted sum, through a matrix of float32 in memory."""
    heads = q.shape[0] * q.shape[1]
    group_size, n_q, n_k, d, v_dim, scale, causal = last
    s = torch.empty(heads, n_q, n_k, device=q.device)
    module, dtype = cuda.load("flash_attention"), C_TYPES[q.dtype]
    to_s, to_out = ((math.ceil(columns / 32), math.ceil(n_q / 4), heads) for columns in (n_k, v_dim))
    module[f"scores<{dtype}>"][to_s, (32, 4)](q, k, key_bias, s, group_size, n_q, n_k, d, scale, causal)
    module.softmax_rows[(n_q, heads), 32](s, lse, n_q, n_k)
    module[f"weighted_sum<{dtype}>"][to_out, (32, 4)](s, v, out, group_size, n_q, n_k, v_dim)
