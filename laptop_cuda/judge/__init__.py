"""`python -m laptop_cuda judge FOLDER my.cu`: is a submission right, and is it free of bugs?

FOLDER is a challenge as LeetGPU lays it out (challenge.py; the submission has `extern "C" void solve(...)`)
or as KernelBot does (task.yml and reference.py; the submission has `custom_kernel(...)` or `solve(...)`,
whose pointers are the arrays of the test in order, then the output if the test has none; `n` is a size).

      --json FILE            the report as JSON; - for the standard output
      --largest N            leave out cases of more than N elements (2^20)
      --given                only the cases that the challenge gives, none of ragged shapes
      --budget COUNT=N       fail if the largest case counts more (sectors, excess, atomics, ...)
      --order late|early|seeded|forward|reverse   --timeout SECONDS
      --seed N               of random inputs that the challenge draws without a seed, and of the order

The submission's host code (`solve`, `custom_kernel`) and the challenge's Python run as you, without walls: judge what you
would run yourself. Every launch of every case is checked and counted. The exit status is 0 if all is right, 1 if a result is
wrong, a bug is found or a budget is exceeded, 2 if the submission cannot be judged, 124 after the timeout."""
import argparse
import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from .. import build, sources
from ..launch import ORDERS, STEP_LIMIT
from ..programs import Budget, Program, Ran, execute
from ..text.signature import hosts

SHOWN = 3                        # failing cases with their message
SOLVE_H = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"solve\.h"[ \t]*$', re.MULTILINE)
ENTRIES = ("solve", "custom_kernel")
ENTRY = """
#include <host_launch.h>
#line 1 "entries"
LAPTOP_EXPORT void laptop_judge(void** laptop_args) {{ laptop::call_host(&::{name}, laptop_args); }}
LAPTOP_EXPORT const char* laptop_judge_types() {{ return laptop_entries::types(&::{name})(); }}
LAPTOP_EXPORT void* laptop_judge_malloc(size_t bytes, const char* name, unsigned itemsize) {{
    return laptop::device_malloc(bytes, name, itemsize);
}}
LAPTOP_EXPORT void laptop_judge_wrote(void* p, size_t bytes) {{ laptop::host_wrote(p, bytes); }}
LAPTOP_EXPORT const void* laptop_judge_written(const void* p) {{ return laptop::device_written(p); }}
LAPTOP_EXPORT void laptop_judge_free(void* p) {{ laptop::device_free(p); }}
"""


class CannotJudge(Exception):
    """No challenge, no submission, or the two do not fit."""


@dataclass
class Verdict:
    """What the judge says: each case with its verdict, and the launches of the last case."""
    cases: list[dict]
    counts: dict = field(default_factory=dict)       # {kernel: its counts} in the largest right case
    crash: str = ""
    timed_out: bool = False
    over: list[str] = field(default_factory=list)

    @property
    def right(self) -> bool:
        ran = [c for c in self.cases if c["verdict"] != "skipped"]
        return bool(ran) and all(c["verdict"] == "right" for c in ran) and not self.crash and not self.over

    def of(self, kind: str) -> list[dict]:
        return [c for c in self.cases if c["kind"] == kind]


def judge(folder: Path, submission: Path, *, largest: int = 1 << 20, given_only: bool = False,
          budgets: list[Budget] = (), order: str = "forward", seed: int = 0, timeout: float = 600) -> Verdict:
    """Compiles the submission and runs the challenge's cases in a process of its own."""
    if not folder.is_dir():
        raise CannotJudge(f"there is no folder {folder}")
    if not submission.is_file():
        raise CannotJudge(f"there is no file {submission}")
    if submission.suffix == ".py":
        raise CannotJudge(f"{submission.name} is Python, which is not run: put the CUDA C++ that it gives to "
                          "load_inline into a .cu, with custom_kernel(...) on pointers in place of tensors")
    program, names = compiled(submission)
    ran = execute(program, order=order, seed=seed, step_limit=STEP_LIMIT, capture=True, timeout=timeout,
                  child="judge.child", challenge=str(folder.resolve()), names=names, largest=largest,
                  ragged=not given_only)
    made = read(ran)
    counted = Ran(0, launches=made.counts["launches"])           # of the largest case
    made.over = [line for budget in budgets if (line := budget.over(counted))]
    return made


def compiled(path: Path) -> tuple[Program, list[str]]:
    """The submission as a library, and the names of its function's parameters."""
    text, home = sources.read(path), path.resolve().parent
    if not (home / "solve.h").is_file():         # LeetGPU's own, of its first year: the line of solve()
        text = SOLVE_H.sub("", text)
    files = sources.files_of(text, home)
    found = next((h for name in ENTRIES for h in hosts(files[0]) if h.name == name), None)
    if found is None:
        raise CannotJudge(f'{path.name} has no function `{ENTRIES[0]}`: extern "C" void solve(...) takes the '
                          "arrays and sizes of the challenge and launches the kernels")
    text = (sources.started(files, path.name) + sources.rewritten(files, home)
            + ENTRY.format(name=found.name))
    texts = {path.name: files[0].text} | {f.path.name: f.text for f in files[1:]}
    library = build.program({path: text}, texts, ["-std=c++17"], True)
    return Program(library, "both", texts), list(found.parameters)


