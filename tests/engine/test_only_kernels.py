"""A judge loads kernels and nothing else: by what a build calls, whatever the names in its text."""
import pytest
import torch

from adversaries import cheats, hidden
import laptop_cuda as cuda
from engine_kit import compiler  # noqa: F401
from laptop_cuda.toolchain.declared import declared
from laptop_cuda.toolchain.object_file import read_object
from laptop_cuda.only_kernels import refusal, refused
from laptop_cuda.text.plain import plain_text

KERNEL = "__global__ void f(const float* __restrict__ x, float* __restrict__ out, int n) {{\n    {}\n}}\n"
ALLOWED = """#include <cuda_fp16.h>
constexpr int TILE = 8;
const float SCALE = 1.5f;
__device__ int calls;
__global__ void f(const float* __restrict__ x, float* __restrict__ out, int n) {
    __shared__ float kept[TILE];
    float own[16] = {}, v;
    __int128 wide = (__int128)n * n;
    memcpy(&v, x, 4), memset(out, 0, 4);
    kept[threadIdx.x % TILE] = SCALE + own[n % 16] + expf(x[0]) + powf(x[1], 2.5f) + fmaf(x[0], x[1], tanhf(v)) + nanf("");
    __syncthreads();
    printf("%f\\n", __half2float(__float2half(kept[0])));
    out[0] = __shfl_xor_sync(0xffffffff, kept[0], 1) + atomicAdd(&calls, 1) + (float)(wide / 3) + __popcll(n);
}
"""
REFUSED = {
    "memcmp": KERNEL.format("out[0] = memcmp(x, out, n);"),
    "snprintf": "#include <cstdio>\n" + KERNEL.format("char t[8]; snprintf(t, 5, \"%.4s\", (const char*)x); out[0] = t[0];"),
    "canonicalizef": KERNEL.format("float v; canonicalizef(&v, x); out[0] = v;"),
    "nanf": KERNEL.format("out[0] = (nanf)((const char*)x);"),
    "getenv": KERNEL.format("out[0] = getenv(\"HOME\") != nullptr;"),
    "system": KERNEL.format("out[0] = system(\"true\");"),
    "stderr": "#include <cstdio>\n" + KERNEL.format("out[0] = (stderr != nullptr);"),
    "thread_local": "thread_local int mine;\n" + KERNEL.format("out[0] = ++mine;"),
    "virtual": "struct A { virtual float v() { return 1; } };\n" + KERNEL.format("A a; A* p = &a; out[0] = p->v();"),
    "constructor": "struct Early { Early() { value = 1; } int value; } early;\n" + KERNEL.format("out[0] = early.value;"),
    "constructor inlined": "int first() { return threadIdx.x + 1; }\nint value = first();\n" + KERNEL.format("out[0] = value;"),
}


def told(source: str) -> str:
    with cuda.only_kernels(), cuda.sanitize():
        try:
            cuda.compile(source)
        except cuda.NotAllowed as error:
            return str(error)
    return ""


def test_kernels_are_loaded(compiler):
    assert told(ALLOWED) == "" and refused(ALLOWED) is None


@pytest.mark.parametrize("name",
                         [pytest.param(n, marks=() if n in ("memcmp", "constructor") else pytest.mark.slow)
                          for n in REFUSED])
def test_what_is_more_than_a_kernel_is_not(compiler, name):
    assert refused(REFUSED[name]) is None, "by its names it would pass"
    said, word = told(REFUSED[name]), name.split()[0]
    assert f"`{word}`" in said or word == "constructor" and "first launch" in said, said


def test_only_where_it_is_asked():
    with cuda.sanitize():
        module = cuda.compile(REFUSED["memcmp"])
    assert "`memcmp`" in refusal(module.f) and refusal(cuda.compile(ALLOWED).f) is None


def test_an_object_says_what_it_needs_and_from_where(tmp_path):
    module = cuda.compile(ALLOWED)
    needs = read_object(module.builds()[0]).needs
    assert needs["expf"].startswith("libm") and "laptop_table" in read_object(module.builds()[0]).gives
    (tmp_path / "x").write_bytes(b"\x7fELF")
    assert read_object(tmp_path / "x") is None


def summed(source: str) -> tuple[bool, int]:
    """(whether the sums of rows are right, sectors) of a kernel that is judged as an exam's: loaded as one, then in a single
    run sanitized and counted, from poison to a result. What may not be says so by an error."""
    if told := refused(source):
        raise cuda.NotAllowed("<cell>", source, told)
    right, sectors = True, 0
    with cuda.only_kernels(counted=True), cuda.profile(sanitized=True, step_limit=2_000_000) as report:
        kernel = cuda.compile(source).row_sums
        for rows, n in ((5, 133), (2, 701)):
            x, out = torch.randn(rows, n), cuda.empty((rows,))
            before = x.clone()
            kernel[rows, 256](x, out, n)
            right &= torch.equal(x, before) and torch.allclose(out, x.sum(1), atol=1e-3)
    for launch in report.launches:
        sectors += launch.global_load.sectors + launch.global_store.sectors + launch.atomics.operations
    return right, sectors


