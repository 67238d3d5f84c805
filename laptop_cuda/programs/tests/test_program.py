"""Whole programs: main, launches, memory, errors, in a process of their own; and the tool around them."""
import json
import subprocess
import sys
from pathlib import Path

import pytest

import laptop_cuda
from laptop_cuda import CompileError
from laptop_cuda.programs import Options, ProgramError, run

pytest_plugins = ["laptop_cuda.programs.pytest_plugin"]

VECTOR = r"""
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>
#define CHECK(call) do { cudaError_t e = (call); if (e != cudaSuccess) { \
    printf("%s failed: %s\n", #call, cudaGetErrorName(e)); exit(7); } } while (0)
template <typename T>
__global__ void axpy(T a, const T* __restrict__ x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n - 1 + EXTRA) y[i] = a * x[i] + y[i];
}
int main(int argc, char** argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1000;
    std::vector<float> h(n, 2.f);
    float *d_x, *d_y;
    CHECK(cudaMalloc((void**)&d_x, n * sizeof(float)));
    CHECK(cudaMalloc(&d_y, n * sizeof(float)));
    CHECK(cudaMemcpy(d_x, h.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    if (SET_Y) CHECK(cudaMemset(d_y, 0, n * sizeof(float)));
    cudaStream_t stream;
    cudaEvent_t from, to;
    CHECK(cudaStreamCreate(&stream)); CHECK(cudaEventCreate(&from)); CHECK(cudaEventCreate(&to));
    CHECK(cudaEventRecord(from, stream));
    for (int k = 0; k < 3; ++k) axpy<float><<<(n + 127) / 128, 128, 0, stream>>>(1.5f, d_x, d_y, n);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(to, stream));
    CHECK(cudaMemcpyAsync(h.data(), d_y, n * sizeof(float), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, from, to));
    printf("y[%d] = %g %s\n", n - 1, h[n - 1], ms > 0 ? "timed" : "");
    CHECK(cudaFree(d_x));
    CHECK(cudaFree(d_y));
    return argc > 2 ? 4 : 0;
}
"""


def written(folder: Path, text: str, name: str = "prog.cu") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def vector(folder, extra=0, set_y=1, **how):
    return run(written(folder, VECTOR), options=Options(defines=(f"EXTRA={extra}", f"SET_Y={set_y}")), **how)


@pytest.mark.parametrize("mode", ["sanitize", "profile", "plain"])
def test_a_program_runs_as_it_is(tmp_path, mode):
    ran = vector(tmp_path, mode=mode)
    assert (ran.status, ran.stdout, ran.errors, ran.crash) == (0, "y[999] = 9 timed\n", [], "")
    assert [launch["kernel"] for launch in ran.launches] == ["axpy<float>"] * 3
    if mode == "profile":
        assert (ran.total("sectors", "axpy") == ran.total("sectors") == 3 * 3 * 125 and ran.total("launches")
                == 3)
        assert ran.launches[0]["lines"][0]["line"] == VECTOR[:VECTOR.index("if (i <=")].count("\n") + 1


def test_arguments_and_the_exit_status(tmp_path):
    ran = vector(tmp_path, arguments=["64", "more"])
    assert ran.status == 4 and ran.stdout.startswith("y[63] = 9")


def test_a_bug_names_the_array_by_its_variable(tmp_path):
    ran = vector(tmp_path, extra=1)
    (error,) = ran.errors
    assert (error["kind"] == "out of bounds" and "d_x[1000]" in error["message"]
            and "1000 elements" in error["message"])
    assert error["line"] == VECTOR[:VECTOR.index("if (i <=")].count("\n") + 1
    assert ran.status == 7 and "cudaGetLastError() failed: cudaErrorLaunchFailure" in ran.stdout
    assert len(ran.launches) == 1                        # nothing runs after a kernel that failed


def test_what_cudamalloc_gives_is_not_initialised(tmp_path):
    (error,) = vector(tmp_path, set_y=0).errors
    assert error["kind"] == "uninitialized" and "d_y[" in error["message"]


