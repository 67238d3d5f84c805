"""Planted bugs: each kernel has one mistake, and the sanitizer must name its kind, its line and its array.

The faulty line carries a comment `// BUG name`. A race has two sides, and either may be the one that is noticed.
Everything runs in three thread orders: the kind must be the same in all of them."""
import contextlib
import re
from dataclasses import dataclass, field
from typing import Callable

import pytest
import torch
from engine_kit import ORDERS, checked, compiled, data_of, fault, line_of
from test_counts import ramp
from torch import zeros

import laptop_cuda as cuda

SOURCE = data_of("bugs.toml")["source"]


@dataclass
class Bug:
    name: str
    kind: str
    array: str                     # its name must be in the message; "" where no array is at fault
    args: Callable[[], tuple]
    grid: object = 1
    block: object = 32
    shared: int = 0
    also: tuple[str, ...] = field(default=())   # other kinds that would be just as right


OOB, RACE, UNSET, DIVERGED = "out of bounds", "race", "uninitialized", "barrier divergence"

BUGS = [
    Bug("no_guard", OOB, "x", lambda: (ramp(100), zeros(128)), 1, 128),
    Bug("guard_off_by_one", OOB, "y", lambda: (ramp(100), zeros(100), 100), 1, 128),
    Bug("before_the_start", OOB, "x", lambda: (ramp(32), zeros(32), 32)),
    Bug("into_the_next_view", OOB, "q", lambda: tuple(torch.zeros(2, 32))),
    Bug("member_overrun", OOB, "weight", lambda: (zeros(1), 4), 1, 1),
    Bug("vector_tail", OOB, "x", lambda: (ramp(30), torch.zeros(8, 4)), 1, 8),
    Bug("wild_pointer", OOB, "", lambda: (zeros(32),)),
    Bug("null_pointer", OOB, "x", lambda: (None, zeros(32))),
    Bug("atomic_outside", OOB, "bins", lambda: (torch.arange(32).int(), torch.zeros(16).int())),
    Bug("half_outside", OOB, "x", lambda: (ramp(32).half(), zeros(32).half())),
    Bug("in_a_helper", OOB, "x", lambda: (ramp(32), zeros(32))),
    Bug("constant_outside", OOB, "coefficient", lambda: (zeros(32),)),
    Bug("constant_written", OOB, "coefficient", lambda: (zeros(32),)),
    Bug("global_outside", OOB, "table_of_eight", lambda: (zeros(32),)),
    Bug("shared_outside", OOB, "row", lambda: (zeros(32),)),
    Bug("shared_neighbour", OOB, "first", lambda: (zeros(32),)),
    Bug("dynamic_outside", OOB, "buffer", lambda: (zeros(32),), shared=256),
    Bug("unsigned_below_zero", OOB, "s", lambda: (zeros(32),)),
    Bug("local_outside", OOB, "", lambda: (ramp(8), zeros(32), 5)),

    Bug("float4_from_one", "misaligned", "x", lambda: (ramp(64), torch.zeros(32, 4))),
    Bug("shared_misaligned", "misaligned", "s", lambda: (torch.zeros(32, 4),)),

    Bug("no_barrier", RACE, "s", lambda: (ramp(64), zeros(64)), 1, 64),
    Bug("second_barrier_missing", RACE, "s", lambda: (ramp(256), zeros(64), 4), 1, 64),
    Bug("everybody_writes", RACE, "total", lambda: (zeros(64),), 1, 64),
    Bug("within_a_warp", RACE, "s", lambda: (ramp(32), zeros(32))),
    Bug("syncwarp_is_not_enough", RACE, "s", lambda: (ramp(64), zeros(64)), 1, 64),
    Bug("counting_without_atomics", RACE, "bins", lambda: ((torch.arange(64) % 4).int(), torch.zeros(4).int()), 1, 64),
    Bug("shuffle_is_no_fence", RACE, "s", lambda: (ramp(32), zeros(32))),
    Bug("atomic_against_store", RACE, "counter", lambda: (torch.ones(64).int(), torch.zeros(1).int()), 1, 64),
    Bug("tile_sync_is_not_enough", RACE, "s", lambda: (ramp(32), zeros(32))),
    Bug("blocks_share_a_sum", RACE, "total", lambda: (ramp(4) + 1, zeros(1)), 4, 32),
    Bug("blocks_overwrite", RACE, "result", lambda: (zeros(32),), 4, 32),
    Bug("same_output_twice", RACE, "y", lambda: (ramp(32), zeros(32))),

    Bug("half_filled", UNSET, "s", lambda: (ramp(64), zeros(64)), 1, 64),
    Bug("read_empty", UNSET, "scratch", lambda: (cuda.empty(32), zeros(32))),
    Bug("first_block_only", UNSET, "s", lambda: (ramp(32), zeros(64)), 2, 32),

    Bug("barrier_in_one_arm", DIVERGED, "", lambda: (zeros(64),), 1, 64),
    Bug("barrier_in_a_ragged_loop", DIVERGED, "", lambda: (torch.tensor([2, 3]).int(), zeros(64)), 1, 64),
    Bug("barrier_in_helpers", DIVERGED, "", lambda: (zeros(64),), 1, 64),
    Bug("loop_never_entered", DIVERGED, "", lambda: (ramp(128), zeros(224), 96), 1, 128),
    Bug("jumped_and_unset", DIVERGED, "", lambda: (zeros(64),), 1, 64, also=(UNSET,)),
    Bug("passed_by_and_gone_on", DIVERGED, "", lambda: (zeros(32), 0), 1, 64),
    Bug("helper_jumped", DIVERGED, "", lambda: (ramp(64), zeros(64), 20), 1, 64),

    Bug("half_a_warp_syncs", "deadlock", "", lambda: (zeros(32),), also=(DIVERGED,)),
    Bug("lanes_go_past_a_shuffle", "deadlock", "", lambda: (ramp(32), zeros(32), 20)),
    Bug("forever", "timeout", "", lambda: (zeros(2),), 1, 1),
    Bug("waits_for_the_next_block", "timeout", "", lambda: (torch.zeros(1).int(), zeros(1)), 2, 1, also=("deadlock",)),
]

