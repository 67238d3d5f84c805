"""What became of a run in the sandbox, read from what came back without believing it."""
import signal
from dataclasses import dataclass
from typing import Any

from course_lib.exercises.running import wire
from course_lib.exercises.running.answers import read_run
from course_lib.exercises.running.results import LATE, Run

STOPPED = {"time": "did not end in time", "memory": "took too much memory",
           "disk": "wrote too much to the disk"}


class SandboxError(RuntimeError):
    """The machine cannot do what the sandbox needs; no fault of the student's."""


@dataclass
class Reply:
    """What became of a run: `run` if a well-formed answer came, else `trouble` says why not."""
    run: Run | None = None
    trouble: str = ""
    output: str = ""
    cpu: float = 0.0                # seconds of processor time, all processes of the run
    starved: float = 0.0            # seconds for which it was ready to run and had no processor

    @property
    def late(self) -> bool:
        """Whether the run was ended by the clock."""
        failures = [self.run.failure, *(o.failure for o in self.run.outcomes)] if self.run else []
        return (self.trouble.endswith(STOPPED["time"])
                or any(f and f.message.startswith(LATE) for f in failures))


def read_reply(reply: bytes, output: str, ended: dict, cut: str) -> Reply:
    output = wire.text_of(output)
    used = {"cpu": ended.get("cpu", 0.0), "starved": ended.get("starved", 0.0)}
    if ended["walls"] not in ("", "ok"):
        raise SandboxError(f"a wall could not be built: {ended['walls']}")
    size = int.from_bytes(reply[:8], "little")
    if cut or len(reply) < 8 + size or not size:
        return Reply(trouble=f"no answer came: {cut or _why(ended, reply)}", output=output, **used)
    try:
        answer = wire.unpack(reply[8:8 + size])         # anything after the first message is ignored
        return Reply(read_run(answer), output=output, **used)
    except (wire.WireError, KeyError, TypeError, ValueError, AttributeError) as error:
        return Reply(trouble=f"what came back is no answer ({error})", output=output, **used)


def _why(ended: dict, reply: bytes) -> str:
    status = ended["status"]
    if ended["stopped"] in STOPPED:
        return f"the code {STOPPED[ended['stopped']]}"
    if reply:
        return "something was written that is no answer"
    if status is not None and status < 0:
        names = {signal.SIGSEGV: "crashed (it reached for memory that is not its own)",
                 signal.SIGKILL: "was ended from inside",
                 signal.SIGXCPU: "took too much processor time", signal.SIGABRT: "aborted"}
        return f"the process {names.get(-status, f'was ended by signal {-status}')}"
    return "the code ended the process that ran it"


def texts_of(value: Any) -> tuple[str, ...]:
    return tuple(wire.text_of(v, 200) for v in value if isinstance(v, str))
