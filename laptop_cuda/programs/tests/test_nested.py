"""Kernels that launch kernels: order, values, counts, checks, and errors that name child, parent and line."""
import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import WAYS, checked, compiled, compiler, line_of  # noqa: F401

SOURCE = """
__global__ void twice(float* x, int row, int n) {
    int k = row * n + threadIdx.x;
    x[k] = x[k] * 2 + 1;
    if (threadIdx.x == 0) printf("child %d\\n", row);
}
__global__ void rows(float* x, int count, int n) {
    int i = threadIdx.x;
    for (int k = 0; k < n; ++k) x[i * n + k] = i;
    printf("parent %d\\n", i);
    if (i < count) twice<<<1, n>>>(x, i, n);  // launch
}
__global__ void waits(float* x, int n) {
    if (threadIdx.x == 0) {
        for (int k = 0; k < n; ++k) x[k] = k;
        printf("before\\n");
        twice<<<1, n>>>(x, 0, n);
        cudaDeviceSynchronize();
        printf("after %g\\n", x[1]);
    }
    __syncthreads();
    x[n + threadIdx.x] = x[threadIdx.x];
}
__global__ void wrong(float* x, int way, int* error) {
    int mine = 0;
    __shared__ float s[32];
    if (way == 1) twice<<<1, 32>>>(x, 1000, 32);  // outside
    if (way == 2) twice<<<1, 1>>>((float*)&mine, 0, 1);  // local
    if (way == 3) twice<<<1, 1>>>(s, 0, 1);  // shared
    if (way == 4) twice<<<0, 1>>>(x, 0, 1);  // empty
    *error = cudaGetLastError() + 100 * cudaGetLastError();
}
__global__ void down(int* deepest, int depth, int last) {
    *deepest = depth;
    if (depth < last) down<<<1, 1>>>(deepest, depth + 1, last);  // deeper
}
__global__ void order(int* at, int k, int value) { at[k] = atomicAdd(at, 1) * 10 + value; }
__global__ void ordered(int* at) {
    cudaStream_t s;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    order<<<1, 1, 0, cudaStreamTailLaunch>>>(at, 1, 1);
    order<<<1, 1, 0, s>>>(at, 2, 2);
    order<<<1, 1, 0, cudaStreamFireAndForget>>>(at, 3, 3);
    cudaStreamDestroy(s);
}
template <class F> __global__ void each(int* x, F f) { x[threadIdx.x] = f(x[threadIdx.x]); }
struct Plus { int n; __device__ int operator()(int v) const { return v + n; } };
__global__ void generic(int* x) { each<Plus><<<1, 4>>>(x, Plus{5}); }
"""


@pytest.mark.parametrize("how", WAYS)
def test_children_run_when_their_parent_has_ended_on_its_arrays(how, capsys):
    x = np.zeros((3, 4), np.float32)
    with WAYS[how]():
        compiled(SOURCE).rows[1, 3](x, 2, 4)
    assert x[:, 0].tolist() == [1, 3, 2] and (x == x[:, :1]).all()
    assert (capsys.readouterr().out.split("\n")[:-1] == ["parent 0", "parent 1", "parent 2", "child 0",
                                                         "child 1"])


@pytest.mark.parametrize("how", WAYS)
def test_a_thread_that_synchronises_waits_for_its_children(how, capsys):
    x = np.zeros((2, 3), np.float32)
    with WAYS[how]():
        compiled(SOURCE).waits[1, 3](x, 3)
    assert x.tolist() == [[1, 3, 5], [1, 3, 5]]
    assert capsys.readouterr().out == "before\nchild 0\nafter 3\n"


def test_a_child_is_counted_as_a_launch_and_says_who_launched_it():
    x = np.zeros((3, 8), np.float32)
    with cuda.profile() as report:
        compiled(SOURCE).rows[1, 3](x, 2, 8)
    assert [la.kernel for la in report.launches] == ["rows", "twice", "twice"]
    child = report.launches[2]
    assert (child.global_load.sectors, child.global_store.bytes) == (1, 32)
    by = child.launched_by
    assert (by.kernel, {by.line}, by.thread, by.depth) == ("rows", line_of(SOURCE, "launch"), (1, 0, 0), 1)
    assert "launched by rows, line" in str(child) and report.launches[0].launched_by is None


@pytest.mark.parametrize("way, kind, marker, says",
                         [(1, "out of bounds", "outside", "twice was launched by wrong"),
                          (2, "bad launch", "local", "local variable"),
                          (3, "bad launch", "shared", "its shared memory")])
def test_an_error_names_child_parent_and_line(way, kind, marker, says, compiler):
    x, error = np.zeros(32, np.float32), np.zeros(1, np.int32)
    with cuda.sanitize(), pytest.raises(cuda.KernelError, match=says) as caught:
        compiled(SOURCE).wrong[1, 1](x, way, error)
    assert caught.value.kind == kind and "twice" in caught.value.message
    assert any(f"line {n}," in caught.value.message for n in line_of(SOURCE, marker))
    assert error[0] == 0                 # a launch that fails leaves its arrays as they were