def read(ran: Ran) -> Verdict:
    """The rows that the child told: a case starts, its launches follow, then its verdict."""
    cases, launches, largest = [], [], []
    for row in ran.launches:
        if "case" not in row:
            launches.append(row)
        elif row["verdict"] == "fatal":
            raise CannotJudge(row["message"])
        elif row["verdict"] == "started":
            launches = []
            cases.append(row | {"verdict": "too slow" if ran.timed_out else "crashed", "message": ran.crash})
        elif row["verdict"] == "skipped":
            cases.append(row)
        else:
            cases[-1] = row | {"launches": len(launches)}
            if sum(la["counts"].get("bytes", 0) for la in launches) >= sum(
                    la["counts"].get("bytes", 0) for la in largest):
                largest = launches
    if not cases and ran.timed_out:
        raise CannotJudge("the challenge's own code, its inputs and its reference, took all the time of its "
                          "first case: --timeout SECONDS gives it more")
    if not cases:
        raise CannotJudge(f"the challenge gave no case\n{ran.stderr.strip()[-2000:]}")
    if all(c["verdict"] == "skipped" for c in cases):
        smallest = min((c["message"] for c in cases), key=len)
        raise CannotJudge(f"every case is left out for its size: {smallest}")
    totals: dict[str, dict] = {}
    for la in largest:
        kernel = totals.setdefault(la["kernel"], dict.fromkeys(la["counts"], 0) | {"launches": 0})
        for name, count in la["counts"].items():
            kernel[name] += count
        kernel["launches"] += 1
    return Verdict(cases, {"kernels": totals, "launches": largest}, ran.crash, ran.timed_out)


def text(verdict: Verdict) -> str:
    """The report: what is wrong first, then a line per kind of case, then counts."""
    failed = [(n, c) for n, c in enumerate(verdict.cases, 1) if c["verdict"] not in ("right", "skipped")]
    lines = []
    for number, case in failed[:SHOWN]:
        said = "\n".join(filter(None, (case["message"], case["note"]))).replace("\n", "\n    ")
        lines.append(f"case {number} ({case['kind']}, {case['case']}): {case['verdict']}: {said}")
    if len(failed) > SHOWN:
        lines.append("also not right: cases " + ", ".join(str(n) for n, _ in failed[SHOWN:]))
    for kind in ("given", "ragged"):
        cases = verdict.of(kind)
        ran = [c for c in cases if c["verdict"] != "skipped"]
        left = f", {len(cases) - len(ran)} left out for their size" if len(cases) > len(ran) else ""
        if cases:
            right = sum(c["verdict"] == "right" for c in ran)
            lines.append(f"{kind}: right on {right} of {len(ran)} cases{left}")
    if not verdict.of("ragged"):
        lines.append("ragged: none, the shapes do not follow from the sizes in an obvious way")
    for kernel, c in verdict.counts.get("kernels", {}).items():
        lines.append(f"{kernel}, largest case: {c['launches']} launch{'es' * (c['launches'] != 1)}, "
                     f"{c['sectors']:,} sectors, {c['bytes']:,} bytes asked, {c['wavefronts']:,} shared "
                     f"wavefronts, {c['excess']:,} of them from conflicts, {c['atomics']:,} atomics")
    lines += [f"over budget: {line}" for line in verdict.over]
    ragged_alone = failed and not verdict.over and all(c["kind"] == "ragged" for _, c in failed)
    lines.append("right, no bug found" if verdict.right else "not accepted" + (
        ", because of ragged shapes alone: the given tests hold none of them (--given leaves them out)"
        if ragged_alone else ""))
    return "\n".join(lines)


def main(words: list[str]) -> int:
    if "--help" in words or "-h" in words or not words:
        print(__doc__)
        return 0 if words else 2
    parser = argparse.ArgumentParser(prog="laptop_cuda judge", add_help=False)
    parser.add_argument("folder", type=Path)
    parser.add_argument("submission", type=Path)
    parser.add_argument("--json", default="")
    parser.add_argument("--largest", type=int, default=1 << 20)
    parser.add_argument("--given", action="store_true")
    parser.add_argument("--budget", action="append", default=[], type=Budget.read)
    parser.add_argument("--order", choices=sorted(ORDERS), default="forward")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=600)
    asked = parser.parse_args(words)
    try:
        verdict = judge(asked.folder, asked.submission, largest=asked.largest, given_only=asked.given,
                        budgets=asked.budget, order=asked.order, seed=asked.seed, timeout=asked.timeout)
    except CannotJudge as fault:
        print(f"laptop_cuda: {fault}", file=sys.stderr)
        return 2
    report = {"accepted": verdict.right, "cases": verdict.cases, "crash": verdict.crash,
              "over_budget": verdict.over, "kernels": verdict.counts["kernels"]}
    if asked.json == "-":
        print(json.dumps(report, indent=1))
    else:
        print(text(verdict))
        if asked.json:
            Path(asked.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 124 if verdict.timed_out else 0 if verdict.right else 1
