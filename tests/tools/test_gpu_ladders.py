"""The recorded registers and occupancy of the ladders, as the notebooks print them."""
import json

import pytest

from course_lib.gpu import ladders
from course_lib.gpu.results import kernels_of
from laptop_cuda.occupancy import occupancy

RECORDED = json.loads(ladders.FILE.read_text())


@pytest.mark.parametrize("word", RECORDED["ladders"])
def test_the_table_has_a_row_per_kernel_of_the_ladder(word, capsys):
    ladders.registers_table(word)
    ladders.bounds_table(word)
    shown = capsys.readouterr().out
    for row in RECORDED["ladders"][word]:
        assert shown.count(row["kernel"] + " ") == 2 and row["kernel"].partition("<")[0] in kernels_of(word)
    assert RECORDED["compiler"] in shown and "H100 SXM" in shown


@pytest.mark.parametrize("word", RECORDED["ladders"])
def test_the_recorded_occupancy_follows_from_the_recorded_registers(word):
    for row in RECORDED["ladders"][word]:
        held = occupancy("sm_90", row["registers"], row["block"],
                         row["static_shared"] + row["dynamic_shared"])
        assert (held.blocks, held.warps, held.limited_by) == (row["blocks"], row["warps"], row["limited_by"])
        times = {pipe: t for pipe, t in row["microseconds"].items() if "cached" not in pipe}
        assert times.get(row["binds"]) == max(times.values(), default=None)


def test_an_unknown_ladder_is_named():
    with pytest.raises(ValueError, match="word must be one of attention, flash_attention, kv_cache, asynchrony; got "
                       "'rope'"):
        ladders.registers_table("rope")


@pytest.mark.slow
def test_the_compiler_here_gives_the_recorded_registers():
    """With the version that is recorded; another one may choose other registers."""
    from laptop_cuda import gpu
    from laptop_cuda.inside import toolkit
    if gpu.nvcc() is None or toolkit.nvdisasm() is None:
        pytest.skip("not run: nvcc or nvdisasm is missing (pip install \".[inside]\")")
    found = ladders.measured("attention")
    if found[0]["compiler"] != RECORDED["compiler"]:
        pytest.skip(f"not run: {RECORDED['compiler']} is missing")
    for made, row in zip(found, RECORDED["ladders"]["attention"], strict=True):
        assert {name: made[name] for name in row if name in made} == row


ROW = """
__global__ void {bounds} {name}(const float* __restrict__ x, float* __restrict__ out, int n, int pick) {{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    float row[{size}], sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < {size}; ++i) row[i] = x[i * n + t];
    #pragma unroll
    for (int i = 0; i < {size}; ++i) sum += row[i] * row[{size} - 1 - i];
    #pragma unroll
    for (int i = 0; i < {size}; ++i) out[i * n + t] = row[i] * sum;
    {last}
}}
"""


@pytest.mark.slow
def test_the_reports_of_exercise_7_14_are_the_compiler_s():
    from course_lib import cuda
    from course_lib.exercises import find
    from laptop_cuda import gpu
    if gpu.nvcc() is None:
        pytest.skip("not run: nvcc is missing (pip install \".[inside]\")")
    kinds = {"a": (40, "", ""), "b": (40, "__launch_bounds__(1024, 2)", ""),
             "c": (40, "", "out[t] = row[pick];"), "d": (8, "", "")}
    module = cuda.compile("".join(ROW.format(name=name, size=size, bounds=bounds, last=last)
                                  for name, (size, bounds, last) in kinds.items()))
    found = {name: cuda.inspect(getattr(module, name)) for name in kinds}
    if found["a"]["compiler"] != RECORDED["compiler"]:
        pytest.skip(f"not run: {RECORDED['compiler']} is missing")
    rows = {f"| {i['registers']} | {i['stack']} | {i['spill_stores']}, {i['spill_loads']} |": name
            for name, i in found.items()}
    card = find("7.14").card
    order = {rows[line[4:].strip()]: line[2] for line in card.splitlines() if line[2:3] in "pqrs"
             and line[4:].strip() in rows}
    assert "".join(order[name] for name in "abcd") == find("7.14").answer


def test_the_answer_of_exercise_6_15_follows_from_the_rules():
    from course_lib.exercises import find
    held = occupancy("sm_80", 96, 128, 41 * 1024)
    assert (held.blocks == find("6.15").answer and held.limited_by == "shared memory" and held.by["registers"]
            == 5)
