"""Experiments on a wrong kernel: each small change is run, and its values compared with those wanted.

All changed kernels are compiled as one file, each in a namespace of its own, and run on copies of what the
launch was given. A change that cannot be compiled, that fails or that runs much longer counts for nothing."""
import ctypes
import re

import numpy as np

from .. import launch
from ..arguments.c_types import CStorage
from ..launch.kernel_library import kernel_library
from ..replay.element_values import value
from ..sources import files_of
from ..text import signature
from ..text.diagnostics import CompileError
from ..text.effects import Effect
from .edits import WRAP, Edit, edits

MOST, LEAST, ROUNDS, MOST_STEPS = 400, 40, 6, 4_000_000
SOLVED = 0.85


def shares(result, array: int, index: int, expected, chosen: list[Effect]) -> dict[int, float]:
    """{line: the share of the wrong elements that its best change makes right, less those it makes wrong}.
    Where a plain change does it, no further ones are tried."""
    if len(result.files) > 1 or result.inputs.globals or "<" in result.kernel or "::" in result.kernel:
        return {}
    text = next(iter(result.files.values()))
    wanted = np.asarray(expected, np.float64).ravel()
    most = min(MOST, MOST_STEPS // max(result.steps, 1) + LEAST)
    best: dict[int, float] = {}
    found = edits(text, chosen)
    for wave in ([e for e in found if e.likely > WRAP], [e for e in found if e.likely <= WRAP]):
        if max(best.values(), default=0) < SOLVED:
            _try(result, array, index, wanted, text, wave[:most], best)
    return best


def _try(result, array: int, index: int, wanted: np.ndarray, text: str, wave: list[Edit], best: dict) -> None:
    library, kept = _library(text, wave, result.defines)
    if library is None:
        return
    entries = {key.name: entry for (key, _), entry in library.entries.items()}
    now = outcome(result, library, entries[f"trial0::{result.kernel}"], array)
    if now is None or len(now) != len(wanted):
        return
    wrong = ~_close(now, wanted)
    wrong[index] = True
    for n, e in kept.items():
        value = outcome(result, library, entries[f"trial{n}::{result.kernel}"], array)
        if value is None:
            continue
        close = _close(value, wanted)
        share = ((close & wrong).sum() - 2 * (~close & ~wrong).sum()) / wrong.sum() * e.likely
        if share > best.get(e.line, 0):
            best[e.line] = float(share)


def _close(values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    finite = np.abs(wanted[np.isfinite(wanted)])
    return np.isclose(values, wanted, rtol=1e-3, atol=1e-4 * (finite.max() if len(finite) else 1),
                      equal_nan=True)


def _library(text: str, found: list[Edit], defines: tuple[str, ...]):
    """(the library, {number: change}); number 0 is the kernel as it is. What does not compile is left out."""
    kept = dict(enumerate(found, 1))
    includes = re.findall(r"^[ \t]*#[ \t]*include.*$", text, re.MULTILINE)
    for _ in range(ROUNDS):
        parts, ends, lines = ["\n".join(includes)], {}, len(includes) or 1
        for n, e in {0: Edit(0, 0, 0, "", 0), **kept}.items():
            changed = re.sub(r"^[ \t]*#[ \t]*include.*$", "", text[:e.start] + e.text + text[e.end:],
                             flags=re.MULTILINE)
            parts.append(f"namespace trial{n} {{\n{changed}\n}}")
            lines += parts[-1].count("\n") + 1
            ends[n] = lines
        try:
            files = files_of(whole := "\n".join(parts), None, ())
            files[0].defines = defines
            kernels = [(k, "") for k in signature.kernels(files[0]) if not k.template]
            return kernel_library(files, "trials.cu", whole, kernels, True), kept
        except CompileError as error:
            bad = {next((n for n, end in ends.items() if line <= end), 0) for line, _ in error.errors} - {0}
            if not bad:
                return None, {}
            kept = {n: e for n, e in kept.items() if n not in bad}
    return None, {}


def outcome(result, library, entry, array: int) -> np.ndarray | None:
    """The elements of an array after the launch, run with another kernel; None if that fails."""
    run, free = launch._runtime(str(library.path))
    with result.inputs.again() as made:
        stores = [np.ctypeslib.as_array((ctypes.c_uint8 * s.bytes).from_address(s.host)).copy() if s.bytes
                  else np.zeros(0, np.uint8) for s in made.storages[:made.n_storages]]
        copies = (CStorage * max(len(stores), 1))(*(
            CStorage(data.ctypes.data, len(data), s.initialised)
            for data, s in zip(stores, made.storages[:made.n_storages])))
        made.storages = copies
        made.entry, made.library = ctypes.cast(entry.call, ctypes.c_void_p), str(library.path).encode()
        made.mode, made.step_limit = launch.PROFILE, 100 * result.steps + 10_000
        answer = run(ctypes.byref(made))
        try:
            if answer.contents.interrupted:
                raise KeyboardInterrupt
            if answer.contents.error.kind:
                return None
        finally:
            free(answer)
        a = made.arrays[array]
        raw = stores[a.storage][a.offset:a.offset + a.bytes].tobytes()
        return np.atleast_1d(np.asarray(value(raw, len(raw), a.dtype.decode()), np.float64))
