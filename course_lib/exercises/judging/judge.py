"""From a student's source text to a verdict, without side effects.

    cases = draw(exercise, seed)                                # here
    answer = runner.run(request(exercise, cases), source)       # may be another process
    judge(exercise, cases, answer, source)                      # here

`evaluate(exercise, source, seed)` is the three in one process."""
import ast
import hashlib
import math
import zlib
from dataclasses import dataclass
from typing import Any

import torch

from ..running import runner
from .compare import close, compare_outputs, same_form
from .counting import UNLIMITED, allowed, over_budget, over_counts
from ..given import given_spec
from ..parts import Array, Case, Exercise, Launch, TensorMap
from .recognise import recognise
from ..running.results import Foreign, Outcome, Request, Run
from .screen import screen
from ..running.values import copied
from .verdict import NOT_ATTEMPTED, NOT_RUN, WRONG, Verdict, verdict_on
from .wording import BROKEN, changed_inputs, on_failure, on_pass, on_wrong, output_names


@dataclass
class Oracle:
    """The expected value of each case, and the run of each misconception. It can be stored for a handout."""
    expected: list[Any]
    # (name, question, its run); None: run them when needed
    misconceptions: list[tuple[str, str, Run]] | None = None


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
    typed = exercise.kind in ("predict", "choose")
    given = {"math": math} | exercise.given if typed else exercise.given      # an answer may be typed as a formula
    of_run = hashlib.sha256(f"{exercise.id}/{seed}".encode()).digest()[:6]     # does not tell the seed of the cases
    made = Request(id=exercise.id, language=exercise.language, name=exercise.name, value=typed,
                   is_class=_is_class(exercise), given=given_spec(given), call=exercise.call,
                   inputs=[(c.args, c.kwargs) for c in cases], mutates=exercise.mutates,
                   forbid=exercise.forbid, limit=exercise.limit, seed=int.from_bytes(of_run))
    if exercise.language == "cuda":
        made.orders = exercise.orders
        plans = [plan(exercise, case) for case in cases]
        made.inputs, made.arrays, made.launches = [], [p[0] for p in plans], [p[1] for p in plans]
        if exercise.traffic:
            made.budgets = [allowed(exercise, case) for case in cases]
        if exercise.budget:
            made.budgets, made.machine = [UNLIMITED] * len(cases), exercise.machine or {}
    return made


def plan(exercise: Exercise, case: Case) -> tuple[list[dict], list[dict]]:
    """Arrays and launches of one case; args: ("array", i), ("map", (i, box, swizzle)) or ("value", x)."""
    launches = exercise.launch(*case.args, **case.kwargs)
    arrays, seen, steps = [], {}, []

    def place(arg) -> int:
        if id(arg) not in seen:
            seen[id(arg)] = len(arrays)
            array = arg if isinstance(arg, Array) else Array("in", tuple(arg.shape), arg.dtype, arg)
            arrays.append({"role": array.role, "shape": array.shape, "tensor": array.tensor,
                           "dtype": str(array.dtype).removeprefix("torch.")})
        return seen[id(arg)]

    for launch in [launches] if isinstance(launches, Launch) else launches:
        args = []
        for arg in launch.args:
            if isinstance(arg, TensorMap):
                args.append(("map", (place(arg.array), arg.box, arg.swizzle)))
            elif isinstance(arg, (torch.Tensor, Array)):
                args.append(("array", place(arg)))
            else:
                args.append(("value", arg))
        steps.append({"kernel": launch.kernel or exercise.name, "grid": _dims(launch.grid),
                      "block": _dims(launch.block), "shared": launch.shared, "args": args})
    return arrays, steps


def _dims(value) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


def _is_class(exercise: Exercise) -> bool:
    if exercise.language == "cuda" or exercise.kind in ("predict", "choose"):
        return False
    return any(isinstance(n, ast.ClassDef) and n.name == exercise.name for n in ast.parse(exercise.stub).body)


