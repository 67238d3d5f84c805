"""An exam on a drawn machine: the reference solves each sheet, a neighbour's answer does not."""
import csv
import json
import random
import re

import nbformat
import pytest
import torch

import laptop_cuda as cuda
from course_lib.exercises.judging import judge
from course_lib.exercises.running import runner
from course_lib.teaching.exam.command import main
from course_lib.teaching.exam.mark import exercises_of, takes_32_lanes
from course_lib.teaching.exam.notebook import notebook
from course_lib.teaching.exam.sheets import PROBLEMS, fits, sheet
from course_lib.teaching.confined.sandbox import Sandbox
from hand_ins import linux

EXAMPLE = "a secret for tests"
NAMES = [p.name for p in PROBLEMS]
MANY = [60, pytest.param(300, marks=pytest.mark.slow)]


def class_of(size: int):
    return [sheet(EXAMPLE, f"student {number}") for number in range(size)]


@pytest.mark.parametrize("size", MANY)
def test_the_reference_solves_every_sheet(size):
    for drawn in class_of(size):
        assert all(fits(p, drawn.choices[p.id], drawn) for p in PROBLEMS), drawn


@pytest.mark.parametrize("size", MANY)
@pytest.mark.parametrize("problem", PROBLEMS, ids=NAMES)
def test_the_sheets_are_equally_hard(problem, size):
    hardness = [problem.hardness(s.machine, s.numbers[problem.id]) for s in class_of(size)]
    assert (max(hardness) - min(hardness)) / min(hardness) < 0.1


