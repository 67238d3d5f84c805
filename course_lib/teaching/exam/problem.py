"""A problem of the exam: what is drawn for a student, what solves it there, and what it may cost."""
import random
import textwrap
from dataclasses import asdict, replace

from course_lib.exercises import Case
from course_lib.exercises.judging.counting import SPAN
from course_lib.exercises.judging.compare import close
from course_lib.exercises.parts import Exercise
from laptop_cuda import Machine

SPREAD = 0.045


class Problem:
    """One kernel exercise. The docstring of a subclass proves its budget.

    A subclass has `numbers(machine, rng)`, drawn with the machine, or None for no such draw;
    `choose(machine, numbers)`, the constants that solve the sheet; `counts(choice, machine, numbers, size)`, what
    the reference with any constants costs there by arithmetic, None where it cannot work; and
    `budget(machine, numbers, size)`, what is allowed. `case(size, rng)`, `launch` and `expect` are those of an
    exercise. `numbers` hold two sizes, the small one and the large one, which is drawn so that
    `hardness`, the best reachable count, is within `SPREAD` of `target` for everybody.

    `longest(machine, numbers, size)` is the most steps that a thread of the reference does, and
    `least(machine, numbers)` the bytes of shared memory that hold what the card wants there. The size of an
    array is a constant of the source: between `least` and the budget it fits few sheets."""
    id = name = title = text = body = trial = ""     # `trial`: a notebook cell that runs the kernel
    chapter = minutes = points = 0
    target = 0
    unsaid = ()                  # counts and sizes whose number would be the answer: the card leaves them out
    single = False               # a thread keeps single numbers, no arrays
    own_warps = False            # `numbers` have the lanes of a warp; else there are 32
    measured = "sectors"         # what `hardness` counts: sectors as bytes, so that all machines compare

    def drawn(self, machine: Machine, rng: random.Random) -> dict:
        """Numbers of the wanted hardness: others are drawn again."""
        for _ in range(10_000):
            numbers = self.numbers(machine, rng)
            if numbers and abs(self.hardness(machine, numbers) / self.target - 1) < SPREAD:
                return numbers
        raise RuntimeError(f"exercise {self.id}: no numbers of hardness {self.target} for {machine}")

    def hardness(self, machine: Machine, numbers: dict) -> int:
        """The best reachable count of the large case."""
        best = self.budget(machine, numbers, numbers["large"])[self.measured]
        return best * machine.sector_bytes if self.measured == "sectors" else best

    def limits(self, machine: Machine, numbers: dict, size: dict) -> dict[str, int]:
        """The budget, behind the limit of serial work; and what keeps numbers where counts see them."""
        return ({"longest_thread": SPAN * self.longest(machine, numbers, size)}
                | self.budget(machine, numbers, size)
                | ({"own_arrays": 0, "own_bytes": OWN_BYTES} if self.single else {}))

    def least(self, machine: Machine, numbers: dict) -> int:
        return 0

    def source(self, choice: dict) -> str:
        """The reference with these constants."""
        lines = "".join(f"constexpr int {name} = {value};\n" for name, value in choice.items())
        return lines + textwrap.dedent(self.body).strip("\n") + "\n"

    @property
    def stub(self) -> str:
        """The kernel's signature alone."""
        head = textwrap.dedent(self.body).strip("\n")
        return head[head.index("__global__"):head.index(") {") + 3] + "\n    // your code\n}\n"

    def exercise(self, machine: Machine, numbers: dict, choice: dict) -> Exercise:
        """The declaration for one student. It is not registered: another student has the same id."""
        def cases(rng):
            return [self.case(size, rng) for size in (numbers["small"], numbers["large"])]
        made = Exercise(
            id=self.id, title=self.title, kind="write", language="cuda", name=self.name, points=self.points,
            minutes=self.minutes, difficulty=4, card=self.card(machine, numbers), stub=self.stub,
            solution_text=self.source(choice), hints=[], misconceptions=[], cases=cases,
            compare=close(atol=1e-4), limit=30.0, launch=self.launch, expect=self.expect)
        made.machine = asdict(self.on(machine, numbers))
        made.budget = lambda case: self.limits(machine, numbers, case.size)
        made.least = lambda case: self.least(machine, numbers)
        return made

    def on(self, machine: Machine, numbers: dict) -> Machine:
        """The machine of this exercise."""
        return replace(machine, warp_size=numbers["lanes"]) if self.own_warps else machine

    def trial_cell(self, machine: Machine, numbers: dict) -> str:
        """Notebook code that runs the kernel on the large size, compares, and shows what it uses."""
        size = numbers["large"]
        most = "".join(f", {name}={most}" for name, most in self.limits(machine, numbers, size).items()
                       if name not in self.unsaid)
        given = "\n".join(f"{name} = {value}" for name, value in size.items() if name not in self.unsaid)
        if self.own_warps:
            given += (f"\nnarrow = cuda.Machine(machine.banks, machine.bank_bytes, machine.sector_bytes,\n"
                      f"                      machine.shared_bytes, warp_size={numbers['lanes']})")
        return f"{given}\n{textwrap.dedent(self.trial).strip()}\nused(report, {self.name}{most})"

    def card(self, machine: Machine, numbers: dict) -> str:
        large = numbers["large"]
        rows = "".join(f"\n- at most **{most:,}** {COUNTED[name]}"
                       for name, most in self.limits(machine, numbers, large).items()
                       if name not in self.unsaid)
        if "longest_thread" in self.unsaid:
            rows += f"\n- at most {SPAN} times the steps of the reference's longest thread"
        if "shared_bytes" in self.unsaid:
            rows += "\n- no more shared memory per block than that takes"
        sizes = ", ".join(f"`{name}` = {value}" for name, value in large.items() if name not in self.unsaid)
        told = textwrap.dedent(self.text).strip().format(**numbers, **asdict(machine))
        return (f"{told}\n\nFor {sizes} it may use{rows}\n\nIt is marked on this size with other numbers, "
                "and on a smaller one with a budget of the same rule.")


COUNTED = {"sectors": "sectors (global loads and stores together)",
           "wavefronts": "passes over the banks (shared loads and stores together)",
           "shared_bytes": "bytes of shared memory per block, arrays in device memory included",
           "device_bytes": "bytes of arrays in device memory besides the parameters",
           "longest_thread": "steps of the longest thread (loads, stores, atomics, barriers, shuffles)",
           "own_arrays": "arrays of a thread's own",
           "own_bytes": "bytes for a thread's own variables, as g++ lays them out"}
OWN_BYTES = 384      # the references take 160 to 240


def sized(case: Case, size: dict) -> Case:
    """The case, with its size for the budget."""
    case.size = size
    return case


def draw_room(rng: random.Random) -> int:
    """Bytes of shared memory that one kernel may use."""
    return 64 * rng.randint(96, 320)
