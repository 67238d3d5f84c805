"""Builds: cached by content, safe for two processes, never cached when they fail, errors by line."""
import os
import subprocess
import sys
import textwrap
import time

import pytest
import torch

from engine_kit import COMPILERS
import laptop_cuda as cuda
from laptop_cuda import build
from laptop_cuda.toolchain import cache, compilers, watching
from laptop_cuda.module import Module
from laptop_cuda.sources import files_of, rewritten

KERNEL = "__global__ void k(float* x) {{\n  x[0] = {value};\n}}\n"


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """Kernels are built in a folder of the test's own; the runtime is the shared one."""
    runtime = build.runtime_library()
    monkeypatch.setattr(build, "runtime_library", lambda *_: runtime)
    (tmp_path / "cache").mkdir()
    monkeypatch.setattr(build, "cache", lambda: tmp_path / "cache")
    return tmp_path


@pytest.fixture
def compiles(monkeypatch):
    """Counts runs of ninja."""
    real, runs = subprocess.run, []

    def run(command, *args, **kwargs):
        if "--version" not in command:
            runs.append(command)
        return real(command, *args, **kwargs)
    monkeypatch.setattr(build.subprocess, "run", run)
    return runs


def built(text, folder=None, traced=False):
    source = f'#include <host_launch.h>\n#line 1 "k.cu"\n{rewritten(files_of(text, folder), folder)}'
    return build.library(source, "k.cu", text, folder, traced)


def test_the_second_build_comes_from_the_cache(own_cache, compiles):
    first = built(KERNEL.format(value="1"))
    assert len(compiles) == 1
    assert built(KERNEL.format(value="1")) == first and len(compiles) == 1
    assert built(KERNEL.format(value="2")) != first and len(compiles) == 2
    assert built(KERNEL.format(value="1"), traced=True) != first and len(compiles) == 3


@pytest.mark.parametrize("name", ['"value.h"', "<value.h>"])
def test_an_edited_header_rebuilds_even_with_an_older_date(name, own_cache, compiles, monkeypatch):
    monkeypatch.setenv("CPATH", str(own_cache))
    (own_cache / "deep.h").write_text("#define VALUE 1\n")
    (own_cache / "value.h").write_text('#pragma once\n#include "deep.h"\n')
    text, folder = f"#include {name}\n" + KERNEL.format(value="VALUE"), own_cache if name[0] == '"' else None
    first = built(text, folder)
    assert built(text, folder) == first and len(compiles) == 1
    (own_cache / "deep.h").write_text("#define VALUE 2\n")
    os.utime(own_cache / "deep.h", (1, 1))
    assert built(text, folder) != first and len(compiles) == 2


def test_a_failed_build_is_not_cached(own_cache, compiles):
    header = own_cache / "value.h"
    text = '#include "value.h"\n' + KERNEL.format(value="VALUE")
    for _ in range(2):
        with pytest.raises(cuda.CompileError):
            built(text, own_cache)
    assert len(compiles) == 2
    header.write_text("#define VALUE 3\n")
    assert built(text, own_cache).exists()


def test_a_killed_build_leaves_nothing_that_is_believed(own_cache, monkeypatch):
    def killed(command, *args, **kwargs):
        folder = command[command.index("-C") + 1]
        open(os.path.join(folder, "library.new"), "w").write("half a librar")
        raise KeyboardInterrupt
    with monkeypatch.context() as patch:
        patch.setattr(build.subprocess, "run", killed)
        with pytest.raises(KeyboardInterrupt):
            built(KERNEL.format(value="5"))
    assert built(KERNEL.format(value="5")).read_bytes()[:4] in (b"\x7fELF", b"\xcf\xfa\xed\xfe")


