"""Whole programs: a `.cu` with `main` compiles and runs unchanged, its launches counted or checked.

The program runs in a process of its own: a crash of it is a message. Its launches are told through a pipe."""
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from .. import build, hints, sources
from ..launch import STEP_LIMIT
from ..regions import loops_of, loops_or_none
from ..rewrite import Loops
from ..rewrite.table import guarded, symbols
from ..text.diagnostics import CompileError, read_warnings, unknown_names
from .libraries import first_library
from ..text.outline import Outline, outline
from . import crashes
from .ran import COUNTS, Budget, Ran, bare_name

__all__ = ["COUNTS", "Budget", "Options", "Program", "ProgramError", "Ran", "bare_name", "compile_program",
           "execute", "run"]

MODES = ("sanitize", "profile", "both", "plain")
# its names are no macros of the program
ENTRY = """
#include <host_launch.h>
#line 1 "entries"
LAPTOP_EXPORT int laptop_main(int laptop_n, char** laptop_words, char** laptop_environment) {
    return laptop::call_main(&::main, laptop_n, laptop_words, laptop_environment);
}
"""


class ProgramError(RuntimeError):
    """A program that cannot be run: no `main`, or several."""


@dataclass
class Options:
    """What nvcc would be told."""
    include: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()
    standard: str = "gnu++17"
    flags: tuple[str, ...] = ()


@dataclass
class Program:
    """A built program."""
    library: Path
    mode: str
    files: dict[str, str]        # {name: text}, the source with `main` first

    @property
    def warnings(self) -> list[str]:
        printed = (self.library.parent / build.PRINTED).read_text(errors="replace")
        return read_warnings(printed, tuple(self.files))


def compile_program(paths: list[Path], options: Options = Options(), mode: str = "sanitize",
                    unknown: frozenset[str] = frozenset()) -> Program:
    """One or more sources, compiled and linked. Device code with an `unknown` name of CUB is a trap."""
    if mode not in MODES:
        raise ValueError(f"mode is one of {', '.join(MODES)}, got {mode!r}")
    units = {}
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}")
        units[path] = sources.files_of(sources.read(path), path.resolve().parent, options.include, unknown)
    mains = [path for path in paths if _has_main(units[path][0])]
    if len(mains) > 1:               # a library's test of itself is inside an #ifdef
        mains = [path for path in mains if _has_main(units[path][0], always=True)] or mains
    if len(mains) != 1:
        raise ProgramError(_no_main(units) if not mains else
                           f"main is defined in {' and in '.join(p.name for p in mains)}")
    order = sorted(paths, key=lambda p: p != mains[0])
    found = {path.name: units[path][0].text for path in order}
    found |= {f.path.name: f.text for files in units.values() for f in files[1:]}
    flags = [f"-std={options.standard}", *(f"-D{d}" for d in options.defines),
             *(f"-I{p}" for p in options.include), *options.flags]
    plain = order if mode == "plain" else []
    loops = {k: text for path in plain for k, text in loops_of(units[path], path.name).items()}

    def built(loops: Loops) -> Path:
        texts = {}
        for path in order:
            text = sources.rewritten(units[path], path.resolve().parent, options.include, loops)
            text += _variables(units[path]) if mode != "plain" else ""
            texts[path] = sources.started(units[path], path.name) + text + ENTRY * (path == mains[0])
        openmp = any("omp.h" in text for text in texts.values()) and "-fopenmp" not in flags
        return build.program(texts, found, flags + ["-fopenmp"] * openmp, not plain)
    try:
        return Program(loops_or_none(loops, built), mode, found)
    except CompileError as error:
        more = unknown_names(error.output) - unknown
        if not more:
            raise
    return compile_program(paths, options, mode, unknown | more)


def _variables(files: list[Outline]) -> str:
    """Tells the runtime of the device variables, whose names in host code mean others on a card."""
    managed = {value for file in files for _, value, _ in symbols(file, ("__managed__",))}
    found = dict.fromkeys(s for file in files for s in symbols(file))
    rows = [guarded(conditions, f'static const bool laptop_told_{n} = '
                                f'laptop::device_variable("{name}", {value}, {int(value in managed)});\n')
            for n, (name, value, conditions) in enumerate(found)]
    return '\n#include <host_launch.h>\n#line 1 "entries"\n' + "".join(rows) if rows else ""


def _has_main(file: Outline, always: bool = False) -> bool:
    """Whether a file defines `main`; `always`: outside every `#if`."""
    return any(f.name == "main" and not f.namespace and not f.member and not (always and f.conditions)
               for f in file.functions)


