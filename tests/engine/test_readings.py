"""The engine's counts beside readings of NVIDIA's profiler that others have published.

The kernels behind the readings are not ours. readings.cu has patterns of our own that access memory alike."""
import hashlib
import json
import subprocess
from pathlib import Path

import pytest
import torch
from engine_kit import counted

import laptop_cuda as cuda
from laptop_cuda import readings
from laptop_cuda.__main__ import main

MODULE = cuda.load(Path(__file__).with_name("readings.cu"))

# Loads of shared memory of 8 and 16 bytes per lane that others have read on a card: which vector lane t reads
# (None: it is inactive), its wavefronts and bank conflicts. Ours are in tests/tools/test_gpu_results.py.
WIDE = {
    "t": (8, lambda t: t, 2, 0),
    "t / 2": (8, lambda t: t // 2, 1, 0),
    "lanes 15 and 16, one address": (16, lambda t: 0 if t in (15, 16) else None, 2, 0),
    "lanes 0 and 15, one address": (16, lambda t: 0 if t in (0, 15) else None, 1, 0),
    "pairs, each quarter its own": (16, lambda t: t // 8 * 2 + t % 8 // 2 % 2, 2, 0),
    "pairs in one half, two apart in the other": (
        16, lambda t: t // 8 * 2 + (t % 8 // 2 % 2 if t < 16 else t % 2), 4, 0),
    "pairs, with a conflict of two": (16, lambda t: t // 16 * 4 + t % 16 // 8 + t % 8 // 4 * 8, 4, 2)}


@pytest.mark.parametrize("access", WIDE)
def test_wide_loads_of_shared_memory(access):
    size, place, wavefronts, conflicts = WIDE[access]
    at = [-1 if (p := place(t)) is None else p for t in range(32)]
    load = counted(MODULE[f"wide{size}"], 1, 32, torch.tensor(at, dtype=torch.int32),
                   torch.zeros(32, size // 4)).shared_load
    assert (load.requests, load.wavefronts, load.excess) == (1, wavefronts, conflicts)


TABLE = json.loads(readings.TABLE.read_text(encoding="utf-8"))
SIZES = {4: "float", 16: "float4"}


def compiled_counts(launch: dict) -> dict[str, int]:
    """Shared loads of the machine code: bytes per lane, how many, lanes per row, two pitches."""
    found = {"wavefronts": 0, "conflicts": 0}
    for size, many, *places in launch["compiled"]["reads"]:
        out = torch.zeros(32, size // 4)
        load = counted(MODULE[f"tile_reads<{SIZES[size]}>"], 1, 32, out, *places).shared_load
        found["wavefronts"] += launch["compiled"]["times"] * many * load.wavefronts
        found["conflicts"] += launch["compiled"]["times"] * many * load.excess
    return found


def ours(launch: dict) -> dict[str, float]:
    if "wide" in launch["pattern"]:              # counted above
        _, _, wavefronts, conflicts = WIDE[launch["pattern"]["wide"]]
        shared = "mem_shared_op_ld.sum"
        return {f"l1tex__data_pipe_lsu_wavefronts_{shared}": wavefronts,
                f"l1tex__data_bank_conflicts_pipe_lsu_{shared}": conflicts}
    return readings.counted(MODULE, launch["pattern"])


@pytest.mark.parametrize("launch", [launch for launch in TABLE["launches"] if "pattern" in launch],
                         ids=lambda launch: f"{launch['source']}, {launch['kernel']}, {launch['launch']}")
def test_a_kernel_of_our_own_counts_what_the_published_one_counts(launch):
    counts = ours(launch)
    for reading in launch["readings"]:
        assert counts[reading["metric"]] == reading["ours"], reading["metric"]


@pytest.mark.parametrize("launch", [launch for launch in TABLE["launches"] if "compiled" in launch],
                         ids=lambda launch: launch["kernel"])
def test_the_accesses_of_the_machine_code_explain_what_was_read(launch):
    counts = compiled_counts(launch)
    for reading in launch["readings"]:
        if reading["class"] == "compiled":
            count = counts["conflicts" if "bank_conflicts" in reading["metric"] else "wavefronts"]
            assert count <= reading["published"] <= 1.001 * count + 16384, reading["metric"]


def test_no_reading_of_the_table_is_unexplained():
    kinds = {"exact": ("equal",), "at least": ("equal", "above"), "compiled": ("explained",)}
    for launch in TABLE["launches"]:
        for reading in launch["readings"]:
            said = readings.verdict(reading, reading["ours"])
            assert said == reading["verdict"] and said.endswith(kinds[reading["class"]]), (launch, reading)
            assert reading["metric"] in readings.METRICS
    assert all(row["why"] for row in TABLE["left_out"])
    assert readings.verdict({"published": 1, "ours": 2, "class": "compiled", "why": "merged"}, 3) == "different"


KERNEL = "__global__ void twice(float* x) { x[threadIdx.x] *= 2; }"


@pytest.fixture
def checkout(tmp_path):
    """A repository of one kernel, and a table that names it and others."""
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "twice.cu").write_text(KERNEL)
    git = ["git", "-C", str(tmp_path / "some"), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    launch = {"source": "s", "file": "twice.cu", "kernel": "twice", "launch": "1 x 32", "grid": [1],
              "block": [32], "arguments": ["float32 32"], "times": 2,
              "text": hashlib.sha256(KERNEL.encode()).hexdigest()[:16],
              "readings": [{"metric": readings.LOADS, "published": 8, "class": "exact"}]}
    table = {"sources": {"s": {"repository": "someone/some", "commit": "0123456"}},
             "launches": [launch | {"file": "gone.cu"}, launch | {"text": "of another"},
                          launch | {"kernel": "thrice"}, launch]}
    (tmp_path / "table.json").write_text(json.dumps(table))
    return tmp_path


def test_what_a_checkout_lacks_is_said_and_the_rest_goes_on(checkout, capsys):
    assert main(["readings", str(checkout), "--table", str(checkout / "table.json")]) == 0
    said = capsys.readouterr().out
    row = next(line for line in said.splitlines() if line.startswith("s  ")).split()
    assert row[1] == "twice" and row[-3:] == ["8", "8", "equal"]
    for part in ("gone.cu is not there", "twice.cu has another text", "twice.cu, thrice: ",
                 "the table names 0123456"):
        assert said.count(part) == 1, part


def test_a_number_that_differs_is_an_exit_status(checkout, capsys):
    table = json.loads((checkout / "table.json").read_text())
    table["launches"][-1]["readings"][0]["published"] = 7
    (checkout / "table.json").write_text(json.dumps(table))
    assert main(["readings", str(checkout), "--table", str(checkout / "table.json")]) == 1
    assert capsys.readouterr().out.endswith("1 numbers, 1 different\n")


def test_where_nothing_can_be_compared_that_is_an_exit_status(tmp_path, capsys):
    assert main(["readings", str(tmp_path)]) == 1
    assert capsys.readouterr().out.endswith("0 numbers\n")
