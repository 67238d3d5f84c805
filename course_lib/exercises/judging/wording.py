"""Verdicts in words: what was returned, what was expected, and what else helps."""
import ast
import inspect
import re
from types import SimpleNamespace
from typing import Any

from ..parts import Array, Case, Exercise, Launch
from ..running.results import Failure, Outcome, Run, line_of
from .show import SMALL, show
from .verdict import NOT_RUN, PASSED, WRONG, Verdict, verdict_on

BROKEN = "This must hold and does not"
SMALL_KERNEL_INPUT = 16         # a kernel's inputs are shown whole up to so many elements


def on_pass(exercise: Exercise, cases: list[Case], run: Run) -> Verdict:
    n = len(cases)
    headline = ("Right." if exercise.kind in ("predict", "choose") else f"All {n} cases agree." if n > 1
                else "The case agrees.")
    verdict = verdict_on(exercise, PASSED, headline, cases=n)
    shares = sorted({s for o in run.outcomes for s in o.shares})
    if shares:
        verdict.notes.append(f"The result shares memory with {', '.join(f'`{s}`' for s in shares)}: "
                             "changing one in place changes the other.")
    return verdict


def on_failure(exercise: Exercise, failure: Failure, case: Case | None, printed: str, source: str) -> Verdict:
    """A verdict about code that gave no value."""
    details = []
    if failure.line and exercise.language == "python":
        details.append((f"Line {failure.line}", failure.text or line_of(source, failure.line)))
    if case is not None:
        details += _inputs(exercise, case, SMALL_KERNEL_INPUT if exercise.language == "cuda" else
                           0 if failure.kind == "refused" else SMALL)
    if failure.kind == "compile":
        details.append(("The compiler says", failure.message.partition("\n")[2].strip("\n")
                        or failure.message))
    elif exercise.language == "cuda" and failure.kind not in _SENTENCES:
        details.append(("The sanitizer says", failure.message))
    if printed.strip():
        details.append(("Your code printed", _clip(printed)))
    return verdict_on(exercise, NOT_RUN if failure.kind == "missing" else WRONG, _headline(exercise, failure),
                      details, case=case.label if case else None)


_SENTENCES = {
    "undefined": lambda e, f: (
        f"`{f.name}` is not defined inside this cell. Names that this exercise gives you: "
        f"{_given(e)}. "
        "If it comes from another cell, move it into this one."),
    "syntax": lambda e, f: f"Python cannot read the cell as it was last run: {f.message}.",
    "not defined": lambda e, f: f"{_capital(f.message)}.",
    "signature": lambda e, f: f"{f.message}. The exercise calls it as in the stub: `{signature(e)}`.",
    "unwritten": lambda e, f: f"`{e.name}` {f.message}.",
    "compile": lambda e, f: "The kernel does not compile.",
    "missing": lambda e, f: f.message,
    "launch": lambda e, f: f"The exercise cannot launch your kernel: {f.message}",
    "forbidden": lambda e, f: f"{f.message}.",
    "refused": lambda e, f: f"{_capital(f.message)}.",
    "command": lambda e, f: f"{f.message}."}


def _headline(exercise: Exercise, failure: Failure) -> str:
    if failure.kind == "timeout" and exercise.language == "python":
        return f"Your code {failure.message}: is there a loop that never ends?"
    if failure.kind in _SENTENCES:
        return _SENTENCES[failure.kind](exercise, failure)
    if exercise.language == "cuda":
        return f"The sanitizer found: {failure.kind}."
    return f"Your code raises {failure.message}" + ("" if failure.message.endswith((".", "?", "!")) else ".")


def on_wrong(exercise: Exercise, case: Case, outcome: Outcome, want: Any, source: str, told: str,
             broken: str | None) -> Verdict:
    """A verdict about an outcome that is not the expected one; `told` says how, `broken` names a property."""
    if outcome.failure:
        return on_failure(exercise, outcome.failure, case, outcome.printed, source)
    if exercise.kind in ("predict", "choose"):
        return verdict_on(exercise, WRONG, f"{_capital(told)}.", case=case.label)
    is_verb = told.split()[0] in ("returns", "changes", "moves")
    headline = told if told[0].isupper() else f"`{exercise.name}` {told}" if is_verb else (
        f"The result's {told}" if re.match(r"\w+( \d+)?(, \w+( \d+)?)*: ", told) else f"The result {told}")
    headline += "" if headline.endswith((".", "?", "!")) else "."
    is_form = told.startswith(("moves", "returns")) or "has shape" in told           # no number is wrong
    details = _inputs(exercise, case, 0 if is_form else SMALL)
    if not told.startswith(("changes", "moves")):            # then the values themselves are right
        details += _values(exercise, case, outcome, want, told, SMALL_KERNEL_INPUT if is_form else SMALL)
    if (outcome.counts or {}).get("unwritten"):
        details.append(("Never written", outcome.counts["unwritten"]))
    if outcome.nan:
        where = (f"line {outcome.nan['line']}: {outcome.nan.get('text', '')}" if outcome.nan.get("line")
                 else "outside the cell")
        details.append(("The first NaN", f"comes out of `{outcome.nan['op']}`, {where}"))
    if broken and not told.startswith(("changes", "moves")):
        details.append((BROKEN, broken))
    if outcome.printed.strip():
        details.append(("Your code printed", _clip(outcome.printed)))
    return verdict_on(exercise, WRONG, headline, details, case=case.label, picture=picture(outcome))


