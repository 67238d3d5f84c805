"""`judge` says of wrong values where and how, and takes outputs of torch.empty as uninitialised.

Bugs of memory and races are named in test_judge.py, and kind by kind in tests/engine/test_bugs.py."""
import pytest

from laptop_cuda.judge import CannotJudge, judge, text
from laptop_cuda.toolchain.compilers import compiler

pytestmark = pytest.mark.slow
CHALLENGE = """
import ctypes
import torch
from core.challenge_base import ChallengeBase

class Challenge(ChallengeBase):
    name, atol, rtol = "Neighbours", 1e-5, 1e-5

    def reference_impl(self, x, y, rows, cols, bug):
        y.copy_(x + torch.cat([x[:, :1], x[:, :-1]], 1))

    def get_solve_signature(self):
        pointer = ctypes.POINTER(ctypes.c_float)
        return {"x": (pointer, "in"), "y": (pointer, "out"), "rows": (ctypes.c_int, "in"),
                "cols": (ctypes.c_int, "in"), "bug": (ctypes.c_int, "in")}

    def _case(self, bug, rows=3, cols=45):
        torch.manual_seed(bug)
        return {"x": torch.empty(rows, cols).uniform_(1, 2), "y": torch.OUTPUT(rows, cols), "rows": rows,
                "cols": cols, "bug": bug}

    def generate_example_test(self):
        return self._case(0)

    def generate_functional_test(self):
        return [self._case(bug) for bug in BUGS]
"""
BUGS = {"TILES": ("wrong", "y[0, 32] is never written, expected "),
        "TAIL": ("wrong", "y[0, 44] is never written, expected "),
        "DTYPE": ("wrong", "y[0, 0] is 1.0"),                      # the bits of a float as a number
        "INSIDE": ("wrong", "y[1, 0] is "),
        "ADDS": ("bug", "y has no value until the submission writes one, by cudaMemset or in a kernel: the "
                 "challenge makes it by torch.empty"),
        "NEXT": ("wrong", "y[0, 31] is ")}
NUMBERS = {name: number for number, name in enumerate(BUGS, 1)}
SOLUTION = "".join(f"#define {name} {number}\n" for name, number in NUMBERS.items()) + """
__global__ void neighbours(const float* x, float* y, int rows, int cols, int bug) {
    __shared__ float s[33];
    int t = threadIdx.x, c = blockIdx.x * 32 + t;
    int row = blockIdx.y * cols, at = row + c;
    float mine = x[row + min(c, cols - 1)];
    s[t + 1] = bug == DTYPE ? (float)__float_as_int(mine) : mine;
    if (t == 0) s[0] = c ? x[row + c - 1] : bug == INSIDE && row ? x[row - 1] : mine;
    __syncthreads();
    float sum = s[t + 1] + s[bug == NEXT && t == 31 ? t + 1 : t];
    if (bug == ADDS) { if (c < cols) y[at] += sum; }
    else if (c < (bug == TAIL ? cols - 1 : cols)) y[at] = sum;
}
extern "C" void solve(const float* x, float* y, int rows, int cols, int bug) {
    dim3 grid(bug == TILES ? cols / 32 : (cols + 31) / 32, rows);
    neighbours<<<grid, 32>>>(x, y, rows, cols, bug);
}
"""


def folder(tmp_path, bugs: list[int], output: str = "empty"):
    pytest.importorskip("torch")
    text = CHALLENGE.replace("OUTPUT", output).replace("in BUGS", f"in {bugs}")
    (tmp_path / "challenge.py").write_text(text)
    (tmp_path / "my.cu").write_text(SOLUTION)
    return tmp_path, tmp_path / "my.cu"


def test_each_bug_is_named(tmp_path):
    verdict = judge(*folder(tmp_path, list(NUMBERS.values())), given_only=True)
    assert verdict.cases[0]["verdict"] == "right"
    for (name, (kind, said)), case in zip(BUGS.items(), verdict.cases[1:]):
        assert (case["verdict"], said in case["message"]) == (kind, True), (name, case)


