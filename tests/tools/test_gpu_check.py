"""gpu-check and gpu-first without a card: they say so, what they make of the tools' output, order and limits."""
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from course_lib.gpu import check as gpu_check, counters as gpu_counters, first, pretend, registers
from course_lib.gpu.benchmarks import benchmarks
from course_lib.gpu.first import Step

NO_CARD = pytest.mark.skipif(torch.cuda.is_available(), reason="not run: there is a card here")


@NO_CARD
def test_without_a_card_nothing_is_claimed(capsys):
    assert gpu_check.main([]) == 1
    assert "no CUDA device here, so nothing was checked" in capsys.readouterr().err


def table(launches, change=None):
    """ncu's output for [(kernel, counts)]: its own lines, then one per launch and metric, unsorted."""
    head = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",' \
           '"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
    lines = []
    for i, (kernel, counts) in enumerate(launches):
        for metric, value in ((gpu_counters.METRICS[what], value) for what, value in counts.items()):
            lines.append(f'"{i}","17","python3.12","127.0.0.1","void {kernel}<float, 4>(const float *, '
                         'int)","1","7","(128, 1, 1)","(4, 1, 1)","0","9.0","Command line profiler '
                         f'metrics","{metric}","request","{value:,}"')
    return "\n".join(["==PROF== Connected to process 17 (/usr/bin/python3.12)",
                      '==PROF== Profiling "x" - 0: 0%....100% - 3 passes',
                      "==PROF== Disconnected from process 17", head, *reversed(lines)])


COUNTS = dict(zip(gpu_counters.METRICS, (1234, 5678, 90, 1200345, 7)))


def test_the_table_of_ncu_is_read():
    engine = [("softmax_warp", COUNTS), ("rope_heads", COUNTS | {"shared wavefronts": 0})]
    assert gpu_counters.parsed(table(engine)) == engine
    with pytest.raises(gpu_counters.NotAllowed, match="ERR_NVGPUCTRPERM"):
        gpu_counters.parsed("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission")
    with pytest.raises(ValueError, match="no table.*something else"):
        gpu_counters.parsed("==ERROR== something else")


def test_agreement_is_stated_metric_by_metric():
    engine = [("softmax_warp", COUNTS), ("rope_heads", COUNTS)]
    card = [("softmax_warp", COUNTS),
            ("rope_heads", COUNTS | {"global load sectors": 5679, "shared wavefronts": None})]
    made = gpu_counters.agreement(engine, card)
    assert made["kernels"] == 2
    assert made["metrics"]["global load requests"] == {"launches": 2, "equal": 2, "differ": []}
    assert made["metrics"]["global load sectors"] == {"launches": 2, "equal": 1, "differ": ["rope_heads"]}
    assert made["metrics"]["shared wavefronts"]["launches"] == 1
    with pytest.raises(ValueError, match="cut off: it holds the first 1 of 2"):
        gpu_counters.agreement(engine, card[:1])
    with pytest.raises(ValueError, match="same kernels"):
        gpu_counters.agreement(engine, card[::-1])


def test_counters_are_written(monkeypatch, tmp_path):
    engine = [("softmax_warp", COUNTS)]
    monkeypatch.setattr(gpu_counters, "counted", lambda: engine)
    monkeypatch.setattr(subprocess,
                        "run", lambda command, **how: SimpleNamespace(stdout=table(engine), stderr="",
                                                                      returncode=0))
    said = gpu_counters.compare("ncu", "A card", "2026-01-02", tmp_path / "a_card")
    assert said.splitlines()[0] == "global load requests: equal in 1 of 1 launches"
    made = json.loads((tmp_path / "a_card" / "counters.json").read_text())
    assert made["card"] == "A card" and made["launches"][0]["engine"] == made["launches"][0]["ncu"]


