"""What a kernel that passed does at sizes that were not run: `Exercise.every`, in the words of `laptop_cuda.prove`."""
from ..parts import Exercise
from ..running.kernel_runner import without_magic

SECONDS = 3


def asked_of(exercise: Exercise) -> dict:
    """What `prove` takes: two numbers are a range, more are all values."""
    sizes = {name: tuple(given) if len(given) == 2 else set(given) for name, given in exercise.every["sizes"].items()}
    return exercise.every | {"sizes": sizes}


def for_every_size(exercise: Exercise, source: str, cases: int) -> list[str]:
    """A line for the verdict; none if the sizes are not given, the solver is not there, or it does not decide."""
    if not exercise.every:
        return []
    from laptop_cuda import prove

    asked = asked_of(exercise)
    try:
        proof = prove(("\n" + without_magic(source), exercise.name), seconds=SECONDS, **asked)
    except Exception:        # no solver, or whatever it meets: a kernel that passed has passed
        return []
    names = " and ".join(asked["sizes"])
    if proof.proved:
        more = ", no bank conflict" if proof.conflict_free else ""
        return [f"For every {names}, not only the {cases} cases that were run: inside its arrays, no race, no overflow{more}."]
    return [f"But not for every {names}: {proof.failure}."] if proof.failure else []
