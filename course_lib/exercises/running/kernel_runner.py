"""Run a student's kernel on inputs: sanitized, counted, with poisoned outputs. The CUDA half of `runner`."""
import math
import re

import torch

from .limits import TimeIsUp, time_limit
from .results import LATE, Failure, Outcome, Request, Run
from .values import copied, same

# basic blocks that a thread block may run: a second or two, for loops that never end
STEPS = 50_000_000


def run_kernel(request: Request, source: str) -> Run:
    """Compile the text and launch it on every case. Lines are counted as in the cell, `%%cuda` included."""
    try:
        import laptop_cuda as cuda
    except ImportError as error:
        return Run(failure=Failure("missing", f"The CUDA engine is missing: {error}."))
    with cuda.only_kernels(counted=bool(request.budgets)):
        return _run_all(cuda, request, source)


def _run_all(cuda, request: Request, source: str) -> Run:
    try:
        with cuda.sanitize():
            module = compiled(cuda, source)
    except cuda.NoCompiler as error:
        return Run(failure=Failure("missing", str(error)))
    except cuda.NotAllowed as error:
        return Run(failure=Failure("forbidden", error.told.removesuffix(".")))
    except cuda.CompileError as error:
        return Run(failure=Failure("compile", str(error), error.line or None))
    except cuda.ArgumentError as error:
        return Run(failure=Failure("launch", str(error)))
    absent = {step["kernel"] for steps in request.launches for step in steps} - set(module.kernels)
    if absent:
        return Run(failure=Failure("not defined", f"the cell defines no kernel `{sorted(absent)[0]}`",
                                   name=sorted(absent)[0]))
    run = Run()
    for i, (arrays, steps) in enumerate(zip(request.arrays, request.launches)):
        budget = request.budgets[i] if request.budgets else None
        run.outcomes.append(_one(cuda, module, arrays, steps, request, budget))
        failure = run.outcomes[-1].failure
        if failure and failure.kind == "timeout":                # one endless loop is enough
            run.outcomes += [Outcome(failure=failure)] * (len(request.launches) - len(run.outcomes))
            break
    return run


def compiled(cuda, source: str):
    """The module of a cell. Lines are counted as in the cell."""
    return cuda.compile("\n" + without_magic(source), "<cell>")


def without_magic(text: str) -> str:
    """A cell's text without its %%cuda line, or others of the kind."""
    return re.sub(r"\A\s*(?:%%\w[^\n]*\n\s*?)+", "", text)


def _one(cuda, module, arrays: list[dict], steps: list[dict], request: Request,
         budget: float | None) -> Outcome:
    """One case: sanitized, and where there is a budget counted in the same run. Run twice, a kernel could
    race while it is counted and have its barriers while it is checked."""
    watch = {"step_limit": STEPS, "machine": cuda.Machine(**request.machine)}
    memory, failures = None, []
    for order in request.orders:    # what one hides, another shows; results and counts are the first's
        watched = (cuda.sanitize(order=order, **watch) if budget is None
                   else cuda.profile(sanitized=True, **watch))
        try:
            with time_limit(request.limit), watched as seen:
                held = launched(cuda, module, arrays, steps)
            memory, report = (held, seen) if memory is None else (memory, report)
        except TimeIsUp:
            return Outcome(failure=Failure("timeout", f"{LATE} {request.limit:g} seconds"))
        except cuda.KernelError as error:
            failures.append(Failure(error.kind, str(error), error.line or None))
        except cuda.ArgumentError as error:
            return Outcome(failure=Failure("launch", str(error)))
    if failures:            # the kinds in all orders tell mistakes apart that look alike in one
        failures[0].name = "" if len(request.orders) == 1 else ", ".join(f.kind for f in failures)
        return Outcome(failure=failures[0])
    results = [t.clone() for a, t in zip(arrays, memory) if a["role"] in ("out", "inout")]
    outcome = Outcome(results, counts={} if budget is None else _counts(report, budget, module.builds()))
    unwritten = [_unwritten(t) for a, t in zip(arrays, memory) if a["role"] == "out"]
    outcome.counts["unwritten"] = next(filter(None, unwritten), "")
    outcome.changed = [f"argument {i + 1}" for i, (a, t) in enumerate(zip(arrays, memory))
                       if a["role"] == "in" and not same(a["tensor"], t)]
    return outcome


