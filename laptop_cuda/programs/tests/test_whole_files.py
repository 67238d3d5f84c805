"""One name that the engine does not have, or a macro of the build, does not cost the whole file."""
import numpy as np
import pytest

import laptop_cuda as cuda
from engine_kit import checked, compiled, compiler, counted, line_of  # noqa: F401

pytestmark = pytest.mark.slow            # whole files, built anew where a name is unknown
LIBRARIES = r"""
#include <torch/extension.h>
#include <cub/block/block_run_length_decode.cuh>
#include <curand_kernel.h>
__global__ void doubled(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }
__global__ void sorted(float* x) {
    typedef cub::BlockRadixRank<32, 4, false> Sort;                                      // sort
    __shared__ typename Sort::TempStorage place;
    float key[1] = {x[threadIdx.x]};
    Sort(place).Sort(key);
    x[threadIdx.x] = key[0];
}
template <typename T> __device__ T shifted(T x) { return at::native::lerp_of_ours(x, T(1)); }   // lerp
__global__ void moved(float* x, int n) { if (n > 0) x[0] = shifted(x[0]); }
__global__ void drawn(float* x) {
    curandStateMRG32k3a state;
    x[0] = curand_uniform(&state);                                                      // drawn
}
"""


def test_an_unknown_name_of_a_library_is_an_error_where_it_is_reached(compiler):
    mod, x, y = compiled(LIBRARIES), np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    checked(mod.doubled, 1, 32, x, y)
    checked(mod.moved, 1, 1, x, 0)                           # does not reach it
    assert (y == 2 * x).all()
    for launch, name, marker in ((lambda: mod.sorted[1, 32](x), "cub::BlockRadixRank", "// sort"),
                                 (lambda: mod.moved[1, 1](x, 1), "at::native::lerp_of_ours", "// lerp"),
                                 (lambda: mod.drawn[1, 1](x), "generator of curand", "// drawn")):
        with pytest.raises(cuda.KernelError, match=name) as caught, cuda.sanitize():
            launch()
        assert caught.value.kind == "not supported" and {caught.value.line} == line_of(LIBRARIES, marker)


def test_a_program_with_an_unknown_name_of_cub_runs_up_to_it(program):
    text = r"""
#include <cstdio>
#include <cub/cub.cuh>
__global__ void plain(int* x) { *x = 7; }
__global__ void other(int* x) { cub::BlockHistogram<int, 32, 1, 4>::TempStorage t; *x = sizeof t; }
int main(int words, char**) {
    int* x;
    cudaMallocManaged(&x, 4);
    plain<<<1, 1>>>(x);
    cudaDeviceSynchronize();
    printf("%d\n", *x);
    if (words > 1) other<<<1, 1>>>(x);
    return cudaDeviceSynchronize();
}"""
    assert program(text).stdout == "7\n"
    ran = program(text, arguments=["on"])
    assert "cub::BlockHistogram" in str(ran.errors[0]) and ran.errors[0]["line"] == 5


MISSPELT = "__global__ void k(float* x) { x[0] = at::nothing; }\n"


def test_an_unknown_name_outside_functions_stays_an_error_of_the_compiler():
    with pytest.raises(cuda.CompileError, match="BlockNothing"):
        cuda.compile("#include <cub/cub.cuh>\ntypedef cub::BlockNothing<int> B;\n__global__ void k() {}\n")
    with pytest.raises(cuda.CompileError, match="'at' has not been declared|undeclared identifier 'at'"):
        cuda.compile(MISSPELT)


BUILD = r"""
#ifdef WITH_TAIL
#define MARK 1
__device__ int tail() { return MARK; }
#else
#define MARK
__device__ int tail() { return 0; }
#endif
__global__ void filled(int* y) {
    __shared__ int s[SIZE];
    s[threadIdx.x] = SIZE + tail();
    __syncthreads();
    y[threadIdx.x] = s[SIZE - 1 - threadIdx.x];                                         // read
}
"""


def test_macros_of_the_build(tmp_path):
    """As with -D: from text and from a file, each set of them another module."""
    y, path = np.zeros(8, np.int32), tmp_path / "a.cu"
    path.write_text(BUILD)
    tail = {"SIZE": 8, "WITH_TAIL": True}
    for define, value in (({"SIZE": 8}, 8), ({"SIZE": "4 * 2", "WITH_TAIL": ""}, 9), (tail, 9)):
        for mod in (cuda.compile(BUILD, define=define), cuda.load(path, define=define)):
            launch = counted(mod.filled, 1, 8, y, sanitized=True)
            assert (y == value).all()
            assert line_of(BUILD, "// read") <= {line.line for line in launch.lines}
    assert cuda.load(path, define={"SIZE": 8}) is cuda.load(path, define={"SIZE": 8})
    with pytest.raises(cuda.CompileError, match="SIZE"):
        cuda.load(path)