def test_processes_that_build_the_same_thing_at_once(tmp_path):
    script = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(build.PACKAGE.parent)!r})
        from pathlib import Path
        from laptop_cuda import build
        build.runtime_library = lambda *_: Path({str(build.runtime_library())!r})
        text = "#include <host_launch.h>\\n__global__ void k(float* x) {{ x[0] = 1; }}"
        print(build.library(text, "k.cu", text, None, False))
    """)
    environment = os.environ | {"LAPTOP_CUDA_CACHE": str(tmp_path)}
    running = [subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE,
                                text=True) for _ in range(3)]
    paths = {process.communicate()[0] for process in running}
    assert all(process.returncode == 0 for process in running)
    assert len(paths) == 1 and os.path.exists(paths.pop().strip())
    assert len(list(tmp_path.glob("cuda/*/kernel-*.so"))) == 1


def test_no_compiler_is_one_clear_error(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ziglang", None)        # as where it is not installed
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(cuda.NoCompiler, match="conda install -c conda-forge cxx-compiler|xcode-select"):
        cuda.compile("__global__ void never_built() {}")
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    with pytest.raises(cuda.NoCompiler, match="CXX is set to no-such-compiler"):
        cuda.compile("__global__ void never_built() {}")


def test_where_there_is_no_compiler_the_one_of_ziglang_is_taken(tmp_path, monkeypatch):
    stub = tmp_path / "ziglang"
    stub.mkdir()
    (stub / "__init__.py").touch()
    (stub / "__main__.py").write_text("import sys\nassert sys.argv[1:] == ['c++', '--version']\n"
                                      "print('clang version 20')\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("CXX", raising=False)
    tool = compilers.compiler()
    assert tool.command == (sys.executable, "-m", "ziglang", "c++") and tool.clang
    assert tool.traced()[0] == "-fno-sanitize=undefined"


def test_without_ninja_the_same_commands_run_one_by_one(monkeypatch, tmp_path):
    monkeypatch.setattr(build, "ninja", lambda: None)
    source = "__global__ void k(float* x) { x[0] = 5; }  // without ninja"
    first = cuda.compile(source)
    first.k[1, 1](x := torch.zeros(1))
    assert x.item() == 5
    with pytest.raises(cuda.CompileError) as caught:
        cuda.compile("__global__ void k(float* x) { x[0] = nothing; }").k[1, 1](x)
    assert "nothing" in str(caught.value)


def test_ninja_of_the_python_package_is_found_without_a_path(monkeypatch, tmp_path):
    package = pytest.importorskip("ninja")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.ninja().startswith(package.BIN_DIR)


def test_the_cache_falls_back(monkeypatch, tmp_path):
    for name in ("LAPTOP_CUDA_CACHE", "COURSE_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cache, "_preferred", [tmp_path / "file" / "clone"])
    monkeypatch.setattr(cache, "_variables", ["LAPTOP_CUDA_CACHE"])
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    try:
        build.cache.cache_clear()
        assert build.cache() == tmp_path / "user" / "laptop_cuda" / "cuda"
        build.prefer_cache(tmp_path / "preferred", variable="THE_COURSE")
        assert build.cache() == tmp_path / "preferred" / "cuda"
        monkeypatch.setattr(cache, "_preferred", [])
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        build.cache.cache_clear()
        assert build.cache().is_dir()
        for variable in ("THE_COURSE", "LAPTOP_CUDA_CACHE"):
            monkeypatch.setenv(variable, str(tmp_path / variable))
            build.cache.cache_clear()
            assert build.cache() == tmp_path / variable / "cuda"
    finally:
        build.cache.cache_clear()


def test_the_builds_used_longest_ago_go_first_and_recent_ones_never(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "KEPT_BUILDS", 8)
    now = time.time()
    for n in range(9):
        (tmp_path / f"build{n}").mkdir()
        os.utime(tmp_path / f"build{n}", (now, now - 10_000 - n))
    (tmp_path / "runtime-1").mkdir()
    os.utime(tmp_path / "runtime-1", (0, 0))
    cache.used(tmp_path / "build8")                        # taken from the cache a moment ago
    cache.prune(tmp_path, tmp_path / "build0")             # no new build: nothing is removed
    assert len(list(tmp_path.iterdir())) == 10
    cache.prune(tmp_path, tmp_path / "new")
    assert ({p.name for p in tmp_path.iterdir()} == {*(f"build{n}" for n in (0, 1, 2, 3, 4, 5, 8)),
                                                     "runtime-1"})

    for path in tmp_path.glob("build*"):
        cache.used(path)
    for n in range(3):
        (tmp_path / f"more{n}").mkdir()
    cache.prune(tmp_path, tmp_path / "new")                # over the limit, and all of them in use
    assert len(list(tmp_path.iterdir())) == 11


ERRORS = [
    ("__global__ void k(float* x) {\n  x[0] = missing;\n}", 2, "missing"),
    ("__global__ void k(float* x) {\n\n  x[0] = 1\n}", 3, "expected"),
    ("__global__ void k(int n) {\n  float a[n];\n  a[0] = 1;\n}", 2, "size must be known"),
    ("__global__ void k(int n) {\n  __shared__ float a[n];\n  a[0] = 1;\n}", 2, "size must be known"),
    ("__device__ float f(float x) {\n}\n__global__ void k(float* x) { x[0] = f(x[0]); }", 2, "returns nothing"),
    ("#include <cstdio>\n#include <no_such_header.h>\n", 2, "no_such_header.h"),
    ("__global__ void k(unsigned* x) {\n  x[0] = __no_such_intrinsic(x[0]);\n}", 2, "__no_such_intrinsic is not declared"),
    ("__global__ void k(int n) {}\nvoid f() {\n  k<<<1,\n     2>>>(\n    3);\n  k(3);\n}", 6, "without <<<grid, block>>>"),
    ("#include <utility>\n__global__ void k(float* x) {\n  x[0] = std::get<3>(std::make_pair(1.f, 2.f));\n}", 3, ""),
]


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("source, line, words", ERRORS)
def test_errors_name_the_students_line(source, line, words, compiler, needs, monkeypatch):
    monkeypatch.setenv("CXX", needs(compiler))
    runtime = build.runtime_library()
    monkeypatch.setattr(build, "runtime_library", lambda *_: runtime)
    with pytest.raises(cuda.CompileError) as caught:
        Module(source, "k.cu")
    error = caught.value
    assert error.line == line and words in str(error), str(error) + error.output
    assert f"line {line}: " in str(error) and source.splitlines()[line - 1].strip() in str(error)
    assert "laptop" not in str(error) and "/kernels/" not in str(error) and len(str(error).splitlines()) <= 12


@pytest.mark.parametrize("compiler", COMPILERS)
def test_falling_off_a_function_is_no_error_until_it_happens(compiler, needs, monkeypatch):
    monkeypatch.setenv("CXX", needs(compiler))
    mod = cuda.compile("__device__ float f(float x) { if (x < 1) return 2; else if (x > 1) return 3; }\n"
                       "__global__ void k(float* x) { x[0] = f(x[0]); }")
    mod.k[1, 1](x := torch.zeros(1))
    assert x.item() == 2
    with pytest.raises(cuda.KernelError):
        mod.k[1, 1](torch.ones(1))


def test_a_function_without_a_body_is_an_error_of_the_build(monkeypatch):
    with pytest.raises(cuda.CompileError, match="helper.*nowhere defined"):
        cuda.compile("__device__ float helper(float);\n__global__ void k(float* x) { x[0] = helper(x[0]); }")


def test_who_waits_is_told_what_is_built(monkeypatch, capsys, tmp_path):
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    monkeypatch.setattr(watching.sys.stderr, "isatty", lambda: True, raising=False)
    with watching.saying("a runtime", tmp_path / "none"):
        assert capsys.readouterr().err == "Building a runtime ...\n"
    said = []
    monkeypatch.setattr(watching, "watched", lambda: True)
    monkeypatch.setattr(watching, "show", lambda line, *_: said.append(line) or said)
    with watching.saying("a runtime", tmp_path / "none"):
        assert said == ["Building a runtime ..."]
    assert said[1] == "Built a runtime, in 0 s." and capsys.readouterr().err == ""
    monkeypatch.setattr(watching, "watched", lambda: False)
    monkeypatch.setenv("LAPTOP_CUDA_BATCH", "1")
    with watching.saying("a runtime", tmp_path / "none"):
        assert len(said) == 2 and capsys.readouterr().err == ""
    monkeypatch.delenv("LAPTOP_CUDA_BATCH")
    with watching.saying("a runtime", tmp_path):
        assert len(said) == 2 and capsys.readouterr().err == ""
