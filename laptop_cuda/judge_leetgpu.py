"""LeetGPU's layout: challenge.py, a class with reference_impl, get_solve_signature and
generate_functional_test."""
from __future__ import annotations

import sys
import types
from pathlib import Path

from . import arrays
from .judge_case import Case, JudgeError, clone, contiguous, elements, label_of, module_at
from .judge_torch import on_cpu

SMALL = 1 << 17                  # elements of a case that a ragged one is cut from


class Base:
    """What a challenge inherits from."""

    def __init__(self, device: str = "cpu"):
        self.device = device


class LeetGPU:
    """challenge.py: a class with reference_impl, get_solve_signature and generate_functional_test."""
    entries = ("solve",)

    def __init__(self, folder: Path):
        home = next((p for p in folder.resolve().parents if (p / "core/challenge_base.py").is_file()), None)
        if home is None:                     # the folder alone, without its repository
            core, base = types.ModuleType("core"), types.ModuleType("core.challenge_base")
            base.ChallengeBase = Base
            sys.modules |= {"core": core, "core.challenge_base": base}
        module = module_at(folder / "challenge.py", "challenge", [folder, *([home] if home else [])])
        found = [v for v in vars(module).values() if isinstance(v, type) and v.__module__ == "challenge"
                 and hasattr(v, "get_solve_signature")]
        if not found:
            raise JudgeError("challenge.py has no class with get_solve_signature()")
        self.challenge = found[0](device="cpu")
        self.signature = self.challenge.get_solve_signature()
        self.outputs = [n for n, (_, way) in self.signature.items() if way in ("out", "inout")]

    def cases(self, parameters: list):
        if len(parameters) != len(self.signature):
            raise JudgeError(f"the challenge passes {len(self.signature)} arguments "
                             f"({', '.join(self.signature)}), but {self.entries[0]} takes {len(parameters)}")
        with on_cpu():
            example, tests = self.challenge.generate_example_test(), self.challenge.generate_functional_test()
        given = [{n: _materialised(test[n]) for n in self.signature}
                 for test in [example, *tests]]
        for values in given:
            yield self._case(values, "given")
        for values in ragged(given):
            try:
                yield self._case(values, "ragged")
            except Exception:                # the reference does not take this shape
                continue

    def _case(self, values: dict, kind: str) -> Case:
        own = clone(values)
        with on_cpu():
            returned = self.challenge.reference_impl(**own)
        expected = {n: own[n] for n in self.outputs}
        if arrays.is_array(returned) and len(self.outputs) == 1:
            expected = {self.outputs[0]: returned}
        numbers = {n: v for n, v in values.items() if not arrays.is_array(v)}
        return Case(label_of(numbers), kind, values, self.outputs, expected,
                    rtol=getattr(self.challenge, "rtol", 1e-5), atol=getattr(self.challenge, "atol", 1e-5))


def _materialised(value):
    """An input that a challenge describes (RandTensor, ...) rather than makes."""
    if arrays.is_array(value) or not hasattr(value, "shape"):
        return value
    import torch
    kind, dtype = type(value).__name__, getattr(torch, value.dtype)
    generator = torch.Generator().manual_seed(0)
    if kind == "RandTensor":
        made = torch.rand(value.shape, generator=generator) * (value.high - value.low) + value.low
    elif kind == "RandnTensor":
        made = torch.randn(value.shape, generator=generator) * value.std + value.mean
    elif kind == "RandIntTensor":
        made = torch.randint(value.low, value.high, value.shape, generator=generator)
    else:
        made = torch.full(value.shape, float(getattr(value, "value", 0)))
    return made.to(dtype)


def ragged(given: list[dict]) -> list[dict]:
    """Cases with one row, column or element less, where each dimension of each array is one of the
    numbers."""
    def sizes(values):
        return {n: v for n, v in values.items() if isinstance(v, int) and not isinstance(v, bool) and v > 2}

    def explained(values):
        known = sizes(values)
        shapes = [v.shape for v in values.values() if arrays.is_array(v)]
        return len(set(known.values())) == len(known) and all(d in known.values() for s in shapes for d in s)

    def small(values):
        return sum(elements(v) for v in values.values()) <= SMALL

    fitting = [v for v in given if sizes(v) and explained(v) and small(v)]
    made = []
    for values in sorted(fitting, key=lambda v: sum(sizes(v).values()))[-1:]:
        for name, size in sizes(values).items():
            made.append({n: size - 1 if n == name else _shorter(v, size) for n, v in values.items()})
    return made


def _shorter(value, size: int):
    if not arrays.is_array(value) or size not in value.shape:
        return value
    cut = value[tuple(slice(0, d - 1) if d == size else slice(None) for d in value.shape)]
    return contiguous(cut)
