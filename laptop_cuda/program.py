"""Whole programs: a `.cu` with `main` compiles and runs unchanged, its launches counted or checked.

The program runs in a process of its own: a crash of it is a message. Its launches are told through a pipe.
"""
from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from . import build, lines, sources
from .launch import STEP_LIMIT
from .outline import Outline

MODES = ("sanitize", "profile", "plain")
ENTRY = """
#line 1 "entries"
LAPTOP_EXPORT int laptop_main(int n, char** words) { return laptop::call_main(&::main, n, words); }
"""


class ProgramError(RuntimeError):
    """A program that cannot be run: no `main`, or several."""


@dataclass
class Options:
    """What nvcc would be told."""
    include: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()
    standard: str = "c++17"
    flags: tuple[str, ...] = ()


@dataclass
class Program:
    """A built program."""
    library: Path
    mode: str
    files: dict[str, str]        # {name: text}, the source with `main` first


@dataclass
class Ran:
    """What a program did: its exit status, what it printed (if captured), and each launch."""
    status: int                  # of the program; 128 + the signal's number after a crash
    stdout: str = ""
    stderr: str = ""
    launches: list[dict] = field(default_factory=list)
    crash: str = ""              # how it crashed, "" if it did not

    @property
    def errors(self) -> list[dict]:
        return [launch["error"] for launch in self.launches if launch["error"]]

    @property
    def notes(self) -> list[str]:
        return [note for launch in self.launches for note in launch["notes"]]

    def total(self, count: str, kernel: str = "") -> int:
        """A count summed over the launches (of one kernel): "sectors", "requests", "bytes", "excess",
        "launches", ..."""
        chosen = [
            la
            for la in self.launches
            if not kernel or bare_name(la["kernel"]) == kernel or la["kernel"] == kernel
        ]
        return len(chosen) if count == "launches" else sum(la["counts"].get(count, 0) for la in chosen)


def bare_name(kernel: str) -> str:
    return kernel.split("<")[0].split("::")[-1].strip()


def compile_program(paths: list[Path], options: Options = Options(), mode: str = "sanitize") -> Program:
    """One or more sources, compiled and linked."""
    if mode not in MODES:
        raise ValueError(f"mode is one of {', '.join(MODES)}, got {mode!r}")
    units = {}
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}")
        units[path] = sources.files_of(sources.read(path), path.resolve().parent, options.include)
    mains = [path for path in paths if _has_main(units[path][0])]
    if len(mains) != 1:
        raise ProgramError(f"{' '.join(p.name for p in paths)}: " + (
            "there is no main here, or it uses a library of the GPU (cuBLAS, torch, ...) and was left out"
            if not mains else f"main is defined in {' and in '.join(p.name for p in mains)}"))
    texts = {}
    for path, files in units.items():
        folder = path.resolve().parent
        texts[path] = (sources.started(files, path.name) + sources.rewritten(files, folder, options.include)
                       + (ENTRY if path == mains[0] else ""))
    order = sorted(paths, key=lambda p: p != mains[0])
    found = {path.name: units[path][0].text for path in order}
    found |= {f.path.name: f.text for files in units.values() for f in files[1:]}
    flags = [
        f"-std={options.standard}",
        *(f"-D{d}" for d in options.defines),
        *(f"-I{p}" for p in options.include),
        *options.flags,
    ]
    if any("omp.h" in text for text in texts.values()) and "-fopenmp" not in flags:
        flags.append("-fopenmp")
    made = build.program({path: texts[path] for path in order}, found, flags, mode != "plain")
    return Program(made, mode, found)


def _has_main(file: Outline) -> bool:
    return any(f.name == "main" and not f.namespace and not f.member for f in file.functions)


