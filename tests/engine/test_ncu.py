"""The counts under the profiler's names: exact values, the tool's own columns, what is said of the unknown."""
import csv
import io
import math
from pathlib import Path

import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import data_of, mod, ramp, with_nvcc  # noqa: F401
from laptop_cuda.report.ncu_metrics import COMPILED, EXACT, UNKNOWN

SOURCE = data_of("ncu.toml")["source"]
PATTERNS, N = cuda.load(Path(__file__).with_name("readings.cu")), 64
LD, ST = (f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st"))
PASSES, IDEAL = "memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal"
EXCESS = "derived__memory_l1_wavefronts_shared_excessive"


@pytest.fixture(scope="module")
def report(mod):
    """A transposition without and with padding, a reduction, a block of a tiled product."""
    x, y = ramp(N, N), np.zeros((N, N), np.float32)
    with cuda.profile() as counted:
        PATTERNS.turned_here[(2, 4), (32, 16)](y, x, N, 32)
        PATTERNS.turned_here[(2, 4), (32, 16)](y, x, N, 34)
        mod.sum[16, 256, 1024](x, np.zeros(16, np.float32))
        PATTERNS.product[1, (32, 32)](N, x, x, y)
    return counted


def test_a_launch_in_the_profiler_s_names(report):
    made = report.ncu()
    warps = N * N // 32
    def values(launch, *names):
        return [made[name, launch].value for name in names]
    names = LD, ST, PASSES, IDEAL, EXCESS
    # tiles of 16 rows of 32: half a warp reads one column of them, and at a pitch of 32 one bank
    assert values(0, *names) == [4 * warps, 4 * warps, 17 * warps, 2 * warps, 15 * warps]
    assert values(1, *names) == [4 * warps, 4 * warps, 2 * warps, 2 * warps, 0]
    # step d: 128 / d threads at words 2d apart, of which 32 / 2d, or one, are in different banks
    steps = [(128 // d, max(16 // d, 1)) for d in (1, 2, 4, 8, 16, 32, 64, 128)]
    passes = sum(3 * math.ceil(n / 32) * math.ceil(min(n, 32) / banks) for n, banks in steps)
    assert values(2, LD, ST, PASSES) == [N * N // 8, 16, 16 * (8 + 1 + passes)]
    tiles, inner, warps = N // 32, 2 * 32, 32
    loads, passes = 2 * 4 * warps * tiles + 4 * warps, warps * tiles * (2 + inner)         # and what c holds
    assert values(3, LD, ST, PASSES, EXCESS) == [loads, 4 * warps, passes, 0]
    assert values(2, "launch__grid_size", "launch__block_size", "launch__thread_count") == [16, 256, N * N]
    assert made["launch__shared_mem_per_block_dynamic", 2].value == 1024
    assert made[LD].known == EXACT and made[LD].note == "as written"


def test_what_only_a_card_can_tell_is_not_known_by_name(report):
    made = report.ncu()
    for name in ("gpu__time_duration.sum", "l1tex__t_sector_hit_rate.pct", "launch__registers_per_thread",
                 "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"):
        assert (made[name].known, made[name].value, made[name].shown) == (UNKNOWN, None, "n/a")
    conflicts = made["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"]       # it counts arbitration too
    assert conflicts.known == UNKNOWN and conflicts.note.startswith("1,920 by the addresses")


def test_atomics_and_special_copies_are_not_mixed_in(mod):
    copies = cuda.compile("#include <cuda_pipeline.h>\n__global__ void take(const int* x) { __shared__ int s[32];"
                          " __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4); __pipeline_commit();"
                          " __pipeline_wait_prior(0); } // by cp.async")
    x = np.zeros(32, np.int32)
    with cuda.profile() as counted:
        mod.tally[1, 32](np.zeros(4, np.int32), x)
        copies.take[1, 32](x)
        PATTERNS.wide16[1, 32](x, np.zeros((32, 4), np.float32))
    made = counted.ncu()
    assert made[PASSES, 2].known == UNKNOWN and "by a rule of its own" in made[PASSES, 2].note
    assert made["memory_l2_theoretical_sectors_global"].note.startswith("atomics")
    assert made[LD].value == 4 and made[LD, 1].value is None and "elsewhere" in made[LD, 1].note
    red = [made["l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum", launch] for launch in (0, 2)]
    assert red[0].note.startswith("32 by the addresses") and (red[1].known, red[1].value) == (EXACT, 0)


def test_the_tables_have_the_tool_s_own_columns(report):
    raw = list(csv.reader(io.StringIO(report.ncu().csv("raw"))))
    assert raw[0][:12] == ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
                           "Block Size", "Grid Size", "Device", "CC", "launch__block_size"]
    assert len(raw) == 2 + 4 and raw[1][raw[0].index(LD)] == "sector" and raw[2][raw[0].index(LD)] == "512"
    assert raw[2][4] == "turned_here" and raw[2][7] == "(32, 16, 1)" and {len(r) for r in raw} == {len(raw[0])}
    details = list(csv.DictReader(io.StringIO(report.ncu().csv())))
    row = next(r for r in details if r["ID"] == "2" and r["Metric Name"] == "Grid Size")
    assert (row["Section Name"], row["Metric Value"], row["Known"]) == ("Launch Statistics", "16", "exact")
    assert list(row)[11:15] == ["Section Name", "Metric Name", "Metric Unit", "Metric Value"]
    shown = report.ncu()
    assert "Section: Occupancy" in str(shown) and str(shown).count("product") == 1
    assert "<table" in shown.html() and "memory_l1_wavefronts_shared" in shown.html()


def test_with_a_compiler_registers_and_occupancy_are_as_compiled(mod, report, with_nvcc):
    made = report.ncu(cuda.inspect(mod.sum, "sm_80", launch=report.launches[2]))
    registers = made["launch__registers_per_thread", 2]
    assert registers.known == COMPILED and 8 <= registers.value <= 32 and registers.note == "for sm_80"
    limits = [made[f"launch__occupancy_limit_{by}", 2].value for by in ("warps", "blocks")]
    assert limits == [8, 32]
    assert made["sm__maximum_warps_per_active_cycle_pct", 2].value == 100
    assert made["launch__registers_per_thread", 0].known == UNKNOWN and made.launches[2]["cc"] == "8.0"


def test_bad_input_is_one_line(mod, report):
    made = report.ncu()
    with pytest.raises(KeyError, match="speed is not in this report"):
        made["speed"]
    with pytest.raises(ValueError, match="launches 0 to 3 were counted, got 4"):
        made[LD, 4]
    with pytest.raises(ValueError, match="launched: turned_here.* sum, product.*got other"):
        report.ncu({"kernel": "other"})
    with pytest.raises(ValueError, match="page: raw or details, got 'source'"):
        made.csv("source")
    with cuda.profile(machine=cuda.Machine(banks=16)) as narrow:
        mod.sum[1, 32, 128](np.ones(32, np.float32), np.zeros(1, np.float32))
    with pytest.raises(ValueError, match="ncu: sum was counted on Machine.banks=16"):
        narrow.ncu()
    with cuda.profile() as empty:
        pass
    assert "no launch" in str(empty.ncu()) and empty.ncu().csv("raw").count("\n") == 2
