"""From the first wrong element of a student's kernel back to the lines that it depends on.

A check only offers the call, which runs the last failing case again (in a small one a right line may mend the values,
too), tries small changes of the student's kernel against the case's expected values, and shows lines of the student's
own text. The solution takes no part; changes are not shown."""
import torch

from ..declare import find
from .judge import Oracle, draw, expected, request
from ..running.kernel_runner import STEPS, compiled, launched
from ..running.limits import time_limit
from ..parts import Exercise
from ..running.results import PlainError
from ..running.runner import run
from .verdict import WRONG, Verdict

WRONG_VALUES = "Your kernel wrote"       # the label under which a verdict shows them
_judged: dict[str, str] = {}             # id -> the source whose elements were wrong


class NothingToTrace(PlainError, ValueError):
    """There is no wrong element to start from."""


def offer(exercise: Exercise, source: str, verdict: Verdict) -> None:
    """Note in the verdict on a kernel that ran through that `why` can walk back from a wrong element."""
    _judged.pop(exercise.id, None)
    labels = [label for label, _ in verdict.details]
    wrong = verdict.status == WRONG and WRONG_VALUES in labels and "times the bytes" not in str(verdict)
    if wrong:
        _judged[exercise.id] = source
        verdict.notes.append(f'`why("{exercise.id}")` walks from the first wrong element back to the lines '
                             "that it depends on.")


def why(id: str):
    """Where the first wrong element of your kernel comes from: the thread and the line that stored it, what
    it was made from, and three lines to look at first."""
    if id not in _judged:
        raise NothingToTrace(f'why: there is no wrong element to start from. Run check("{id}", ...) first; '
                             "it offers this where a kernel runs through and writes wrong values.")
    return trace(find(id), _judged[id])


def trace(exercise: Exercise, source: str, seed: int = 0):
    """The answer for a kernel's source text."""
    from course_lib import cuda
    cases = draw(exercise, seed)
    asked = request(exercise, cases, seed)
    oracle = exercise.oracle or Oracle(expected(exercise, cases, seed))
    outcomes = run(asked, source).outcomes
    for i, (case, outcome, want) in reversed(list(enumerate(zip(cases, outcomes, oracle.expected)))):
        found = None if outcome.failure else _first_wrong(exercise, case, outcome.value, want)
        if found is None:
            continue
        output, index = found
        with time_limit(exercise.limit), cuda.profile(step_limit=STEPS) as report:
            memory = launched(cuda, compiled(cuda, source), asked.arrays[i], asked.launches[i])
        compared = [t for a, t in zip(asked.arrays[i], memory) if a["role"] in ("out", "inout")]
        return report.why(compared[output], index, want[output].double())
    raise NothingToTrace(f"why: no element that the kernel of exercise {exercise.id} wrote is wrong.")


def _first_wrong(exercise: Exercise, case, got: list, want: list) -> tuple[int, tuple[int, ...]] | None:
    """(output, index) of the first wrong element."""
    for i, (g, w) in enumerate(zip(got, want)):
        if g.shape != w.shape or not exercise.compare(g, w, case):
            continue
        for tolerance in (1e-3, 0.0):
            right = torch.isclose(g.double(), w.double(), rtol=tolerance, atol=tolerance, equal_nan=True)
            if not right.all():
                return i, tuple((~right).nonzero()[0].tolist())
    return None
