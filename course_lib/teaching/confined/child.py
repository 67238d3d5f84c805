"""The other side of `sandbox.py`: a process with torch loaded that forks once for each student's piece.

It is started by path, knows only the files named to it, and serves one job at a time: fork, build the walls,
run, answer, and end everything that the job has started. Nothing it holds is secret."""
# over the guide: the child loads this file by its path, without the package around it
import importlib.util
import json
import os
import select
import signal
import socket
import sys
import tempfile
import time
import types
from dataclasses import asdict
from pathlib import Path

LOOK = 0.05         # seconds between two looks at a job's memory and files


def main(control: socket.socket, config: dict) -> None:
    """Serve jobs until the other end hangs up."""
    sys.path[:] = config["sys_path"]
    load(config)
    if sys.platform == "linux":
        walls.LIBC.prctl(36, 1, 0, 0, 0)  # orphans of a job become our children, so that none is lost
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    control.sendall(b"ready\n")
    while True:
        message, fds, _, _ = socket.recv_fds(control, 65536, 3)
        if not message:
            return
        message = message.lstrip(b"x")                # told to stop a job that had ended by itself
        if not message:
            continue
        job = json.loads(message)
        if sys.platform == "linux" and not job["uid"]:  # the limit counts everything that this user runs
            job["processes"] += walls.tasks_of_user(os.getuid())
        said, say = os.pipe()  # whether the walls were built: closed before the student's code begins
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            os.close(woken)
            os.close(wake)
            serve(job, *fds, say)                     # never returns
        for fd in (*fds, say):
            os.close(fd)
        ended = supervise(pid, job, control, woken)
        with os.fdopen(said, "rb") as stream:
            ended["walls"] = stream.read(4000).decode(errors="replace")
        control.sendall(json.dumps(ended).encode() + b"\n")


def load(config: dict) -> None:
    """Import the named files of the course alone, as their modules, without the packages around them."""
    packages = {name[:at] for name in config["files"] for at, sign in enumerate(name) if sign == "."}
    for name in sorted(packages):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = []
    for name, path in config["files"].items():
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        globals()[name.rpartition(".")[2]] = module
        setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], module)
    sys.modules["torch"].set_num_threads(1)
    warm_up()
    load_engine(Path(config["engine"]))


