"""`with cuda.profile() as report:` counts what each launch inside it asked of memory."""
from contextlib import contextmanager

from . import launch
from .arguments.c_types import CLimit
from .arguments.inputs import KEPT_BYTES, Keeper
from .machine import REAL, Machine
from .replay import replay_error, replay_launch
from .report import Report
from .why import why_of
from .why.conflicts import conflicts_of


@contextmanager
def profile(*, order: str = "forward", seed: int = 0, step_limit: int = 10 * launch.STEP_LIMIT,
            machine: Machine = REAL, keep: int = KEPT_BYTES, sanitized: bool = False,
            limit: float | None = None):
    """Exact counts, on the CPU, whatever the machine. `report.launches` has one entry for each launch.
    `machine` is the one that is counted: another number of banks, other sectors, less shared memory.

    One gap: a struct of the source's own that goes from an array straight into a by-value parameter, or
    from a call straight into an array, as in `s[t] = combine(s[t], x)`, is not counted. Parameters by
    `const &` and a local variable for the result are, with g++ and with clang from 16 on.

    `keep` is how many bytes of the arrays, as they were before each launch, are copied for a later
    `report.launches[0].replay()`; 0 copies none.

    `sanitized` checks each launch as `sanitize` does, in the run that is counted: for a judge, since a kernel
    that is run twice can tell the runs apart and be another one in each.

    `limit` is in seconds, from the first launch on. Half of it is for counts; launches that have not ended then only
    run, and are named in `report.uncounted`: counts are of whole launches. What has not ended by the limit is a
    KernelError of kind `timeout`."""
    report = Report()
    mode = "both" if sanitized else "profile"
    with launch.context(launch.Context(mode, order, seed, step_limit, machine,
                                       CLimit(limit) if limit else None, report.add,
                                       Keeper(keep, True, replay_launch, replay_error, why_of,
                                              conflicts_of))):
        yield report