def test_at_least_twelve_kernels_are_watched():
    cases = gpu_counters.watched_cases()
    assert len(gpu_counters.watched_kernels()) >= 12 and len({case.chapter for case in cases}) >= 8
    assert gpu_counters.command("ncu", ["a", "b"], ["one", "two"], "here")[-6:-3] == [
        "regex:^(a|b)$", "--metrics", "one,two"]


def test_the_engine_counts_what_ncu_would_watch(monkeypatch):
    few = [case for case in gpu_counters.watched_cases() if case.chapter == "rope"]
    monkeypatch.setattr(gpu_counters, "watched_cases", lambda: few)
    names = [name for name, _ in gpu_counters.counted()]
    assert names == ["rope_interleaved", "rope_interleaved_vec4", "rope_half_vec4", "rope_heads"]


@pytest.mark.parametrize("output, status, said, result",
                         [("========= ERROR SUMMARY: 0 errors", 0, "memcheck: no errors", 0),
                          ("========= ERROR SUMMARY: 2 errors", 86, "memcheck: errors", 1),
                          ("========= ERROR SUMMARY: 0 errors", 1,
                           "memcheck: no errors, but the tests under it are red", 1),
                          ("========= RACECHECK SUMMARY: 3 hazards displayed", 86, "racecheck: errors", 1),
                          ("Device not supported", 1, "memcheck could not run here", 0)])
def test_what_compute_sanitizer_says(monkeypatch, capsys, output, status, said, result):
    monkeypatch.setattr(subprocess,
                        "run", lambda command, **how: SimpleNamespace(stdout=output, returncode=status))
    assert gpu_check.sanitized("compute-sanitizer") == result
    assert said in capsys.readouterr().out
    assert gpu_check.sanitized(None) == 0 and "not run" in capsys.readouterr().out


def tool(folder, name, script):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_tools_that_hang_are_ended(tmp_path, capsys):
    assert gpu_check.sanitized(tool(tmp_path, "compute-sanitizer", "echo begun; sleep 60"), limit=0.3) == 0
    assert "compute-sanitizer memcheck did not finish within 0.3 s" in capsys.readouterr().out
    assert gpu_check.counted(tool(tmp_path, "ncu", "sleep 60"), "A card", limit=0.3) == 1
    assert "ncu did not finish within 0.3 s" in capsys.readouterr().out


@pytest.mark.slow
def test_tools_that_may_not_look_are_no_fault(tmp_path, capsys):
    ncu = tool(tmp_path, "ncu", "echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to "
               "access counters'; exit 1")
    assert gpu_check.counted(ncu, "A card", limit=20) == 0
    assert "could not run here" in capsys.readouterr().out


def test_the_tools_run_whatever_was_red(monkeypatch):
    order = []
    monkeypatch.setattr(gpu_check, "build_all", lambda **_: order.append("build"))
    monkeypatch.setattr(gpu_check, "tested", lambda *_: order.append("tests") or 1)
    monkeypatch.setattr(gpu_check, "sanitized", lambda *_: order.append("sanitizer") or 0)
    monkeypatch.setattr(gpu_check, "counted", lambda *_: order.append("ncu") or 0)
    with pretend.card():
        assert gpu_check.main([]) == 1 and order == ["build", "tests", "sanitizer", "ncu"]


def test_a_spoiled_context_ends_the_run_where_it_was_spoiled(monkeypatch, request):
    conftest = next(plugin for plugin in request.config.pluginmanager.get_plugins()
                    if getattr(plugin, "__file__", "") == str(request.config.rootpath / "tests" / "conftest.py"))
    item = SimpleNamespace(nodeid="test_x", get_closest_marker=lambda name: name == "gpu", config=SimpleNamespace())
    failed = SimpleNamespace(excinfo=pytest.raises(ValueError, int, "x"))
    with pretend.card():
        conftest.pytest_runtest_makereport(item, failed)  # an ordinary failure: the next test runs
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: int("illegal memory access"))
        with pytest.raises(pytest.exit.Exception, match="does not work any more after test_x: .*illegal"):
            conftest.pytest_runtest_makereport(item, failed)
        item.config.workerinput = {}        # of several workers this one ends, and another takes its place
        monkeypatch.setattr(conftest.os, "_exit", lambda status: sys.exit(status))
        with pytest.raises(SystemExit):
            conftest.pytest_runtest_makereport(item, failed)


