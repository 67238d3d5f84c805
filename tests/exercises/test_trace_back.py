"""From a wrong element of a student's kernel to the line: what a check offers. How often the line is among the first
three is measured in tests/engine/test_why.py."""
import pytest
import torch

from course_lib.exercises import Case, Launch, Misconception, check, kernel_exercise, out, student, why
from course_lib.exercises.declare import declared
from course_lib.exercises.judging.trace_back import NothingToTrace

GOOD = """
__global__ void mean(const float* x, float* out, int n) {
    __shared__ float tile[32];
    int i = blockIdx.x * 32 + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    float sum = 0.0f;
    for (int k = 0; k < 3; ++k) sum += tile[(threadIdx.x + k) % 32];
    if (i < n) out[i] = sum / 3.0f;
}
"""


@pytest.fixture
def mean(monkeypatch):
    """An exercise of our own, which the course does not have."""
    def cases(rng):
        for n in (7, 40):
            yield Case(torch.randn(n, generator=rng), label=f"{n} numbers")

    def expect(x):
        padded = torch.nn.functional.pad(x, (0, -len(x) % 32)).view(-1, 32)
        return sum(padded.roll(-k, 1) for k in range(3)).flatten()[:len(x)] / 3

    made = kernel_exercise(
        id="0.91", title="A mean of three", points=1, minutes=1, difficulty=1, card="...", name="mean",
        stub="__global__ void mean(const float* x, float* out, int n) {\n    // your code\n}\n",
        solution=GOOD, hints=["one", "two"], cases=cases, expect=expect,
        misconceptions=[Misconception("does not divide", "?", change=("sum / 3.0f", "sum")),
                        Misconception("starts at 1", "?", change=("int k = 0", "int k = 1"))],
        launch=lambda x: Launch(grid=-(-len(x) // 32), block=32, args=[x, out(len(x)), len(x)]))
    monkeypatch.setattr(student.marks, "update", lambda *a, **k: None)
    monkeypatch.setattr("laptop_cuda.why.trials.MOST", 6)        # some hundred take seconds
    yield made
    declared.pop("0.91")


def checked(exercise, source, monkeypatch) -> str:
    shown = []
    monkeypatch.setattr(student, "display", shown.append)
    student.texts[exercise.id] = exercise.cell(source)
    check(exercise.id, None)
    return str(shown[-1])


def test_a_wrong_value_is_offered_the_way_back(mean, monkeypatch):
    wrong = GOOD.replace("tile[(threadIdx.x + k) % 32]", "tile[(threadIdx.x + 2 * k) % 32]")
    assert 'why("0.91")' in checked(mean, wrong, monkeypatch)
    answer = why("0.91")
    assert answer.access.value is not None and answer.kernel == "mean"
    assert answer.grid[0] == 2, "of the last failing case: in a small one other lines mend the values, too"
    assert any("2 * k" in s.text for s in answer.lines)
    cell = mean.cell(wrong).split("\n")
    assert all(cell[s.line - 1].strip() == s.text for s in answer.suspects), "lines are those of the cell"


@pytest.mark.parametrize("source",
                         [GOOD, GOOD.replace("    __syncthreads();\n", ""), "__global__ void mean() {"])
def test_where_no_element_is_wrong_nothing_is_offered(mean, monkeypatch, source):
    assert "why(" not in checked(mean, source, monkeypatch)
    with pytest.raises(NothingToTrace, match="check"):
        why("0.91")


def test_nothing_of_the_solution_is_shown(mean, monkeypatch):
    checked(mean, GOOD.replace("sum / 3.0f", "sum"), monkeypatch)
    assert "3.0f" not in str(why("0.91")) and "3.0f" not in why("0.91")._repr_html_()
