"""Refused code as a film: where it opens, what stands beside it, and what it must not show."""
import re

import pytest
import torch

from course_lib.exercises import Case, Misconception, film, student
from course_lib.exercises.declare import declared, exercise, find
from course_lib.exercises.judging.film import NothingToShow, kernel_film, value_film
from course_lib.exercises.judging.judge import Oracle, draw, evaluate, expected
from laptop_cuda.pictures import player
from tests.exercises.test_trace_back import GOOD, checked, mean  # noqa: F401


def opened(ex, source: str) -> tuple[str, dict, str]:
    """(the line at which the player opens, its step, the text beside it)"""
    made = kernel_film(ex, source)
    trace = player.Trace(made.replay)
    step = trace.steps[trace.first]
    text = trace.data["texts"][trace.data["source"]][step["line"] - 1]
    return text.strip(), trace.data["error"], str(made.beside)


@pytest.mark.parametrize("change, line, said", [
    (("tile[(threadIdx.x + k) % 32]", "tile[(threadIdx.x + 2 * k) % 32]"), "for (int k = 0",
     "It is made with tile[4]; the reference makes it without, and needs tile[1]"),
    (("int k = 0", "int k = 1"), "for (int k = 1", "makes it with tile[0], which yours never loads"),
    (("x[i] : 0", "x[n - 1 - i] : 0"), "tile[threadIdx.x] = i < n ? x[n", "needs x[0], which yours never"),
    (("sum / 3.0f", "sum / 2.0f"), "if (i < n) out[i]", "load the same for it, and compute another value"),
    (("sum += tile", "sum = tile"), "for (int k", "In line 9 your `sum` becomes"),
    (("if (i < n) out", "if (i < n - 1) out"), "if (i < n - 1)",
     "no thread of yours stores it. In the reference thread 6 of block 0 (warp 0, lane 6) does"),
    (("out[i] =", "out[n - 1 - i] = out[i / 2] ="), "if (i < n)", "race"),
    (("i < n ? x[i] : 0.0f", "x[i]"), "tile[threadIdx.x] = x[i]", "its thread does not touch x")])
def test_the_player_opens_where_the_kernel_goes_wrong(mean, change, line, said):  # noqa: F811
    at, error, beside = opened(mean, GOOD.replace(*change))
    assert at.startswith(line) and error["accesses"], (at, beside)
    assert said in beside


LATE = [("lane < d ? q[lane] * k[j * d + lane] : 0.0f;", "0.0f;\n    if (lane < d) sum = q[lane] * k[j * d + lane];"),
        ("int step = 16", "int step = d / 2")]


@pytest.mark.parametrize("id, wrong, line, said, held", [
    ("7.8", LATE, "for (int step = d", "In line 8 your `sum` becomes -0.47869", "lane = 0, j = 0, sum = 0.541567, step = 10"),
    ("7.7", "does not subtract the maximum", "float shrink = 1", "In line 18 your `shrink` becomes 1.", "l = 0, o = 0, j = 0"),
    ("4.7", "answers before it adds the token", "sum += q_row", "In line 20 your `sum` becomes 0.", "t = 0, value = 1.48702"),
    ("4.7", "lets the next token's rows arrive while others still read", "q_row[i] =", "race", "c = 1, i = 1, t = 1"),
    ("4.8", "clears one entry per thread, not all of them", "state[e] +=", "no thread has written", "t = 0, e = 64")])
def test_correct_lines_are_not_blamed_and_variables_are_current(id, wrong, line, said, held):
    ex = find(id)
    source = next((ex.wrong_code(m) for m in ex.misconceptions if m.name == wrong), ex.solution)
    for change in wrong if wrong is LATE else ():
        source = source.replace(*change)
    made = kernel_film(ex, source)
    trace = player.Trace(made.replay)
    trace.with_more(made.replay)
    step = trace.steps[trace.first]
    assert trace.data["texts"][trace.data["source"]][step["line"] - 1].strip().startswith(line)
    assert said in made.beside.message
    shown = trace.variables(trace.first, trace.data["error"]["accesses"][0]["lane"])
    assert held in shown and shown.count("i = ") < 2, shown


