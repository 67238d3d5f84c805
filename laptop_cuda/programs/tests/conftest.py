import pytest

from laptop_cuda.programs import run


@pytest.fixture
def program(tmp_path):
    """`program(text, mode="plain")`: a run of a source that is written beside the test's other files."""
    def of(text: str, **how):
        (tmp_path / "prog.cu").write_text(text)
        return run(tmp_path / "prog.cu", **how)
    return of