HABITS = r"""
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>
#include <helper_cuda.h>
#include <helper_functions.h>
__constant__ float weight[4];
__device__ int counter;
__managed__ int managed = 5;
struct Matrix { int width; float* elements; };
__global__ void add(Matrix m) { int i = threadIdx.x; if (i < m.width) m.elements[i] += weight[i % 4]; atomicAdd(&counter, 1); }
__global__ void whole(float* x) { x[threadIdx.x] *= 2; cooperative_groups::this_grid().sync(); x[threadIdx.x] += 1; }
typedef void (*Kernel)(float*);
__global__ void one(float* x) { x[threadIdx.x] += 1; }
__global__ void two(float* x) { x[threadIdx.x] += 2; }
__global__ void placed(float* x) { if (threadIdx.x == 0) x[cooperative_groups::this_cluster().block_rank()] += 8; }
__global__ void broken(float* x) { x[0] = 1; }
int main(int argc, char** argv) {
    findCudaDevice(argc, (const char**)argv);
    cudaDeviceProp card;
    checkCudaErrors(cudaGetDeviceProperties(&card, 0));
    float w[4] = {1, 2, 3, 4}, *m, *pinned;
    checkCudaErrors(cudaMemcpyToSymbol(weight, w, sizeof w));
    checkCudaErrors(cudaMallocManaged(&m, 8 * sizeof(float)));
    checkCudaErrors(cudaMallocHost(&pinned, 8 * sizeof(float)));
    for (int i = 0; i < 8; ++i) m[i] = i;
    add<<<1, 8>>>(Matrix{8, m});
    Kernel table[2] = {one, two};
    for (int k = 0; k < 2; ++k) table[k]<<<1, 8>>>(m);
    void* arguments[] = {&m};
    checkCudaErrors(cudaLaunchCooperativeKernel((void*)whole, dim3(1), dim3(8), arguments, 0, 0));
    cudaLaunchAttribute clusters[1] = {{cudaLaunchAttributeClusterDimension, {}}};
    cudaLaunchConfig_t config = {dim3(2), dim3(8), 0, 0, clusters, 1};
    clusters[0].val.clusterDim = {2, 1, 1};
    checkCudaErrors(cudaLaunchKernelEx(&config, placed, m + 6));
    config.gridDim = 1, config.numAttrs = 0;
    checkCudaErrors(cudaLaunchKernelEx(&config, &one, m));
    checkCudaErrors(cudaDeviceSynchronize());
    int count = 0;
    checkCudaErrors(cudaMemcpyFromSymbol(&count, counter, sizeof count));
    printf("%g %g %d %d %d\n", m[0], m[7], count, card.warpSize, getCmdLineArgumentInt(argc, (const char**)argv, "n"));
    float host[4];
    printf("%s\n", cudaGetErrorName(cudaMemcpy(host, w, sizeof host, cudaMemcpyDeviceToHost)));
    printf("%s\n", cudaGetErrorName(cudaFree(m + 1)));
    broken<<<1, 2048>>>(m);
    printf("%s\n", cudaGetErrorName(cudaGetLastError()));
    cudaFree(m);
    broken<<<1, 1>>>(m);
    printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
}
"""


def test_habits_of_published_programs(tmp_path):
    ran = run(written(tmp_path, HABITS), arguments=["-n=12"])
    lines = ran.stdout.splitlines()
    assert "laptop_cuda" in lines[0] and lines[2:] == [
        "10 38 8 32 12", "cudaErrorInvalidValue", "cudaErrorInvalidValue", "cudaErrorInvalidConfiguration",
        "cudaErrorLaunchFailure"], ran.stdout + ran.stderr
    assert ([launch["kernel"] for launch in ran.launches]
            == ["add", "table[k]", "table[k]", "whole", "placed", "one", "broken", "broken"])
    (freed,) = (error for error in ran.errors if error["kind"] != "misuse")
    assert freed["kind"] == "out of bounds" and "m[0], which was freed" in freed["message"]


