"""From a student's source text to a verdict, without side effects.

    cases = draw(exercise, seed)                     # parent
    answer = runner.run(request(exercise, cases), source)      # may be another process
    judge(exercise, cases, answer, source)           # parent

`evaluate(exercise, source, seed)` is the three in one process.
"""
from __future__ import annotations

import ast
import inspect
import re
import zlib
from dataclasses import dataclass
from typing import Any

import torch

from course_lib.exercises import runner
from .compare import SMALL, close, show
from .declare import Array, Case, Exercise, Launch, given_spec
from .runner import Foreign, Outcome, Request, Run
from .verdict import NOT_ATTEMPTED, NOT_RUN, PASSED, WRONG, Verdict


@dataclass
class Oracle:
    """What is expected of each case, and what each misconception gives. Without solutions it can be stored."""
    expected: list[Any]
    misconceptions: list[tuple[str, str, Run]] | None = None       # (name, question, its run); None: find out when needed


def evaluate(exercise: Exercise, source: str, seed: int = 0, oracle: Oracle | None = None) -> Verdict:
    """The verdict on a cell's source text."""
    early = screen(exercise, source)
    if early:
        return early
    cases = draw(exercise, seed)
    return judge(exercise, cases, runner.run(request(exercise, cases, seed), source), source, seed, oracle)


def draw(exercise: Exercise, seed: int = 0) -> list[Case]:
    """The cases of this seed; the first is the smallest."""
    if exercise.cases is None:
        return [Case(label="the answer")]
    return list(exercise.cases(generator(exercise, seed)))


def generator(exercise: Exercise, seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(f"{exercise.id}/{seed}".encode()))


def request(exercise: Exercise, cases: list[Case], seed: int = 0) -> Request:
    """Plain data with which a child can run a source on the cases."""
    made = Request(id=exercise.id, language=exercise.language, name=exercise.name,
                   value=exercise.kind in ("predict", "choose"), is_class=_is_class(exercise),
                   given=given_spec(exercise.given), call=exercise.call, inputs=[(c.args, c.kwargs) for c in cases],
                   mutates=exercise.mutates, limit=exercise.limit, seed=seed)
    if exercise.language == "cuda":
        plans = [plan(exercise, case) for case in cases]
        made.inputs, made.arrays, made.launches = [], [p[0] for p in plans], [p[1] for p in plans]
        if exercise.traffic:
            made.budgets = [allowed(exercise, case) for case in cases]
    return made


def plan(exercise: Exercise, case: Case) -> tuple[list[dict], list[dict]]:
    """The arrays and the launches of one case, as plain data; args are ("array", index) or ("value", number)."""
    launches = exercise.launch(*case.args, **case.kwargs)
    arrays, seen, steps = [], {}, []
    for launch in [launches] if isinstance(launches, Launch) else launches:
        args = []
        for arg in launch.args:
            if isinstance(arg, (torch.Tensor, Array)):
                key = id(arg)
                if key not in seen:
                    seen[key] = len(arrays)
                    array = arg if isinstance(arg, Array) else Array("in", tuple(arg.shape), arg.dtype, arg)
                    arrays.append({"role": array.role, "shape": array.shape, "dtype": str(array.dtype).removeprefix("torch."),
                                   "tensor": array.tensor})
                args.append(("array", seen[key]))
            else:
                args.append(("value", arg))
        steps.append({"kernel": launch.kernel or exercise.name, "grid": _dims(launch.grid), "block": _dims(launch.block),
                      "shared": launch.shared, "args": args})
    return arrays, steps


def _dims(value) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


def _is_class(exercise: Exercise) -> bool:
    if exercise.language == "cuda" or exercise.kind in ("predict", "choose"):
        return False
    return any(isinstance(n, ast.ClassDef) and n.name == exercise.name for n in ast.parse(exercise.stub).body)


# --- before running ----------------------------------------------------------------------------------------------------

