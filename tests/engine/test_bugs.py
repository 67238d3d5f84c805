"""Planted bugs: each kernel has one mistake, and the sanitizer must name its kind, its line and its array.

The faulty line carries a comment `// BUG name`. A race has two sides, and either may be the one that is noticed.
Everything runs in three thread orders: the kind must be the same in all of them."""
import contextlib
import re
from dataclasses import dataclass, field
from typing import Callable

import pytest
import torch
from engine_kit import ORDERS, checked, compiled, fault, line_of
from test_counts import ramp
from torch import zeros

import laptop_cuda as cuda

SOURCE = r"""
#include <cuda_fp16.h>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void no_guard(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];  // BUG no_guard
}
__global__ void guard_off_by_one(const float* x, float* y, int n) {
    int i = threadIdx.x;
    float v = i < n ? x[i] : 0.0f;
    if (i <= n) y[i] = v;  // BUG guard_off_by_one
}
__global__ void before_the_start(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = x[i - 1];  // BUG before_the_start
}
__global__ void into_the_next_view(float* q, float* k) {
    k[threadIdx.x] = 1;
    q[threadIdx.x + 1] = 2;  // BUG into_the_next_view
}
struct Corner { int kind; float weight[3]; };
__global__ void member_overrun(float* y, int n) {
    Corner c;
    for (int k = 0; k < n; ++k) c.weight[k] = k;  // BUG member_overrun
    y[0] = c.weight[0];
}
__global__ void vector_tail(const float* x, float4* y) {
    int i = threadIdx.x;
    y[i] = reinterpret_cast<const float4*>(x)[i];  // BUG vector_tail
}
__global__ void wild_pointer(float* y) {
    float* p = reinterpret_cast<float*>(0x123456789abcull);
    y[threadIdx.x] = *p;  // BUG wild_pointer
}
__global__ void null_pointer(const float* x, float* y) {
    y[threadIdx.x] = x[threadIdx.x];  // BUG null_pointer
}
__global__ void atomic_outside(const int* value, int* bins) {
    atomicAdd(&bins[value[threadIdx.x]], 1);  // BUG atomic_outside
}
__global__ void half_outside(const half* x, half* y) {
    y[threadIdx.x] = __hmul(x[threadIdx.x + 8], x[threadIdx.x]);  // BUG half_outside
}
__device__ float load_at(const float* p, int i) { return p[i]; }  // BUG in_a_helper
__global__ void in_a_helper(const float* x, float* y) { y[threadIdx.x] = load_at(x, threadIdx.x * 2); }
__constant__ float coefficient[4] = {1, 2, 3, 4};
__global__ void constant_outside(float* y) {
    y[threadIdx.x] = coefficient[threadIdx.x];  // BUG constant_outside
}
__global__ void constant_written(float* y) {
    coefficient[threadIdx.x % 4] = 2;  // BUG constant_written
    y[threadIdx.x] = 0;
}
__device__ float table_of_eight[8];
__global__ void global_outside(float* y) {
    table_of_eight[threadIdx.x] = 1.0f;  // BUG global_outside
    y[threadIdx.x] = 0.0f;
}
__global__ void shared_outside(float* y) {
    __shared__ float row[32];
    int t = threadIdx.x;
    row[t] = t;
    __syncthreads();
    y[t] = row[t + 1];  // BUG shared_outside
}
__global__ void shared_neighbour(float* y) {
    __shared__ float first[32];
    __shared__ float second[32];
    int t = threadIdx.x;
    second[t] = 0;
    first[t + 32] = t;  // BUG shared_neighbour
    __syncthreads();
    y[t] = second[t];
}
__global__ void dynamic_outside(float* y) {
    extern __shared__ float buffer[];
    buffer[threadIdx.x * 4] = 1.0f;  // BUG dynamic_outside
    y[threadIdx.x] = 0;
}
__global__ void local_outside(const float* x, float* y, int n) {
    float kept[4];
    for (int k = 0; k < n; ++k) kept[k] = x[k];  // BUG local_outside
    y[threadIdx.x] = kept[threadIdx.x & 3];
}
__global__ void unsigned_below_zero(float* y) {
    __shared__ float s[32];
    s[threadIdx.x - 1] = 1;  // BUG unsigned_below_zero
    y[threadIdx.x] = 0;
}
__global__ void float4_from_one(const float* x, float4* y) {
    y[threadIdx.x] = *reinterpret_cast<const float4*>(x + 1);  // BUG float4_from_one
}
__global__ void shared_misaligned(float4* y) {
    __shared__ float s[64];
    s[threadIdx.x] = 1;
    s[threadIdx.x + 32] = 1;
    __syncthreads();
    y[threadIdx.x] = *reinterpret_cast<float4*>(&s[threadIdx.x]);  // BUG shared_misaligned
}
__global__ void no_barrier(const float* x, float* y) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];  // BUG no_barrier
    y[t] = s[63 - t];  // BUG no_barrier
}
__global__ void second_barrier_missing(const float* x, float* y, int tiles) {
    __shared__ float s[64];
    int t = threadIdx.x;
    float sum = 0;
    for (int k = 0; k < tiles; ++k) {
        s[t] = x[k * 64 + t];  // BUG second_barrier_missing
        __syncthreads();
        for (int j = 0; j < 64; ++j) sum += s[j];  // BUG second_barrier_missing
    }
    y[t] = sum;
}
__global__ void everybody_writes(float* y) {
    __shared__ float total;
    total = threadIdx.x;  // BUG everybody_writes
    __syncthreads();
    y[threadIdx.x] = total;
}
__global__ void within_a_warp(const float* x, float* y) {
    __shared__ float s[32];
    int t = threadIdx.x;
    s[t] = x[t];  // BUG within_a_warp
    y[t] = s[t ^ 1];  // BUG within_a_warp
}
__global__ void syncwarp_is_not_enough(const float* x, float* y) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];  // BUG syncwarp_is_not_enough
    __syncwarp();
    y[t] = s[63 - t];  // BUG syncwarp_is_not_enough
}
__global__ void counting_without_atomics(const int* value, int* y) {
    __shared__ int bins[4];
    int t = threadIdx.x;
    if (t < 4) bins[t] = 0;
    __syncthreads();
    bins[value[t]] += 1;  // BUG counting_without_atomics
    __syncthreads();
    if (t < 4) y[t] = bins[t];
}
__global__ void shuffle_is_no_fence(const float* x, float* y) {
    __shared__ float s[32];
    int t = threadIdx.x;
    s[t] = x[t];  // BUG shuffle_is_no_fence
    float v = __shfl_down_sync(0xffffffff, x[t], 1);
    y[t] = s[(t + 1) % 32] - v;  // BUG shuffle_is_no_fence
}
__global__ void atomic_against_store(const int* x, int* y) {
    __shared__ int counter;
    if (threadIdx.x == 0) counter = 0;  // BUG atomic_against_store
    atomicAdd(&counter, x[threadIdx.x]);  // BUG atomic_against_store
    __syncthreads();
    if (threadIdx.x == 0) y[0] = counter;
}
__global__ void tile_sync_is_not_enough(const float* x, float* y) {
    __shared__ float s[32];
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    int t = threadIdx.x;
    s[t] = x[t];  // BUG tile_sync_is_not_enough
    tile.sync();
    y[t] = s[31 - t];  // BUG tile_sync_is_not_enough
}
__global__ void blocks_share_a_sum(const float* x, float* total) {
    if (threadIdx.x == 0) total[0] += x[blockIdx.x];  // BUG blocks_share_a_sum
}
__global__ void blocks_overwrite(float* result) {
    result[threadIdx.x] = blockIdx.x + 1;  // BUG blocks_overwrite
}
__global__ void same_output_twice(const float* x, float* y) {
    y[threadIdx.x / 2] = x[threadIdx.x];  // BUG same_output_twice
}
__global__ void half_filled(const float* x, float* y) {
    __shared__ float s[64];
    int t = threadIdx.x;
    if (t < 32) s[t] = x[t];
    __syncthreads();
    y[t] = s[t];  // BUG half_filled
}
__global__ void read_empty(const float* scratch, float* y) {
    y[threadIdx.x] = scratch[threadIdx.x];  // BUG read_empty
}
__global__ void first_block_only(const float* x, float* y) {
    __shared__ float s[32];
    int t = threadIdx.x;
    if (blockIdx.x == 0) s[t] = x[t];
    __syncthreads();
    y[blockIdx.x * 32 + t] = s[31 - t];  // BUG first_block_only
}
__global__ void barrier_in_one_arm(float* y) {
    int t = threadIdx.x;
    if (t < 32) __syncthreads();  // BUG barrier_in_one_arm
    y[t] = t;
    __syncthreads();  // BUG barrier_in_one_arm
    y[t] += 1;
}
__global__ void barrier_in_a_ragged_loop(const int* length, float* y) {
    int t = threadIdx.x;
    for (int k = 0; k < length[t / 32]; ++k) {
        y[t] = k;
        __syncthreads();  // BUG barrier_in_a_ragged_loop
    }
    __syncthreads();  // BUG barrier_in_a_ragged_loop
}
__global__ void loop_never_entered(const float* x, float* y, int n) {
    __shared__ float s[128];
    s[threadIdx.x] = x[threadIdx.x];
    for (int pair = threadIdx.x; pair < n; pair += 128) {
        __syncthreads();  // BUG loop_never_entered
        y[pair] = s[pair ^ 1];
    }
    y[n + threadIdx.x] = 1;
}
__global__ void jumped_and_unset(float* y) {
    __shared__ float s[64];
    int t = threadIdx.x;
    if (t < 16) __syncthreads();  // BUG jumped_and_unset
    y[t] = s[t];  // BUG jumped_and_unset
}
__device__ float block_sum(float v) {
    __shared__ float s[64];
    s[threadIdx.x] = v;
    __syncthreads();  // BUG helper_jumped
    float sum = 0;
    for (int i = 0; i < 16; ++i) sum += s[i];
    return sum;
}
__global__ void helper_jumped(const float* x, float* y, int n) {
    float v = x[threadIdx.x];
    if (threadIdx.x < n) v = block_sum(v);
    y[threadIdx.x] = v;
}
__global__ void passed_by_and_gone_on(float* y, int done) {
    __shared__ float s[64];
    int t = threadIdx.x;
    float sum = 0;
    for (int r = 0; r < 2; ++r) {
        if (done && t >= 32) break;
        s[t] = r + 1;
        if (t < 32) {
            __syncthreads();  // BUG passed_by_and_gone_on
            sum += s[(done ? 31 : 63) - t];
            __syncthreads();
        }
    }
    if (t < 32) y[t] = sum;
}
__device__ void meet() { __syncthreads(); }
__global__ void barrier_in_helpers(float* y) {
    if (threadIdx.x % 64 < 32) y[threadIdx.x] = 1, __syncthreads();  // BUG barrier_in_helpers
    else __syncthreads(), y[threadIdx.x] = 2;  // BUG barrier_in_helpers
}
__global__ void half_a_warp_syncs(float* y) {
    if (threadIdx.x < 16) {
        __syncwarp();  // BUG half_a_warp_syncs
        y[threadIdx.x] = 1;
    }
    __syncthreads();  // BUG half_a_warp_syncs
}
__device__ float warp_sum(float v) {
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);  // BUG lanes_go_past_a_shuffle
    return v;
}
__global__ void lanes_go_past_a_shuffle(const float* x, float* y, int n) {
    float v = x[threadIdx.x];
    if (threadIdx.x < n) v = warp_sum(v);
    y[threadIdx.x] = v;
}
__global__ void forever(float* y) {
    int i = threadIdx.x;
    while (y[0] >= 0.0f) i += 1;  // BUG forever
    y[1] = i;
}
__global__ void waits_for_the_next_block(int* flag, float* y) {
    if (blockIdx.x == 0) {
        while (atomicAdd(&flag[0], 0) == 0) {}  // BUG waits_for_the_next_block
        y[0] = 1;
    }
    if (blockIdx.x == 1 && y[0] > 5) atomicExch(&flag[0], 1);
}
__global__ void fill(float* y) { y[threadIdx.x] = 1; }
__global__ void __launch_bounds__(64) bounded(float* y) { y[threadIdx.x] = 1; }
"""


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
    ("too many blocks along y", "fill", (1, 65536), 32, 0),
]


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
