"""Blocks and threads that wait for one another by memory: they have their turns; what nobody ends is a deadlock."""
from pathlib import Path

import numpy as np
import pytest

import laptop_cuda
from course_lib import cuda
from engine_kit import data_of, mod  # noqa: F401

SOURCE = data_of("waits.toml")["source"]
ORDERS = ["plain", "forward", "reverse", "seeded"]

# What orders memory: each rule of DETAILS.md by name, with code that keeps it and code that breaks it. First
# how block 0 hands `buf` over to block 1: what it does, and what the other does before it reads.
FENCE, RAISE, WAIT = "__threadfence();", "atomicExch(flag, 1);", "while (atomicAdd(flag, 0) == 0) {}"
GIVEN = f"__syncwarp(); if (t == 0) {{ {FENCE} {RAISE} }}"
TAKEN = f"if (t == 0) {{ {WAIT} {FENCE} }} __syncwarp();"
SET = "__nv_atomic_store_n(flag + t / 16, 1, __NV_ATOMIC_RELEASE, __NV_THREAD_SCOPE_DEVICE);"
TILE = (f"tile.sync(); if (t % 16 == 0) {SET}",
        "if (t % 16 == 0) while (!__nv_atomic_load_n(flag + t / 16, __NV_ATOMIC_ACQUIRE)) {} tile.sync();")
EACH = f"{FENCE} __syncwarp(); if (t == 0) {RAISE}"
HANDED_OVER = {                  # (right), what in it is (changed, to what)
    "release: a fence covers what lanes wrote before a __syncwarp": (
        (GIVEN, TAKEN), ("__syncwarp(); if (t == 0) { _", "if (t == 0) { _")),
    "release: and before a tile.sync()": (TILE, ("tile.sync(); if (t % 16 == 0) __", "if (t % 16 == 0) __")),
    "release: every lane fences, one raises the flag": ((EACH, TAKEN), (EACH, EACH.removeprefix(FENCE))),
    "release: a relaxed store is none": (TILE, ("RELEASE", "RELAXED")),
    "scope: of a fence that releases": ((GIVEN, TAKEN), (f"{FENCE} {RAISE}", f"__threadfence_block(); {RAISE}")),
    "scope: of a fence that acquires": ((GIVEN, WAIT + FENCE), (WAIT + FENCE, WAIT + "__threadfence_block();")),
    "scope: of the flag": ((GIVEN, TAKEN), ("Exch(", "Exch_block(")),
    "scope: of a release": (TILE, ("SCOPE_DEVICE", "SCOPE_BLOCK")),
    "acquire: a fence behind the flag": ((GIVEN, WAIT + FENCE), (WAIT + FENCE, WAIT))}
LAST = f"""__shared__ bool last; buf[64 * blockIdx.x + t] = t; {FENCE} __syncthreads();
        if (t == 0) last = atomicAdd(flag, 1) == 1; __syncthreads(); if (last) y[t] = buf[t] + buf[64 + t];"""
