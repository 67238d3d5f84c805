"""Wrappers of kernels/sparse_attention.cu: block-sparse attention in float32, on the CPU engine or a card; in half
precision they hand on to sparse_tensor_core. Without a gradient.

Values must be finite: inside a visited block a hidden value is multiplied by 0, and 0 times NaN is NaN.
"""
import math

import torch
from torch import Tensor

from course_lib.sparse_attention import tensor_core as sparse_tensor_core
from course_lib.attention import scaled_dot_product_attention
from course_lib.checks import check_count
from course_lib.sparse_attention.rules import BlockMask, check_block_mask

BLOCK = 32
MAX_D = 128


def dense_masked_kernel(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float | None = None) -> Tensor:
    """Rung 1: every block is visited; mask is boolean, (n_q, n_k)."""
    if mask.dtype != torch.bool or mask.shape != (q.shape[-2], k.shape[-2]):
        raise ValueError(f"mask must be boolean, {(q.shape[-2], k.shape[-2])}; got {mask.dtype} of shape {tuple(mask.shape)}")
    return _launch("dense_masked", q, k, v, scale, [mask.to(torch.uint8).contiguous()], [q.shape[-2], k.shape[-2]])


def block_sparse_kernel(q: Tensor, k: Tensor, v: Tensor, block_mask: BlockMask, scale: float | None = None) -> Tensor:
    """Rung 2: only the blocks of the mask that are not empty. The mask's block must be 32, or 128 in half precision."""
    check_block_mask(block_mask)
    half = q.dtype in (torch.float16, torch.bfloat16)
    block = sparse_tensor_core.BLOCK if half else BLOCK
    if block_mask.block != block:
        raise ValueError(f"block_mask must have blocks of {block} for this kernel; got {block_mask.block}")
    if (block_mask.n_q, block_mask.n_k) != (q.shape[-2], k.shape[-2]):
        raise ValueError(f"block_mask must be {(q.shape[-2], k.shape[-2])}; got {(block_mask.n_q, block_mask.n_k)}")
    lists = [x.to(q.device) for x in stored_masks(block_mask)]
    if half:
        return sparse_tensor_core.blocks(q, k, v, lists, scale)
    return _launch("block_sparse", q, k, v, scale, lists, [q.shape[-2], k.shape[-2]])


def window_sink_kernel(q: Tensor, k: Tensor, v: Tensor, window: int, n_sink: int = 0, scale: float | None = None) -> Tensor:
    """Rung 3: causal; the last `window` keys, the query's own included, and the first n_sink."""
    check_count("window", window), check_count("n_sink", n_sink, least=0)
    if q.shape[-2] != k.shape[-2]:
        raise ValueError(f"k must have as many rows as q, {q.shape[-2]}; got {k.shape[-2]}")
    n = q.shape[-2]
    if q.dtype in (torch.float16, torch.bfloat16):
        return sparse_tensor_core.window(q, k, v, window, n_sink, scale)
    return _launch("window_sink", q, k, v, scale, [], [n], [min(window, n), n_sink])


def stored_masks(block_mask: BlockMask) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(start, column, stored, masks): the lists of BlockMask.lists, and the masks of partial blocks, a byte a pair."""
    start, column, partial = block_mask.lists()
    stored = torch.where(partial == 1, partial.cumsum(0) - 1, -1).int()
    rows = torch.repeat_interleave(torch.arange(len(start) - 1), start.long().diff())
    masks = torch.zeros(max(1, int(partial.sum())), block_mask.block, block_mask.block, dtype=torch.uint8)
    for place, row, col in zip(stored.tolist(), rows.tolist(), column.tolist()):
        if place >= 0:
            inside = block_mask.inside(row, col)
            masks[place, :inside.shape[0], :inside.shape[1]] = inside
    # An empty list still needs an address.
    return start, column if len(column) else column.new_zeros(1), stored if len(stored) else stored.new_zeros(1), masks


def _launch(kernel, q, k, v, scale, lists, lengths, options=()):
    # The PyTorch function refuses what does not fit; without queries it costs nothing.
    scaled_dot_product_attention(q[:, :, :0], k, v, scale=scale)
    b, heads, n_q, d = q.shape
    if q.dtype != torch.float32:
        raise ValueError(f"q must be float32 for this kernel; got {q.dtype}")
    if v.shape[-1] != d or d > MAX_D:
        raise ValueError(f"v must be as wide as q, {d}, and at most {MAX_D} for this kernel; got {v.shape[-1]}")
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if out.numel() == 0:
        return out
    from course_lib import cuda

    shared = 4 * (2 * BLOCK * (d + 1) + BLOCK * (BLOCK + 1) + 3 * BLOCK)
    scale = 1 / math.sqrt(d) if scale is None else scale
    grid = (math.ceil(n_q / BLOCK), heads, b)
    q, k, v = (x.contiguous() for x in (q, k, v))
    cuda.load("sparse_attention")[kernel][grid, 128, shared](q, k, v, *lists, out, *lengths, d, *options, scale)
    return out
