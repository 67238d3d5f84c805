"""What an exercise and chapter 0 say of sizes that were not run is what the solver says."""
import pytest
from changed_kernels import CLAIMS, proved

from course_lib import cuda
from course_lib.exercises.declare import all_exercises, find
from course_lib.exercises.judging.every_size import asked_of, for_every_size
from course_lib.exercises.judging.judge import draw, request
from course_lib.exercises.running import runner
from course_lib.tools.notebooks import ROOT

pytest.importorskip("z3")
pytest.importorskip("clang.cindex")


@pytest.mark.parametrize("exercise", [e for e in all_exercises() if e.every], ids=lambda e: e.id)
def test_a_solution_is_proved(exercise):
    said, = for_every_size(exercise, exercise.cell(exercise.solution), 6)
    assert said.startswith("For every") and "not only the 6 cases" in said


def test_a_kernel_that_passes_and_overflows_is_told():
    add = find("0.2")
    wrong = add.solution.replace("i < n", "i + 1024 * 1024 * 1024 < n + 1024 * 1024 * 1024")
    said, = for_every_size(add, add.cell(wrong), 6)
    assert said.startswith("But not for every n and block: no overflow of a whole number fails at n = 10737")


def test_chapter_0_shows_what_the_solver_says():
    add = find("0.2")
    text = add.cell(add.solution).replace("%%cuda", "", 1)
    proof = cuda.prove((text, "add"), {"n": (1, 2**31 - 1)}, grid="(n + 191) // 192", block=192,
                       arrays={"x": "n", "y": "n", "out": "n"})
    notebook = (ROOT / "notebooks" / "00_start_here.ipynb").read_text(encoding="utf-8")
    assert all(line in notebook for line in str(proof).splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("exercise", [e for e in all_exercises() if e.every], ids=lambda e: e.id)
def test_what_the_sanitizer_finds_is_not_proved(exercise):
    asked, told = request(exercise, draw(exercise)), asked_of(exercise)
    for wrong in map(exercise.wrong_code, exercise.misconceptions):
        outcomes = runner.run(asked, wrong).outcomes
        kinds = CLAIMS.keys() & {outcome.failure.kind for outcome in outcomes if outcome.failure}
        for kind in kinds:
            held = proved((wrong, exercise.name), CLAIMS[kind], seconds=3, **told)
            assert held < CLAIMS[kind], (kind, wrong)
