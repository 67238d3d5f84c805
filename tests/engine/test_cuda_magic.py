"""The notebook side: `%%cuda` cells, names that never mean an earlier version, interrupts, colours."""
import atexit
import os
import re
import subprocess
import sys
import textwrap

import pytest
import torch
from engine_kit import interrupted

import laptop_cuda as cuda
from laptop_cuda import build, magic

IPython = pytest.importorskip("IPython")

ADD = """__global__ void add(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + 1;
}
"""


@pytest.fixture
def shell():
    from IPython.core.interactiveshell import InteractiveShell

    from laptop_cuda.magic import register
    shell = InteractiveShell.instance()
    register()
    yield shell
    atexit.unregister(shell.atexit_operations)           # which collects garbage for seconds
    InteractiveShell.clear_instance()


def run(shell, cell):
    """The exception of a cell, or None."""
    result = shell.run_cell(cell)
    return result.error_in_exec or result.error_before_exec


def test_kernels_become_names_and_are_sanitized(shell):
    assert run(shell, f"%%cuda\n{ADD}") is None
    add = shell.user_ns["add"]
    x = torch.arange(5.0)
    add[1, 8](x, y := torch.zeros(5), 5)
    assert torch.equal(y, x + 1)
    with pytest.raises(cuda.KernelError) as caught:
        add[1, 8](x, y, 6)
    assert caught.value.kind == "out of bounds"
    assert caught.value.line == 4            # line 1 is the %%cuda line
    assert add.module.kernels == ["add"] and add.source.lstrip("\n") == ADD and add.error is None


def test_options(shell):
    assert run(shell, f"%%cuda --no-sanitize --module m\n#define SIZE 8\n{ADD}") is None
    assert not shell.user_ns["add"].sanitized and shell.user_ns["m"].SIZE == 8
    assert "takes --no-sanitize and --module NAME" in str(run(shell, f"%%cuda --fast\n{ADD}"))


def test_template_kernels_take_their_arguments_in_brackets(shell):
    assert (
        run(shell, "%%cuda\ntemplate <int N> __global__ void fill(float* x) { x[threadIdx.x] = N; }") is None)
    shell.user_ns["fill"]["3"][1, 2](x := torch.zeros(2))
    assert x.tolist() == [3, 3]


def test_a_profile_counts_a_sanitized_kernel(shell):
    run(shell, f"%%cuda\n{ADD}")
    with cuda.profile() as report:
        shell.user_ns["add"][1, 32](torch.zeros(32), torch.zeros(32), 32)
    assert report.launches[0].global_load.bytes == 128


def test_a_cell_that_does_not_compile_raises_and_leaves_no_earlier_version(shell):
    assert run(shell, f"%%cuda\n{ADD}") is None
    error = run(shell, "%%cuda\n" + ADD.replace("x[i] + 1", "x[i] +"))
    assert (isinstance(error, cuda.CompileError) and error.line == 4
            and "This cell does not compile" in str(error))
    with pytest.raises(cuda.CompileError):
        shell.user_ns["add"][1, 32](torch.zeros(1), torch.zeros(1), 1)
    with pytest.raises(cuda.CompileError):
        shell.user_ns["add"](1)
    assert shell.user_ns["add"].error is error and "does not compile" in repr(shell.user_ns["add"])


@pytest.fixture
def named_cells(monkeypatch):
    monkeypatch.setattr(magic, "_namers",
                        [lambda text: (found := re.search("// EXERCISE (.*)", text)) and found[1]])


def test_a_named_cell_prints_the_compilers_error(shell, capsys, named_cells):
    cell = "%%cuda\n// EXERCISE 3.7\n" + ADD
    assert run(shell, cell) is None
    assert run(shell, cell.replace("add(", "sum(")) is None
    assert "add" not in shell.user_ns and "sum" in shell.user_ns
    assert run(shell, cell.replace("void add", "void ad").replace("+ 1", "+ ")) is None
    assert "line 5: expected" in capsys.readouterr().out
    # nothing is left of the version that compiled
    assert shell.user_ns["ad"].error and shell.user_ns["sum"].error


