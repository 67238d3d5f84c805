"""The kernels of chapter 1: right, sanitized, counted, and their mutants caught."""
import math

import pytest
import torch

from course_lib import cuda
from course_lib.attention import attention_kernel, softmax_kernel
from references import names_the_argument


def rand(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed + 1000 * len(shape) + sum(shape))
    return torch.randn(shape, generator=generator)


def qkv(n, m, d, v_dim):
    return [rand(2, 3, *shape, seed=i) for i, shape in enumerate([(n, d), (m, d), (m, v_dim)])]


ROW_KERNELS = ["softmax_stable", "softmax_online", "softmax_warp", "softmax_block", "softmax_on_chip"]
ROW_SHAPES = [(1, 1), (3, 31), (33, 33), (2, 63), (5, 100), (1, 300)]


@pytest.mark.parametrize("kernel", ["softmax_naive", *ROW_KERNELS])
def test_row_kernels_are_torchs(kernel):
    for rows, columns in ROW_SHAPES:
        x = 3 * rand(rows, columns)
        with cuda.sanitize():
            torch.testing.assert_close(softmax_kernel(x, kernel), torch.softmax(x, -1), atol=1e-6, rtol=1e-5)
    assert softmax_kernel(torch.zeros(0, 5), kernel).shape == (0, 5)


@pytest.mark.parametrize("kernel", [*ROW_KERNELS, "softmax_registers"])
def test_row_kernels_edges_are_torchs(kernel):
    rows = [[1000.0, 1001, 999], [-1e30, 0, 5], [-math.inf, 1, 2], [-math.inf] * 3, [math.nan, 0, 1],
            [5, 0, math.nan]]
    for row in rows:
        columns = 4 if kernel == "softmax_registers" else 3
        x = torch.tensor([(row + [-2.0])[:columns], [0.5, 1, 2, 3][:columns]])
        torch.testing.assert_close(softmax_kernel(x, kernel), torch.softmax(x, -1), equal_nan=True)


def test_softmax_in_half_sums_in_float():
    x = torch.zeros(1, 5000, dtype=torch.float16)     # a half sum of ones stops at 2048
    torch.testing.assert_close(softmax_kernel(x, "softmax_half"), torch.softmax(x, -1), atol=0, rtol=1e-3)
    x = (3 * rand(33, 100)).half()
    torch.testing.assert_close(softmax_kernel(x, "softmax_half"), torch.softmax(x, -1), atol=2e-3, rtol=2e-3)
    # rows of no whole 16 bytes
    assert torch.equal(softmax_kernel(x[:, :99]), softmax_kernel(x[:, :99], "softmax_half"))


@pytest.mark.parametrize("dtype, error",
                         [(torch.float32, 1e-6), (torch.float16, 1e-3), (torch.bfloat16, 8e-3)])
@pytest.mark.parametrize("rows, columns",
                         [(1, 8), (5, 264), (3, 3000),
                          *(pytest.param(*shape, marks=pytest.mark.slow)
                            for shape in ((33, 1024), (2, 10000)))])
def test_softmax_in_registers(rows, columns, dtype, error):
    x = (3 * rand(rows, columns)).to(dtype)
    with cuda.profile() as report:
        softmax_kernel(x, "softmax_registers")
    launch, size = report.launches[0], x.numel() * x.element_size()
    assert launch.global_load.bytes == launch.global_store.bytes == size
    # a row may begin within a sector
    assert launch.global_load.sectors <= size // 32 + launch.global_load.requests
    with cuda.sanitize():
        got = softmax_kernel(x, None if dtype != torch.float32 else "softmax_registers")
    want = torch.softmax(x.double(), -1)
    assert got.dtype == dtype and (got.double() - want).norm() <= error * want.norm()


@pytest.mark.parametrize("kernel, accesses",
                         [("softmax_naive", 3), ("softmax_stable", 4), ("softmax_online", 3),
                          ("softmax_warp", 3), ("softmax_block", 3), ("softmax_on_chip", 2),
                          ("softmax_registers", 2)])
def test_accesses_an_element(kernel, accesses):
    x = rand(8, 64)
    with cuda.profile() as report:
        softmax_kernel(x, kernel)
    launch = report.launches[0]
    assert launch.global_load.bytes + launch.global_store.bytes == accesses * x.numel() * 4
    moved = 32 * (launch.global_load.sectors + launch.global_store.sectors)
    one_thread_a_row = kernel in ("softmax_naive", "softmax_stable", "softmax_online")
    assert moved == accesses * x.numel() * 4 * (8 if one_thread_a_row else 1)
    assert launch.global_load.unique_sectors * 32 == x.numel() * 4


def test_attention_kernel_without_keys_or_queries():
    q, k, v = qkv(4, 0, 8, 5)
    assert (attention_kernel(q, k, v) == 0).all() and attention_kernel(q, k, v).shape == (2, 3, 4, 5)
    q, k, v = qkv(0, 4, 8, 16)
    assert attention_kernel(q, k, v).shape == (2, 3, 0, 16)


def test_a_long_row_needs_no_name():
    """More than shared memory holds: the kernel that reads twice is taken."""
    x = torch.randn(2, 12225, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(softmax_kernel(x), torch.softmax(x, -1))


test_bad_input_to_a_kernel_is_named = names_the_argument({
    "kernel": [lambda: softmax_kernel(torch.ones(2, 2), "softmax_fast")],
    "x": [lambda: softmax_kernel(torch.ones(2)), lambda: softmax_kernel(torch.tensor(1.0)),
        lambda: softmax_kernel(torch.ones(1, 2, 4).bfloat16()),
        lambda: softmax_kernel(torch.ones(2, 2).double()),
        lambda: softmax_kernel(torch.ones(1, 12225), "softmax_on_chip"),
        lambda: softmax_kernel(torch.ones(2, 3), "softmax_registers"),
        lambda: softmax_kernel(torch.ones(2, 3).bfloat16())],
    "q": [lambda: attention_kernel(*(torch.ones(1, 1, 2, 4).double() for _ in "qkv"))]})
