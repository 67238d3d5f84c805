"""Chapter 5: block-sparse attention by the kernels of kernels/sparse_attention.cu, float32. No gradient.

Half precision is passed to the kernels for tensor cores. Values must be finite: inside a visited block a
hidden value is multiplied by 0, and 0 * NaN is NaN."""
import math

import torch
from torch import Tensor

from course_lib import cuda
from course_lib.checks.sparse_attention import check_block_kernel, check_dense_kernel, check_window_kernel
from course_lib.launching import HALF
from course_lib.sparse_attention import tensor_core
from course_lib.sparse_attention.blocks import BlockMask

BLOCK = 32
MAX_D = 128


def dense_masked_kernel(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float | None = None) -> Tensor:
    """Rung 1: every block is visited; mask is boolean, (n_q, n_k)."""
    check_dense_kernel(q, k, v, mask, scale, MAX_D)
    return _launch("dense_masked", q, k, v, scale, [mask.to(torch.uint8).contiguous()], mask.shape)


def block_sparse_kernel(q: Tensor, k: Tensor, v: Tensor, block_mask: BlockMask,
                        scale: float | None = None) -> Tensor:
    """Rung 2: only the blocks of the mask that are not empty. Blocks of 32, or of 128 in half precision."""
    half = q.dtype in HALF
    check_block_kernel(q, k, v, block_mask, scale, tensor_core.BLOCK if half else BLOCK, MAX_D)
    lists = [x.to(q.device) for x in stored_masks(block_mask)]
    if half:
        return tensor_core.blocks(q, k, v, lists, scale)
    return _launch("block_sparse", q, k, v, scale, lists, [q.shape[-2], k.shape[-2]])


def window_sink_kernel(q: Tensor, k: Tensor, v: Tensor, window: int, n_sink: int = 0,
                       scale: float | None = None) -> Tensor:
    """Rung 3: causal; the last `window` keys, the query's own included, and the first n_sink."""
    check_window_kernel(q, k, v, window, n_sink, scale, MAX_D)
    n = q.shape[-2]
    if q.dtype in HALF:
        return tensor_core.window(q, k, v, window, n_sink, scale)
    return _launch("window_sink", q, k, v, scale, [], [n], [min(window, n), n_sink])


def stored_masks(block_mask: BlockMask) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(start, column, stored, masks) for a kernel: start and column as in BlockMask.lists; the masks of
    partial blocks, one byte per pair; stored is the index of a block's mask, or -1 for a full block."""
    start, column, partial = block_mask.lists()
    stored = torch.where(partial == 1, partial.cumsum(0) - 1, -1).int()
    rows = torch.repeat_interleave(torch.arange(len(start) - 1), start.long().diff())
    masks = torch.zeros(max(1, int(partial.sum())), block_mask.block, block_mask.block, dtype=torch.uint8)
    for place, row, col in zip(stored.tolist(), rows.tolist(), column.tolist()):
        if place >= 0:
            inside = block_mask.inside(row, col)
            masks[place, :inside.shape[0], :inside.shape[1]] = inside
    # A kernel needs an address for an empty list too.
    column, stored = (x if len(x) else x.new_zeros(1) for x in (column, stored))
    return start, column, stored, masks


def _launch(kernel, q, k, v, scale, lists, lengths, options=()):
    b, heads, n_q, d = q.shape
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if out.numel() == 0:
        return out
    shared = 4 * (2 * BLOCK * (d + 1) + BLOCK * (BLOCK + 1) + 3 * BLOCK)
    scale = 1 / math.sqrt(d) if scale is None else scale
    grid = (math.ceil(n_q / BLOCK), heads, b)
    q, k, v = (x.contiguous() for x in (q, k, v))
    launch = cuda.load("sparse_attention")[kernel][grid, 128, shared]
    launch(q, k, v, *lists, out, *lengths, d, *options, scale)
    return out