def test_a_named_cell_that_is_no_c_at_all(shell, capsys, named_cells):
    assert run(shell, "%%cuda\n// EXERCISE 3.7\n__global__ void add(const float* x { \" '") is None
    assert shell.user_ns["add"].error and "does not compile" in capsys.readouterr().out


def test_the_rendered_errors_have_no_python_frames(shell, capsys):
    run(shell, "%%cuda\n__global__ void k(float* x) { x[0] = y; }")
    out = capsys.readouterr().out
    assert "line 2: 'y' was not declared" in out or "line 2: use of undeclared identifier 'y'" in out
    assert "Traceback" not in out and ".py" not in out
    run(shell, "%%cuda\n__global__ void k(int n) {}")
    run(shell, "k[1, 1](0.5)")
    assert (capsys.readouterr().out.strip() == "ArgumentError: k: parameter `n` (int) needs an integer, got "
            "float 0.5")


def test_show(shell, tmp_path, capsys):
    from laptop_cuda.show import Code, _piece
    from laptop_cuda.text.outline import outline
    text = '#include <x.h>\n\n// Adds & <doubles>.\n// Slowly.\ntemplate <int N>\n__global__ void add(float* x) {\n    x[0] = 1.5f;  // one\n}\n\nint main() { return 0; }\n'
    path = tmp_path / "k.cu"
    path.write_text(text)
    piece = _piece(outline(text), "k.cu", "add")
    assert repr(piece).splitlines()[:2] == ["k.cu, line 3", "   3  // Adds & <doubles>."]
    assert repr(piece).splitlines()[-1] == "   8  }"
    made = piece._repr_html_()
    assert "Adds &amp; &lt;doubles&gt;" in made and "main" not in made and made == piece._repr_html_()
    assert '<span style="color:var(--jp-mirror-editor-comment-color,#408080)">// one</span>' in made
    cuda.show(str(path), "add")
    assert "Adds & <doubles>" in capsys.readouterr().out
    with pytest.raises(ValueError, match="k.cu has no function `ad`; it has: add"):
        cuda.show(str(path), "ad")
    with pytest.raises(FileNotFoundError, match="nothing"):
        cuda.show("nothing")
    assert Code("a\n\nb", 9, "t")._repr_html_().count("<span style=\"opacity") == 3


@pytest.mark.parametrize("mode", [pytest.param("plain", marks=pytest.mark.slow), "sanitized"])
def test_an_interrupt_stops_a_kernel_within_a_second(mode):
    script = textwrap.dedent(f"""
        import sys, time
        sys.path.insert(0, {str(build.PACKAGE.parent)!r})
        import torch
        import laptop_cuda as cuda
        mod = cuda.compile("__global__ void k(volatile int* x) {{ while (x[0] < 1) x[1] = x[1] + 1; }}")
        x = torch.zeros(2, dtype=torch.int32)
        if {mode == "sanitized"}:
            with cuda.sanitize():
                cuda.compile(mod.source)
        print("ready", flush=True)
        try:
            if {mode == "sanitized"}:
                with cuda.sanitize(step_limit=10**15):
                    mod.k[1, 1](x)
            else:
                mod.k[1, 1](x)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        mod.k[1, 1](x + 1)
        print("alive", flush=True)
    """)
    said, seconds = interrupted(script)
    assert said == "alive\n" and seconds < (3.0 if os.getloadavg()[0] > os.cpu_count() else 1.0)


def test_nothing_of_ipython_or_of_the_course_is_imported_by_the_engine():
    names = ("IPython", "matplotlib", "nbformat", "anywidget", "ipywidgets", "course_lib")
    script = (f"import sys; sys.path.insert(0, {str(build.PACKAGE.parent)!r}); import laptop_cuda.pictures.front; "
              f"print([m for m in {names} if m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
