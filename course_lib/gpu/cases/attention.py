"""Chapter 1: softmax of rows, and attention in three launches."""
from functools import partial

import torch

from course_lib.attention import attention_kernel, softmax_kernel
from course_lib.attention.kernels import SOFTMAX_KERNELS, rms_norm_kernel
from course_lib.gpu.case import BF16, F16, F32, Case, attention_output, qkv

RAGGED = ((1, 1), (3, 31), (33, 33), (2, 63), (1, 300)), ((1, 8), (3, 3000))     # any rows, of whole 16 bytes


def softmax(kernel, dtype=F32):
    return Case(chapter="attention", kernels=(kernel,), dtype=dtype,
                counted=dtype == F32 and kernel in ("softmax_warp", "softmax_on_chip", "softmax_registers"),
                inputs=lambda draw, rows, columns: (3 * draw(rows, columns),),
                run=partial(softmax_kernel, kernel=kernel),
                oracle=lambda x: torch.softmax(x, -1),
                small=({"rows": 5, "columns": 264}, {"rows": 33, "columns": 72}, *(
                    {"rows": rows, "columns": columns} for rows, columns in RAGGED[kernel == "softmax_registers"])),
                large=({"rows": 4099, "columns": 4096},))


CASES = [
    *(softmax(kernel, F16 if kernel == "softmax_half" else F32) for kernel in SOFTMAX_KERNELS),
    *(softmax("softmax_registers", dtype) for dtype in (F16, BF16)),
    *(Case(chapter="attention", kernels=("rms_norm",), dtype=dtype, counted=True, run=rms_norm_kernel,
           inputs=lambda draw, rows, columns, bare=False: (
               draw(rows, columns), None if bare else draw(columns)),
           oracle=lambda x, factors: torch.nn.functional.rms_norm(x, x.shape[-1:], factors, 1e-6),
           small=({"rows": 5, "columns": 128}, {"rows": 1, "columns": 1, "bare": True},
                  {"rows": 33, "columns": 61}),
           large=({"rows": 4099, "columns": 4096},)) for dtype in (F32, F16, BF16)),
    Case(chapter="attention", kernels=("attention_scores", "softmax_on_chip", "attention_output"),
         counted=True, inputs=qkv, run=attention_kernel, oracle=attention_output,
         small=({"b": 1, "heads": 2, "kv_heads": 2, "n": 33, "m": 50, "d": 20, "causal": True},
                *({"b": 2, "heads": 3, "kv_heads": 3, "n": n, "m": m, "d": d, "v_dim": v_dim, "causal": causal}
                  for n, m, d, v_dim in ((1, 1, 1, 1), (31, 33, 8, 8), (33, 31, 20, 5), (5, 63, 33, 40),
                                         (16, 16, 16, 16)) for causal in (False, True))),
         large=({"b": 2, "heads": 4, "kv_heads": 4, "n": 500, "m": 511, "d": 64},))]
