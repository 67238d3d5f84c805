"""Whether the walls hold on this machine: code that tries to get through them is run behind them."""
import os
from pathlib import Path

from course_lib.exercises.running.results import Request
from . import walls
from .reach import PACKAGE
from .reply import SandboxError, texts_of
from .sandbox import Sandbox

PROBE = '''
import ctypes, os, socket
found = []
def attempt(what, action):
    try:
        action()
    except (OSError, MemoryError):
        return
    found.append(what)
attempt("reading the solutions", lambda: open(SECRET).read())
attempt("writing outside its folder", lambda: open(OUTSIDE, "w").close())
attempt("the network", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
attempt("another process's memory", lambda: open(f"/proc/{PARENT}/mem", "rb"))
attempt("signals to other processes", lambda: os.kill(PARENT, 0))
attempt("large files", lambda: os.ftruncate(os.open("large", os.O_CREAT | os.O_RDWR), 1 << 40))
attempt("unlimited memory", lambda: bytearray(1 << 44))
if hasattr(os, "geteuid") and os.geteuid() == 0:
    found.append("the rights of root")
open("own", "w").write("x")
probe = found
'''


class Refused(Exception):
    """There is nothing to mark, or no safe way to; the message says which."""


def check_walls(hide: list[Path]) -> None:
    """Raise Refused where this machine cannot keep a student's code in."""
    with Sandbox(hide=hide) as sandbox:
        gone = missing_walls(sandbox)
    if gone:
        raise Refused("this machine cannot keep a student's code from:\n  " + "\n  ".join(gone) + "\nOn a "
                      "machine that holds nothing of value, run it again with --no-sandbox.")


def missing_walls(sandbox: Sandbox) -> list[str]:
    """What a student's code could do here that it must not be able to do; [] if every wall holds."""
    gone = walls.missing()
    if gone and sandbox.strict:
        return gone
    outside = sandbox.base.parent / f"{sandbox.base.name}-outside"
    secret = PACKAGE / "exercises" / "chapters" / "attention.py"
    source = f"SECRET, OUTSIDE, PARENT = {str(secret)!r}, {str(outside)!r}, {os.getpid()}\n{PROBE}"
    request = Request(id="0.0", language="python", name="probe", value=True, is_class=False, given={},
                      call=None, inputs=[((), {})])
    try:
        reply = sandbox.run(request, source)
    except SandboxError as error:
        return [str(error)]
    finally:
        outside.unlink(missing_ok=True)
    if reply.run is None or reply.run.failure:
        return [reply.trouble or reply.run.failure.message]
    return list(texts_of(reply.run.outcomes[0].value))
