"""`python -m laptop_cuda run prog.cu`: a whole program, its launches checked or counted.

    run [options] prog.cu [more.cu ...] [arguments of the program]

      --sanitize             check every launch (the default): races, out of bounds, uninitialised reads, ...
      --profile              count what every launch asks of memory, per kernel and per line;
                             with --sanitize, both
      --plain                neither; fast. Of its first run some blocks are checked in passing, in a copy of
                             the process: a line says if there is a race or an overrun (LAPTOP_CUDA_HINT=0: none)
      --json FILE            the report as JSON as well; - for the standard output, what the program prints
                             is then on the standard error
      --ncu FILE             the counts under the names of NVIDIA's profiler: text, .csv (details page),
                             .raw.csv or .html; implies --profile. With -arch=sm_80 and nvcc, registers and
                             occupancy too
      --budget COUNT=N       fail if a count is higher (KERNEL:COUNT=N for one kernel); implies --profile
      --order late|early|seeded|forward|reverse   --seed N   --steps N   --timeout SECONDS
      --limit SECONDS        an answer by then (60; 0 for none): where checking all would take longer, some
                             blocks of each launch are checked, and the report says which; counts are made
                             in its first half (with --budget: of all)
      -I DIR  -D NAME[=VALUE]  -U NAME  -isystem DIR  -include FILE  -std=c++17  -lNAME  -L DIR
                             as for nvcc; its other options, and libraries of CUDA, are ignored

What follows the sources belongs to the program. The exit status is the program's own; if that is 0,
1 if a bug was found or a budget exceeded; 2 if it does not compile; 128 + n if it was ended by signal n;
124 after a --timeout. A program that has not ended at its --limit is stopped: 0, if no bug was found."""
import json
import re
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .. import gpu, hints
from ..arguments import ArgumentError
from ..inside import InspectError, inspect
from ..launch import ORDERS, STEP_LIMIT
from ..module import load
from ..report import ncu
from . import Budget, Options, Program, ProgramError, Ran, compile_program, execute, report

SOURCES = (".cu", ".cpp", ".cc", ".cxx", ".c")
VALUES = {"--json": str, "--ncu": str, "--seed": int, "--steps": int, "--timeout": float, "--limit": float}
WITH_VALUE = ("-arch", "-gencode", "-Xptxas", "-o", "-ccbin", "-code", "-maxrregcount", "-x")


VARIABLE = re.compile(r"\b__(?:constant|managed)__\b|\b__device__\b[^(){};=\[]*[;=\[]")
OF_CUDA = re.compile(r"cuda\w*|cu(?:rand|blas|fft|sparse|solver|dnn)\w*|np[pi]\w*|nv\w+|cupti")    # -lNAME


class UsageError(ValueError):
    """A command line that is not understood."""


@dataclass
class Asked:
    sources: list[Path] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    modes: set[str] = field(default_factory=set)
    json: str = ""
    ncu: str = ""
    arch: str = ""
    budgets: list[Budget] = field(default_factory=list)
    include: list[Path] = field(default_factory=list)
    defines: list[str] = field(default_factory=list)
    standard: str = "gnu++17"            # as nvcc, which leaves it to g++
    flags: list[str] = field(default_factory=list)
    order: str = "forward"
    seed: int = 0
    steps: int = STEP_LIMIT
    timeout: float | None = None
    limit: float = 60

    @property
    def mode(self) -> str:
        """Of `modes`, what was asked for; a budget and `ncu` imply "profile"."""
        modes = self.modes | ({"profile"} if self.budgets or self.ncu else set())
        if "plain" in modes and len(modes) > 1:
            raise UsageError("run: --plain neither checks nor counts: leave it out, or the other options")
        return "both" if len(modes) > 1 else next(iter(modes), "sanitize")


def read_command(words: list[str]) -> Asked:
    """Options and sources up to the program's own arguments."""
    asked, left = Asked(), list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            break
        if not word.startswith("-"):
            if Path(word).suffix not in SOURCES:
                left.insert(0, word)
                break
            asked.sources.append(Path(word))
        elif asked.sources:                      # what follows the sources belongs to the program
            left.insert(0, word)
            break
        else:
            _option(asked, word, left)
    asked.arguments = left
    if not asked.sources:
        got = f"; {left[0]} is none by its name" if left else ""
        raise UsageError(f"run: name a source, such as prog.cu{got}")
    return asked


OWN = ("--sanitize", "--profile", "--plain", "--budget", "--order", *VALUES)
OF_NVCC = ("--use_fast_math", "--expt-relaxed-constexpr", "--extended-lambda", "--expt-extended-lambda",
           "--gpu-architecture", "--generate-code")


