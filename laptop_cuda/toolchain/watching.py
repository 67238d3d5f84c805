"""Whether somebody watches this process, and what is said to them while they wait."""
import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_batch: list[str] = ["LAPTOP_CUDA_BATCH"]        # environment variables under which nobody watches


def batch_under(variable: str) -> None:
    """A program on top names the environment variable by which its kernels know that nobody watches."""
    _batch.append(variable)


def watched() -> bool:
    """Whether a person sits at this kernel."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return not in_batch() and hasattr(shell, "kernel")


def in_batch() -> bool:
    """Whether nobody watches, by what the surroundings say: nbval, a program on top, a test."""
    return any(map(os.environ.get, [*_batch, "PYTEST_CURRENT_TEST"]))


@contextlib.contextmanager
def saying(what: str, made: Path) -> Iterator[None]:
    """Says what is being built while that takes, if not made yet: below the cell, or on the terminal."""
    line, begun = f"Building {what} ...", time.monotonic()
    if not made.exists() and watched():
        from IPython.display import display
        shown = display({"text/plain": line}, raw=True, display_id=True)
        yield
        took = time.monotonic() - begun
        shown.update({"text/plain": f"Built {what}, in {took:.0f} s."}, raw=True)
        return
    if not made.exists() and sys.stderr.isatty() and not in_batch():
        print(line, file=sys.stderr, flush=True)
    yield
