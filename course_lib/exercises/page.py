"""One broken cell stops no page.

*Run All* ends at the first cell that raises. An exercise's cell may raise in the middle of its reader's work,
and where there is no compiler every cell with a kernel does: both print what is wrong, and the cells below
run. A check is given `None` for a name that its cell has not bound, and says why."""
import os
import re
import sys

from laptop_cuda import NoCompiler

from .cell_text import MARKER, remember
from .display import shell

CHECK = re.compile(r"^\w+ = check\([\"'][\d.]+[\"'], (\w+)\)", re.M)
_now = {"in an exercise": False, "without a compiler": False}


def register() -> None:
    here = shell()
    if here is None:
        return
    here.events.register("pre_run_cell", _begin)
    here.events.register("post_run_cell", _end)
    raised = here._showtraceback

    def show(kind, error, lines):
        first = isinstance(error, NoCompiler) and not _now["without a compiler"]
        _now["without a compiler"] |= first
        if not _goes_on(error):
            raised(kind, error, lines)
        elif first or _now["in an exercise"]:
            print("\n".join(lines), file=sys.stderr)
        else:
            print(f"Not run, as there is no compiler ({type(error).__name__}: {str(error)[:60]}).", file=sys.stderr)
    here._showtraceback = show


def offer(**functions) -> None:
    """Bind the functions that a verdict speaks of, where the page has not imported them."""
    for name, function in functions.items() if shell() is not None else ():
        shell().user_ns.setdefault(name, function)


def _begin(info) -> None:
    remember(info)
    text = info.raw_cell or ""
    _now["in an exercise"] = bool(MARKER.match(text))
    for name in CHECK.findall(text):
        shell().user_ns.setdefault(name, None)


def _end(result) -> None:
    if _goes_on(result.error_before_exec or result.error_in_exec):
        result.error_before_exec = result.error_in_exec = None


def _goes_on(error: BaseException | None) -> bool:
    return isinstance(error, Exception) and any(_now.values()) and not os.environ.get("COURSE_STRICT")
