"""What the sanitizer says about a kernel to repair, for one who has not begun."""
from .running import runner
from .judging.judge import draw, request
from .parts import Exercise

LABEL = "The sanitizer, on the kernel as it is"
SILENT = "silent. Every access is allowed; it is the result that is wrong."


def as_shipped(exercise: Exercise, seed: int = 0) -> list[tuple[str, str]]:
    """Details for a verdict: (label, text). None for other exercises, and where nothing can be compiled."""
    if exercise.kind != "repair" or exercise.language != "cuda":
        return []
    asked = request(exercise, draw(exercise, seed), seed)
    asked.budgets = []                                          # sanitized only, not counted
    run = runner.run(asked, exercise.stub)
    if run.failure:
        return []
    failures = [o.failure for o in run.outcomes if o.failure and o.failure.kind not in ("timeout", "launch")]
    return [(LABEL, failures[0].message if failures else SILENT)]