@pytest.mark.parametrize("size, pairs", [(60, 300), pytest.param(300, 1200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("problem", PROBLEMS, ids=NAMES)
def test_a_neighbours_right_answer_fails(problem, size, pairs):
    rng, sheets, tried, passed = random.Random(1), class_of(size), 0, 0
    while tried < pairs:
        one, other = rng.sample(sheets, 2)
        if one.machine != other.machine:
            tried += 1
            passed += fits(problem, one.choices[problem.id], other)
    assert passed <= 0.05 * tried, f"{passed} of {tried}"


@pytest.mark.slow
@pytest.mark.parametrize("problem", [p for p in PROBLEMS if "shared_bytes" in p.unsaid], ids=lambda p: p.name)
def test_no_pitch_takes_fewer_passes_than_the_budget(problem):
    for drawn in class_of(3):
        numbers, right = drawn.numbers[problem.id], drawn.choices[problem.id]
        width = list(numbers["large"].values())[1]
        for pitch in range(width, right["PITCH"] + 12):
            above = False
            for n in range(32, 64):                  # the smallest pitch must do for every n
                size = numbers["large"] | {"n": n}
                counts = problem.counts(right | {"PITCH": pitch}, drawn.machine, numbers, size)
                if counts is None:                   # more shared memory than a block has
                    continue
                least = problem.budget(drawn.machine, numbers, size)["wavefronts"]
                assert counts["wavefronts"] >= least
                above |= counts["wavefronts"] > least
            assert above or pitch >= right["PITCH"]


def test_no_tile_of_the_product_moves_less():
    problem, rng = PROBLEMS[1], random.Random(2)
    for drawn in class_of(30):
        numbers, step = drawn.numbers[problem.id], drawn.machine.sector_bytes // 4
        best = problem.budget(drawn.machine, numbers, numbers["large"])
        for _ in range(200):
            tile = {"ROWS": rng.randint(1, 130), "COLUMNS": step * rng.randint(1, 30), "DEPTH": step}
            counts = problem.counts(tile, drawn.machine, numbers, numbers["large"])
            assert counts is None or counts["shared_bytes"] > numbers["room"] \
                or counts["sectors"] >= best["sectors"]


def kernels_of(problem, choices) -> str:
    """A kernel per choice, all compiled as one file: their names and constants are numbered."""
    kernels = re.findall(r"__global__ void (\w+)", problem.body)
    named = rf"\b({'|'.join([*kernels, *choices[0]])})\b"
    return "\n".join(re.sub(named, rf"\1_{n}", problem.source(choice)) for n, choice in enumerate(choices))


def run_on(problem, drawn, source: str, number: int):
    """(cases, run, verdict) of one of these kernels, on the engine."""
    exercise = exercises_of(drawn)[problem.id]
    cases = judge.draw(exercise, drawn.seed)
    request = judge.request(exercise, cases, drawn.seed)
    request.launches = [[step | {"kernel": f"{step['kernel']}_{number}"} for step in steps]
                        for steps in request.launches]
    ran = runner.run(request, source)
    return cases, ran, judge.judge(exercise, cases, ran, source, drawn.seed)


@pytest.mark.parametrize("students", [["first"], pytest.param([f"another {n}" for n in range(12)],
                                                              marks=pytest.mark.slow)], ids=["one", "twelve"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=NAMES)
def test_the_engine_counts_what_the_arithmetic_says(problem, students):
    """For the right answer of each sheet; a neighbour's passes there if it fits."""
    sheets = [sheet(EXAMPLE, name + whose) for name in students for whose in ("", "'s neighbour")]
    source = kernels_of(problem, [drawn.choices[problem.id] for drawn in sheets])
    for place in range(0, len(sheets), 2):
        drawn, neighbour = sheets[place:place + 2]
        numbers, choice = drawn.numbers[problem.id], drawn.choices[problem.id]
        cases, ran, verdict = run_on(problem, drawn, source, place)
        assert verdict.status == "passed", str(verdict)
        for case, outcome in zip(cases, ran.outcomes):
            counted = problem.counts(choice, drawn.machine, numbers, case.size)
            assert {name: outcome.counts[name] for name in counted} == counted
            longest = problem.longest(drawn.machine, numbers, case.size)
            assert longest // 2 <= outcome.counts["longest_thread"] <= longest
        verdict = run_on(problem, drawn, source, place + 1)[2]
        right = fits(problem, neighbour.choices[problem.id], drawn)
        assert (verdict.status == "passed") == right, str(verdict)


SERIAL = """__global__ void turn(const float* in, float* out, int n, int columns) {
    if (threadIdx.x || blockIdx.x) return;
    for (int i = 0; i < n * columns; ++i) out[i % columns * n + i / columns] = in[i];
}"""
NOT_REACHED = """template <int N> __device__ void more(float* out) { __shared__ float kept[N]; *out = *kept = 1; }
"""
BEGINS = "int lane = threadIdx.x % 32"
# what is put in place of the first words into the reference, and what is said of it
ELSEWHERE = [
    ("turn", "", SERIAL, "one thread does"),
    ("turn", BEGINS, "if (n < 0) more<64>(out); " + BEGINS, "bytes of shared memory per block"),
    ("softmax", "float high", "float own[9]; own[n % 9] = 0; float high", "uses 1 arrays of a thread's own"),
    ("softmax", "float high", "struct { float of[60]; } s; s.of[n % 60] = 0; float high", "a thread's own variables"),
    ("gather", BEGINS, "if (n < 0) *pages = more_pages[0]; " + BEGINS, "arrays in device memory")]


@pytest.mark.parametrize("name, before, after, said", ELSEWHERE)
def test_serial_work_and_numbers_that_are_kept_elsewhere_are_refused(name, before, after, said):
    drawn, problem = sheet(EXAMPLE, "first"), PROBLEMS[NAMES.index(name)]
    right = problem.source(drawn.choices[problem.id])
    source = right.replace(before, after, 1) if before else after
    source = {"turn": NOT_REACHED, "gather": "__device__ float more_pages[9];\n"}.get(name, "") + source
    verdict = run_on(problem, drawn, re.sub(rf"\b({name}|store)\(", r"\1_0(", source), 0)[2]
    assert verdict.status != "passed" and said in str(verdict), str(verdict)


@pytest.mark.parametrize("size, part", [(60, 0.15), pytest.param(300, 0.09, marks=pytest.mark.slow)])
@pytest.mark.parametrize("problem", [p for p in PROBLEMS if p.name != "gather"], ids=lambda p: p.name)
def test_the_size_of_an_array_fits_few_sheets(problem, size, part):
    """So no kernel passes on more, whatever it does: its arrays have one size."""
    fitting = []
    for drawn in class_of(size):
        numbers = drawn.numbers[problem.id]
        most = problem.budget(drawn.machine, numbers, numbers["large"])["shared_bytes"]
        fitting.append((problem.least(drawn.machine, numbers), most))
    fits_most = max(sum(least <= size <= most for least, most in fitting) for size in {*sum(fitting, ())})
    assert fits_most <= part * len(fitting)


def narrow_sheet():
    """One whose softmax has fewer lanes than the course's."""
    return next(s for s in class_of(30) if s.numbers["90.3"]["lanes"] < 32)


@linux
@pytest.mark.slow
def test_the_verdict_says_that_a_kernel_takes_32_lanes_for_granted():
    drawn = narrow_sheet()
    exercise, choice = exercises_of(drawn)["90.3"], drawn.choices["90.3"]
    usual = PROBLEMS[2].source({"KEPT": choice["KEPT"] - 64, "LANES": 32})
    with Sandbox() as sandbox:
        assert takes_32_lanes(exercise, usual, drawn.seed, sandbox)
        assert not takes_32_lanes(exercise, exercise.solution, drawn.seed, sandbox)
        assert not takes_32_lanes(exercise, exercise.stub, drawn.seed, sandbox)


def test_the_sheets_have_all_widths_and_whole_sectors_per_request():
    drawn = [(s.numbers["90.3"]["lanes"], s.machine.sector_bytes) for s in class_of(60)]
    assert {lanes for lanes, _ in drawn} == {8, 16, 32}
    assert all(4 * lanes >= sector for lanes, sector in drawn)


def test_a_notebook_holds_every_exercise_and_no_answer():
    drawn = sheet(EXAMPLE, "first")
    made = notebook(drawn, "First")
    nbformat.validate(nbformat.from_dict(made))
    sources = [cell["source"] for cell in made["cells"]]
    assert f"**{drawn.machine.banks} banks**" in sources[0]
    for exercise in exercises_of(drawn).values():
        assert sum(exercise.marker + "\n" in source + "\n" for source in sources) == 1
    text = "\n".join(sources)
    assert text.count("sanitized=True") == len(PROBLEMS), "a trial says what marking says"
    for problem in PROBLEMS:
        for name, value in drawn.choices[problem.id].items():
            assert f"{name} = {value}" not in text
        if problem.unsaid == ("shared_bytes",):
            numbers = drawn.numbers[problem.id]
            hidden = problem.budget(drawn.machine, numbers, numbers["large"])["shared_bytes"]
            assert f"{hidden:,}" not in problem.card(drawn.machine, numbers)


@pytest.mark.slow
def test_the_trial_says_what_marking_refuses(capsys):
    """By the text and by what the build calls, with the engine alone."""
    drawn = sheet(EXAMPLE, "ann")
    space = {}
    exec(notebook(drawn, "Ann")["cells"][1]["source"], space)
    for body, said in (("out[0] = x[0];", "nothing in it is refused"),
                       ("out[0] = memcmp(x, out, 4);", "`memcmp` may not be called"),
                       ("struct B { float v; }; auto of = [](int n, ...) { return 0.0f; }; out[0] = of(1, "
                        "*(B*)x);", "given a struct straight")):
        with cuda.profile() as report:
            module = cuda.compile(f"__global__ void f(const float* x, float* out) {{ {body} }}")
            module.f[1, 1](torch.zeros(1), torch.zeros(1))
        space["used"](report, module.f)
        assert said in capsys.readouterr().out, body


def test_a_sheet_depends_on_the_secret_and_the_student_alone():
    sheet.cache_clear()
    one = sheet(EXAMPLE, "ann")
    sheet.cache_clear()
    assert sheet(EXAMPLE, "ann") == one
    assert sheet(EXAMPLE, "bob") != one and sheet("another secret, longer", "ann") != one


def command(tmp_path, *words: str) -> int:
    roster = tmp_path / "class.csv"
    if not roster.exists():
        roster.write_text("name,id\nAnn Smith,4711\nBob Jones,4712\nJosé Núñez,4713\nDora Missing,4714\n")
    return main([*words, "--roster", str(roster), "--secret", str(tmp_path / "secret")])


def test_without_its_secret_an_exam_cannot_be_marked(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    assert command(tmp_path, "mark", str(tmp_path / "in"), "--out", str(tmp_path / "results")) == 2
    assert "holds no secret" in capsys.readouterr().err


def test_students_who_cannot_be_told_apart_get_no_exam(tmp_path, capsys):
    (tmp_path / "class.csv").write_text("name\nAnn Smith\nAnn Smith\n")
    assert command(tmp_path, "out", "--out", str(tmp_path / "exam")) == 2
    assert "Ann Smith occurs more than once" in capsys.readouterr().err
    (tmp_path / "class.csv").write_text("id,name\ns.1,Ann\ns/1,Bob\n")
    assert command(tmp_path, "out", "--out", str(tmp_path / "exam")) == 2
    assert "s.1, s/1 would get one folder" in capsys.readouterr().err
    assert not (tmp_path / "exam").exists()


@linux
@pytest.mark.slow
def test_an_exam_from_the_roster_to_the_marks(tmp_path):
    assert command(tmp_path, "out", "--out", str(tmp_path / "drawn")) == 0
    assert (tmp_path / "secret").stat().st_mode & 0o077 == 0
    secret = EXAMPLE                                 # with one that is drawn two sheets may be alike in much
    (tmp_path / "secret").write_text(secret)
    assert command(tmp_path, "out", "--out", str(tmp_path / "exam")) == 0

    def hand_in(folder: str, sheet_of: str, answers_of: str | None):
        made = json.loads((tmp_path / "exam" / sheet_of / "exam.ipynb").read_text())
        answers = exercises_of(sheet(secret, answers_of)).values() if answers_of else []
        for cell in made["cells"]:
            for exercise in answers:
                if cell["cell_type"] == "code" and exercise.marker + "\n" in cell["source"]:
                    cell["source"] = exercise.cell(exercise.solution)
        (tmp_path / "in" / folder).mkdir(parents=True)
        (tmp_path / "in" / folder / "exam.ipynb").write_text(json.dumps(made))
    hand_in("4711", "4711", "4711")
    hand_in("Jones Bob_4712_assignsubmission_file_", "4712", "4711")
    hand_in("4713", "4713", None)
    hand_in("Eve Unknown", "4711", "4711")
    assert command(tmp_path, "mark", str(tmp_path / "in"), "--out", str(tmp_path / "results")) == 0
    with open(tmp_path / "results" / "grades.csv") as file:
        rows = list(csv.DictReader(file))
    points = {name: sum(float(r["points"]) for r in rows if r["student"] == name)
              for name in ("Ann Smith", "Bob Jones", "José Núñez", "Dora Missing", "Eve Unknown")}
    assert points["Ann Smith"] == sum(float(r["of"]) for r in rows if r["student"] == "Ann Smith") == 42
    assert points["Bob Jones"] <= 5
    assert points["José Núñez"] == points["Dora Missing"] == points["Eve Unknown"] == 0
    assert {r["verdict"] for r in rows if r["student"] == "José Núñez"} == {"not attempted"}
