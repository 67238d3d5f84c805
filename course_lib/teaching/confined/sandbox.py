"""Running a student's code in a process that can do no harm. What that process says is treated as untrusted.

    with Sandbox() as sandbox:
        reply = sandbox.run(request, source)        # a results.Request and text -> a Reply

One process with torch loaded waits, and forks once for each run (a few milliseconds); the fork builds its
walls (`walls.py`), runs the code, sends plain data back (`wire.py`) and is ended with all it started."""
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from . import walls
from course_lib.exercises.running import wire
from .reach import (ENGINE, HERE, PACKAGE, closed_to_others, engine_runtime, hidden_paths, library_paths,
                    readable_paths, spare_uid, tool_folders, UIDS)
from .reply import Reply, SandboxError, read_reply
from course_lib.exercises.running.results import Request

# All that the child has of the course, besides the engine.
CHILD_FILES = ("teaching.confined.walls", "teaching.confined.watching",
               *(f"exercises.running.{name}" for name in (
                   "wire", "results", "values", "watch", "limits", "first_nan", "namespace", "runner", "answers",
                   "kernel_runner")))


@dataclass(frozen=True)
class Limits:
    """What one run may take."""
    seconds: float = 20.0           # of wall-clock time
    cpu: int = 20                   # of processor time, one process
    memory: int = 3 << 30           # address space of one process, beyond what torch has mapped
    resident: int = 1 << 30         # memory really used, all processes of the run
    processes: int = 32             # threads included
    file_bytes: int = 64 << 20      # one file
    disk_bytes: int = 128 << 20     # all files of the run
    output_bytes: int = 64 << 10    # kept of what it prints past Python
    reply_bytes: int = 64 << 20


