"""gpu-first without a card: its order and limits, and tools that are missing, refuse, hang or are newer."""
import json
import sys

import pytest

from course_lib.gpu import first, pretend, registers
from course_lib.gpu.benchmarks import benchmarks
from course_lib.gpu.first import Step


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