def test_a_card_has_a_folder():
    assert gpu_check.folder_of("NVIDIA H100 80GB HBM3").name == "nvidia_h100_80gb_hbm3"


def step(name, script, limit=20, beside=False):
    return Step(name, [sys.executable, "-c", script], limit, "something", beside)


WAITS = """import pathlib, time; folder = pathlib.Path({!r}); (folder / "{}").touch()
while not (folder / "{}").exists(): time.sleep(.02)"""      # ends only when the other has begun


def test_the_order_is_that_of_a_first_hour():
    assert registers.cell(255, 16, 20) == "255 (16/20)" and registers.cell(12, 0, 0) == "12"
    names = [step.name for step in first.steps()]
    assert names[:8] == ["machine", "build", "tests", "counters", "patterns", "memcheck", "racecheck", "bench"]
    assert len(set(names)) == len(names) and all(step.limit <= 600 for step in first.steps())
    kernels = [item.kernel for item in benchmarks()]
    assert all(number < kernels.count(kernel) for kernel, number in first.CENTRAL)


def test_a_red_step_does_not_stop_the_next_and_the_last_lines_say_what_to_do(tmp_path):
    said = []
    chosen = [step("one", "print('fine')"), step("two", "print('broken'); raise SystemExit(3)"),
              Step("three", ["no-such-tool"], 20, "nothing"), step("four", "import time; time.sleep(60)", 1),
              step("five", "print(5)"),
              step("six", WAITS.format(str(tmp_path), 1, 2)), step("seven", WAITS.format(str(tmp_path), 2, 1), beside=True)]
    outcome = first.go(chosen, 100, tmp_path, lambda text, **_: said.append(text))
    assert outcome == {"one": "done", "two": "red", "three": "missing", "four": "too long", "five": "done",
                       "six": "done", "seven": "done"}
    assert (tmp_path / "two.log").read_text() == "broken\n" and "    broken" in said
    assert json.loads((tmp_path / "first.json").read_text()) == outcome
    closing = first.closing(chosen, outcome, "make gpu-first")
    assert (closing == ["failed; the log says why: two", "did not finish in its time: four",
                        "not run: the tool was not found: three", 'run next: make gpu-first STEPS="four"'])


def test_the_same_command_again_continues(tmp_path):
    chosen = [step("one", f"open({str(tmp_path / 'count')!r}, 'a').write('x')"), step("two", "print(2)", 40)]
    quiet = lambda *_, **__: None
    assert first.go(chosen, 25, tmp_path, quiet) == {"one": "done"}  # too little is left for the second
    assert (first.closing(chosen, {"one": "done"}, "make gpu-first")
            == ['run next: make gpu-first STEPS="two"'])
    outcome = first.go(chosen, 100, tmp_path, quiet)
    assert outcome == {"one": "done", "two": "done"} and (tmp_path / "count").read_text() == "x"
    assert first.closing(chosen, outcome, "")[0].startswith("every step has run: put the results")


def test_without_a_card_nothing_is_run_and_nothing_counts_as_done(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert first.main(["--limit", "60", "--out", str(tmp_path / "out"), "--steps", "tests"]) == 1
    assert "no CUDA device: nothing was run" in capsys.readouterr().out and not (tmp_path / "out").exists()
    with pytest.raises(SystemExit):
        first.main(["--steps", "nothing"])


def test_results_of_the_card_are_collected(tmp_path, monkeypatch):
    card = tmp_path / "data"
    card.mkdir()
    (card / "bench.json").write_text("{}")
    monkeypatch.setattr(first, "folder_of", lambda name: card)
    with pretend.card():
        first.collect(tmp_path)
    assert (tmp_path / "bench.json").read_text() == "{}"
