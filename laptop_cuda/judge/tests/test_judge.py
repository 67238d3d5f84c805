"""`judge`: submissions against small challenges of our own, laid out as two hosted judges lay theirs out."""
import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from laptop_cuda.judge import CannotJudge, judge, main, read
from laptop_cuda.judge.child import difference, one_rounding_apart
from laptop_cuda.judge.case import JudgeError
from laptop_cuda.judge.kernelbot import bound, task_of
from laptop_cuda.judge.ragged import ragged, sizes_of
from laptop_cuda.programs import Budget, Ran

CHALLENGE = """
import ctypes
import numpy as np
from core.challenge_base import ChallengeBase

class Challenge(ChallengeBase):
    name, atol, rtol = "Row sums", 1e-4, 1e-4

    def reference_impl(self, x, y, rows, cols):
        assert x.shape == (rows, cols) and rows < 2048       # that case is left out, before its reference runs
        y[...] = x.sum(1)

    def get_solve_signature(self):
        return {"x": (ctypes.POINTER(ctypes.c_float), "in"), "y": (ctypes.POINTER(ctypes.c_float), "out"),
                "rows": (ctypes.c_int, "in"), "cols": (ctypes.c_int, "in")}

    def _case(self, rows, cols):
        x = np.random.default_rng(0).random((rows, cols), dtype=np.float32)
        return {"x": x, "y": np.zeros(rows, np.float32), "rows": rows, "cols": cols}

    def generate_example_test(self):
        return self._case(2, 4)

    def generate_functional_test(self):
        return [self._case(32, 64), self._case(64, 96), self._case(2048, 1024)]
"""
SOLUTION = """
__global__ void sums(const float* x, float* y, int rows, int cols) {
    __shared__ float part[32];
    float s = 0;
    for (int c = threadIdx.x; c < COLS; c += 32) s += x[blockIdx.x * cols + c];
    part[threadIdx.x] = s;
    BARRIER
    if (threadIdx.x == 0) {
        float all = 0;
        for (int i = 0; i < 32; ++i) all += part[i];
        y[blockIdx.x] = SIGN all;
    }
}
extern "C" void solve(const float* x, float* y, int rows, int cols) {
    sums<<<rows, 32>>>(x, y, rows, cols);
    cudaDeviceSynchronize();
}
"""


@pytest.fixture
def challenge(tmp_path):
    folder = tmp_path / "row_sums"
    folder.mkdir()
    (folder / "challenge.py").write_text(CHALLENGE)
    return folder


def solution(folder, cols="cols", barrier="__syncwarp();", sign=""):
    path = folder / "mine.cu"
    path.write_text(SOLUTION.replace("COLS", cols).replace("BARRIER", barrier).replace("SIGN", sign))
    return path


def test_a_right_submission_is_accepted_and_counted(challenge):
    verdict = judge(challenge, solution(challenge))
    assert verdict.right
    assert [c["verdict"] for c in verdict.of("given")] == ["right", "right", "right", "skipped"]
    # the largest given case below the limit, with a row less and with a column less
    assert [c["case"] for c in verdict.of("ragged")] == ["rows = 63, cols = 96", "rows = 64, cols = 95"]
    counts = verdict.counts["kernels"]["sums"]
    assert counts["load_sectors"] == 64 * 96 * 4 // 32 and counts["store_sectors"] == 64


@pytest.mark.parametrize("wrong, kind, said", [
    ({"cols": "cols / 32 * 32"}, "wrong", "y[0] is"), ({"cols": "cols + 1"}, "bug", "out of bounds"),
    ({"barrier": ""}, "bug", "race"), ({"sign": "-"}, "wrong", "elements differ")])
@pytest.mark.slow
def test_what_is_wrong_is_said(challenge, wrong, kind, said):
    verdict = judge(challenge, solution(challenge, **wrong))
    assert not verdict.right
    assert any(c["verdict"] == kind and said in c["message"] for c in verdict.cases), verdict.cases


@pytest.mark.slow
def test_a_submission_right_on_given_shapes_only_is_found_by_the_ragged_ones(tmp_path):
    (tmp_path / "challenge.py").write_text(CHALLENGE.replace("self._case(2, 4)", "self._case(2, 32)"))
    verdict = judge(tmp_path, solution(tmp_path, cols="cols / 32 * 32"))
    assert all(c["verdict"] in ("right", "skipped") for c in verdict.of("given"))
    assert [c["verdict"] for c in verdict.of("ragged")] == ["right", "wrong"]
    assert judge(tmp_path, solution(tmp_path, cols="cols / 32 * 32"), given_only=True).right


@pytest.mark.slow
def test_a_budget_is_kept_or_not(challenge):
    path = solution(challenge)
    assert judge(challenge, path, budgets=[Budget.read("load_sectors=768")]).right
    assert judge(challenge, path, budgets=[Budget.read("load_sectors=767")]).over == [
        "768 load_sectors, the budget is 767"]