OLD_AND_ODD = r"""
asm(".globl laptop_no_such_symbol");
#include <cub/cub.cuh>
namespace {
const int MOST = 64;
namespace device {
__launch_bounds__(MOST, 2) __global__ void angles(const float* x, float* y) {
    float s, c;
    sincos(x[threadIdx.x], &s, &c);
    y[2 * threadIdx.x] = s, y[2 * threadIdx.x + 1] = c;
}
}  // namespace device
}  // namespace
__global__ void segments(const int* x, const int* head, int* y, int n) {
    __shared__ cub::WarpReduce<int>::TempStorage place;
    if (threadIdx.x >= n) return;
    y[threadIdx.x] = cub::WarpReduce<int>(place).HeadSegmentedSum(x[threadIdx.x], head[threadIdx.x]);
    cub::WarpReduce<int> warp(place);
    y[32 + threadIdx.x] = warp.TailSegmentedReduce(x[threadIdx.x], head[threadIdx.x], cub::Max());
}
"""


def test_files_as_they_are_published(compiler):
    """Assembly for the host outside functions, launch bounds in an unnamed namespace, segments of a warp."""
    mod, y = compiled(OLD_AND_ODD), np.zeros((32, 2), np.float32)
    x = np.linspace(-3, 3, 32).astype(np.float32)
    launch = counted(mod["device::angles"], 1, 32, x, y, sanitized=True)
    assert np.allclose(y, np.stack([np.sin(x), np.cos(x)], 1), atol=1e-6)
    assert launch.global_store.bytes == 256
    with pytest.raises(cuda.KernelError, match="launch_bounds"):
        mod["device::angles"][1, 96](x, y)
    rng = np.random.default_rng(3)
    values, head = rng.integers(0, 99, 32).astype(np.int32), (rng.random(32) < 0.3).astype(np.int32)
    out = np.zeros(64, np.int32)
    checked(mod.segments, 1, 32, values, head, out, 27)
    starts = sorted({0} | set(np.flatnonzero(head[:27])))
    for a, b in zip(starts, starts[1:] + [27]):
        assert out[a] == values[a:b].sum()
    starts = sorted({0} | {i + 1 for i in np.flatnonzero(head[:26])})
    for a, b in zip(starts, starts[1:] + [27]):
        assert out[32 + a] == values[a:b].max()


def test_names_of_cuda_13_and_what_a_library_of_kernels_does_without(compiler):
    module = compiled(r"""
#include <cub/cub.cuh>
#include <cuda/cmath>
#include <library_types.h>
struct Registry { Registry(const char*); };
static Registry of_host("k");
struct Log { Log(); static Log& get() { static Log one; return one; } };
inline void look(cudaGraph_t) { Log::get(); }
#define LOOK() look(0)
void of_host_too() { LOOK(); }
typedef struct __CUDA_ALIGN__(16) { float x[3]; } Wide;
void min(float*, float*, int, cudaStream_t = 0);
__global__ void k(long4_16a* x, int type) {
    unsigned r, one = 0x3c003c00;
    float whole, kept[1], part = modf(2.5 + type, &whole); cub::LoadDirectStriped<32>(0, kept, kept, 0, 7);
    asm("atom.global.add.noftz.f16x2 %0, [%1], %2;" : "=r"(r) : "l"(&x->w), "r"(one));
    x->z = min(100 * part + whole, 999.f) + 1000 * kept[0] + sizeof(Wide);
    x->x = cuda::ceil_div(7, 2) + 10 * cuda::next_power_of_two(9) + 1000 * cuda::ilog2(17u) + (type == CUDA_R_4F_E2M1) * 10000;
    if (type > 99) { asm("mov.u32 %0, %of_later_cards;" : "=r"(r)); x->y = r; }  // reached
}""")
    x = np.zeros(4, np.int64)
    checked(module.k, 1, 1, x, 33)
    assert x[0] == 14164 and x[2] == 7101 and x[3] == 0x3c003c00
    with pytest.raises(cuda.KernelError, match="%of_later_cards"):
        checked(module.k, 1, 1, x, 100)


def test_a_name_that_cub_has_and_a_macro_that_clashes_are_told_as_such():
    source = """#include <cub/cub.cuh>
        template <int N> __global__ void k(int* y) { y[0] = cub::ArgMax()(cub::KeyValuePair<int, int>{N, 1}, {0, 2}).key; }"""
    with pytest.raises(cuda.KernelError, match="reaches `cub::ArgMax`"):
        checked(cuda.compile(source)["k<3>"], 1, 1, np.zeros(1, np.int32))
    with pytest.raises(cuda.CompileError, match="line 2: "):
        cuda.compile(source, define={"N": 64})["k<3>"]
