"""Nothing that a submission does earns a mark, reaches another's work, or stops the grader."""
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from adversaries import forget_private_exercises, hostile
from course_lib.teaching.marks import marking
from course_lib.exercises.running.results import Request
from course_lib.teaching.confined.reach import hidden_paths, readable_paths
from course_lib.teaching.confined.probe import missing_walls
from course_lib.teaching.confined.sandbox import Limits, Sandbox
from hand_ins import linux

TESTS = Path(__file__).resolve().parents[1]
COURSE = TESTS.parent


@pytest.fixture(scope="module")
def sandbox():
    marking.load_private(str(TESTS / "adversaries" / "exercises"))
    with Sandbox(hide=[TESTS]) as made, pytest.MonkeyPatch.context() as screen:
        screen.setattr("course_lib.exercises.judging.screen.LOOKS_INSIDE", set())       # the walls must hold alone
        made.start()                                     # what is refused unread would not start it
        yield made
    forget_private_exercises()


def marked(sandbox, source: str, id: str = ""):
    source = source.replace("COURSE", str(COURSE))
    exercise = marking.find(id or ("1.92" if "def attend" in source else "1.91"))
    return marking.mark(exercise, source, 7, sandbox)


@linux
def test_every_wall_holds(sandbox):
    assert missing_walls(sandbox) == []


@linux
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (at % 4 > 0))
                                  for at, name in enumerate(hostile.QUICK)])
def test_a_hostile_cell_earns_nothing_and_harms_nobody(sandbox, name):
    before = sorted((COURSE / "course_lib" / "exercises").rglob("*.py"))
    verdict = marked(sandbox, hostile.QUICK[name])
    assert verdict.status == "wrong" and verdict.points == 0, str(verdict)
    assert marked(sandbox, hostile.HONEST).status == "passed"
    assert not any(path.read_text().endswith("raise SystemExit") for path in (*before, Path(torch.__file__)))
    assert not Path("/tmp/course-adversary").exists()


@linux
def test_a_longer_cell_than_is_read_earns_nothing(sandbox):
    for source, id in ((hostile.HONEST, "1.91"), (hostile.CUDA_HONEST, "1.94")):
        assert "longer than 30,000" in marked(sandbox, source + "\n" + " " * 31_000, id).headline


@linux
@pytest.mark.slow
@pytest.mark.parametrize("name", hostile.HEAVY)
def test_a_greedy_cell_is_ended(sandbox, name, monkeypatch):
    begin, run = time.monotonic(), sandbox.run
    with monkeypatch.context() as sooner:       # its alarm after 2 s and its end after 4, for 5 and 10
        sooner.setattr(sandbox, "run", lambda request, source: run(
            replace(request, limit=2.0), source, Limits(seconds=4, cpu=3)))
        verdict = marked(sandbox, hostile.HEAVY[name])
    assert verdict.status == "wrong" and verdict.points == 0, str(verdict)
    assert time.monotonic() - begin < 90        # on a busy machine after a second, longer run
    assert marked(sandbox, hostile.HONEST).status == "passed"
    assert not strangers(sandbox), "a process of the submission is still there"


@linux
def test_a_kernel_is_compiled_and_run_behind_the_walls(sandbox, needs_engine):
    verdict = marked(sandbox, hostile.CUDA_HONEST, "1.94")
    assert verdict.status == "passed", str(verdict)
    wrong = marked(sandbox, hostile.CUDA_HONEST.replace("if (i < n) ", ""), "1.94")
    assert wrong.misconception == "writes past the end", str(wrong)


@linux
@pytest.mark.slow
@pytest.mark.parametrize("name", hostile.CUDA)
def test_a_hostile_kernel_earns_nothing(sandbox, kernels_go_on, name):
    verdict = marked(sandbox, hostile.CUDA[name], "1.94")
    assert verdict.status == "wrong" and verdict.points == 0, str(verdict)
    assert marked(sandbox, hostile.HONEST).status == "passed" and not strangers(sandbox)


@pytest.fixture(scope="module")
def needs_engine():
    if marking.no_engine():
        pytest.skip("not run: no compiler for kernels on this machine")


@pytest.fixture(scope="module")
def kernels_go_on(sandbox, needs_engine):
    """After all of the hostile ones, an honest kernel is still right: it takes seconds to compile."""
    yield
    assert marked(sandbox, hostile.CUDA_HONEST, "1.94").status == "passed"


def strangers(sandbox) -> list[str]:
    """Processes below the sandbox's warm one."""
    listed = subprocess.run(["ps", "-o", "pid=,stat=,args=", "--ppid", str(sandbox.process.pid)],
                            capture_output=True, text=True)
    return [line for line in listed.stdout.splitlines() if line.split()[1][0] != "Z"]


