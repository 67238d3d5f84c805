"""The budget of a kernel exercise: how many bytes it may move, and whether it did."""
from __future__ import annotations

from .parts import Case, Exercise
from .results import Outcome


def allowed(exercise: Exercise, case: Case) -> float:
    """Bytes that a kernel may move: the budget, a quarter more, and a few sectors for ragged ends."""
    return exercise.traffic(*case.args, **case.kwargs) * 1.25 + 8 * 32


def over_budget(exercise: Exercise, case: Case, outcome: Outcome) -> str | None:
    """A sentence if the kernel moves too much, though its result is right."""
    budget, moved = exercise.traffic(*case.args, **case.kwargs), outcome.counts["moved"]
    if moved <= allowed(exercise, case):
        return None
    return (f"moves {moved / budget:.1f} times the bytes it must, though its result is correct: "
            f"{moved:,} where {budget:,} are enough")
