"""No mistake of a kernel may end the Python process: each here runs sanitized, in a process of its own."""
import subprocess
import sys

import pytest

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
__global__ void wild_write(float* y, unsigned long long address) { *(float*)(address + threadIdx.x * 4) = 1.0f; }
__global__ void wild_read(float* y, unsigned long long address) { y[0] = *(float*)address; }
__global__ void divide(int* y, int zero) { y[threadIdx.x] = 7 / zero + 5 % zero; }
__global__ void divide_smallest(int* y, int minus_one) { y[0] = (-2147483647 - 1) / minus_one; }
__device__ int deeper(int n) {
    volatile int kept[64];
    kept[n % 64] = n;
    return deeper(n + 1) + kept[(n + 1) % 64];
}
__global__ void endless_recursion(int* y) { y[0] = deeper(0); }
__global__ void large_frame(float* y, int n) {
    float big[200000];
    for (int i = 0; i < n; ++i) big[i * 1000] = i;
    y[0] = big[n];
}
__global__ void overrun_of_a_local(float* y, int n) {
    float kept[8];
    float* p = kept;
    for (int i = 0; i < n; ++i) p[i] = 1.0f;
    y[0] = kept[0];
}
__global__ void string_from_nowhere(float* y, unsigned long long address) { printf("%s\n", (const char*)address); }
__global__ void flood(float* y) { for (int i = 0; i < 3000000; ++i) printf("line %d of many\n", i); }
__global__ void huge_memset(char* y) { memset(y, 1, (size_t)1 << 40); }
__global__ void huge_memcpy(char* y, char* x) { memcpy(y, x, 1 << 20); }
__global__ void trap(float* y) { __trap(); }
__global__ void builtin_trap(float* y) { __builtin_trap(); }
__global__ void calls_abort(float* y) { abort(); }
__global__ void writes_a_constant(float* y) { *const_cast<char*>("text") = 'T'; }
__global__ void frees_an_array(float* y) { free(y); }
__global__ void endless(int* y) { while (true) y[0] += 1; }
__global__ void endless_empty(int* y, volatile int n) { while (n) {} }
__global__ void endless_nothing(int* y) { for (;;) {} }
__global__ void endless_barriers(int* y) { while (true) __syncthreads(); }
"""

CASES = {
    "wild_write": "mod.wild_write[1, 32](f(32), 0x10)", "wild_write_far": "mod.wild_write[1, 32](f(32), 0x7fff00000000)",
    "write_into_python": "mod.wild_write[1, 1](f(1), id(victim))", "write_non_canonical": "mod.wild_write[1, 1](f(1), 1 << 62)",
    "wild_read": "mod.wild_read[1, 1](f(1), 8)",
    "divide": "mod.divide[1, 32](i(32), 0)", "divide_smallest": "mod.divide_smallest[1, 1](i(1), -1)",
    "endless_recursion": "mod.endless_recursion[1, 1](i(1))", "large_frame": "mod.large_frame[1, 4](f(4), 150)",
    "overrun_of_a_local": "mod.overrun_of_a_local[1, 1](f(1), 200000)",
    "string_from_nowhere": "mod.string_from_nowhere[1, 1](f(1), 0x10)", "flood": "mod.flood[1, 1](f(1))",
    "huge_memset": "mod.huge_memset[1, 1](np.zeros(8, np.int8))",
    "huge_memcpy": "mod.huge_memcpy[1, 1](np.zeros(8, np.int8), np.zeros(8, np.int8))",
    "trap": "mod.trap[1, 1](f(1))", "builtin_trap": "mod.builtin_trap[1, 1](f(1))", "calls_abort": "mod.calls_abort[1, 1](f(1))",
    "writes_a_constant": "mod.writes_a_constant[1, 1](f(1))", "frees_an_array": "mod.frees_an_array[1, 1](f(64))",
    "endless": "mod.endless[1, 1](i(1))", "endless_empty": "mod.endless_empty[1, 1](i(1), 1)",
    "endless_nothing": "mod.endless_nothing[1, 1](i(1))", "endless_barriers": "mod.endless_barriers[1, 64](i(1))",
}
HARMLESS = {"divide_smallest", "flood", "large_frame"}       # may also end well

PROGRAM = r"""
import sys
import numpy as np
import laptop_cuda as cuda
f = lambda n: np.zeros(n, np.float32)
i = lambda n: np.zeros(n, np.int32)
victim = [1, 2, 3]
source, statement, mode = sys.argv[1:]
mod = cuda.compile(source)
try:
    with getattr(cuda, mode)(step_limit=20_000_000):     # a fifth of the usual: an endless loop takes seconds
        exec(statement)
    print("\nended well")
except cuda.KernelError as error:
    print("\ncaught:", error.kind)
assert victim == [1, 2, 3]
x = np.ones(4, np.float32)
again = cuda.compile("__global__ void twice(float* x) { x[threadIdx.x] *= 2; }")
with cuda.sanitize():
    again.twice[1, 4](x)
print("alive", x.tolist())
"""


def run(case: str, mode: str) -> str:
    done = subprocess.run([sys.executable, "-c", PROGRAM, SOURCE, CASES[case], mode], capture_output=True,
                          text=True, timeout=120)
    said = f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert done.returncode == 0, f"{case}: exit status {done.returncode}\n{said}"
    assert "alive [2.0, 2.0, 2.0, 2.0]" in done.stdout
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sanitize", "profile"])
@pytest.mark.parametrize("case", CASES)
def test_python_survives(case, mode):
    out = run(case, mode)
    if mode == "sanitize" and case not in HARMLESS:
        assert "caught: " in out, out[-2000:]


def test_python_survives_a_recursion_without_end():
    """The short version of the above, for the quick suite."""
    assert "caught: " in run("endless_recursion", "sanitize")