@pytest.mark.slow
def test_what_cannot_be_judged_is_said(challenge, tmp_path):
    path = solution(challenge)
    with pytest.raises(CannotJudge, match="no folder"):
        judge(tmp_path / "none", path)
    with pytest.raises(CannotJudge, match="neither challenge.py"):
        judge(tmp_path, path)
    path.write_text("__global__ void k() {}")
    with pytest.raises(CannotJudge, match="no function `solve`"):
        judge(challenge, path)
    (tmp_path / "submission.py").write_text("")
    with pytest.raises(CannotJudge, match="submission.py is Python, which is not run"):
        judge(challenge, tmp_path / "submission.py")
    path.write_text('#include "solve.h"\nextern "C" void solve(float* x) {}')
    with pytest.raises(CannotJudge, match=r"passes 4 arguments \(x, y, rows, cols\), but solve takes 1"):
        judge(challenge, path)


@pytest.mark.slow
def test_a_crash_of_host_code_is_the_verdict_of_its_case(challenge):
    path = challenge / "mine.cu"
    path.write_text('extern "C" void solve(const float* x, float* y, int rows, int cols) { *(volatile '
                    'int*)8 = 1; }')
    verdict = judge(challenge, path)
    assert verdict.cases[-1]["verdict"] == "crashed" and "line 1 of mine.cu" in verdict.cases[-1]["message"]


@pytest.mark.slow
def test_the_command_line(challenge, tmp_path, capsys):
    path, report = solution(challenge), tmp_path / "report.json"
    assert main([str(challenge), str(path), "--json", str(report)]) == 0
    assert "given: right on 3 of 3 cases, 1 left out for their size" in capsys.readouterr().out
    assert json.loads(report.read_text())["accepted"] is True
    assert main([str(challenge), str(solution(challenge, sign="-"))]) == 1
    assert main([str(tmp_path / "none"), str(path)]) == 2
    ran = subprocess.run([sys.executable, "-m", "laptop_cuda", "judge", "--help"], capture_output=True,
                         text=True)
    assert ran.returncode == 0 and "challenge.py" in ran.stdout


TASK = """
name: scale
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "helpers.py", "source": "../helpers.py"}
tests:
  - {"size": 64, "factor": 2, "seed": 1}
  - {size: 100, factor: 3, seed: 2}
benchmarks:
  - {"size": 100000, "factor": 3, "seed": 2}
"""
REFERENCE = """
import torch
from helpers import times

def ref_kernel(data):
    return times(*data)

def generate_input(size, factor, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(size, device="cuda", generator=generator), factor

def check_implementation(data, output):
    torch.cuda.synchronize()
    return bool(torch.equal(output, ref_kernel(data))), "not the same"
"""
SCALE = """
__global__ void scale(const float* x, float* y, int factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = factor * x[i];
}
void custom_kernel(const float* x, float* y, int factor, int n) {
    scale<<<(n + 63) / 64, 64>>>(x, y, factor, n);
}
"""


@pytest.mark.slow
def test_the_other_layout(tmp_path):
    pytest.importorskip("torch")
    task = tmp_path / "scale"
    task.mkdir()
    (task / "task.yml").write_text(TASK)
    (task / "reference.py").write_text(REFERENCE)
    (tmp_path / "helpers.py").write_text("def times(x, factor):\n    return x * factor\n")
    (task / "mine.cu").write_text(SCALE)
    verdict = judge(task, task / "mine.cu")
    assert verdict.right, verdict.cases
    assert [c["case"] for c in verdict.of("given")] == [
        "size = 64, factor = 2, seed = 1", "size = 100, factor = 3, seed = 2"]
    assert verdict.of("ragged")[0]["case"].startswith("size = 63")
    (task / "mine.cu").write_text(SCALE.replace("if (i < n) ", ""))
    assert "past its end" in judge(task, task / "mine.cu").of("ragged")[0]["message"]
    (task / "mine.cu").write_text(SCALE.replace("factor * x[i]", "x[i]"))
    said = judge(task, task / "mine.cu").cases[0]["message"]
    assert said.startswith("y[0] is ") and said.endswith("64 of 64 elements differ\nnot the same")
    strange = SCALE.replace("int factor, int n) {\n    scale<",
                            "int what, int m) {\n    int factor = what, n = m; scale<")
    (task / "mine.cu").write_text(strange)
    with pytest.raises(CannotJudge, match="what is `m`|what is `what`"):
        judge(task, task / "mine.cu")


def test_a_challenge_that_takes_all_the_time_itself_says_so():
    with pytest.raises(CannotJudge, match="the challenge's own code.* --timeout SECONDS"):
        read(Ran(0, timed_out=True))


def test_a_pointer_for_the_output_is_asked_for():
    """Else the last input would be taken for the output."""
    image, filter_, out = np.zeros((8, 8)), np.zeros((3, 3)), np.zeros((6, 6))
    pointers = [SimpleNamespace(name=name, kind="pointer") for name in ("image", "filter", "out")]
    with pytest.raises(JudgeError, match="takes 1 pointer more"):
        bound((image, filter_), [out], {}, pointers[:2])
    assert bound((image, filter_, out.copy()), [out], {}, pointers)[1:] == (["out"], False)