def test_an_output_of_zeros_may_be_added_to_and_left(tmp_path):
    """Such a challenge promises zeros; what stays zero is then a wrong value, not a missing one."""
    verdict = judge(*folder(tmp_path, [NUMBERS["ADDS"], NUMBERS["TAIL"]], "zeros"), given_only=True)
    assert [c["verdict"] for c in verdict.cases] == ["right", "right", "wrong"]
    assert verdict.cases[2]["message"].startswith("y[0, 44] is 0, expected")


def test_a_refusal_of_a_ragged_shape_alone_says_so(tmp_path):
    task, my = folder(tmp_path, [])
    my.write_text(SOLUTION.replace("c < (bug == TAIL ? cols - 1 : cols)", "c < 45"))
    verdict = judge(task, my)
    assert [c["verdict"] for c in verdict.cases] == ["right", "right", "bug"]
    said = ("This shape is cut from case 1, and is not among the given tests. In every given test cols is a "
            "multiple of 45")
    assert said in text(verdict) and text(verdict).endswith("(--given leaves them out)")


def test_a_submission_for_another_type_is_refused(tmp_path):
    task, my = folder(tmp_path, [])
    my.write_text(SOLUTION.replace("void solve(const float* x", "void solve(const double* wide").replace(
        "(x, y, rows", "((const float*)wide, y, rows"))
    with pytest.raises(CannotJudge, match=r"`wide` \(const double\*\) gets an array of float32"):
        judge(task, my)


DRAWS = """
import ctypes
import torch
from core.challenge_base import ChallengeBase

class Challenge(ChallengeBase):
    def reference_impl(self, x, y, n):
        y.copy_(DRAWN)

    def get_solve_signature(self):
        pointer = ctypes.POINTER(ctypes.c_float)
        return {"x": (pointer, "in"), "y": (pointer, "out"), "n": (ctypes.c_int, "in")}

    def generate_example_test(self):
        return {"x": torch.randn(64), "y": torch.empty(64), "n": 64}

    def generate_functional_test(self):
        return []
"""
COPY = """
__global__ void copy(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = VALUE;
}
extern "C" void solve(const float* x, float* y, int n) { copy<<<1, 64>>>(x, y, n); }
"""


def drawing(tmp_path, drawn: str, value: str):
    pytest.importorskip("torch")
    (tmp_path / "challenge.py").write_text(DRAWS.replace("DRAWN", drawn))
    (tmp_path / "my.cu").write_text(COPY.replace("VALUE", value))
    return judge(tmp_path, tmp_path / "my.cu", given_only=True).cases[0]


def test_a_reference_that_draws_random_numbers_says_so(tmp_path):
    """torch's documentation: results need not be the same on CPU and GPU, even with the same seed."""
    case = drawing(tmp_path, "torch.bernoulli(torch.full((n,), 0.5))", "2")
    assert case["verdict"] == "wrong"
    assert "draws random numbers (torch.bernoulli) on the CPU" in case["note"]


def test_inputs_drawn_without_a_seed_are_the_same_each_time(tmp_path):
    first, second = (drawing(tmp_path, "x", "x[i] + 1")["message"] for _ in range(2))
    assert first == second and first.startswith("y[0] is ")


def test_a_shuffle_whose_value_is_undefined_is_a_bug_where_it_is_stored(tmp_path):
    """The programming guide: of a lane that does not take part the value is undefined."""
    case = drawing(tmp_path, "x", "x[i]; if (i < 8) y[i] = __shfl_down_sync(0xff, x[i], 16)")
    assert case["verdict"] == "bug" and "uninitialized: in copy, a shuffle takes" in case["message"]


def test_a_sum_that_starts_from_no_value_is_a_bug(tmp_path):
    if compiler().release < 12:
        pytest.skip("this compiler cannot fill them")
    case = drawing(tmp_path, "x", "x[i]; float sum; for (int j = i; j < n; j += 64) sum += x[j]; y[i] = sum")
    assert case["verdict"] == "bug" and "`sum`" in case["message"]
