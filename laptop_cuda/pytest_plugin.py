"""The pytest fixture `cuda_program`: a program under test, its launches checked or counted.

    def test_it(cuda_program):
        ran = cuda_program("prog.cu", "1024")           # sanitized; fails the test if a bug is found
        assert ran.status == 0 and "passed" in ran.stdout

    def test_traffic(cuda_program):
        cuda_program("prog.cu", budgets=["sectors=100_000", "scan:excess=0"])
"""
from pathlib import Path

import pytest


@pytest.fixture
def cuda_program(request):
    """Runs a program: `cuda_program(path, *arguments, mode=, budgets=, options=)`. Paths are from the
    test's folder."""
    from .program import Budget, run
    here = Path(request.path).parent

    def call(path, *arguments, mode: str = "sanitize", budgets: list[str] = (), check: bool = True, **how):
        paths = [here / p for p in (path if isinstance(path, (list, tuple)) else [path])]
        ran = run(*paths, arguments=list(arguments), mode="profile" if budgets else mode, folder=here, **how)
        if check and ran.errors:
            pytest.fail(ran.errors[0]["message"], pytrace=False)
        if check and ran.crash:
            pytest.fail(ran.crash, pytrace=False)
        over = [line for text in budgets if (line := Budget.read(text).over(ran))]
        if over:
            pytest.fail("over budget: " + "; ".join(over), pytrace=False)
        return ran
    return call
