"""Rung 7: the tensor-core kernels of kernels/flash_attention/, forward and backward, in half precision."""
import math

from torch import Tensor

from course_lib import cuda
from course_lib.launching import C_TYPES, HALF, SHARED_BYTES_SM80, runs_tensor_cores


def fits_tensor_cores(q: Tensor, v: Tensor, scale: float) -> bool:
    """Whether the tensor-core kernels take these: 16-bit numbers, rows of whole 16 bytes, a scale above 0."""
    return q.dtype in HALF and q.shape[3] % 8 == v.shape[3] % 8 == 0 and scale > 0


def has_tensor_cores(x: Tensor) -> bool:
    """Whether x is on a GPU that has the instructions: sm_80 and later."""
    return x.is_cuda and runs_tensor_cores(x.device)


def tensor_core_forward(q, k, v, key_bias, out, lse, last) -> None:
    """Writes out and lse. last: the kernels' last arguments."""
    launch, d, v_dim = _instance("tensor_core", "flash_tensor_core", q, v, key_bias)
    rows = 128
    shared = 2 * (rows * d + 2 * 64 * (d + v_dim)) + (512 if key_bias is not None else 0)
    grid = math.ceil(q.shape[2] / rows), q.shape[0] * q.shape[1]
    launch[grid, 128, shared](q, k, v, key_bias, out, lse, *last)


def tensor_core_backward(grad_out, q, k, v, out, lse, delta, dq, dk, dv, key_bias, dbias, last) -> None:
    """Writes dq, dk, dv, dbias in three launches: row sums of grad_out * out; then the kernel whose blocks
    each keep a tile of keys; then the one whose blocks each keep a tile of queries."""
    width = _padded(v)
    launch = cuda.load("flash_attention/tensor_core_backward")[f"row_deltas<{C_TYPES[q.dtype]}, {width}>"]
    launch[math.ceil(lse.numel() * width / 8 / 128), 128](grad_out, out, delta, lse.numel(), v.shape[3])
    for x, keys_stay, results in ((k, "true", (dk, dv, dbias)), (q, "false", (dq, None, None))):
        launch, d, v_dim = _instance("tensor_core_backward", "backward_tensor_core", q, v, key_bias,
                                     keys_stay)
        tiles_per_warp = 1 if keys_stay == "true" and d + v_dim > 128 else 2        # of 16 rows
        rows, columns = 64 * tiles_per_warp, 64 // tiles_per_warp
        shared = 2 * (rows + 2 * columns) * (d + v_dim) + 16 * columns
        launch[(math.ceil(x.shape[2] / rows), x.shape[0] * x.shape[1]), 128, shared](
            q, k, v, key_bias, grad_out, lse, delta, *results, *last)


def _instance(file: str, name: str, q: Tensor, v: Tensor, key_bias: Tensor | None, *extra: str):
    """The instance for these tensors, and the two widths it is compiled for."""
    d, v_dim = _padded(q), _padded(v)
    given = ", ".join([C_TYPES[q.dtype], str(d), str(v_dim), "false" if key_bias is None else "true", *extra])
    launch = cuda.load(f"flash_attention/{file}")[f"{name}<{given}>"]
    launch.shared_limit = SHARED_BYTES_SM80
    return launch, d, v_dim


def _padded(x: Tensor) -> int:
    return 64 if x.shape[3] <= 64 else 128
