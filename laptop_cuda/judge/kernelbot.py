"""KernelBot's layout: task.yml with tests; reference.py: generate_input, ref_kernel, check_implementation."""
import math
from pathlib import Path

import numpy as np

from ..arguments import arrays
from .case import Case, JudgeError, answered, clone, elements, label_of, module_at, too_large
from .ragged import shapes, sizes_of
from .torch_on_cpu import on_cpu


class KernelBot:
    """task.yml with its tests, reference.py with generate_input, ref_kernel and check_implementation."""
    entries = ("custom_kernel", "solve")

    def __init__(self, folder: Path):
        task = task_of((folder / "task.yml").read_text(encoding="utf-8"))
        sources = [file.get("source", "") for file in task.get("files") or ()]
        homes = ((folder / source).resolve().parent for source in sources if "@" not in source)
        self.reference = module_at(folder / "reference.py", "reference", [*dict.fromkeys([folder, *homes])])
        self.tests = task.get("tests")
        if not self.tests:
            raise JudgeError("task.yml lists no tests")

    def cases(self, parameters: list, largest: int):
        self.largest = largest
        for test in self.tests:
            yield self._case(test, parameters)
        sizes = [{k: v for k, v in sizes_of(test).items() if k != "seed"} for test in self.tests]
        known = set.intersection(*map(set, sizes))
        sizes = [{k: v for k, v in each.items() if k in known} for each in sizes]
        source = min(range(len(sizes)), key=lambda i: sum(sizes[i].values()))
        for shape in shapes(sizes, sizes[source]):
            try:
                made = self._case(self.tests[source] | shape.sizes, parameters)
            except JudgeError:
                raise
            except Exception:                # the task does not take this size
                continue
            made.cut_from(source, shape.note)
            yield made

    def _case(self, test: dict, parameters: list) -> Case:
        with on_cpu() as unset:
            data = self.reference.generate_input(**test)
        flat = data if isinstance(data, (tuple, list)) else [data]
        if left_out := too_large(label_of(test), dict(enumerate(flat)), self.largest):
            return left_out
        expected, again = answered(data, unset, self._expected)
        values, outputs, own = bound(data, expected, test, parameters)
        made = Case(label_of(test), "given", values, outputs, dict(zip(outputs, expected)),
                    rtol=1e-2, atol=1e-2)
        made.draws(self.drawn)
        for name, first, second in zip(outputs, expected, again):
            if own or values[name] in unset:
                made.leave_unset(name, first, second, "it is the submission's own output" if own else
                                 "the task makes it by torch.empty")
        if hasattr(self.reference, "check_implementation"):
            made.check = lambda got: self._check(data, [_shaped(got[n], made.expected[n]) for n in outputs])
        return made

    def _expected(self, data) -> list:
        with on_cpu() as seen:
            made = self.reference.ref_kernel(data)
        self.drawn = seen.drawn
        return list(made) if isinstance(made, (tuple, list)) else [made]

    def _check(self, data, got: list) -> str:
        with on_cpu():
            said = self.reference.check_implementation(clone(data), got[0] if len(got) == 1 else tuple(got))
        if isinstance(said, tuple):
            return "" if said[0] else str(said[1])
        if isinstance(said, bool):
            return "" if said else "the reference does not accept it"
        return " ".join(said) if isinstance(said, list) else str(said or "")


def _shaped(got, expected):
    """The output in the shape that the reference gives: a sum may be () or (1,)."""
    return got.reshape(expected.shape) if math.prod(got.shape) == math.prod(expected.shape) else got


def bound(data, wanted: list, test: dict, parameters: list) -> tuple[dict, list[str], bool]:
    """A test's data by parameter: arrays in order to pointers, those left are outputs; values by name."""
    flat = list(data) if isinstance(data, (tuple, list)) else [data]
    tensors = [v for v in flat if arrays.is_array(v)]
    numbers = [v for v in flat if isinstance(v, (int, float))]
    pointers = [p.name for p in parameters if p.kind == "pointer"]
    more = len(pointers) - len(tensors)
    if more not in (0, len(wanted)):
        raise JudgeError(f"the task passes {len(tensors)} arrays and expects {len(wanted)}, but the "
                         f"submission takes {len(pointers)} pointers ({', '.join(pointers)})")
    last = tensors[-len(wanted):] if wanted else []
    if not more and list(map(elements, last)) != list(map(elements, wanted)):
        raise JudgeError(f"the task passes {len(tensors)} arrays, none of them for its output: the "
                         f"submission takes {len(wanted)} pointer{'s' * (len(wanted) != 1)} more, for what "
                         "it computes")
    if more:
        tensors += clone(wanted)
    if len(numbers) != len(parameters) - len(pointers):      # not the data's numbers in their order
        numbers = []
    arrays_of = dict(zip(pointers, tensors))
    values = {p.name: arrays_of[p.name] if p.kind == "pointer" else _number(p.name, test, numbers, tensors)
              for p in parameters}
    return values, pointers[len(pointers) - len(wanted):], bool(more)


def _number(name: str, test: dict, numbers: list, tensors: list):
    if numbers:
        return numbers.pop(0)
    if name in test:
        return test[name]
    if name.lower() in ("n", "size", "numel", "length", "count"):
        return int(np.prod(tensors[0].shape))
    raise JudgeError(f"what is `{name}`? The test gives {', '.join(test)}; `n` is the number of elements of "
                     "the first array")


def task_of(text: str) -> dict:
    """A task.yml: its files, its tests."""
    try:
        import yaml
    except ImportError:
        raise JudgeError("task.yml is read with PyYAML: pip install pyyaml") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as fault:
        raise JudgeError(f"task.yml is no YAML: {' '.join(str(fault).split())}") from None
