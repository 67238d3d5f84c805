"""What a Python caller gets wrong is a message that says what to write; oracles: NumPy, the signature."""
import ctypes

import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import checked, fault, mod as module  # noqa: F401

SOURCE = """
struct Pair { int a; float b; };
__global__ void add(float* x, int n) { int i = threadIdx.x; if (i < n) x[i] += 1; }
__global__ void rows(float** p, int n) { int i = threadIdx.x; if (i < n) p[0][i] += 1; }
__global__ void at(long long p) { ((float*)p)[threadIdx.x] += 1; }
__global__ void real(float* x, double v) { x[0] = v; }
__global__ void second(const Pair* p, float* x) { x[0] = p[1].a + p[1].b; }
__global__ void sum(Pair p, float* x) { x[0] = p.a + p.b; }
__global__ void waits(volatile int* x) { while (x[0] == 0) ; }
"""
PAIR = np.dtype([("a", "i4"), ("b", "f4")])


def zeros(n=8):
    return np.zeros(n, np.float32)


@pytest.mark.parametrize("kernel, arguments, said", [
    ("add", (zeros().ctypes.data, 8), r"needs an? \w+, got int \d+; pass the array itself.*laptop_cuda\.pointers\("),
    ("add", (np.uint64(zeros().ctypes.data), 8), "pass the array itself"),
    ("add", (ctypes.c_void_p(zeros().ctypes.data), 8), "pass the array itself"),
    ("add", (0, 8), "None is a null pointer"), ("add", ([0.0] * 8, 8), "got list"),
    ("rows", (zeros().ctypes.data, 8), r"laptop_cuda\.pointers\(a, b, ...\)`, got int"),
    ("rows", ([zeros(), zeros()], 8), r"laptop_cuda\.pointers\(a, b, ...\)`, got list"),
    ("rows", (zeros(), 8), "got an array of float32"),
    ("real", (zeros(), 10**400), "does not fit into float64"),
    ("second", (np.array([1, None], object), zeros()), "one of Python objects"),
    ("second", (np.zeros(4, [("a", "i8"), ("b", "f4")]), zeros()), "needs elements of 8 bytes, got 12")])
def test_an_argument_that_does_not_fit(module, kernel, arguments, said):
    with pytest.raises(cuda.ArgumentError, match=said):
        getattr(module, kernel)[1, 8](*arguments)


def test_structured_arrays_and_their_elements_are_structs(module):
    pairs, x = np.array([(1, 2.5), (3, 4.5)], PAIR), zeros()
    module.second[1, 1](pairs, x)
    assert x[0] == 7.5
    module.sum[1, 1](pairs[0], x)
    assert x[0] == 3.5


def test_an_array_without_elements_is_a_null_pointer(module):
    module.add[1, 8](zeros(0), 0)
    with pytest.raises(cuda.KernelError, match="out of bounds"):
        module.add[1, 8](zeros(0), 8)


@pytest.mark.parametrize("kernel, arguments", [
    ("rows", lambda x: (np.array([x.ctypes.data]), 8)), ("at", lambda x: (x.ctypes.data,))])
def test_a_checked_launch_with_a_raw_address_names_pointers(module, kernel, arguments):
    x = zeros()
    with pytest.raises(cuda.KernelError, match=r"laptop_cuda\.pointers\(a, b, ...\)"), cuda.sanitize():
        getattr(module, kernel)[1, 8](*arguments(x))


def test_a_garbage_index_is_not_blamed_on_an_address():
    module = cuda.compile("__global__ void far(float* x) { x[1ll << 40] = 1; }\n")
    assert "pointers(" not in fault(module.far, 1, 1, zeros()).message


@pytest.mark.parametrize("given, said", [({"source": None}, "got NoneType"), ({"source": b"x"}, "got bytes"),
                          ({"define": ["N=3"]}, "define is a dict"),
                          ({"define": {"N": None}}, "define is a dict"),
                          ({"include": "/tmp"}, r"include is a list of folders: \['/tmp'\]")])
def test_compile_says_what_it_takes(given, said):
    with pytest.raises(cuda.ArgumentError, match=said):
        cuda.compile(**{"source": SOURCE} | given)


def test_what_is_no_name_is_no_kernel(module):
    with pytest.raises(KeyError, match="no kernel `3`"):
        module[3]


def test_a_timeout_says_how_its_limit_is_raised(module):
    with pytest.raises(cuda.KernelError, match=r"sanitize\(step_limit=100_000\).*run --steps 100_000"):
        checked(module.waits, 1, 1, np.zeros(1, np.int32), step_limit=1e4)


DEFINED = """
__global__ void scale(const float* x, float* y) {
    int i = threadIdx.x;
    float factor = FACTOR;
    y[i] = x[i] - factor;
}
"""


def test_a_launch_once_more_has_the_macros_of_its_build():
    module = cuda.compile(DEFINED, define={"FACTOR": 3})
    x, y = np.arange(1, 9, dtype=np.float32), zeros()
    with cuda.profile() as report:
        module.scale[1, 8](x, y)
    registers = report.launches[0].replay().registers
    names, values = registers["names"], {r[3]: r[5] for r in registers["rows"]}
    assert values[names.index("factor")] == [3] * 8
    found = report.why(y, 2, expected=x + 3)
    assert found.lines[0].line == 5 and "with one small change here" in found.lines[0].reason