def judge(
    exercise: Exercise, cases: list[Case], run: Run, source: str, seed: int = 0, oracle: Oracle | None = None
) -> Verdict:
    """Compare the outcomes with the expected values; name the misconception if it is a known one."""
    if run.failure:
        return on_failure(exercise, run.failure, None, run.printed, source)
    if len(run.outcomes) != len(cases):
        return verdict_on(exercise, NOT_RUN, f"{len(run.outcomes)} of {len(cases)} cases came back.")
    typed = exercise.kind in ("predict", "choose")
    if typed and run.outcomes[0].value is None:
        return verdict_on(exercise, NOT_ATTEMPTED, "The answer is still `None`.")
    oracle = oracle or exercise.oracle or Oracle(expected(exercise, cases, seed))
    faults = (fault(exercise, *parts) for parts in zip(cases, run.outcomes, oracle.expected))
    failing, told = next(((i, told) for i, told in enumerate(faults) if told), (None, None))
    if told is None:
        return on_pass(exercise, cases, run)
    case, outcome, want = cases[failing], run.outcomes[failing], oracle.expected[failing]
    if outcome.failure and outcome.failure.kind == "unwritten":
        verdict = on_failure(exercise, outcome.failure, case, outcome.printed, source)
        verdict.status = NOT_ATTEMPTED if failing == 0 else WRONG
        return verdict
    broken = None if outcome.nan or outcome.failure else broken_property(exercise, case, outcome.value, want)
    verdict = on_wrong(exercise, case, outcome, want, source, told, broken)
    verdict.cases = len(cases)
    if oracle.misconceptions is None:
        oracle.misconceptions = mistakes(exercise, request(exercise, cases, seed))
    known = recognise(exercise, cases, run, source, oracle.misconceptions)
    if known:
        _name_misconception(exercise, verdict, known, with_first=not typed and not outcome.failure)
    return verdict


def _name_misconception(exercise: Exercise, verdict: Verdict, known: tuple[str, str],
                        with_first: bool) -> None:
    verdict.misconception, verdict.ask = known
    if with_first:
        label = ("Traffic" if exercise.traffic and "times the bytes" in verdict.headline
                 else "First difference")
        verdict.details.append((label, verdict.headline.replace("`", "")))
    verdict.details = [d for d in verdict.details if d[0] != BROKEN]
    verdict.headline = (f"This is the answer of someone who {known[0]}."
                        if exercise.kind in ("predict", "choose")
                        else f"This looks like code that {known[0]}.")


def mistakes(exercise: Exercise, asked: Request) -> list[tuple[str, str, Run]]:
    """Every misconception of the exercise, run on the cases."""
    return [(m.name, m.ask, runner.run(asked, exercise.wrong_code(m))) for m in exercise.misconceptions]


def expected(exercise: Exercise, cases: list[Case], seed: int = 0) -> list[Any]:
    """The reference's results. A reference that fails is our mistake, so it raises."""
    if exercise.expect is not None:
        wanted = [exercise.expect(*copied(c.args), **copied(c.kwargs)) for c in cases]
        return [list(value) if isinstance(value, (tuple, list)) else [value] for value in wanted]
    run = runner.run(request(exercise, cases, seed), exercise.solution)
    failure = run.failure or next((o.failure for o in run.outcomes if o.failure), None)
    if failure:
        raise AssertionError(f"the solution of exercise {exercise.id} fails: {failure.message} "
                             f"({failure.text})")
    return [o.value for o in run.outcomes]


def fault(exercise: Exercise, case: Case, outcome: Outcome, want: Any) -> str | None:
    """A sentence about what is wrong with one outcome; None if it is right."""
    if outcome.failure:
        return outcome.failure.message
    told = _difference(exercise, case, outcome.value, want)
    if told:
        return told
    if outcome.changed:
        return f"changes its input {', '.join(f'`{c}`' for c in changed_inputs(exercise, case, outcome))} in place"
    if outcome.counts and exercise.traffic:
        return over_budget(exercise, case, outcome)
    return over_counts(exercise, case, outcome) if exercise.budget else None


def _difference(exercise: Exercise, case: Case, got: Any, want: Any) -> str | None:
    structured = isinstance(want, (torch.Tensor, tuple, list, dict))
    if isinstance(got, Foreign) and (structured or exercise.language == "cuda"):
        return close()(got, want, case)
    if exercise.language == "cuda":
        return compare_outputs(exercise.compare, output_names(exercise, case))(got, want, case)
    try:
        return exercise.differs(got, want, case)
    except Exception:  # the author's comparison raised on a value of an unexpected type
        return close()(got, want, case) or "has the wrong form"


def broken_property(exercise: Exercise, case: Case, got: Any, want: Any) -> str | None:
    """The first declared property that the value breaks. A property is only asked of a value of the expected
    shapes, since its cost depends on them, and it only explains a difference found already."""
    if exercise.language == "cuda" and isinstance(got, list) and len(got) == 1:
        got, want = got[0], want[0]
    if not same_form(got, want):
        return None
    for name, holds in exercise.properties:
        try:
            told = holds(got, case)
        except Exception:
            continue                             # the property does not apply to a value of this type
        if isinstance(told, str):
            return f"{name}: {told}"
        if told is not None and not bool(told):
            return name
    return None
