"""gpu-check without a card: it says so; and what it makes of the tools' output."""
import json
import subprocess
from types import SimpleNamespace

import pytest
import torch

from course_lib.gpu import check as gpu_check, counters as gpu_counters

NO_CARD = pytest.mark.skipif(torch.cuda.is_available(), reason="not run: there is a card here")


@NO_CARD
def test_without_a_card_nothing_is_claimed(capsys):
    assert gpu_check.main([]) == 1
    assert "no CUDA device here, so nothing was checked" in capsys.readouterr().err


def table(launches, change=None):
    """What ncu prints for [(kernel, counts)]: its own lines, then a line a launch and metric, in no useful order."""
    head = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",' \
           '"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
    lines = []
    for i, (kernel, counts) in enumerate(launches):
        excess = counts["shared excess wavefronts"]
        values = {gpu_counters.METRICS[what]: counts[what] for what in gpu_counters.COMPARED[:4]}
        values |= {"memory_l1_wavefronts_shared": 1000 + excess, "memory_l1_wavefronts_shared_ideal": 1000}
        for metric, value in values.items():
            lines.append(f'"{i}","17","python3.12","127.0.0.1","void {kernel}<float, 4>(const float *, int)","1","7","(128, 1, 1)",'
                         f'"(4, 1, 1)","0","9.0","Command line profiler metrics","{metric}","request","{value:,}"')
    return "\n".join(["==PROF== Connected to process 17 (/usr/bin/python3.12)", '==PROF== Profiling "x" - 0: 0%....100% - 3 passes',
                      "==PROF== Disconnected from process 17", head, *reversed(lines)])


COUNTS = dict(zip(gpu_counters.COMPARED, (1234, 5678, 90, 1200345, 7)))


def test_the_table_of_ncu_is_read():
    engine = [("softmax_warp", COUNTS), ("rope_heads", COUNTS | {"shared excess wavefronts": 0})]
    assert gpu_counters.parsed(table(engine)) == engine
    with pytest.raises(ValueError, match="no table.*ERR_NVGPUCTRPERM"):
        gpu_counters.parsed("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission")


def test_agreement_is_stated_metric_by_metric():
    engine = [("softmax_warp", COUNTS), ("rope_heads", COUNTS)]
    card = [("softmax_warp", COUNTS), ("rope_heads", COUNTS | {"global load sectors": 5679, "shared excess wavefronts": None})]
    made = gpu_counters.agreement(engine, card)
    assert made["kernels"] == 2
    assert made["metrics"]["global load requests"] == {"launches": 2, "equal": 2, "differ": []}
    assert made["metrics"]["global load sectors"] == {"launches": 2, "equal": 1, "differ": ["rope_heads"]}
    assert made["metrics"]["shared excess wavefronts"]["launches"] == 1
    with pytest.raises(ValueError, match="same kernels"):
        gpu_counters.agreement(engine, card[:1])


def test_counters_are_written(monkeypatch, tmp_path):
    engine = [("softmax_warp", COUNTS)]
    monkeypatch.setattr(gpu_counters, "counted", lambda: engine)
    monkeypatch.setattr(subprocess, "run", lambda command, **how: SimpleNamespace(stdout=table(engine), stderr=""))
    said = gpu_counters.compare("ncu", "A card", "2026-01-02", tmp_path / "a_card")
    assert said.splitlines()[0] == "global load requests: equal in 1 of 1 launches"
    made = json.loads((tmp_path / "a_card" / "counters.json").read_text())
    assert made["card"] == "A card" and made["launches"][0]["engine"] == made["launches"][0]["ncu"]


def test_at_least_twelve_kernels_are_watched():
    cases = gpu_counters.watched_cases()
    assert len(set(gpu_counters.WATCHED)) >= 12 and len({case.name for case in cases}) == len(cases)
    assert set(gpu_counters.WATCHED) <= {kernel for case in cases for kernel in case.kernels}
    assert "--clock-control" in gpu_counters.command("ncu")


def test_the_engine_counts_what_ncu_would_watch(monkeypatch):
    few = [case for case in gpu_counters.watched_cases() if case.chapter == "rope"]
    monkeypatch.setattr(gpu_counters, "watched_cases", lambda: few)
    names = [name for name, _ in gpu_counters.counted()]
    assert names == ["rope_interleaved", "rope_interleaved_vec4", "rope_half_vec4", "rope_heads"]


@pytest.mark.parametrize("output, status, said, result", [
    ("========= ERROR SUMMARY: 0 errors", 0, "memcheck: no errors", 0), ("========= ERROR SUMMARY: 2 errors", 86, "memcheck: errors", 1),
    ("Device not supported", 1, "memcheck could not run here", 0)])
def test_what_compute_sanitizer_says(monkeypatch, capsys, output, status, said, result):
    monkeypatch.setattr(subprocess, "run", lambda command, **how: SimpleNamespace(stdout=output, stderr="", returncode=status))
    assert gpu_check.sanitized("compute-sanitizer") == result
    assert said in capsys.readouterr().out
    assert gpu_check.sanitized(None) == 0 and "not run" in capsys.readouterr().out


def test_a_card_has_a_folder():
    assert gpu_check.folder_of("NVIDIA H100 80GB HBM3").name == "nvidia_h100_80gb_hbm3"
