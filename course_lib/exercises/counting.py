"""The budget of a kernel exercise: how many bytes it may move, how many wavefronts it may need, and whether it
did."""
from __future__ import annotations

from .parts import Case, Exercise
from .results import Outcome


def allowed(exercise: Exercise, case: Case) -> float:
    """Bytes that a kernel may move: the budget, a quarter more, and a few sectors for ragged ends."""
    return exercise.traffic(*case.args, **case.kwargs) * 1.25 + 8 * 32


def over_budget(exercise: Exercise, case: Case, outcome: Outcome) -> str | None:
    """A sentence if the kernel moves too much or meets in banks too often, though its result is right."""
    budget, moved = exercise.traffic(*case.args, **case.kwargs), outcome.counts["moved"]
    if moved <= allowed(exercise, case):
        return _too_many_wavefronts(exercise, outcome)
    return (f"moves {moved / budget:.1f} times the bytes it must, though its result is correct: "
            f"{moved:,} where {budget:,} are enough")


def _too_many_wavefronts(exercise: Exercise, outcome: Outcome) -> str | None:
    if exercise.wavefronts is None:
        return None
    requests, wavefronts = (outcome.counts[word] for word in ("requests", "wavefronts"))
    if wavefronts <= exercise.wavefronts * requests:
        return None
    return (f"needs {wavefronts / requests:.1f} wavefronts per request of shared memory, because of bank "
            f"conflicts, though its result is correct: {exercise.wavefronts:g} are allowed")
