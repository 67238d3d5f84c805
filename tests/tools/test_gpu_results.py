"""What a notebook says was measured on a card; what cards count for single accesses, beside the engine's counts; the ladders'
registers and occupancy, as the notebooks print them."""
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from course_lib.gpu import ladders, patterns, results as gpu_results
from course_lib import exercises
from course_lib.gpu.results import CHAPTERS, gpu_table
from laptop_cuda.occupancy import occupancy

PATTERNS = sorted(gpu_results.FOLDER.glob("*/patterns.json"))
RECORDED = json.loads(ladders.FILE.read_text())
KERNEL_FILES = Path(__file__).resolve().parents[2] / "kernels"


def bench(folder, card, rows):
    (folder / card.replace(" ", "_")).mkdir()
    row = {"chapter": "rope", "case": "2 x 8 x 4096 x 128, bf16", "ms": 1.0, "share_of_ceiling": 0.914,
           "peers_ms": {}}
    made = {"card": card, "date": "2026-01-02", "rows": [row | changes for changes in rows]}
    (folder / card.replace(" ", "_") / "bench.json").write_text(json.dumps(made))


def kernels_of(file):
    text = re.sub(r"//.*", "", file.read_text())
    return set(re.findall(r"__global__\s+void\s+(?:__\w+__\([^)]*\)\s*)*(\w+)\s*\(", text))


def test_every_kernel_of_the_course_is_listed():
    written = set().union(*(kernels_of(file) for file in KERNEL_FILES.rglob("*.cu")))
    assert written and {kernel for word in CHAPTERS for kernel in gpu_results.kernels_of(word)} == written
    assert list(CHAPTERS) == sorted(CHAPTERS, key=exercises.CHAPTERS.index)
    assert set(CHAPTERS) == {file.stem for file in KERNEL_FILES.glob("*.cu")}


def test_a_file_says_whether_it_has_run_on_a_card():
    """Its header says that it has not, exactly as long as none of its kernels was checked on one."""
    for file in KERNEL_FILES.rglob("*.cu"):
        header = re.sub(r"\s*//\s*", " ", file.read_text().partition("#include")[0].partition("__global__")[0])
        assert ("has not run on a card" in header.lower()) != bool(gpu_results.right_on(kernels_of(file))), file


def test_nothing_measured_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu_results, "FOLDER", tmp_path)
    gpu_table("rope")
    bench(tmp_path, "A card", [{"chapter": "gqa", "kernel": "repeat_kv"}])
    gpu_table("rope")
    assert capsys.readouterr().out == 2 * "Not measured on a card yet: all kernels of this chapter.\n"


def test_what_was_measured_is_shown_with_card_and_date_and_the_rest_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu_results, "FOLDER", tmp_path)
    bench(tmp_path, "B card", [{"kernel": "rope_half_vec4", "peers_ms": {"torch": 2.5, "old": "not run", "other": 0.5}},
                               {"kernel": "rope_half"}])
    bench(tmp_path, "A card", [{"kernel": "rope_half"}])
    gpu_table("rope")
    heading, first, other, second, third, missing = capsys.readouterr().out.splitlines()
    assert heading.startswith("A card, 2026-01-02") and other.startswith("B card, 2026-01-02")
    assert first.split()[0] == second.split()[0] == "rope_half" and " 1.000    91 %  -" in first
    assert third.endswith("250 % of torch, 50 % of other")
    assert missing.startswith("Not measured on a card yet: rope_interleaved, rope_interleaved_vec4, "
                              "rope_heads, rope_append")


def test_unknown_names_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_results, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match="^word must"):
        gpu_table("ropes")
    bench(tmp_path, "A card", [{"kernel": "rope_quarter"}])
    with pytest.raises(ValueError, match="^kernel must"):
        gpu_table("rope")


def test_a_kernel_that_is_right_and_not_timed_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu_results, "FOLDER", tmp_path)
    (tmp_path / "a_card").mkdir()
    made = {"card": "A card", "date": "2026-01-02", "right": ["rope_half, float32-small", "rope_heads, float32-small"],
            "wrong": ["rope_heads, float32-large"]}
    (tmp_path / "a_card/checked.json").write_text(json.dumps(made))
    gpu_table("rope")
    right, missing, *_ = capsys.readouterr().out.splitlines()
    assert right == "Right on A card (2026-01-02), not timed: rope_half." and "rope_heads" in missing
    assert gpu_results.right_as_they_are(tmp_path / "a_card") == set()      # seen with unknown sources
    (tmp_path / "a_card/checked.json").write_text(json.dumps(made | {"sources": gpu_results.sources()}))
    assert gpu_results.right_as_they_are(tmp_path / "a_card") == set(made["right"])


@pytest.mark.parametrize("file", PATTERNS, ids=lambda file: file.parent.name)
def test_the_engine_counts_as_the_card_does(file):
    launches = json.loads(file.read_text())["launches"]
    assert len(launches) == 390
    for kernel, at, *card in launches:
        engine, places = patterns.counted(kernel, at), [place for place in at if place >= 0]
        if kernel == "copy_async<16>":          # the card's counters leave it out
            assert card == [0, 0] and engine[1] == 0
        elif engine:
            assert (kernel, at, *card) == (kernel, at, *engine)
        else:       # the lanes of a bank one by one, those of one address too; twice where it is a loop
            assert card[0] == max(Counter(p % 32 for p in places).values()) * (2 if "float" in kernel else 1)


def test_the_file_is_what_the_card_s_answers_make():
    text = PATTERNS[0].read_text()
    made = json.loads(text)
    read = [(kernel.partition("<")[0], dict(zip(made["counters"][kernel.partition("<")[0]], counts)))
            for kernel, _, *counts in made["launches"]]
    assert patterns.written(made["card"], made["date"], read) == text
    with pytest.raises(ValueError, match="390 launches; its table has 389"):
        patterns.written(made["card"], made["date"], read[:-1])


@pytest.mark.parametrize("word", RECORDED["ladders"])
def test_the_table_has_a_row_per_kernel_of_the_ladder(word, capsys):
    ladders.registers_table(word)
    ladders.bounds_table(word)
    shown = capsys.readouterr().out
    for row in RECORDED["ladders"][word]:
        assert shown.count(row["kernel"] + " ") == 2 and row["kernel"].partition("<")[0] in gpu_results.kernels_of(word)
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