BAD_LAUNCHES = [
    ("too many threads", "fill", 1, 2048, 0), ("too many threads over two axes", "fill", 1, (64, 32), 0),
    ("too deep a block", "fill", 1, (1, 1, 65), 0), ("no threads", "fill", 1, 0, 0), ("no blocks", "fill", 0, 32, 0),
    ("too much shared memory", "fill", 1, 32, 1 << 20), ("more than the launch bounds", "bounded", 1, 128, 0),
    ("too many blocks along y", "fill", (1, 65536), 32, 0)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_bug_is_caught(bug, order):
    limit = {"step_limit": 1_000_000} if bug.kind == "timeout" else {}
    with pytest.raises(cuda.KernelError) as caught, cuda.sanitize(**order, **limit):
        compiled(SOURCE)[bug.name][bug.grid, bug.block, bug.shared](*bug.args())
    error = caught.value
    assert error.kind in (bug.kind, *bug.also), error.message
    assert error.line in line_of(SOURCE, f"// BUG {bug.name}"), error.message
    assert error.kernel == bug.name
    if bug.array:
        assert re.search(rf"\b{bug.array}\b", error.message), error.message


@pytest.mark.parametrize("kernel, grid, block, shared", [case[1:] for case in BAD_LAUNCHES],
                         ids=[case[0] for case in BAD_LAUNCHES])
@pytest.mark.parametrize("sanitized", [False, True], ids=["plain", "sanitized"])
def test_a_bad_launch_is_refused(kernel, grid, block, shared, sanitized):
    watch = cuda.sanitize if sanitized else contextlib.nullcontext
    with pytest.raises(cuda.KernelError) as caught, watch():
        compiled(SOURCE)[kernel][grid, block, shared](zeros(64))
    assert caught.value.kind == "bad launch"


@pytest.mark.parametrize("order", ORDERS)
def test_threads_that_end_before_the_barrier_pass_nothing_by(order):
    with cuda.sanitize(**order) as notes:
        compiled(SOURCE).passed_by_and_gone_on[1, 64](y := zeros(32), 1)
    assert not notes and (y == 3).all()


def test_two_names_of_dynamic_shared_memory_are_a_note():
    two = """__global__ void both(float* y) {
        extern __shared__ float a[]; extern __shared__ int b[];
        a[threadIdx.x] = b[threadIdx.x] = 1;
    }"""
    one = two.replace("extern __shared__ int b[];", "int* b = (int*)(a + 32);")
    for source, notes in ((two, 1), (one, 0)):
        with cuda.sanitize() as found:
            cuda.compile(source).both[1, 32, 256](zeros(32))
        assert len(found) == notes and all("both, a and b are one memory" in note for note in found), found


def test_a_race_names_both_sides():
    error = fault(compiled(SOURCE).no_barrier, 1, 64, ramp(64), zeros(64))
    lines = sorted(line_of(SOURCE, "// BUG no_barrier"))
    assert all(str(line) in error.message for line in lines), error.message


def test_an_out_of_bounds_index_is_given():
    error = fault(compiled(SOURCE).no_guard, 1, 128, ramp(100), zeros(128))
    assert "x[100]" in error.message and "100" in error.message, error.message
    assert error.thread[0] == 100, error.thread


def test_the_arrays_are_as_they_were_after_an_error():
    mod, y = compiled(SOURCE), zeros(100)
    fault(mod.guard_off_by_one, 1, 128, ramp(100), y, 100)
    checked(mod.guard_off_by_one, 1, 100, ramp(100), y, 100)         # and the engine still works
    assert torch.equal(y, ramp(100))


CAUSES = {"counting_without_atomics": "atomicAdd", "no_barrier": "a missing __syncthreads()",
          "within_a_warp": "put __syncwarp()", "unsigned_below_zero": "went below 0",
          "same_output_twice": "two threads the same output element"}


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.name in CAUSES], ids=lambda bug: bug.name)
def test_the_cause_named_is_the_one_to_mend(bug):
    error = fault(compiled(SOURCE)[bug.name], bug.grid, bug.block, *bug.args())
    assert CAUSES[bug.name] in error.message, error.message


def test_a_crash_of_a_plain_run_says_where_to_look():
    with pytest.raises(cuda.KernelError, match="cuda.sanitize") as caught:
        compiled(SOURCE).wild_pointer[1, 32](zeros(32))
    assert caught.value.kind == OOB
