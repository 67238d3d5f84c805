"""The process that a submission is judged in: each case runs checked and counted, and is compared here."""
import ctypes
import random
import re
import traceback
from pathlib import Path

import numpy as np

from ..arguments import arrays
from ..arguments import ArgumentError, _value, parse_parameters
from ..programs.child import Child, main
from .case import Case, JudgeError, clone, contiguous, numbers
from .kernelbot import KernelBot
from .leetgpu import LeetGPU


class Judge(Child):
    def __init__(self, job: dict):
        super().__init__(job)
        self.library.laptop_judge_types.restype = ctypes.c_char_p
        self.library.laptop_judge_malloc.restype = ctypes.c_void_p
        self.library.laptop_judge_malloc.argtypes = [ctypes.c_size_t, ctypes.c_char_p, ctypes.c_uint]
        self.library.laptop_judge_written.restype = ctypes.c_void_p
        self.library.laptop_judge_written.argtypes = [ctypes.c_void_p]
        self.library.laptop_judge_wrote.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.library.laptop_judge_free.argtypes = [ctypes.c_void_p]
        self.parameters = parse_parameters(job["names"], self.library.laptop_judge_types().decode())

    def run(self) -> int:
        try:
            seed_generators(self.job["seed"])
            layout = layout_of(Path(self.job["challenge"]))
            for case in layout.cases(self.parameters, self.job["largest"]):
                if case.kind == "ragged" and not self.job["ragged"]:
                    continue
                if case.elements() > self.job["largest"]:
                    self.tell(case=case.label, kind=case.kind, verdict="skipped",
                              message=f"{case.elements():,} elements; --largest {case.elements()} runs it")
                    continue
                self.tell(case=case.label, kind=case.kind, verdict="started", message="", note=case.note)
                self.tell(case=case.label, kind=case.kind, **self.judged(case))
        except (JudgeError, ArgumentError) as fault:
            self.tell(case="", kind="fatal", verdict="fatal", message=str(fault))
        except Exception as fault:
            where = traceback.extract_tb(fault.__traceback__)[-1]
            self.tell(case="", kind="fatal", verdict="fatal",
                      message=f"the reference failed: {type(fault).__name__}: {fault} ({Path(where.filename).name}, line {where.lineno})")
        return 0

    def judged(self, case: Case) -> dict:
        self.found, self.notes = [], []
        self.begin()
        got, written = self.called(case)
        if self.found:
            said = self.found[0]["message"]
            if self.found[0]["kind"] == "uninitialized":
                said = "\n".join([said, *(f"{self.holds_nothing(n, why)}." for n, why in case.unset.items()
                                          if re.search(rf"(?<!\w){self.passed_as(case, n)}\[", said))])
            return {"verdict": "bug", "message": said, "note": case.note}
        wrong = next(filter(None, (self.missing(case, n, written[n]) for n in case.unset)), "")
        if not wrong:
            apart = filter(None, (difference(n, got[n], case.expected[n], case.rtol, case.atol)
                                  for n in case.outputs))
            said = case.check(got) if case.check else ""
            if all(one_rounding_apart(got[n], case.expected[n]) for n in case.outputs):
                said = ""                # the reference ran on the CPU, which may round otherwise
            wrong = f"{next(apart, '')}\n{said}".strip() if said or not case.check else ""
        if wrong and self.notes:         # an undefined value, which no bug is that is not used
            wrong += f"\nnote: {self.notes[0]}"
        return {"verdict": "wrong" if wrong else "right", "message": wrong, "note": case.note}

    def passed_as(self, case: Case, name: str) -> str:
        """The submission's name for what the challenge calls `name`."""
        return self.parameters[list(case.values).index(name)].name

    @staticmethod
    def holds_nothing(name: str, why: str) -> str:
        return f"{name} has no value until the submission writes one, by cudaMemset or in a kernel: {why}"

    def missing(self, case: Case, name: str, written: np.ndarray) -> str:
        """Which elements of an output nobody has written, in one line; "" if none."""
        missing = case.defined[name] & ~written.reshape(case.defined[name].shape)
        if not missing.any():
            return ""
        first = tuple(int(i) for i in np.argwhere(missing)[0])
        return (f"{name}[{', '.join(map(str, first))}] is never written, expected "
                f"{_shown(numbers(case.expected[name])[first])}; {int(missing.sum()):,} of {missing.size:,} "
                f"elements are never written. {self.holds_nothing(name, case.unset[name])}")

    def after_launch(self, c_launch, c_result) -> dict | None:
        row = super().after_launch(c_launch, c_result)
        if row:
            self.found += filter(None, [row["error"]])
            self.notes += row["notes"]
        return row

    def called(self, case: Case) -> tuple[dict, dict]:
        """The outputs after a call of the submission on device memory, and which elements were written."""
        cells, device = [], {}
        for parameter, (name, value) in zip(self.parameters, case.values.items()):
            if parameter.kind != "pointer":
                packed = _value("solve", parameter, value)
                cells.append(ctypes.create_string_buffer(packed, parameter.itemsize))
                continue
            array = arrays.of(_checked(parameter, value))
            p = self.library.laptop_judge_malloc(max(array.bytes, 1), parameter.name.encode(), array.itemsize)
            if array.bytes and name not in case.unset:
                ctypes.memmove(p, array.address, array.bytes)
                self.library.laptop_judge_wrote(p, array.bytes)
            device[name] = p
            cells.append(ctypes.c_void_p(p))
        self.library.laptop_judge((ctypes.c_void_p * len(cells))(*map(ctypes.addressof, cells)))
        got, written = {}, {}
        for name in case.outputs:
            got[name] = contiguous(clone(case.values[name]))
            array = arrays.of(got[name])
            ctypes.memmove(array.address, device[name], array.bytes)
            flags = ctypes.string_at(self.library.laptop_judge_written(device[name]), array.bytes)
            written[name] = np.frombuffer(flags, bool).reshape(-1, array.itemsize).all(1)
        for p in device.values():
            self.library.laptop_judge_free(p)
        return got, written