def _values(exercise: Exercise, case: Case, outcome: Outcome, want: Any, told: str,
            small: int) -> list[tuple[str, str]]:
    """What was returned, what was expected, and which inputs were changed."""
    kernel = exercise.language == "cuda"
    got, wanted, array = outcome.value, want, ""
    if kernel:                      # of several outputs the one that `told` is about
        names = output_names(exercise, case) if len(want) > 1 else []
        i = next((i for i, name in enumerate(names) if told.startswith(f"{name}: ")), 0)
        got, wanted, array = got[i], want[i], f"{names[i]}: " if names else ""
    else:
        got, wanted = exercise.measured(got, case), exercise.measured(want, case)
    shown = [array + show(value, small).replace("\n", "\n" + " " * len(array)) for value in (got, wanted)]
    rows = [("Your kernel wrote" if kernel else "You returned", shown[0]), ("Expected", shown[1])]
    if outcome.changed:
        rows.append(("It also changes", f"its input {', '.join(changed_inputs(exercise, case, outcome))}, in place"))
    return rows


def picture(outcome: Outcome) -> str | None:
    """The accesses of the first warp to the costliest array, as HTML. All counts are made numbers first."""
    drawn = (outcome.counts or {}).get("picture")
    if not drawn or not drawn["requests"]:
        return None
    from laptop_cuda.pictures.picture import Picture
    memory = SimpleNamespace(name=re.sub(r"\W", "", str(drawn["name"]))[:40], itemsize=int(drawn["itemsize"]),
                             space="global", offset=0)
    requests = [{"offset": [int(o) for o in r["offset"]][:32], "size": int(r["size"]),
                 "operation": int(r["operation"])} for r in drawn["requests"]]
    return Picture(memory, requests, [int(n) for n in drawn["lines"]], 0, int(drawn["of"]))._repr_html_()


def _given(exercise: Exercise) -> str:
    return ", ".join(f"`{name}`" for name in exercise.given) or "none besides Python's own"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _inputs(exercise: Exercise, case: Case, small: int) -> list[tuple[str, str]]:
    """The case, and its inputs; tensors of at most so many elements are shown whole."""
    rows = [("Case", case.label)] if case.label else []
    for name, value in zip(argument_names(exercise, case), [*case.args, *case.kwargs.values()]):
        rows.append((name, show(value, small)))
    return rows


def argument_names(exercise: Exercise, case: Case) -> list[str]:
    """Names of a case's values, from the stub's signature, the driver or the launch."""
    names: list[str] = []
    if exercise.language == "cuda":
        names = list(inspect.signature(exercise.launch).parameters)
    else:
        text = exercise.call or exercise.stub
        wanted = None if exercise.call else exercise.name
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and wanted in (None, node.name):
                rest = [node.args.vararg] * bool(node.args.vararg)
                known = node.args.posonlyargs + node.args.args + rest
                names = [a.arg for a in known][1 if exercise.call else 0:]
    names = names[:len(case.args)] + [f"argument {i + 1}" for i in range(len(names), len(case.args))]
    return names + list(case.kwargs)


def changed_inputs(exercise: Exercise, case: Case, outcome: Outcome) -> list[str]:
    """The inputs that were changed in place, by the names under which a verdict shows them."""
    names = [] if exercise.language == "cuda" else argument_names(exercise, case)
    numbered = {f"argument {i}": name for i, name in enumerate(names, 1)}
    return [numbered.get(name, name) for name in outcome.changed]


def output_names(exercise: Exercise, case: Case) -> list[str]:
    """What the kernel's own signature calls the arrays that are compared."""
    launches, names = exercise.launch(*case.args, **case.kwargs), {}
    for launch in [launches] if isinstance(launches, Launch) else launches:
        head = re.search(rf"\b{launch.kernel or exercise.name}\s*\(([^)]*)\)", exercise.stub)
        for arg, parameter in zip(launch.args, head[1].split(",") if head else launch.args):
            if isinstance(arg, Array) and arg.role in ("out", "inout"):
                names.setdefault(id(arg), parameter.split()[-1].strip("*") if head else f"output {len(names) + 1}")
    return list(names.values())


def signature(exercise: Exercise) -> str:
    """`softmax(x, dim=-1)`, from the stub."""
    for node in ast.parse(exercise.stub).body:
        if isinstance(node, ast.FunctionDef) and node.name == exercise.name:
            return f"{node.name}({ast.unparse(node.args)})"
    return exercise.name


def _clip(text: str) -> str:
    lines = text.strip("\n").splitlines()
    return "\n".join(lines[:8] + (["..."] if len(lines) > 8 else []))
