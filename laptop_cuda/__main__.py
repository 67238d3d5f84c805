"""`python -m laptop_cuda run prog.cu`, `inspect`, `bench`: the engine as a tool.

    run [options] prog.cu [more.cu ...] [arguments of the program]

      --sanitize             check every launch (the default): races, out of bounds, uninitialised reads, ...
      --profile              count what every launch asks of memory, per kernel and per line
      --plain                neither; fast
      --json FILE            the report as JSON as well; - for the standard output
      --budget COUNT=N       fail if a count is higher (KERNEL:COUNT=N for one kernel); implies --profile
      --order forward|reverse|seeded   --seed N   --steps N   --timeout SECONDS
      -I DIR  -D NAME[=VALUE]  -std=c++17    as for nvcc; its other options are ignored

The exit status is the program's own; 1 if a bug was found or a budget exceeded; 2 if it does not compile;
128 + n if it was ended by signal n; 124 after a --timeout.

    inspect [--arch sm_80,sm_90] [--kernel "name<64>"] [--block N] FILE.cu
                             registers, occupancy and machine code of its kernels; needs nvcc, no card

    judge [options] FOLDER my.cu         a submission against a challenge: see `judge --help`
    bench [--quick]          how fast the engine builds and runs on this machine
"""
from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from . import program_report
from .build import CompileError, NoCompiler
from .launch import ORDERS, STEP_LIMIT
from .program import Budget, Options, ProgramError, Ran, compile_program, execute

SOURCES = (".cu", ".cpp", ".cc", ".cxx", ".c")
WITH_VALUE = (
    "-arch",
    "-gencode",
    "-Xcompiler",
    "-Xptxas",
    "-o",
    "-ccbin",
    "-code",
    "-maxrregcount",
    "-L",
    "-x",
)


class UsageError(Exception):
    """A command line that is not understood."""


@dataclass
class Asked:
    sources: list[Path] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    mode: str = "sanitize"
    json: str = ""
    budgets: list[Budget] = field(default_factory=list)
    include: list[Path] = field(default_factory=list)
    defines: list[str] = field(default_factory=list)
    standard: str = "c++17"
    flags: list[str] = field(default_factory=list)
    order: str = "forward"
    seed: int = 0
    steps: int = STEP_LIMIT
    timeout: float | None = None


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
        raise UsageError("run: name a source, such as prog.cu")
    return asked


def _option(asked: Asked, word: str, left: list[str]) -> None:
    # over the guide: one branch per option
    name, joined, value = word.partition("=") if word.startswith("--") else (word, "", "")

    def given() -> str:
        if not joined and not left:
            raise UsageError(f"run: {name} needs a value")
        return value if joined else left.pop(0)

    if name in ("--sanitize", "--profile", "--plain"):
        asked.mode = name[2:]
    elif name == "--json":
        asked.json = given()
    elif name == "--budget":
        asked.budgets.append(Budget.read(given()))
        asked.mode = "profile"
    elif name == "--order":
        asked.order = given()
        if asked.order not in ORDERS:
            raise UsageError(f"run: --order is one of {', '.join(ORDERS)}")
    elif name in ("--seed", "--steps"):
        setattr(asked, name[2:], int(given()))
    elif name == "--timeout":
        asked.timeout = float(given())
    elif word[:2] in ("-I", "-D"):
        text = word[2:] or given()
        asked.include.append(Path(text).resolve()) if word[1] == "I" else asked.defines.append(text)
    elif word.startswith(("-std=", "--std=")):
        asked.standard = word.split("=")[1]
    elif word == "-fopenmp":
        asked.flags.append(word)
    elif word in WITH_VALUE:
        given()
    elif word.startswith("--") and name not in (
        "--use_fast_math",
        "--expt-relaxed-constexpr",
        "--extended-lambda",
        "--expt-extended-lambda",
        "--gpu-architecture",
        "--generate-code",
    ):
        raise UsageError(f"run: {name} is not an option; `python -m laptop_cuda --help` lists them")


def run(words: list[str]) -> int:
    asked = read_command(words)
    options = Options(tuple(asked.include), tuple(asked.defines), asked.standard, tuple(asked.flags))
    program = compile_program(asked.sources, options, asked.mode)
    try:
        ran = execute(program, asked.arguments, order=asked.order, seed=asked.seed, step_limit=asked.steps,
                      name=str(asked.sources[0].with_suffix("")), timeout=asked.timeout)
    except subprocess.TimeoutExpired:
        print(f"laptop_cuda: stopped after {asked.timeout:g} seconds, as --timeout asks", file=sys.stderr)
        return 124
    said = program_report.text(ran, asked.mode, program.files)
    if said:
        print(said, file=sys.stderr)
    over = [line for budget in asked.budgets if (line := budget.over(ran))]
    for line in over:
        print(f"laptop_cuda: over budget: {line}", file=sys.stderr)
    if asked.json:
        _write_json(asked, ran, over)
    return ran.status or int(bool(ran.errors or over))


def _write_json(asked: Asked, ran: Ran, over: list[str]) -> None:
    made = {
        "sources": [str(p) for p in asked.sources],
        "mode": asked.mode,
        "status": ran.status,
        "crash": ran.crash,
        "errors": ran.errors,
        "notes": ran.notes,
        "over_budget": over,
        "launches": ran.launches,
    }
    text = json.dumps(made, indent=1)
    if asked.json == "-":
        print(text)
    else:
        Path(asked.json).write_text(text + "\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    try:
        if words[:1] == ["run"]:
            return run(words[1:])
        if words[:1] == ["inspect"]:
            from .inspect_command import main as inspect
            return inspect(words[1:])
        if words[:1] == ["judge"]:
            from .judge import main as judge
            return judge(words[1:])
        if words[:1] == ["bench"]:
            from .bench import main as bench
            return bench(words[1:])
        print(__doc__)
        return 0 if words[:1] in (["--help"], ["-h"], []) else 2
    except (UsageError, ProgramError, CompileError, NoCompiler, FileNotFoundError, ValueError) as error:
        print(f"laptop_cuda: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