def screen(exercise: Exercise, source: str) -> Verdict | None:
    """Verdicts that need no run: the untouched stub, and names that the exercise forbids."""
    if not isinstance(source, str) or not source.strip() or normal(exercise, source) == normal(exercise, exercise.stub):
        wanted = "answer" if isinstance(exercise.answer, str) else "number"
        what = {"predict": f"Type your {wanted} in place of `None`, then run both cells.",
                "choose": "Type your choice in place of `None`, then run both cells."}.get(
                    exercise.kind, f"Write `{exercise.name}` in the cell above, run it, then run this one.")
        if exercise.kind == "repair":
            what = f"Find what is wrong with `{exercise.name}` in the cell above, mend it, then run both cells."
        return _verdict(exercise, NOT_ATTEMPTED, what)
    for name in exercise.forbid:
        if name in (_words(source) if exercise.language == "cuda" else _names(source)):
            return _verdict(exercise, WRONG, f"`{name}` may not be used here: the exercise is to do without it.")
    if exercise.language == "python" and "course_lib" in _names(source):
        return _verdict(exercise, WRONG, "`course_lib` is not there when your work is marked: use the names that the exercise "
                        "gives, and import the rest from Python or torch.")
    return None


def normal(exercise: Exercise, source: str) -> str:
    """The source without comments, docstrings and spacing, for telling a stub from an attempt."""
    if exercise.language == "cuda":
        source = re.sub(r"^\s*%%cuda.*$", "", source, flags=re.M)
        return "".join(re.sub(r"//[^\n]*|/\*.*?\*/", "", source, flags=re.S).split())
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return source
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(node, (ast.FunctionDef, ast.ClassDef)) \
                and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            node.body = body[1:] if not (isinstance(body[0].value.value, type(...)) and len(body) == 1) else body
    return ast.dump(tree)


def _words(source: str) -> set[str]:
    return set(re.findall(r"\w+", re.sub(r"//[^\n]*|/\*.*?\*/", "", source, flags=re.S)))


