"""A case of a challenge: the arguments of one launch, and what the reference makes of them."""
from __future__ import annotations

import copy
import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from . import arrays
from .judge_torch import on_cpu


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
    check: object = None                 # of the outputs; what is wrong, "" if nothing
    rtol: float = 1e-5
    atol: float = 1e-5

    def elements(self) -> int:
        return sum(map(elements, self.values.values()))


def elements(value) -> int:
    return int(np.prod(value.shape)) if arrays.is_array(value) else 0


def clone(value):
    if isinstance(value, (tuple, list)):
        return type(value)(clone(v) for v in value)
    if isinstance(value, dict):
        return {k: clone(v) for k, v in value.items()}
    return value.clone() if arrays.is_tensor(value) else copy.copy(value)


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
