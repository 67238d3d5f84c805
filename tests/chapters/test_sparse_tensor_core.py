"""Windows and blocks on the tensor cores: visited tiles are counted, bad input is named."""

import pytest
import torch

from course_lib import cuda
from course_lib.sparse_attention import tensor_core as sparse_tensor_core
from course_lib.gpu.case import BF16
from course_lib.sparse_attention import BlockMask
from course_lib.sparse_attention.kernels import block_sparse_kernel, window_sink_kernel


def inputs(heads, kv_heads, n, m, d, dtype=BF16):
    generator = torch.Generator().manual_seed(n + m + d)
    return [torch.randn(1, h, rows, d, generator=generator).to(dtype)
            for h, rows in ((heads, n), (kv_heads, m), (kv_heads, m))]


def test_only_visited_tiles_are_asked_for():
    """n = 512, window 64, 3 sinks: a block of 128 queries sees tiles of 64 keys from its window's first to
    its own last."""
    n, d, window, n_sink = 512, 64, 64, 3
    q, k, v = inputs(1, 1, n, n, d)
    tiles = 0
    for q0 in range(0, n, 128):
        oldest = max(0, q0 - window + 1) // 64
        tiles += min(oldest, 1) + (q0 + 127) // 64 - oldest + 1
    assert tiles == 2 + 4 + 4 + 4  # one of sinks and three of the window's own, after the first block
    with cuda.profile() as report:
        window_sink_kernel(q, k, v, window, n_sink)
    (launch,) = report.launches
    assert launch.global_load.bytes == 2 * d * (n + 2 * 64 * tiles)
    assert launch.global_store.bytes == launch.global_store.moved == 2 * d * n
    assert launch.shared_load.excess == launch.shared_store.excess == 0


def test_bad_input_is_named():
    q, k, v = inputs(1, 1, 5, 5, 20)
    with pytest.raises(ValueError, match="^q must be float16 or bfloat16"):
        sparse_tensor_core.window(q, k, v, 3)
    with pytest.raises(ValueError, match="^block_mask must have blocks of 128"):
        block_sparse_kernel(q, k, v, BlockMask.from_mask(torch.ones(5, 5, dtype=torch.bool), 32))