def load_engine(folder: Path) -> None:
    """Import the engine from its folder; the folder above, which holds the course, stays off the path."""
    spec = importlib.util.spec_from_file_location(folder.name, folder / "__init__.py",
                                                  submodule_search_locations=[str(folder)])
    sys.modules[folder.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(sys.modules[folder.name])
    except Exception as error:                        # no engine on this machine: kernels say so themselves
        print(f"{folder.name}: {error}", file=sys.stderr)


def warm_up() -> None:
    """Run something small, so that every fork has what torch imports at first use."""
    request = results.Request(id="0.0", language="python", name="f", value=False, is_class=False, call=None,
                              limit=60, inputs=[((wire.torch.zeros(2, 2), ), {})],
                              given={"torch": ("module", "torch"), "einops": ("module", "einops")})
    request.forbid = ("logsumexp",)
    runner.run(request, "def f(x):\n    return torch.softmax(x @ x.mT, -1) / 0 * 0")


def serve(job: dict, request: int, reply: int, output: int, say: int) -> None:
    """Build the walls, run the request, write one reply, end."""
    leave, write = os._exit, os.write
    try:
        try:
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for source, target in ((null, 0), (output, 1), (output, 2)):
                os.dup2(source, target)
            # renumber, so that everything above can be closed, whatever the parent had open
            request, reply, say = (os.dup2(fd, 200 + n, inheritable=False)
                                   for n, fd in enumerate((request, reply, say)))
            os.closerange(3, 200)
            os.closerange(203, 65536)
            os.environ.clear()
            os.environ.update(job["environment"])
            os.chdir(job["folder"])
            build(job)
        except BaseException as error:
            write(say, f"{type(error).__name__}: {error}".encode())
            leave(1)
        write(say, b"ok")
        os.close(say)
        with os.fdopen(request, "rb") as stream:
            task = wire.unpack(stream.read())
        tempfile.tempdir = None  # torch has asked for it already: look again, in the new environment
        answer = carry_out(task)
        frame = len(answer).to_bytes(8, "little") + answer
        while frame:
            frame = frame[write(reply, frame):]
    finally:
        leave(0)


def build(job: dict) -> None:
    """Everything this process gives up, in order. Unless strict, a wall that cannot be built is left out."""
    ruleset = []
    steps = [(lambda: walls.limit(job["cpu"], job["memory"], job["processes"], job["file_bytes"]), True),
             (lambda: ruleset.append(walls.landlock(job["readable"], job["listable"], job["folder"])),
              job["landlock"]), (lambda: walls.drop(job["uid"], job["keep_search"]), job["uid"]),
             (walls.no_new_privileges, job["walls"]), (lambda: walls.enforce(ruleset.pop()), job["landlock"]),
             (lambda: walls.filter_calls(signals_scoped=job["landlock"] >= 6), job["seccomp"])]
    for step, wanted in steps:
        try:
            if wanted:
                step()
        except Exception:
            if job["strict"]:
                raise


def carry_out(task: dict) -> bytes:
    """Run a student's source as the request says. The answer is a claim, treated as one."""
    request = results.Request(**task["request"])
    answer = answers.plain_run(runner.run(request, task["source"]))
    try:
        return wire.pack(answer, task["limit"])
    except wire.WireError as error:
        failure = asdict(results.Failure("exception", f"the answer cannot be handed in: {error}"))
        return wire.pack({"outcomes": [], "failure": failure, "printed": ""})


def supervise(pid: int, job: dict, control: socket.socket, woken: int) -> dict:
    """Wait for the job; stop it when it is told to, or takes too much; leave none of its processes."""
    deadline, before, waited = time.monotonic() + job["seconds"], processor_time(), {}
    stopped = status = None
    while status is None and not stopped:
        ready, _, _ = select.select([control, woken], [], [], LOOK)
        if woken in ready:
            os.read(woken, 4096)
        if control in ready and control.recv(1, socket.MSG_PEEK)[:1] in (b"", b"x"):
            stopped = "told"
            control.recv(1)
        watching.note_waiting(waited)
        status = reap(pid)
        if status is None and not stopped:
            stopped = "time" if time.monotonic() > deadline else watching.taken_too_much(job)
    end_all(pid)
    if status is None:
        status = reap(pid, wait=True)
    return {"status": status, "stopped": stopped, "cpu": processor_time() - before,
            "starved": sum(waited.values())}


def processor_time() -> float:
    """Seconds of processor time of all processes below this one that have ended."""
    spent = os.times()
    return spent.children_user + spent.children_system


def reap(pid: int, wait: bool = False) -> int | None:
    """The exit status of the job's first process (negative: a signal), or None. Buries orphans too."""
    found = None
    while True:
        try:
            ended, status = os.waitpid(pid if wait else -1, 0 if wait else os.WNOHANG)
        except ChildProcessError:
            return found if found is not None else REAPED.pop(pid, 0 if wait else None)
        if not ended:
            return found
        code = os.waitstatus_to_exitcode(status)
        if ended == pid:
            found = code
            REAPED[pid] = code
            if wait:
                return code


REAPED: dict[int, int] = {}


def end_all(pid: int) -> None:
    """Kill every process that descends from this one. A stopped process cannot fork: stop all first."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    while sys.platform == "linux":
        living, seen = watching.descendants(), set()
        while living - seen:
            for process in living - seen:
                _signal(process, signal.SIGSTOP)
            seen |= living
            living = watching.descendants()
        if not seen:
            break
        for process in seen:
            _signal(process, signal.SIGKILL)
        while True:                                   # bury, keeping the first one's status for `reap`
            try:
                ended, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not ended:
                time.sleep(0.001)
                break
            REAPED[ended] = os.waitstatus_to_exitcode(status)
    for old in [p for p in REAPED if p != pid]:
        del REAPED[old]


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), json.loads(sys.argv[2]))
    os._exit(0)         # torch takes a second to take itself down
