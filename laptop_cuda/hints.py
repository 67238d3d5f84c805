"""A hint where nobody asked: a kernel's first plain launch is checked in passing, and one line on stderr says what was found.

A copy of the process (`fork`) builds the checked library, which `sanitize()` then finds, and checks some blocks: what it
changes nobody sees. "First" is of a build in the cache. Only launches written in a program or notebook (`__main__`) are
looked at: libraries, graders and tests check for themselves. LAPTOP_CUDA_HINT is how many seconds a process waits
for its copies at its end, 1 unless said otherwise, and up to 5 times as long on a busy machine; 0 turns all of it off.
Who was not told then is told in the next run."""
import os
import select
import signal
import sys
import threading
import warnings
from pathlib import Path

from .arguments import arrays
from .errors import KernelError, plain_error
from .sanitize import sanitize

KINDS = ("race", "out of bounds", "misaligned", "barrier divergence")
MOST_BYTES = 64 << 20        # of a launch's arrays: the copy shares their pages until one side writes
SECONDS = float(os.environ.get("LAPTOP_CUDA_HINT") or 1)
MOST_SECONDS = 60            # of a copy: what it builds longer is there for later
_looked: set[tuple[Path, str]] = set()
_said: list[str] = []
silent: set[str] = set()     # packages: launches made while their code runs, as checks do, get no hint


def wanted() -> bool:
    return sys.platform == "linux" and SECONDS > 0


def patience() -> float:
    return SECONDS * min(max(os.getloadavg()[0] / (os.cpu_count() or 1), 1), 5)


def is_first(library: Path, what: str) -> bool:
    """Whether nobody has been told of this part of a build before, and that can be noted."""
    _looked.add((library, what))
    return os.access(library.parent, os.W_OK) and not (library.parent / f"looked at {what}").exists()


def apart(work, *unused: int) -> None:
    """Does `work()` in a copy of this process, which has no need of some descriptors, and then ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)      # of threads: the copy waits for none
        if os.fork():
            return
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(MOST_SECONDS)
        os.nice(10)
        list(map(os.close, unused))
        sys.stdout = sys.stderr = nowhere = open(os.devnull, "r+")
        for file in (0, 1, 2):
            os.dup2(nowhere.fileno(), file)
        work()
    finally:
        os._exit(0)


def line(error: dict, how: str) -> str:
    """What is said of an error; "" where the launch as a whole may be to blame, or the time."""
    said = f"laptop_cuda: hint: {error['kind']} in {error['kernel']}, line {error['line']}: {how} explains it"
    return said if error["kind"] in KINDS else ""


def first_launch(kernel, library: Path, given: list, again) -> None:
    """Before a plain launch from Python, which `again()` would make once more."""
    frame = sys._getframe(3)
    if frame.f_globals.get("__name__") != "__main__" or (library, kernel.name) in _looked or not wanted():
        return
    while frame := frame.f_back:
        if frame.f_globals.get("__name__", "").split(".")[0] in silent:
            return
    size = sum(arrays.of(a).bytes for a in given if arrays.is_array(a))
    if size > MOST_BYTES or not is_first(library, kernel.name):
        return
    of_cell = kernel.module.name == "cell"
    reading, writing = os.pipe()

    def look() -> None:
        said = " "
        try:
            with sanitize(limit=1):
                again()
        except KernelError as error:
            how = "%%cuda without --no-sanitize" if of_cell else "`with laptop_cuda.sanitize():` around it"
            said = line(plain_error(error), how) or said
        os.write(writing, said.encode())         # or fails, if nobody waits any more
        (library.parent / f"looked at {kernel.name}").touch()
    apart(look, reading)
    os.close(writing)
    threading.Thread(target=_tell, args=(reading,)).start()


def _tell(reading: int) -> None:
    with os.fdopen(reading) as told:
        said = told.read().strip() if select.select([told], [], [], patience())[0] else ""
    if said and not _said:               # never a second line
        _said.append(said)
        print(said, file=sys.stderr, flush=True)
