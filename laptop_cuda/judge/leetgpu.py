"""LeetGPU's layout: a class with reference_impl, get_solve_signature and generate_functional_test."""
import sys
import types
from pathlib import Path

from ..arguments import arrays
from .case import Case, JudgeError, answered, label_of, module_at, too_large
from .ragged import ragged
from .torch_on_cpu import on_cpu


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

    def cases(self, parameters: list, largest: int):
        if len(parameters) != len(self.signature):
            raise JudgeError(f"the challenge passes {len(self.signature)} arguments "
                             f"({', '.join(self.signature)}), but {self.entries[0]} takes {len(parameters)}")
        with on_cpu() as unset:
            tests = [self.challenge.generate_example_test(), *self.challenge.generate_functional_test()]
            given = [{n: _materialised(test[n]) for n in self.signature} for test in tests]
        for values in given:
            for name in self.signature:
                if name not in self.outputs:
                    unset.discard(values[name])
        for values in given:
            yield too_large(_label(values), values, largest) or self._case(values, unset, given)
        for source, values, note in ragged(given):
            for name in self.outputs:
                if given[source][name] in unset:
                    unset.add(values[name])
            try:
                made = self._case(values, unset, given)
            except Exception:                # the reference does not take this shape
                continue
            made.cut_from(source, note)
            yield made

    def _case(self, values: dict, unset, given: list[dict]) -> Case:
        empty = [n for n in self.outputs if values[n] in unset]
        first, second = answered(values, unset if empty else (), self._reference)
        made = Case(_label(values), "given", values, self.outputs, first,
                    rtol=getattr(self.challenge, "rtol", 1e-5), atol=getattr(self.challenge, "atol", 1e-5))
        made.draws(self.drawn)
        for name in empty:
            made.leave_unset(name, first[name], second[name], "the challenge makes it by torch.empty")
            zeros = sum(v[name] not in unset and not v[name].any() for v in given)
            if zeros and name in made.unset:
                made.unset[name] += f", although it passes zeros in {zeros} of the {len(given)} given cases"
        return made

    def _reference(self, own: dict) -> dict:
        """What it leaves in the outputs, or returns."""
        with on_cpu() as seen:
            returned = self.challenge.reference_impl(**own)
        self.drawn = seen.drawn
        if arrays.is_array(returned) and len(self.outputs) == 1:
            return {self.outputs[0]: returned}
        return {n: own[n] for n in self.outputs}


def _label(values: dict) -> str:
    return label_of({n: v for n, v in values.items() if not arrays.is_array(v)})


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
    elif kind == "OutTensor":
        return torch.empty(value.shape, dtype=dtype)
    else:
        made = torch.full(value.shape, float(getattr(value, "value", 0)))
    return made.to(dtype)