TURN = "float sum = v[t] + v[t + s]; __syncwarp(); v[t] = sum; __syncwarp();"
ALONE = {
    "barrier: lanes of a warp do not run in step, volatile or not": (
        f"volatile float* v = buf + 64 * blockIdx.x; if (t < 32) for (int s = 32; s > 0; s /= 2) {{ {TURN} }}",
        (TURN, "v[t] += v[t + s];")),
    "strong: a volatile flag between blocks": (
        "volatile int* up = flag; if (t == 0) if (*up == 0 && blockIdx.x == 1) *up = 1;", ("volatile ", "")),
    "strong: a volatile flag in a warp, behind a fence": (
        f"""flag += blockIdx.x; buf += blockIdx.x; if (t == 0) {{ *buf = 1; {FENCE} *(volatile int*)flag = 1; }}
        if (t == 1) {{ while (*(volatile int*)flag == 0) {{}} {FENCE} y[blockIdx.x] = *buf; }}""",
        (f"{FENCE} *(vol", "*(vol")),
    "acquire: a lock is taken with a fence behind it": (
        f"if (t == 0) {{ while (atomicCAS(flag, 0, 1)) {{}} {FENCE} *buf += 1; {FENCE} atomicExch(flag, 0); }}",
        (f"{{}} {FENCE}", "{}")),
    "strong: a volatile flag in shared memory": (
        """__shared__ float s; __shared__ volatile int up; if (t == 0) up = 0; __syncthreads();
        if (t == 0) { s = 1; __threadfence_block(); up = 1; }
        if (t == 32) { while (up == 0) {} __threadfence_block(); y[blockIdx.x] = s; }""",
        ("__threadfence_block(); up", "up")),
    "release: a volatile counter is a barrier of the grid with fences": (
        f"""if (t == 0) {{ buf[blockIdx.x] = 1; {FENCE} atomicAdd(flag, 1); while (*(volatile int*)flag < 2);
            {FENCE} y[blockIdx.x] = buf[1 - blockIdx.x]; }}""", (FENCE, "")),
    "barrier: the last block's ticket comes behind one": (LAST, (f"{FENCE} __syncthreads();", FENCE)),
    "release: and behind a fence of each thread": (LAST, (FENCE, "")),
    "relaxed: volatile data behind a counter": (
        f"""volatile float* v = buf; if (t > 0) return; v[blockIdx.x] = 1; {FENCE} int n = atomicAdd(flag, 1); {FENCE}
        if (n == 1) y[0] = v[0] + v[1];""", (FENCE, "")),
    "scope: a count of two blocks": ("atomicAdd(flag, 1);", ("Add", "Add_block")),
    "scope: and in PTX": ('asm("red.gpu.global.add.s32 [%0], 1;" :: "l"(flag) : "memory");', ("gpu", "cta")),
    "release: a flag in PTX, of a block": (
        """int up; buf += blockIdx.x, flag += blockIdx.x;
        if (t == 63) { *buf = 1; asm("st.release.cta.global.s32 [%0], 7;" :: "l"(flag) : "memory"); }
        if (t == 0) { do asm("ld.acquire.cta.global.s32 %0, [%1];" : "=r"(up) : "l"(flag) : "memory"); while (!up);
            y[blockIdx.x] = *buf; }""", ("release", "relaxed")),
    "weak: a plain load beside atomics": ("if (blockIdx.x) atomicAdd(flag, 1); else y[t] = atomicAdd(flag, 0);",
                                    ("atomicAdd(flag, 0)", "*flag")),
    "weak: a plain load before the thread's own": (
        "int old = *flag, was; do was = old, old = atomicCAS(flag, was, was + 1); while (was != old);",
        ("atomicCAS(flag, was, was + 1)", "atomicAdd(flag, 1)")),
    "last store: of a warp's lanes": (
        "__shared__ int w; if (t == 0) w = t; __syncwarp(); if (t < 32) y[64 * blockIdx.x + t] = w;", ("t == 0", "t < 32")),
    "read-only: data": (
        "buf += 64 * blockIdx.x; buf[t] = t; __syncthreads(); y[64 * blockIdx.x + t] = buf[63 - t];",
        ("buf[63 - t]", "__ldg(&buf[63 - t])")),
    "read-only: and in PTX": (
        'buf += 64 * blockIdx.x + t; *buf = t; float v; asm("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(buf));',
        ("global", "global.nc"))}
RULES = {**{rule: (f"if (blockIdx.x == 0) {{ buf[t] = t; {give} }} else {{ {take} y[t] = buf[t]; }}", wrong)
            for rule, ((give, take), wrong) in HANDED_OVER.items()}, **ALONE}
OF_RULES = "#include <cooperative_groups.h>\n" + "".join(f"""
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
    assert rule in ALONE or (right[1][:32] == np.arange(32)).all()
    with pytest.raises(cuda.KernelError) as caught:
        launch(order, of_rules[f"wrong{number}"][2, block], *given())
    assert caught.value.kind == "race" and caught.value.line, caught.value.message


@pytest.mark.parametrize("order", ORDERS)
def test_blocks_wait_for_later_ones(mod, order):
    x, y, flag, out = np.zeros(512, "f4"), np.zeros(512, "f4"), np.zeros(5, "i4"), np.zeros(1, "i4")
    mod.globals["n"] = 0
    launch(order, mod.barrier[8, 64], x, y)
    assert (y.reshape(8, 64) == np.arange(8, 0, -1)[:, None]).all()
    launch(order, mod.next[5, 1], flag, out)
    assert out[0] == 43210


@pytest.mark.parametrize("order", ORDERS[:2])
@pytest.mark.parametrize("kernel, block, line", [("lost", 32, 18), ("kept", 1, 20)])
def test_a_wait_that_nothing_ends_is_a_deadlock(mod, order, kernel, block, line):
    args = [np.zeros(1, "i4")] * (kernel == "lost") or [np.zeros(1, "i4"), np.zeros(1, "i4")]
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
