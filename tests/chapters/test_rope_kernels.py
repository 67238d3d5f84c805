"""The kernels of chapter 2: right, sanitized, counted."""
import pytest
import torch

from course_lib import cuda
from course_lib.rope import RUNGS, apply_rope, rope_kernel, rope_table
from references import rand


@pytest.mark.parametrize("layout, rung", RUNGS)
def test_every_rung_is_apply_rope(layout, rung):
    for b, heads, n, d in ((1, 1, 1, 8), (2, 3, 31, 16), (1, 2, 33, 24), (2, 1, 5, 64)):
        x, table = rand(b, heads, n, d), rope_table(40, d)
        before = x.clone()
        scattered = torch.randint(0, 40, (b, n), generator=torch.Generator().manual_seed(n))
        for positions in (None, scattered[0], scattered):
            with cuda.sanitize():
                got = rope_kernel(x, *table, positions, layout, rung)
            torch.testing.assert_close(got, apply_rope(x, *table, positions, layout), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(got.norm(dim=-1), x.norm(dim=-1), atol=1e-5, rtol=1e-5)
        assert torch.equal(x, before)
    assert (rope_kernel(torch.zeros(1, 2, 0, 8), *rope_table(4, 8), layout=layout, rung=rung).shape
            == (1, 2, 0, 8))


@pytest.mark.parametrize("layout, rung", [("interleaved", 1), ("half", 2)])
def test_one_pair_a_thread_takes_any_even_width(layout, rung):
    x, table = rand(1, 2, 7, 6), rope_table(7, 6)
    for chosen in (rung, None):                          # it is also what such a width gets without asking
        with cuda.sanitize():
            got = rope_kernel(x, *table, layout=layout, rung=chosen)
        torch.testing.assert_close(got, apply_rope(x, *table, layout=layout), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("layout", ["interleaved", "half"])
@pytest.mark.parametrize("rung", [3, 4])
def test_wide_loads_from_addresses_that_are_no_multiple_of_16(layout, rung):
    x, table = rand(1, 2, 7, 8), rope_table(7, 8)
    moved = [torch.cat([torch.zeros(1), t.flatten()])[1:].view(t.shape) for t in (x, *table)]
    torch.testing.assert_close(rope_kernel(*moved, layout=layout, rung=rung),
                               apply_rope(x, *table, layout=layout))


@pytest.mark.parametrize("rung", [1, 3, 4])
def test_a_kernel_claims_no_gradient(rung):
    """A copy that a kernel changes in place would pass for the copy itself: a gradient of ones."""
    assert not rope_kernel(rand(1, 2, 7, 8).requires_grad_(), *rope_table(7, 8), rung=rung).requires_grad


@pytest.mark.parametrize("layout, rung, waste",
                         [("interleaved", 1, 2), ("half", 2, 1), ("interleaved", 3, 1), ("half", 3, 1)])
def test_moved_by_the_stores(layout, rung, waste):
    x = rand(1, 1, 64, 64)
    with cuda.profile() as report:
        rope_kernel(x, *rope_table(64, 64), layout=layout, rung=rung)
    store = report.launches[0].global_store
    assert 32 * store.sectors == waste * 4 * x.numel() and store.bytes == 4 * x.numel()


def test_rope_heads_moves_x_once_and_fetches_the_angles_once_for_four_heads():
    x, table = rand(1, 8, 32, 64).bfloat16(), rope_table(32, 64)
    with cuda.profile() as report:
        rope_kernel(x, *table)
    launch = report.launches[0]
    rows = x.numel() * 2
    angles = 2 * table[0].numel() * 4 * 2 + 2 * 32 * 32 // 4 * 4  # two blocks of heads; a position a thread
    assert launch.global_store.bytes == launch.global_store.moved == rows
    assert launch.global_load.bytes == rows + angles
    assert launch.global_load.unique == rows + 2 * table[0].numel() * 4 + 32 * 4


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_rope_heads_moves_a_quarter_of_the_angles_of_rung_3(layout):
    x, table = rand(1, 8, 64, 64), rope_table(64, 64)
    beside_x = []
    for rung in (3, 4):
        with cuda.profile() as report:
            rope_kernel(x, *table, layout=layout, rung=rung)
        beside_x.append(report.launches[0].global_load.moved - 4 * x.numel())
    assert beside_x[0] == 4 * beside_x[1] and 4 * x.numel() <= beside_x[0] < 4.3 * x.numel()
