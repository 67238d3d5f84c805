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


def show(line: str, shown=None, **more):
    """An output below the cell, or in place of the one `shown`. `more`: its other forms, and metadata."""
    from IPython.display import DisplayHandle
    put = shown.update if shown else (shown := DisplayHandle()).display
    put({"text/plain": line} | more.pop("forms", {}), raw=True, **more)
    return shown


@contextlib.contextmanager
def saying(what: str, made: Path) -> Iterator[None]:
    """Says what is being built while that takes, if not made yet: below the cell, or on the terminal."""
    line, begun, shown = f"Building {what} ...", time.monotonic(), None
    if not made.exists() and watched():
        shown = show(line)
    elif not made.exists() and sys.stderr.isatty() and not in_batch():
        print(line, file=sys.stderr, flush=True)
    yield
    if shown:
        show(f"Built {what}, in {time.monotonic() - begun:.0f} s.", shown)


def loading(what: str) -> None:
    """Says that `what` is being loaded and, when the cell has run, how long that took."""
    if not watched():
        return
    from IPython import get_ipython
    events, begun, shown = get_ipython().events, time.monotonic(), show(f"Loading {what} ...")

    def ended(result):
        events.unregister("post_run_cell", ended)
        took = f"Loaded {what}, in {time.monotonic() - begun:.0f} s."
        show(took if result.success else f"Loading {what} did not end.", shown)

    events.register("post_run_cell", ended)


def counted(n: int, what: str) -> Iterator[int]:
    """range(n), which says how far it is, three times a second, once it takes longer than a second."""
    begun, shown, i = time.monotonic(), None, -1
    drawn = begun + 0.7
    try:
        for i in range(n):
            if time.monotonic() - drawn > 0.3 and watched():
                shown, drawn = show(f"{i} of {n} {what} ...", shown), time.monotonic()
            yield i
    finally:
        if shown:
            show(f"{i + 1} of {n} {what}, in {time.monotonic() - begun:.0f} s.", shown)
