"""What `run` says of programs that do not compile, need a library, or are interrupted."""
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from laptop_cuda.text.diagnostics import read_errors, read_warnings
from laptop_cuda import CompileError
from laptop_cuda.programs import ProgramError, compile_program

LINKED = """
#include <cublas_v2.h>
void product(cublasHandle_t h) { cublasDestroy(h); }
int main() { cublasHandle_t h; cublasCreate(&h); product(h); }
"""
ENDLESS = r"""
#include <cstdio>
__global__ void add(int* x, int n) { for (int i = 0; i < n; ++i) x[threadIdx.x] += i; }
int main() {
    int* x;
    cudaMalloc(&x, 128);
    cudaMemset(x, 0, 128);
    puts("begun");
    fflush(stdout);
    for (;;) add<<<1, 32>>>(x, 1000);
}
"""


def test_a_main_that_needs_a_library_is_named_with_it(tmp_path):
    path, other = tmp_path / "product.cu", tmp_path / "kernels.cu"
    path.write_text(LINKED)
    other.write_text("__global__ void k() {}\n")
    with pytest.raises(ProgramError, match=r"main of product.cu needs cuBLAS \(product.cu, line 2\)"):
        compile_program([other, path])
    with pytest.raises(ProgramError, match="there is no main in kernels.cu: name the source"):
        compile_program([other])


def test_what_is_missing_is_said_with_what_to_do():
    [(line, said)] = read_errors("a.cu:3:10: fatal error: net.h: No such file or directory\n", "a.cu")
    assert line == 3 and "there is no net.h" in said and "-I" in said
    assert read_errors("/usr/bin/ld: cannot find -lpng: No such file or directory\n", "a.cu") == [
        (0, "this machine has no library png (-lpng)")]
    assert read_errors("ld.lld: error: unable to find library -lpng\n", "a.cu")[0][1].endswith("(-lpng)")


def test_warnings_are_those_of_the_sources():
    printed = ("a.cu:4:9: warning: unused variable 'n' [-Wunused-variable]\n" * 2 + "half.h:4:9: warning: "
               "unused variable 'm' [-Wunused-variable]\n"
               + "a.cu:5:9: warning: something new [-Wsomething]\n" + "a.cu:6:11: warning: suggest "
               "parentheses around assignment used as truth value [-Wparentheses]\n")
    assert read_warnings(printed, ("a.cu",)) == ["a.cu, line 4: unused variable 'n'",
                                                 "a.cu, line 6: `=` where `==` may be meant"]


def begun(folder: Path, mode: str) -> subprocess.Popen:
    """A program that is in its launches, as the leader of a group of processes."""
    (folder / "endless.cu").write_text(ENDLESS)
    process = subprocess.Popen([sys.executable, "-m", "laptop_cuda", "run", mode, "endless.cu"], cwd=folder,
                               text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               start_new_session=True)
    assert process.stdout.readline() == "begun\n"
    return process


def alive(group: int) -> bool:
    """Whether any process of a group runs, and is no corpse that waits for its parent."""
    listed = subprocess.run(["ps", "-eo", "pgid=,stat="], capture_output=True, text=True).stdout
    return any(pgid == str(group) and stat[0] != "Z" for pgid, stat in map(str.split, listed.splitlines()))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux's ps")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_nothing_runs_on_after_the_tool_is_ended(tmp_path, number):
    process = begun(tmp_path, "--plain")
    if number == signal.SIGINT:                      # a terminal sends it to the whole group
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    said = process.communicate(timeout=20)[1]
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    assert "Traceback" not in said and "Exception" not in said
    until = time.time() + 10
    while alive(process.pid) and time.time() < until:
        time.sleep(0.05)
    assert not alive(process.pid)


@pytest.mark.slow
def test_warnings_and_extensions_of_gnu(tmp_path):
    (tmp_path / "old.cu").write_text('extern "C" { void exit(int); }\n'
                                     '#include <cstdlib>\n'
                                     '#include <dlfcn.h>\n'
                                     "int pick(int x) { if (x = 3) return 1; return 2; }\n"
                                     "int main() { int* p = (typeof(p))malloc(4); free(p); exit(dlopen(0, "
                                     "1) == nullptr && pick(0)); }\n")
    done = subprocess.run([sys.executable, "-m", "laptop_cuda", "run", "-ldl", "old.cu"], cwd=tmp_path,
                          capture_output=True, text=True)
    assert done.returncode == 0 and "warning: old.cu, line 4: `=` where" in done.stderr


DRIVER = "#include <cuda.h>\nint main() {\n    CUmodule module;\n    cuInit(0);\n    cuModuleUnload(module);\n}\n"
HOST_GENERATOR = r"""
#include <curand_kernel.h>
int main() {
    curandGenerator_t generator;                       // CUDA's curand_kernel.h has it too
    return curandCreateGenerator(&generator, CURAND_RNG_PSEUDO_DEFAULT);
}
"""


def test_names_of_the_driver_api_are_told_as_such(program):
    with pytest.raises(CompileError, match="line 3: CUmodule is of CUDA's driver API") as error:
        program(DRIVER)
    assert "line 4" not in str(error.value)


def test_kernels_header_of_curand_brings_the_hosts(program):
    assert program(HOST_GENERATOR, mode="plain").status == 0
