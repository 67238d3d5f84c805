"""gpu-bench without a card: what it refuses, what it writes, and that every benchmark can be launched."""
import dataclasses
import json
import math

import pytest
import torch

from course_lib.gpu import bench as gpu_bench
from course_lib.gpu.cases import Case
from course_lib.gpu.results import KERNELS, gpu_table

LIMITS = {"copy_bytes_a_second": 1e12, "product_flops_a_second": 1e14}


class Given:
    """A clock that runs the work once and says what it was told to."""
    def __init__(self, *times):
        self.given = times

    def times(self, work):
        work()
        return list(self.given)

    def state(self):
        return "clocks: as given"


def benchmark(run=torch.exp, **changes):
    case = Case("rope", ("rope_half",), lambda draw, n: (draw(n),), run, torch.exp, ({"n": 7},))
    made = gpu_bench.Benchmark(case, "rope_half", {"n": 1000}, lambda n: (8 * n, n), {"torch.exp": lambda x: lambda: torch.exp(x)})
    return dataclasses.replace(made, **changes)


@pytest.fixture
def one_case(monkeypatch):
    monkeypatch.setattr(gpu_bench, "CASES", (benchmark().case,))


def test_a_row_has_medians_spread_and_shares(one_case):
    row = gpu_bench.measure(benchmark(), Given(1.0, 9.0, 2.0), LIMITS, "cpu")
    assert row["ms"] == 2.0 and row["spread_ms"] == [1.0, 9.0] and row["limit"] == "memory"
    assert math.isclose(row["share_of_ceiling"], 8000 / 1e12 / 2e-3) and math.isclose(row["gb_a_second"], 0.004)
    assert row["peer"] == "torch.exp" and row["share_of_peer"] == 1
    heavy = gpu_bench.measure(benchmark(floor=lambda n: (n, 1e9)), Given(2.0), LIMITS, "cpu")
    assert heavy["limit"] == "arithmetic" and math.isclose(heavy["share_of_ceiling"], 1e9 / 1e14 / 2e-3)


@pytest.mark.parametrize("wrong", [lambda x: x, lambda x: torch.empty_like(x), lambda x: torch.exp(x)[:5]])
def test_no_speed_for_a_kernel_whose_check_is_red(monkeypatch, wrong):
    monkeypatch.setattr(gpu_bench, "CASES", (benchmark(wrong).case,))
    row = gpu_bench.measure(benchmark(), Given(1.0), LIMITS, "cpu")
    assert row["refused"].startswith("check is red") and "ms" not in row


def test_no_speed_above_the_ceiling(one_case):
    row = gpu_bench.measure(benchmark(), Given(7e-6), LIMITS, "cpu")
    assert "114 % of the ceiling" in row["refused"] and "ms" not in row


def test_a_peer_that_is_not_there_says_why(one_case):
    def missing(x):
        raise RuntimeError("No available kernel.\nmore")
    row = gpu_bench.measure(benchmark(peers={"cuDNN": missing, "torch.exp": lambda x: lambda: torch.exp(x)}), Given(1.0), LIMITS, "cpu")
    assert row["peers_ms"]["cuDNN"] == "not run: No available kernel." and row["peer"] == "torch.exp"
    assert gpu_bench.measure(benchmark(peers={"cuDNN": missing}), Given(1.0), LIMITS, "cpu")["peer"] is None


def test_the_file_is_what_notebooks_show(one_case, tmp_path, monkeypatch, capsys):
    said = []
    chosen = [benchmark(), benchmark(floor=lambda n: (1e12, 0))]
    made = gpu_bench.run(Given(1.0), "A card", tmp_path / "a_card", "cpu", chosen, said.append, LIMITS)
    assert made == json.loads((tmp_path / "a_card" / "bench.json").read_text())
    assert len(made["rows"]) == len(made["refused"]) == 1 and len(said) == 3
    monkeypatch.setattr("course_lib.gpu.results.FOLDER", tmp_path)
    gpu_table("rope")
    shown = capsys.readouterr().out
    assert "rope_half " in shown and "A card, " in shown and "Not measured on a card yet: rope_interleaved" in shown
    gpu_bench.figure(made, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").stat().st_size > 1000


def test_ceilings_are_bytes_and_operations_a_second():
    best = gpu_bench.ceilings(Given(2.0), "cpu", copied=1000, side=10)
    assert best == {"copy_bytes_a_second": 1e6, "product_flops_a_second": 1e6}


def test_without_a_card_nothing_is_measured(capsys):
    if torch.cuda.is_available():
        pytest.skip("not run: there is a card here")
    assert gpu_bench.main([]) == 1 and "nothing was measured" in capsys.readouterr().err


def test_the_list_is_of_the_course_s_kernels_and_of_the_right_size():
    for item in gpu_bench.benchmarks():
        assert item.kernel in KERNELS[item.case.chapter]
        least_bytes, flops = item.floor(**item.shape)
        assert 3e7 < least_bytes < 8e9                     # more than an L2, at most a few times what fits beside it
        assert item.case.dtype == torch.float32 or least_bytes > 2.5e8 or flops > 1e11
    assert len({(item.kernel, item.text) for item in gpu_bench.benchmarks()}) == len(list(gpu_bench.benchmarks()))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(sum(1 for _ in gpu_bench.benchmarks())))
def test_every_benchmark_runs(number):
    """With the case's small shape, on the engine; FlexAttention, which would be compiled, is left out."""
    item = list(gpu_bench.benchmarks())[number]
    shape = item.case.shapes[0]
    peers = {name: make for name, make in item.peers.items() if name != "FlexAttention"}
    row = gpu_bench.measure(dataclasses.replace(item, shape=shape, peers=peers), Given(1e3), LIMITS, "cpu")
    assert row["ms"] == 1e3, row
    for name, taken in row["peers_ms"].items():
        assert taken == 1e3 or name.startswith("SDPA") and taken.startswith("not run"), taken
