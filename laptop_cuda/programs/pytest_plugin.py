"""The pytest fixture `cuda_program`: a program under test, its launches checked or counted.

    def test_it(cuda_program):
        ran = cuda_program("prog.cu", "1024")           # sanitized; fails the test if a bug is found
        assert ran.status == 0 and "passed" in ran.stdout

    def test_traffic(cuda_program):
        cuda_program("prog.cu", budgets=["sectors=100_000", "scan:excess=0"])"""
from pathlib import Path

import pytest


@pytest.fixture
def cuda_program(request):
    """Runs a program: `cuda_program(path, *arguments)`; `path`, or a list, from the test's folder.

    `mode` is "sanitize", "profile", "both" or "plain"; budgets count, and check unless the mode is another.
    `check=False` leaves bugs and crashes to the test, in `.errors` and `.crash`. `options`, an
    `Options(include=, defines=, standard=, flags=)` of `laptop_cuda.programs`, is what nvcc would be told.
    `order`, `seed`, `step_limit`, `timeout` (seconds) and `stdin` (text) are given by name, too."""
    from ..build import CompileError
    from . import Budget, ProgramError, run
    here = Path(request.path).parent

    def call(path, *arguments, mode: str = "sanitize", budgets: list[str] = (), check: bool = True, **how):
        paths = [here / p for p in (path if isinstance(path, (list, tuple)) else [path])]
        limits = [Budget.read(text) for text in budgets]
        if limits:                                     # counted, and still checked
            mode = "both" if mode in ("sanitize", "both") else "profile"
        try:
            ran = run(*paths, arguments=list(arguments), mode=mode, folder=here, **how)
        except (CompileError, ProgramError, FileNotFoundError) as error:
            pytest.fail(str(error), pytrace=False)
        if check and ran.errors:
            pytest.fail(ran.errors[0]["message"], pytrace=False)
        if check and ran.crash:
            pytest.fail(ran.crash, pytrace=False)
        over = [line for limit in limits if (line := limit.over(ran))]
        if over:
            pytest.fail("over budget: " + "; ".join(over), pytrace=False)
        return ran
    return call