class Sandbox:
    """A warm process to run students' code in. Not shared between threads."""

    def __init__(self, strict: bool = True, hide=()):
        """`strict`: refuse to run if a wall cannot be built; else build those that can be."""
        if not hasattr(os, "fork"):
            raise SandboxError(walls.missing()[0])
        self.strict = strict
        self.base = Path(tempfile.mkdtemp(prefix="course-marking-"))
        self.base.chmod(0o711)
        self.readable, self.listable = readable_paths(hidden_paths(hide))
        self.first_uid = self.uid = spare_uid()
        self.search = bool(self.uid) and closed_to_others(self.readable)
        self.runs = 0
        self.process = self.control = None
        self.is_ready = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def start(self) -> None:
        """Start the warm process, unless it runs; `ready` waits for it."""
        if self.process is not None and self.process.poll() is None:
            return
        self.stop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        files = {f"course_lib.{name}": str(PACKAGE / f"{name.replace('.', '/')}.py") for name in CHILD_FILES}
        config = {"sys_path": library_paths(), "files": files, "engine": str(ENGINE)}
        self.log = tempfile.TemporaryFile()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", str(HERE / "child.py"), str(theirs.fileno()), json.dumps(config)],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                env=self.environment(self.base), cwd=self.base, start_new_session=True)
        self.control, self.is_ready = ours, False
        self.control.settimeout(60)

    def ready(self) -> None:
        """Wait until the warm process has loaded torch."""
        if self.is_ready:
            return
        self.is_ready = self._line() == b"ready"
        if not self.is_ready:
            self.log.seek(0)
            said = self.log.read()[-2000:].decode(errors="replace")
            self.stop()
            raise SandboxError(f"the marking process did not start:\n{said}")

    def environment(self, folder: Path) -> dict[str, str]:
        """Only what Python and a compiler need of this process's environment."""
        kept = {k: v for k, v in os.environ.items() if k in ("LD_LIBRARY_PATH", "CXX", "CC", "SYSTEMROOT")}
        return {**kept, "PATH": os.pathsep.join([*tool_folders(), os.defpath]), "HOME": str(folder), "TMPDIR": str(folder), "LANG": "C.UTF-8",
                "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0",
                "LAPTOP_CUDA_CACHE": str(folder / "build"),
                "LAPTOP_CUDA_PRECOMPILED": "0", "PYTHONDONTWRITEBYTECODE": "1"}

    def stop(self) -> None:
        if self.control is not None:
            self.control.close()
        if self.process is not None:
            try:
                self.process.wait(2)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.log.close()
        self.process = self.control = None

    def close(self) -> None:
        self.stop()
        _remove(self.base)

    def run(self, request: Request, source: str, limits: Limits | None = None) -> Reply:
        """Run a student's source on the request's inputs. Never raises for anything the student did."""
        limits = limits or Limits(seconds=request.limit + 5, cpu=int(request.limit) + 5)
        task = {"request": {f.name: getattr(request, f.name) for f in fields(request)}, "source": source,
                "limit": limits.reply_bytes}
        message = wire.pack(task)
        for attempt in (1, 2):
            try:
                self.start()
                self.ready()
                return self._run(message, limits, engine=request.language == "cuda")
            except (OSError, json.JSONDecodeError):            # the warm process has ended: try a second one
                self.stop()
        return Reply(trouble="the marking process was ended twice while this code ran")

    def _folder(self, engine: bool) -> Path:
        """A new folder for one run: empty, but for the engine's compiled runtime where a kernel needs it."""
        self.runs += 1
        if self.first_uid:      # another user per run: a process left behind could not disturb the next
            self.uid = self.first_uid + self.runs % UIDS
        folder = self.base / f"run{self.runs}"
        folder.mkdir(mode=0o700)
        for runtime in engine_runtime() if engine else ():
            shutil.copytree(runtime, folder / "build" / "cuda" / runtime.name)
        if self.uid:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, self.uid, self.uid)
        return folder

    def _run(self, message: bytes, limits: Limits, engine: bool) -> Reply:
        folder = self._folder(engine)
        reply_read, reply_write = os.pipe()
        output_read, output_write = os.pipe()
        try:
            with tempfile.TemporaryFile() as request:
                request.write(message)
                request.flush()
                os.lseek(request.fileno(), 0, os.SEEK_SET)
                job = json.dumps(self._job(folder, limits)).encode()
                socket.send_fds(self.control, [job], [request.fileno(), reply_write, output_write])
            os.close(reply_write)
            os.close(output_write)
            reply_write = output_write = None
            reply, output, cut = self._listen(reply_read, output_read, limits)
            if (ended := json.loads(self._line())) is None:
                raise OSError("the marking process ended")
        finally:
            for fd in (reply_read, output_read, reply_write, output_write):
                if fd is not None:
                    os.close(fd)
            _remove(folder)
        return read_reply(reply, output.decode("utf-8", "replace"), ended, cut)

    def _job(self, folder: Path, limits: Limits) -> dict:
        linux = sys.platform == "linux"
        version = walls.landlock_version()
        return {"folder": str(folder), "environment": self.environment(folder), "walls": linux,
                "strict": self.strict, "landlock": version,
                "seccomp": linux and (self.strict or walls.has_seccomp()),
                "uid": self.uid if version or not self.search else 0, "keep_search": self.search,
                "readable": self.readable, "listable": self.listable, **asdict(limits)}

    def _listen(self, reply_fd: int, output_fd: int, limits: Limits) -> tuple[bytes, bytes, str]:
        """Read both pipes until their last writer closes them; end the run once the answer is complete."""
        reply, output, told, cut = bytearray(), bytearray(), False, ""
        waiting = {reply_fd, output_fd}
        deadline = time.monotonic() + limits.seconds + 30
        while waiting:
            ready, _, _ = select.select(list(waiting), [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise OSError("the marking process does not end its run")
            for fd in ready:
                data = os.read(fd, 1 << 16)
                if not data:
                    waiting.discard(fd)
                elif fd == output_fd:
                    output += data[:max(0, limits.output_bytes - len(output))]
                elif len(reply) <= limits.reply_bytes + 16:
                    reply += data
            complete = len(reply) >= 8 and len(reply) >= 8 + int.from_bytes(reply[:8], "little")
            if not told and (complete or len(reply) > limits.reply_bytes + 16):
                cut = "" if complete else "its answer is too large"
                self.control.send(b"x")
                told = True
        return bytes(reply), bytes(output), cut

    def _line(self) -> bytes:
        line = bytearray()
        while not line.endswith(b"\n"):
            byte = self.control.recv(1)
            if not byte:
                return b"null" if not line else bytes(line)
            line += byte
        return bytes(line).strip()


def _remove(folder: Path) -> None:
    """Remove a folder that a student's code may have filled with anything."""
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        subprocess.run(["chmod", "-R", "u+rwX", "--", str(folder)], stderr=subprocess.DEVNULL)
        subprocess.run(["rm", "-rf", "--", str(folder)], stderr=subprocess.DEVNULL)