def seed_generators(seed: int) -> None:
    """Challenges draw their inputs without a seed: a verdict is the same each time."""
    random.seed(seed)
    np.random.seed(seed % 2 ** 32)
    if torch := arrays.torch_if_installed():
        torch.manual_seed(seed)


def layout_of(folder: Path):
    if (folder / "challenge.py").is_file():
        return LeetGPU(folder)
    if (folder / "task.yml").is_file() and (folder / "reference.py").is_file():
        return KernelBot(folder)
    raise JudgeError(f"{folder} has neither challenge.py (LeetGPU's layout) nor task.yml and reference.py "
                     "(KernelBot's)")


def _checked(parameter, value):
    if not arrays.is_array(value):
        given = (repr(value) if isinstance(value, (int, float, str)) else
                 f"an object of Python ({type(value).__name__}), which CUDA C++ cannot take")
        raise JudgeError(f"parameter `{parameter.name}` is a pointer, but the case gives {given}")
    size = arrays.of(value).itemsize
    if parameter.dtype not in ("void", "struct") and parameter.itemsize // parameter.lanes != size:
        raise JudgeError(f"parameter `{parameter.name}` ({parameter.type}) gets an array of "
                         f"{arrays.dtype_of(value)}")
    return contiguous(value)


def one_rounding_apart(got, expected) -> bool:
    """Whether arrays of 16-bit floats differ by one step of their type at most."""
    step = {"float16": 2.0 ** -10, "bfloat16": 2.0 ** -7}.get(arrays.dtype_of(expected))
    a, b = numbers(got).reshape(-1), numbers(expected).reshape(-1)
    return bool(step and a.shape == b.shape and np.allclose(a, b, rtol=step, atol=2.0 ** -24, equal_nan=True))


def difference(name: str, got, expected, rtol: float, atol: float) -> str:
    """Where two arrays differ, in one line; "" if they agree."""
    a, b = numbers(got), numbers(expected)
    if a.shape != b.shape:
        a = a.reshape(b.shape) if a.size == b.size else a
    if a.shape != b.shape:
        return f"{name} has shape {a.shape}, expected {b.shape}"
    apart = ~np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
    if not apart.any():
        return ""
    first = tuple(int(i) for i in np.argwhere(apart)[0])
    where = ", ".join(map(str, first))
    return (f"{name}[{where}] is {_shown(a[first])}, expected {_shown(b[first])}; "
            f"{int(apart.sum()):,} of {a.size:,} elements differ")


def _shown(value) -> str:
    """Six digits of a float, a whole number in full."""
    return f"{value:g}" if isinstance(value, (np.floating, np.complexfloating)) else str(value)


if __name__ == "__main__":
    main(Judge)