def test_lanes_stand_side_by_side_and_kernels_may_be_built_otherwise(mean):  # noqa: F811
    """This one has no tile: it is held to the elements that the reference's tile was made from."""
    straight = """__global__ void mean(const float* x, float* out, int n) {
    int i = blockIdx.x * 32 + threadIdx.x;
    if (i >= n) return;
    float total = 0.0f;
    for (int k = 0; k < 3; ++k) {
        int other = i / 32 * 32 + (threadIdx.x + k) % 32;
        if (other < n) total += x[other == 4 ? 2 : other];
    }
    out[i] = total / 3.0f;
}
"""
    at, error, beside = opened(mean, straight)
    assert at.startswith("if (other < n)") and error["accesses"][0]["lane"] == 4
    assert re.match(r"out\[2\] should be .* with x\[4\], which yours never loads for it. In that", beside)
    assert re.search(r"lane 4 +x\[2\] = \S+ +x\[4\] = ", beside)


def test_a_barrier_that_is_missing_is_seen_in_the_reference(mean):  # noqa: F811
    unset = GOOD.replace("tile[32];", "tile[32]; __shared__ float late[32];").replace(
        "__syncthreads();", "late[threadIdx.x] = 0.0f; if (threadIdx.x < 16) __syncthreads();")
    at, error, beside = opened(mean, unset)
    assert error["kind"] in ("race", "barrier divergence") and error["accesses"]
    assert "interval 1: load of tile" in beside or "warp 0: 1, of 32 lanes" in beside


def test_too_much_traffic_opens_at_the_line_that_causes_it():
    again = find("0.2").solution.replace("x[i] + y[i]", "(x[i] + y[i]) + 0 * (y[n - 1 - i] + y[n - 1 - i])")
    at, _, beside = opened(find("0.2"), again)
    assert "y[n - 1 - i]" in at and "loads of y" in beside and "loads of x" in beside


def test_the_reference_shows_its_lines_after_reveal_alone(mean, monkeypatch):  # noqa: F811
    wrong = GOOD.replace("sum / 3.0f", "sum")
    shown = str(kernel_film(mean, wrong).beside) + kernel_film(mean, wrong).beside._repr_html_()
    assert "3.0f" not in shown and 'reveal("0.91")' in shown
    monkeypatch.setattr(student.marks, "read", lambda: {"0.91": {"revealed": True}})
    assert "sum / 3.0f" in str(kernel_film(mean, wrong).beside)


def test_a_handout_says_that_it_has_no_reference(mean, monkeypatch):  # noqa: F811
    mean.oracle = Oracle(expected(mean, draw(mean)), [])
    mean.solution_text = None
    at, error, beside = opened(mean, GOOD.replace("sum / 3.0f", "sum"))
    assert "This edition holds no reference" in beside and at.startswith("if (i < n) out[i]")
    assert opened(mean, GOOD.replace("    __syncthreads();\n", "").replace("32", "64"))[1]["accesses"]
    assert opened(mean, GOOD.replace("i < n) out", "i < 0) out"))[2].startswith("out[0] should be")


def test_a_check_offers_it_where_the_code_ran(mean, monkeypatch):  # noqa: F811
    shown = []
    monkeypatch.setattr("course_lib.exercises.judging.film.display", shown.append)
    monkeypatch.setattr(player, "play", shown.append)
    for source in (GOOD, "__global__ void mean() {"):
        assert "film(" not in checked(mean, source, monkeypatch)
        with pytest.raises(NothingToShow, match="check"):
            film("0.91")
    for source in (GOOD.replace("sum / 3.0f", "sum"), GOOD.replace("i < n ? x[i] : 0.0f", "x[i]")):
        assert 'film("0.91")` plays your run from where it goes wrong' in checked(mean, source, monkeypatch)
        film("0.91")
    monkeypatch.setattr("course_lib.exercises.judging.parting.Parting", None)
    checked(mean, GOOD.replace("sum / 3.0f", "sum"), monkeypatch)
    with pytest.raises(NothingToShow, match="our mistake and not yours"):
        film("0.91")
    assert len(shown) == 4 and "reads x[7], past its end" in str(shown[-1])