def _option(asked: Asked, word: str, left: list[str]) -> None:
    # over the guide: one branch per option
    name, joined, value = word.partition("=") if word.startswith("--") else (word, "", "")
    if f"-{name}" in OWN:
        raise UsageError(f"run: {name} is written -{name}")

    def given(kind=str):
        if not joined and not left:
            raise UsageError(f"run: {name} needs a value")
        text = value if joined else left.pop(0)
        try:
            return kind(text)
        except ValueError:
            raise UsageError(f"run: {name} takes a number, got {text!r}") from None

    if name in ("--sanitize", "--profile", "--plain"):
        asked.modes.add(name[2:])
    elif name in VALUES:
        setattr(asked, name[2:], given(VALUES[name]))
    elif word.startswith("-arch="):
        asked.arch = word[6:]
    elif name == "--budget":
        asked.budgets.append(Budget.read(given()))
    elif name == "--order":
        asked.order = given()
        if asked.order not in ORDERS:
            raise UsageError(f"run: --order is one of {', '.join(ORDERS)}")
    elif name == "-isystem" or word[:2] == "-I":
        text = given() if name in ("-isystem", "-I") else word[2:]
        asked.include.append(Path(text).resolve())
    elif word[:2] == "-D":
        asked.defines.append(word[2:] or given())
    elif word[:2] == "-U":
        asked.flags.append(f"-U{word[2:] or given()}")
    elif name == "-include":
        path = Path(given())
        asked.flags += ["-include", str(path.resolve() if path.exists() else path)]
    elif word.startswith(("-std=", "--std=")):
        asked.standard = word.split("=")[1]
    elif word == "-fopenmp" or word[:2] == "-l" and not OF_CUDA.fullmatch(word[2:]):
        asked.flags.append(word)
    elif name == "--compiler-options" or word.startswith("-Xcompiler"):
        asked.flags += ["-fopenmp"] * ("-fopenmp" in re.split("[, ]", word.partition("=")[2] or given()))
    elif word[:2] == "-L":
        asked.flags.append(f"-L{Path(word[2:] or given()).resolve()}")
    elif word in WITH_VALUE:
        given()
    elif word.startswith("--") and name not in OF_NVCC:
        raise UsageError(f"run: {name} is not an option; `python -m laptop_cuda run --help` lists them")


def run(words: list[str]) -> int:
    begun, asked = time.time(), read_command(words)
    mode = asked.mode
    options = Options(tuple(asked.include), tuple(asked.defines), asked.standard, tuple(asked.flags))
    program = compile_program(asked.sources, options, mode)
    for line in program.warnings:
        print(f"laptop_cuda: warning: {line}", file=sys.stderr)
    ran = execute(program, asked.arguments, order=asked.order, seed=asked.seed, step_limit=asked.steps,
                  name=str(asked.sources[0].with_suffix("")), timeout=asked.timeout,
                  limit=0 if mode == "plain" or asked.budgets else asked.limit,
                  since=max(begun, time.time() - asked.limit / (2 if mode == "sanitize" else 4)),      # compiling is part of it
                  stdout=sys.stderr if asked.json == "-" else None, ncu=bool(asked.ncu),
                  hint=_looks(asked, options, program))
    said = report.text(ran, mode, program.files)
    if ran.hint and (hint := hints.line(ran.hint, "`python -m laptop_cuda run` without --plain")):
        print(hint, file=sys.stderr)
    if said:
        print(said, file=sys.stderr)
    over = [line for budget in asked.budgets if (line := budget.over(ran))]
    for line in over:
        print(f"laptop_cuda: over budget: {line}", file=sys.stderr)
    if asked.json:
        _write_json(asked, program, ran, over)
    if asked.ncu:
        _write_ncu(asked, ran)
    return ran.status or int(bool(ran.bugs or over))


def _looks(asked: Asked, options: Options, program: Program) -> dict | None:
    """What a look in passing needs: the checked program; which would not know what device variables hold."""
    if asked.mode != "plain" or not hints.wanted() or any(map(VARIABLE.search, program.files.values())):
        return None
    sources = [str(p.resolve()) for p in asked.sources]
    return {"sources": sources, "options": asdict(options) | {"include": list(map(str, options.include))}}


def _write_json(asked: Asked, program: Program, ran: Ran, over: list[str]) -> None:
    made = {"sources": [str(p) for p in asked.sources], "mode": asked.mode, "status": ran.status,
            "crash": ran.crash, "errors": ran.errors, "notes": ran.notes, "over_budget": over,
            "warnings": program.warnings, "launches": ran.launches}
    text = json.dumps(made, indent=1)
    if asked.json == "-":
        print(text)
    else:
        Path(asked.json).write_text(text + "\n", encoding="utf-8")


def _write_ncu(asked: Asked, ran: Ran) -> None:
    launches = [launch["ncu"] for launch in ran.launches if "ncu" in launch]
    if asked.arch and gpu.nvcc():
        module = load(asked.sources[0], asked.include, dict(d.partition("=")[::2] for d in asked.defines))
        for n, one in enumerate(launches):
            name = one["kernel"]
            try:
                kernel = module[name] if "<" in name else getattr(module, name)
                launches[n] = ncu.with_inside(one, inspect(kernel, asked.arch, block=tuple(one["block"])))
            except (InspectError, ArgumentError, AttributeError, KeyError) as problem:
                print(f"laptop_cuda: {name} is not shown as compiled: {problem}", file=sys.stderr)
    made = ncu.NcuReport(launches)
    page = "raw" if asked.ncu.endswith(".raw.csv") else "details"
    text = (made.csv(page) if asked.ncu.endswith(".csv") else made.html() if asked.ncu.endswith(".html")
            else f"{made}\n")
    Path(asked.ncu).write_text(text, encoding="utf-8")


def main(words: list[str]) -> int:
    if words[:1] in ([], ["--help"], ["-h"]):
        print(__doc__)
        return 0
    try:
        return run(words)
    except ProgramError as error:
        print(f"laptop_cuda: {error}", file=sys.stderr)
        return 2
