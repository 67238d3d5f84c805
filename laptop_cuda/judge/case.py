"""A case of a challenge: the arguments of one launch, and what the reference makes of them."""
import copy
import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..arguments import arrays
from .torch_on_cpu import on_cpu


class JudgeError(Exception):
    """A challenge or a submission that cannot be judged."""


@dataclass
class Case:
    """One launch of the submission: its arguments in order, and the arrays that it must fill."""
    label: str
    kind: str                            # "given" or "ragged"
    values: dict                         # by parameter
    outputs: list[str]
    expected: dict = field(default_factory=dict)
    unset: dict = field(default_factory=dict)    # outputs that hold nothing at first: {name: who says so}
    defined: dict = field(default_factory=dict)  # of those: which elements the reference writes
    check: object = None                 # of the outputs; what is wrong, "" if nothing
    rtol: float = 1e-5
    atol: float = 1e-5
    note: str = ""                       # for the reader of a refusal

    def elements(self) -> int:
        return sum(map(elements, self.values.values()))

    def cut_from(self, number: int, note: str) -> None:
        self.kind = "ragged"
        self.note = (f"This shape is cut from case {number + 1}, and is not among the given tests. "
                     f"{note} {self.note}").strip()

    def draws(self, functions: set[str]) -> None:
        """The reference called these, which draw random numbers."""
        if functions:
            drawn = f"torch.{', torch.'.join(sorted(functions))}"
            self.note = (f"The reference draws random numbers ({drawn}) on the CPU; from the same seed a GPU "
                         "draws others: if the result follows from them, this refusal does not count.")

    def leave_unset(self, name: str, first, second, why: str) -> None:
        """This output holds nothing at first; its reference ran twice, on different values in it."""
        defined = same(first, second)
        if defined.any():                # else the reference adds to it, or is random
            self.unset[name], self.defined[name] = why, defined


def too_large(label: str, values: dict, largest: int) -> Case | None:
    """A case that is left out for its size, before its reference runs; None if it is not too large."""
    left_out = Case(label, "given", values, [])
    return left_out if left_out.elements() > largest else None


def elements(value) -> int:
    return int(np.prod(value.shape)) if arrays.is_array(value) else 0


def clone(value, unset=(), fill: int = 0):
    """A copy, where what is in `unset` holds `fill`."""
    if isinstance(value, (tuple, list)):
        return type(value)(clone(v, unset, fill) for v in value)
    if isinstance(value, dict):
        return {k: clone(v, unset, fill) for k, v in value.items()}
    if not arrays.is_tensor(value):
        return copy.copy(value)
    return value.clone().fill_(fill) if value in unset else value.clone()


def answered(values, unset, reference) -> tuple[object, object]:
    """What a reference makes of values, twice where some are unset: what differs it has left as it was."""
    first = reference(clone(values, unset, 1))
    return first, reference(clone(values, unset, 0)) if unset else first


def same(a, b) -> np.ndarray:
    """Where two arrays of a reference hold the same."""
    a, b = numbers(a), numbers(b)
    return (a == b) | (a != a) & (b != b)


def numbers(value) -> np.ndarray:
    if arrays.is_tensor(value):
        torch = arrays.torch_in_use()
        value = value.detach()
        value = (value.to(torch.float64) if value.dtype.is_floating_point else value).numpy()
    return np.asarray(value)


def contiguous(value):
    """The array, with its elements in the order of their indices."""
    return value.contiguous() if arrays.is_tensor(value) else np.ascontiguousarray(value)


def label_of(numbers: dict) -> str:
    shown = [f"{k} = {v}" for k, v in numbers.items() if isinstance(v, (int, float, str))]
    return ", ".join(shown) or "no sizes"


def module_at(path: Path, name: str, search: list[Path]):
    """A Python file of the challenge, imported; what it imports is looked for in `search`."""
    sys.path[:0] = [str(p) for p in search]
    spec = importlib.util.spec_from_file_location(name, path)
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    try:
        with on_cpu():
            spec.loader.exec_module(made)
    except ModuleNotFoundError as missing:
        if missing.name == "torch":
            raise JudgeError(f"the reference in {path.name} needs torch, which is not installed here: "
                             "pip install torch") from missing
        raise JudgeError(f"{path.name} imports {missing.name}, which is not here") from missing
    return made
