"""`python -m laptop_cuda run` as a tool: its options, its input and output, files of every kind."""
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from laptop_cuda import sources
from laptop_cuda.__main__ import main
from laptop_cuda.programs.command import UsageError, read_command
from laptop_cuda.programs import Budget, Ran, run

COUNTS_ITS_INPUT = r"""
#include <cstdio>
#include <iostream>
#include "by.h"
__global__ void add(int* x, int by) { x[0] += by; }
int main(int n, char** words, char** environment) {
    int *x, got = 0;
    cudaMallocManaged(&x, sizeof(int));
    while (std::cin >> got) { *x = got; add<<<1, 1>>>(x, BY); cudaDeviceSynchronize(); printf("%d\n", *x); }
    return environment && environment[0] ? 0 : 9;
}
"""


def launched(kernel: str, **counts: int) -> dict:
    return {"kernel": kernel, "counts": counts, "error": None, "notes": []}


def test_a_budget_of_what_was_not_launched_is_exceeded():
    ran = Ran(0, launches=[launched("tile<64, 32>", sectors=5)])
    assert not Budget.read("tile:sectors=5").over(ran) and not Budget.read("tile<64,32>:sectors=5").over(ran)
    assert Budget.read("tiel:sectors=5").over(ran).endswith("not launched, so its sectors are not known "
                                                            "(launched: tile<64, 32>)")
    assert "launched: none" in Budget.read("sectors=5").over(Ran(0))
    assert not Budget.read("other:launches=0").over(ran)
    assert Budget.read("scan:sectors=1_000") == Budget("sectors", 1000, "scan")
    with pytest.raises(ValueError, match="a budget is COUNT=N"):
        Budget.read("speed=3")


@pytest.mark.parametrize("words, said", [
    (["--seed", "abc"], "--seed takes a number, got 'abc'"), (["--timeout=soon"], "--timeout takes a number"),
    (["-profile"], "-profile is written --profile"), (["--jason", "x"], "--jason is not an option"),
    (["--budget", "sectors=1", "--plain"], "--plain neither checks nor counts"),
    (["prog.txt"], "prog.txt is none by its name"), (["--budget"], "--budget needs a value")])
def test_words_that_are_not_understood(words, said):
    with pytest.raises(UsageError, match=said):
        read_command(words if words in (["prog.txt"], ["--budget"]) else [*words, "a.cu"]).mode


INC = Path("inc").resolve()
ASKED = {
    "--budget sectors=1 a.cu": {"mode": "profile"}, "--budget sectors=1 --sanitize a.cu": {"mode": "both"},
    "a.cu": {"mode": "sanitize"}, "--plain a.cu": {"mode": "plain"}, "a.cu -- b.cu": {"arguments": ["b.cu"]},
    # what follows the sources belongs to the program
    "--profile -I inc a.cu b.cu --json -n 3": {
        "mode": "profile", "include": [INC], "sources": [Path("a.cu"), Path("b.cu")],
        "arguments": ["--json", "-n", "3"]},
    "-isystem inc -U NDEBUG -include a.h -O3 a.cu": {
        "include": [INC], "flags": ["-UNDEBUG", "-include", "a.h"]},
    # libraries of CUDA are not linked
    "-lpng -lcublas -lcudart_static -L /opt/lib -lm a.cu": {"flags": ["-lpng", "-L/opt/lib", "-lm"],
                                                            "standard": "gnu++17"},
    **dict.fromkeys(("-Xcompiler -fopenmp a.cu", "-Xcompiler=-Wall,-fopenmp a.cu",
                     "--compiler-options '-O2 -fopenmp' a.cu"), {"flags": ["-fopenmp"]})}


@pytest.mark.parametrize("words", ASKED)
def test_modes_and_options_of_nvcc(words):
    asked = read_command(shlex.split(words))
    assert {name: getattr(asked, name) for name in ASKED[words]} == ASKED[words]


def test_help_and_a_report_that_cannot_be_written(capsys):
    assert main(["run", "--help"]) == 0 and "--budget COUNT=N" in capsys.readouterr().out
    assert main(["run", "/nowhere/a.cu"]) == 2
    assert capsys.readouterr().err == "laptop_cuda: there is no file /nowhere/a.cu\n"


def test_sources_in_other_encodings(tmp_path):
    text = '// größer\r\nint x;\n'
    for encoding in ("utf-8", "utf-8-sig", "latin-1", "utf-16"):
        (tmp_path / "a.cu").write_bytes(text.encode(encoding))
        assert sources.read(tmp_path / "a.cu") == "// größer\nint x;\n", encoding


@pytest.mark.slow
def test_input_output_and_names_with_spaces(tmp_path):
    folder = tmp_path / "a b's $x"
    (folder / "in c").mkdir(parents=True)
    (folder / "my prog.cu").write_text(COUNTS_ITS_INPUT)
    (folder / "in c" / "by.h").write_text("#define BY 2\n")
    done = subprocess.run([sys.executable, "-m", "laptop_cuda", "run", "--sanitize", "--budget",
                           "add:sectors=4", "--json", "-", "-I", folder / "in c", folder / "my prog.cu"],
                          input="40 1\n", capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)                     # nothing of the program's is in it
    assert report["mode"] == "both" and report["launches"][0]["counts"]["sectors"] == 2
    assert done.stderr.startswith("42\n3\n") and "2 launches checked, no bug found" in done.stderr


@pytest.mark.slow
def test_what_was_found_before_the_time_was_over(tmp_path):
    (tmp_path / "late.cu").write_text("#include <unistd.h>\n"
                                      "__global__ void k(int* x) { x[32] = 1; }\n"
                                      "int main() { int* d; cudaMalloc(&d, 128); k<<<1, 1>>>(d); for (;;) "
                                      "usleep(1000); }\n")
    ran = run(tmp_path / "late.cu", timeout=2)
    assert ran.status == 124 and ran.timed_out and ran.crash == "stopped after 2 seconds"
    assert [error["kind"] for error in ran.errors] == ["out of bounds"]