def execute(program: Program, arguments: list[str] = (), *, order: str = "forward", seed: int = 0,
            step_limit: int = STEP_LIMIT, capture: bool = False, name: str = "", folder: Path | None = None,
            timeout: float | None = None, child: str = "program_child", **more) -> Ran:
    # over the guide: a process with its pipe, opened and closed in one place
    """Runs a built program to its end in a child process, which gets `more` with its job."""
    reading, writing = os.pipe()
    job = {
        "library": str(program.library),
        "mode": program.mode,
        "order": order,
        "seed": seed,
        "files": program.files,
        "step_limit": step_limit,
        "report": writing,
        "arguments": [name or next(iter(program.files)).removesuffix(".cu"), *map(str, arguments)],
    } | more
    home = str(build.PACKAGE.parent)
    path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))
    pipe = subprocess.PIPE if capture else None
    process = subprocess.Popen(
        [sys.executable, "-m", f"laptop_cuda.{child}"],
        stdin=subprocess.PIPE,
        stdout=pipe,
        stderr=pipe,
        text=True,
        errors="replace",
        pass_fds=(writing,),
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
    )
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8", errors="replace") as report:
        rows = _Rows(report)
        try:
            out, err = process.communicate(json.dumps(job), timeout=timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            rows.join()
    crash, status = "", process.returncode
    if status < 0:
        crash, status = _crash(program, -status, rows.crashes), 128 - status
    return Ran(status, out or "", err or "", rows.launches, crash)


class _Rows:
    """Reads the report while the program runs, so that the pipe never fills."""

    def __init__(self, report):
        import threading
        self.launches, self.crashes = [], []
        self.thread = threading.Thread(target=self._read, args=(report,), daemon=True)
        self.thread.start()

    def _read(self, report) -> None:
        for line in report:
            try:
                row = json.loads(line)
            except ValueError:           # cut off by a crash
                continue
            (self.crashes if "crash" in row else self.launches).append(row)

    def join(self) -> None:
        self.thread.join(timeout=10)


def _crash(program: Program, number: int, rows: list[dict]) -> str:
    """Where host code crashed, in the words of its source."""
    said = f"the program crashed: {signal.strsignal(number) or f'signal {number}'}"
    if not rows:
        return said
    place = lines.of(program.library, tuple(program.files), [rows[0]["offset"] + 1])[rows[0]["offset"] + 1]
    if place.line:
        text = program.files[place.file].split("\n")[place.line - 1].strip()
        said += f", in host code, line {place.line} of {place.file}\n{place.line:6} | {text}"
    elif rows[0]["in"]:
        said += f", in {rows[0]['in']}()"
    if number == signal.SIGSEGV:
        said += (
            f"\nIt touched address {rows[0]['address']:#x}. Usual cause: a pointer that was never set, an "
            f"array of the "
            "host that is too small, or an argument that the program expects and did not get."
        )
    return said


def run(*paths: str | Path, arguments: list[str] = (), mode: str = "sanitize", options: Options = Options(),
        capture: bool = True, **how) -> Ran:
    """Compiles and runs a program: `run("prog.cu", arguments=["1024"]).errors` are the bugs that were
    found."""
    program = compile_program([Path(p) for p in paths], options, mode)
    return execute(program, list(arguments), capture=capture, **how)


@dataclass(frozen=True)
class Budget:
    """A limit on a count: of all launches, or of one kernel's."""
    count: str
    most: int
    kernel: str = ""

    @classmethod
    def read(cls, text: str) -> Budget:
        found = re.fullmatch(r"(?:([\w:]+):)?(\w+)=(\d[\d_,]*)", text)
        if not found or found[2] not in COUNTS:
            raise ValueError(
                f"a budget is COUNT=N or KERNEL:COUNT=N, COUNT one of {', '.join(COUNTS)}; got {text!r}"
            )
        return cls(found[2], int(re.sub("[_,]", "", found[3])), found[1] or "")

    def over(self, ran: Ran) -> str:
        """How the budget is exceeded; "" if it is kept."""
        used = ran.total(self.count, self.kernel)
        whose = f"{self.kernel}: " if self.kernel else ""
        return f"{whose}{used:,} {self.count}, the budget is {self.most:,}" if used > self.most else ""


COUNTS = (
    "sectors",
    "load_sectors",
    "store_sectors",
    "requests",
    "bytes",
    "wavefronts",
    "excess",
    "atomics",
    "barriers",
    "launches",
)
