"""Arrays that a kernel and what it calls declare, whether or not a launch reaches them: on a GPU all have their place.

The object has those in device memory. g++ writes down the others beside each traced build (`by_value`); with
clang those in shared memory are known only where a launch has reached them, and those of a thread not at all."""
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from .by_value import CALLS, DECLARED
from .object_file import read_object

FUNCTION = re.compile(r"(?P<name>.*?) \(\S+, funcdef_no=.*\bdecl_uid=(?P<number>\d+)")
# what a declaration of a shared array calls: its name, line and bytes, and the function around it
SHARED = re.compile(r'gimple_call <sharedD\.\d+, \w+, (?:\[[^][]*\] )?("\w+", \d+), (\d+), \d+, [^"]*"(.*)">')
OWN = re.compile(r"^  (?!static )[^;]* (\w+)D\.\d+(?:\[\d+\])+;$", re.M)
OF_SOURCE = re.compile(r"\[(?!/)[^][]+:\d+:\d+\]")       # headers have whole paths


@dataclass(frozen=True)
class Declared:
    """Bytes of shared memory per block, of device memory, a thread's own arrays; unless `noted`, the second."""
    shared: int = 0
    device: int = 0
    own: tuple[str, ...] = ()
    noted: bool = False


def declared(builds: list[Path], kernel: str) -> Declared:
    """Of the builds of one source, of which the traced one has notes."""
    found = [_of(build, kernel.split("<")[0]) for build in builds]
    return Declared(max((f.shared for f in found), default=0), max((f.device for f in found), default=0),
                    max((f.own for f in found), key=len, default=()), any(f.noted for f in found))


@lru_cache(64)               # a build's name is never used for another
def _of(library: Path, kernel: str) -> Declared:
    made, written = read_object(library.parent / "kernel.cu.cpp.o"), library.parent / CALLS
    device = sum(size for name, size in made.writable.items()
                 if "laptop" not in name and name[:3] != "DW.") if made else 0
    text = written.read_text(errors="replace") if written.exists() else ""
    parts = {f"D.{head['number']}": (head["name"].split("<")[0], part)
             for part in re.split("^;; Function ", text, flags=re.M) if (head := FUNCTION.match(part))}
    reached = [[parts[number][1] for number in _reached(number, parts)]
               for number, (name, _) in parts.items() if name == kernel]
    shared = (sum(int(size) for _, size, _ in set(SHARED.findall("\n".join(of)))) for of in reached)
    own = [name for of in reached for part in of if OF_SOURCE.search(part) for name in OWN.findall(part)]
    return Declared(max(shared, default=0), device, tuple(own), bool(text))


def _reached(first: str, parts: dict[str, tuple[str, str]]) -> set[str]:
    """What a function calls, or takes the address of, and what that calls."""
    found, open_ = {first}, [first]
    while open_:
        new = set(DECLARED.findall(parts[open_.pop()][1])) & parts.keys() - found
        found |= new
        open_ += new
    return found