def _no_main(units: dict[Path, list[Outline]]) -> str:
    """Whether `main` is in none of the sources, or was left out with a library that it uses."""
    mains = [path for path in units if _has_main(outline(units[path][0].as_read))]
    if not mains:
        return f"there is no main in {', '.join(p.name for p in units)}: name the source that has it too"
    found = next((file, *library) for file in units[mains[0]] if (library := first_library(file.as_read)))
    where = f"{found[0].path.name if found[0].path else mains[0].name}, line {found[2]}"
    return (f"main of {mains[0].name} needs {found[1]} ({where}), a library that the engine does not have. "
            "Write that part as a kernel, or leave it out by #ifdef; laptop_cuda.load takes kernels alone.")


def execute(program: Program, arguments: list[str] = (), *, order: str = "forward", seed: int = 0,
            step_limit: int = STEP_LIMIT, capture: bool = False, stdin: str = "", stdout=None, name: str = "",
            folder: Path | None = None, timeout: float | None = None, limit: float = 0, child: str = "programs.child",
            **more) -> Ran:
    # over the guide: a process with its pipes, opened and closed in one place
    """Runs a built program to its end in a child process, which gets `more` with its job.

    With a `limit` it is to answer within so many seconds: see `run --limit`. Captured, it reads `stdin`; else our standard input, and prints to `stdout` (ours, unless given)."""
    reading, writing = os.pipe()
    job = {"library": str(program.library), "mode": program.mode, "order": order, "seed": seed,
           "files": program.files, "step_limit": step_limit, "limit": limit, "report": writing, "since": time.time(),
           "arguments": [name or next(iter(program.files)).removesuffix(".cu"), *map(str, arguments)]} | more
    home = str(build.PACKAGE.parent)
    path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryFile() as told:
        told.write(json.dumps(job).encode())
        told.seek(0)
        process = subprocess.Popen([sys.executable, "-m", f"laptop_cuda.{child}", str(told.fileno())],
                                   stdin=subprocess.PIPE if capture else None, stdout=subprocess.PIPE
                                   if capture else stdout, stderr=subprocess.PIPE if capture else None,
                                   text=True, errors="replace", pass_fds=(writing, told.fileno()), cwd=folder,
                                   env=os.environ | {"PYTHONPATH": path})
    os.close(writing)
    late = False
    last = min(filter(None, (timeout, limit and limit + 2 + job["since"] - time.time())), default=None)
    rows = _Rows(os.fdopen(reading, encoding="utf-8", errors="replace"), hints.patience() if job.get("hint") else 10)
    try:
        out, err = process.communicate(stdin if capture else None, timeout=last)
    except subprocess.TimeoutExpired:
        late = True
        process.kill()
        out, err = process.communicate()
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        rows.thread.join(rows.patience)
    refused = crashes.refused(program.library, program.files, rows.refused)
    if late:
        by_limit = last != timeout
        how = f"stopped at the limit of {limit:g} seconds" if by_limit else f"stopped after {timeout:g} seconds"
        status = 0 if by_limit else 124
        return Ran(status, out or "", err or "", rows.launches, how, True, rows.host, refused)
    crash, status = "", process.returncode
    if rows.fault:                       # a checked run may have told before that it would crash there
        found = crashes.host_access(program.library, program.files, rows.fault)
        rows.host += [found] * (found["line"] not in {error["line"] for error in rows.host})
    if status < 0:
        crash = crashes.crash(program.library, program.files, -status, rows.crashes, bool(rows.fault))
        status = 128 - status
    return Ran(status, out or "", err or "", rows.launches, crash, host_errors=rows.host, refused=refused, hint=rows.hint)


class _Rows:
    """Reads the report while the program runs, so that the pipe never fills."""

    def __init__(self, report, patience: float):
        self.patience = patience         # a copy of the program may last longer
        self.launches, self.crashes, self.host, self.refused = [], [], [], []
        self.fault = None                # of host code on device memory, which ended it
        self.hint = None
        self.thread = threading.Thread(target=self._read, args=(report,), daemon=True)
        self.thread.start()

    def _read(self, report) -> None:
        with report:
            self._rows(report)

    def _rows(self, report) -> None:
        for line in report:
            try:
                row = json.loads(line)
            except ValueError:           # cut off by a crash
                continue
            if "hint" in row:
                self.hint = self.hint or row["hint"]
            elif "looked" in row:
                self.launches[-1]["looked"] = True
            elif "host_access" in row:
                self.fault = row["host_access"]
            elif "host" in row:
                self.host.append(row["error"])
            else:
                rows = self.crashes if "crash" in row else self.refused if "refused" in row else self.launches
                rows.append(row)


def run(*paths: str | Path, arguments: list[str] = (), mode: str = "sanitize", options: Options = Options(),
        capture: bool = True, **how) -> Ran:
    """Compiles and runs a program: `run("prog.cu", arguments=["1024"]).errors` are the bugs found."""
    program = compile_program([Path(p) for p in paths], options, mode)
    return execute(program, list(arguments), capture=capture, **how)
