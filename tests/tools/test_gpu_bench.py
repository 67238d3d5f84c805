"""gpu-bench without a card: what it refuses, what it writes, and that every benchmark can be launched."""
import dataclasses
import json
import math
import time
from types import SimpleNamespace

import pytest
import torch

from course_lib import cuda
from course_lib.gpu import bench as gpu_bench, clock, pretend
from course_lib.gpu.benchmarks import Benchmark, benchmarks
from course_lib.gpu.case import Case
from course_lib.gpu.results import gpu_table, kernels_of

LIMITS = {"copy_bytes_per_second": 1e12, "read_bytes_per_second": 0.9e12, "product_flops_per_second": 1e14}


class Given:
    """A clock that runs the work once and answers with given times."""
    def __init__(self, *times):
        self.given = times

    def times(self, work):
        work()
        return list(self.given)

    def state(self):
        return "clocks: as given"


def benchmark(run=torch.exp, **changes):
    case = Case(chapter="rope", kernels=("rope_half",), inputs=lambda draw, n: (draw(n),), run=run,
                oracle=torch.exp, small=({"n": 7},))
    made = Benchmark(case, "rope_half", {"n": 1000}, lambda n: (8 * n, n),
                     {"torch.exp": lambda x: lambda: torch.exp(x)})
    return dataclasses.replace(made, **changes)


@pytest.fixture
def one_case(monkeypatch):
    gpu_bench.red.cache_clear()
    monkeypatch.setattr(gpu_bench, "CASES", (benchmark().case,))


def test_a_row_has_medians_spread_and_shares(one_case):
    row = gpu_bench.measure(benchmark(), Given(1.0, 9.0, 2.0), LIMITS, "cpu")
    assert row["ms"] == 2.0 and row["spread_ms"] == [1.0, 9.0] and row["limit"] == "memory"
    assert (math.isclose(row["share_of_ceiling"], 8000 / 1e12 / 2e-3)
            and math.isclose(row["gb_per_second"], 0.004))
    assert row["peer"] == "torch.exp" and row["share_of_peer"] == 1
    heavy = gpu_bench.measure(benchmark(floor=lambda n: (n, 1e9)), Given(2.0), LIMITS, "cpu")
    assert heavy["limit"] == "arithmetic" and math.isclose(heavy["share_of_ceiling"], 1e9 / 1e14 / 2e-3)


@pytest.mark.parametrize("wrong", [lambda x: x, lambda x: torch.empty_like(x), lambda x: torch.exp(x)[:5]])
def test_no_speed_for_a_kernel_whose_check_is_red(monkeypatch, wrong):
    gpu_bench.red.cache_clear()
    monkeypatch.setattr(gpu_bench, "CASES", (benchmark(wrong).case,))
    row = gpu_bench.measure(benchmark(), Given(1.0), LIMITS, "cpu")
    assert row["refused"].startswith("check is red") and "ms" not in row


def test_no_speed_above_the_ceiling(one_case):
    row = gpu_bench.measure(benchmark(), Given(7e-6), LIMITS, "cpu")
    assert "114 % of the ceiling" in row["refused"] and "ms" not in row


