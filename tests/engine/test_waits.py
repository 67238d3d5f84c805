"""Blocks and threads that wait for one another by memory: they have their turns; what nobody ends is a deadlock."""
import re
from pathlib import Path

import numpy as np
import pytest

import laptop_cuda
from course_lib import cuda
from engine_kit import data_of, mod  # noqa: F401

SOURCE = data_of("waits.toml")["source"]
ORDERS = ["plain", "forward", "reverse", "seeded"]
RULES = {rule: (f"if (blockIdx.x == 0) {{ buf[t] = t; {give} }} else {{ {take} y[t] = buf[t]; }}", wrong)
         for rule, (give, take, *wrong) in data_of("waits.toml")["handed_over"].items()}
HANDED_OVER = set(RULES)
RULES |= {rule: (right, wrong) for rule, (right, *wrong) in data_of("waits.toml")["alone"].items()}
OF_RULES = "#include <cooperative_groups.h>\n#include <cuda_pipeline.h>\n" + "".join(f"""
__global__ void {name}{i}(float* buf, float* y, int* flag) {{
    auto tile = cooperative_groups::tiled_partition<16>(cooperative_groups::this_thread_block());
    int t = threadIdx.x;
    {body}
}}
""" for i, (right, wrong) in enumerate(RULES.values())
    for name, body in (("right", right), ("wrong", right.replace(*wrong))))


def launch(order, kernel, *args):
    if order == "plain":
        return kernel(*args)
    with cuda.sanitize(order=order) as notes:
        kernel(*args)
    assert not notes


@pytest.fixture(scope="module")
def of_rules():
    return cuda.compile(OF_RULES)


def test_each_rule_that_is_told_has_a_pair():
    told = Path(laptop_cuda.__file__).with_name("DETAILS.md").read_text(encoding="utf-8")
    table = told.partition("| rule |")[2].partition("\n\n")[0].splitlines()[2:]
    assert {row.split(" | ")[0][2:] for row in table} == {rule.partition(":")[0] for rule in RULES}


@pytest.mark.parametrize("order", ORDERS[1:])
@pytest.mark.parametrize("rule", RULES)
def test_what_orders_memory_and_what_does_not(of_rules, rule, order):
    number, block = list(RULES).index(rule), 32 if rule in HANDED_OVER else 64
    given = lambda: (np.full(128, 3.5, "f4"), np.zeros(128, "f4"), np.zeros(4, "i4"))
    launch(order, of_rules[f"right{number}"][2, block], *(right := given()))
    assert rule not in HANDED_OVER or (right[1][:32] == np.arange(32)).all()
    with pytest.raises(cuda.KernelError) as caught:
        launch(order, of_rules[f"wrong{number}"][2, block], *given())
    assert caught.value.kind == "race" and len(re.findall(r"^  line \d+, block", str(caught.value), re.M)) == 2, caught.value


@pytest.mark.parametrize("order", ORDERS)
def test_blocks_wait_for_later_ones(mod, order):
    x, y, flag, out = np.zeros(512, "f4"), np.zeros(512, "f4"), np.zeros(5, "i4"), np.zeros(1, "i4")
    mod.globals["n"] = 0
    launch(order, mod.barrier[8, 64], x, y)
    assert (y.reshape(8, 64) == np.arange(8, 0, -1)[:, None]).all()
    launch(order, mod.next[5, 1], flag, out)
    assert out[0] == 43210
    launch(order, mod.polled[2, 1], flag[4:], out, 1)
    if order == "plain":                     # in a loop of its own that looks often, and comes to its end
        mod.climbs[1, 1](out)
    assert out[0] == (10**8 if order == "plain" else 2)


@pytest.mark.parametrize("order", ORDERS[:2])
@pytest.mark.parametrize("kernel, block, line", [("lost", 32, 18), ("kept", 1, 20), ("polled", 1, 26)])
def test_a_wait_that_nothing_ends_is_a_deadlock(mod, order, kernel, block, line):
    args = [np.zeros(1, "i4"), np.zeros(1, "i4"), 0][:{"lost": 1, "kept": 2, "polled": 3}[kernel]]
    with pytest.raises(cuda.KernelError, match="waits in a loop for memory that nobody changes") as caught:
        launch(order, mod[kernel][2, block], *args)
    assert caught.value.kind == "deadlock" and caught.value.line in ((line,) if order != "plain" else (0,))


@pytest.mark.parametrize("grid, block", [(2, 1), (1, 64)])
def test_locks_taken_in_two_orders_are_a_deadlock(mod, grid, block):
    x = np.zeros(1, "i4")
    launch("forward", mod.crossed[grid, block], np.zeros(2, "i4"), x, 0)
    assert x[0] == 2
    with pytest.raises(cuda.KernelError, match="locks taken in two orders"):
        launch("forward", mod.crossed[grid, block], np.zeros(2, "i4"), x, 1)
