"""A student's sheet: the machine and the numbers, drawn from the class's secret and the student's name."""
import hashlib
import random
from dataclasses import dataclass
from functools import lru_cache

from laptop_cuda import Machine
from .long_rows import Softmax
from .model import draw_machine
from .pages import Gather
from .pitches import TurnFloats, TurnFours, TurnPairs
from .predict import QUESTIONS
from .problem import Problem
from .tiles import Flash, Product
from .windows import Looked

PROBLEMS: list[Problem] = [TurnFloats(), Product(), Softmax(), TurnPairs(), Looked(), TurnFours(), Flash(),
                           Gather()]


@dataclass(frozen=True)
class Sheet:
    """What one student is asked. `numbers` and `choices` are by the problem's id."""
    machine: Machine
    numbers: dict[str, dict]
    choices: dict[str, dict]
    questions: dict[str, int]    # the number drawn for each question
    seed: int


def key_of(row: dict[str, str]) -> str:
    """What a student's sheet is drawn from: the number, which no two students share, else the name."""
    return row["id"] or row["name"]


@lru_cache(maxsize=None)
def sheet(secret: str, student: str) -> Sheet:
    """The same for the same secret and student, on every machine."""
    drawn = hashlib.sha256(f"{secret}\0{student}".encode()).digest()
    rng = random.Random(drawn.hex())
    machine = draw_machine(rng)
    numbers = {p.id: p.drawn(machine, rng) for p in PROBLEMS}
    choices = {p.id: p.choose(machine, numbers[p.id]) for p in PROBLEMS}
    questions = {q.id: q.drawn(rng) for q in QUESTIONS}
    return Sheet(machine, numbers, choices, questions, int.from_bytes(drawn[:4], "big") >> 1)


def fits(problem: Problem, choice: dict, on: Sheet) -> bool:
    """Whether the reference with these constants meets the budgets of a sheet, by arithmetic."""
    numbers = on.numbers[problem.id]
    for size in (numbers["small"], numbers["large"]):
        counts = problem.counts(choice, on.machine, numbers, size)
        budget = problem.budget(on.machine, numbers, size)
        if counts is None or any(counts.get(name, 0) > most for name, most in budget.items()):
            return False
        if counts.get("shared_bytes", 0) < problem.least(on.machine, numbers):
            return False
    return True
