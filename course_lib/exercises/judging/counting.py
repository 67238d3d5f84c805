"""The budget of a kernel exercise: bytes moved, wavefronts or other counts, and whether it keeps to it."""
from ..parts import Case, Exercise
from ..running.results import Outcome


UNLIMITED = 2.0**62
IN_WORDS = {"sectors": "sectors", "wavefronts": "passes over the banks", "barriers": "barriers",
            "shared_bytes": "bytes of shared memory per block", "device_bytes": "bytes of arrays in device memory",
            "longest_thread": "steps of the longest thread", "own_arrays": "arrays of a thread's own",
            "own_bytes": "bytes for a thread's own variables"}
SPAN = 3         # a limit of the longest thread is so many times the reference's


def allowed(exercise: Exercise, case: Case) -> float:
    """Bytes that a kernel may move: the budget, a quarter more, and a few sectors for ragged ends."""
    return exercise.traffic(*case.args, **case.kwargs) * 1.25 + 8 * 32


def over_budget(exercise: Exercise, case: Case, outcome: Outcome) -> str | None:
    """A sentence if the kernel moves too much or meets in banks too often, though its result is right."""
    budget, moved = exercise.traffic(*case.args, **case.kwargs), outcome.counts["moved"]
    if moved <= allowed(exercise, case):
        return _too_many_wavefronts(exercise, outcome) or _too_many_stores(exercise, case, outcome)
    return (f"moves {moved / budget:.1f} times the bytes it must, though its result is correct: "
            f"{moved:,} where {budget:,} are enough")


def _too_many_wavefronts(exercise: Exercise, outcome: Outcome) -> str | None:
    if exercise.wavefronts is None:
        return None
    requests, wavefronts = (outcome.counts[word] for word in ("requests", "wavefronts"))
    if wavefronts <= exercise.wavefronts * requests:
        return None
    if exercise.wavefronts == 0:
        return "goes through shared memory, though its result is correct: this exercise is to do without"
    return (f"needs {wavefronts / requests:.1f} wavefronts per request of shared memory, because of bank "
            f"conflicts, though its result is correct: {exercise.wavefronts:g} are allowed")


def _too_many_stores(exercise: Exercise, case: Case, outcome: Outcome) -> str | None:
    if exercise.stored is None:
        return None
    enough, stored = exercise.stored(*case.args, **case.kwargs), outcome.counts["stored"]
    if stored <= enough:
        return None
    return (f"writes some numbers more than once, though its result is correct: its lanes ask to write "
            f"{stored:,} bytes where {enough:,} are enough")


def used(counts: dict, name: str) -> float:
    """A count. An atomic operation can read and write as loads and stores do, so it counts as one. What is no
    count, as a process that was tampered with may send, is more than any budget."""
    found = [counts.get(name), counts.get("atomics", 0) if name in ("sectors", "wavefronts") else 0]
    return sum(found) if all(type(count) is int and count >= 0 for count in found) else UNLIMITED


def over_counts(exercise: Exercise, case: Case, outcome: Outcome) -> str | None:
    """A sentence about the first count that is above what the exercise allows, though the result is right."""
    for name, most in exercise.budget(case).items():
        taken = used(outcome.counts or {}, name)
        if taken == UNLIMITED:
            return "is right, but what it uses was not counted"
        if taken > most and name == "longest_thread":
            return (f"leaves the work of many threads to few, though its result is correct: one thread does "
                    f"{taken:,} steps, the reference's longest does {most // SPAN:,}")
        if taken > most:
            return f"uses {taken:,} {IN_WORDS[name]} where {most:,} are enough, though its result is correct"
    least = exercise.least(case) if exercise.least else 0
    if (kept := used(outcome.counts or {}, "shared_bytes")) < least:
        return (f"does not keep in shared memory what the card asks for, though its result is correct: its arrays "
                f"there take {kept:,} bytes per block, and that takes {least:,}")
    return None
