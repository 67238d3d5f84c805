"""What every test may use: `needs("clang")`, the mark `gpu`, and *not run* as a result of its own.

This file also serves `make gpu-check`, where only torch, einops and pytest are installed."""
import gc
import json
import os
import re
import shutil
import sys
from collections import Counter
from datetime import date
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parent.parent))

# A worker holds a million objects that live as long as it does: to look at all takes a third of a second.
gc.set_threshold(700, 10, 200)

HOW_TO_GET = {"clang": "apt install clang", "aarch64-linux-gnu-g++": "apt install g++-aarch64-linux-gnu",
              "qemu-aarch64": "apt install qemu-user", "chromium": "apt install chromium",
              "nvcc": "NVIDIA's CUDA toolkit"}


@pytest.fixture
def needs():
    """`path = needs("clang")`: where a tool is (the first of several); without one the test is *not run*."""
    def find(*names: str) -> str:
        for name in names:
            if path := shutil.which(name):
                return path
        pytest.skip(f"not run: {' or '.join(names)} is missing "
                    f"({HOW_TO_GET.get(names[0], 'see python -m course_lib doctor')})")
    return find


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: runs on a CUDA device; `make gpu-check` runs these alone")


def pytest_ignore_collect(collection_path, config):
    # `make gpu-check` has no hypothesis and no Jupyter: files without a test for the card stay unimported.
    if config.option.markexpr == "gpu" and collection_path.name.startswith(
            "test_") and collection_path.suffix == ".py":
        if not re.search(r"\bmark\.gpu\b", collection_path.read_text(encoding="utf-8")):
            return True
    return None


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("not run: no CUDA device")


def pytest_runtest_makereport(item, call):
    """A kernel that has spoiled the CUDA context makes every later test red: the run ends at that one."""
    torch = sys.modules.get("torch")
    failed = call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception)
    if failed and torch and item.get_closest_marker("gpu") and torch.cuda.is_available():
        try:
            torch.cuda.synchronize()
        except Exception as problem:
            said = (f"the CUDA context does not work any more after {item.nodeid}: "
                    f"{str(problem).splitlines()[0]}")
            if hasattr(item.config, "workerinput"):     # of pytest-xdist, which starts another in its place
                os.write(2, f"{said}\n".encode())
                os._exit(3)
            pytest.exit(said, 3)


def pytest_report_teststatus(report):
    """A test whose tool is missing is neither passed nor skipped by choice: the closing line counts it."""
    if report.skipped and isinstance(report.longrepr, tuple) and "not run:" in report.longrepr[2]:
        return "not run", "n", ("NOT RUN", {"yellow": True})
    return None


def pytest_terminal_summary(terminalreporter):
    reasons = {}
    for report in terminalreporter.stats.get("not run", ()):
        reason = report.longrepr[2].split("not run:", 1)[1].strip()
        reasons.setdefault(reason, []).append(report.nodeid)
    if reasons:
        terminalreporter.section("not run")
        for reason, tests in sorted(reasons.items()):
            terminalreporter.write_line(f"{len(tests):4d}  {reason}")
    if terminalreporter.config.option.markexpr == "gpu" and not terminalreporter.config.option.keyword:
        write_checked(terminalreporter)
    show_seconds(terminalreporter)


def write_checked(terminalreporter):
    """data/gpu/<card>/checked.json: the cases that were right on this card, small and large, and those that were not."""
    import torch

    if not torch.cuda.is_available():
        return
    from course_lib.gpu.check import folder_of
    from course_lib.gpu.results import sources, write
    made = {"card": torch.cuda.get_device_name(), "date": str(date.today()), "torch": torch.__version__,
            "sources": sources()}
    for word, kind in (("right", "passed"), ("wrong", "failed")):
        names = [report.nodeid for report in terminalreporter.stats.get(kind, ()) if "on_the_card[" in report.nodeid]
        made[word] = sorted(name.partition("[")[2][:-1] for name in names)
    if made["right"]:
        write(folder_of(made["card"]), "checked.json", json.dumps(made, indent=1) + "\n")


# Seconds of a room's tests in `.ci/run` on two cores with a cold cache, and a tenth more: quick, slow.
BUDGET = {"notebooks": (170, 0), "tests/chapters": (105, 265), "tests/engine": (100, 360),
          "tests/exercises": (115, 130), "tests/teaching": (40, 550), "tests/tools": (145, 350),
          "laptop_cuda/asynchronous/tests": (21, 3), "laptop_cuda/programs/tests": (33, 100),
          "laptop_cuda/judge/tests": (3, 50), "laptop_cuda/proofs/tests": (17, 74)}


def show_seconds(terminalreporter):
    """What each room took, set-up included, and its heaviest files: who adds a minute sees it."""
    rooms, files = Counter(), Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "nodeid") and hasattr(report, "duration"):
                file = report.nodeid.split("::")[0]
                files[file] += report.duration
                rooms["/".join(file.split("/")[:-1])] += report.duration
    if sum(rooms.values()) < 60:
        return
    slow = "not slow" not in (terminalreporter.config.option.markexpr or "")
    terminalreporter.section("seconds by room, and what it may take")
    for room, seconds in rooms.most_common():
        budget = BUDGET.get(room, (5, 5))[slow]
        heaviest = ", ".join(f"{file.rsplit('/', 1)[1]} {spent:.0f}" for file, spent in files.most_common()
                             if file.startswith(f"{room}/") and spent > 5)[:160]
        terminalreporter.write_line(f"{seconds:6.0f} of {budget:4d}{' OVER' if seconds > budget else ''}  "
                                    f"{room}: {heaviest}")