@pytest.fixture
def softmax():
    yield exercise(id="0.92", title="Softmax", kind="write", points=1, minutes=1, difficulty=1, card="...",
                   given={"torch": torch}, hints=["one", "two"],
                   stub="def softmax(x):\n    raise NotImplementedError\n",
                   solution="def softmax(x):\n    e = (x - x.amax(-1, keepdim=True)).exp()\n"
                            "    return e / e.sum(-1, keepdim=True)\n",
                   cases=lambda rng: [Case(torch.randn(2, 3, generator=rng))], misconceptions=[
                       Misconception("sums the columns", "?", change=("sum(-1", "sum(0")),
                       Misconception("forgets the sum", "?", change=(" / e.sum(-1, keepdim=True)", ""))])
    declared.pop("0.92")


def test_of_python_the_first_value_that_the_reference_never_has_is_named(softmax, monkeypatch):
    wrong = softmax.solution.replace("e.sum(-1", "e.sum(0")
    said = value_film(softmax, wrong)
    assert said.message.startswith("Line 3: the result of `sum`, (1, 3), float32, is the first")
    assert "all that it is made of, from line 2:" in said.message and "exp: [[" in str(said)
    assert "film(" in checked(softmax, wrong, monkeypatch)
    shorter = "def softmax(x):\n    return (x - x.amax(-1, keepdim=True)).exp()\n"
    assert "`exp`, (2, 3), float32; with the reference's value in its place, your" in value_film(softmax, shorter).message
    counts = wrong.replace("e = ", "axes = torch.arange(x.dim() + 5)\n    e = ")
    assert value_film(softmax, counts).message.startswith("Line 4: the result of `sum`")
    assert "<code>sum</code>" in said._repr_html_()


@pytest.mark.parametrize("id, name, said", [
    ("4.3", "divides by the weights inside the chunk only", "Line 6: the result of `div`"),       # v needs no column of ones
    ("7.12", "replaces a refused token from the target itself", "Every tensor of which your first wrong"),    # keep is right
    ("7.11", "divides by the number of beams", "Line 4: the result of `floor_divide`"),
    ("1.5", "leaves out the factor 1/sqrt(d)", "Line 5 is given the result of `unsafe_view`, (1, 1, 2, 3), float32, from line 3"),
    ("6.3", "exchanges the two weights", "Line 6 is given the result of `exp`, (1,), float32, from line 5")])
def test_correct_lines_of_python_are_not_blamed(id, name, said):
    ex = find(id)
    source = next(ex.wrong_code(m) for m in ex.misconceptions if m.name == name)
    assert value_film(ex, source).message.startswith(said)


@pytest.mark.parametrize("id, wrong, said, never", [
    ("7.2", "returns a copy of what is stored", "\n  item 0: k: a tensor of shape", "raises"),
    ("4.3", "adds a chunk to the state before its own queries read it", "size: 2", "argument 4"),
    ("7.7", "does not add up over the lanes", "Your kernel wrote: part_max: [", "item"),
    ("7.7", ("__shfl_xor_sync", "__shfl_xor_snyc"), "is it a misspelling of `__shfl_xor_sync`?", "compiler's"),
    ("4.1", ("return ", "return torch.zeros(3), "), "q: a tensor of shape (2, 2)", "q:\n"),
    ("7.2", ("return self.k[", "self.k[0, 0] = 5\n        return self.k["), "`view` writes into the room; only `append` may.", "raises"),
    ("4.7", "lets the next token's rows arrive while others still read", "or __syncthreads() where a block can", "k_row. Who")])
def test_a_check_names_what_it_shows(id, wrong, said, never):
    ex = find(id)
    source = (ex.solution.replace(*wrong) if isinstance(wrong, tuple) else
              next(ex.wrong_code(m) for m in ex.misconceptions if m.name == wrong))
    shown = str(evaluate(ex, source)).replace("\n  ", "\n")
    assert said in shown and never not in shown.replace(said, ""), shown


def test_what_makes_no_tensor_or_raises_is_offered_no_film(monkeypatch):
    monkeypatch.setattr(student.marks, "update", lambda *a, **k: None)
    ex = find("7.9")
    assert "film(" not in checked(ex, ex.wrong_code(ex.misconceptions[0]), monkeypatch)
    with pytest.raises(NothingToShow, match="has its line in the verdict"):
        film("7.9")