@linux
def test_the_reason_is_said(sandbox):
    said = {name: str(marked(sandbox, hostile.QUICK[name]))
            for name in ("ends the process", "crashes", "calls torch's attention by a made-up name",
                         "forges a reply", "imports the solution")}
    assert "ended the process" in said["ends the process"] and "crashed" in said["crashes"]
    assert "scaled_dot_product_attention" in said["calls torch's attention by a made-up name"]
    assert "no answer" in said["forges a reply"] and "course_lib" in said["imports the solution"]


def test_what_is_hidden_is_nowhere_below_what_is_readable():
    hidden = hidden_paths([TESTS])
    readable, listable = readable_paths(hidden)
    engine = COURSE / "laptop_cuda"
    for path in map(Path, readable):
        for secret in (COURSE / "course_lib" / "attention" / "functions.py",
                       COURSE / "course_lib" / "exercises", TESTS, COURSE / "kernels" / "x.cu"):
            assert path != secret and path not in secret.parents, path
    assert (str(engine) in readable
            and any(Path(p) in Path(torch.__file__).resolve().parents for p in readable))


def test_a_course_inside_the_environment_is_cut_out(tmp_path, monkeypatch):
    """As with `pip install .`: the course then lies beside torch."""
    site = tmp_path / "site-packages"
    for name in ("torch/lib", "course_lib/exercises", "numpy"):
        (site / name).mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(site)])
    readable, listable = readable_paths([site / "course_lib"])
    assert {str(site / "torch"), str(site / "numpy")} <= set(readable) and str(site) in listable
    assert not any(Path(p) == site or site / "course_lib" in (Path(p), *Path(p).parents) for p in readable)


def request(**more) -> Request:
    return Request(id="1.91", language="python", name="f", value=False, is_class=False,
                   given={"torch": ("module", "torch")}, call=None, inputs=[((torch.arange(4.),), {})],
                   limit=2, **more)


@linux
def test_a_run_sees_an_empty_folder_and_a_clean_environment(sandbox, monkeypatch):
    monkeypatch.setenv("MY_SECRET_TOKEN", "x")
    monkeypatch.setenv("PATH", f"/home/marker:{os.environ['PATH']}")
    source = "import os\ndef f(x):\n    return [os.listdir(), sorted(os.environ), os.environ['PATH']]"
    files, names, path = sandbox.run(request(), source).run.outcomes[0].value
    assert files == [] and "MY_SECRET_TOKEN" not in names and "/bin" in path and "/home/marker" not in path


@linux
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="not run: this is not root")
def test_root_is_given_up(sandbox):
    source = "import os\ndef f(x):\n    return [os.getuid(), os.geteuid(), os.getgid(), len(os.getgroups())]"
    uid, effective, group, groups = sandbox.run(request(), source).run.outcomes[0].value
    assert uid == effective == group == sandbox.uid > 0 and groups == 0


@linux
def test_a_run_can_write_in_its_folder_and_import_torch_lazily(sandbox):
    source = ("import os\n"
              "def f(x):\n"
              "    open('a', 'w').write('b')\n"
              "    import torch.distributions, numpy.fft\n"
              "    os.system('echo c > d')\n"
              "    return [open('a').read(), open('d').read()]")
    assert sandbox.run(request(), source).run.outcomes[0].value == ["b", "c\n"]


@linux
def test_a_dead_warm_process_is_replaced(sandbox):
    sandbox.start()
    os.kill(sandbox.process.pid, signal.SIGKILL)
    assert marked(sandbox, hostile.HONEST).status == "passed"


@linux
def test_work_that_its_warm_process_left_is_done_again(sandbox):
    sandbox.start()
    sandbox.ready()
    first = sandbox.process
    threading.Timer(0.5, first.kill).start()
    assert sandbox.run(request(), "import time\ndef f(x):\n    time.sleep(1)\n    return x").run is not None
    assert sandbox.process is not first


@linux
def test_the_end_of_a_run_may_come_after_it_has_ended(sandbox):
    sandbox.start()
    sandbox.ready()
    warm = sandbox.process
    sandbox.control.send(b"x")
    for _ in range(2):
        assert sandbox.run(request(), "def f(x):\n    return x").run is not None
    assert sandbox.process is warm


@linux
def test_limits_are_limits(sandbox):
    small = Limits(seconds=1, output_bytes=100)
    begin = time.monotonic()
    reply = sandbox.run(request(), "import os, time\ndef f(x):\n    os.write(1, b'y' * 5000)\n    "
                        "time.sleep(60)", limits=small)
    assert reply.run is None and "in time" in reply.trouble and time.monotonic() - begin < 5
    assert reply.output == "y" * 100


@linux
def test_folders_are_gone_afterwards():
    with Sandbox() as made:
        made.run(request(), "def f(x):\n    open('a', 'w')\n    return x")
        base = made.base
        assert list(base.glob("run*")) == []
    assert not base.exists()


@linux
def test_a_run_costs_little(sandbox):
    taken = []
    for _ in range(10):
        begin = time.monotonic()
        assert sandbox.run(request(), "def f(x):\n    return x + 1").run is not None
        taken.append(time.monotonic() - begin)
    assert min(taken) < 0.5                              # the others waited for a processor
