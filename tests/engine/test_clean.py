"""Correct kernels, as public teaching code has them: right, and not one false alarm, in three orders.

The kernels of the chapters, sanitized in test_gpu_cases.py, are the rest of them: reductions, products, attention.
"""
import contextlib
from dataclasses import dataclass
from typing import Callable

import pytest
import torch
from engine_kit import COUNTS, ORDERS, checked, compiled, data_of

import laptop_cuda as cuda

SOURCE = data_of("clean.toml")["source"]


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def integers(n: int, high: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, high, (n,), generator=torch.Generator().manual_seed(seed), dtype=torch.int32)


@dataclass
class Run:
    """One launch: arguments, and what an argument must hold afterwards."""

    kernel: str
    grid: object
    block: object
    args: tuple
    want: dict[int, torch.Tensor]
    shared: int = 0


def listing(cases: dict[str, Callable[[], Run]]) -> tuple[Callable, Callable]:
    """Two ways to add to some cases: a decorator, and a row of a table, whose `make` gives `args` and `want`."""
    def case(make: Callable[[], Run]) -> Callable[[], Run]:
        return cases.setdefault(make.__name__, make)

    def launch(kernel: str, grid, block, make: Callable[[], tuple], shared: int = 0) -> None:
        cases[kernel] = lambda: Run(kernel, grid, block, *make(), shared)
    return case, launch


CASES: dict[str, Callable[[], Run]] = {}
case, launch = listing(CASES)


def blank(*shape: int, like: torch.dtype = torch.float32) -> torch.Tensor:
    """An output that must be written: uninitialised to the sanitizer."""
    return cuda.empty(*shape, dtype=like)


launch("scan_groups", 1, 64, lambda x=integers(64, 10).view(4, 16): ((x, blank(4, 16, like=torch.int32)),
       {1: (x.cumsum(1) - x).int()}))
launch("aggregated", 2, 160, lambda x=integers(300, 5) - 2: ((x, torch.zeros(1, dtype=torch.int32), 300),
       {1: (x > 0).sum()[None].int()}))
launch("softmax_online", 2, 128, lambda x=randn(7, 70): ((blank(7, 70), x, 7, 70), {0: x.softmax(-1)}))
launch("partial_masks", 1, 32, lambda x=integers(32, 50): ((x, blank(2, like=torch.int32)),
       {1: torch.stack([x[:16].sum(), x[16:].max()]).int()}))


@case
def exited_lanes():
    x = (torch.arange(20) % 6).int()
    votes = sum(1 << i for i in range(20) if x[i] > 2)
    return Run("exited_lanes", 1, 32, (x, blank(3, like=torch.int32), 20),
               {1: torch.tensor([votes, 1, 1]).int()})


@case
def return_within_the_loop():
    x = randn(128)
    of_warp = x.view(4, 32)
    turns = (2 ** torch.arange(1, 5) - 1).view(4, 1)
    return Run("return_within_the_loop", 1, 128, (x, blank(128), 128),
               {1: (of_warp + of_warp[:, :1] * turns).reshape(128)})


launch("skips_the_loop_and_ends", 1, 128, lambda x=randn(128): ((x, blank(96), 96), {1: x[32:]}))


@case
def tiles_of_eight():
    x = randn(64)
    v = x.view(8, 8).roll(-1, 1)
    v = v + v[:, torch.arange(8) ^ 1]
    return Run("tiles_of_eight", 1, 64, (x, blank(64)), {1: v[:, :1].expand(8, 8).reshape(64)})


launch("grid_sync", 4, 64, lambda x=randn(256): ((x, blank(256), blank(256)), {2: 2 * x.flip(0)}))


@case
def leaves_before_a_helper():
    x = randn(64)
    want = torch.zeros(64)
    want[:16] = x[:16].sum()
    return Run("leaves_before_a_helper", 1, 64, (x, torch.zeros(64)), {1: want})


launch("lanes_leave_before_a_helper", 1, 32, lambda: ((torch.rand(32) + 1, blank(1), 32), {1: torch.ones(1)}))


@case
def barrier_then_leave():
    x, t = randn(64), torch.arange(64)
    left = torch.full((64,), 3)
    for k in (2, 1, 0):
        left[t > 60 - 20 * k] = k
    return Run("barrier_then_leave", 1, 64, (x, blank(64), 3),
               {1: torch.where(left < 3, left.float(), x[t ^ 1] + 2)})


launch("same_value", 1, 64, lambda: ((blank(64),), {0: torch.ones(64)}))
launch("packed_halves", 1, 64, lambda a=randn(500).half(), b=randn(500, seed=1).half():
       ((a, b, blank(500, like=torch.float16), 500), {2: a + b}))
launch("turned<float>", 1, 64, lambda x=randn(64): ((x, blank(64)), {1: x.flip(0)}), shared=256)
launch("early_continue", 2, 64, lambda x=randn(6, 50),
       mask=torch.tensor([1, 0, 1, 1, 0, 1], dtype=torch.int32): ((mask, x, torch.zeros(6), 6, 50),
       {2: x.sum(1) * mask}))


def launched(name: str) -> None:
    run = CASES[name]()
    compiled(SOURCE)[run.kernel][run.grid, run.block, run.shared](*run.args)
    check(run)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("order", [*ORDERS, pytest.param(None, id="plain")])
def test_right_and_without_a_false_alarm(name, order):
    with cuda.sanitize(**order) if order else contextlib.nullcontext():
        launched(name)


@pytest.mark.parametrize("name", CASES)
def test_counts_do_not_depend_on_the_order(name):
    counts = []
    for order in ({"order": "forward"}, {"order": "reverse"}, {"order": "seeded", "seed": 7}):
        with cuda.profile(**order) as report:
            launched(name)
        counts.append([getattr(report.launches[0], what) for what in COUNTS])
    assert counts[0] == counts[1] == counts[2]


def check(run: Run, atol: float = 2e-5, rtol: float = 1e-3) -> None:
    for position, want in run.want.items():
        got = run.args[position]
        assert got.shape == want.shape
        if want.is_floating_point():
            atol = 2e-3 if got.dtype == torch.float16 else atol
            torch.testing.assert_close(got, want.to(got.dtype), atol=atol, rtol=rtol)
        else:
            assert got.tolist() == want.tolist()


@pytest.mark.parametrize("order", ORDERS)
def test_compaction_keeps_every_element(order):
    """The order of warps is not defined, so the result is compared as a set."""
    x = integers(200, 30)
    out, count = torch.full((200,), -1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    checked(compiled(SOURCE).compact, 2, 128, x, out, count, 200, **order)
    want = x[x % 3 == 0]
    assert count.item() == len(want)
    assert torch.equal(out[:len(want)].sort().values, want.sort().values)


def test_three_orders_are_three_orders():
    """The same compaction shows that the orders differ: warps reach the counter in another sequence."""
    results = []
    for order in ({"order": "forward"}, {"order": "reverse"}):
        out = torch.full((256,), -1, dtype=torch.int32)
        with cuda.sanitize(**order):
            compiled(SOURCE).compact[2, 128](torch.arange(256).int() * 3, out,
                                             torch.zeros(1, dtype=torch.int32), 256)
        results.append(out)
    assert not torch.equal(*results)
