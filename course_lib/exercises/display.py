"""Showing things in a notebook, or printing them elsewhere."""
from typing import Any


def shell():
    """The running IPython shell, or None."""
    try:
        from IPython import get_ipython
    except ImportError:
        return None
    return get_ipython()


def display(thing: Any) -> None:
    if shell() is None:
        print(thing)
    else:
        from IPython.display import display as show
        show(thing)


def markdown(text: str, plain: str | None = None) -> None:
    """Show Markdown; `plain` is what a terminal prints instead."""
    if shell() is None:
        print(plain or text)
    else:
        from IPython.display import display as show
        show({"text/markdown": text, "text/plain": plain or text}, raw=True)