def launched(cuda, module, arrays: list[dict], steps: list[dict]) -> list[torch.Tensor]:
    """Run the launches on fresh memory: copies of the inputs, and outputs that hold poison."""
    memory = [copied(a["tensor"]) if a["role"] in ("in", "inout") else
              cuda.empty(tuple(a["shape"]), dtype=getattr(torch, a["dtype"])) for a in arrays]
    read = {"array": memory.__getitem__, "value": lambda value: value,
            "map": lambda of: cuda.tensor_map(memory[of[0]], of[1], swizzle=of[2])}
    for step in steps:
        args = [read[kind](value) for kind, value in step["args"]]
        getattr(module, step["kernel"])[tuple(step["grid"]), tuple(step["block"]), step["shared"]](*args)
    return memory


def _unwritten(tensor: torch.Tensor) -> str:
    """Which elements no thread has written, in words; '' if all are."""
    from laptop_cuda.memory import initialised
    written = initialised(tensor)
    if written is None or not tensor.numel():
        return ""
    missing = (written.view(tensor.numel(), -1) == 0).any(1).nonzero().flatten()
    return never_written(missing.tolist(), tensor.shape)


def never_written(missing: list[int], shape) -> str:
    """Elements of an array of this shape, by number, in words; "" if there are none."""
    if not missing:
        return ""
    index, rest = [], missing[0]
    for size in reversed(shape):
        index.insert(0, rest % size)
        rest //= size
    return f"{len(missing)} of {math.prod(shape)} elements, the first at [{', '.join(map(str, index))}]"


def _counts(report, budget: float, builds: list) -> dict:
    """Counts over all launches; a picture of the costliest array if the bytes moved are over the budget."""
    from laptop_cuda.toolchain.declared import declared
    counts: dict = dict.fromkeys(("moved", "asked", "unique", "stored", "requests", "sectors", "wavefronts",
                                  "atomics", "barriers", "longest_thread", "own_bytes",
                                  "shared_bytes", "device_bytes", "own_arrays"), 0)
    for launch in report.launches:
        for side in (launch.shared_load, launch.shared_store):
            counts["requests"] += side.requests
            counts["wavefronts"] += side.wavefronts
        for side in (launch.global_load, launch.global_store):
            counts["moved"] += side.moved
            counts["asked"] += side.bytes
            counts["unique"] += side.unique
            counts["sectors"] += side.sectors
        counts["stored"] += launch.global_store.bytes
        counts["atomics"] += launch.atomics.operations
        counts["barriers"] += launch.barriers
        counts["longest_thread"] += launch.longest_thread        # the launches wait for each other
        room = declared(builds, launch.kernel)
        for name, most in (("shared_bytes", max(launch.shared_bytes, room.shared) + room.device),    # tiles in both
                           ("device_bytes", room.device), ("own_arrays", len(room.own)),
                           ("own_bytes", launch.stack_bytes * room.noted)):
            counts[name] = max(counts[name], most)
    if counts["moved"] > budget:
        launch = max(report.launches, key=lambda l: l.global_load.moved + l.global_store.moved)
        arrays = {name: load.moved + store.moved for name, (load, store) in launch.arrays.items()}
        picture = launch.picture(max(arrays, key=arrays.get), requests=4)
        counts["picture"] = {"name": picture.memory.name, "itemsize": picture.memory.itemsize,
                             "of": picture.of, "lines": list(picture.lines),
                             "requests": [dict(r) for r in picture.requests]}
    return counts