OWNERS = r"""
#include <cstdio>
struct Lock {
    int* mutex;
    Lock() { cudaMalloc(&mutex, sizeof(int)); cudaMemset(mutex, 0, sizeof(int)); }
    ~Lock() { cudaFree(mutex); }
    __device__ void lock() { while (atomicCAS(mutex, 0, 1) != 0); __threadfence(); }
    __device__ void unlock() { __threadfence(); atomicExch(mutex, 0); }
};
struct Pair { int a, b; };
struct Copied { int n; Copied(int n) : n(n) {} __host__ __device__ Copied(const Copied& other) : n(other.n) {} };
struct Holds { Copied one; };
__global__ void add(Lock lock, const Holds holds, int* sum) {
    if (threadIdx.x == 0) { lock.lock(); *sum += holds.one.n; lock.unlock(); }
}
__global__ void changes(Pair& pair, int by) { pair.b = pair.a + by; }
int main() {
    Lock lock;
    int* sum;
    Pair* pair;
    cudaMallocManaged(&sum, sizeof(int)); cudaMallocManaged(&pair, sizeof(Pair));
    *sum = 0, *pair = Pair{1, 0};
    add<<<4, 32>>>(lock, Holds{1}, sum);
    changes<<<1, 1>>>(*pair, 3);
    cudaDeviceSynchronize();
    printf("%d %d\n", *sum, pair->b);
}
"""


def test_an_argument_with_a_destructor_and_one_by_reference(tmp_path):
    """No thread frees what its copy of an argument owns, but the host does; a reference is the host's own. Members may copy
    themselves."""
    ran = run(written(tmp_path, OWNERS))
    assert (ran.stdout, [error["kind"] for error in ran.errors], ran.crash) == ("4 4\n", ["misuse"], "")


def test_a_crash_of_host_code_is_a_message(tmp_path):
    text = "#include <cstdio>\nint main(int argc, char** argv) {\n  puts(\"here\");\n  return argv[1][0];\n}\n"
    for mode in ("sanitize", "plain"):
        ran = run(written(tmp_path, text), mode=mode)
        assert ran.status == 128 + 11 and "line 4 of prog.cu" in ran.crash and "Segmentation" in ran.crash
    ran = run(written(tmp_path, "#include <cassert>\nint main() { assert(1 > 2); }\n"))
    assert ran.status == 128 + 6 and "1 > 2" in ran.stderr


def test_main_is_not_called_inside_python(tmp_path):
    mod = laptop_cuda.load(written(tmp_path, "__global__ void k() {}\nint main() { k<<<1, 1>>>(); }\n"))
    with pytest.raises(laptop_cuda.ArgumentError, match="a whole program: laptop_cuda.run"):
        mod.host("main")


def test_several_files_and_include_paths(tmp_path):
    (tmp_path / "inc").mkdir()
    written(tmp_path / "inc", "#pragma once\n"
                              "__device__ inline int twice(int x) { return 2 * x; }\n"
                              "void fill(int*, int);\n", "twice.h")
    main = written(tmp_path, '#include "twice.h"\n'
                             '#include <cstdio>\n'
                             'int main() { int *d, h[4]; cudaMalloc(&d, 16); fill(d, 4);\n'
                             'cudaMemcpy(h, d, 16, cudaMemcpyDeviceToHost); printf("%d\\n", '
                             'h[3]); }\n', "main.cu")
    other = written(tmp_path, '#include "twice.h"\n'
                              '__global__ void k(int* x) { x[threadIdx.x] = twice(threadIdx.x); }\n'
                              "void fill(int* x, int n) { k<<<1, n>>>(x); }\n", "fill.cu")
    ran = run(other, main, options=Options(include=(tmp_path / "inc",)))
    assert ran.stdout == "6\n" and not ran.errors
    with pytest.raises(ProgramError, match="there is no main"):
        run(other, options=Options(include=(tmp_path / "inc",)))
    with pytest.raises(CompileError, match="line 2"):
        run(written(tmp_path, "\nint main() { return nothing; }\n"))


def tool(folder: Path, *words: object) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "laptop_cuda", *map(str, words)], cwd=folder,
                          capture_output=True, text=True)


def test_the_command_line(tmp_path):
    written(tmp_path, VECTOR)
    defines = ["-DEXTRA=0", "-D", "SET_Y=1", "-O3", "-arch=sm_90", "-Xcompiler", "-Wall"]
    done = tool(tmp_path, "run", *defines, "--json", "report.json", "prog.cu", "200")
    assert (done.returncode == 0 and done.stdout == "y[199] = 9 timed\n"
            and "3 launches checked, no bug found" in done.stderr)
    assert json.loads((tmp_path / "report.json").read_text())["errors"] == []
    done = tool(tmp_path, "run", *defines, "--budget", "axpy:sectors=10", "prog.cu", "200")
    assert done.returncode == 1 and "over budget: axpy: 225 sectors, the budget is 10" in done.stderr
    assert "axpy<float>" in done.stderr and "prog.cu:10" in done.stderr
    done = tool(tmp_path, "run", "-DEXTRA=1", "-DSET_Y=1", "prog.cu", "200")
    assert done.returncode == 7 and "d_x[200]" in done.stderr and "Traceback" not in done.stderr
    assert tool(tmp_path, "fly").returncode == 2