def test_a_peer_that_is_not_there_says_why(one_case):
    def missing(x):
        raise RuntimeError("No available kernel.\nmore")
    row = gpu_bench.measure(benchmark(peers={"cuDNN": missing, "torch.exp": lambda x: lambda: torch.exp(x)}),
                            Given(1.0), LIMITS, "cpu")
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
    assert ("rope_half " in shown and "A card, " in shown
            and "Not measured on a card yet: rope_interleaved" in shown)
    gpu_bench.figure(made, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").stat().st_size > 1000


def test_ceilings_are_bytes_and_operations_per_second():
    best = clock.ceilings(Given(2.0), "cpu", numbers=250, side=10)
    assert (best == {"copy_bytes_per_second": 1e6, "read_bytes_per_second": 5e5,
                     "product_flops_per_second": 1e6})
    assert clock.memory_ceiling({"copy_bytes_per_second": 1.0, "read_bytes_per_second": 2.0}) == 2.0


def test_the_file_is_written_after_every_row(one_case, tmp_path):
    def interrupted(**_):
        raise KeyboardInterrupt
    chosen = [benchmark(), benchmark(floor=interrupted)]
    with pytest.raises(KeyboardInterrupt):
        gpu_bench.run(Given(1.0), "A card", tmp_path, "cpu", chosen, lambda _: None, LIMITS)
    made = json.loads((tmp_path / "bench.json").read_text())
    assert len(made["rows"]) == 1 and not made["complete"]


def test_the_clock_hides_the_host_s_time(monkeypatch):
    """By a clock that the host's work moves, a kernel of 2 ms takes 2 ms, whatever its launch, to a limit."""
    seconds = [0.0]
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: seconds[0]))
    module = cuda.compile("__global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }")

    def work(host):
        seconds[0] += host
        module.twice[1, 8](x)
    with pretend.card(run=False, kernel_ms=2.0, now=lambda: seconds[0]):
        x, watch = torch.ones(8).cuda(), clock.Clock(repeats=6)
        for host in (0.0, 0.004, 0.019):
            assert all(math.isclose(ms, 2.0) for ms in watch.times(lambda: work(host)))
        with pytest.raises(clock.HostTime, match="takes 30.0 ms to queue the work; at most 20 ms"):
            watch.times(lambda: work(0.03))
        calls = iter(range(1000))
        # slow when it counts
        with pytest.raises(clock.HostTime, match="in 6 of 6 runs, so the card waited for it"):
            watch.times(lambda: work(0.0 if next(calls) < 6 else 0.015))


@pytest.mark.slow
def test_no_wrapper_keeps_the_card_waiting():
    """Every benchmark's launches are queued in less host time than a card can sleep through."""
    for item in benchmarks():
        with pretend.card(run=False):
            arguments = item.case.arguments(item.case.small[0], "cuda")
            arguments = item.prepare(*arguments) if item.prepare else arguments
            work = item.run or item.case.run
            work(*arguments)
            took = []
            for _ in range(5):
                began = time.perf_counter()
                work(*arguments)
                took.append(time.perf_counter() - began)
            # the least: other programs may have had the processor in between
            assert min(took) < clock.LONGEST_HOST_MS / 1e3, item.kernel


def test_loading_a_kernel_file_again_is_cheap():
    """Every wrapper does it at every launch; a file is read again only if its time or size has changed."""
    cuda.load("attention")
    began = time.perf_counter()
    for _ in range(100):
        cuda.load("attention")
    assert (time.perf_counter() - began) / 100 < 1e-3


def test_without_a_card_nothing_is_measured(capsys):
    if torch.cuda.is_available():
        pytest.skip("not run: there is a card here")
    assert gpu_bench.main([]) == 1 and "nothing was measured" in capsys.readouterr().err


def test_the_list_is_of_the_course_s_kernels_and_of_the_right_size():
    for item in benchmarks():
        assert item.kernel in kernels_of(item.case.chapter)
        least_bytes, flops = item.floor(**item.shape)
        assert 3e7 < least_bytes < 8e9  # more than an L2, at most a few times what fits beside it
        assert item.case.dtype == torch.float32 or least_bytes > 2.5e8 or flops > 1e11
    assert len({(item.kernel, item.text) for item in benchmarks()}) == len(list(benchmarks()))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(sum(1 for _ in benchmarks())))
def test_every_benchmark_runs(number):
    """With the case's small shape, on the engine; FlexAttention, which would be compiled, is left out."""
    item = list(benchmarks())[number]
    shape = item.case.small[0]
    peers = {name: make for name, make in item.peers.items() if name != "FlexAttention"}
    row = gpu_bench.measure(dataclasses.replace(item, shape=shape, peers=peers), Given(1e3), LIMITS, "cpu")
    assert row["ms"] == 1e3, row
    for name, taken in row["peers_ms"].items():
        assert taken == 1e3 or name.startswith("SDPA") and taken.startswith("not run"), taken
