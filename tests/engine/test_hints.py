"""A first plain launch is checked in passing, in a copy of the process: one line at most, and nothing else changes."""
import os
import secrets
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HINT = "laptop_cuda: hint: race in sum, "
START = """
import sys, numpy as np, laptop_cuda
RACY = '''
// %s
__global__ void sum(const float* x, float* out) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    atomicAdd(out + (s[threadIdx.x ^ 33] != 1), 0), atomicAdd(out, 1);
}''' % sys.argv[1]
RIGHT = RACY.replace("atomicAdd", "__syncthreads(); atomicAdd", 1)
x, out = np.ones(64, np.float32), np.zeros(2, np.float32)
"""


def ran(code: str, word: str = "", **environment: str) -> tuple[str, str]:
    """(stdout, stderr) of a script on a source that no build knows, unless `word` was one before."""
    done = subprocess.run([sys.executable, "-c", START + code, word or secrets.token_hex(8)], capture_output=True, text=True,
                          cwd=ROOT, env=os.environ | {"LAPTOP_CUDA_HINT": "30"} | environment, check=True, timeout=60)
    return done.stdout, done.stderr


TWICE = """
mod = laptop_cuda.compile(RACY)
other = laptop_cuda.compile(RACY.replace("64", "128"))
for k in mod, mod, other: k.sum[1, 64](x, out)
print(out[0])
"""
# launched by a library, under a grader, without a race; then from a cell
OTHERS = """
laptop_cuda.hints.silent.add("grader")
def answer(): laptop_cuda.compile(RACY + "// 1").sum[1, 64](x, out)
exec("def go(k): k.sum[1, 64](x, out)", library := {"__name__": "tests", "x": x, "out": out})
exec("def check(f): f()", grader := {"__name__": "grader.checks"})
library["go"](laptop_cuda.compile(RACY)), grader["check"](answer), laptop_cuda.compile(RIGHT).sum[1, 64](x, out)
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(user_ns={"x": x, "out": out, "__name__": "__main__"})
laptop_cuda.magic.register()
shell.run_cell_magic("cuda", "--no-sanitize", RACY.replace("atomicAdd(out + ", 'if (!threadIdx.x) printf("once "); atomicAdd(out + '))
shell.run_cell("sum[1, 64](x, out)")
"""


def test_a_race_is_one_line_on_the_first_run_of_a_build_and_nothing_more():
    word = secrets.token_hex(8)
    assert ran(TWICE, word, LAPTOP_CUDA_HINT="0") == ("192.0\n", "")
    assert ran(TWICE, word) == ("192.0\n", f"{HINT}line 5: `with laptop_cuda.sanitize():` around it explains it\n")
    assert ran(TWICE, word) == ("192.0\n", "")


def test_only_what_is_wrong_and_launched_by_the_program_itself_gets_a_line():
    assert ran(OTHERS) == ("once ", f"{HINT}line 6: %%cuda without --no-sanitize explains it\n")
