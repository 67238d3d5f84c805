"""The kernels of chapter 3 without keys, and counted."""
import pytest
import torch

from course_lib import cuda
from course_lib.gqa import gqa_kernel


def qkv(b, n_heads, n_kv_heads, n, m, d):
    generator = torch.Generator().manual_seed(n + 100 * m + d)
    shapes = (b, n_heads, n, d), (b, n_kv_heads, m, d), (b, n_kv_heads, m, d)
    return [torch.randn(shape, generator=generator) for shape in shapes]


@pytest.mark.parametrize("rung", [1, 2, 3])
def test_without_keys_or_queries(rung):
    assert (gqa_kernel(*qkv(1, 4, 2, 3, 0, 8), rung=rung) == 0).all()
    assert gqa_kernel(*qkv(1, 4, 2, 0, 3, 8), rung=rung).shape == (1, 4, 0, 8)


@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
def test_keys_and_values_are_read_once_a_group(n_kv_heads):
    q, k, v = qkv(1, 4, n_kv_heads, 1, 64, 16)
    read = {}
    for rung in (1, 2, 3):
        with cuda.profile() as report:
            gqa_kernel(q, k, v, rung=rung)
        read[rung] = sum(launch.global_load.bytes for launch in report.launches) - 4 * q.numel()
    each_head = 4 * 2 * 64 * 16 * 4
    assert read == {1: 2 * each_head, 2: each_head, 3: each_head * n_kv_heads // 4}
