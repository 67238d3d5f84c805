"""Run a student's kernel on inputs: sanitized, counted, with poisoned outputs. The CUDA half of `runner`."""
from __future__ import annotations

import re

import torch

from .runner import Failure, Outcome, Request, Run, copied, same, time_limit, TimeIsUp


def run_kernel(request: Request, source: str) -> Run:
    """Compile the text and launch it on every case. Lines are counted as in the cell, `%%cuda` included."""
    try:
        from course_lib import cuda
    except ImportError as error:
        return Run(failure=Failure("missing", f"The CUDA engine is not there: {error}."))
    source = "\n" + re.sub(r"\A\s*%%cuda[^\n]*\n", "", source)
    try:
        with cuda.sanitize():
            module = cuda.compile(source, "<cell>")
    except cuda.NoCompiler as error:
        return Run(failure=Failure("missing", str(error)))
    except cuda.CompileError as error:
        return Run(failure=Failure("compile", str(error), error.line or None))
    except cuda.ArgumentError as error:
        return Run(failure=Failure("launch", str(error)))
    absent = {step["kernel"] for steps in request.launches for step in steps} - set(module.kernels)
    if absent:
        return Run(failure=Failure("not defined", f"the cell defines no kernel `{sorted(absent)[0]}`", name=sorted(absent)[0]))
    run = Run()
    for arrays, steps in zip(request.arrays, request.launches):
        run.outcomes.append(_one(cuda, module, arrays, steps, request.limit))
        failure = run.outcomes[-1].failure
        if failure and failure.kind == "timeout":                # one endless loop is enough
            run.outcomes += [Outcome(failure=failure)] * (len(request.launches) - len(run.outcomes))
            break
    return run


def _one(cuda, module, arrays: list[dict], steps: list[dict], limit: float) -> Outcome:
    memory = [copied(a["tensor"]) if a["role"] in ("in", "inout") else
              cuda.empty(tuple(a["shape"]), dtype=getattr(torch, a["dtype"])) for a in arrays]
    try:
        with time_limit(limit), cuda.profile() as report, cuda.sanitize():
            for step in steps:
                args = [memory[value] if kind == "array" else value for kind, value in step["args"]]
                getattr(module, step["kernel"])[tuple(step["grid"]), tuple(step["block"]), step["shared"]](*args)
    except TimeIsUp:
        return Outcome(failure=Failure("timeout", f"did not finish within {limit:g} seconds"))
    except cuda.KernelError as error:
        return Outcome(failure=Failure(error.kind, str(error), error.line or None))
    except cuda.ArgumentError as error:
        return Outcome(failure=Failure("launch", str(error)))
    outs = [t for a, t in zip(arrays, memory) if a["role"] in ("out", "inout")]
    outcome = Outcome([t.clone() for t in outs], counts=_counts(report))
    unwritten = [_unwritten(t) for a, t in zip(arrays, memory) if a["role"] == "out"]
    if any(unwritten):
        outcome.counts["unwritten"] = next(u for u in unwritten if u)
    outcome.changed = [f"argument {i + 1}" for i, (a, t) in enumerate(zip(arrays, memory))
                       if a["role"] == "in" and not same(a["tensor"], t)]
    return outcome


def _unwritten(tensor: torch.Tensor) -> str:
    """Which elements no thread has written, in words; '' if all are."""
    from course_lib.cuda.memory import initialised
    written = initialised(tensor)
    if written is None or not tensor.numel():
        return ""
    missing = (written.view(tensor.numel(), -1) == 0).any(1).nonzero().flatten()
    if not len(missing):
        return ""
    return f"{len(missing)} of {tensor.numel()} elements, the first at {int(missing[0])} (counted through the whole array)"


def _counts(report) -> dict:
    """Bytes moved, asked and unique over all launches, and the sectors of each access a warp makes."""
    counts = {"moved": 0, "asked": 0, "unique": 0}
    for launch in report.launches:
        for side in (launch.global_load, launch.global_store):
            counts["moved"] += 32 * int(side.sectors)
            counts["asked"] += int(side.bytes)
            counts["unique"] += 32 * int(side.unique_sectors)
    return counts
