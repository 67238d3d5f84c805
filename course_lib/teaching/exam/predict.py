"""Questions whose answer is a number of the student's own machine."""
import random
from dataclasses import dataclass

from course_lib.exercises.judging.compare import number
from course_lib.exercises.parts import Exercise
from laptop_cuda import Machine
from .model import FLOAT, LANES, passes, run


@dataclass(frozen=True)
class Question:
    """`ask` and `answer` take the machine and a number that is drawn from `choices`."""
    id: str
    name: str
    title: str
    choices: range
    text: str
    answer: object

    def drawn(self, rng: random.Random) -> int:
        return rng.choice(self.choices)

    def exercise(self, machine: Machine, drawn: int) -> Exercise:
        right = self.answer(machine, drawn)
        return Exercise(id=self.id, title=self.title, kind="predict", language="python", name=self.name,
                        points=1, minutes=3, difficulty=2, card=self.text.format(drawn),
                        stub=f"{self.name} = None\n", solution_text=f"{self.name} = {right!r}\n", hints=[],
                        misconceptions=[], compare=number(), answer=right)


def _blocks(machine: Machine, width: int) -> int:
    step = machine.sector_bytes // FLOAT
    return machine.shared_bytes // (2 * FLOAT * (-(-width // step) * step))


QUESTIONS = [
    Question("90.11", "stride_passes", "Passes of a stride", range(6, 61, 2),
             "How many passes over the banks does one request take in which lane `i` reads the float "
             "`tile[{0} * i]`, for all 32 lanes?",
             lambda machine, stride: passes([FLOAT * stride * i for i in range(LANES)], FLOAT, machine)),
    Question("90.12", "shifted_sectors", "Sectors of a shifted matrix", range(1, 64, 2),
             "A warp reads 8 rows of a matrix of floats whose rows are 75 floats apart: in each row the 32 "
             "consecutive floats from column {0} on. The matrix begins at a sector. How many sectors does it "
             "move?",
             lambda machine, first: sum(run(FLOAT * (first + 75 * row), LANES, FLOAT, machine)
                                        for row in range(8))),
    Question("90.13", "tile_rows", "Two tiles of rows", range(37, 190, 2),
             "Two tiles of equally many rows are to be in shared memory at once. A row has {0} floats and is "
             "padded to whole sectors. How many rows has each tile at most?", _blocks)]
