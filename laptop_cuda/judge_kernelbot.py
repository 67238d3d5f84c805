"""KernelBot's layout: task.yml with its tests, reference.py with generate_input, ref_kernel and
check_implementation."""
from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np

from . import arrays
from .judge_case import Case, JudgeError, clone, label_of, module_at
from .judge_torch import on_cpu


class KernelBot:
    """task.yml with its tests, reference.py with generate_input, ref_kernel and check_implementation."""
    entries = ("custom_kernel", "solve")

    def __init__(self, folder: Path):
        text = (folder / "task.yml").read_text(encoding="utf-8")
        sources = re.findall(r'"?source"?:\s*"([^"@]+)"', text)
        search = dict.fromkeys([folder, *((folder / s).resolve().parent for s in sources)])
        self.reference = module_at(folder / "reference.py", "reference", list(search))
        self.tests = listed_tests(text)
        if not self.tests:
            raise JudgeError("task.yml lists no tests")

    def cases(self, parameters: list):
        for test in self.tests:
            yield self._case(test, "given", parameters)

        def size(test):
            return sum(v for k, v in test.items() if isinstance(v, int) and k != "seed")

        smallest = min(self.tests, key=size)
        for key, value in smallest.items():
            if key == "seed" or not isinstance(value, int) or value <= 2:
                continue
            try:
                yield self._case(smallest | {key: value - 1}, "ragged", parameters)
            except JudgeError:
                raise
            except Exception:                # the task does not take this size
                continue

    def _case(self, test: dict, kind: str, parameters: list) -> Case:
        with on_cpu():
            data = self.reference.generate_input(**test)
            expected = self.reference.ref_kernel(clone(data))
        values, outputs = bound(data, expected, test, parameters)
        wanted = expected if isinstance(expected, (tuple, list)) else [expected]
        made = Case(label_of(test), kind, values, outputs, dict(zip(outputs, wanted)), rtol=1e-2, atol=1e-2)
        if hasattr(self.reference, "check_implementation"):
            made.check = lambda got: self._check(data, [got[n] for n in outputs])
        return made

    def _check(self, data, got: list) -> str:
        with on_cpu():
            said = self.reference.check_implementation(clone(data), got[0] if len(got) == 1 else tuple(got))
        if isinstance(said, tuple):
            return "" if said[0] else str(said[1])
        if isinstance(said, bool):
            return "" if said else "the reference does not accept it"
        return " ".join(said) if isinstance(said, list) else str(said or "")


def bound(data, expected, test: dict, parameters: list) -> tuple[dict, list[str]]:
    """The data of a test by parameter: its arrays in order to the pointers, what is left are outputs; values
    by name."""
    flat = list(data) if isinstance(data, (tuple, list)) else [data]
    tensors = [v for v in flat if arrays.is_array(v)]
    numbers = [v for v in flat if isinstance(v, (int, float))]
    wanted = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    pointers = [p.name for p in parameters if p.kind == "pointer"]
    more = len(pointers) - len(tensors)
    if more not in (0, len(wanted)):
        raise JudgeError(f"the task passes {len(tensors)} arrays and expects {len(wanted)}, but the "
                         f"submission takes {len(pointers)} pointers ({', '.join(pointers)})")
    if more:
        tensors += [v.clone() if arrays.is_tensor(v) else v.copy() for v in wanted]
        for made in tensors[-more:]:
            made.reshape(-1)[...] = 0
    if len(numbers) != len(parameters) - len(pointers):      # not the data's numbers in their order
        numbers = []
    arrays_of = dict(zip(pointers, tensors))
    values = {p.name: arrays_of[p.name] if p.kind == "pointer" else _number(p.name, test, numbers, tensors)
              for p in parameters}
    return values, pointers[len(pointers) - len(wanted):]


def _number(name: str, test: dict, numbers: list, tensors: list):
    if numbers:
        return numbers.pop(0)
    if name in test:
        return test[name]
    if name.lower() in ("n", "size", "numel", "length", "count"):
        return int(np.prod(tensors[0].shape))
    raise JudgeError(f"what is `{name}`? The test gives {', '.join(test)}; "
                     "`n` is the number of elements of the first array")


def listed_tests(text: str) -> list[dict]:
    """The tests of a task.yml, each a mapping in braces on a line of its own."""
    section = re.search(r"^tests:\s*\n((?:[ \t]*(?:-.*|#.*)?\n?)*)", text, re.MULTILINE)
    found = []
    for row in re.findall(r"-\s*(\{.*\})", section.group(1)) if section else ():
        row = re.sub(r"([{,]\s*)(\w+)\s*:", r'\1"\2":', row)
        found.append(json.loads(re.sub(r"\b(True|False)\b", lambda m: m.group().lower(), row)))
    return found