def _names(source: str) -> set[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return set()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found.update(node.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            found.update((node.module or "").split("."))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            found.add(node.value)                        # getattr(F, "scaled_dot_product_attention")
    return found


# --- judging -----------------------------------------------------------------------------------------------------------

def judge(exercise: Exercise, cases: list[Case], run: Run, source: str, seed: int = 0, oracle: Oracle | None = None) -> Verdict:
    """Compare what came with what was expected; name the misconception if it is a known one."""
    if run.failure:
        return _broken(exercise, run.failure, None, run.printed, source)
    if len(run.outcomes) != len(cases):
        return _verdict(exercise, NOT_RUN, f"{len(run.outcomes)} of {len(cases)} cases came back.")
    if exercise.kind in ("predict", "choose") and run.outcomes[0].value is None:
        return _verdict(exercise, NOT_ATTEMPTED, "The answer is still `None`.")
    oracle = oracle or exercise.oracle or Oracle(expected(exercise, cases, seed))
    failing = next((i for i, case in enumerate(cases) if fault(exercise, case, run.outcomes[i], oracle.expected[i])), None)
    if failing is None:
        return _passed(exercise, cases, run)
    case, outcome = cases[failing], run.outcomes[failing]
    if outcome.failure and outcome.failure.kind == "unwritten":
        verdict = _broken(exercise, outcome.failure, case, outcome.printed, source)
        verdict.status = NOT_ATTEMPTED if failing == 0 else WRONG
        return verdict
    verdict = _wrong(exercise, case, outcome, oracle.expected[failing], source)
    verdict.cases = len(cases)
    known = recognise(exercise, cases, run, source, seed, oracle)
    if known:
        verdict.misconception, verdict.ask = known
        typed = exercise.kind in ("predict", "choose")
        if not typed and not outcome.failure:
            label = "Traffic" if exercise.traffic and "times the bytes" in verdict.headline else "First difference"
            verdict.details.append((label, verdict.headline.replace("`", "")))
        verdict.details = [d for d in verdict.details if d[0] != BROKEN]
        verdict.headline = (f"This is the answer of someone who {known[0]}." if typed else
                            f"Your answer is what you get if it {known[0]}.")
    return verdict


def expected(exercise: Exercise, cases: list[Case], seed: int = 0) -> list[Any]:
    """What the reference gives. A reference that fails is our mistake, so it raises."""
    if exercise.expect is not None:
        return [_as_outs(exercise.expect(*runner.copied(c.args), **runner.copied(c.kwargs))) for c in cases]
    run = runner.run(request(exercise, cases, seed), exercise.solution)
    failure = run.failure or next((o.failure for o in run.outcomes if o.failure), None)
    if failure:
        raise AssertionError(f"the solution of exercise {exercise.id} fails: {failure.message} ({failure.text})")
    return [o.value for o in run.outcomes]


def _as_outs(value) -> list:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def fault(exercise: Exercise, case: Case, outcome: Outcome, want: Any) -> str | None:
    """What is wrong with one outcome, in words; None if it is right."""
    if outcome.failure:
        return outcome.failure.message
    if isinstance(outcome.value, Foreign) and isinstance(want, (torch.Tensor, tuple, list, dict)) or exercise.language == "cuda":
        told = (close() if isinstance(outcome.value, Foreign) else _compare_outs(exercise, case))(outcome.value, want, case)
    else:
        try:
            told = exercise.compare(outcome.value, want, case)
        except Exception:                                  # a comparison of the author's met a value of another kind
            told = close()(outcome.value, want, case) or "has the wrong form"
    if told:
        return told
    if outcome.changed:
        return f"changes its input {', '.join(f'`{c}`' for c in outcome.changed)} in place"
    if outcome.counts and exercise.traffic:
        return over_budget(exercise, case, outcome)
    return None


def _compare_outs(exercise: Exercise, case: Case):
    def compare(got, want, case):
        names = [f"output {i + 1}: " for i in range(len(want))] if len(want) > 1 else [""]
        for name, g, w in zip(names, got, want):
            told = exercise.compare(g, w, case)
            if told:
                return name + told
        return None if len(got) == len(want) else f"has {len(got)} outputs, expected {len(want)}"
    return compare


def allowed(exercise: Exercise, case: Case) -> float:
    """Bytes that a kernel may move: the budget, a quarter more, and a few sectors for ragged ends."""
    return exercise.traffic(*case.args, **case.kwargs) * 1.25 + 8 * 32


def over_budget(exercise: Exercise, case: Case, outcome: Outcome) -> str | None:
    """A kernel that is right and moves too much."""
    budget, moved = exercise.traffic(*case.args, **case.kwargs), outcome.counts["moved"]
    if moved <= allowed(exercise, case):
        return None
    return (f"moves {moved / budget:.1f} times the bytes it must, though its result is correct: "
            f"{moved:,} where {budget:,} are enough")


def recognise(exercise: Exercise, cases: list[Case], run: Run, source: str = "", seed: int = 0, oracle: Oracle | None = None):
    """(name, question) of the misconception that gives the same outcomes, or None.

    Two misconceptions may both be a race, or both out of bounds: then the one that reports the same lines wins, and
    where that does not tell, none is named.
    """
    if oracle and oracle.misconceptions is not None:
        runs = oracle.misconceptions
    else:
        asked = request(exercise, cases, seed)
        runs = [(m.name, m.ask, runner.run(asked, exercise.wrong_code(m))) for m in exercise.misconceptions]
    codes = {m.name: normal(exercise, exercise.wrong_code(m)) for m in exercise.misconceptions}
    found: list[tuple[int, str, str]] = []
    for name, ask, theirs in runs:
        if theirs.failure or len(theirs.outcomes) != len(run.outcomes):
            continue
        levels = [alike(exercise, case, a, b) for case, a, b in zip(cases, run.outcomes, theirs.outcomes)]
        if all(levels):
            level = SURE if codes.get(name) == normal(exercise, source) else min(levels)
            found.append((level, name, ask))
    best = [f for f in found if f[0] == max(found)[0]]
    if not best or (best[0][0] == SAME_KIND and len(best) > 1):
        return None
    return best[0][1:]


SAME_KIND, SAME_LINES, EQUAL, SURE = 1, 2, 3, 4


def alike(exercise: Exercise, case: Case, a: Outcome, b: Outcome) -> int:
    """How much two outcomes, right or wrong, are the same answer: 0 is not at all."""
    if a.failure or b.failure:
        if not (a.failure and b.failure) or a.failure.kind != b.failure.kind or a.failure.name != b.failure.name:
            return 0
        if a.failure.kind == "exception" and a.failure.message != b.failure.message:
            return 0                                       # two RuntimeErrors need not be the same mistake
        return SAME_LINES if _reported(a.failure) == _reported(b.failure) else SAME_KIND
    if sorted(a.changed) != sorted(b.changed):
        return 0
    if exercise.traffic and a.counts and b.counts:
        if (over_budget(exercise, case, a) is None) != (over_budget(exercise, case, b) is None):
            return 0
        if over_budget(exercise, case, a) and not 0.8 < a.counts["moved"] / b.counts["moved"] < 1.25:
            return 0
    try:
        if exercise.language == "cuda":
            return EQUAL * (_compare_outs(exercise, case)(a.value, b.value, case) is None)
        return EQUAL * (exercise.compare(a.value, b.value, case) is None)
    except Exception:
        return EQUAL * runner.same(a.value, b.value)


def _reported(failure: runner.Failure) -> str:
    """What an error says, without line numbers and spacing."""
    return "".join(re.sub(r"\b(line )?\d+\b(?= \||,)", "", failure.message).split())


BROKEN = "This must hold and does not"


# --- words -------------------------------------------------------------------------------------------------------------

def _verdict(exercise: Exercise, status: str, headline: str, details=(), **more) -> Verdict:
    return Verdict(exercise.id, exercise.title, status, headline, list(details), of=exercise.points,
                   points=exercise.points if status == PASSED else 0, **more)


def _passed(exercise: Exercise, cases: list[Case], run: Run) -> Verdict:
    n = len(cases)
    headline = "Right." if exercise.kind in ("predict", "choose") else f"All {n} cases agree." if n > 1 else "The case agrees."
    verdict = _verdict(exercise, PASSED, headline, cases=n)
    shares = sorted({s for o in run.outcomes for s in o.shares})
    if shares:
        verdict.notes.append(f"The result shares memory with {', '.join(f'`{s}`' for s in shares)}: "
                             "changing one in place changes the other.")
    return verdict


def _broken(exercise: Exercise, failure: runner.Failure, case: Case | None, printed: str, source: str) -> Verdict:
    """A verdict about code that gave no value."""
    details = []
    if failure.line and exercise.language == "python":
        details.append((f"Line {failure.line}", failure.text or runner.line_of(source, failure.line)))
    if case is not None:
        details += _inputs(exercise, case, 16 if exercise.language == "cuda" else SMALL)
    status, headline = WRONG, ""
    if failure.kind == "undefined":
        names = ", ".join(f"`{n}`" for n in exercise.given) or "none besides Python's own"
        headline = (f"`{failure.name}` is not defined inside this cell. Names that this exercise gives you: {names}. "
                    "If it comes from another cell, move it into this one.")
    elif failure.kind == "syntax":
        headline = f"Python cannot read the cell: {failure.message}."
    elif failure.kind == "not defined":
        headline = f"{failure.message[0].upper()}{failure.message[1:]}." if failure.message[0] != "`" else f"{failure.message}."
    elif failure.kind == "signature":
        headline = f"{failure.message}. The exercise calls it as in the stub: `{signature(exercise)}`."
    elif failure.kind == "timeout" and exercise.language == "python":
        headline = f"Your code {failure.message}: is there a loop that never ends?"
    elif failure.kind == "unwritten":
        headline = f"`{exercise.name}` {failure.message}."
    elif failure.kind == "compile":
        headline = "The kernel does not compile."
        details.append(("The compiler says", failure.message.partition("\n")[2].strip("\n") or failure.message))
    elif failure.kind == "missing":
        status, headline = NOT_RUN, failure.message
    elif failure.kind == "launch":
        headline = f"The exercise cannot launch your kernel: {failure.message}"
    elif exercise.language == "cuda":
        headline = f"The sanitizer found: {failure.kind}."
        details.append(("The sanitizer says", failure.message))
    elif failure.kind == "command":
        headline = f"{failure.message}."
    else:
        headline = f"Your code raises {failure.message}" + ("" if failure.message.endswith((".", "?", "!")) else ".")
    if printed.strip():
        details.append(("Your code printed", _clip(printed)))
    return _verdict(exercise, status, headline, details, case=case.label if case else None)


def _wrong(exercise: Exercise, case: Case, outcome: Outcome, want: Any, source: str) -> Verdict:
    """A verdict about an outcome that is not the expected one."""
    if outcome.failure:
        return _broken(exercise, outcome.failure, case, outcome.printed, source)
    told = fault(exercise, case, outcome, want)
    if exercise.kind in ("predict", "choose"):
        return _verdict(exercise, WRONG, f"{told[0].upper()}{told[1:]}.", case=case.label)
    headline = told if told[0].isupper() else f"`{exercise.name}` {told}" if _is_verb(told) else (
        f"The result's {told}" if re.match(r"\w+( \d+)?: ", told) else f"The result {told}")
    headline += "" if headline.endswith((".", "?", "!")) else "."
    right_values = told.startswith(("changes", "moves"))
    details = _inputs(exercise, case, 0 if told.startswith("moves") else SMALL)
    if not right_values:
        got = outcome.value[0] if exercise.language == "cuda" and len(outcome.value) == 1 else outcome.value
        wanted = want[0] if exercise.language == "cuda" and len(want) == 1 else want
        details += [("You returned" if exercise.language == "python" else "Your kernel wrote", show(got)),
                    ("Expected", show(wanted))]
        if outcome.changed:
            details.append(("It also changes", f"its input {', '.join(outcome.changed)}, in place"))
    if (outcome.counts or {}).get("unwritten"):
        details.append(("Never written", outcome.counts["unwritten"]))
    if outcome.nan:
        where = f"line {outcome.nan['line']}: {outcome.nan.get('text', '')}" if outcome.nan.get("line") else "outside the cell"
        details.append(("The first NaN", f"comes out of `{outcome.nan['op']}`, {where}"))
    if not right_values:
        broken = None if outcome.nan else broken_property(exercise, case, outcome.value)
        if broken:
            details.append((BROKEN, broken))
    if outcome.printed.strip():
        details.append(("Your code printed", _clip(outcome.printed)))
    return _verdict(exercise, WRONG, headline, details, case=case.label, picture=picture(outcome))


def picture(outcome: Outcome) -> str | None:
    """The accesses of the first warp to the costliest array, as HTML made here: what a child sends is not trusted."""
    drawn = (outcome.counts or {}).get("picture")
    if not drawn or not drawn["requests"]:
        return None
    from types import SimpleNamespace
    from laptop_cuda.picture import Picture
    memory = SimpleNamespace(name=re.sub(r"\W", "", str(drawn["name"]))[:40], itemsize=int(drawn["itemsize"]), space="global",
                             offset=0)
    requests = [{"offset": [int(o) for o in r["offset"]][:32], "size": int(r["size"]), "operation": int(r["operation"])}
                for r in drawn["requests"]]
    return Picture(memory, requests, [int(n) for n in drawn["lines"]], 0, int(drawn["of"]))._repr_html_()


def _is_verb(told: str) -> bool:
    return told.split()[0] in ("returns", "changes", "moves")


def broken_property(exercise: Exercise, case: Case, got: Any) -> str | None:
    """The first declared property that the value breaks."""
    if exercise.language == "cuda" and isinstance(got, list) and len(got) == 1:
        got = got[0]
    for name, holds in exercise.properties:
        try:
            told = holds(got, case)
        except Exception:
            continue                                   # the value has not even the form that the property speaks of
        if isinstance(told, str):
            return f"{name}: {told}"
        if told is not None and not bool(told):
            return name
    return None


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
                names = [a.arg for a in node.args.posonlyargs + node.args.args][1 if exercise.call else 0:]
    names = names[:len(case.args)] + [f"argument {i + 1}" for i in range(len(names), len(case.args))]
    return names + list(case.kwargs)


def signature(exercise: Exercise) -> str:
    """`softmax(x, dim=-1)`, from the stub."""
    for node in ast.parse(exercise.stub).body:
        if isinstance(node, ast.FunctionDef) and node.name == exercise.name:
            return f"{node.name}({ast.unparse(node.args)})"
    return exercise.name


def _clip(text: str) -> str:
    lines = text.strip("\n").splitlines()
    return "\n".join(lines[:8] + (["..."] if len(lines) > 8 else []))