def test_the_fixture(cuda_program, tmp_path, request):
    options = Options(defines=("EXTRA=0", "SET_Y=1"))
    ran = cuda_program(written(tmp_path, VECTOR), "64", options=options)
    assert ran.status == 0
    with pytest.raises(pytest.fail.Exception, match="over budget: 72 sectors, the budget is 71"):
        cuda_program(tmp_path / "prog.cu", "64", options=options, budgets=["sectors=71"])
    with pytest.raises(pytest.fail.Exception, match="out of bounds"):
        cuda_program(tmp_path / "prog.cu", "64", options=Options(defines=("EXTRA=1", "SET_Y=1")))
    with pytest.raises(pytest.fail.Exception, match="there is no file"):
        cuda_program(tmp_path / "none.cu")
    ran = cuda_program(tmp_path / "prog.cu", "64", check=False,
                       options=Options(defines=("EXTRA=1", "SET_Y=1")))
    assert ran.errors[0]["kind"] == "out of bounds"


def test_memory_in_the_order_of_a_stream_is_asked_for_and_given_back_at_once(program):
    text = r"""
__global__ void add(float* x) { x[threadIdx.x] += 3; }
int main(int argc, char**) {
    float* x;
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    if (cudaMallocAsync(&x, 128, stream)) return 2;
    if (argc != 2) cudaMemsetAsync(x, 0, 128, stream);
    add<<<1, 32, 0, stream>>>(x);
    if (cudaFreeAsync(x, stream)) return 3;
    if (argc > 2) add<<<1, 32, 0, stream>>>(x);
    return cudaFreeAsync(x, stream) != cudaErrorInvalidValue;
}
"""
    ran = program(text)
    assert (ran.status, [error["kind"] for error in ran.errors]) == (0, ["misuse"])     # freed a second time
    (error,) = program(text, arguments=["not initialised"]).errors
    assert error["kind"] == "uninitialized" and "x[0]" in error["message"]
    misuse, error = program(text, arguments=["used after", "it is given back"]).errors
    assert "x[0], which was freed" in error["message"]


HEAP = r"""
#include <cstdio>
#include <cstdlib>
struct Node { int value; Node* next; __device__ ~Node() { value = -1; } };
__global__ void lists(int* out, int bug) {
    Node* head = nullptr;
    for (int i = 0; i < 4; ++i) head = new Node{i + (int)threadIdx.x, head};
    int sum = 0;
    for (Node *node = head, *next; node; node = next) {
        next = node->next, sum += node->value;
        delete node;
        if (bug == 1) sum += node->value;
    }
    int* more = (int*)malloc(4 * sizeof(int));
    for (int i = 0; i < 4 + (bug == 2); ++i) more[i] = i;
    Node* fresh = new Node[1]{{3, nullptr}};
    out[threadIdx.x] = sum + more[3] + fresh[0].value;
    delete[] fresh;
    free(more);
}
int main(int argc, char** argv) {
    int* out;
    cudaMallocManaged(&out, 32 * sizeof(int));
    lists<<<1, 32>>>(out, argc > 1 ? atoi(argv[1]) : 0), cudaDeviceSynchronize();
    printf("%d %d\n", out[0], out[31]);
}
"""


@pytest.mark.slow
def test_kernels_of_a_program_have_a_heap(tmp_path):
    path = tmp_path / "heap.cu"
    path.write_text(HEAP)
    for mode in ("sanitize", "profile", "plain"):
        assert run(path, mode=mode).stdout == "12 136\n"
    for bug, kind, line in ((1, "out of bounds", "bug == 1"), (2, "out of bounds", "bug == 2")):
        error, = run(path, arguments=[str(bug)]).errors
        assert error["kind"] == kind and line in HEAP.splitlines()[error["line"] - 1]
