"""`with cuda.sanitize():` turns a bug of a kernel into a `KernelError` that explains it."""
from contextlib import contextmanager

from . import launch
from .arguments.inputs import KEPT_BYTES, Keeper
from .machine import REAL, Machine
from .replay import replay_error, replay_launch
from .why import why_of


@contextmanager
def sanitize(*, order: str = "forward", seed: int = 0, step_limit: int = launch.STEP_LIMIT,
             machine: Machine = REAL):
    """Checks every launch inside it. Yields a list that gathers notes: not wrong, but worth knowing.

    `order` is the order in which the threads of a block get their turns: forward, reverse, or drawn from
    `seed`. A bug is reported with the same kind in every order; results that differ between orders betray
    one too. A thread that ends while others wait at a barrier has returned early, which is fine, also
    where it left a loop of barriers one turn before them. What `profile` does not count is not checked
    either: structs passed or returned by value.
    """
    notes: list = []
    with launch.context(launch.Context("sanitize", order, seed, step_limit, machine,
                                       lambda result: notes.extend(str(n) for n in result.notes),
                                       Keeper(KEPT_BYTES, False, replay_launch, replay_error, why_of))):
        yield notes
