"""kernels/sparse_attention.cu against masked dense attention; its traffic against the lists of blocks."""

import pytest
import torch

from course_lib import cuda
from course_lib.attention import scaled_dot_product_attention
from course_lib.sparse_attention import BlockMask, mask_of, sink_rule, sliding_window_mask, window_rule
from course_lib.sparse_attention.kernels import (block_sparse_kernel, dense_masked_kernel, stored_masks,
                                                 window_sink_kernel)
from references import names_the_argument, rand


@pytest.mark.parametrize("n, d", [(1, 4), (31, 8), (33, 33), (100, 64), (70, 128)])
def test_kernels_equal_masked_attention(n, d):
    q, k, v = (rand(1, 2, n, d, seed=s) for s in range(3))
    mask = torch.rand(n, n, generator=torch.Generator().manual_seed(1)) > 0.7
    mask[: n // 2, n // 3:] = False                       # empty blocks, and rows that see nothing
    mask[0] = False
    want = scaled_dot_product_attention(q, k, v, mask=mask)
    with cuda.sanitize():
        torch.testing.assert_close(dense_masked_kernel(q, k, v, mask), want, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(block_sparse_kernel(q, k, v, BlockMask.from_mask(mask, 32)), want,
                                   atol=1e-5, rtol=1e-5)


def test_lengths_may_differ_and_nothing_visited_is_zero():
    q, k, v = rand(1, 1, 40, 8), rand(1, 1, 70, 8, seed=1), rand(1, 1, 70, 8, seed=2)
    mask = torch.rand(40, 70, generator=torch.Generator().manual_seed(2)) > 0.5
    torch.testing.assert_close(block_sparse_kernel(q, k, v, BlockMask.from_mask(mask, 32)),
                               scaled_dot_product_attention(q, k, v, mask=mask), atol=1e-5, rtol=1e-5)
    nothing = torch.zeros(40, 70, dtype=torch.bool)
    assert block_sparse_kernel(q, k, v, BlockMask.from_mask(nothing, 32)).abs().sum() == 0


def test_traffic_is_the_visited_blocks_and_nothing_else():
    n, d = 256, 32
    q, k, v = (rand(1, 1, n, d, seed=s) for s in range(3))
    counted = {}
    for window in (32, 64, 128):
        blocks = BlockMask.from_rule(window_rule(window), n, n, 32)
        with cuda.profile() as report:
            window_sink_kernel(q, k, v, window)
        launch = report.launches[0]
        visited = int(blocks.visited().sum())
        # each visited block: 32 keys and 32 values of d floats; each block of queries once
        assert launch.global_load.bytes == visited * 2 * 32 * d * 4 + n * d * 4
        assert launch.global_store.bytes == n * d * 4
        counted[window] = visited
    assert counted == {32: 15, 64: 21, 128: 30}
    with cuda.profile() as report:
        dense_masked_kernel(q, k, v, sliding_window_mask(n, 32))
    assert report.launches[0].global_load.bytes == 64 * 2 * 32 * d * 4 + n * d * 4 + n * n


def test_stored_masks_unfold_to_the_mask():
    mask = mask_of(sink_rule(20, 3), 70)
    start, column, stored, masks = stored_masks(BlockMask.from_mask(mask, 32))
    rebuilt = torch.zeros(96, 96, dtype=torch.bool)
    for row in range(3):
        for entry in range(start[row], start[row + 1]):
            part = torch.ones(32, 32, dtype=torch.bool) if stored[entry] < 0 else masks[stored[entry]].bool()
            rebuilt[32 * row:32 * row + 32, 32 * column[entry]:32 * column[entry] + 32] = part
    assert torch.equal(rebuilt[:70, :70], mask)


X, H = rand(1, 1, 8, 4), rand(1, 1, 8, 16).half()


test_bad_input_names_the_argument = names_the_argument({
    "mask": [lambda: dense_masked_kernel(X, X, X, torch.ones(8, 7).bool())],
    "window": [lambda: window_sink_kernel(X, X, X, 0), lambda: window_sink_kernel(X, X, X, True)],
    "n_sink": [lambda: window_sink_kernel(X, X, X, 2, -1)],
    "k": [lambda: window_sink_kernel(X, X[:, :, :4], X[:, :, :4], 2),
        lambda: window_sink_kernel(H, H[..., :8], H, 2),
        lambda: window_sink_kernel(H.expand(3, -1, -1, -1), H, H, 2)],
    "block_mask": [lambda: block_sparse_kernel(X, X, X, BlockMask.from_mask(torch.ones(8, 8).bool(), 16)),
        lambda: block_sparse_kernel(X, X, X, BlockMask.from_mask(torch.ones(9, 8).bool(), 32)),
        lambda: block_sparse_kernel(X, X, X, torch.ones(8, 8).bool())],
    "q": [lambda: window_sink_kernel(X.double(), X.double(), X.double(), 2),
        lambda: window_sink_kernel(H, H.expand(-1, 3, -1, -1), H.expand(-1, 3, -1, -1), 2)],
    "v": [lambda: window_sink_kernel(X, X, rand(1, 1, 8, 5), 2),
        lambda: window_sink_kernel(X, X, X[:, :, :4], 2), lambda: window_sink_kernel(H, H, H[:, :, :4], 2)]})
