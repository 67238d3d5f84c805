"""`with cuda.sanitize():` turns a bug of a kernel into a `KernelError` that explains it."""
from contextlib import contextmanager

from . import launch
from .arguments.c_types import CLimit
from .arguments.inputs import KEPT_BYTES, Keeper
from .machine import REAL, Machine
from .replay import replay_error, replay_launch
from .why import why_of
from .why.conflicts import conflicts_of


class Checked(list):
    """The notes of the launches in one `with sanitize()`, and how many of their blocks were checked."""
    blocks = checked_blocks = 0

    def add(self, result) -> None:
        self.extend(str(note) for note in result.notes)
        self.blocks += result.blocks
        self.checked_blocks += result.checked_blocks
        if result.checked:
            self.append(f"of {result.kernel} only a part was checked in time: {result.checked}")


@contextmanager
def sanitize(*, order: str = "forward", seed: int = 0, step_limit: int = launch.STEP_LIMIT,
             machine: Machine = REAL, limit: float | None = None):
    """Checks every launch inside it. Yields a list that gathers notes: not wrong, but worth knowing; its
    `.checked_blocks` of `.blocks` were checked: all of them, unless there is a limit.

    `order` is the order in which the threads of a block get their turns, and when copies and products end
    that nobody has waited for: "forward" or "late" (threads forward, copies as late as is legal), "early"
    (forward, copies at once), "reverse" (the last thread first, copies at once), "seeded" (both are drawn
    from `seed`). A bug is reported with the same kind in every order; results that differ between orders betray
    one too. A thread that ends while others wait at a barrier has returned early, which is fine, also
    where it left a loop of barriers one turn before them. What `profile` does not count is not checked
    either: structs passed or returned by value.

    `limit` is in seconds, from the first launch on. Where checking everything would take longer, the corners
    of each grid and some blocks in between are checked, the rest only run; a launch that has not ended by
    then is a KernelError of kind `timeout`."""
    notes = Checked()
    with launch.context(launch.Context("sanitize", order, seed, step_limit, machine,
                                       CLimit(limit) if limit else None, notes.add,
                                       Keeper(KEPT_BYTES, False, replay_launch, replay_error, why_of,
                                              conflicts_of))):
        yield notes
