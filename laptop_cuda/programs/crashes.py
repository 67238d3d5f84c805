"""A program that crashed, or whose calls were refused: where, in the words of its source."""
import signal
from pathlib import Path

from ..arguments.c_types import CError, CParty
from ..errors import KernelError, kernel_error, plain_error
from ..launch.result import LaunchResult, Memory
from ..toolchain import lines


def crash(library: Path, files: dict[str, str], number: int, rows: list[dict], on_device: bool) -> str:
    """By signal `number`; `rows` are what its process still told."""
    said = f"the program crashed: {signal.strsignal(number) or f'signal {number}'}"
    if not rows:
        return said
    place = lines.of(library, tuple(files), [rows[0]["offset"] + 1])[rows[0]["offset"] + 1]
    if place.line:
        text = files[place.file].split("\n")[place.line - 1].strip()
        said += f", in host code, line {place.line} of {place.file}\n{place.line:6} | {text}"
    elif rows[0]["in"]:
        said += f", in {rows[0]['in']}()"
    if number == signal.SIGILL:
        said += "\nUsual cause: a function that comes to its end without the value that it returns."
    if number == signal.SIGSEGV and not on_device:
        said += (f"\nIt touched address {rows[0]['address']:#x}. Usual cause: a pointer that was never set, "
                 "an array of the host that is too small, an argument that the program expects and did not "
                 "get, or a recursion that is too deep.")
    return said


def host_access(library: Path, files: dict[str, str], told: list) -> dict:
    """A crash of host code that touched device memory, as a finding."""
    reason, name, callers, itemsize, size, offset, action = told
    result = LaunchResult("host code", (1, 1, 1), (1, 1, 1), library, files, 0)
    result.memories.append(Memory(name, "global", itemsize, size, 0))
    fault = CError(b"host access", reason.encode(), callers.encode(), CParty(action=action), offset=offset, size=1)
    return plain_error(kernel_error(fault, result))


def refused(library: Path, files: dict[str, str], rows: list[dict]) -> list[dict]:
    """Calls of the API that answered with an error, and what nothing orders, each with its lines, as findings; and what
    is copied to the host unwritten, of kind "unwritten"."""
    places = lines.of(library, tuple(files), [offset for row in rows for offset in row["offsets"]])
    found = []
    for row in rows:
        kind, why = ("misuse", f" answers cudaErrorInvalidValue: {row['why']}") if row["why"] else ("race", "")
        if row["why"].startswith("nobody"):
            kind, why = "unwritten", f", and {row['why']}"
        elif row["why"] == "never written":
            kind, why = "uninitialized", ", which nobody has written"
        elif row["why"].startswith("lanes"):
            kind, why = "race", f": {row['why']}"
        elif "malloc" in row["why"] or "Synchronize" in row["why"]:
            why = f": {row['why']}"
        at = [places[offset] for offset in row["offsets"] if places[offset].line]
        message = "".join([f"{kind}: {row['refused']}{why}", *(
            f"\n  line {p.line} of {p.file}\n{p.line:6} | " + files[p.file].split("\n")[p.line - 1].rstrip() for p in at)])
        found.append(plain_error(KernelError(kind, message, "host code", None, None, at[0].line if at else 0)))
    return found