def test_a_child_of_a_wrong_size_is_refused_and_its_parent_told():
    x, error = np.zeros(32, np.float32), np.zeros(1, np.int32)
    with pytest.raises(cuda.KernelError, match="no blocks along x"):
        compiled(SOURCE).wrong[1, 1](x, 4, error)
    assert error[0] == 9                 # cudaErrorInvalidConfiguration, once


@pytest.mark.parametrize("how", WAYS)
def test_nesting_goes_as_deep_as_in_cuda(how):
    deepest = np.zeros(1, np.int32)
    module = compiled(SOURCE)
    with WAYS[how]():
        module.down[1, 1](deepest, 0, 24)
        assert deepest[0] == 24
        with pytest.raises(cuda.KernelError, match="to a depth of 24") as caught:
            module.down[1, 1](deepest, 0, 25)
    assert caught.value.kind == "bad launch"


def test_the_tail_runs_last_and_callees_are_copied():
    at, x = np.zeros(4, np.int32), np.arange(4, dtype=np.int32)
    module = compiled(SOURCE)
    checked(module.ordered, 1, 1, at)
    checked(module.generic, 1, 1, x)
    assert at[2:].tolist() == [2, 13] and at[1] == 21
    assert x.tolist() == [5, 6, 7, 8]


PROGRAM = """
#include <cstdio>
struct Line { float* points; int n; };
__global__ void fill(float* p, int n) { if (threadIdx.x < n) p[threadIdx.x] = threadIdx.x; }
__global__ void make(Line* lines) {
    Line& mine = lines[threadIdx.x];
    mine.n = threadIdx.x + 1;
    cudaMalloc((void**)&mine.points, mine.n * sizeof(float));
    fill<<<1, 32>>>(mine.points, mine.n + BEYOND);
}
__global__ void total(Line* lines, float* sum) {
    for (int k = 0; k < lines[threadIdx.x].n; ++k) atomicAdd(sum, lines[threadIdx.x].points[k]);
    cudaFree(lines[threadIdx.x].points);
}
int main() {
    Line* lines; float *sum, host;
    cudaMalloc(&lines, 4 * sizeof(Line)); cudaMalloc(&sum, 4); cudaMemset(sum, 0, 4);
    make<<<1, 4>>>(lines);
    total<<<1, 4>>>(lines, sum);
    cudaMemcpy(&host, sum, 4, cudaMemcpyDeviceToHost);
    printf("%g %s", host, cudaGetErrorName(cudaDeviceSynchronize()));
}
"""


@pytest.mark.slow
def test_a_program_s_kernels_share_their_heap_with_their_children(program, compiler):
    for mode in ("plain", "sanitize", "profile"):
        ran = program("#define BEYOND 0\n" + PROGRAM, mode=mode)
        assert (ran.stdout, ran.errors) == ("10 cudaSuccess", [])
        assert [la["kernel"] for la in ran.launches] == ["make", *["fill"] * 4, "total"]
        assert [la["launched_by"]["thread"][0] for la in ran.children] == [0, 1, 2, 3]
    error, = program("#define BEYOND 1\n" + PROGRAM).errors
    assert (error["kernel"] == "fill"
            and "fill was launched by make, line 10, block 0, thread 0" in error["message"])


UNDEFINED = """
#include <cstdio>
__global__ void k(int* x) { x[threadIdx.x] += 10 + 0 * __shfl_down_sync(0xffff, x[threadIdx.x], 8); }
int main() {
    int* x; cudaMallocManaged(&x, 64);
    for (int i = 0; i < 16; ++i) x[i] = i;
    k<<<1, 16>>>(x);
    cudaDeviceSynchronize();
    for (int i = 0; i < 16; ++i) printf("%d ", x[i]);
}
"""


def test_an_undefined_shuffle_of_a_program_does_not_make_its_launch_run_twice(program):
    ran = program(UNDEFINED)
    assert ran.stdout.split() == [str(i + 10) for i in range(16)]
    error, = program(UNDEFINED.replace("int* x", "float* x")).errors
    assert "undefined, and the result depends on it" in error["message"]


WAITS = """
__global__ void k(volatile int* go) { while (*go == 0); }
int main() {
    int* h; cudaHostAlloc(&h, 4, 0), *h = 0;
    k<<<1, 1>>>(h), *(volatile int*)h = 1;
    cudaDeviceSynchronize();
}
"""


@pytest.mark.parametrize("look", ["*go", "atomicAdd_system((int*)go, 0)"])
def test_a_kernel_that_waits_for_host_code_is_not_supported_and_no_bug(program, look):
    error, = program(WAITS.replace("*go ==", f"{look} ==")).errors
    assert error["kind"] == "not supported" and "host code may change" in error["message"]
