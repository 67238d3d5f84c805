"""Chapter 1: softmax and attention by the kernels of kernels/attention.cu."""
import math

import torch

from course_lib import cuda
from course_lib.checks import check_attention, check_dtype, check_equal, check_softmax_kernel, check_tensor
from course_lib.launching import C_TYPES, HALF, SHARED_BYTES, aligned

# Rows per block and threads per block. softmax_registers takes both from the length of a row.
SOFTMAX_KERNELS = {"softmax_naive": (32, 32), "softmax_stable": (32, 32), "softmax_online": (32, 32),
                   "softmax_warp": (4, 128), "softmax_half": (4, 128), "softmax_block": (1, 128),
                   "softmax_on_chip": (1, 128), "softmax_registers": None}
ON_CHIP = (SHARED_BYTES - 256) // 4  # columns of a row of floats in shared memory; 256 bytes for the warps
IN_REGISTERS = 32 * 32 * 4 * 16      # bytes of a row: 32 warps of 32 threads, 4 loads of 16 bytes each


def softmax_kernel(x: torch.Tensor, kernel: str | None = None) -> torch.Tensor:
    """softmax of the rows of x (rows, columns) by one kernel of kernels/attention.cu.

    x is float32, or float16 for "softmax_half". "softmax_on_chip" takes at most 12,224 columns (48 KiB).
    "softmax_registers" also takes half precision; its rows are a multiple of 16 bytes, at most 64 KiB.
    kernel=None: "softmax_registers" on a GPU or in half precision if the rows fit, otherwise "softmax_half",
    "softmax_on_chip", or "softmax_block" for rows that do not fit on the chip."""
    kernel = _best_softmax(x) if kernel is None else kernel
    check_softmax_kernel(x, kernel, SOFTMAX_KERNELS, ON_CHIP, IN_REGISTERS)
    if kernel == "softmax_registers":
        return _softmax_registers(x)
    (rows, columns), (rows_per_block, threads) = x.shape, SOFTMAX_KERNELS[kernel]
    shared_bytes = 4 * columns if kernel == "softmax_on_chip" else 0
    x = x.contiguous()
    out = torch.empty_like(x)
    if out.numel():
        launch = cuda.load("attention")[kernel][math.ceil(rows / rows_per_block), threads, shared_bytes]
        launch(x, out, rows, columns)
    return out


def _best_softmax(x):
    columns = x.shape[-1:].numel()
    row = columns * x.element_size()
    in_registers = x.dtype in C_TYPES and row % 16 == 0 and row <= IN_REGISTERS
    if x.dtype == torch.bfloat16 or in_registers and (x.is_cuda or x.dtype in HALF):
        return "softmax_registers"
    if x.dtype == torch.float16:
        return "softmax_half"
    return "softmax_on_chip" if columns <= ON_CHIP else "softmax_block"


def _softmax_registers(x):
    (x,) = aligned(x)
    out = torch.empty_like(x)
    if out.numel():
        loads = math.ceil(x.shape[1] * x.element_size() / (32 * 16))      # per row, each by a whole warp
        warps = next(w for w in (1, 4, 8, 16, 32) if loads <= 4 * w)
        threads, rows_per_block = (128, 4) if warps == 1 else (32 * warps, 1)
        kernel = cuda.load("attention")[f"softmax_registers<{C_TYPES[x.dtype]}, {warps}, {min(loads, 4)}>"]
        kernel[math.ceil(len(x) / rows_per_block), threads](x, out, *x.shape)
    return out


def rms_norm_kernel(x: torch.Tensor, factors: torch.Tensor | None = None, eps: float = 1e-6) -> torch.Tensor:
    """x divided by the root mean square of its last dimension, times the factors. No gradient."""
    check_tensor("x", x)
    check_dtype("x", x, *C_TYPES, where="for rms_norm")
    if factors is not None:
        check_equal("factors", "have x's last dimension and type", (*factors.shape, factors.dtype),
                    (x.shape[-1], x.dtype))
    x, out = x.detach().contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    if rows := out.numel() and out.numel() // x.shape[-1]:
        kernel = cuda.load("attention")[f"rms_norm<{C_TYPES[x.dtype]}>"]
        factors = None if factors is None else factors.detach().contiguous()
        kernel[math.ceil(rows / 4), 128](x, factors, out, rows, x.shape[-1], eps)
    return out


def attention_kernel(q, k, v, causal=False, scale=None) -> torch.Tensor:
    """scaled_dot_product_attention in float32 as three launches: scores, softmax, output."""
    check_attention(q, k, v, scale, dtypes=(torch.float32,))
    (batch, heads, n, d), m, v_dim = q.shape, k.shape[2], v.shape[3]
    out = q.new_zeros(batch, heads, n, v_dim)
    if out.numel() == 0 or m == 0:
        return out
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    scale = 1 / math.sqrt(d) if scale is None else scale
    scores = q.new_empty(batch * heads * n, m)
    module, tile = cuda.load("attention"), 16
    blocks = (math.ceil(m / tile), math.ceil(n / tile), batch * heads)
    module.attention_scores[blocks, (tile, tile)](q, k, scores, n, m, d, scale, int(causal))
    weights = softmax_kernel(scores, "softmax_on_chip" if m <= ON_CHIP else "softmax_block")
    blocks = (math.ceil(v_dim / tile), math.ceil(n / tile), batch * heads)
    module.attention_output[blocks, (tile, tile)](weights, v, out, n, m, v_dim, int(causal))
    return out
