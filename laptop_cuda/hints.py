"""A hint where nobody asked: a kernel's first plain launch is checked in passing, and one line on stderr says what was found.

A copy of the process (`fork`) builds the checked library, which `sanitize()` then finds, and checks some blocks: what it
changes nobody sees. "First" is of a build in the cache. Only launches written in a program or notebook (`__main__`) are
looked at: libraries, graders and tests check for themselves. LAPTOP_CUDA_HINT=0 turns it off."""
import atexit
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

from .arguments import arrays
from .errors import KernelError, plain_error
from .sanitize import sanitize

KINDS = ("race", "out of bounds", "misaligned", "barrier divergence")
MOST_BYTES = 64 << 20        # of a launch's arrays: the copy shares their pages until one side writes
SECONDS = 3                  # that a copy lasts at most, and the end of a process waits for it
_looked: set[tuple[Path, str]] = set()
_silent: set[str] = set()
_waiting: list[threading.Thread] = []
_said: list[str] = []


def silence(package: str) -> None:
    """Launches made while code of this package runs, as its checks, get no hint."""
    _silent.add(package)


def wanted() -> bool:
    return sys.platform == "linux" and os.environ.get("LAPTOP_CUDA_HINT") != "0"


def is_first(library: Path, what: str) -> bool:
    """Whether nobody has looked at this part of a build before; from now on somebody has."""
    _looked.add((library, what))
    try:
        (library.parent / f"looked at {what}").touch(exist_ok=False)
    except OSError:                      # it was there; or the cache can only be read
        return False
    return True


def apart(work: Callable[[int], None]) -> int:
    """Does `work` in a copy of this process, which then ends; it may write to the descriptor that it is given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)      # of threads: the copy waits for none
        copy = os.fork()
    if copy:
        return copy
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        os.nice(10)
        errors = os.dup(2)
        sys.stdout = sys.stderr = nowhere = open(os.devnull, "r+")
        for file in (0, 1, 2):
            os.dup2(nowhere.fileno(), file)
        work(errors)
    finally:
        os._exit(0)


def line(error: dict, how: str) -> str:
    """What is said of an error; "" where the launch as a whole may be to blame, or the time."""
    at = f", line {error['line']}" * bool(error["line"])
    said = f"laptop_cuda: hint: {error['kind']} in {error['kernel']}{at}: {how} explains it"
    return said if error["kind"] in KINDS else ""


def first_launch(kernel, library: Path, given: list, again: Callable[[], None]) -> None:
    """Before a plain launch from Python, which `again` would make once more."""
    frame = sys._getframe(3)
    if frame.f_globals.get("__name__") != "__main__" or (library, kernel.name) in _looked or not wanted():
        return
    while frame := frame.f_back:
        if frame.f_globals.get("__name__", "").split(".")[0] in _silent:
            return
    bytes = sum(arrays.of(a).bytes for a in given if arrays.is_array(a))
    if bytes > MOST_BYTES or not is_first(library, kernel.name):
        return
    how = "%%cuda without --no-sanitize" if kernel.module.name == "cell" else "`with laptop_cuda.sanitize():` around it"
    reading, writing = os.pipe()

    def look(errors: int) -> None:
        os.close(reading)
        try:
            with sanitize(limit=1):
                again()
        except KernelError as error:
            said = line(plain_error(error), how)
            try:
                os.write(writing, said.encode())
            except BrokenPipeError:              # the process has ended, perhaps by that error
                os.write(errors, f"{said}\n".encode() * bool(said))
    copy = apart(look)
    os.close(writing)
    _waiting.append(threading.Thread(target=_tell, args=(reading, copy), daemon=True))
    _waiting[-1].start()


def _tell(reading: int, copy: int) -> None:
    with os.fdopen(reading, errors="replace") as told:
        said = told.read()
    os.waitpid(copy, 0)
    if said and not _said:               # never a second line
        _said.append(said)
        print(said, file=sys.stderr, flush=True)


@atexit.register
def _wait() -> None:
    for thread in _waiting:
        thread.join(SECONDS)