def test_a_task_is_read_as_yaml():
    given = [{"size": 64, "factor": 2, "seed": 1}, {"size": 100, "factor": 3, "seed": 2}]
    assert task_of(TASK)["tests"] == given
    with pytest.raises(JudgeError, match="task.yml is no YAML: .*line 3"):
        task_of("name: x\ntests: {\n")


def test_a_half_may_be_rounded_once_otherwise():
    a = np.array([14.15625, 1], np.float16)
    assert one_rounding_apart(np.array([14.1640625, 1], np.float16), a)
    assert not one_rounding_apart(np.array([14.1796875, 1], np.float16), a)
    assert not one_rounding_apart(a.astype(np.float32), a.astype(np.float32))


def test_where_two_arrays_differ():
    whole, one = np.array([16_777_216, 16_777_217]), np.array([16_777_216, 16_777_216])
    assert difference("n", whole, one, 0, 0) == "n[1] is 16777217, expected 16777216; 1 of 2 elements differ"
    said = difference("b", np.array([True]), np.array([False]), 0, 0)
    assert said == "b[0] is True, expected False; 1 of 1 elements differ"
    assert "y[0] is 0.333333, expected nan" in difference("y", np.array([1 / 3]), np.array([np.nan]), 0, 0)


@pytest.mark.slow
def test_a_transposed_array_is_passed_and_read_in_its_order(tmp_path):
    (tmp_path / "challenge.py").write_text(CHALLENGE.replace("np.zeros(rows, np.float32)", TURNED)
                                           .replace("x = np.random", "x = 2 * np.random")
                                           .replace("y[...] = x.sum(1)", "y[...] = x[:, :2]"))
    (tmp_path / "my.cu").write_text("""
__global__ void two(const float* x, float* y, int cols) {
    y[2 * blockIdx.x + threadIdx.x] = x[blockIdx.x * cols + threadIdx.x];
}
extern "C" void solve(const float* x, float* y, int rows, int cols) { two<<<rows, 2>>>(x, y, cols); }
""")
    assert judge(tmp_path, tmp_path / "my.cu", largest=10_000, given_only=True).right


TURNED = "np.zeros((2, rows), np.float32).T"


# Ragged shapes: what the given tests have in common is kept.
def changed(given: list[dict]) -> list[dict]:
    found = ragged(given)
    return [{n: v for n, v in sizes_of(values).items() if v != given[source][n]}
            for source, values, _ in found]


def rows(count: int, d: int) -> dict:
    return {"x": np.random.default_rng(0).random((count, d)) + 1, "rows": count, "D": d}


def test_each_size_is_once_less_by_one():
    assert changed([rows(3, 12), rows(5, 24)]) == [{"rows": 4}, {"D": 23}]


def test_a_shape_keeps_the_order_of_sizes_and_what_is_equal_in_all_given_tests():
    def top(n, k):
        return {"x": np.ones(n), "y": np.zeros(k), "n": n, "k": k}
    assert changed([top(9, 2), top(4, 4)]) == [{"n": 8}]              # k = 1 is no size to try
    assert changed([top(3, 2), top(5, 5)]) == [{"k": 4}]
    square = [{"x": np.ones((n, n)), "m": n, "n": n} for n in (4, 7)]
    assert changed(square) == [{"m": 6, "n": 6}]


def test_arrays_follow_from_sizes_by_the_same_term_in_all_given_tests():
    def convolved(n, k):
        return {"x": np.ones(n), "y": np.zeros(n - k + 1), "pixels": np.zeros(3 * n * k), "n": n, "k": k}
    ((_, shorter, _),) = ragged([convolved(5, 3), convolved(8, 2)])
    assert [len(shorter[name]) for name in ("x", "y", "pixels")] == [7, 6, 42]
    unknown = [{"x": np.ones(n), "y": np.zeros(n * n + 5), "n": n} for n in (3, 6)]
    assert changed(unknown) == []


def test_a_shape_leaves_indices_inside_their_array():
    values = {"x": np.array([0, 4, 2, 4, 1, 3, 0]), "counts": np.zeros(5), "n": 7, "bins": 5}
    assert changed([values]) == [{"n": 6}]
    assert changed([values | {"x": values["x"] // 2}]) == [{"n": 6}, {"bins": 4}]


def test_what_belongs_together_is_not_cut():
    half = np.random.default_rng(0).random((3, 4))
    assert changed([{"table": np.hstack([half, half]), "rows": 3, "D": 8}]) == [{"rows": 2}]
    parts = half / half.sum(1, keepdims=True)
    assert changed([{"p": parts, "rows": 3, "D": 4}]) == [{"rows": 2}]


def test_a_note_says_what_the_given_tests_have_in_common():
    notes = {tuple(n for n in ("rows", "D") if v[n] != (7, 12)[n == "D"]): note
             for _, v, note in ragged([rows(5, 6), rows(7, 12)])}
    assert notes["rows",] == ""
    assert notes["D",].startswith("In every given test D is a multiple of 6: if the task promises that")
