"""Pictures that a reader can move.

    from course_lib import explore
    explore.show("sectors")                      # course_lib/explore/sectors.py
    explore.show("sectors", stride=2)            # from another start

One file per picture: a class on `Explorable` whose `draw` asks the course's own functions and the engine
(`course_lib.explore.frame`). In a notebook it moves; elsewhere it is a still of the start, with words."""
from importlib import import_module
from pathlib import Path

from course_lib import cuda  # noqa: F401  (names the variable under which nobody watches)
from course_lib.explore.frame import Explorable

__all__ = ["find", "names", "show"]


def names() -> list[str]:
    return sorted(p.stem for p in Path(__file__).parent.glob("*.py") if p.stem != "__init__")


def find(name: str) -> Explorable:
    if name not in names():
        raise ValueError(f"no explorable {name!r}; there are {', '.join(names())}")
    module = import_module(f"course_lib.explore.{name}")
    return next(value for value in vars(module).values() if isinstance(value, type)
                and issubclass(value, Explorable) and value.__module__ == module.__name__)()


def show(name: str, **start) -> None:
    """Display an explorable, from its own start state or from another one."""
    find(name).show(**start)