DECLARES = """__device__ float kept[10][3];
__constant__ float scale[7];
__shared__ float top[11];
template <int P> __device__ float with(float x) {
    __shared__ float tile[32 * P];
    static float last[5];
    tile[threadIdx.x] = last[0] = x;
    return tile[threadIdx.x];
}
__device__ float deep(int n) { return n ? 1 + deep(n - 1) : 0; }
__global__ void many(float* out, int n) {
    float own[4] = {1, 2, 3, 4};
    top[0] = own[n];
    if (n == 9) out[0] = with<33>(1) + with<34>(2) + kept[1][1] + scale[0];
    out[0] = top[0];
}
__global__ void few(float* out, int n) { out[0] = deep(n); }
"""


def test_what_a_kernel_declares_is_known_where_no_launch_reaches_it(compiler):
    with cuda.profile() as report:
        module = cuda.compile(DECLARES)
        module.many[1, 1](torch.zeros(1), 2)
        module.few[1, 1](torch.zeros(1), 0), module.few[1, 1](torch.zeros(1), 9)
    many, few = (declared(module.builds(), name) for name in ("many", "few"))
    assert many.device == few.device == 4 * (30 + 7 + 2 * 5)
    if compiler == "g++":
        assert (many.shared, many.own) == (4 * (11 + 32 * 33 + 32 * 34), ("own",))
        assert few.noted and (few.shared, few.own) == (0, ())
    assert report.launches[0].shared_bytes == 4 * 11
    assert report.launches[2].stack_bytes >= report.launches[1].stack_bytes + 9 * 16


def test_an_honest_kernel_has_the_sums():
    right, sectors = summed(cheats.HONEST)
    assert right and sectors >= 4 * (5 * 133 + 2 * 701) // 32


def test_a_cheat_by_its_text_is_refused():
    for name, source in cheats.REFUSED.items():
        with pytest.raises(cuda.NotAllowed):
            print(name, summed(source))


def test_code_that_is_hidden_from_a_reader_is_refused():
    texts = {name: text + hidden.KERNEL for name, text in hidden.HIDDEN.items()} | hidden.NAMED
    assert [name for name, text in texts.items() if refused(text) is None] == []
    prose = "#if 0\nIt doesn't matter. \"Nor does this.\n#endif\n#pragma once\n/* 1'2 */ const int a = 1'000, b = '\\'';\n"
    assert refused(prose + cheats.HONEST) is None


def test_code_that_no_reader_found_is_not_loaded(monkeypatch):
    """What is compiled is what was read. Were it not, a function without hooks would be found in the build."""
    source = hidden.HIDDEN["between two texts that look like a comment"] + hidden.KERNEL
    assert plain_text("int a; /* 1\n2 */ int \\\nb;\nc // d") == "int a;     \n     int b;\n\nc     "
    monkeypatch.setattr("laptop_cuda.module.as_judged", lambda source: source)
    assert "neither counted nor checked" in told(source)


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if "__ldg" in name else pytest.mark.slow)
                                  for name in hidden.BUILT])
def test_code_that_its_build_hides_from_the_counts_is_refused(name):
    assert refused(hidden.BUILT[name]) is None, "by its names it would pass"
    with pytest.raises(cuda.CompileError):
        summed(hidden.BUILT[name])


@pytest.mark.slow
def test_a_function_that_reads_or_writes_unseen_is_refused():
    for name, source in cheats.LIBRARY.items():
        with pytest.raises(cuda.NotAllowed, match="no function of a GPU"):
            print(name, summed(source))


@pytest.mark.slow
def test_what_is_wrong_in_memory_is_an_error():
    for name, source in cheats.CAUGHT_BY_THE_SANITIZER.items():
        try:
            right, _ = summed(source)
        except (cuda.KernelError, cuda.NotAllowed):
            continue
        assert not right, name


@pytest.mark.slow
def test_what_is_wrong_in_the_run_that_counts_is_wrong():
    for name, source in (cheats.WRONG_RESULTS | cheats.WRONG_WHILE_COUNTED).items():
        try:
            right, _ = summed(source)
        except cuda.KernelError:
            continue
        assert not right, name


@pytest.mark.slow
def test_a_detour_to_the_data_saves_nothing():
    least = summed(cheats.HONEST)[1]
    for name, source in (cheats.NOTHING_SAVED | hidden.COUNTED).items():
        try:
            right, sectors = summed(source)
        except (cuda.KernelError, cuda.NotAllowed):
            continue
        assert right and sectors > least, name
